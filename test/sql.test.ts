// Every statement prepares against the migrated schema, so no column is misspelt and no type is
// wrong.

import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { statement } from "../src/postgres/postgres.ts";
import { freshDatabase } from "./support/database.ts";

const source = join(import.meta.dirname, "../src");
const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter(
  (file) =>
    /\bsql\/[^/]+\.sql$/.test(file) &&
    !readFileSync(join(source, file), "utf8").includes("-- name: "),
);

const database = await freshDatabase();
const client = new Client({ connectionString: database.url });
beforeAll(() => client.connect());
afterAll(async () => {
  await client.end();
  await database.drop();
});

// PREPARE takes statements that plan; these do not, so they are run.
const utility = /^(begin|commit|rollback|set|savepoint|release|lock|notify|listen)\b/i;

for (const file of files) {
  test(`${file} prepares`, async () => {
    const caller = pathToFileURL(join(source, dirname(dirname(file)), "store.ts")).href;
    const { text } = statement(caller, basename(file, ".sql"));
    for (const one of [text]) {
      const body = one.replace(/^(\s*--.*\n)+/, "").trim();
      await client.query("begin");
      try {
        await client.query(utility.test(body) ? body : `prepare checked as ${body}`);
      } finally {
        await client.query("rollback");
        await client.query("deallocate all");
      }
    }
  });

  test(`${file} quotes the words that an engine reserves`, () => {
    const sql = readFileSync(join(source, file), "utf8").replace(/--.*/g, "");
    expect(sql).not.toMatch(/(?<!["\w])family(?!["\w])/);
  });

  test(`${file} opens with a comment: its contract`, () => {
    expect(readFileSync(join(source, file), "utf8")).toMatch(/^-- \S/);
  });
}
