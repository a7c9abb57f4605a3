import { afterAll, expect, test } from "vitest";
import { freshDatabase } from "../support/database.ts";

const database = await freshDatabase();
afterAll(() => database.drop());

test("int8 arrives as bigint, date as text and timestamptz as Date", async () => {
  const statement = {
    name: "test/types",
    text: "select 9007199254740993::int8 as big, '{1,null}'::int8[] as bigs, date '2026-01-31' as day, timestamptz 'epoch' as moment",
  };
  const [row] = await database.postgres.query(statement, []);
  expect(row).toEqual({ big: 9007199254740993n, bigs: [1n, null], day: "2026-01-31", moment: new Date(0) });
});
