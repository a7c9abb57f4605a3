import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { errorOf } from "../support/billing.ts";
import {
  admin,
  member,
  type PaymentsNodes,
  startPaymentsNodes,
} from "../support/payments-nodes.ts";

let world: PaymentsNodes;
beforeAll(async () => {
  world = await startPaymentsNodes();
});
afterEach(async () => {
  expect(await world.violations()).toEqual([]);
});
afterAll(() => world.stop());

const bonus = 500_000_000n;

type New = {
  name?: string;
  code?: string;
  family?: Family;
  bonusMicrocredits?: bigint;
  expiresAt?: Timestamp;
  maxUses?: number;
  needsPurchase?: boolean;
};

/** A promotion that needs no purchase, unless told otherwise. */
const newPromotion = async (more: New = {}) => {
  const { promotion, code } = await world.as(admin).createPromotion({
    name: "p",
    family: Family.V1,
    bonusMicrocredits: bonus,
    needsPurchase: false,
    ...more,
  });
  if (!promotion) throw new Error("the answer has no promotion");
  return { ...promotion, code };
};

/** Each account calls from its own address, as far apart as customers are. */
let addresses = 0;
const redeem = (
  accountId: string,
  code: string,
  address = `2001:db8:${(addresses++).toString(16)}::1`,
) => world.as(member(accountId), address).redeemPromotion({ code });

test("a code gives its bonus to each account once, and a repeat returns the same transfer", async () => {
  const { code, promotionId: codeId } = await newPromotion();
  const [one, other] = [await world.newAccount(), await world.newAccount()];
  const first = await redeem(one, code);
  expect(first).toMatchObject({ promotionId: codeId, family: Family.V1, bonusMicrocredits: bonus });
  expect(await redeem(one, code)).toEqual(first);
  await redeem(other, code);
  expect(await world.posted(one)).toEqual([bonus, 0n]);
  expect(await world.transfers(one)).toMatchObject([
    {
      kind: TransferKind.BONUS,
      idempotencyKey: `promo:${codeId}`,
      createdBy: toActor("payments"),
      transferId: first.transferId,
    },
  ]);
  const { promotions } = await world.as(admin).listPromotions({});
  expect(promotions.find((one) => one.promotionId === codeId)?.uses).toBe(2);
});

test("case, spaces and dashes of a code do not count", async () => {
  await newPromotion({ code: "Welcome-2026" });
  const accountId = await world.newAccount();
  await redeem(accountId, " welcome 2026 ");
  expect(await world.posted(accountId)).toEqual([bonus, 0n]);
});

test("of 50 accounts that redeem a code at once for its last use, on two nodes, one gets it", async () => {
  const { code, promotionId: codeId } = await newPromotion({ maxUses: 1 });
  const nodes = [world, world.node()];
  const accounts = await Promise.all(Array.from({ length: 50 }, () => world.newAccount()));
  const all = await Promise.allSettled(
    accounts.map((accountId, index) =>
      nodes[index % 2]
        ?.as(member(accountId), `2001:db8:ffff:${index}::1`)
        .redeemPromotion({ code }),
    ),
  );
  const reasons = all.flatMap((one) => (one.status === "rejected" ? [one.reason.reason] : []));
  expect(reasons).toEqual(Array(49).fill("promotion_not_usable"));
  const posted = await Promise.all(accounts.map((accountId) => world.posted(accountId)));
  expect(posted.filter(([v1]) => v1 === bonus)).toHaveLength(1);
  const [row] = await world.run<{ used: number; uses: bigint }>(
    "select used, (select count(*) from promotion_uses u where u.code_id = p.code_id) as uses from promotions p where code_id = $1",
    [codeId],
  );
  expect(row).toEqual({ used: 1, uses: 1n });
});

