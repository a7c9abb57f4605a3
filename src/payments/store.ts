// The tables of payments. The only file that runs this folder's statements and reads their rows.

import { ApiError } from "../base/errors.ts";
import type { FamilyName } from "../base/families.ts";
import { isUnreachable, type Postgres, type Statement, type Tx } from "../postgres/postgres.ts";
import { chainTables } from "./chain-tables.ts";
import type { AttentionName, OrderState, ValuedBy } from "./decide.ts";
import { documentTables, type Party } from "./document-tables.ts";
import { hookTables } from "./hook-tables.ts";
import type { Asset, DepositState, Fault, Quote, SeenDeposit } from "./processor.ts";
import { promotionTables } from "./promotion-tables.ts";
import { type Query, timed } from "./query.ts";

const statements = {
  lockAccount: timed("lock-account"),
  countOrders: timed("count-orders"),
  insertOrder: timed("insert-order"),
  leaseOpening: timed("lease-opening"),
  putQuote: timed("put-quote"),
  failOpening: timed("fail-opening"),
  findOrder: timed("find-order"),
  findOrderByKey: timed("find-order-by-key"),
  lockOrder: timed("lock-order"),
  listOrders: timed("list-orders"),
  listAttention: timed("list-attention"),
  countWaiting: timed("count-waiting"),
  listDeposits: timed("list-deposits"),
  upsertDeposit: timed("upsert-deposit"),
  valueDeposit: timed("value-deposit"),
  listDecided: timed("list-decided"),
  updateOrder: timed("update-order"),
  insertGrant: timed("insert-grant"),
  listUnposted: timed("list-unposted"),
  putTransfer: timed("put-transfer"),
  ensureSlots: timed("ensure-slots"),
  hasWork: timed("has-work"),
  takeWork: timed("take-work"),
  hookOrder: timed("hook-order"),
  openPage: timed("open-page"),
  readVersions: timed("read-versions"),
  cancelOrder: timed("cancel-order"),
  insertDecision: timed("insert-decision"),
  replacePending: timed("replace-pending"),
  approveDecision: timed("approve-decision"),
  findDecision: timed("find-decision"),
  listPending: timed("list-pending"),
  handleFacts: timed("handle-facts"),
  restoreFacts: timed("restore-facts"),
  reopenOrder: timed("reopen-order"),
  insertRefund: timed("insert-refund"),
  moveRefund: timed("move-refund"),
  listRefunds: timed("list-refunds"),
  listSimulated: timed("list-simulated"),
  putSimulated: timed("put-simulated"),
  listSimulatedFaults: timed("list-simulated-faults"),
  putSimulatedFault: timed("put-simulated-fault"),
  endSimulated: timed("end-simulated"),
};

/** An order, as of `readAt` of the database's clock. */
export type StoredOrder = Asset & {
  readonly orderId: string;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly idempotencyKey: string;
  readonly kind: "pack" | "direct";
  readonly usdMicro: bigint;
  readonly processor: string;
  readonly method: string;
  /** Undefined: the processor has not opened it yet. So are the next two. */
  readonly externalId: string | undefined;
  readonly quotedAtoms: bigint | undefined;
  /** Micro-dollars of one coin. */
  readonly rate: bigint | undefined;
  readonly payTo: string;
  readonly memo: string;
  readonly checkoutUrl: string;
  readonly state: OrderState;
  readonly cancelledAt: Date | undefined;
  readonly attention: AttentionName | undefined;
  /** What the processor reported besides deposits, and the facts that a person has dealt with. */
  readonly faults: readonly string[];
  readonly handled: readonly string[];
  /** Micro-credits that the rules granted: all but what persons decided. */
  readonly ruleMicro: bigint;
  readonly refundedUsdMicro: bigint;
  readonly receiptNumber: string | undefined;
  readonly createdBy: string;
  readonly createdAt: Date;
  readonly quotedUntil: Date;
  readonly watchedUntil: Date;
  readonly nextLookAt: Date | undefined;
  readonly lookedAt: Date | undefined;
  readonly failedLooks: number;
  readonly hookAt: Date | undefined;
  readonly pageOpenUntil: Date | undefined;
  readonly version: bigint;
  /** Micro-credits: all that was granted, and what refunds took back of it. */
  readonly grantedMicro: bigint;
  readonly takenBackMicro: bigint;
  readonly readAt: Date;
};

