// Every statement prepares against the migrated schema: no column is misspelt, no type is guessed
// wrong.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freshDatabase } from "./support/database.ts";

const source = join(import.meta.dirname, "../src");
const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((file) =>
  /\bsql\/[^/]+\.sql$/.test(file),
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
    const text = readFileSync(join(source, file), "utf8");
    const body = text.replace(/^(\s*--.*\n)+/, "").trim();
    await client.query("begin");
    try {
      await client.query(utility.test(body) ? body : `prepare checked as ${body}`);
    } finally {
      await client.query("rollback");
      await client.query("deallocate all");
    }
  });

  test(`${file} opens with what it promises`, () => {
    expect(readFileSync(join(source, file), "utf8")).toMatch(/^-- \S/);
  });
}

test("there are statements to check", () => {
  expect(files.length).toBeGreaterThan(0);
});
