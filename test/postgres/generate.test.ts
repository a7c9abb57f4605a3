// The generator of statements: what it writes of a block, and what it refuses.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { bindParameters, generate, readBlocks, readSchema } from "../../src/postgres/generate.ts";
import { freshDatabase } from "../support/database.ts";

const database = await freshDatabase();
const client = new Client({ connectionString: database.url });
beforeAll(() => client.connect());
afterAll(async () => {
  await client.end();
  await database.drop();
});

/** The constants for the blocks of a file. */
async function render(text: string): Promise<string> {
  const schema = await readSchema(client);
  const blocks = readBlocks("src/people/sql/sessions.sql", text);
  const sources = await Promise.all(blocks.map((block) => schema.render("people", block)));
  return sources.join("\n");
}

test("gen/sql is what `npm run generate` makes of the statements", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-gen-sql-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  await generate(database.url, folder);
  const committed = join(import.meta.dirname, "../../gen/sql");
  const read = (path: string) =>
    Object.fromEntries(
      readdirSync(path).map((file) => [file, readFileSync(join(path, file), "utf8")]),
    );
  expect(read(committed)).toEqual(read(join(folder, "sql")));
});

test("a block becomes a constant with its contract, its parameters and its row", async () => {
  const source = await render(`
-- timeout_ms=5000

-- name: End :optional
-- Ends an open session of a person. No row: there is none.
-- :session_id  of this session alone
update sessions set ended_at = now() -- not now
 where person_id = :person_id and session_id = :session_id and address <> ':person_id'
returning method, extract(epoch from ended_at)::float8 as "at_s?";
`);
  expect(source).toBe(`\
export type EndRow = { method: "passkey" | "password" | "oidc"; atS: number | null };
/**
 * Ends an open session of a person. No row: there is none.
 * \`sessionId\`: of this session alone
 */
export const end: Optional<{ personId: string; sessionId: string }, EndRow> = optional(
  "people/end",
  \`-- people/end
update sessions set ended_at = now() -- not now
 where person_id = $1 and session_id = $2 and address <> ':person_id'
returning method, extract(epoch from ended_at)::float8 as at_s\`,
  (p) => [p.personId, p.sessionId],
  (v) => ({ method: v[0], atS: v[1] }) as never,
  "atS",
  5000,
);
`);
});

test("a parameter is a name outside of texts, comments, casts and slices", () => {
  const sql = "select :one::int, ':two', a[1:3], -- :three\n :four, \":five\", :one from t";
  expect(bindParameters(sql)).toMatchObject({
    names: ["one", "four"],
    text: "select $1::int, ':two', a[1:3], -- :three\n $2, \":five\", $1 from t",
  });
});

const named = (kind: string, sql: string, head = "") =>
  `-- name: FindIt :${kind}\n-- Finds it.\n${head}${sql};\n`;

describe("refuses, with file and line,", () => {
  test.for<[string, string, RegExp]>([
    [
      "a computed column that nobody has marked",
      named("many", "select 1 + 1 as sum"),
      /sum: computed: write as "sum!" or as "sum\?"/,
    ],
    [
      "a column of an outer join that nobody has marked",
      named("many", "select s.method from people p left join sessions s using (person_id)"),
      /method: an outer join: write as/,
    ],
    ["a column without a name", named("one", "select 1 + 1"), /FindIt has a column without a name/],
    [
      "two columns of one name",
      named(
        "one",
        "select p.person_id, s.person_id from people p join sessions s on s.person_id = p.person_id",
      ),
      /two columns are named person_id/,
    ],
    [
      "a parameter that the text lacks",
      named("run", "delete from people", "-- :person_id?\n"),
      /has no parameter :person_id/,
    ],
    [
      "a result column that the text lacks",
      named("many", "select login from people", "-- =role members.role\n"),
      /returns no column role/,
    ],
    [
      "a column that does not exist",
      named("many", "select nowhere from people"),
      /column "nowhere" does not exist/,
    ],
    [
      "a type of a column that does not exist",
      named("run", "delete from people where login = :login", "-- :login people.nowhere\n"),
      /there is no column people\.nowhere/,
    ],
    [
      "two blocks of one name",
      named("run", "delete from people").repeat(2),
      /:4: a second block is named FindIt/,
    ],
    ["a schema", named("run", "delete from public.people"), /name no schema/],
    ["a star", named("many", "select * from people"), /write the columns in place of \*/],
    [
      "a part of a family of columns",
      named("many", "select input, output from price_versions"),
      /has the family category without thinking, cache_write_5m.*not each: category/,
    ],
    [
      "rows where none are expected",
      named("run", "select login from people"),
      /returns rows: it is no :run/,
    ],
    ["no rows where some are expected", named("many", "delete from people"), /returns no rows/],
    [
      "a kind that is none",
      named("first", "select login from people"),
      /write `-- name: PascalCase :one/,
    ],
    [
      "a block without a contract",
      "-- name: FindIt :many\nselect login from people;\n",
      /needs a contract/,
    ],
    ["text before the first name", "select 1;\n", /:1: a statement needs a first line/],
    [
      "lists of values that differ",
      named(
        "run",
        "update payment_refunds r set state = :state from payment_deposits d where d.order_id = r.order_id",
      ),
      /it may be .* or .*: say which/,
    ],
  ])("%s", async ([, text, message]) => {
    const failure = render(text);
    await expect(failure).rejects.toThrow(message);
    await expect(failure).rejects.toThrow(/^src\/people\/sql\/sessions\.sql:\d+/);
  });

  test("and takes a part of a family that is said to be meant", async () => {
    const head = "-- not each: category  only these two have a limit\n";
    const source = await render(named("many", "select input, output from price_versions", head));
    expect(source).toContain("{ input: bigint; output: bigint }");
  });
});

test("null is what the block says of it: of a parameter, of elements, of a column it is like", async () => {
  const source = await render(
    named(
      "run",
      "update sessions set passkey_id = :passkey, agent = :agent, address = :address where digest = any(:digests::bytea[]) and session_id = any(:ids::text[])",
      "-- :passkey sessions.passkey_id\n-- :agent?  none\n-- :ids[]?\n",
    ),
  );
  expect(source).toContain(
    "Run<{ passkey: string | null; agent: string | null; address: string; digests: readonly Buffer[]; ids: readonly (string | null)[] }>",
  );
});