/** What arrived for an order. */
export type StoredDeposit = Asset & {
  readonly orderId: string;
  readonly externalId: string;
  readonly atoms: bigint;
  /** Micro-dollars of one coin at the first sight. Undefined: unknown. */
  readonly marketRate: bigint | undefined;
  /** Undefined: it has not settled, or its value is unknown. So is the next one. */
  readonly usdMicro: bigint | undefined;
  readonly valuedBy: ValuedBy | undefined;
  readonly processorUsdMicro: bigint | undefined;
  readonly state: DepositState;
  readonly isReturned: boolean;
  readonly confirmations: number;
  readonly confirmationsNeeded: number;
  readonly firstSeenAt: Date;
  readonly settledAt: Date | undefined;
};

/** What was decided about an order, for `updateOrder`. */
export type OrderUpdate = {
  readonly state: OrderState;
  readonly attention: AttentionName | undefined;
  readonly faults: readonly string[];
  readonly ruleMicro: bigint;
  /** True: a look has ended. False: a person changed something. */
  readonly isLook: boolean;
  /** The start of the look that was answered. Undefined: none was. */
  readonly lookedAt: Date | undefined;
  readonly failedLooks: number;
  /** Undefined: the order is watched no more. */
  readonly nextLookMs: number | undefined;
};

/** A grant without a transfer. */
export type Unposted = {
  readonly n: number;
  readonly micro: bigint;
  readonly accountId: string;
  readonly family: FamilyName;
};

/** What a person decided about an order. */
export type StoredDecision = {
  readonly decisionId: string;
  readonly orderId: string;
  readonly kind: "grant" | "close";
  /** The facts that it deals with. */
  readonly facts: readonly string[];
  /** Micro-credits by deposit. An empty id: for no single deposit. */
  readonly granted: readonly { readonly depositId: string; readonly micro: bigint }[];
  readonly reason: string;
  readonly state: "pending" | "done" | "replaced";
  readonly decidedBy: string;
  readonly approvedBy: string | undefined;
  readonly createdAt: Date;
};

export type RefundState =
  | "asked"
  | "refused"
  | "refunding"
  | "completed"
  | "cancelling"
  | "cancelled";

export type StoredRefund = {
  readonly orderId: string;
  readonly n: number;
  readonly usdMicro: bigint;
  /** The deposit that goes back whole. Undefined: an amount. */
  readonly externalId: string | undefined;
  /** Micro-credits that it takes back of those granted for the order. */
  readonly micro: bigint;
  /** Micro-credits that it takes back of promotions which needed the order. */
  readonly bonusMicro: bigint;
  readonly state: RefundState;
  readonly transaction: string;
  readonly reason: string;
  readonly madeBy: string;
  readonly createdAt: Date;
  readonly endedAt: Date | undefined;
};

/** What a node is to do now. */
export type Work =
  | {
      readonly kind: "look";
      readonly orderId: string;
      readonly processor: string;
      readonly externalId: string;
      readonly startedAt: Date;
    }
  | { readonly kind: "post"; readonly orderId: string }
  | { readonly kind: "bonus"; readonly codeId: string; readonly accountId: string };

export type NewStoredOrder = Asset & {
  readonly orderId: string;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly idempotencyKey: string;
  readonly usdMicro: bigint;
  readonly processor: string;
  readonly method: string;
  readonly createdBy: string;
  /** On its documents. */
  readonly seller: Party;
  readonly buyer: Party;
};

export type SimulatedPayment = Asset & {
  readonly depositId: string;
  readonly atoms: bigint;
  readonly confirmations: number;
  readonly isLost: boolean;
  readonly firstSeenAt: Date;
};

