// The tables of payments: what is more than one statement, or more than its rows. Callers run all
// other statements by `run`.

import * as sql from "../../gen/sql/payments.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { chainTables, type InAtoms, withAtoms } from "./chain-tables.ts";
import type { NewEvent } from "./events.ts";

/**
 * An order, as of `readAt` of the database's clock. It has an `externalId`, `quotedAtoms` and a
 * `rate` in micro-dollars of one coin once its processor has opened it. `ruleMicro`: what the rules
 * granted, which is all but what persons decided. `grantedMicro` and `takenBackMicro`: all that was
 * granted, and what refunds took back of it. `events`: those that are stored, as `kind:subject`.
 */
export type StoredOrder = Readonly<sql.ReadOrdersRow>;

/**
 * What arrived for an order. `marketRate`: micro-dollars of one coin at its first sight, null if
 * unknown. Until it has settled, and while its value is unknown, it has no `usdMicro`.
 */
export type StoredDeposit = Readonly<InAtoms<sql.ListDepositsRow>>;

/** What a person decided about an order. */
export type StoredDecision = Omit<sql.FindDecisionRow, "facts" | "depositIds" | "micros"> & {
  /** Those that it deals with. */
  readonly facts: readonly string[];
  /** Micro-credits by deposit. An empty id: for no single deposit. */
  readonly granted: readonly sql.ListDecidedRow[];
};

/**
 * Money that goes back. `externalId`: the deposit that goes back whole, null for an amount. `micro`
 * and `bonusMicro`: the micro-credits that it takes back of those granted for the order, and of
 * promotions which needed the order.
 */
export type StoredRefund = Readonly<sql.ListRefundsRow>;
export type RefundState = StoredRefund["state"];

export type SimulatedPayment = Readonly<InAtoms<sql.ListSimulatedRow>>;

/** The functions of the store that run in one transaction, or each in its own. */
export type PaymentsTables = ReturnType<typeof tablesOn>;

export type PaymentsStore = PaymentsTables & {
  /** Runs `work` in one transaction, more than once after conflicts with others. */
  transaction<T>(work: (tables: PaymentsTables) => Promise<T>): Promise<T>;
  /** Call after the commit of an event that no `transaction` of this store has written. */
  noticed(): void;
};

/**
 * Less than our own timeout of a statement. A server that goes on with one after that keeps the
 * locks of a chain and its orders, and all that is read from the chain waits.
 */
const statementMsMax = 3_000;

/**
 * Every function throws `database_unavailable` while the database is unreachable. `noticed` is
 * called after each commit that has written events.
 */
export function createPaymentsStore(postgres: Postgres, noticed = () => {}): PaymentsStore {
  return {
    ...tablesOn(postgres),
    noticed,
    async transaction(work) {
      let hasEvents = false;
      const result = await postgres.transaction(
        (tx) => {
          hasEvents = false;
          const note = () => {
            hasEvents = true;
          };
          return work(tablesOn(tx, note));
        },
        { statementMsMax },
      );
      if (hasEvents) noticed();
      return result;
    },
  };
}

/** `noted` is called when an event was written. */
export function tablesOn(db: Runner, noted = () => {}) {
  return {
    ...chainTables(db),
    run: db.run,

    /** Stores events of an order that is locked: by one statement, and by none without events. */
    async insertEvents(orderId: string, events: readonly NewEvent[]): Promise<void> {
      if (events.length === 0) return;
      await db.run(sql.insertEvents, {
        orderId,
        kinds: events.map(({ kind }) => kind),
        subjects: events.map(({ subject }) => subject),
        facts: events.map(({ facts }) => JSON.stringify(facts)),
        depositIds: events.map(({ depositId }) => depositId),
      });
      noted();
    },

    /** The order, locked until the end of the transaction. */
    async lockOrder(orderId: string): Promise<StoredOrder | undefined> {
      await db.run(sql.lockOrder, { orderId });
      return findOrder(db, orderId);
    },
    findOrder: (orderId: string) => findOrder(db, orderId),
    /** Oldest first. */
    async listDeposits(orderIds: readonly string[]): Promise<StoredDeposit[]> {
      return (await db.run(sql.listDeposits, { orderIds })).map(withAtoms);
    },

    insertDecision: ({ granted, ...decision }: Omit<StoredDecision, "createdAt">) =>
      db.run(sql.insertDecision, {
        ...decision,
        depositIds: granted.map(({ depositId }) => depositId),
        micros: granted.map(({ micro }) => micro),
      }),
    async findDecision(decisionId: string): Promise<StoredDecision | undefined> {
      const row = await db.run(sql.findDecision, { decisionId });
      return row && toDecision(row);
    },
    /** False: the refund is in another state than `from`. The order is locked. */
    async moveRefund(
      { orderId, n }: Pick<StoredRefund, "orderId" | "n">,
      from: RefundState,
      to: RefundState,
      facts: { transferId?: string; cancelTransferId?: string; transaction?: string } = {},
    ): Promise<boolean> {
      const unchanged = { transferId: null, cancelTransferId: null, transaction: null };
      const refund = { orderId, n, from, to, ...unchanged, ...facts };
      return (await db.run(sql.moveRefund, refund)) !== undefined;
    },

    async listSimulated(orderId: string): Promise<SimulatedPayment[]> {
      return (await db.run(sql.listSimulated, { orderId })).map(withAtoms);
    },
  };
}

async function findOrder(db: Runner, orderId: string): Promise<StoredOrder | undefined> {
  const [order] = await db.run(sql.readOrders, { orderIds: [orderId] });
  return order;
}

/** The orders with some ids, in their order. */
export async function readOrders(db: Runner, orderIds: readonly string[]): Promise<StoredOrder[]> {
  const orders = await db.run(sql.readOrders, { orderIds });
  const byId = new Map(orders.map((order) => [order.orderId, order]));
  return orderIds.flatMap((orderId) => byId.get(orderId) ?? []);
}

function toDecision({ depositIds, micros, ...row }: sql.FindDecisionRow): StoredDecision {
  const granted = depositIds.map((depositId, at) => ({ depositId, micro: micros[at] ?? 0n }));
  return { ...row, granted };
}
