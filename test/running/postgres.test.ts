import { afterAll, expect, test } from "vitest";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { connectPostgres, isUnreachable, type Statement } from "../../src/postgres/postgres.ts";
import { emptyDatabase, freshDatabase } from "../support/database.ts";

const { postgres, drop } = await freshDatabase();
afterAll(() => drop());

function sql(name: string, text: string): Statement {
  return { name: `test/${name}`, text };
}

const one = sql("one", "select 1 as one");
const insert = sql("insert", "insert into accounts (account_id, name) values ($1, 'x')");
const count = sql("count", "select count(*) as count from accounts where account_id = $1");

test("int8 arrives as bigint, date as text and timestamptz as Date", async () => {
  const statement = sql(
    "types",
    "select 9007199254740993::int8 as big, '{1,null}'::int8[] as bigs, date '2026-01-31' as day, timestamptz 'epoch' as moment",
  );
  const [row] = await postgres.query(statement, []);
  expect(row).toEqual({ big: 9007199254740993n, bigs: [1n, null], day: "2026-01-31", moment: new Date(0) });
});

test("a transaction whose work throws leaves nothing behind", async () => {
  const failure = new Error("changed my mind");
  const work = postgres.transaction(async (tx) => {
    await tx.query(insert, ["acc_thrown"]);
    throw failure;
  });
  await expect(work).rejects.toBe(failure);
  expect(await postgres.query(count, ["acc_thrown"])).toEqual([{ count: 0n }]);
});

test("a transaction that the server rolled back is never reported as committed", async () => {
  const work = postgres.transaction(async (tx) => {
    await tx.query(insert, ["acc_rolled_back"]);
    await tx.query(sql("fails", "select 1 / 0"), []).catch(() => {});
  });
  await expect(work).rejects.toThrow("rolled back");
  expect(await postgres.query(count, ["acc_rolled_back"])).toEqual([{ count: 0n }]);
});

test("two transactions that deadlock both commit in the end", async () => {
  for (const id of ["acc_left", "acc_right"]) await postgres.query(insert, [id]);
  const rename = sql("rename", "update accounts set name = name || '+' where account_id = $1");
  // Each holds its first row until the other holds its own: the first try of one of them must fail.
  const meeting = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const cross = (own: 0 | 1, first: string, second: string) =>
    postgres.transaction(async (tx) => {
      await tx.query(rename, [first]);
      meeting[own].resolve();
      await meeting[own === 0 ? 1 : 0].promise;
      await tx.query(rename, [second]);
    });
  await Promise.all([cross(0, "acc_left", "acc_right"), cross(1, "acc_right", "acc_left")]);
  const names = sql("names", "select name from accounts where account_id in ('acc_left', 'acc_right')");
  expect(await postgres.query(names, [])).toEqual([{ name: "x++" }, { name: "x++" }]);
});

test("a connection that is cut off says so, and its failure is one of the connection", async () => {
  const connection = await postgres.connect();
  const [answer] = await connection.send([[sql("pid", "select pg_backend_pid() as pid"), []]]);
  expect(connection.lost).toBe(false);
  await postgres.query(sql("terminate", "select pg_terminate_backend($1, 5000)"), [Object(answer?.rows[0]).pid]);
  const failure = await connection.send([[one, []]]).catch((error: unknown) => error);
  expect(isUnreachable(failure)).toBe(true);
  expect(connection.lost).toBe(true);
});

test("a connection gives up a lock after a second rather than keep a queue waiting", async () => {
  const connection = await postgres.connect();
  const [answer] = await connection.send([[sql("limits", "select current_setting('lock_timeout') as lock"), []]]);
  expect(answer?.rows).toEqual([{ lock: "1s" }]);
  await connection.end();
});

const faults = [
  { name: "a refused connection", url: "postgres://x:y@127.0.0.1:1/z" },
  { name: "a missing socket", url: "postgres://x:y@localhost/z?host=/nowhere" },
  { name: "an unknown host", url: "postgres://x:y@host.invalid/z" },
];
for (const { name, url } of faults) {
  test(`${name} is a failure of the connection`, async () => {
    const elsewhere = connectPostgres(url);
    expect(isUnreachable(await elsewhere.query(one, []).catch((error: unknown) => error))).toBe(true);
    await elsewhere.close();
  });
}

test("a wrong statement is no failure of the connection", async () => {
  expect(isUnreachable(await postgres.query(sql("wrong", "select nothing"), []).catch((error: unknown) => error))).toBe(false);
});

test("migrations are numbered without gaps and run once, however many processes start together", async () => {
  const empty = await emptyDatabase();
  await Promise.all(Array.from({ length: 8 }, () => migrate(empty.url)));
  await migrate(empty.url);
  const database = connectPostgres(empty.url);
  const applied = await database.query(
    sql("applied", "select number, name from migrations where number > 0 order by number"),
    [],
  );
  expect(applied).toEqual(readMigrations().map(({ number, name }) => ({ number, name })));
  await database.close();
  await empty.drop();
});

test("what was charged or transferred can be neither changed nor deleted", async () => {
  await postgres.query(insert, ["acc_books"]);
  await postgres.query(
    sql("transfer", "insert into transfers values ('tr_1', 'acc_books', 'v1', 'bonus', 5, 'admin', 'key')"),
    [],
  );
  for (const text of ["update transfers set amount = 6", "delete from transfers", "truncate transfers", "truncate charges"]) {
    await expect(postgres.query(sql(text, text), [])).rejects.toThrow("append-only");
  }
});
