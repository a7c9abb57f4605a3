// Which of two replicated servers is used: a standby first in the list, a promotion, a primary that
// is killed, comes back read-only, or still answers after a failover.

import { pino } from "pino";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { migrate } from "../../src/postgres/migrate.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { freePort } from "../support/ports.ts";
import { query } from "../support/query.ts";
import {
  caughtUp,
  type ServerPair,
  startServerPair,
  startTestServer,
  type TestServer,
} from "../support/server-pair.ts";

let pair: ServerPair;
beforeAll(async () => {
  pair = await startServerPair({ synchronous: false });
});
afterAll(() => pair.stop());

const port = { name: "", text: "select current_setting('port')::int as port" };
const waiting = { interval: 50 };

async function portOf(postgres: Postgres): Promise<number | undefined> {
  return (await query<{ port: number }>(postgres, port, []))[0]?.port;
}

async function portOfQueue(postgres: Postgres): Promise<unknown> {
  const connection = await postgres.connect();
  const [answer] = await connection.send([[{ name: "test/port", text: port.text }, []]]);
  await connection.end();
  return Object(answer?.rows[0]).port;
}

/** A log whose lines are collected. */
function recordingLog(lines: Record<string, unknown>[]) {
  return pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
}

function listOf(first: TestServer, second: TestServer, parameters = ""): string {
  return `postgres://gateway@${first.address},${second.address}/gateway${parameters}`;
}

test("pool, queues and migrations skip a standby that is first in the list", async () => {
  for (const target of ["", "?target_session_attrs=primary"]) {
    const url = listOf(pair.b, pair.a, target);
    await migrate(url);
    const postgres = connectPostgres(url);
    expect(await portOf(postgres)).toBe(pair.a.port);
    expect(await portOfQueue(postgres)).toBe(pair.a.port);
    await postgres.close();
  }
});

test("target_session_attrs=any takes the first server that answers", async () => {
  const refused = `127.0.0.1:${await freePort()}`;
  const url = `postgres://gateway@${refused},${pair.b.address}/gateway?target_session_attrs=any`;
  const postgres = connectPostgres(url);
  expect(await portOf(postgres)).toBe(pair.b.port);
  await postgres.close();
});

/** Why the database counts as unreachable. */
async function reasonOf(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.catch((failure: unknown) => failure);
  expect(error).toMatchObject({ reason: "database_unavailable" });
  return String(error instanceof Error && error.cause);
}

test("half a list that cannot be reached does not matter, and a list without a primary is named", async () => {
  const refused = `127.0.0.1:${await freePort()}`;
  const half = connectPostgres(
    `postgres://gateway@host.invalid,${pair.a.address},${refused}/gateway`,
  );
  expect(await portOf(half)).toBe(pair.a.port);
  await half.close();

  const none = connectPostgres(`postgres://gateway@${refused},${pair.b.address}/gateway`);
  const reason = await reasonOf(portOf(none));
  expect(reason).toContain(`${refused} (ECONNREFUSED`);
  expect(reason).toContain(`${pair.b.address} (the server ${pair.b.address} is a standby)`);
  await none.close();
});

test("a primary that is made read-only is left, and used again when it takes writes", async () => {
  const postgres = connectPostgres(pair.url());
  const connection = await postgres.connect();
  const write = { name: "test/write", text: "create temporary table written ()" };
  await pair.a.set("default_transaction_read_only", "on");
  await vi.waitFor(async () => {
    const failure = await connection.send([[write, []]]).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "25006" });
  }, waiting);
  // Behind a balancer the next connection may reach another server.
  expect(connection.lost).toBe(true);
  connection.destroy();
  await expect(postgres.connect()).rejects.toThrow("is read-only");
  await pair.a.set("default_transaction_read_only", "off");
  await vi.waitFor(async () => expect(await portOfQueue(postgres)).toBe(pair.a.port), waiting);
  await postgres.close();
});

test("after a promotion, a primary that still answers is not used, and its statements end", async () => {
  await migrate(pair.url());
  await caughtUp(pair.a, pair.b);
  const lines: Record<string, unknown>[] = [];
  const postgres = connectPostgres(pair.url(), { log: recordingLog(lines) });
  expect(await portOf(postgres)).toBe(pair.a.port);
  const connection = await postgres.connect();
  const hanging = query(postgres, { name: "", text: "select pg_sleep(600)" }, []);
  const ended = reasonOf(hanging);

  await pair.b.promote();
  // Nothing fails here: the other servers are asked from time to time.
  await vi.waitFor(() => expect(connection.lost).toBe(true), waiting);
  expect(await ended).toContain("Connection terminated");
  expect(await portOf(postgres)).toBe(pair.b.port);
  expect(lines.map(({ code }) => code)).toEqual(
    expect.arrayContaining(["ledger_two_primaries", "ledger_moved"]),
  );

  // The order of the list does not matter, at a first start either.
  const other = connectPostgres(listOf(pair.a, pair.b));
  expect(await portOf(other)).toBe(pair.b.port);
  // Without the new primary the old one, with its old money, is not used again.
  await pair.b.kill();
  const reason = await portOf(postgres).catch(() => reasonOf(portOf(postgres)));
  expect(reason).toContain(`${pair.a.address} is a primary from before a failover`);
  await pair.b.start();
  expect(await portOf(postgres)).toBe(pair.b.port);
  await postgres.close();
  await other.close();
});

test("servers of different clusters are not a list", async () => {
  const stranger = await startTestServer();
  onTestFinished(() => stranger.stop());
  const postgres = connectPostgres(listOf(stranger.server, pair.b));
  expect(await reasonOf(portOf(postgres))).toContain("different database clusters");
  await postgres.close();
});
