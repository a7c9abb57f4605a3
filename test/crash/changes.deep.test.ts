// The month, a price or an alias changes while requests run. Each request keeps the values of its
// start.

import { readFile, writeFile } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type ClientView,
  type CrashCluster,
  haiku,
  numbered,
  startCrashCluster,
  usageOf,
} from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";

let stage: CrashCluster;
let gateway: ChildGateway;
beforeAll(async () => {
  stage = await startCrashCluster();
  for (const statement of ownClock.split(/;\n(?= {2}(?:create|grant|insert|do))/))
    await stage.ledger.run(statement);
  gateway = await stage.start({ LOG_LEVEL: "info" });
});
afterEach(async () => {
  expect(await stage.ledger.store.verifyLedger()).toEqual([]);
});
afterAll(() => stage.stop());

// The ledger uses the clock of the database only, so a function that hides the real one shifts the
// time of the gateway.
const ownClock = `
  create schema clock;
  grant usage on schema clock to public;
  create table clock.shifts (shift interval not null);
  insert into clock.shifts values ('0');
  grant select on clock.shifts to public;
  create function clock.now() returns timestamptz language sql stable as
    'select pg_catalog.now() + shift from clock.shifts';
  do $$ begin
    execute format('alter database %I set search_path = public, clock, pg_catalog', current_database());
  end $$`;

/** Sets the clock of the ledger, in seconds after the start of the next month. */
const setClock = (secondsAfter: number) =>
  stage.ledger.run(
    `update clock.shifts set shift = (date_trunc('month', pg_catalog.now() at time zone 'utc') + interval '1 month')
       at time zone 'utc' + $1 * interval '1 second' - pg_catalog.now()`,
    [secondsAfter],
  );

test("a request that crosses the end of a month belongs to the month of its start", async () => {
  await setClock(-60);
  const { payer, secret } = await stage.key(10n ** 12n);
  const rest = new Gate();
  stage.provider.always((request) => {
    const { writes = [], ...script } = answerOf(request);
    return { ...script, writes: [...writes.slice(0, 3), rest, ...writes.slice(3)] };
  });
  const before = [1, 2, 3, 4].map((number) => stage.send(gateway, secret, numbered(number)));
  await stage.provider.received(stage.provider.requests.length + before.length);
  await setClock(1);
  const after = [5, 6, 7].map((number) => stage.send(gateway, secret, numbered(number)));
  await stage.provider.received(stage.provider.requests.length + after.length);
  rest.open();
  for (const seen of await Promise.all([...before, ...after])) expect(seen.complete).toBe(true);

  const budgets = await stage.ledger.run<{ of_month: bigint; held: bigint }>(
    "select spent - month_base as of_month, held from budgets where payer = $1",
    [payer.keyId],
  );
  const cost = (numbers: number[]) =>
    numbers.reduce((sum, number) => sum + usageOf(number).cost, 0n);
  // All of them were settled in the new month.
  expect(budgets).toEqual([{ of_month: cost([1, 2, 3, 4, 5, 6, 7]), held: 0n }]);
});

test("a new month resets a reached cap, and a request of last month that still runs counts in it", async () => {
  await setClock(-60);
  const { payer, secret } = await stage.key(10n ** 12n, { cap: 100_000n });
  const rest = new Gate();
  stage.provider.always((request) => ({ ...answerOf(request), before: rest }));
  const first = stage.send(gateway, secret, numbered(1));
  await stage.provider.received(stage.provider.requests.length + 1);
  expect((await stage.send(gateway, secret, numbered(2))).status).toBe(429);
  await setClock(1);
  expect((await stage.send(gateway, secret, numbered(3))).status).toBe(429);
  rest.open();
  expect((await first).complete).toBe(true);
  expect((await stage.send(gateway, secret, numbered(4))).complete).toBe(true);
  const [budget] = await stage.ledger.run<{ of_month: bigint }>(
    "select spent - month_base as of_month from budgets where payer = $1",
    [payer.keyId],
  );
  expect(budget?.of_month).toBe(usageOf(1).cost + usageOf(4).cost);
});

test("a new price and a new alias under load: each request is charged at the price and model of its start", async () => {
  const { secret } = await stage.key(10n ** 12n);
  const rest = new Gate();
  // Half of the answers pause during the change.
  stage.provider.always((request) => {
    const script = answerOf(request);
    const isHeld = /number \d*[02468]"/.test(request.bodyText);
    return isHeld ? { ...script, before: rest } : script;
  });
  const all: { number: number; seen: Promise<ClientView> }[] = [];
  const send = (number: number) =>
    all.push({ number, seen: stage.send(gateway, secret, numbered(number)) });
  for (let number = 0; number < 20; number++) send(number);
  await stage.provider.received(stage.provider.requests.length + 20);

  const before = await readFile(stage.catalogPath, "utf8");
  const dearer = before
    .replace("price: { input: 0.70, output: 3.50 }", "price: { input: 1.40, output: 7.00 }")
    .replace("haiku: model-haiku-4.5", "haiku: model-haiku-4.5, fast: model-sonnet-4.6");
  expect(dearer).not.toBe(before);
  await writeFile(stage.catalogPath, dearer);
  gateway.process.kill("SIGHUP");
  await vi.waitFor(() => expect(gateway.stdout() + gateway.stderr()).toContain("file reloaded"));

  for (let number = 21; number < 61; number += 2) send(number);
  const renamed = await stage.send(gateway, secret, { ...numbered(63), model: "fast" });
  rest.open();
  for (const { number, seen } of all) {
    const { complete, requestId } = await seen;
    expect(complete).toBe(true);
    const { input, output, cost } = usageOf(number);
    expect(await stage.chargeOf(requestId)).toMatchObject({
      usage: { input, output },
      chargedMicrocredits: number < 20 ? cost : cost * 2n,
      price: { input: 1000n * (number < 20 ? haiku.input : haiku.input * 2n) },
    });
  }
  expect(await stage.chargeOf(renamed.requestId)).toMatchObject({
    model: "model-sonnet-4.6",
    price: { input: 420_000n },
  });

  // The alias changes its model.
  await writeFile(
    stage.catalogPath,
    before.replace("haiku: model-haiku-4.5", "haiku: model-opus-4.6"),
  );
  gateway.process.kill("SIGHUP");
  await vi.waitFor(async () => {
    const { requestId } = await stage.send(gateway, secret, numbered(65));
    expect((await stage.chargeOf(requestId))?.model).toBe("model-opus-4.6");
  });
});
