// What is removed after 180 days: by one process, once a day, in batches.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { createRetention } from "../../src/people/retention.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { ManualClock } from "../support/clock.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { movableNow } from "../support/sql-clock.ts";

const stack = new AsyncDisposableStack();
let postgres: Postgres;
let shiftTo: (days: number) => Promise<void>;
beforeAll(async () => {
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const moveNow = await movableNow(database);
  shiftTo = (days) => moveNow(days * 24 * hourMs);
  // The search path is that of new connections.
  postgres = stack.adopt(connectPostgres(database.url), (one) => one.close());
});
afterAll(() => stack.disposeAsync());

const execute = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(postgres, { name: `test/${name}`, text }, values);
const hourMs = 3_600_000;
const soon = { timeout: 30_000, interval: 20 };

/** Sessions that end in different ways on day 0, and audit events of that day. */
async function makeOld(count: number): Promise<void> {
  await execute("reset", "truncate people, sessions, audit_events cascade");
  await execute("person", "insert into people (person_id, login) values ('per_1', 'one')");
  await execute(
    "sessions",
    `insert into sessions (digest, session_id, person_id, method, made_at, used_at, ends_at,
       strong_until, address, agent, ended_at)
     select decode(md5(how || i), 'hex'), how || i, 'per_1', 'password', t - interval '2 days',
       case how when 'idle' then t - interval '12 hours' else t end,
       case how when 'late' then t else t + interval '28 days' end, t, '192.0.2.1', 'a browser',
       case how when 'signed-out' then t end
     from (select now() as t) at, generate_series(1, $1) i,
       unnest(array['idle', 'late', 'signed-out']) how`,
    [count],
  );
  await execute(
    "events",
    `insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
     select 'aud_' || i, now(), 'person:per_1', 'acc_a', 'Invite', 'ok', '{}', '192.0.2.1'
     from generate_series(1, $1) i`,
    [count],
  );
}

async function counts() {
  const [row] = await execute<{ sessions: number; addresses: number; events: number }>(
    "counts",
    `select (select count(*) from sessions)::int4 as sessions,
       (select count(*) from audit_events where address <> '')::int4 as addresses,
       (select count(*) from audit_events)::int4 as events`,
  );
  return row;
}

/** A process that has run for an hour of its clock, and what it removed. */
async function runHour(processes: readonly ReturnType<typeof startProcess>[]): Promise<number> {
  for (const { clock } of processes) await clock.advance(hourMs);
  // It waits for the next hour when its work is done.
  for (const { clock } of processes) await vi.waitFor(() => expect(clock.pending).toBe(1), soon);
  for (const { retention } of processes) await retention.stop();
  return processes.reduce((sum, one) => sum + one.batches.length, 0);
}

function startProcess() {
  const clock = new ManualClock();
  const batches: number[] = [];
  const run: Runner["run"] = async (statement, ...parameters) => {
    const result = await postgres.run(statement, ...parameters);
    if (statement.name.startsWith("people/remove-")) batches.push(Number(result));
    return result;
  };
  const retention = createRetention({ store: { run }, clock, log: createLog("silent") });
  retention.start();
  return { clock, batches, retention };
}

test("ended sessions, and addresses in audit events, go after 180 days and not before", async () => {
  await shiftTo(0);
  await makeOld(2);
  await shiftTo(179.9);
  expect(await runHour([startProcess()])).toBe(3);
  expect(await counts()).toEqual({ sessions: 6, addresses: 2, events: 2 });
  await shiftTo(180.95);
  await runHour([startProcess()]);
  expect(await counts()).toEqual({ sessions: 0, addresses: 0, events: 2 });
});

test("a session that is open stays, however old its person is", async () => {
  await shiftTo(400);
  await makeOld(1);
  await execute("reopen", "update sessions set ended_at = null, ends_at = now(), used_at = now()");
  await shiftTo(430);
  await runHour([startProcess()]);
  expect((await counts())?.sessions).toBe(3);
});

test("of several processes one does it, once a day, in batches of a thousand", async () => {
  await shiftTo(1_000);
  await makeOld(1_500);
  await shiftTo(1_200);
  // 4,500 sessions are five batches, 1,500 addresses two.
  const processes = [startProcess(), startProcess(), startProcess()];
  expect(await runHour(processes)).toBe(8);
  expect(processes.filter(({ batches }) => batches.length > 0)).toHaveLength(1);
  expect(processes.flatMap(({ batches }) => batches).sort()).toEqual(
    [0, 1_000, 1_000, 1_000, 1_000, 500, 1_000, 500].sort(),
  );
  expect(await counts()).toEqual({ sessions: 0, addresses: 0, events: 1_500 });
  await shiftTo(1_200.9);
  expect(await runHour([startProcess()])).toBe(0);
  await shiftTo(1_201);
  expect(await runHour([startProcess()])).toBe(3);
});

test("a process asks again each hour, and goes on after an error", async () => {
  const clock = new ManualClock();
  const asked: string[] = [];
  const run: Runner["run"] = async ({ name, result }, ..._) => {
    asked.push(name);
    if (asked.length === 1) throw new Error("the database is away");
    return result([], 0);
  };
  const retention = createRetention({ store: { run }, clock, log: createLog("silent") });
  retention.start();
  for (let hours = 0; hours < 3; hours++) await clock.advance(hourMs);
  expect(asked).toEqual(Array(3).fill("people/claim-cleaning"));
  await retention.stop();
  await clock.advance(hourMs);
  expect([asked.length, clock.pending]).toEqual([3, 0]);
});
