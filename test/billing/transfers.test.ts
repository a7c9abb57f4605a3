import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import {
  CreateTransferRequestSchema,
  GetPoolsRequestSchema,
  ListTransfersRequestSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { actorText, type PartName, toActor } from "../../src/base/actors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createOverview } from "../../src/billing/overview.ts";
import { asService } from "../../src/contract/contract.ts";
import { errorOf, freshBilling } from "../support/billing.ts";
import { endingWith, heldFor, holdRequest, usage } from "../support/ledger.ts";

type Transfer = Exclude<
  MessageInitShape<typeof CreateTransferRequestSchema>,
  { $typeName: string }
>;

let world: Awaited<ReturnType<typeof freshBilling>>;
beforeAll(async () => {
  world = await freshBilling();
});
afterEach(async () => {
  const violations = await world.store.verifyLedger();
  // Transfers of payments have no orders here.
  const ofPayments = "credits of payments = their transfers";
  expect(violations.filter(({ invariant }) => invariant !== ofPayments)).toEqual([]);
});
afterAll(() => world.close());

const never = new AbortController().signal;
const transfer = (more: Transfer) =>
  world.billing.createTransfer(
    create(CreateTransferRequestSchema, {
      family: Family.V1,
      kind: TransferKind.BONUS,
      amountMicrocredits: 5_000n,
      idempotencyKey: newRequestId(),
      ...more,
    }),
    world.admin,
  );
const postedOf = async ({ accountId }: Payer) => {
  const { pools } = await world.billing.getPools(
    create(GetPoolsRequestSchema, { accountId }),
    world.admin,
  );
  return pools.map(({ postedMicrocredits }) => postedMicrocredits);
};

test("each kind changes the pool in its own direction, and is listed as it was requested", async () => {
  const payer = await world.payer(0n);
  const { accountId } = payer;
  const kinds: [TransferKind, bigint, bigint][] = [
    [TransferKind.PURCHASE, 1_000_000_000n, 1_000_000_000n],
    [TransferKind.BONUS, 7n, 1_000_000_007n],
    [TransferKind.REFUND, 1_000n, 999_999_007n],
    [TransferKind.ADJUSTMENT, -7n, 999_999_000n],
    [TransferKind.ADJUSTMENT, 1n, 999_999_001n],
    [TransferKind.CHARGEBACK, 1n, 999_999_000n],
  ];
  for (const [kind, amountMicrocredits, posted] of kinds) {
    await transfer({ accountId, kind, amountMicrocredits });
    expect(await postedOf(payer)).toEqual([posted, 0n]);
  }
  const { transfers } = await world.billing.listTransfers(
    create(ListTransfersRequestSchema, { accountId }),
    world.admin,
  );
  expect(transfers.map(({ kind, amountMicrocredits }) => [kind, amountMicrocredits])).toEqual(
    kinds.map(([kind, amount]) => [kind, amount]).reverse(),
  );
  expect(transfers.every(({ createdBy: actor }) => actorText(actor) === "token:ADMIN_TOKEN")).toBe(
    true,
  );
  expect(transfers.map(({ postedAfterMicrocredits }) => postedAfterMicrocredits)).toEqual(
    kinds.map(([, , posted]) => posted).reverse(),
  );
});

test("a transfer keeps the balance that it left, also when requests have been charged since", async () => {
  const payer = await world.payer(heldFor(100));
  const hold = await world.holds.place(holdRequest(payer, 100), never);
  const receipt = await world.holds.settle(hold, endingWith({ output: 10 }));
  const { accountId } = payer;
  const { transfer: made } = await transfer({ accountId, amountMicrocredits: 7n });
  const left = heldFor(100) - receipt.chargedMicrocredits + 7n;
  expect(made?.postedAfterMicrocredits).toBe(left);
  await transfer({ accountId, family: Family.V2, amountMicrocredits: 3n });
  const { transfers } = await world.billing.listTransfers(
    create(ListTransfersRequestSchema, { accountId }),
    world.admin,
  );
  expect(transfers.map((one) => one.postedAfterMicrocredits)).toEqual([3n, left, heldFor(100)]);
});

const payments = asService("payments");

test("the payments service books deposits of any amount", async () => {
  const payer = await world.payer(0n);
  const { transfer: made } = await world.core.billing.createTransfer(
    {
      accountId: payer.accountId,
      family: Family.V1,
      idempotencyKey: "pay:ord_1#1",
      kind: TransferKind.DEPOSIT,
      amountMicrocredits: 1n,
    },
    { contextValues: payments },
  );
  expect(made).toMatchObject({ kind: TransferKind.DEPOSIT, createdBy: toActor("payments") });
  expect(await postedOf(payer)).toEqual([1n, 0n]);
});

const reserved: { name: string; more: Transfer; field: string; owner: PartName }[] = [
  {
    name: "a deposit",
    more: { kind: TransferKind.DEPOSIT },
    field: "kind",
    owner: "payments" as const,
  },
  ...["pay:ord_1#1", "refund:ord_1#1", "promo:pro_1"].map((idempotencyKey) => ({
    name: `the idempotency key ${idempotencyKey}`,
    more: { idempotencyKey },
    field: "idempotency_key",
    owner: "payments" as const,
  })),
  {
    name: "the idempotency key first-start-v1",
    more: { idempotencyKey: "first-start-v1" },
    field: "idempotency_key",
    owner: "bootstrap" as const,
  },
];
for (const { name, more, field, owner } of reserved) {
  test(`${name} is for ${owner} alone, and costs others nothing`, async () => {
    const payer = await world.payer(0n);
    const request = {
      accountId: payer.accountId,
      family: Family.V1,
      kind: TransferKind.BONUS,
      amountMicrocredits: 5n,
      idempotencyKey: "own",
      ...more,
    };
    const others = [
      {},
      { headers: { "x-caller": owner, "x-service": owner } },
      { contextValues: asService("reconcile") },
    ];
    for (const { headers, ...other } of others) {
      const call = { headers: { ...world.adminHeaders, ...headers }, ...other };
      expect(await errorOf(world.core.billing.createTransfer(request, call))).toEqual({
        reason: "not_permitted",
        field,
      });
    }
    expect(await postedOf(payer)).toEqual([0n, 0n]);
    await world.core.billing.createTransfer(request, { contextValues: asService(owner) });
    expect(await postedOf(payer)).toEqual([5n, 0n]);
  });
}

test("the pools of the two families are separate", async () => {
  const payer = await world.payer(10n);
  await transfer({ accountId: payer.accountId, family: Family.V2, amountMicrocredits: 3n });
  expect(await postedOf(payer)).toEqual([10n, 3n]);
});

const purchases: [bigint, string | undefined][] = [
  [999_999_999n, "amount_microcredits"],
  [1_000_000_000n, undefined],
];
for (const [amountMicrocredits, field] of purchases) {
  test(`a purchase of ${amountMicrocredits} micro-credits is ${field ? "below the smallest pack" : "the smallest pack"}`, async () => {
    const { accountId } = await world.payer(0n);
    const bought = transfer({ accountId, kind: TransferKind.PURCHASE, amountMicrocredits });
    if (field === undefined)
      expect((await bought).transfer?.amountMicrocredits).toBe(amountMicrocredits);
    else expect(await errorOf(bought)).toEqual({ reason: "invalid_request", field });
  });
}

const bad: { name: string; more: Transfer; field: string }[] = [
  { name: "no amount", more: { amountMicrocredits: 0n }, field: "amount_microcredits" },
  { name: "a negative bonus", more: { amountMicrocredits: -1n }, field: "amount_microcredits" },
  {
    name: "a negative refund",
    more: { kind: TransferKind.REFUND, amountMicrocredits: -1n },
    field: "amount_microcredits",
  },
  {
    name: "more than 2^53",
    more: { amountMicrocredits: 2n ** 53n + 1n },
    field: "amount_microcredits",
  },
  {
    name: "an adjustment below -2^53",
    more: { kind: TransferKind.ADJUSTMENT, amountMicrocredits: -(2n ** 53n) - 1n },
    field: "amount_microcredits",
  },
  { name: "no kind", more: { kind: TransferKind.UNSPECIFIED }, field: "kind" },
  { name: "no family", more: { family: Family.UNSPECIFIED }, field: "family" },
  { name: "no idempotency key", more: { idempotencyKey: "" }, field: "idempotency_key" },
  {
    name: "a long idempotency key",
    more: { idempotencyKey: "k".repeat(201) },
    field: "idempotency_key",
  },
  {
    name: "an idempotency key with a NUL",
    more: { idempotencyKey: "a\0b" },
    field: "idempotency_key",
  },
  { name: "a long reason", more: { reason: "r".repeat(1_001) }, field: "reason" },
  { name: "a reason with a NUL", more: { reason: "\0" }, field: "reason" },
];
for (const { name, more, field } of bad) {
  test(`a transfer with ${name} is rejected`, async () => {
    const { accountId } = await world.payer(0n);
    expect(await errorOf(transfer({ accountId, ...more }))).toEqual({
      reason: "invalid_request",
      field,
    });
  });
}

test("a transfer to an unknown account is rejected", async () => {
  expect((await errorOf(transfer({ accountId: "acc_nobody" }))).reason).toBe("not_found");
});

test("the same idempotency key changes the pool once, however often and by how many callers it is sent", async () => {
  const payer = await world.payer(0n);
  const more = { accountId: payer.accountId, idempotencyKey: "invoice-7" };
  const answers = await Promise.all(Array.from({ length: 8 }, () => transfer(more)));
  expect(new Set(answers.map((one) => one.transfer?.transferId)).size).toBe(1);
  expect(await postedOf(payer)).toEqual([5_000n, 0n]);
});

test("the same idempotency key with other content is rejected", async () => {
  const payer = await world.payer(0n);
  const more = { accountId: payer.accountId, idempotencyKey: "invoice-8" };
  await transfer(more);
  for (const other of [
    { amountMicrocredits: 5_001n },
    { kind: TransferKind.ADJUSTMENT },
    { family: Family.V2 },
    { reason: "another" },
  ]) {
    expect((await errorOf(transfer({ ...more, ...other }))).reason).toBe("idempotency_key_reused");
  }
  expect(await postedOf(payer)).toEqual([5_000n, 0n]);
});

test("of two simultaneous transfers to both pools with one idempotency key, one succeeds", async () => {
  const payer = await world.payer(0n);
  for (let round = 0; round < 5; round++) {
    const more = { accountId: payer.accountId, idempotencyKey: `both-${round}` };
    const both = await Promise.allSettled([
      transfer(more),
      transfer({ ...more, family: Family.V2 }),
    ]);
    const reasons = both.flatMap((one) => (one.status === "rejected" ? [one.reason.reason] : []));
    expect(reasons).toEqual(["idempotency_key_reused"]);
  }
});

test("an idempotency key belongs to its account", async () => {
  const [one, other] = [await world.payer(0n), await world.payer(0n)];
  for (const { accountId } of [one, other]) await transfer({ accountId, idempotencyKey: "mine" });
  expect(await postedOf(other)).toEqual([5_000n, 0n]);
});

for (const kind of [TransferKind.REFUND, TransferKind.ADJUSTMENT]) {
  test(`kind ${kind} takes free credits only`, async () => {
    const payer = await world.payer(heldFor(100) + 50n);
    const hold = await world.holds.place(holdRequest(payer, 100), never);
    const sign = kind === TransferKind.ADJUSTMENT ? -1n : 1n;
    const take = (amount: bigint) =>
      transfer({ accountId: payer.accountId, kind, amountMicrocredits: amount * sign });
    expect((await errorOf(take(51n))).reason).toBe("insufficient_funds");
    await take(50n);
    await world.holds.settle(hold, endingWith({ output: 100 }));
    expect((await errorOf(take(heldFor(100)))).reason).toBe("insufficient_funds");
  });
}

test("a chargeback may leave a pool in debt, which stops new requests until it is covered", async () => {
  const payer = await world.payer(heldFor(100) * 2n);
  const { accountId } = payer;
  const running = await world.holds.place(holdRequest(payer, 100), never);
  await transfer({
    accountId,
    kind: TransferKind.CHARGEBACK,
    amountMicrocredits: heldFor(100) * 3n,
  });
  expect(await postedOf(payer)).toEqual([-heldFor(100), 0n]);
  await expect(world.holds.place(holdRequest(payer, 1), never)).rejects.toMatchObject({
    reason: "credits_exhausted",
  });

  // Running requests are charged nevertheless, and the debt grows.
  const receipt = await world.holds.settle(running, endingWith({ output: 100 }));
  expect(receipt.chargedMicrocredits).toBe(100n * 50n);
  expect(await postedOf(payer)).toEqual([-heldFor(100) - 5_000n, 0n]);

  await transfer({ accountId, amountMicrocredits: heldFor(100) });
  await expect(world.holds.place(holdRequest(payer, 1), never)).rejects.toMatchObject({
    reason: "credits_exhausted",
  });
  await transfer({ accountId, amountMicrocredits: 5_000n + heldFor(1) });
  await world.holds.settle(await world.holds.place(holdRequest(payer, 1), never), endingWith({}));
});

test.for([-1n, 0n, 1n])(
  "a pool is in debt exactly while its running requests hold more: %s",
  async (more) => {
    const held = heldFor(100);
    const payer = await world.payer(2n * held);
    const { accountId } = payer;
    const expectDebt = async (isInDebt: boolean) => {
      const text = "select in_debt, posted, held from pools where account_id = $1 and posted <> 0";
      const [pool] = await world.run<{ in_debt: boolean; posted: bigint; held: bigint }>(text, [
        accountId,
      ]);
      expect([pool?.in_debt, (pool?.posted ?? 0n) < (pool?.held ?? 0n)]).toEqual([
        isInDebt,
        isInDebt,
      ]);
    };
    const [first, second] = [
      await world.holds.place(holdRequest(payer, 100), never),
      await world.holds.place(holdRequest(payer, 100), never),
    ];
    const kind = TransferKind.CHARGEBACK;
    await transfer({ accountId, kind, amountMicrocredits: held + more });
    await expectDebt(true);
    await world.holds.settle(first, endingWith({}));
    await expectDebt(more > 0n);
    await transfer({ accountId, kind, amountMicrocredits: 1_000n });
    await expectDebt(true);
    // Its input of at most 1,000 turned out to be none.
    await world.holds.resize(second, usage({}));
    const heldNow = async () => {
      const text = "select held from pools where account_id = $1 and posted <> 0";
      return (await world.run<{ held: bigint }>(text, [accountId]))[0]?.held;
    };
    await expect.poll(heldNow).toBe(held - 1_000n);
    await expectDebt(more > 0n);
    await world.holds.settle(second, endingWith({}));
    await expectDebt(false);
  },
);

test.for([-1n, 0n, 1n])(
  "a chargeback of what is free and %i more leaves a debt only if it is more",
  async (more) => {
    const payer = await world.payer(heldFor(100) + 1_000n);
    const { accountId } = payer;
    const hold = await world.holds.place(holdRequest(payer, 100), never);
    const kind = TransferKind.CHARGEBACK;
    await transfer({ accountId, kind, amountMicrocredits: 1_000n + more });
    const debts = await createOverview(world.store).debts(10);
    expect(debts.get(accountId)).toBe(more > 0n ? more : undefined);
    // A charge of the whole hold takes as much from both sides.
    await world.holds.settle(hold, endingWith({ input: 100, thinking: 100 }));
    const left = await createOverview(world.store).debts(10);
    expect(left.get(accountId)).toBe(more > 0n ? more : undefined);
  },
);

test("a pool whose running requests release enough to cover a chargeback is no longer in debt", async () => {
  const payer = await world.payer(heldFor(100) * 2n);
  const holds = [
    await world.holds.place(holdRequest(payer, 100), never),
    await world.holds.place(holdRequest(payer, 100), never),
  ];
  await transfer({
    accountId: payer.accountId,
    kind: TransferKind.CHARGEBACK,
    amountMicrocredits: heldFor(100),
  });
  await expect(world.holds.place(holdRequest(payer, 1), never)).rejects.toMatchObject({
    reason: "credits_exhausted",
  });
  for (const hold of holds) await world.holds.settle(hold, endingWith({}));
  expect(await postedOf(payer)).toEqual([heldFor(100), 0n]);
  await world.holds.settle(await world.holds.place(holdRequest(payer, 100), never), endingWith({}));
});

test("no database user can change charges, transfers and prices", async () => {
  const payer = await world.payer(heldFor(100));
  await world.holds.settle(
    await world.holds.place(holdRequest(payer, 100), never),
    endingWith({ output: 3 }),
  );
  for (const table of ["charges", "transfers"]) {
    await expect(world.run(`update ${table} set amount = amount + 1`)).rejects.toThrow(
      "append-only",
    );
    await expect(world.run(`delete from ${table}`)).rejects.toThrow("append-only");
    await expect(world.run(`truncate ${table} cascade`)).rejects.toThrow("append-only");
  }
  await expect(world.run("update price_versions set input = 0")).rejects.toThrow("append-only");
  await expect(world.run("delete from price_versions")).rejects.toThrow("append-only");
  await expect(world.run("truncate price_versions")).rejects.toThrow("append-only");
});

test("the database rejects a pool with more held than posted, and any negative amount", async () => {
  const { accountId } = await world.payer(100n);
  await expect(
    world.run("update pools set held = posted + 1 where account_id = $1", [accountId]),
  ).rejects.toThrow("check");
  await expect(
    world.run("update pools set held = -1 where account_id = $1", [accountId]),
  ).rejects.toThrow("check");
});