/** An order that waits for a person. */
export type WaitingOrder = {
  readonly orderId: string;
  readonly accountId: string;
  /** Decisions about it so far. */
  readonly decisions: number;
};

/** The functions of the store that run in one transaction, or each in its own. */
export type PaymentsTables = ReturnType<typeof tablesOn>;

export type PaymentsStore = PaymentsTables & {
  /** Runs `work` in one transaction, more than once after conflicts with others. */
  transaction<T>(work: (tables: PaymentsTables) => Promise<T>): Promise<T>;
};

export function createPaymentsStore(postgres: Postgres): PaymentsStore {
  return {
    ...tablesOn(postgres),
    transaction: (work) =>
      postgres.transaction((tx) => work(tablesOn(tx))).catch((cause: unknown) => fail(cause)),
  };
}

function fail(cause: unknown): never {
  throw isUnreachable(cause)
    ? new ApiError("database_unavailable", { retryAfterMs: 1000, cause })
    : cause;
}

function tablesOn(db: Tx) {
  const query: Query = <Row>(one: Statement, values: readonly unknown[]) =>
    db.query<Row>(one, values).catch((cause: unknown) => fail(cause));
  const first = async <Row>(one: Statement, values: readonly unknown[]) =>
    (await query<Row>(one, values))[0];
  const didChange = async (one: Statement, values: readonly unknown[]) =>
    (await query(one, values)).length > 0;
  const run = async (one: Statement, values: readonly unknown[]) => void (await query(one, values));

  return {
    ...hookTables(query),
    ...chainTables(query),
    ...documentTables(query),
    ...promotionTables(query),

    // Orders.

    /** Locks an account, so that its orders are counted one by one. */
    lockAccount: (accountId: string) => run(statements.lockAccount, [accountId]),
    /** The orders that are open, those of the last hour, and when the first of these was made. */
    async countOrders(accountId: string): Promise<OrderCount> {
      const rows = await query<CountRow>(statements.countOrders, [accountId]);
      const { open, made, first_at } = only(rows);
      return { open, made, firstAt: first_at ?? undefined };
    },
    /** The account has not used the idempotency key, and is locked. */
    insertOrder: (order: NewStoredOrder) =>
      run(statements.insertOrder, [
        ...[order.orderId, order.accountId, order.family, order.idempotencyKey, order.usdMicro],
        ...[order.processor, order.method, order.asset, order.network, order.decimals],
        ...[order.createdBy, order.seller.name, order.seller.address, order.seller.taxId],
        ...[order.buyer.name, order.buyer.address, order.buyer.taxId],
      ]),
    /** False: the order is open, or somebody else opens it. */
    leaseOpening: (orderId: string, leaseMs: number) =>
      didChange(statements.leaseOpening, [orderId, leaseMs]),
    /** False: the order has a quote. */
    putQuote: (orderId: string, quote: Quote, firstLookMs: number) =>
      didChange(statements.putQuote, [
        ...[orderId, quote.externalId, quote.atoms, quote.rate, quote.payTo, quote.memo],
        ...[quote.checkoutUrl, quote.quotedForMs, quote.watchedForMs, firstLookMs],
      ]),
    failOpening: (orderId: string) => run(statements.failOpening, [orderId]),
    async findOrder(orderId: string): Promise<StoredOrder | undefined> {
      const row = await first<OrderRow>(statements.findOrder, [orderId]);
      return row && toStoredOrder(row);
    },
    /** The order, locked until the end of the transaction. */
    async lockOrder(orderId: string): Promise<StoredOrder | undefined> {
      await run(statements.lockOrder, [orderId]);
      return this.findOrder(orderId);
    },
    async findOrderByKey(
      accountId: string,
      idempotencyKey: string,
    ): Promise<StoredOrder | undefined> {
      const row = await first<OrderRow>(statements.findOrderByKey, [accountId, idempotencyKey]);
      return row && toStoredOrder(row);
    },
    async listOrders(
      filter: { accountId: string | undefined; needsAttention: boolean },
      before: string | undefined,
      limit: number,
    ): Promise<StoredOrder[]> {
      const values = [filter.accountId ?? null, before ?? null, filter.needsAttention, limit];
      return (await query<OrderRow>(statements.listOrders, values)).map(toStoredOrder);
    },
    /** How many orders wait for a person, by account. */
    async countWaiting(limit: number): Promise<ReadonlyMap<string, number>> {
      const rows = await query<{ account_id: string; orders: number }>(statements.countWaiting, [
        limit,
      ]);
      return new Map(rows.map(({ account_id, orders }) => [account_id, orders]));
    },

    // Deposits.

    /** By order, oldest first. */
    async listDeposits(orderIds: readonly string[]): Promise<Map<string, StoredDeposit[]>> {
      const rows = await query<DepositRow>(statements.listDeposits, [orderIds]);
      return Map.groupBy(rows.map(toStoredDeposit), ({ orderId }) => orderId);
    },
    /** False: the deposit belongs to another order. The order is locked. */
    upsertDeposit: (
      order: StoredOrder,
      deposit: SeenDeposit & { marketRate: bigint | undefined },
    ) =>
      didChange(statements.upsertDeposit, [
        ...[order.processor, deposit.externalId, order.orderId, order.accountId, order.family],
        ...[deposit.asset, deposit.network, deposit.decimals, deposit.atoms],
        ...[deposit.marketRate ?? null, deposit.usdMicro ?? null, deposit.state],
        ...[deposit.confirmations, deposit.confirmationsNeeded, deposit.firstSeenAt],
      ]),
    valueDeposit: (processor: string, externalId: string, usdMicro: bigint, by: ValuedBy) =>
      run(statements.valueDeposit, [processor, externalId, usdMicro, by]),
    /** What persons granted, by deposit. */
    async listDecided(orderId: string): Promise<{ depositId: string; micro: bigint }[]> {
      const rows = await query<{ deposit_id: string; micro: bigint }>(statements.listDecided, [
        orderId,
      ]);
      return rows.map(({ deposit_id, micro }) => ({ depositId: deposit_id, micro }));
    },

    // Decisions and grants.

    updateOrder: (orderId: string, update: OrderUpdate) =>
      run(statements.updateOrder, [
        ...[orderId, update.state, update.attention ?? null, update.faults, update.ruleMicro],
        ...[update.isLook, update.lookedAt ?? null, update.failedLooks],
        update.nextLookMs ?? null,
      ]),
    /** Undefined: so much was granted before. The order is locked. */
    insertGrant: (orderId: string, targetMicro: bigint) =>
      first<{ n: number; micro: bigint }>(statements.insertGrant, [orderId, targetMicro]),
    /** The orders that wait for a person, from the cursor `after` on. */
    async listAttention(after: string, limit: number): Promise<WaitingOrder[]> {
      const rows = await query<AttentionRow>(statements.listAttention, [after, limit]);
      return rows.map((row) => ({
        orderId: row.order_id,
        accountId: row.account_id,
        decisions: row.decisions,
      }));
    },
    async listUnposted(orderId: string): Promise<Unposted[]> {
      const rows = await query<UnpostedRow>(statements.listUnposted, [orderId]);
      return rows.map(({ account_id, ...row }) => ({ ...row, accountId: account_id }));
    },
    putTransfer: (orderId: string, n: number, transferId: string) =>
      run(statements.putTransfer, [orderId, n, transferId]),

    insertDecision: (decision: Omit<StoredDecision, "approvedBy" | "createdAt">) =>
      run(statements.insertDecision, [
        ...[decision.decisionId, decision.orderId, decision.kind, decision.facts],
        ...[decision.granted.map(({ depositId }) => depositId)],
        ...[decision.granted.map(({ micro }) => micro)],
        ...[decision.reason, decision.state, decision.decidedBy],
      ]),
    replacePending: (orderId: string) => run(statements.replacePending, [orderId]),
    approveDecision: (decisionId: string, approvedBy: string) =>
      run(statements.approveDecision, [decisionId, approvedBy]),
    async findDecision(decisionId: string): Promise<StoredDecision | undefined> {
      const row = await first<DecisionRow>(statements.findDecision, [decisionId]);
      return row && toStoredDecision(row);
    },
    /** By order: the decision that waits for its approval. */
    async listPending(orderIds: readonly string[]): Promise<Map<string, StoredDecision>> {
      const rows = await query<DecisionRow>(statements.listPending, [orderIds]);
      return new Map(rows.map((row) => [row.order_id, toStoredDecision(row)]));
    },
    handleFacts: (orderId: string, facts: readonly string[]) =>
      run(statements.handleFacts, [orderId, facts]),
    /** Leaves as dealt with only what was decided. */
    restoreFacts: (orderId: string) => run(statements.restoreFacts, [orderId]),
    reopenOrder: (orderId: string, quotedForMs: number) =>
      run(statements.reopenOrder, [orderId, quotedForMs]),

    // Refunds.

    /** Counts it as refunded. The order is locked. */
    async insertRefund(
      refund: Pick<
        StoredRefund,
        | "orderId"
        | "usdMicro"
        | "externalId"
        | "micro"
        | "bonusMicro"
        | "state"
        | "reason"
        | "madeBy"
      >,
    ): Promise<number> {
      const rows = await query<{ n: number }>(statements.insertRefund, [
        ...[refund.orderId, refund.usdMicro, refund.externalId ?? null, refund.micro],
        ...[refund.state, refund.reason, refund.madeBy, refund.bonusMicro],
      ]);
      return only(rows).n;
    },
    /** False: the refund is in another state than `from`. The order is locked. */
    moveRefund: (
      { orderId, n }: { orderId: string; n: number },
      from: RefundState,
      to: RefundState,
      facts: { transferId?: string; cancelTransferId?: string; transaction?: string } = {},
    ) =>
      didChange(statements.moveRefund, [
        ...[orderId, n, from, to, facts.transferId ?? null, facts.cancelTransferId ?? null],
        facts.transaction ?? null,
      ]),
    /** By order, in order of their numbers. */
    async listRefunds(orderIds: readonly string[]): Promise<Map<string, StoredRefund[]>> {
      const rows = await query<RefundRow>(statements.listRefunds, [orderIds]);
      return Map.groupBy(rows.map(toStoredRefund), ({ orderId }) => orderId);
    },

    // Looks.

    ensureSlots: (processor: string, slots: number) =>
      run(statements.ensureSlots, [processor, slots]),
    /** As `takeWork` would find it, much cheaper while there is none. */
    async hasWork(processors: readonly string[], withUnposted: boolean): Promise<boolean> {
      const values = [processors, withUnposted];
      return (await first<{ has_work: boolean }>(statements.hasWork, values))?.has_work ?? false;
    },
    async takeWork(
      processors: readonly string[],
      options: { slots: number; leaseMs: number; withUnposted: boolean },
    ): Promise<Work[]> {
      const { slots, leaseMs, withUnposted } = options;
      const values = [processors, slots, leaseMs, withUnposted];
      return (await query<WorkRow>(statements.takeWork, values)).map(toWork);
    },
    /** Asks for a look. Undefined: the processor has made no such order. */
    async hookOrder(processor: string, externalId: string): Promise<string | undefined> {
      const values = [processor, externalId];
      return (await first<{ order_id: string }>(statements.hookOrder, values))?.order_id;
    },
    openPage: (orderId: string, openMs: number, paceMs: number) =>
      run(statements.openPage, [orderId, openMs, paceMs]),
    async readVersions(orderIds: readonly string[]): Promise<Map<string, bigint>> {
      const rows = await query<{ order_id: string; version: bigint }>(statements.readVersions, [
        orderIds,
      ]);
      return new Map(rows.map(({ order_id, version }) => [order_id, version]));
    },
    /** The order is locked. */
    cancelOrder: (orderId: string) => run(statements.cancelOrder, [orderId]),

    // The simulated processor.

    /** False: the deposit belongs to another order. */
    putSimulated: (orderId: string, payment: SimulatedPayment) =>
      didChange(statements.putSimulated, [
        ...[payment.depositId, orderId, payment.asset, payment.network, payment.decimals],
        ...[payment.atoms, payment.confirmations, payment.isLost, payment.firstSeenAt],
      ]),
    putSimulatedFault: (orderId: string, fault: Fault) =>
      run(statements.putSimulatedFault, [orderId, fault]),
    async listSimulatedFaults(orderId: string): Promise<Fault[]> {
      const rows = await query<{ fault: Fault }>(statements.listSimulatedFaults, [orderId]);
      return rows.map(({ fault }) => fault);
    },
    /** Ends the quote of an order, and with `watching` all of it. */
    endSimulated: (orderId: string, watching: boolean) =>
      run(statements.endSimulated, [orderId, watching]),
    async listSimulated(orderId: string): Promise<SimulatedPayment[]> {
      const rows = await query<SimulatedRow>(statements.listSimulated, [orderId]);
      return rows.map((row) => ({
        depositId: row.deposit_id,
        asset: row.asset,
        network: row.network,
        decimals: row.decimals,
        atoms: BigInt(row.atoms),
        confirmations: row.confirmations,
        isLost: row.lost,
        firstSeenAt: row.first_seen_at,
      }));
    },
  };
}

