// What the verifier finds in payments: each kind of damage, made by hand.

import { afterAll, beforeAll, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { asService } from "../../src/contract/contract.ts";
import {
  admin,
  member,
  type PaymentsNodes,
  startPaymentsNodes,
} from "../support/payments-nodes.ts";

let world: PaymentsNodes;
let accountId: string;
let orderId: string;
let codeId: string;
beforeAll(async () => {
  world = await startPaymentsNodes();
  accountId = await world.newAccount();
  orderId = await world.paidOrder(accountId);
  const { promotion, code } = await world
    .as(admin)
    .createPromotion({ name: "p", family: Family.V1, bonusMicrocredits: 7n });
  codeId = promotion?.promotionId ?? "";
  await world.as(member(accountId)).redeemPromotion({ code });
});
afterAll(() => world.stop());

const transfers = "credits of payments = their transfers";

const damages: [name: string, harm: string, repair: string, invariant: string][] = [
  [
    "a grant of another amount than its transfer",
    "update payment_grants set micro = micro + 1",
    "update payment_grants set micro = micro - 1",
    transfers,
  ],
  [
    "a grant that was noted as posted under another transfer",
    "update payment_grants set transfer_id = 'x' || transfer_id",
    "update payment_grants set transfer_id = substr(transfer_id, 2)",
    transfers,
  ],
  [
    "a transfer whose grant is of another pool",
    "update payment_orders set family = 'v2'",
    "update payment_orders set family = 'v1'",
    transfers,
  ],
  [
    "a transfer without its grant",
    "update payment_grants set n = n + 1",
    "update payment_grants set n = n - 1",
    transfers,
  ],
  [
    "a bonus of another amount",
    "update promotions set bonus_micro = 8",
    "update promotions set bonus_micro = 7",
    transfers,
  ],
  [
    "a promotion that counts a use too many",
    "update promotions set used = used + 1",
    "update promotions set used = used - 1",
    "uses of a promotion = its count",
  ],
  [
    "a number that no document has",
    "update payment_numbers set last = last + 1",
    "update payment_numbers set last = last - 1",
    "numbers of documents have no gap",
  ],
  [
    "a credited order without a receipt",
    "update payment_documents set kind = 'credit_note', grant_n = 9",
    "update payment_documents set kind = 'receipt', grant_n = null",
    "a credited order has a receipt",
  ],
];
for (const [name, harm, repair, invariant] of damages)
  test(`${name} is a violation`, async () => {
    expect(await world.violations()).toEqual([]);
    await world.run(harm);
    expect((await world.violations()).map((one) => one.invariant)).toContain(invariant);
    await world.run(repair);
    expect(await world.violations()).toEqual([]);
  });

test("a row that a crash left without the id of its transfer is none", async () => {
  await world.run("update payment_grants set transfer_id = null");
  await world.run("update promotion_uses set transfer_id = null");
  expect(await world.violations()).toEqual([]);
});

test("a deposit that no order accounts for is a violation", async () => {
  await world.billing.createTransfer(
    {
      accountId,
      family: Family.V1,
      kind: TransferKind.DEPOSIT,
      amountMicrocredits: 1n,
      idempotencyKey: `pay:${orderId}#9`,
    },
    { contextValues: asService("payments") },
  );
  expect(await world.violations()).toMatchObject([
    { invariant: transfers, subject: `${accountId}/pay:${orderId}#9` },
  ]);
  expect(codeId).not.toBe("");
});