test("50 calls at once for one account give it one bonus", async () => {
  const { code } = await newPromotion({ maxUses: 2 });
  const accountId = await world.newAccount();
  const all = await Promise.allSettled(Array.from({ length: 50 }, () => redeem(accountId, code)));
  const done = all.flatMap((one) => (one.status === "fulfilled" ? [one.value.transferId] : []));
  expect(new Set(done).size).toBe(1);
  expect(done).toHaveLength(50);
  expect(await world.posted(accountId)).toEqual([bonus, 0n]);
  await redeem(await world.newAccount(), code);
});

test("a code that was stopped, or has ended, is of no use; what it gave stays", async () => {
  const accountId = await world.newAccount();
  const stopped = await newPromotion();
  await redeem(accountId, stopped.code);
  await world.as(admin).stopPromotion({ promotionId: stopped.promotionId });
  const { promotion } = await world.as(admin).stopPromotion({ promotionId: stopped.promotionId });
  expect(promotion?.stoppedAt).toBeDefined();
  const ended = await newPromotion({ expiresAt: timestampFromDate(new Date(Date.now() + 60_000)) });
  await world.run("update promotions set ends_at = now() where code_id = $1", [ended.promotionId]);
  for (const { code } of [stopped, ended])
    expect(await errorOf(redeem(await world.newAccount(), code))).toEqual({
      reason: "promotion_not_usable",
      field: "code",
    });
  expect(await world.posted(accountId)).toEqual([bonus, 0n]);
  expect((await errorOf(world.as(admin).stopPromotion({ promotionId: "pro_none" }))).reason).toBe(
    "not_found",
  );
});

test("a bonus that a crash left out is posted by the next sweep, once", async () => {
  const { code, promotionId: codeId } = await newPromotion();
  const accountId = await world.newAccount();
  // As after a crash between the use and its transfer.
  await world.run("update promotions set used = used + 1 where code_id = $1", [codeId]);
  await world.run(
    "insert into promotion_uses (code_id, account_id, used_at) values ($1, $2, now())",
    [codeId, accountId],
  );
  await world.sweepBy(2);
  expect(await world.posted(accountId)).toEqual([bonus, 0n]);
  // As after a crash between the transfer and its note.
  await world.run("update promotion_uses set transfer_id = null where account_id = $1", [
    accountId,
  ]);
  await world.sweepBy(1);
  await redeem(accountId, code);
  expect(await world.transfers(accountId)).toHaveLength(1);
});

test("a bonus that a crash left out is posted although the account was closed meanwhile", async () => {
  const { code, promotionId: codeId } = await newPromotion();
  const accountId = await world.newAccount();
  await world.run("update promotions set used = used + 1 where code_id = $1", [codeId]);
  await world.run(
    "insert into promotion_uses (code_id, account_id, used_at) values ($1, $2, now())",
    [codeId, accountId],
  );
  for (const column of ["accounts set status", "pools set account_status"])
    await world.run(`update ${column} = 'closed' where account_id = $1`, [accountId]);
  await world.sweepBy(1);
  expect(await world.posted(accountId)).toEqual([bonus, 0n]);
  expect((await errorOf(redeem(accountId, code))).reason).toBe("account_closed");
});

test("wrong codes are slowed like wrong passwords, and another account elsewhere is not", async () => {
  const { code } = await newPromotion();
  const accountId = await world.newAccount();
  const address = "198.51.100.7";
  for (let guess = 0; guess < 5; guess++)
    expect(await errorOf(redeem(accountId, `WRONG-CODE-${guess}`, address))).toEqual({
      reason: "not_found",
      field: "code",
    });
  const refused = redeem(accountId, code, address);
  await expect(refused).rejects.toMatchObject({
    reason: "auth_rate_limited",
    facts: { retryAfterMs: expect.any(Number) },
  });
  await redeem(await world.newAccount(), code);
});

test("right codes are no guesses: one account redeems many", async () => {
  const accountId = await world.newAccount();
  for (let round = 0; round < 8; round++) {
    const { code } = await newPromotion();
    await redeem(accountId, code, "198.51.100.8");
  }
  expect(await world.posted(accountId)).toEqual([8n * bonus, 0n]);
});

