// What the methods of this folder share.

import { type Account, AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import type * as sql from "../../gen/sql/payments.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { FamilyName } from "../base/families.ts";
import type { Log } from "../base/log.ts";
import type { Seller } from "../config/catalog.ts";
import { checkAccess } from "../contract/callers.ts";
import { type AuthenticatedCall, asService, type Core } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import type { Chain } from "./chain.ts";
import type { Processor } from "./processor.ts";
import type { PaymentsStore, StoredOrder } from "./store.ts";
import type { Watchers } from "./watchers.ts";

/** What a promotion with `needs_purchase` needs: 1,000 credits of one order that money paid. */
export const purchaseMicro = 1_000_000_000n;

/** What can be bought, in micro-dollars. */
export type Offer = {
  readonly packsUsdMicro: readonly bigint[];
  /** Any multiple of 5 USD up to this can be ordered. */
  readonly mostUsdMicro: bigint;
  /** What a person gives away alone in a UTC day. Undefined: any amount. */
  readonly secondApprovalAboveUsdMicro: bigint | undefined;
};

/** Slows down the guessing of codes. The caller has locked the account. */
export type Guesses = {
  /** Throws `auth_rate_limited` after too many wrong codes of the account or the network. */
  check(tx: Runner, accountId: string, address: string): Promise<void>;
  /** Counts a wrong code. */
  count(tx: Runner, accountId: string, address: string): Promise<void>;
};

/** Permanent addresses, one for each account, pool and kind of chain. */
export type DepositAddresses = {
  /** All functions throw `invalid_request` for another network. */
  networks(): readonly string[];
  /** Undefined: the account and pool have none yet. */
  findAddress(accountId: string, family: FamilyName, network: string): Promise<string | undefined>;
  /** The first call makes it. */
  addressOf(accountId: string, family: FamilyName, network: string): Promise<string>;
  /** Those of the account key of a network, in the order in which they were given. */
  listAddresses(
    network: string,
    after: bigint,
    rows: number,
  ): Promise<{ given: bigint; gapLimit: number; addresses: readonly sql.ListGivenRow[] }>;
};

export type Parts = {
  readonly store: PaymentsStore;
  /** Reads on connections that orders do not wait for. */
  readonly reports: Runner;
  /** The billing service of this process. Calls carry `asService("payments")`. */
  readonly billing: Core["billing"];
  /** By name. Empty: nothing can be bought here. */
  readonly processors: () => ReadonlyMap<string, Processor>;
  /** The chains that are read by ourselves, each with the name of its processor. */
  readonly chains: () => readonly { readonly processor: string; readonly chain: Chain }[];
  /** Addresses of those chains. Undefined: there are none. */
  readonly addresses: () => DepositAddresses | undefined;
  readonly offer: () => Offer;
  /** Who sells, on the documents of new orders. */
  readonly seller: () => Seller;
  /** Slows down guesses of promotion codes. */
  readonly guesses: Guesses;
  /** The last redemption of each account that is under way in this process. */
  readonly redeeming: Map<string, Promise<unknown>>;
  /** How many look-ups of payments each caller has under way in this process. */
  readonly lookingUp: Map<string, number>;
  readonly watchers: Watchers;
  /** Call after the commit of a change of an order: streams of this process show it at once. */
  readonly changed: (orderId: string) => void;
  /** Makes this process look for work at once. */
  readonly wake: () => void;
  readonly clock: Clock;
  readonly log: Log;
};

/** An order that the caller may see. Throws `not_found`. */
export async function findVisible(
  { store }: Pick<Parts, "store">,
  orderId: string,
  call: AuthenticatedCall,
): Promise<StoredOrder> {
  const order = await store.findOrder(orderId);
  if (!order || order.externalId === null) throw noSuchOrder();
  checkAccess(call, order.accountId, noSuchOrder);
  return order;
}

/**
 * An account that may buy. Throws `not_found`, `account_suspended` and `account_closed`.
 */
export async function findOpenAccount(
  { billing }: Pick<Parts, "billing">,
  accountId: string,
  signal: AbortSignal,
): Promise<Account> {
  const contextValues = asService("payments");
  const { account } = await billing.getAccount({ accountId }, { contextValues, signal });
  if (!account) throw new Error("billing answered without the account");
  if (account.state === AccountState.SUSPENDED) throw new ApiError("account_suspended");
  if (account.state === AccountState.CLOSED) throw new ApiError("account_closed");
  return account;
}

/** The error of a method that the state of an order does not permit. */
export function wrongState(message: string): ApiError {
  return new ApiError("wrong_state", { message });
}

export function noSuchOrder(): ApiError {
  return new ApiError("not_found", { message: "No such order.", field: "order_id" });
}
