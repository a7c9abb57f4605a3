// Alerts: what customers should know before it hurts, and what operators have to repair. Found
// by one node (`evaluate.ts`), stored once (`raise.ts`), delivered at least once (`deliver.ts`).

import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Alert,
  AlertSchema,
  type AlertsService,
  DeliveryState,
  DismissAlertResponseSchema,
  ListAlertsResponseSchema,
  type SetAlertsRequest,
  SetAlertsResponseSchema,
  TestWebhookResponseSchema,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  encodeTimeCursor,
  parseTimeCursor,
  readPage,
  type TimeCursor,
  walkPages,
} from "../base/paging.ts";
import { type AlertsConfig, readProxy } from "../config/catalog.ts";
import { roleIn } from "../contract/callers.ts";
import type { AuthenticatedCall, Implementation } from "../contract/contract.ts";
import type { Mailer } from "../mail/mail.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { createDeliverer } from "./deliver.ts";
import { type BillingFigures, createEvaluation, type Sources } from "./evaluate.ts";
import { kindOf, titleOf } from "./kinds.ts";
import type { ListRecipients } from "./raise.ts";
import { defaultSettings, readSettings, type StoredSettings, toMessage } from "./settings.ts";
import {
  type AlertStore,
  createAlertStore,
  type StoredAlert,
  type StoredDelivery,
} from "./store.ts";
import {
  createPostWebhook,
  type PostWebhook,
  showSecret,
  type Webhook,
  WebhookError,
} from "./webhook.ts";

export { describedPosts } from "./webhook.ts";

export type Alerts = {
  /** Without authentication: the interceptor has authenticated the caller. */
  readonly service: Implementation<typeof AlertsService, AuthenticatedCall>;
  readonly ofAccount: {
    /** All alerts of an account on its page, newest first. */
    export(accountId: string): AsyncIterable<{ alerts: Alert[] }>;
  };
  /** Takes the hosts and the proxy of webhooks from another file. Throws without that proxy. */
  reload(config: AlertsConfig): void;
  /** Begins to look for alerts, and to deliver them. */
  start(): void;
  stop(): Promise<void>;
  /** Looks now, if it is due. Returns whether this process looked at all accounts. */
  look(): Promise<boolean>;
};

/**
 * Between two looks; how long a process that looks or delivers is waited for; and between two looks
 * for deliveries.
 */
type Times = { readonly everyMs: number; readonly leaseMs: number; readonly pollMs: number };
const usualTimes: Times = { everyMs: 30_000, leaseMs: 120_000, pollMs: 5_000 };