export type OrderCount = {
  readonly open: number;
  readonly made: number;
  readonly firstAt: Date | undefined;
};

type CountRow = { open: number; made: number; first_at: Date | null };
type OrderRow = {
  order_id: string;
  account_id: string;
  family: FamilyName;
  idempotency_key: string;
  kind: "pack" | "direct";
  usd_micro: bigint;
  processor: string;
  method: string;
  asset: string;
  network: string;
  decimals: number;
  external_id: string | null;
  /** `numeric` arrives as text. */
  quoted_atoms: string | null;
  rate: bigint | null;
  pay_to: string;
  memo: string;
  checkout_url: string;
  state: OrderState;
  cancelled_at: Date | null;
  attention: AttentionName | null;
  faults: string[];
  handled: string[];
  rule_micro: bigint;
  refunded_usd_micro: bigint;
  receipt_number: string | null;
  created_by: string;
  created_at: Date;
  quoted_until: Date;
  watched_until: Date;
  next_look_at: Date | null;
  looked_at: Date | null;
  failed_looks: number;
  hook_at: Date | null;
  page_open_until: Date | null;
  version: bigint;
  read_at: Date;
  granted_micro: bigint;
  taken_back_micro: bigint;
};
type DepositRow = {
  order_id: string;
  external_id: string;
  asset: string;
  network: string;
  decimals: number;
  atoms: string;
  market_rate: bigint | null;
  usd_micro: bigint | null;
  valued_by: ValuedBy | null;
  processor_usd_micro: bigint | null;
  state: DepositState;
  returned: boolean;
  confirmations: number;
  confirmations_needed: number;
  first_seen_at: Date;
  settled_at: Date | null;
};
type UnpostedRow = { n: number; micro: bigint; account_id: string; family: FamilyName };
type WorkRow = {
  work: "look" | "post" | "bonus";
  order_id: string;
  processor: string;
  external_id: string;
  started_at: Date;
};
type DecisionRow = {
  decision_id: string;
  order_id: string;
  kind: "grant" | "close";
  facts: string[];
  deposit_ids: string[];
  micros: bigint[];
  reason: string;
  state: StoredDecision["state"];
  decided_by: string;
  approved_by: string | null;
  created_at: Date;
};
type RefundRow = {
  order_id: string;
  n: number;
  usd_micro: bigint;
  external_id: string | null;
  micro: bigint;
  bonus_micro: bigint;
  state: RefundState;
  transaction: string;
  reason: string;
  made_by: string;
  created_at: Date;
  ended_at: Date | null;
};
type SimulatedRow = {
  deposit_id: string;
  asset: string;
  network: string;
  decimals: number;
  atoms: string;
  confirmations: number;
  lost: boolean;
  first_seen_at: Date;
};

