// The payments service of one or several nodes on a database of its own, behind the interceptor,
// with real billing.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { expect } from "vitest";
import type { Transfer } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Order } from "../../gen/gateway/payments/v1/order_pb.ts";
import type { Clock } from "../../src/base/clock.ts";
import { timeOrderedId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { createBilling } from "../../src/billing/billing.ts";
import type { PaymentSettings } from "../../src/config/catalog.ts";
import {
  asService,
  boundMethod,
  type Caller,
  type Core,
  implement,
  localClient,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createPayments } from "../../src/payments/payments.ts";
import { codeGuesses } from "../../src/people/guessing.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { admin, movableTime, orderThat, realTime, type Time } from "./payments.ts";
import { query } from "./query.ts";

export { admin };

const log = createLog("silent");
const publicUrl = () => new URL("http://localhost:8080");

/** An owner, or another member, of one account. */
export function member(accountId: string, role: AccountRole = AccountRole.OWNER): Caller {
  return {
    kind: "person",
    personId: `per_${accountId}`,
    sessionId: "ses_test",
    memberships: [{ accountId, role }],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: undefined,
  };
}

export type PaymentsNode = ReturnType<typeof createNode>;

type NodeOptions = {
  settings?: PaymentSettings;
  env?: NodeJS.ProcessEnv;
  /** Between two readings of a chain. */
  chainPaceMs?: number;
};

/**
 * Nodes on one database. `pools`, `transfers` and `violations` read its ledger. `isReal`: time
 * passes by itself.
 */
export async function startPaymentsNodes({
  isReal = false,
  database: given,
  ...options
}: NodeOptions & { isReal?: boolean; database?: FreshDatabase | undefined } = {}) {
  const database = given ?? (await freshDatabase());
  const time: Time = isReal ? realTime : await movableTime(database);
  const opened: Postgres[] = [];
  const nodes: PaymentsNode[] = [];
  const run = <Row>(text: string, values: unknown[] = []) =>
    query<Row>(database.postgres, { name: "", text }, values);
  const node = () => {
    const postgres = connectPostgres(database.url);
    opened.push(postgres);
    const made = createNode(postgres, { ...options, clock: time.clock });
    nodes.push(made);
    return made;
  };
  const first = node();
  first.payments.start();
  return {
    ...first,
    ...time,
    node,
    run,
    url: database.url,
    async newAccount(name = "an account"): Promise<string> {
      const accountId = timeOrderedId("acc_");
      await first.ensureAccount(accountId, name);
      return accountId;
    },
    async posted(accountId: string): Promise<[v1: bigint, v2: bigint]> {
      const { pools } = await first.billing.getPools({ accountId }, first.internal);
      const of = (family: Family) =>
        pools.find((one) => one.family === family)?.postedMicrocredits ?? 0n;
      return [of(Family.V1), of(Family.V2)];
    },
    /** Oldest first. */
    async transfers(accountId: string): Promise<Transfer[]> {
      const { transfers } = await first.billing.listTransfers({ accountId }, first.internal);
      return transfers.reverse();
    },
    /** Has new nodes complete what others left undone. Returns when nothing is left. */
    async sweepBy(count: number): Promise<void> {
      for (let started = 0; started < count; started++) node().payments.start();
      await time.until(async () => {
        const left = await run(
          "select from promotion_uses where transfer_id is null union all " +
            "select from payment_grants where transfer_id is null",
        );
        expect(left).toEqual([]);
      });
    },
    /** An order of the v1 pool that was paid in full. Returns its id. */
    async paidOrder(
      accountId: string,
      packMicrodollars = 5_000_000n,
      processor = "simulated",
    ): Promise<string> {
      const { order } = await first.as(admin).createOrder({
        accountId,
        family: Family.V1,
        packMicrodollars,
        method: `${processor}:usdc`,
        idempotencyKey: timeOrderedId("key_"),
      });
      const { orderId = "", quotedCoins: quotedAmount = "" } = order ?? {};
      await first.as(admin).simulateDeposit({
        orderId,
        event: { case: "deposit", value: { coins: quotedAmount, confirmations: 1 } },
      });
      await time.until(async () => {
        const left = await run(
          "select from payment_grants where order_id = $1 and transfer_id is not null",
          [orderId],
        );
        expect(left).toHaveLength(1);
      });
      return orderId;
    },
    /**
     * The permanent address of the v1 pool, made by an order of two days ago: what comes from now
     * on has no order.
     */
    async addressByOrder(accountId: string, method: string): Promise<string> {
      const { order } = await first.as(admin).createOrder({
        accountId,
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method,
        idempotencyKey: timeOrderedId("key_"),
      });
      await run(
        `update payment_orders
         set created_at = created_at - interval '2 days',
           quoted_until = quoted_until - interval '2 days'
         where order_id = $1`,
        [order?.orderId],
      );
      return order?.payTo ?? "";
    },
    /** The order, as soon as `isSo` is true of it. */
    orderWhen: (orderId: string, isSo: (order: Order) => boolean) =>
      time.until(() => orderThat(first.as(admin), orderId, isSo)),
    async violations() {
      const { violations } = await first.billing.verifyLedger({}, first.internal);
      return violations.map(({ invariant, subject, detail }) => ({ invariant, subject, detail }));
    },
    async stop() {
      for (const one of nodes) await one.stop();
      for (const one of opened) await one.close();
      await database.drop();
    },
  };
}

export type PaymentsNodes = Awaited<ReturnType<typeof startPaymentsNodes>>;

function createNode(postgres: Postgres, options: NodeOptions & { clock: Clock }) {
  const { settings, env = {}, chainPaceMs = 100, clock } = options;
  const authenticate = async (): Promise<Caller> => ({ kind: "anyone" });
  const interceptor = { authenticate, log };
  const core = createBilling({ postgres, priceOf: () => undefined, log });
  const billing = localClient(
    serviceTypes.billing,
    intercept(serviceTypes.billing, core.service, interceptor),
  );
  const payments = createPayments({
    postgres,
    billing,
    publicUrl,
    settings,
    log,
    env,
    chainPaceMs,
    clock,
    guesses: codeGuesses("promotion code", "Too many wrong codes."),
  });
  const service = intercept(serviceTypes.payments, payments.service, interceptor);
  return {
    payments,
    billing,
    ensureAccount: core.ensureAccount,
    /** Options of a call to billing that sees every account. */
    internal: { contextValues: asService("reconcile") },
    /** Calls as this caller, from this address. */
    as: (caller: Caller, address = "192.0.2.1") =>
      implement<Core["payments"]>(serviceTypes.payments, (desc) => {
        const { run } = boundMethod(service, desc);
        return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
          run(create(desc.input, request), {
            signal: options?.signal ?? new AbortController().signal,
            requestHeader: new Headers(),
            caller,
            peer: address,
          });
      }),
    stop: () => payments.stop(),
  };
}
