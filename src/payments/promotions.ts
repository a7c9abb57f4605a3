// Promotion codes: credits that an operator gives away, to each account once. The use of a code and
// its count are one transaction; the bonus follows under an idempotency key of that use, so a crash
// between the two is completed by the sweep.

import { hash, randomInt } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type CreatePromotionRequest,
  CreatePromotionResponseSchema,
  type ListPromotionsRequest,
  ListPromotionsResponseSchema,
  type Promotion,
  PromotionSchema,
  PromotionsService,
  type RedeemPromotionRequest,
  RedeemPromotionResponseSchema,
  type StopPromotionRequest,
  StopPromotionResponseSchema,
} from "../../gen/gateway/payments/v1/promotions_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { toActor } from "../base/actors.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { familyOf, namedFamily } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { credits, usdMicroOf } from "../base/money.ts";
import { checkName, shownName } from "../base/names.ts";
import { readPage } from "../base/paging.ts";
import {
  askForApproval,
  type CarryOut,
  mayGive,
  memberOf,
  needsApproval,
} from "../contract/approvals.ts";
import { actorOf, clientOf } from "../contract/callers.ts";
import { type AuthenticatedCall, asService } from "../contract/contract.ts";
import { findOpenAccount, type Parts, purchaseMicro } from "./parts.ts";
import { type PaymentsTables, tablesOn } from "./store.ts";

// The column is a signed 32-bit integer.
const codeLengthMin = 8;

export async function createPromotion(
  { store, offer }: Parts,
  request: CreatePromotionRequest,
  { caller }: AuthenticatedCall,
) {
  const family = namedFamily(request.family);
  const { bonusMicrocredits, maxUses: most, needsPurchase = true } = request;
  const name = checkName("name", request.name);
  const endsAt = request.expiresAt && timestampDate(request.expiresAt);
  const code = request.code === "" ? newCode() : request.code;
  const letters = lettersOf(code);
  if (letters.length < codeLengthMin)
    throw invalidField("code", `must have at least ${codeLengthMin} letters and digits`);
  const made = {
    codeId: timeOrderedId("pro_"),
    name,
    family,
    bonusMicro: bonusMicrocredits,
    needsPurchase,
    most: most === 0 ? null : most,
  };
  const row = { ...made, codeSha256: digestOf(code), endsAt: endsAt ?? null };
  const limit = offer().secondApprovalAboveUsdMicro;
  const usdMicro = usdMicroOf(bonusMicrocredits * BigInt(most));
  const outcome = await store.transaction(async (tables) => {
    const isUnbounded = most === 0 && needsApproval(caller, limit);
    if (!isUnbounded && (await mayGive(tables, caller, usdMicro, limit)))
      return { promotion: await insertPromotion(tables, { ...row, createdBy: actorOf(caller) }) };
    const approval = await askForApproval(tables, caller, {
      kind: "promotion",
      subject: made.codeId,
      accountId: "",
      what: `Gives ${credits(bonusMicrocredits)} credits to each of ${most === 0 ? "all" : most} accounts.`,
      reason: name,
      usdMicro,
      request: {
        ...made,
        bonusMicro: String(bonusMicrocredits),
        codeSha256: row.codeSha256.toString("base64"),
        endsAt: endsAt?.toISOString() ?? null,
      },
    });
    return { approval };
  });
  return create(CreatePromotionResponseSchema, { ...outcome, code });
}

/** Throws `invalid_request` for the code of another promotion. */
async function insertPromotion(
  tables: PaymentsTables,
  row: Parameters<typeof sql.insertPromotion.with>[0],
): Promise<Promotion> {
  const stored = await tables.run(sql.insertPromotion, row);
  if (!stored) throw invalidField("code", "belongs to another promotion");
  return toPromotion(stored);
}

/** Begins an approved promotion. */
export const carryOutPromotion: CarryOut = async (tx, approved) => {
  const { most, endsAt, needsPurchase } = approved.request;
  await insertPromotion(tablesOn(tx), {
    codeId: memberOf(approved, "codeId"),
    codeSha256: Buffer.from(memberOf(approved, "codeSha256"), "base64"),
    name: memberOf(approved, "name"),
    family: memberOf(approved, "family") === "v1" ? "v1" : "v2",
    bonusMicro: BigInt(memberOf(approved, "bonusMicro")),
    endsAt: typeof endsAt === "string" ? new Date(endsAt) : null,
    needsPurchase: needsPurchase !== false,
    most: typeof most === "number" ? most : null,
    createdBy: approved.requestedBy,
  });
  return () => {};
};

export async function stopPromotion(
  { store }: Parts,
  { promotionId: codeId }: StopPromotionRequest,
) {
  const stored = await store.run(sql.stopPromotion, { codeId });
  if (!stored)
    throw new ApiError("not_found", { message: "No such promotion.", field: "promotion_id" });
  return create(StopPromotionResponseSchema, { promotion: toPromotion(stored) });
}

export async function listPromotions(
  { store }: Parts,
  request: ListPromotionsRequest,
  call: AuthenticatedCall,
) {
  const { entries, nextPageToken } = await readPage(
    PromotionsService.method.listPromotions,
    request,
    call,
    {
      read: (after, rows) => store.run(sql.listPromotions, { before: after ?? null, rows }),
      cursorOf: ({ codeId }) => codeId,
    },
  );
  return create(ListPromotionsResponseSchema, {
    promotions: entries.map(toPromotion),
    nextPageToken,
  });
}

/**
 * One at a time in an account. Those that wait do so here, and not on the connections that others
 * need.
 */