function only<T>(rows: readonly T[]): T {
  const [row] = rows;
  if (row === undefined) throw new Error("the statement returned no row");
  return row;
}

function toWork(row: WorkRow): Work {
  switch (row.work) {
    case "post":
      return { kind: "post", orderId: row.order_id };
    case "bonus":
      return { kind: "bonus", codeId: row.order_id, accountId: row.external_id };
    case "look":
      return {
        kind: "look",
        orderId: row.order_id,
        processor: row.processor,
        externalId: row.external_id,
        startedAt: row.started_at,
      };
  }
}

function toStoredOrder(row: OrderRow): StoredOrder {
  return {
    orderId: row.order_id,
    accountId: row.account_id,
    family: row.family,
    idempotencyKey: row.idempotency_key,
    kind: row.kind,
    usdMicro: row.usd_micro,
    processor: row.processor,
    method: row.method,
    asset: row.asset,
    network: row.network,
    decimals: row.decimals,
    externalId: row.external_id ?? undefined,
    quotedAtoms: row.quoted_atoms === null ? undefined : BigInt(row.quoted_atoms),
    rate: row.rate ?? undefined,
    payTo: row.pay_to,
    memo: row.memo,
    checkoutUrl: row.checkout_url,
    state: row.state,
    cancelledAt: row.cancelled_at ?? undefined,
    attention: row.attention ?? undefined,
    faults: row.faults,
    handled: row.handled,
    ruleMicro: row.rule_micro,
    refundedUsdMicro: row.refunded_usd_micro,
    receiptNumber: row.receipt_number ?? undefined,
    createdBy: row.created_by,
    createdAt: row.created_at,
    quotedUntil: row.quoted_until,
    watchedUntil: row.watched_until,
    nextLookAt: row.next_look_at ?? undefined,
    lookedAt: row.looked_at ?? undefined,
    failedLooks: row.failed_looks,
    hookAt: row.hook_at ?? undefined,
    pageOpenUntil: row.page_open_until ?? undefined,
    version: row.version,
    grantedMicro: row.granted_micro,
    takenBackMicro: row.taken_back_micro,
    readAt: row.read_at,
  };
}

