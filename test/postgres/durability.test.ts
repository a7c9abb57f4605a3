// Whether commits survive the loss of the primary, and what is reported where they do not.

import { pino } from "pino";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { migrate } from "../../src/postgres/migrate.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { LedgerWatch } from "../../src/server/ledger-watch.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { type ServerPair, startServerPair } from "../support/server-pair.ts";

let pair: ServerPair;
beforeAll(async () => {
  pair = await startServerPair({ synchronous: true });
  await migrate(pair.url());
});
afterAll(() => pair.stop());

type Line = {
  code?: string;
  problem?: string;
  msg: string;
  tables?: string[];
  statements?: string[];
};

function watchOf(url: string) {
  const lines: Line[] = [];
  const postgres = connectPostgres(url);
  const log = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  return { watch: new LedgerWatch(postgres, log), postgres, lines };
}

const warnings = (lines: readonly Line[]) =>
  lines.filter(({ code }) => code === "ledger_not_synchronous").map(({ problem }) => problem);

test("a synchronous pair is reported by its standby, and satisfies REQUIRE_SYNC", async () => {
  const { watch, postgres, lines } = watchOf(pair.url());
  await vi.waitFor(async () => expect((await watch.check()).syncStandbys).toBe(1));
  lines.length = 0;
  await watch.start({ requireSync: true });
  expect(watch.syncStandbys).toBe(1);
  expect(warnings(lines)).toEqual([]);
  watch.stop();
  await postgres.close();
});

test("a standby that is lost is warned of once, and its return is reported", async () => {
  const { watch, postgres, lines } = watchOf(pair.url());
  await vi.waitFor(async () => expect((await watch.check()).syncStandbys).toBe(1));
  lines.length = 0;
  await pair.b.stop();
  await vi.waitFor(async () => expect((await watch.check()).syncStandbys).toBe(0));
  await watch.check();
  expect(warnings(lines)).toEqual(["no synchronous standby is connected"]);
  await expect(watch.start({ requireSync: true })).rejects.toThrow("REQUIRE_SYNC=true");
  await pair.b.start();
  await vi.waitFor(async () => expect((await watch.check()).syncStandbys).toBe(1));
  expect(lines.at(-1)?.msg).toContain("on a synchronous standby again");
  watch.stop();
  await postgres.close();
});

const settings = [
  {
    name: "an asynchronous standby",
    set: ["synchronous_standby_names", ""],
    problem: "synchronous_standby_names is empty",
  },
  {
    name: "commits that do not wait",
    set: ["synchronous_commit", "off"],
    problem: "synchronous_commit is off",
  },
  {
    name: "commits that wait for the primary alone",
    set: ["synchronous_commit", "local"],
    problem: "synchronous_commit is local",
  },
] as const;
for (const {
  name,
  set: [setting, value],
  problem,
} of settings) {
  test(`${name}: a warning, and REQUIRE_SYNC refuses`, async () => {
    const usual = { synchronous_standby_names: "*", synchronous_commit: "on" }[setting];
    const { watch, postgres, lines } = watchOf(pair.url());
    await pair.a.set(setting, value);
    await vi.waitFor(async () => expect((await watch.check()).problem).toBe(problem));
    expect(warnings(lines)).toContain(problem);
    await expect(watch.start({ requireSync: true })).rejects.toThrow(problem);
    await pair.a.set(setting, usual);
    await postgres.close();
  });
}

test("a role that may not ask is told nothing about standbys, and still of empty names", async () => {
  await pair.a.query("create role plain login");
  const url = pair.url().replace("//gateway@", "//plain@");
  const { watch, postgres } = watchOf(url);
  await vi.waitFor(async () =>
    expect(await watch.check()).toEqual({
      isSynchronous: true,
      problem: undefined,
      syncStandbys: undefined,
      oldestSnapshotS: 0,
      version: expect.any(String),
    }),
  );
  await pair.a.set("synchronous_standby_names", "");
  await vi.waitFor(async () =>
    expect((await watch.check()).problem).toBe("synchronous_standby_names is empty"),
  );
  await pair.a.set("synchronous_standby_names", "*");
  await postgres.close();
});

test("the age of the oldest snapshot is read, whoever has it", async () => {
  const { watch, postgres } = watchOf(pair.url());
  const reader = connectPostgres(pair.url());
  const isSeen = async () =>
    vi.waitFor(async () => expect((await watch.check()).oldestSnapshotS).toBeGreaterThan(0));
  await reader.transaction(async (tx) => {
    await query(tx, { name: "", text: "set transaction isolation level repeatable read" }, []);
    await query(tx, { name: "", text: "select count(*) from accounts" }, []);
    await isSeen();
  });
  await vi.waitFor(async () => expect((await watch.check()).oldestSnapshotS).toBe(0));
  expect(watch.oldestSnapshotS).toBe(0);
  await reader.close();
  await postgres.close();
});

test("a server without a standby is not warned of, and does not satisfy REQUIRE_SYNC", async () => {
  const alone = await freshDatabase();
  const { watch, postgres, lines } = watchOf(alone.url);
  await watch.start({ requireSync: false });
  expect(warnings(lines)).toEqual([]);
  await expect(watch.start({ requireSync: true })).rejects.toThrow("it has no standby");
  watch.stop();
  await postgres.close();
  await alone.drop();
});

test("a role that may update charges is warned of, and one that may not is not", async () => {
  await pair.a.query("create role careful login");
  await pair.a.query("grant select, insert on all tables in schema public to careful");
  const careful = watchOf(pair.url().replace("//gateway@", "//careful@"));
  expect(await careful.postgres.readChangeable()).toEqual([]);
  await careful.watch.start({ requireSync: false });
  expect(careful.lines.filter(({ code }) => code !== "ledger_not_synchronous")).toEqual([]);
  careful.watch.stop();
  await careful.postgres.close();

  await pair.a.query("grant update on charges to careful");
  const { watch, postgres, lines } = watchOf(pair.url().replace("//gateway@", "//careful@"));
  await watch.start({ requireSync: false });
  expect(lines.find(({ code }) => code === "ledger_may_be_changed")?.tables).toEqual(["charges"]);
  watch.stop();
  await postgres.close();
});

test("a user who owns nothing and cannot take the role of the gateway is told what to run", async () => {
  await pair.a.query("create role powerless login");
  const { watch, postgres, lines } = watchOf(pair.url().replace("//gateway@", "//powerless@"));
  const roleStatements = ["grant model_gateway to powerless"];
  await watch.start({ requireSync: false, roleStatements });
  const [warning] = lines.filter(({ code }) => code === "ledger_role_missing");
  expect(warning?.statements).toEqual(roleStatements);
  watch.stop();
  await postgres.close();
});