export async function redeemPromotion(
  parts: Parts,
  request: RedeemPromotionRequest,
  call: AuthenticatedCall,
) {
  const { redeeming } = parts;
  const { accountId } = call;
  const before = redeeming.get(accountId);
  const turn = (async () => {
    await before?.catch(() => undefined);
    call.signal.throwIfAborted();
    return redeem(parts, request, call);
  })();
  redeeming.set(accountId, turn);
  try {
    return await turn;
  } finally {
    if (redeeming.get(accountId) === turn) redeeming.delete(accountId);
  }
}

async function redeem(parts: Parts, { code }: RedeemPromotionRequest, call: AuthenticatedCall) {
  const { store, guesses } = parts;
  const { accountId, signal } = call;
  await findOpenAccount(parts, accountId, signal);
  const { address } = clientOf(call);
  const use = await store.transaction(async (tables) => {
    // Those of other processes wait here, so that an account guesses no more by many at once.
    await tables.run(sql.lockRedeemer, { accountId });
    await guesses.check(tables, accountId, address);
    const promotion = await tables.run(sql.findPromotion, { codeSha256: digestOf(code) });
    if (promotion) return useOnce(tables, promotion, accountId);
    await guesses.count(tables, accountId, address);
    return undefined;
  });
  if (!use) throw new ApiError("not_found", { message: "No such promotion code.", field: "code" });
  const transferId = use.transferId ?? (await postBonus(parts, use));
  return create(RedeemPromotionResponseSchema, {
    promotionId: use.codeId,
    family: familyOf(use.family),
    bonusMicrocredits: use.bonusMicro,
    transferId,
  });
}

/** Stores the use of a code, and counts it. Returns the earlier one if there is one. */
async function useOnce(
  tables: PaymentsTables,
  { codeId, family, needsPurchase }: sql.FindPromotionRow,
  accountId: string,
): Promise<PromotionUse> {
  const earlier = await tables.run(sql.findPromotionUse, { codeId, accountId });
  if (earlier) return earlier;
  const paid = { accountId, family, micro: purchaseMicro };
  const find = async () => (await tables.run(sql.findPaidOrder, paid))?.orderId ?? null;
  const orderId = needsPurchase ? await find() : null;
  if (orderId !== null) await tables.lockOrder(orderId);
  // Its refund may have begun before the lock.
  if (needsPurchase && (orderId === null || (await find()) !== orderId))
    throw notUsable(
      "This code needs a paid order of at least 5 USD for the same pool. Buy credits first.",
    );
  if ((await tables.run(sql.insertPromotionUse, { codeId, accountId, orderId })) > 0) {
    if ((await tables.run(sql.countPromotionUse, { codeId })) === 0)
      throw notUsable("This promotion has ended, or its code was used by as many as it was for.");
  }
  const use = await tables.run(sql.findPromotionUse, { codeId, accountId });
  if (!use) throw new Error("a use that was stored is gone");
  return use;
}

type PromotionUse = sql.FindPromotionUseRow;

/** Posts the bonus of a use. A repeat returns the same transfer. */
async function postBonus(
  { store, billing }: Pick<Parts, "store" | "billing">,
  { codeId, accountId, family, bonusMicro }: PromotionUse,
): Promise<string> {
  const { transfer } = await billing.createTransfer(
    {
      accountId,
      family: familyOf(family),
      kind: TransferKind.BONUS,
      amountMicrocredits: bonusMicro,
      idempotencyKey: `promo:${codeId}`,
      reason: "promotion code",
    },
    { contextValues: asService("payments") },
  );
  if (!transfer) throw new Error("billing answered without the transfer");
  const { transferId } = transfer;
  await store.run(sql.setPromotionTransfer, { codeId, accountId, transferId });
  return transferId;
}

/** Posts a bonus that a crash has left out. */
export async function repeatBonus(
  parts: Pick<Parts, "store" | "billing">,
  codeId: string,
  accountId: string,
): Promise<void> {
  const use = await parts.store.run(sql.findPromotionUse, { codeId, accountId });
  if (use?.transferId === null) await postBonus(parts, use);
}

function notUsable(message: string): ApiError {
  return new ApiError("promotion_not_usable", { message, field: "code" });
}

// Without letters and digits that look alike.
const codeCharacters = "23456789ABCDEFGHJKMNPQRSTVWXYZ";

/** A code of 16 characters, 78 bits, in groups that a person can type. */
function newCode(): string {
  const group = () =>
    Array.from({ length: 4 }, () => codeCharacters[randomInt(codeCharacters.length)]).join("");
  return Array.from({ length: 4 }, group).join("-");
}

/** What counts of a code: neither case nor separators do. */
function lettersOf(code: string): string {
  return code.toUpperCase().replace(/[^0-9A-Z]/g, "");
}

function digestOf(code: string): Buffer {
  return hash("sha256", lettersOf(code), "buffer");
}

function toPromotion(row: sql.FindPromotionRow): Promotion {
  const { codeId, name, used, needsPurchase, createdBy, endsAt, stoppedAt } = row;
  return create(PromotionSchema, {
    promotionId: codeId,
    name: shownName(name),
    uses: used,
    needsPurchase,
    createdBy: toActor(createdBy),
    family: familyOf(row.family),
    bonusMicrocredits: row.bonusMicro,
    maxUses: row.most ?? 0,
    createdAt: timestampFromDate(row.createdAt),
    ...(endsAt && { expiresAt: timestampFromDate(endsAt) }),
    ...(stoppedAt && { stoppedAt: timestampFromDate(stoppedAt) }),
  });
}