test("600 right codes at once are all redeemed: of few accounts, and from one network", async () => {
  const owners = await Promise.all(Array.from({ length: 20 }, () => world.newAccount()));
  const codes = await Promise.all(Array.from({ length: 30 }, () => newPromotion()));
  const calls = owners.flatMap((accountId) =>
    codes.map(({ code }) => redeem(accountId, code, "198.51.100.9")),
  );
  const all = await Promise.allSettled(calls);
  expect(all.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : []))).toEqual([]);
  for (const accountId of owners) expect(await world.posted(accountId)).toEqual([30n * bonus, 0n]);
});

test("of 600 wrong codes at once an account looks up five, and one after each wait", async () => {
  const accountId = await world.newAccount();
  const beganAt = performance.now();
  const all = await Promise.all(
    Array.from({ length: 600 }, (_, index) =>
      errorOf(redeem(accountId, `WRONG-CODE-${index}`, "198.51.100.10")),
    ),
  );
  const reasons = Map.groupBy(all, ({ reason }) => reason);
  const lookedUp = reasons.get("not_found")?.length ?? 0;
  expect(lookedUp).toBeGreaterThanOrEqual(5);
  // The waits are 1 s, 2 s, 4 s: on a slow machine some of them are over meanwhile.
  const tookSeconds = (performance.now() - beganAt) / 1_000;
  expect(lookedUp).toBeLessThanOrEqual(5 + Math.floor(Math.log2(tookSeconds + 1)));
  expect(reasons.get("auth_rate_limited")).toHaveLength(600 - lookedUp);
});

test("only owners redeem, and only for their account", async () => {
  const { code } = await newPromotion();
  const [accountId, other] = [await world.newAccount(), await world.newAccount()];
  const viewer = world.as(member(accountId, AccountRole.MEMBER));
  expect((await errorOf(viewer.redeemPromotion({ code }))).reason).toBe("not_permitted");
  const foreign = world.as(member(accountId)).redeemPromotion({ accountId: other, code });
  expect((await errorOf(foreign)).reason).toBe("not_found");
  expect((await errorOf(world.as(admin).redeemPromotion({ accountId, code }))).reason).toBe(
    "not_permitted",
  );
  for (const call of [
    world
      .as(member(accountId))
      .createPromotion({ name: "p", family: Family.V1, bonusMicrocredits: 1n }),
    world.as(member(accountId)).listPromotions({}),
    world.as(member(accountId)).stopPromotion({ promotionId: "pro_x" }),
  ])
    expect((await errorOf(call)).reason).toBe("not_permitted");
});

test("a generated code is long and random, and only its digest is stored", async () => {
  const made = await newPromotion({ name: "spring" });
  expect(made.code).toMatch(/^([2-9A-HJKMNP-TV-Z]{4}-){3}[2-9A-HJKMNP-TV-Z]{4}$/);
  expect((await newPromotion()).code).not.toBe(made.code);
  const rows = await world.run<{ row: string }>("select p::text as row from promotions p");
  expect(rows.join("").includes(made.code)).toBe(false);
  const { promotions } = await world.as(admin).listPromotions({ pageSize: 2 });
  expect(promotions[1]).toMatchObject({
    name: "spring",
    createdBy: toActor("token:ADMIN_TOKEN"),
    maxUses: 0,
  });
});