export function createAlerts(parts: {
  postgres: Postgres;
  sources: Omit<Sources, "billing"> & { billing: BillingFigures & AccountStatus };
  listRecipients: ListRecipients;
  /** Undefined: nothing is mailed. */
  mailer: Mailer | undefined;
  publicUrl: () => URL;
  config: AlertsConfig;
  /** Holds the URL of the proxy of webhooks. */
  env?: NodeJS.ProcessEnv;
  log: Log;
  times?: Partial<Times>;
  /** Default: posts to public addresses, and to the hosts of `config`. */
  post?: PostWebhook;
}): Alerts {
  const { sources, listRecipients, mailer, publicUrl, log } = parts;
  const { everyMs, leaseMs, pollMs } = { ...usualTimes, ...parts.times };
  const store = createAlertStore(parts.postgres);
  let { config } = parts;
  const proxyOf = ({ proxy }: AlertsConfig) => proxy && readProxy(proxy, parts.env ?? {});
  let proxy = proxyOf(config);
  const post =
    parts.post ?? createPostWebhook({ allowHosts: () => config.allowHosts, proxy: () => proxy });
  const deliverer = createDeliverer({
    store,
    mailer,
    post,
    listRecipients,
    publicUrl,
    log,
    leaseMs,
    pollMs,
  });
  const evaluation = createEvaluation({
    store,
    sources,
    listRecipients,
    log,
    everyMs,
    leaseMs,
    mails: mailer !== undefined,
    onRaised: deliverer.wake,
  });
  const all: ServiceParts = { store, post, statusOf: sources.billing, mails: mailer !== undefined };
  const tested = new BoundedMap<string, number>(testedMax);
  return {
    service: {
      setAlerts: (request, call) => setAlerts(all, request, call),
      async listAlerts(request, call) {
        const accountId = await knownAccount(all, call);
        const { unread } = request;
        const isTrusted = seesPeople(call);
        const { entries, nextPageToken } = await readPage(request, {
          question: [accountId, unread],
          read: (after, limit) =>
            store.listAlerts(
              { accountId, unread, hidesPeople: !isTrusted },
              cursorOf(after),
              limit,
            ),
          cursorOf: cursorAt,
        });
        const deliveries = isTrusted
          ? await store.run(sql.listDeliveries, { alertIds: entries.map(({ alertId }) => alertId) })
          : [];
        const byAlert = Map.groupBy(deliveries, ({ alertId }) => alertId);
        const settings = isTrusted ? await settingsOf(store, accountId) : undefined;
        return create(ListAlertsResponseSchema, {
          alerts: entries.map((one) => toAlert(one, byAlert.get(one.alertId) ?? [])),
          nextPageToken,
          ...(settings && { settings: toMessage(accountId, settings) }),
          mails: all.mails,
        });
      },
      async dismissAlert({ alertId }, call) {
        const { accountId } = call;
        const dismissed = { alertId, accountId, hidesPeople: !seesPeople(call) };
        if ((await store.run(sql.dismissAlert, dismissed)) === 0)
          throw new ApiError("not_found", { message: "No such alert.", field: "alert_id" });
        return create(DismissAlertResponseSchema);
      },
      async testWebhook(_, call) {
        const accountId = await knownAccount(all, call);
        const { webhook } = await settingsOf(store, accountId);
        if (!webhook) throw new ApiError("wrong_state", { message: "There is no webhook." });
        const waitMs = (tested.get(accountId) ?? 0) + testEveryMs - Date.now();
        if (waitMs > 0)
          throw new ApiError("rate_limited", {
            message: "This webhook was tested a moment ago.",
            retryAfterMs: waitMs,
          });
        tested.set(accountId, Date.now());
        return create(TestWebhookResponseSchema, {
          problem: await testPost(post, webhook, accountId, call.signal),
        });
      },
    },
    ofAccount: {
      async *export(accountId) {
        const listed = { accountId, unread: false, hidesPeople: false };
        const pages = walkPages({
          read: (after, limit) => store.listAlerts(listed, cursorOf(after), limit),
          cursorOf: cursorAt,
        });
        for await (const page of pages) yield { alerts: page.map((one) => toAlert(one, [])) };
      },
    },
    reload(next) {
      proxy = proxyOf(next);
      config = next;
    },
    start() {
      evaluation.start();
      deliverer.start();
    },
    async stop() {
      await evaluation.stop();
      await deliverer.stop();
    },
    look: evaluation.look,
  };
}

function cursorOf(after: string | undefined): TimeCursor | undefined {
  return after === undefined ? undefined : parseTimeCursor(after);
}

function cursorAt({ at, alertId }: StoredAlert): string {
  return encodeTimeCursor({ at, id: alertId });
}

type AccountStatus = { readStatus(accountId: string): Promise<string | undefined> };
type ServiceParts = {
  readonly store: AlertStore;
  readonly post: PostWebhook;
  readonly statusOf: AccountStatus;
  readonly mails: boolean;
};

const testEveryMs = 5_000;
const testedMax = 10_000;
const secretBytes = 32;

