// A database that cannot be used: each cause is named in one line, without the password.

import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { expectStartToFail } from "../support/child-gateway.ts";
import { emptyDatabase, freshDatabase } from "../support/database.ts";
import { pgbouncerBinary, startPgbouncer } from "../support/pgbouncer.ts";
import { freePort } from "../support/ports.ts";
import { query } from "../support/query.ts";
import {
  caughtUp,
  type ServerPair,
  startServerPair,
  startTestServer,
} from "../support/server-pair.ts";

// Each test starts a process, or a database server too.

const migrated = await freshDatabase();
const empty = await emptyDatabase();
afterAll(async () => {
  await migrated.drop();
  await empty.drop();
});

async function startWith(databaseUrl: string, more: NodeJS.ProcessEnv = {}): Promise<string> {
  const { code, stderr } = await expectStartToFail({
    DATABASE_URL: databaseUrl,
    ADMIN_TOKEN: "a-token-of-some-length",
    DATA_DIR: join(tmpdir(), "never-made"),
    DATABASE_WAIT_SECONDS: "0",
    ...more,
  });
  expect(code).toBe(1);
  const lines = stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  expect(lines).toHaveLength(1);
  const { password } = new URL(databaseUrl.replace(/,[^/]*/, ""));
  if (password !== "") expect(stderr).not.toContain(password);
  return lines[0] ?? "";
}

function changed(url: string, change: (one: URL) => void): string {
  const copy = new URL(url);
  change(copy);
  return copy.href;
}

const run = (text: string) => query(migrated.postgres, { name: "", text }, []);

test("a wrong password", async () => {
  const url = changed(migrated.url, (one) => {
    one.password = "hidden-and-wrong";
  });
  expect(await startWith(url)).toMatch(
    /^cannot start: the database at .* refuses user or password \(password authentication failed for user "gateway"\); check DATABASE_URL$/,
  );
});

test("a database that does not exist", async () => {
  const url = changed(migrated.url, (one) => {
    one.pathname = "/nowhere";
  });
  expect(await startWith(url)).toContain('lacks it (database "nowhere" does not exist)');
});

test("a role without the right to create tables", async () => {
  const url = changed(empty.url, (one) => {
    one.username = "test_powerless";
    one.password = "hidden-but-right";
  });
  await run("drop role if exists test_powerless");
  await run("create role test_powerless login password 'hidden-but-right'");
  expect(await startWith(url)).toContain(
    "does not give the role of DATABASE_URL the rights it needs (permission denied for schema public); grant them",
  );
  await run("drop role test_powerless");
});

test("a database that a newer version has migrated", async () => {
  await run("insert into migrations (number, name) values (9999, '9999_of_the_future')");
  expect(await startWith(migrated.url)).toMatch(
    /^cannot start: the database is newer than this program: it has migration 9999_of_the_future, /,
  );
  await run("delete from migrations where number = 9999");
});

test("a database that was made read-only", async () => {
  const { pathname } = new URL(migrated.url);
  await run(`alter database ${pathname.slice(1)} set default_transaction_read_only = on`);
  expect(await startWith(migrated.url)).toMatch(
    /^cannot start: the database at .*: the server of DATABASE_URL is read-only: it takes no writes$/,
  );
  const list = `${migrated.url}&target_session_attrs=read-write`;
  expect(await startWith(list)).toMatch(/the server .* is read-only: it takes no writes$/);
});

describe("of a replicated pair", () => {
  let pair: ServerPair;
  beforeAll(async () => {
    pair = await startServerPair({ synchronous: false });
    await caughtUp(pair.a, pair.b);
  });
  afterAll(() => pair.stop());

  test("a standby alone", async () => {
    expect(await startWith(pair.b.url())).toMatch(/is a standby: it takes no writes$/);
  });

  test("a list without a primary, each server with its problem", async () => {
    const away = `127.0.0.1:${await freePort()}`;
    const list = await startWith(`postgres://gateway@${away},${pair.b.address}/gateway`);
    expect(list).toContain(`${away} (ECONNREFUSED`);
    expect(list).toContain(`the server ${pair.b.address} is a standby`);
  });

  test("a ledger on one server alone, with REQUIRE_SYNC", async () => {
    expect(await startWith(pair.url(), { REQUIRE_SYNC: "true" })).toContain(
      "REQUIRE_SYNC=true, and commits are on one server alone: synchronous_standby_names is empty",
    );
  });
});

test.skipIf(pgbouncerBinary === undefined)("a pooler in transaction mode", async () => {
  const { server, stop } = await startTestServer();
  onTestFinished(() => stop());
  const pooler = await startPgbouncer(server, "transaction");
  onTestFinished(() => pooler.stop());
  expect(await startWith(pooler.url)).toMatch(
    /a pooler .* shares connections between transactions; set it to session mode/,
  );
});