const bad: [name: string, more: New, field: string][] = [
  ["no bonus", { bonusMicrocredits: 0n }, "bonus_microcredits"],
  ["a negative bonus", { bonusMicrocredits: -1n }, "bonus_microcredits"],
  ["a bonus above 2^53", { bonusMicrocredits: 2n ** 53n + 1n }, "bonus_microcredits"],
  ["no family", { family: Family.UNSPECIFIED }, "family"],
  ["an end in the past", { expiresAt: timestampFromDate(new Date(0)) }, "expires_at"],
  ["a short code", { code: "ABC-123" }, "code"],
  ["a code of dashes", { code: "-".repeat(20) }, "code"],
  ["a long code", { code: "A".repeat(65) }, "code"],
  ["a long name", { name: "n".repeat(201) }, "name"],
  ["more uses than can be counted", { maxUses: 2 ** 31 }, "max_uses"],
];
for (const [name, more, field] of bad)
  test(`a promotion with ${name} is rejected`, async () => {
    expect(await errorOf(newPromotion(more))).toEqual({ reason: "invalid_request", field });
  });

test("two promotions cannot have one code", async () => {
  await newPromotion({ code: "ONE-OF-A-KIND" });
  expect(await errorOf(newPromotion({ code: "one of a kind" }))).toEqual({
    reason: "invalid_request",
    field: "code",
  });
});

/** Redeems a code that needs a purchase, for an account with a paid order of so many dollars. */
async function withPurchase(packMicrodollars = 5_000_000n) {
  const promotion = await newPromotion({ needsPurchase: true });
  const accountId = await world.newAccount();
  const orderId = await world.paidOrder(accountId, packMicrodollars);
  await redeem(accountId, promotion.code);
  const paid = packMicrodollars * 200n;
  const refund = (dollars: number) =>
    world.as(admin).beginRefund({
      orderId,
      reason: "asked for",
      what: { case: "amountMicrodollars", value: BigInt(dollars) * 1_000_000n },
    });
  return { ...promotion, accountId, orderId, paid, refund };
}

test("a code that needs a purchase is of use only after a paid order for its pool", async () => {
  const { code } = await newPromotion({ needsPurchase: true, maxUses: 1 });
  const { code: otherPool } = await newPromotion({ needsPurchase: true, family: Family.V2 });
  const accountId = await world.newAccount();
  const refused = { reason: "promotion_not_usable", field: "code" };
  expect(await errorOf(redeem(accountId, code))).toEqual(refused);
  // An order that is not paid is none, and the refusal used nothing up.
  await world.as(admin).createOrder({
    accountId,
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "simulated:btc",
    idempotencyKey: "unpaid",
  });
  expect(await errorOf(redeem(accountId, code))).toEqual(refused);
  await world.paidOrder(accountId);
  expect(await errorOf(redeem(accountId, otherPool))).toEqual(refused);
  await redeem(accountId, code);
  expect(await world.posted(accountId)).toEqual([1_000_000_000n + bonus, 0n]);
});

test("a refund of that order takes the bonus first", async () => {
  const { accountId, orderId, refund } = await withPurchase();
  await refund(5);
  expect(await world.posted(accountId)).toEqual([0n, 0n]);
  await world.as(admin).completeRefund({ orderId, transaction: "0xabc" });
  expect((await world.transfers(accountId)).at(-1)).toMatchObject({
    kind: TransferKind.REFUND,
    amountMicrocredits: 1_000_000_000n + bonus,
  });
});

test("a payment that is lost takes the bonus with it, once, and no refund takes it again", async () => {
  const { accountId, orderId, paid, refund } = await withPurchase(10_000_000n);
  await world.as(admin).simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "3", confirmations: 1 } },
  });
  const kept = 600_000_000n;
  await world.until(async () =>
    expect(await world.posted(accountId)).toEqual([paid + kept + bonus, 0n]),
  );
  const { order } = await world.as(admin).getOrder({ orderId });
  // What is left of it is no purchase that the code needs.
  const value = { depositId: order?.deposits[0]?.depositId ?? "", lost: true };
  await world.as(admin).simulateDeposit({ orderId, event: { case: "change", value } });
  await world.until(async () => expect(await world.posted(accountId)).toEqual([kept, 0n]));
  await refund(1);
  expect(await world.posted(accountId)).toEqual([kept - 200_000_000n, 0n]);
  await world.as(admin).cancelRefund({ orderId });
  expect(await world.posted(accountId)).toEqual([kept, 0n]);
  const { depositId } = await world.as(admin).simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "8", confirmations: 1 } },
  });
  await world.until(async () =>
    expect(await world.posted(accountId)).toEqual([kept + 1_600_000_000n + bonus, 0n]),
  );
  await world
    .as(admin)
    .simulateDeposit({ orderId, event: { case: "change", value: { depositId, lost: true } } });
  await world.until(async () => expect(await world.posted(accountId)).toEqual([kept, 0n]));
  const { creditNotes } = await world.as(admin).getReceiptDocument({ orderId });
  expect(creditNotes.map(({ totalMicrocredits }) => totalMicrocredits)).toEqual([
    paid,
    1_600_000_000n,
  ]);
  expect(await world.violations()).toEqual([]);
});

