// Batches as their requests see them: what each one is answered, and the receipts that come of it.

import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  AttemptSchema,
  Outcome,
  type Receipt,
  ReceiptSchema,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutReason, LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import { type Hold, type HoldRequest, requestKeyOf } from "../../src/billing/admission.ts";
import { BatchConnection } from "../../src/billing/batch-queue.ts";
import { admissionBatch, settlementBatch } from "../../src/billing/ledger-batches.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { runningReceipt, type SettleRequest } from "../../src/billing/settlement.ts";
import { endingWith, freshLedger, heldFor, holdRequest, price, usage } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let connection: BatchConnection;
beforeAll(async () => {
  ledger = await freshLedger();
  connection = new BatchConnection(ledger.postgres);
});
afterAll(async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await connection.close();
  await ledger.close();
});

const never = new AbortController().signal;
const settle = (...requests: SettleRequest[]) => connection.run(() => settlementBatch(requests));
const leftOut = [
  create(LeftOutSchema, {
    where: "messages[3]",
    what: "thinking",
    why: LeftOutReason.MODEL,
    count: 2,
  }),
];
const attempts = [
  create(AttemptSchema, { provider: "one", status: 200, firstEventAfter: durationFromMs(1_234) }),
];

/** What a request and its charge have in common. */
function headOf(receipt: Receipt) {
  const { requestId, accountId, keyId, family, model, price: by } = receipt;
  const { grantedOutputTokens, admittedAt, tags, madeBy } = receipt;
  return {
    ...{ requestId, accountId, keyId, family, model, price: by },
    ...{ grantedOutputTokens, admittedAt, tags, madeBy },
  };
}

test("the receipt of a charge made just now is that of the ledger, and so is its beginning", async () => {
  for (const { tags, madeBy, ending } of [
    {
      tags: { team: "a", env: "b" },
      madeBy: "person:per_1",
      ending: { ...endingWith({ input: 80, output: 101, cacheRead: 3 }, attempts), leftOut },
    },
    { tags: undefined, madeBy: undefined, ending: endingWith({ input: 80, output: 100 }) },
  ]) {
    const payer = await ledger.payer(heldFor(100) * 2n);
    const request = { ...holdRequest(payer, 100), tags, madeBy };
    const hold = await ledger.holds.place(request, never);
    await ledger.store.checkpoint([{ ...requestKeyOf(hold), usage: usage({ output: 7 }) }]);
    const [stored] = await ledger.store.findHolds([requestKeyOf(hold)]);
    expect.assert(stored);
    const running = runningReceipt(stored);
    const receipt = await ledger.holds.settle(hold, ending);
    expect(receipt).toEqual(await ledger.store.findCharge(requestKeyOf(hold)));
    expect([receipt.tags, receipt.leftOut.length]).toEqual([tags ?? {}, tags ? 1 : 0]);
    expect(receipt.reportedUsage?.output).toBe(tags && 101);
    expect(running).toEqual(
      create(ReceiptSchema, {
        ...headOf(receipt),
        usage: usage({ output: 7 }),
        holdMicrocredits: heldFor(100),
        outcome: Outcome.RUNNING,
      }),
    );
  }
});

test("a price that the provider applied counts where it makes the charge cheaper", async () => {
  const other = (times: bigint, by: bigint) =>
    priceVersion("model-test", {
      ...byCategory((category) => (price[category] * times) / by),
      webSearch: price.webSearch,
    });
  for (const [appliedPrice, micro, isApplied] of [
    [other(1n, 2n), 500n, true],
    [other(2n, 1n), 1_000n, false],
    // Of as much, the price of the hold.
    [other(1n, 1n), 1_000n, false],
    [undefined, 1_000n, false],
  ] as const) {
    const hold = await ledger.holds.place(
      holdRequest(await ledger.payer(heldFor(100)), 100),
      never,
    );
    const receipt = await ledger.holds.settle(hold, {
      ...endingWith({ output: 20 }),
      appliedPrice,
    });
    expect(receipt.chargedMicrocredits).toBe(micro);
    const by = isApplied ? appliedPrice : price;
    expect(receipt.price?.priceVersion).toBe(by?.priceVersion);
  }
});

