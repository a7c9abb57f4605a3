// Every message of the configuration. A row of `messages/` is a change of the file of
// `messages/files.ts`, or an environment, and below it the problems that it has, one a line.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { fileWith, wholeFile } from "./messages/files.ts";

type Changes = Readonly<Record<string, string>>;

for (const [table, read] of [
  ["files", (change: Changes) => readCatalogFile(fileWith(change))],
  ["environment", (env: Changes) => readConfig(env)],
] as const)
  test(`each wrong value of ${table}.txt has its message`, () => {
    const path = join(import.meta.dirname, "messages", `${table}.txt`);
    const rows = readFileSync(path, "utf8").trimEnd().split("\n\n");
    expect(rows.length).toBeGreaterThan(100);
    const fresh = rows.map((row) => {
      const [input = ""] = row.split("\n");
      return [input, ...problemsOf(() => read(JSON.parse(input)))].join("\n");
    });
    expect(fresh.join("\n\n")).toBe(rows.join("\n\n"));
  });

test("the file of which they change one place has no problem", () => {
  expect(problemsOf(() => readCatalogFile(JSON.stringify(wholeFile)))).toEqual([]);
});

/** The problems that reading reports, each after two spaces. */
function problemsOf(read: () => unknown): string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return error.message
      .split("\n")
      .slice(1)
      .map((line) => line.trimEnd());
  }
}
