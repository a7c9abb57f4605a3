// The payments service of one or several nodes on a database of its own, behind the interceptor,
// with the real ledger.

import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { expect } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { type AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Order } from "../../gen/gateway/payments/v1/order_pb.ts";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { createBilling } from "../../src/billing/billing.ts";
import {
  boundMethod,
  type Caller,
  type Core,
  environmentToken,
  implement,
  localClient,
  type Person,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { applyLook, recordFailedLook } from "../../src/payments/crediting.ts";
import type { Parts } from "../../src/payments/parts.ts";
import { createPayments, type Offer } from "../../src/payments/payments.ts";
import { createSimulated } from "../../src/payments/simulated.ts";
import { createPaymentsStore } from "../../src/payments/store.ts";
import { createWatchers } from "../../src/payments/watchers.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { ManualClock, passUntil } from "./clock.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { countStatements } from "./keys.ts";
import { query } from "./query.ts";
import { movableNow } from "./sql-clock.ts";

export type PaymentsClient = Core["payments"];

export const admin: Caller = environmentToken;

/** A person with a role in an account, who has just confirmed who he is. */
export function memberOf(accountId: string, role: AccountRole): Person {
  return person({ memberships: [{ accountId, role }] });
}

export function operator(personId: string, role = OperatorRole.ADMIN): Person {
  return person({ personId, operator: role });
}

function person(of: Partial<Person>): Person {
  return {
    kind: "person",
    personId: "per_test",
    sessionId: "ses_test",
    memberships: [],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: new Date(Date.now() + 3_600_000),
    ...of,
  };
}

/** Of codes, which these tests do not redeem. */
const guesses = { check: async () => {}, count: async () => {} };

export type Time = {
  readonly clock: Clock;
  /** Lets time pass. Default: a second. */
  pass(ms?: number): Promise<void>;
  /** Lets time pass until `check` throws no more. Returns what it returns. */
  until<T>(check: () => T | Promise<T>): Promise<T>;
};

type MovableTime = Time & { readonly clock: ManualClock };

/**
 * Time that stands still in the nodes, except in `pass` and `until`. The database paces the looks
 * at processors by its own clock: what it has noted of earlier looks is moved into the past.
 */
export async function movableTime({ postgres }: FreshDatabase): Promise<MovableTime> {
  const clock = new ManualClock();
  const age = {
    name: "test/age-slots",
    text: "update payment_look_slots set used_at = used_at - $1 * interval '1 millisecond'",
  };
  const pass = async (ms = 1_000) => {
    await query(postgres, age, [ms]);
    await clock.advance(ms);
  };
  return { clock, pass, until: <T>(check: () => T | Promise<T>) => passUntil(pass, check) };
}

/** Time that passes by itself. */
export const realTime: Time = {
  clock: systemClock,
  pass: (ms = 50) => delay(ms),
  until: (check) => passUntil(realTime.pass, check),
};

/** As `movableTime`, and the database moves with the nodes. */
export async function movableTimeAndNow(database: FreshDatabase): Promise<MovableTime> {
  const clock = new ManualClock();
  const moveNow = await movableNow(database);
  let passedMs = 0;
  const pass = async (ms = 1_000) => {
    passedMs += ms;
    await moveNow(passedMs);
    await clock.advance(ms);
  };
  return { clock, pass, until: (check) => passUntil(pass, check) };
}

/** Nodes on a database with the accounts `acc_a` and `acc_b`. */
export async function startTestPayments<T extends Time>(
  timeOf: (database: FreshDatabase) => Promise<T>,
) {
  const database = await freshDatabase();
  const time = await timeOf(database);
  const postgres = connectPostgres(database.url);
  const log = createLog("silent");
  const authenticate = async () => admin;
  const billing = createBilling({ postgres, priceOf: () => undefined, log });
  await billing.start();
  for (const name of ["a", "b"]) await billing.ensureAccount(`acc_${name}`, `account ${name}`);
  const ledger = localClient(
    serviceTypes.billing,
    intercept(serviceTypes.billing, billing.service, { authenticate, log }),
  );
  const started: { stop(): Promise<void> }[] = [];
  const run = <Row>(text: string, values: readonly unknown[] = []) =>
    query<Row>(postgres, { name: "", text }, values);

  /** A node. `isStarted` false: it looks at nothing by itself. */
  const node = (
    options: { offer?: () => Offer; address?: string; isStarted?: boolean; on?: Postgres } = {},
  ) => {
    const counted = countStatements(options.on ?? postgres);
    const payments = createPayments({
      postgres: counted as Postgres,
      billing: ledger,
      publicUrl: () => new URL(options.address ?? "http://localhost:8080"),
      settings: undefined,
      env: {},
      guesses,
      offer: options.offer,
      clock: time.clock,
      log,
    });
    if (options.isStarted ?? true) {
      payments.start();
      started.push(payments);
    }
    const service = intercept(serviceTypes.payments, payments.service, { authenticate, log });
    const as = (caller: Caller) =>
      implement<PaymentsClient>(serviceTypes.payments, (desc) => {
        const { run: call } = boundMethod(service, desc);
        return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
          call(create(desc.input, request), {
            caller,
            signal: options?.signal ?? new AbortController().signal,
            requestHeader: new Headers(),
          });
      });
    return { ...payments, database: counted, as, admin: as(admin) };
  };

  const reader = node({ isStarted: false }).admin;
  /** What the functions of a node share, for tests that call them without its poller. */
  const store = createPaymentsStore(postgres);
  const simulated = createSimulated("simulated", store);
  const parts: Parts = {
    store,
    reports: postgres.reports,
    billing: ledger,
    log,
    watchers: createWatchers({ store, clock: time.clock, log }),
    processors: () => new Map([[simulated.name, simulated]]),
    chains: () => [],
    addresses: () => undefined,
    offer: () => ({
      packsUsdMicro: [],
      mostUsdMicro: 2_000_000_000n,
      secondApprovalAboveUsdMicro: undefined,
    }),
    seller: () => ({ id: "main", name: "", address: "", taxId: "" }),
    guesses,
    redeeming: new Map(),
    lookingUp: new Map(),
    changed: () => {},
    wake: () => {},
    clock: time.clock,
  };

  return {
    ...time,
    url: database.url,
    run,
    parts,
    /** Looks at an order, without a lease, and applies what it sees. */
    async look(orderId: string): Promise<void> {
      const startedAt = new Date();
      const look = await simulated.look(
        { orderId, externalId: orderId, named: [] },
        new AbortController().signal,
      );
      await applyLook(parts, simulated, orderId, { look, startedAt, hook: "" });
    },
    failLook: (orderId: string) => recordFailedLook(parts, orderId),
    ledger,
    node,
    /** The order, as soon as `isSo` is true of it. */
    orderWhen: (orderId: string, isSo: (order: Order) => boolean) =>
      time.until(() => orderThat(reader, orderId, isSo)),
    /** What the pool of family v1 has, in micro-credits. */
    async posted(accountId = "acc_a"): Promise<bigint> {
      const { pools } = await ledger.getPools({ accountId });
      return pools.find(({ family }) => family === Family.V1)?.postedMicrocredits ?? 0n;
    },
    /** The transfers of an account, oldest first. */
    async transfers(accountId = "acc_a") {
      return (await ledger.listTransfers({ accountId, pageSize: 1000 })).transfers.reverse();
    },
    /** Lets time pass for an order, by moving its times into the past. */
    async age(orderId: string, minutes: number): Promise<void> {
      await run(
        `update payment_orders
         set created_at = created_at - $2::integer * interval '1 minute',
           quoted_until = quoted_until - $2 * interval '1 minute',
           watched_until = watched_until - $2 * interval '1 minute',
           next_look_at = next_look_at - $2 * interval '1 minute',
           cancelled_at = cancelled_at - $2 * interval '1 minute'
         where order_id = $1`,
        [orderId, minutes],
      );
    },
    async stop() {
      for (const one of started) await one.stop();
      await billing.stop();
      await postgres.close();
      await database.drop();
    },
  };
}

export type TestPayments = Awaited<ReturnType<typeof startTestPayments<MovableTime>>>;
export type TestNode = ReturnType<TestPayments["node"]>;

let keys = 0;

/** Orders a pack of `acc_a` by the simulated processor. */
export async function order(
  client: PaymentsClient,
  of: { packMicrodollars?: bigint; coin?: string; accountId?: string } = {},
): Promise<Order> {
  const { order: made } = await client.createOrder({
    accountId: of.accountId ?? "acc_a",
    family: Family.V1,
    packMicrodollars: of.packMicrodollars ?? 5_000_000n,
    method: `simulated:${of.coin ?? "usdt"}`,
    idempotencyKey: `key_${++keys}`,
  });
  if (!made) throw new Error("the answer has no order");
  return made;
}

/** The order. Throws unless `isSo` is true of it. */
export async function orderThat(
  client: PaymentsClient,
  orderId: string,
  isSo: (order: Order) => boolean,
): Promise<Order> {
  const { order: found } = await client.getOrder({ orderId });
  expect(found !== undefined && isSo(found), `the order is ${inspect(found)}`).toBe(true);
  if (!found) throw new Error("the answer has no order");
  return found;
}
