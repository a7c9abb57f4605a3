import { expect, test } from "vitest";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { freshDatabase } from "../support/database.ts";

test("a database that is newer than the program is refused and left as it is", async () => {
  const { url, postgres, drop } = await freshDatabase();
  const run = (text: string) => postgres.query<{ name: string }>({ name: "", text }, []);
  const number = readMigrations().length + 1;
  await run(`insert into migrations (number, name) values (${number}, '${number}_later')`);
  const before = await run("select * from migrations order by number");
  await expect(migrate(url)).rejects.toThrow(
    `the database is newer than this program: it has migration ${number}_later, ` +
      `and this program knows ${number - 1} migrations.`,
  );
  expect(await run("select * from migrations order by number")).toEqual(before);
  await drop();
});
