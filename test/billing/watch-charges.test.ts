// Charges as they are settled: by this node and others, at a bounded rate, and for as long as the
// reader may see them.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { WatchChargesRequestSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { ChargeWatch } from "../../src/billing/charge-watch.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import type { Call } from "../../src/contract/contract.ts";
import { environmentToken, serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { callBy } from "../support/calls.ts";
import { ChargeReader } from "../support/charge-reader.ts";
import { writeCharges } from "../support/charges.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import { endingWith, freshLedger, holdRequest, log, price } from "../support/ledger.ts";
import { planOf, scannedCharges } from "../support/plans.ts";

type Ledger = Awaited<ReturnType<typeof freshLedger>>;
let ledger: Ledger;
/** Two processes on the ledger, and the statements that the first one ran for reports. */
let first: Awaited<ReturnType<typeof startBilling>>;
let second: Awaited<ReturnType<typeof startBilling>>;
/** Of both. It stands still, except in `until`. */
const clock = new ManualClock();
const until = (check: () => void) => passUntil(() => clock.advance(250), check);
const never = new AbortController().signal;

async function startBilling(url: string) {
  const connected = connectPostgres(url);
  const ran: string[] = [];
  const postgres: Postgres = {
    ...connected,
    reports: {
      ...connected.reports,
      run: (statement, ...values) => {
        ran.push(statement.name);
        return connected.reports.run(statement, ...values);
      },
    },
  };
  const billing = createBilling({ postgres, priceOf: () => price, log, clock });
  await billing.start();
  return {
    billing,
    ran,
    async stop() {
      await billing.stop();
      await connected.close();
    },
  };
}

beforeAll(async () => {
  ledger = await freshLedger({ ticks: true });
  [first, second] = await Promise.all([startBilling(ledger.url), startBilling(ledger.url)]);
});
afterAll(async () => {
  await Promise.all([first.stop(), second.stop()]);
  await ledger.close();
});

type Filter = MessageInitShape<typeof WatchChargesRequestSchema>["filter"];

/** A reader of an account at a node, which has had its first message. */
async function watch(
  node: Awaited<ReturnType<typeof startBilling>>,
  payer: Payer,
  filter?: Filter,
): Promise<ChargeReader> {
  const reader = new ChargeReader(
    (signal) =>
      node.billing.service.watchCharges(
        create(WatchChargesRequestSchema, { filter }),
        callBy(environmentToken, { accountId: payer.accountId, signal }),
      ),
    clock.now.bind(clock),
  );
  await reader.until(({ messages }) => messages.length > 0);
  return reader;
}

async function charge(
  node: Awaited<ReturnType<typeof startBilling>>,
  payer: Payer,
  outcome: Outcome = Outcome.COMPLETED,
): Promise<Receipt> {
  const hold = await node.billing.holds.place(holdRequest(payer, 10), never);
  return node.billing.holds.settle(hold, { ...endingWith({ output: 1 }), outcome });
}

const rich = () => ledger.payer(1_000_000_000n);

describe("a stream", () => {
  test("shows the charges of every node, each once and as its receipt", async () => {
    const payer = await rich();
    const reader = await watch(first, payer);
    const made = [await charge(first, payer), await charge(second, payer)];
    await until(() => expect(reader.ids.length).toBeGreaterThanOrEqual(2));
    // Two more reads repeat both.
    const reads = () => first.ran.filter((name) => name === "billing/read-settled").length;
    const before = reads();
    await until(() => expect(reads()).toBeGreaterThan(before + 2));
    made.push(await charge(second, payer));
    await until(() => expect(reader.ids.length).toBeGreaterThanOrEqual(3));
    expect(reader.charges.toSorted(byId)).toEqual(made.toSorted(byId));
    await reader.stop();
  });

  test("begins with the charges of the seconds before, also beside another stream", async () => {
    const payer = await rich();
    const before = await charge(second, payer);
    const reader = await watch(first, payer);
    await until(() => expect(reader.ids).toHaveLength(1));
    const late = await watch(first, payer);
    await until(() => expect(late.ids).toHaveLength(1));
    expect([reader.ids, late.ids]).toEqual([[before.requestId], [before.requestId]]);
    await Promise.all([reader.stop(), late.stop()]);
  });

  test("shows what its filter chooses, and nothing of other accounts", async () => {
    const payer = await rich();
    const other = await ledger.payer(0n, { accountId: payer.accountId });
    const stranger = await rich();
    const ofKey = await watch(first, payer, { keyId: other.keyId });
    const ofOutcome = await watch(first, payer, { outcomes: [Outcome.CLIENT_LEFT] });
    const ofNobody = await watch(first, payer, { keyId: stranger.keyId });
    const all = await watch(first, payer);
    await charge(second, stranger);
    await charge(second, payer);
    const left = await charge(first, payer, Outcome.CLIENT_LEFT);
    const others = await charge(second, other);
    await until(() => expect([all.ids.length, ofKey.ids.length]).toEqual([3, 1]));
    expect(ofKey.ids).toEqual([others.requestId]);
    expect(ofOutcome.ids).toEqual([left.requestId]);
    expect(ofNobody.ids).toEqual([]);
    await Promise.all([ofKey, ofOutcome, ofNobody, all].map((one) => one.stop()));
  });

  test("shows a charge whose commit was held open for five seconds", async () => {
    const payer = await rich();
    const reader = await watch(first, payer);
    const held = new Client({ connectionString: ledger.url });
    await held.connect();
    await held.query("begin");
    const run = async (text: string, values: unknown[] = []) =>
      void (await held.query(text, values));
    const settledAt = new Date(Date.now() - 5_000);
    await writeCharges(run, { payer, count: 1, from: settledAt, stepMs: 1 });
    // Meanwhile others are settled and seen, so that the reads go on.
    for (let round = 0; round < 5; round++) {
      const { requestId } = await charge(second, payer);
      await until(() => expect(reader.ids).toContain(requestId));
    }
    expect(reader.ids).toHaveLength(5);
    await held.query("commit");
    await held.end();
    await until(() => expect(reader.ids).toContain(`req_${payer.keyId}_0000000`));
    expect(new Set(reader.ids).size).toBe(reader.ids.length);
    await reader.stop();
  });

  test("sends 20 charges a second at most, and says that it left some out", async () => {
    const payer = await rich();
    const reader = await watch(first, payer);
    const count = 260;
    const made = await Promise.all(Array.from({ length: count }, () => charge(first, payer)));
    await passUntil(
      () => clock.advance(50),
      () => {
        expect(reader.messages.some(({ incomplete: isIncomplete }) => isIncomplete)).toBe(true);
        expect(reader.ids.length).toBeGreaterThanOrEqual(60);
      },
    );
    for (const [index, startMs] of reader.times.entries()) {
      const within = reader.times.filter((ms) => ms >= startMs && ms < startMs + 1_000).length;
      const charges = reader.messages.slice(index, index + within);
      expect(charges.flatMap((one) => one.charges).length).toBeLessThanOrEqual(20);
    }
    expect(new Set(reader.ids).size).toBe(reader.ids.length);
    expect(made.map(({ requestId }) => requestId)).toEqual(expect.arrayContaining(reader.ids));
    await reader.stop();
  });

  test("whose reader stops reading keeps the newest charges alone", async () => {
    const payer = await rich();
    const controller = new AbortController();
    const stream = first.billing.service.watchCharges(
      create(WatchChargesRequestSchema),
      callBy(environmentToken, { accountId: payer.accountId, signal: controller.signal }),
    );
    const messages = stream[Symbol.asyncIterator]();
    await messages.next();
    const made: string[] = [];
    for (let round = 0; round < 5; round++)
      for (const { requestId } of await Promise.all(
        Array.from({ length: 100 }, () => charge(first, payer)),
      ))
        made.push(requestId);
    const reading = messages.next();
    await clock.advance(250);
    const next = await reading;
    if (next.done) return expect.unreachable();
    expect(next.value.incomplete).toBe(true);
    // The 200 newest of 500.
    expect(made.indexOf(next.value.charges[0]?.requestId ?? "")).toBeGreaterThanOrEqual(200);
    controller.abort();
  });

  test("of an account that does not exist is refused, as is one too many", async () => {
    const open = (accountId: string) =>
      first.billing.service
        .watchCharges(
          create(WatchChargesRequestSchema),
          callBy(environmentToken, { accountId, signal: never }),
        )
        [Symbol.asyncIterator]();
    await expect(open("acc_none").next()).rejects.toMatchObject({ reason: "not_found" });
    const { accountId } = await rich();
    const streams = Array.from({ length: 100 }, () => open(accountId));
    await Promise.all(streams.map((one) => one.next()));
    await expect(open(accountId).next()).rejects.toMatchObject({ reason: "rate_limited" });
    await Promise.all(streams.map((one) => one.return?.()));
    const again = open(accountId);
    expect((await again.next()).done).toBe(false);
    await again.return?.();
  });
});

function byId(one: Receipt, two: Receipt): number {
  return one.requestId < two.requestId ? -1 : 1;
}

describe("the reads", () => {
  test("are one for all streams of a node, and none when nobody watches", async () => {
    const payers = [await rich(), await rich()];
    const asked: (readonly string[])[] = [];
    const store = createLedgerStore(ledger.postgres);
    const watched = new ChargeWatch({
      log,
      clock,
      store: {
        findSettled: store.findSettled,
        readSettled: (accountIds, since, limit) => {
          asked.push(accountIds);
          return store.readSettled(accountIds, since, limit);
        },
      },
    });
    const open = (payer: Payer | undefined) =>
      new ChargeReader((signal) =>
        watched.watch({ accountId: payer?.accountId ?? "", matches: () => true }, signal),
      );
    const readers = [open(payers[0]), open(payers[0]), open(payers[1])];
    await until(() => expect(asked.length).toBeGreaterThanOrEqual(3));
    const ids = payers.map(({ accountId }) => accountId);
    expect(asked.every((one) => one.join() === ids.join())).toBe(true);
    await Promise.all(readers.map((one) => one.stop()));
    const count = asked.length;
    await clock.advance(10_000);
    expect(asked.length).toBe(count);
    await watched.stop();
  });

  test("that fail lose nothing", async () => {
    const payer = await rich();
    const store = createLedgerStore(ledger.postgres);
    let failures = 0;
    const watched = new ChargeWatch({
      log,
      clock,
      store: {
        readSettled: store.readSettled,
        findSettled: (requests) => {
          if (failures++ < 2) throw new ApiError("billing_unavailable");
          return store.findSettled(requests);
        },
      },
    });
    const reader = new ChargeReader((signal) =>
      watched.watch({ accountId: payer.accountId, matches: () => true }, signal),
    );
    const { requestId } = await charge(second, payer);
    await until(() => expect(reader.ids).toEqual([requestId]));
    expect(failures).toBe(3);
    await reader.stop();
    await watched.stop();
  });

  test.for([
    ["generic", true],
    ["custom", false],
  ] as const)("use the index of settlement: %s plan", async ([, isGeneric]) => {
    const payer = await rich();
    const from = new Date(Date.now() - 40 * 86_400_000);
    await writeCharges(ledger.run, { payer, count: 40_000, from, stepMs: 86_000 });
    for (const hasStatistics of [false, true]) {
      if (hasStatistics) await ledger.run("analyze charges");
      const accountIds = [payer.accountId];
      const read = sql.readSettled.with({ accountIds, since: new Date(), rows: 10_000 });
      const months = [new Date().toISOString().slice(0, 10)];
      const found = sql.findSettled.with({ accountIds, requestIds: ["req_1"], months });
      for (const query of [read, found])
        expect(scannedCharges(await planOf(ledger.url, query, isGeneric))).toEqual([]);
    }
  });
});

describe("the stream of a key", () => {
  function serve(authenticate: () => Promise<void>, payer: Payer) {
    const { billing } = first;
    return intercept(serviceTypes.billing, billing.service, {
      log,
      clock,
      authenticate: async () => {
        await authenticate();
        const call = callBy(environmentToken, { accountId: payer.accountId });
        return call.caller;
      },
    });
  }
  const callAt = (signal: AbortSignal): Call => ({ signal, requestHeader: new Headers() });

  test("ends within a second of the end of its credential, and not when the database is away", async () => {
    const payer = await rich();
    let failure: ApiError | undefined;
    let checks = 0;
    const service = serve(async () => {
      checks++;
      if (failure) throw failure;
    }, payer);
    const request = create(WatchChargesRequestSchema, { accountId: payer.accountId });
    const reader = new ChargeReader((signal) => service.watchCharges(request, callAt(signal)));
    await reader.until(({ messages }) => messages.length > 0);
    failure = new ApiError("billing_unavailable");
    const before = checks;
    await until(() => expect(checks).toBeGreaterThan(before + 2));
    const { requestId } = await charge(first, payer);
    await until(() => expect(reader.ids).toContain(requestId));
    failure = new ApiError("revoked_key");
    await clock.advance(1_000);
    expect(toApiError(await reader.ended).reason).toBe("revoked_key");
  });
});