test("of several endings of a request in a batch the first counts, for all of them", async () => {
  const payer = await ledger.payer(heldFor(100) * 4n);
  const [one, two, three] = [
    await ledger.holds.place(holdRequest(payer, 100), never),
    await ledger.holds.place(holdRequest(payer, 100), never),
    await ledger.holds.place(holdRequest(payer, 100), never),
  ];
  const end = (hold: Hold, output: number): SettleRequest => ({
    ...{ kind: "settle", hold },
    ending: endingWith({ output }),
  });
  const unknown = { ...one, requestId: newRequestId() };
  const answers = await settle(
    end(one, 3),
    { kind: "shrink", hold: two, amountMicro: 400n },
    end(two, 9),
    end(one, 5),
    { kind: "shrink", hold: three, amountMicro: 5_000n },
    { kind: "shrink", hold: three, amountMicro: 4_000n },
    end(unknown, 1),
  );
  const kinds = answers.map(({ kind }) => kind);
  expect(kinds).toEqual([
    ...["charged", "resized", "charged", "charged", "resized", "resized", "missing"],
  ]);
  const amounts = answers.flatMap((one) =>
    one.kind === "charged" ? [[one.charge.amountMicro, one.charge.holdMicro]] : [],
  );
  // The hold was shrunk before it was charged.
  expect(amounts).toEqual([
    [150n, heldFor(100)],
    [400n, 400n],
    [150n, heldFor(100)],
  ]);
  expect((await ledger.pool(payer)).held).toBe(4_000n);
  expect((await settle({ kind: "shrink", hold: three, amountMicro: 3_000n }))[0]?.kind).toBe(
    "resized",
  );
  expect((await settle(end(three, 1)))[0]?.kind).toBe("charged");
  expect((await settle(end(three, 1)))[0]?.kind).toBe("missing");
});

test("a batch of a node that is gone admits nothing, and says so once", async () => {
  const payer = await ledger.payer(heldFor(100) * 4n);
  const requests = [1, 2].map(
    (): HoldRequest => ({
      ...{ ...holdRequest(payer, 100), kind: "place", owner: "process", nonce: newRequestId() },
    }),
  );
  let lost = 0;
  const lose = () => void lost++;
  const refused = await connection.run(() => admissionBatch(requests, "nod_gone", lose));
  expect([refused.map(({ kind }) => kind), lost]).toEqual([["rejected", "rejected"], 1]);
  const [first] = refused;
  expect(first?.kind === "rejected" && first.error).toMatchObject({
    reason: "gateway_unavailable",
    facts: { retryAfterMs: 1000 },
  });
  expect((await ledger.pool(payer)).held).toBe(0n);
});

test("a batch places and grows holds together, each once, within the limits of its key", async () => {
  const payer = await ledger.payer(heldFor(100) * 9n, { cap: heldFor(100) * 5n });
  const other = await ledger.payer(heldFor(100) * 9n);
  const place = (more: Partial<HoldRequest> = {}): HoldRequest => ({
    ...holdRequest(payer, 100),
    ...{ kind: "place", owner: "process", nonce: newRequestId() },
    ...more,
  });
  const run = (requests: Parameters<typeof admissionBatch>[0]) =>
    connection.run(() => admissionBatch(requests, ledger.node.id(), () => undefined));
  const running = await ledger.holds.place(holdRequest(payer, 100), never);
  const again = place();
  const grow = (micro: bigint) =>
    ({ kind: "grow", hold: running, amountMicro: heldFor(100) + micro }) as const;
  const answers = await run([
    again,
    grow(5n),
    place({ hasNewId: true }),
    grow(9n),
    again,
    place({ payer: other, owner: "caller", madeBy: "person:per_1", tags: { team: "a" } }),
    place(),
    place(),
  ]);
  expect(answers.map(({ kind }) => kind)).toEqual([
    ...["held", "held", "held", "held", "held", "held", "held", "short"],
  ]);
  expect((await ledger.pool(payer)).held).toBe(heldFor(100) * 4n + 9n);
  const rows = await ledger.run(
    `select node_id is null as of_caller, made_by, tags::text, amount from holds
     where account_id = any($1) order by amount, of_caller`,
    [[payer.accountId, other.accountId]],
  );
  const usual = { of_caller: false, made_by: null, tags: null, amount: heldFor(100) };
  expect(rows).toEqual([
    ...[usual, usual, usual],
    { ...usual, of_caller: true, made_by: "person:per_1", tags: '{"team": "a"}' },
    { ...usual, amount: heldFor(100) + 9n },
  ]);
  const held = answers.flatMap((one) => (one.kind === "held" ? [one.hold] : []));
  const ends = [running, ...held].map(
    (hold): SettleRequest => ({ kind: "settle", hold, ending: endingWith({}) }),
  );
  await settle(...ends);
  for (const { accountId } of [payer, other])
    expect((await ledger.pool({ ...payer, accountId })).held).toBe(0n);
});
