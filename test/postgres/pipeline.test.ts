// The pipelined connection: several statements in one round trip.

import { performance } from "node:perf_hooks";
import fc from "fast-check";
import { afterAll, expect, test, vi } from "vitest";
import { freshDatabase } from "../support/database.ts";

const { postgres, drop } = await freshDatabase();
const connection = await postgres.connect();
afterAll(async () => {
  await connection.end();
  await drop();
});

const sql = (name: string, text: string) => ({ name: `test/${name}`, text });
const begin = [sql("begin", "begin"), []] as const;
const commit = [sql("commit", "commit"), []] as const;
const insert = (id: string) =>
  [
    sql("insert", "insert into accounts (account_id, name) values ($1, 'x') returning name"),
    [id],
  ] as const;
const count = (id: string) =>
  [sql("count", "select count(*) from accounts where account_id = $1"), [id]] as const;

test("the results of one round trip are in the order of its statements", async () => {
  const answers = await connection.send([begin, insert("acc_order"), count("acc_order"), commit]);
  expect(answers).toEqual([
    { rows: [], command: "BEGIN" },
    { rows: [{ name: "x" }], command: "INSERT" },
    { rows: [{ count: 1n }], command: "SELECT" },
    { rows: [], command: "COMMIT" },
  ]);
  // Again, now that the server has prepared them.
  expect(await connection.send([count("acc_order"), count("acc_other")])).toMatchObject([
    { rows: [{ count: 1n }] },
    { rows: [{ count: 0n }] },
  ]);
});

test("concurrent round trips each get all their results", async () => {
  const later = [sql("later", "select 7 as seven"), []] as const;
  const answers = await Promise.all([connection.send([later]), connection.send([later, later])]);
  expect(answers.flat().map(({ rows }) => rows)).toEqual([
    [{ seven: 7 }],
    [{ seven: 7 }],
    [{ seven: 7 }],
  ]);
});

test("statements that the server has deallocated are prepared again after one error", async () => {
  await connection.send([count("acc_order"), insert("acc_forgotten")]);
  await connection.send([[sql("forget", "deallocate all"), []]]);
  await expect(connection.send([count("acc_order")])).rejects.toMatchObject({ code: "26000" });
  expect(await connection.send([count("acc_forgotten"), insert("acc_remembered")])).toMatchObject([
    { rows: [{ count: 1n }] },
    { rows: [{ name: "x" }] },
  ]);
});

test("after a failed statement the rest is skipped, and the connection stays usable", async () => {
  const failing = connection.send([begin, insert("acc_once"), insert("acc_once"), commit]);
  await expect(failing).rejects.toMatchObject({ code: "23505" });
  expect(await connection.send([commit])).toEqual([{ rows: [], command: "ROLLBACK" }]);
  expect(await connection.send([count("acc_once")])).toMatchObject([{ rows: [{ count: 0n }] }]);
});

test("a statement whose first use failed can be used again", async () => {
  const divide = (by: number) => [sql("divide", "select 6 / $1::integer as result"), [by]] as const;
  await expect(connection.send([divide(0)])).rejects.toMatchObject({ code: "22012" });
  expect(await connection.send([divide(2)])).toMatchObject([{ rows: [{ result: 3 }] }]);
  await expect(connection.send([divide(0), count("acc_order")])).rejects.toMatchObject({
    code: "22012",
  });
  expect(await connection.send([divide(3), divide(6)])).toMatchObject([
    { rows: [{ result: 2 }] },
    { rows: [{ result: 1 }] },
  ]);
});

test("a plan is made again after ten seconds, because the tables may have changed", async () => {
  const times = sql(
    "times",
    "select prepare_time::text as at from pg_prepared_statements where name = 'test/times'",
  );
  const preparedAt = async () => Object((await connection.send([[times, []]]))[0]?.rows[0]).at;
  const first = await preparedAt();
  expect(await preparedAt()).toBe(first);
  const now = performance.now();
  const clock = vi.spyOn(performance, "now").mockReturnValue(now + 10_001);
  const second = await preparedAt();
  expect(second).not.toBe(first);
  expect(await preparedAt()).toBe(second);
  clock.mockRestore();
});

test("values arrive as they were sent, with any characters", async () => {
  const echo = sql(
    "echo",
    "select $1::text as text, $2::text[] as texts, $3::bigint[] as amounts, $4::boolean[] as flags, $5::timestamptz[] as times, $6::jsonb as json",
  );
  // PostgreSQL's text type has no NUL, and UTF-8 has no lone surrogate.
  const text = fc
    .string({ unit: "grapheme" })
    .map((one) => one.replaceAll("\0", ""))
    .filter((one) => one.isWellFormed());
  const values = fc.tuple(
    fc.option(text),
    fc.array(
      fc.option(
        fc.oneof(text, fc.constantFrom("NULL", "null", "", "{}", '"', "\\", ",", " ", "'")),
      ),
      { maxLength: 5 },
    ),
    fc.array(fc.option(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })), { maxLength: 5 }),
    fc.array(fc.boolean(), { maxLength: 5 }),
    fc.array(
      fc.date({ min: new Date("2000-01-01"), max: new Date("2100-01-01"), noInvalidDate: true }),
      { maxLength: 5 },
    ),
    fc.option(fc.dictionary(text, text)),
  );
  await fc.assert(
    fc.asyncProperty(values, async ([one, texts, amounts, flags, times, json]) => {
      const sent = [one, texts, amounts, flags, times, json && JSON.stringify(json)];
      const [answer] = await connection.send([[echo, sent]]);
      expect(answer?.rows).toEqual([{ text: one, texts, amounts, flags, times, json }]);
    }),
  );
});

test("a value of an unsupported type is rejected before anything is sent", async () => {
  await expect(
    connection.send([[sql("object", "select $1::text"), [{ an: "object" }]]]),
  ).rejects.toThrow(TypeError);
  expect(await connection.send([count("acc_order")])).toMatchObject([{ rows: [{ count: 1n }] }]);
});