async function setAlerts(
  { store, statusOf }: ServiceParts,
  { settings, newWebhookSecret }: SetAlertsRequest,
  { accountId, note }: AuthenticatedCall,
) {
  if (!settings) throw invalidField("settings", "is required");
  const { webhookUrl, ...given } = readSettings(accountId, settings);
  if (accountId !== "") {
    const status = await statusOf.readStatus(accountId);
    if (status === undefined) throw noSuchAccount();
    if (status === "closed") throw new ApiError("account_closed");
  }
  const { stored, isNew } = await store.transaction(async (tables) => {
    const before = (await tables.lockSettings(accountId))?.webhook;
    const webhook = webhookUrl && nextWebhook(before, webhookUrl, newWebhookSecret);
    const next: StoredSettings = { ...given, webhook };
    await tables.putSettings(accountId, next);
    return { stored: next, isNew: webhook !== undefined && webhook.secret !== before?.secret };
  });
  note?.({ webhook: isNew ? "new secret" : stored.webhook ? "same secret" : "none" });
  return create(SetAlertsResponseSchema, {
    settings: toMessage(accountId, stored),
    ...(isNew && stored.webhook && { webhookSecret: showSecret(stored.webhook.secret) }),
  });
}

/** With another host, another secret: the receiver of before must not sign for the new one. */
function nextWebhook(before: Webhook | undefined, url: URL, isRenewed: boolean): Webhook {
  const isSameHost = before !== undefined && new URL(before.url).host === url.host;
  const secret = isSameHost && !isRenewed ? before.secret : randomBytes(secretBytes);
  return { url: url.href, secret };
}

/** Why the test was not delivered. Empty: it was. */
async function testPost(
  post: PostWebhook,
  webhook: Webhook,
  accountId: string,
  signal: AbortSignal,
): Promise<string> {
  const at = new Date();
  const alertId = `test/${accountId}/webhook/${at.toISOString()}`;
  const facts = { test: "true" };
  const body = JSON.stringify({
    type: "alert.test",
    timestamp: at.toISOString(),
    data: { alert_id: alertId, account_id: accountId, title: "A test of this webhook.", facts },
  });
  try {
    await post(webhook, { id: alertId, body }, signal);
    return "";
  } catch (error) {
    if (error instanceof WebhookError) return error.message;
    throw error;
  }
}

async function settingsOf(store: AlertStore, accountId: string): Promise<StoredSettings> {
  return (await store.readSettings([accountId])).get(accountId) ?? defaultSettings(accountId);
}

/** The account of the call, which an operator may have invented. Throws `not_found`. */
async function knownAccount(
  { statusOf }: ServiceParts,
  { accountId }: AuthenticatedCall,
): Promise<string> {
  if (accountId !== "" && (await statusOf.readStatus(accountId)) === undefined)
    throw noSuchAccount();
  return accountId;
}

function noSuchAccount(): ApiError {
  return new ApiError("not_found", { message: "No such account.", field: "account_id" });
}

/** True for owners and operators, who may know where members sign in. */
function seesPeople({ caller, accountId }: AuthenticatedCall): boolean {
  if (caller.kind !== "person") return true;
  return (
    caller.operator !== OperatorRole.UNSPECIFIED || roleIn(caller, accountId) >= AccountRole.OWNER
  );
}

const states: Readonly<Record<StoredDelivery["state"], DeliveryState>> = {
  waiting: DeliveryState.WAITING,
  sent: DeliveryState.SENT,
  failed: DeliveryState.FAILED,
};

function toAlert(
  { alertId, accountId, kind, facts, at, dismissedAt }: StoredAlert,
  deliveries: readonly StoredDelivery[],
): Alert {
  return create(AlertSchema, {
    alertId,
    accountId,
    kind: kindOf(kind),
    at: timestampFromDate(at),
    title: titleOf(kind, facts),
    facts,
    ...(dismissedAt && { dismissedAt: timestampFromDate(dismissedAt) }),
    deliveries: deliveries.map(({ channel, state, problem }) => ({
      ...(channel.startsWith("mail:") && { personId: channel.slice("mail:".length) }),
      state: states[state],
      problem,
    })),
  });
}