test("a lost payment that leaves the purchase leaves the bonus", async () => {
  const { accountId, orderId, paid } = await withPurchase(10_000_000n);
  await world.as(admin).simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "2", confirmations: 1 } },
  });
  await world.until(async () =>
    expect(await world.posted(accountId)).toEqual([paid + 400_000_000n + bonus, 0n]),
  );
  const { order } = await world.as(admin).getOrder({ orderId });
  const depositId = order?.deposits.at(-1)?.depositId ?? "";
  await world
    .as(admin)
    .simulateDeposit({ orderId, event: { case: "change", value: { depositId, lost: true } } });
  await world.until(async () => expect(await world.posted(accountId)).toEqual([paid + bonus, 0n]));
});

test("who has spent the bonus gets less back: it is taken before the credits", async () => {
  const { accountId, refund } = await withPurchase(10_000_000n);
  await world.billing.createTransfer(
    {
      accountId,
      family: Family.V1,
      kind: TransferKind.ADJUSTMENT,
      idempotencyKey: "spent",
      amountMicrocredits: -(bonus + 1n),
    },
    world.internal,
  );
  expect((await errorOf(refund(10))).reason).toBe("insufficient_funds");
  const left = 2_000_000_000n - 1n;
  expect(await world.posted(accountId)).toEqual([left, 0n]);
  await refund(7);
  expect(await world.posted(accountId)).toEqual([left - bonus - 1_400_000_000n, 0n]);
});

test("a cancelled refund gives the bonus back, and the next one takes it again", async () => {
  const { accountId, orderId, paid, refund } = await withPurchase(10_000_000n);
  await refund(2);
  expect(await world.posted(accountId)).toEqual([paid - 400_000_000n, 0n]);
  await world.as(admin).cancelRefund({ orderId });
  expect(await world.posted(accountId)).toEqual([paid + bonus, 0n]);
  await refund(2);
  await world.as(admin).completeRefund({ orderId, transaction: "0xdef" });
  await refund(1);
  expect(await world.posted(accountId)).toEqual([paid - 600_000_000n, 0n]);
});

test("an order that was refunded unlocks no code", async () => {
  const { accountId, refund } = await withPurchase();
  const { code } = await newPromotion({ needsPurchase: true });
  await refund(1);
  expect((await errorOf(redeem(accountId, code))).reason).toBe("promotion_not_usable");
});

test("of a refund and a redemption at once, the refund takes the bonus, or none is given", async () => {
  for (let round = 0; round < 5; round++) {
    const { code } = await newPromotion({ needsPurchase: true });
    const accountId = await world.newAccount();
    const orderId = await world.paidOrder(accountId);
    const refund = world.as(admin).beginRefund({
      orderId,
      reason: "asked for",
      what: { case: "amountMicrodollars", value: 5_000_000n },
    });
    const [refunded] = await Promise.allSettled([refund, redeem(accountId, code)]);
    const [posted] = await world.posted(accountId);
    if (refunded.status === "fulfilled") expect(posted).toBe(0n);
    // The bonus was counted, and not yet posted: the refund is refused for lack of its credits.
    else expect(posted).toBe(1_000_000_000n + bonus);
  }
});
