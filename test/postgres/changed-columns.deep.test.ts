// A column that changes under a statement is found before anything runs: by the generator, or by
// the compiler in the code that uses it.

import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { generate } from "../../src/postgres/generate.ts";
import { freshDatabase } from "../support/database.ts";

const root = join(import.meta.dirname, "../..");
/** The sources, to compile them against what the generator makes of a changed database. */
const copy = mkdtempSync(join(tmpdir(), "gateway-changed-"));
beforeAll(() => {
  for (const name of ["src", "gen", "proto", "package.json", "tsconfig.json"])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
});
afterAll(() => rmSync(copy, { recursive: true, force: true }));

/** Makes `gen/sql` anew, of a database that was changed so. */
async function generateAfter(change: string): Promise<void> {
  const { url, drop } = await freshDatabase();
  onTestFinished(drop);
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(change).finally(() => client.end());
  await generate(url, join(copy, "gen"));
}

/** What the compiler says of the sources. */
function compile(): Promise<string> {
  const tsc = join(root, "node_modules/.bin/tsc");
  const args = ["--noEmit", "-p", join(copy, "tsconfig.json")];
  return new Promise((resolve) => execFile(tsc, args, (_error, output) => resolve(output)));
}

describe("the generator refuses, with file and line,", () => {
  test.for([
    [
      "a renamed column",
      "alter table budgets rename column month_base to base",
      "billing/sql/admission.sql",
      "month_base",
    ],
    ["a dropped column", "alter table usage_daily drop column cut", "billing/sql/usage.sql", "cut"],
    ["a table that is gone", "drop table sessions cascade", "people/sql/members.sql", "sessions"],
    [
      "a number that is none",
      "alter table usage_hourly alter column requests type text",
      "billing/sql/holds.sql",
      "operator",
    ],
  ] as const)("%s", async ([, change, file, name]) => {
    const failure = generateAfter(change);
    await expect(failure).rejects.toThrow(new RegExp(`${file}:\\d+: .*${name}.* does not exist`));
  });
});

describe("the compiler objects to", () => {
  test.for([
    ["a column that may be null", "alter table pools alter column posted drop not null", "billing"],
    [
      "a column of another type",
      "alter table sessions alter column strong_until type text",
      "people",
    ],
    [
      "a further value in a list",
      `alter table members drop constraint members_role_check,
         add constraint members_role_check check (role in ('owner', 'member', 'viewer', 'guest'))`,
      "people",
    ],
    ["a larger number", "alter table holds alter column granted_output type bigint", "billing"],
  ] as const)("%s", async ([, change, folder]) => {
    await generateAfter(change);
    expect(await compile()).toMatch(new RegExp(`src/${folder}/[\\w-]+\\.ts.* error TS`));
  });

  test("nothing, where nothing changed", async () => {
    await generateAfter("select 1");
    expect(await compile()).toBe("");
  });
});
