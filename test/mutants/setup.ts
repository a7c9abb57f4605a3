// Runs before each suite while mutants are tried. Puts the text of one mutant in the place of a
// statement, and notes which statements a suite runs.

import { appendFileSync } from "node:fs";
import { relative } from "node:path";
import { afterAll, expect } from "vitest";
import type { Query } from "../../src/postgres/statement.ts";
import { root } from "../runner/suites.ts";
import { statements } from "./statements.ts";

const { MUTANT_STATEMENT: mutant, MUTANT_COVERAGE: coverage } = process.env;

if (mutant !== undefined) {
  const { name, text } = Object(JSON.parse(mutant));
  const statement = (await statements()).find((one) => one.name === name);
  if (!statement) throw new Error(`no statement is named ${name}`);
  Object.assign(statement, { text });
}

if (coverage !== undefined) {
  const used = new Set<string>();
  for (const statement of await statements()) {
    const { with: make } = statement;
    Object.assign(statement, {
      with(...parameters: readonly unknown[]): Query {
        used.add(statement.name);
        return make(...parameters);
      },
    });
  }
  afterAll(() => {
    const suite = relative(root, expect.getState().testPath ?? "");
    appendFileSync(coverage, `${JSON.stringify({ suite, names: [...used] })}\n`);
    used.clear();
  });
}
