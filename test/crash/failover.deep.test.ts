// A synchronous pair of database servers under load: the primary is killed and the standby
// promoted, then the roles are exchanged as planned.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createLedgerStore, type LedgerStore } from "../../src/billing/store.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { catalogFor } from "../support/catalog.ts";
import { contentKey } from "../support/content-key.ts";
import {
  answerOf,
  type ClientView,
  createClients,
  numbered,
  usageOf,
} from "../support/crash-cluster.ts";
import { log } from "../support/ledger.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { query } from "../support/query.ts";
import { caughtUp, type ServerPair, startServerPair } from "../support/server-pair.ts";

let folder: string;
let pair: ServerPair;
let provider: FakeProvider;
let gateway: Gateway;
let postgres: Postgres;
let store: LedgerStore;
let secret: string;
const clients = createClients();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-failover-"));
  pair = await startServerPair({ synchronous: true });
  provider = await startFakeProvider();
  provider.always(answerOf);
  const env = {
    // The standby first: the order must not matter.
    DATABASE_URL: `postgres://gateway@${pair.b.address},${pair.a.address}/gateway`,
    ADMIN_TOKEN: "the-admin-token-of-a-failover",
    CONTENT_KEY: contentKey,
    DATA_DIR: folder,
    PORT: "0",
    GRPC_PORT: "0",
    SEED: "true",
    LEDGER_MAX_WAIT_SECONDS: "3",
  };
  const catalog = readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url } }));
  gateway = await startGateway({ config: readConfig(env), catalog, env, log });
  const keys: unknown = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
  secret = String(Object(keys).v1);
  postgres = connectPostgres(pair.url());
  store = createLedgerStore(postgres);
});
afterAll(async () => {
  await gateway.stop();
  await postgres.close();
  await clients.close();
  await provider.stop();
  await pair.stop();
  await rm(folder, { recursive: true, force: true });
});

type Sent = { readonly number: number; readonly seen: ClientView };
let nextNumber = 1;

async function send(number: number): Promise<Sent> {
  const body = { ...numbered(number), stream: number % 3 > 0 };
  const address = gateway.httpAddress ?? "";
  return { number, seen: await clients.send({ address, secret, body }) };
}

/** Eight clients that send one request after the other. */
function startLoad() {
  const ended: Sent[] = [];
  let running = true;
  const load = Array.from({ length: 8 }, async () => {
    while (running) {
      ended.push(await send(nextNumber++));
    }
  });
  return {
    ended,
    /** Waits until the answers that come from now on are so many. */
    async answered(count: number, matches: (seen: ClientView) => boolean): Promise<void> {
      const from = ended.length;
      while (ended.slice(from).filter(({ seen }) => matches(seen)).length < count)
        await new Promise((resolve) => setTimeout(resolve, 10));
    },
    async stop(): Promise<readonly Sent[]> {
      running = false;
      await Promise.all(load);
      return ended;
    },
  };
}

const isComplete = ({ complete }: ClientView) => complete;

/** Every complete answer has its charge, and every other one is a 503 that cost nothing. */
async function expectNothingLost(ended: readonly Sent[]): Promise<void> {
  // Holds of unconfirmed requests are released soon after the ledger is back.
  while ((await run("select request_id from holds")).length > 0) await delay(10);
  let expected = 0n;
  for (const { number, seen } of ended) {
    const { input, output, cost } = usageOf(number);
    const [charge] = await store.findCharges(seen.requestId ?? "");
    if (seen.complete) {
      expected += cost;
      expect(charge).toMatchObject({ usage: { input, output }, chargedMicrocredits: cost });
    } else {
      expect(seen.status).toBe(503);
      expect(seen.text).toMatch(/(billing|database)_unavailable/);
      expect(charge?.chargedMicrocredits ?? 0n).toBe(0n);
    }
  }
  const ids = ended.map(({ seen }) => seen.requestId);
  const [sum] = await query<{ sum: bigint }>(
    postgres,
    {
      name: "",
      text: "select coalesce(sum(amount), 0)::bigint as sum from charges where request_id = any($1)",
    },
    [ids],
  );
  expect(sum?.sum).toBe(expected);
  expect(await store.verifyLedger()).toEqual([]);
}

async function portOf(): Promise<unknown> {
  return (await run("select current_setting('port')::int as port"))[0]?.port;
}

const run = (text: string) => query<Record<string, unknown>>(postgres, { name: "", text }, []);

test("a primary whose synchronous standby is away acknowledges nothing, and charges nothing", async () => {
  expect((await send(nextNumber++)).seen.complete).toBe(true);
  await pair.b.stop();
  // Their commits wait on the primary for as long as the standby is away.
  const refused = await Promise.all(Array.from({ length: 4 }, () => send(nextNumber++)));
  await pair.b.start();
  const later = await send(nextNumber++);
  expect(later.seen.complete).toBe(true);
  // The holds of the refused ones appear with the standby, and are released.
  await expectNothingLost([...refused, later]);
  expect(refused.map(({ seen }) => seen.status)).toEqual([503, 503, 503, 503]);
});

test("a killed primary loses and doubles no charge, and requests fail only with a free 503", async () => {
  const load = startLoad();
  await load.answered(40, isComplete);
  await pair.a.kill();
  // Running answers wait for their settlement; new requests are refused after three seconds.
  const refused = await Promise.all(Array.from({ length: 4 }, () => send(nextNumber++)));
  expect(refused.map(({ seen }) => seen.status)).toEqual([503, 503, 503, 503]);
  await pair.b.promote();
  await load.answered(40, isComplete);
  const ended = [...refused, ...(await load.stop())];
  await expectNothingLost(ended);
  expect(ended.filter(({ seen }) => seen.complete).length).toBeGreaterThan(80);
});

test("a planned switchover under load fails no request", async () => {
  // The old primary becomes the standby. What it had not sent before it died must not stay.
  await pair.b.stop();
  await pair.a.copyFrom(pair.b);
  await pair.b.start();
  await pair.a.start();
  await caughtUp(pair.b, pair.a);

  const load = startLoad();
  await load.answered(40, isComplete);
  await pair.b.stop();
  await pair.a.promote();
  await pair.b.follow(pair.a);
  await pair.b.start();
  await load.answered(40, isComplete);
  const ended = await load.stop();
  expect(ended.filter(({ seen }) => !seen.complete)).toEqual([]);
  await expectNothingLost(ended);
});

test("a primary that hangs is left, and not used when it wakes up with its old ledger", async () => {
  // As every primary of a synchronous pair must be set.
  await pair.a.set("synchronous_standby_names", "*");
  const load = startLoad();
  await load.answered(40, isComplete);
  const wakeUp = await pair.a.hang();
  await pair.b.promote();
  await load.answered(40, isComplete);
  wakeUp();
  await load.answered(40, isComplete);
  const ended = await load.stop();
  // The connections of this test, too, leave the old primary.
  const waiting = { interval: 100 };
  await vi.waitFor(async () => expect(await portOf()).toBe(pair.b.port), waiting);
  await expectNothingLost(ended);
});
