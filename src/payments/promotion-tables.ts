// The tables of promotion codes and their uses.

import type { FamilyName } from "../base/families.ts";
import { type Query, timed } from "./query.ts";

const statements = {
  insertPromotion: timed("insert-promotion"),
  stopPromotion: timed("stop-promotion"),
  listPromotions: timed("list-promotions"),
  findPromotion: timed("find-promotion"),
  findUse: timed("find-promotion-use"),
  insertUse: timed("insert-promotion-use"),
  countUse: timed("count-promotion-use"),
  setUseTransfer: timed("set-promotion-transfer"),
  findPaidOrder: timed("find-paid-order"),
  readBonus: timed("read-bonus"),
  takeBonus: timed("take-bonus"),
  returnBonus: timed("return-bonus"),
};

export type StoredPromotion = {
  readonly codeId: string;
  readonly name: string;
  readonly family: FamilyName;
  readonly bonusMicro: bigint;
  /** Undefined: it never ends. */
  readonly endsAt: Date | undefined;
  /** Undefined: any number. */
  readonly most: number | undefined;
  readonly used: number;
  readonly needsPurchase: boolean;
  readonly createdBy: string;
  readonly createdAt: Date;
  readonly stoppedAt: Date | undefined;
};

export type NewPromotion = Pick<
  StoredPromotion,
  "codeId" | "name" | "family" | "bonusMicro" | "endsAt" | "most" | "needsPurchase" | "createdBy"
> & { readonly digest: Buffer };

/** The use of a code by an account. */
export type PromotionUse = {
  readonly codeId: string;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly bonusMicro: bigint;
  /** Undefined: the bonus is not posted yet. */
  readonly transferId: string | undefined;
};

export function promotionTables(query: Query) {
  const first = async <Row>(one: Parameters<Query>[0], values: readonly unknown[]) =>
    (await query<Row>(one, values))[0];
  const promotionOf = async (one: Parameters<Query>[0], values: readonly unknown[]) => {
    const row = await first<PromotionRow>(one, values);
    return row && toStoredPromotion(row);
  };
  return {
    /** Undefined: another promotion has this code. */
    insertPromotion: (one: NewPromotion) =>
      promotionOf(statements.insertPromotion, [
        ...[one.codeId, one.digest, one.name, one.family, one.bonusMicro, one.endsAt ?? null],
        ...[one.most ?? null, one.needsPurchase, one.createdBy],
      ]),
    /** Undefined: there is none. */
    stopPromotion: (codeId: string) => promotionOf(statements.stopPromotion, [codeId]),
    /** Newest first. */
    listPromotions: async (before: string | undefined, limit: number) =>
      (await query<PromotionRow>(statements.listPromotions, [before ?? null, limit])).map(
        toStoredPromotion,
      ),
    findPromotion: (digest: Buffer) => promotionOf(statements.findPromotion, [digest]),
    async findUse(codeId: string, accountId: string): Promise<PromotionUse | undefined> {
      const row = await first<UseRow>(statements.findUse, [codeId, accountId]);
      return row && toUse(row);
    },
    /** False: the account has used the code. `orderId`: the purchase that the code needed. */
    insertUse: async (codeId: string, accountId: string, orderId: string | undefined) =>
      (await first(statements.insertUse, [codeId, accountId, orderId ?? null])) !== undefined,
    /** False: the promotion has ended, was stopped, or is used up. */
    countUse: async (codeId: string) => (await first(statements.countUse, [codeId])) !== undefined,
    setUseTransfer: async (codeId: string, accountId: string, transferId: string) =>
      void (await query(statements.setUseTransfer, [codeId, accountId, transferId])),
    /** Micro-credits of the bonuses that needed an order, and that no refund has taken. */
    readBonus: async (orderId: string): Promise<bigint> =>
      (await first<{ micro: bigint }>(statements.readBonus, [orderId]))?.micro ?? 0n,
    /** A refund takes these bonuses. The order is locked. */
    takeBonus: async (orderId: string, refundN: number): Promise<void> =>
      void (await query(statements.takeBonus, [orderId, refundN])),
    /** A refund that ended without money gives them back. The order is locked. */
    returnBonus: async (orderId: string, refundN: number): Promise<void> =>
      void (await query(statements.returnBonus, [orderId, refundN])),
    /** The first order of a pool of which at least `micro` credits were granted and are left. */
    findPaidOrder: async (accountId: string, family: FamilyName, micro: bigint) =>
      (await first<{ order_id: string }>(statements.findPaidOrder, [accountId, family, micro]))
        ?.order_id,
  };
}

type PromotionRow = {
  code_id: string;
  name: string;
  family: FamilyName;
  bonus_micro: bigint;
  ends_at: Date | null;
  most: number | null;
  used: number;
  needs_purchase: boolean;
  created_by: string;
  created_at: Date;
  stopped_at: Date | null;
};

type UseRow = {
  code_id: string;
  account_id: string;
  family: FamilyName;
  bonus_micro: bigint;
  transfer_id: string | null;
};

function toStoredPromotion(row: PromotionRow): StoredPromotion {
  return {
    codeId: row.code_id,
    name: row.name,
    family: row.family,
    bonusMicro: row.bonus_micro,
    endsAt: row.ends_at ?? undefined,
    most: row.most ?? undefined,
    used: row.used,
    needsPurchase: row.needs_purchase,
    createdBy: row.created_by,
    createdAt: row.created_at,
    stoppedAt: row.stopped_at ?? undefined,
  };
}

function toUse(row: UseRow): PromotionUse {
  return {
    codeId: row.code_id,
    accountId: row.account_id,
    family: row.family,
    bonusMicro: row.bonus_micro,
    transferId: row.transfer_id ?? undefined,
  };
}
