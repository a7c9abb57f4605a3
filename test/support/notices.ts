// What buyers hear of their payments: the payments and the alerts of one or several nodes on one
// database, with a mail server and receivers of webhooks.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Client } from "@connectrpc/connect";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { createAlerts } from "../../src/alerts/alerts.ts";
import type { PostWebhook } from "../../src/alerts/webhook.ts";
import { createLog } from "../../src/base/log.ts";
import { publicAlerts } from "../../src/config/catalog.ts";
import { boundMethod, type Caller, implement } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createMailer, type Mailer } from "../../src/mail/mail.ts";
import { applyLook } from "../../src/payments/crediting.ts";
import type { Payments } from "../../src/payments/payments.ts";
import { createSimulated } from "../../src/payments/simulated.ts";
import { createPaymentsStore } from "../../src/payments/store.ts";
import { createPeople } from "../../src/people/people.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { contentKey } from "./content-key.ts";
import { countStatements } from "./keys.ts";
import { admin, movableTime, startTestPayments } from "./payments.ts";
import { startSmtpServer, type TestSmtpServer } from "./smtp.ts";

const log = createLog("silent");
const publicUrl = () => new URL("http://localhost:8080");

export type Post = { readonly url: string; readonly id: string; readonly body: string };

type NodeOptions = {
  /** Undefined: that of the stage. Null: there is none. */
  readonly mailer?: Mailer | null;
  readonly post?: PostWebhook;
  /** Wraps the database of this node. */
  readonly wrap?: (postgres: Postgres) => Postgres;
  readonly leaseMs?: number;
  readonly contentKeys?: readonly Uint8Array[];
  /** True: it looks at orders by itself. */
  readonly isStarted?: boolean;
};

export const mailerOf = (smtp: TestSmtpServer) =>
  createMailer({ url: new URL(smtp.url), from: "gw@localhost" });

/** Alerts that know of payments alone. */
export function alertsOn(
  postgres: Postgres,
  payments: Pick<Payments, "forAlerts" | "listWaiting">,
  options: {
    readonly mailer: Mailer | undefined;
    readonly post?: PostWebhook;
    readonly contentKeys?: readonly Uint8Array[] | undefined;
    readonly leaseMs?: number | undefined;
  },
) {
  const { mailer, post, contentKeys, leaseMs } = options;
  // Of people, alerts ask only who gets mail.
  const people = createPeople({ postgres, publicUrl, keys: noKeys, log });
  return createAlerts({
    ...{ postgres, publicUrl, log, mailer },
    ...(post && { post }),
    config: publicAlerts,
    contentKeys: contentKeys ?? [Buffer.from(contentKey, "base64")],
    listRecipients: people.forAlerts.listRecipients,
    times: { everyMs: 60_000, pollMs: 20, ...(leaseMs !== undefined && { leaseMs }) },
    sources: {
      billing: {
        listAccounts: async () => [],
        readDailySpend: async () => [],
        findLow: async () => [],
        findSpentLimits: async () => [],
        readStatus: async () => "active",
      },
      payments: payments.forAlerts,
      listKeyEvents: async () => [],
      listNewPlaces: async () => [],
      listLogins: async () => [],
      listWaitingOrders: payments.listWaiting,
      listUnreadChains: async () => [],
      listBypasses: async () => [],
      listMisplaced: () => [],
      modelConditions: () => [],
      ledgerProblem: () => undefined,
    },
  });
}

export type Notices = Awaited<ReturnType<typeof startNotices>>;
export type NoticesNode = ReturnType<Notices["node"]>;

export async function startNotices() {
  const stage = await startTestPayments(movableTime);
  const smtp = await startSmtpServer();
  const stack = new AsyncDisposableStack();
  const posts: Post[] = [];
  const keep: PostWebhook = async ({ url }, { id, body }) => void posts.push({ url, id, body });

  function node({
    mailer,
    post = keep,
    wrap = (one) => one,
    leaseMs,
    contentKeys,
    isStarted = false,
  }: NodeOptions = {}) {
    const counted = countStatements(connectPostgres(stage.url));
    stack.defer(() => counted.close());
    const postgres = wrap(counted);
    const payments = stage.node({ isStarted, on: postgres });
    const alerts = alertsOn(postgres, payments, {
      post,
      contentKeys,
      leaseMs,
      mailer: mailer === undefined ? mailerOf(smtp) : (mailer ?? undefined),
    });
    stack.defer(() => alerts.stop());
    const store = createPaymentsStore(postgres);
    const simulated = createSimulated("simulated", store);
    const parts = { ...stage.parts, store, processors: () => new Map([["simulated", simulated]]) };
    const authenticate = async () => admin;
    const service = intercept(AlertsService, alerts.service, { authenticate, log });
    return {
      alerts,
      payments,
      ran: counted.ran,
      /** Looks at an order, as a node that has leased it does. */
      async look(orderId: string): Promise<void> {
        const startedAt = new Date();
        const look = await simulated.look(
          { orderId, externalId: orderId, named: [] },
          new AbortController().signal,
        );
        await applyLook(parts, simulated, orderId, { look, startedAt, hook: "" });
      },
      /** Looks for alerts. */
      async notice(): Promise<void> {
        await stage.run("delete from leases where task = 'alerts'");
        await alerts.look();
      },
      as: (caller: Caller) =>
        implement<Client<typeof AlertsService>>(AlertsService, (desc) => {
          const { run } = boundMethod(service, desc);
          return (request: MessageInitShape<DescMessage>, call?: CallOptions) =>
            run(create(desc.input, request), {
              signal: call?.signal ?? new AbortController().signal,
              requestHeader: new Headers(),
              caller,
            });
        }),
    };
  }

  return {
    ...stage,
    smtp,
    posts,
    node,
    /** A member with a confirmed address. */
    async member(name: string, role = "owner", accountId = "acc_a"): Promise<string> {
      const personId = `per_${name}`;
      await stage.run(
        `insert into people (person_id, login, email, email_verified_at)
         values ($1, $2, $3, now())`,
        [personId, name, `${name}@example.com`],
      );
      await stage.run("insert into members (account_id, person_id, role) values ($1, $2, $3)", [
        ...[accountId, personId, role],
      ]);
      return personId;
    },
    /** What is stored of an order: the kinds of its events, in order. */
    async events(orderId: string): Promise<string[]> {
      const rows = await stage.run<{ kind: string }>(
        "select kind from payment_events where order_id = $1 order by n",
        [orderId],
      );
      return rows.map(({ kind }) => kind.replace("payment_", ""));
    },
    /** The kinds of all alerts about an order, sorted. */
    async told(orderId: string): Promise<string[]> {
      const rows = await stage.run<{ kind: string }>(
        `select kind from alerts
         where facts ->> 'order_id' = $1 and account_id <> '' order by kind`,
        [orderId],
      );
      return rows.map(({ kind }) => kind.replace("payment_", ""));
    },
    deliveries: (accountId = "acc_a") =>
      stage.run<{ alert_id: string; channel: string; state: string; problem: string }>(
        `select alert_id, channel, state, problem from alert_deliveries where account_id = $1
         order by alert_id, channel`,
        [accountId],
      ),
    async stop() {
      await stack.disposeAsync();
      await smtp.stop();
      await stage.stop();
    },
  };
}

const noKeys: Parameters<typeof createPeople>[0]["keys"] = new Proxy(Object.create(null), {
  get: () => () => Promise.reject(new Error("people ask for no keys here")),
});