function toStoredDeposit(row: DepositRow): StoredDeposit {
  return {
    orderId: row.order_id,
    externalId: row.external_id,
    asset: row.asset,
    network: row.network,
    decimals: row.decimals,
    atoms: BigInt(row.atoms),
    marketRate: row.market_rate ?? undefined,
    usdMicro: row.usd_micro ?? undefined,
    valuedBy: row.valued_by ?? undefined,
    processorUsdMicro: row.processor_usd_micro ?? undefined,
    state: row.state,
    isReturned: row.returned,
    confirmations: row.confirmations,
    confirmationsNeeded: row.confirmations_needed,
    firstSeenAt: row.first_seen_at,
    settledAt: row.settled_at ?? undefined,
  };
}

function toStoredDecision(row: DecisionRow): StoredDecision {
  return {
    decisionId: row.decision_id,
    orderId: row.order_id,
    kind: row.kind,
    facts: row.facts,
    granted: row.deposit_ids.map((depositId, index) => ({
      depositId,
      micro: BigInt(row.micros[index] ?? 0),
    })),
    reason: row.reason,
    state: row.state,
    decidedBy: row.decided_by,
    approvedBy: row.approved_by ?? undefined,
    createdAt: row.created_at,
  };
}

function toStoredRefund(row: RefundRow): StoredRefund {
  return {
    orderId: row.order_id,
    n: row.n,
    usdMicro: row.usd_micro,
    externalId: row.external_id ?? undefined,
    micro: row.micro,
    bonusMicro: row.bonus_micro,
    state: row.state,
    transaction: row.transaction,
    reason: row.reason,
    madeBy: row.made_by,
    createdAt: row.created_at,
    endedAt: row.ended_at ?? undefined,
  };
}

type AttentionRow = {
  order_id: string;
  account_id: string;
  decisions: number;
};
