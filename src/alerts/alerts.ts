// Alerts: what customers should know before it hurts, and what operators have to repair. Found
// by one node (`evaluate.ts`), stored once (`raise.ts`), delivered at least once (`deliver.ts`).

import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Alert,
  AlertSchema,
  AlertsService,
  type Delivery,
  DeliverySchema,
  DeliveryState,
  DismissAlertResponseSchema,
  ListAlertsResponseSchema,
  type ListDeliveriesRequest,
  ListDeliveriesResponseSchema,
  type ListedDelivery,
  ListedDeliverySchema,
  type NewestAlerts,
  NewestAlertsSchema,
  ResendDeliveryResponseSchema,
  TestWebhookResponseSchema,
  type UpdateAlertSettingsRequest,
  UpdateAlertSettingsResponseSchema,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { toPayer } from "../base/budgets.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  encodeTimeCursor,
  parseTimeCursor,
  readPage,
  type TimeCursor,
  walkPages,
} from "../base/paging.ts";
import { Task, warnOnce } from "../base/task.ts";
import { type AlertsConfig, readProxy } from "../config/catalog.ts";
import { roleIn } from "../contract/callers.ts";
import type { AuthenticatedCall, Implementation } from "../contract/contract.ts";
import { readMask } from "../contract/update-mask.ts";
import type { Mailer } from "../mail/mail.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { createDeliverer } from "./deliver.ts";
import { type BillingFigures, createEvaluation, type Sources } from "./evaluate.ts";
import { kindOf, titleOf } from "./kinds.ts";
import { type ListRecipients, mailTriedMs, recipientsOf, webhookTriedMs } from "./raise.ts";
import { secretBytes, WebhookSecrets } from "./secrets.ts";
import {
  defaultSettings,
  type KeptWebhook,
  maskRule,
  readSettings,
  type StoredSettings,
  toMessage,
  withChanges,
} from "./settings.ts";
import {
  type AlertStore,
  createAlertStore,
  type StoredAlert,
  type StoredDelivery,
  toAlerts,
} from "./store.ts";
import { createAlertWatch, newestMax, unreadMax } from "./watch.ts";
import {
  createPostWebhook,
  type Form,
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
  readonly forDesk: ForDesk;
  /**
   * The channels that take an alert of the installation off the page to somebody: `mail`, if an
   * operator admin has a confirmed address, and `webhook`.
   */
  operatorChannels(): Promise<readonly string[]>;
  /** Takes the hosts and the proxy of webhooks from another file. Throws without that proxy. */
  reload(config: AlertsConfig): void;
  /** Begins to look for alerts, and to deliver them. */
  start(): void;
  stop(): Promise<void>;
  /** Looks now, if it is due. Returns whether this process looked at all accounts. */
  look(): Promise<boolean>;
};

/**
 * What operators see of mails, and send again. A mail that is sent again is written in a
 * transaction, and something is done after the commit; it throws `wrong_state` if nobody would get
 * it.
 */
type ForDesk = {
  /** The newest mails of an account, after a cursor of one of them. */
  listMails(
    accountId: string,
    after: string | undefined,
    rows: number,
  ): Promise<readonly AlertMail[]>;
  /** The mail of an alert, to those who get it. Throws `not_found`. */
  resendNotice(of: { readonly accountId: string; readonly alertId: string }): Promise<Resending>;
  /** A receipt or credit note, to the owners, or to the member who ordered. */
  resendDocument(of: ResentDocument): Promise<Resending>;
};

type AlertMail = {
  readonly at: Date;
  readonly cursor: string;
  /** Undefined: it is about an alert of a kind that is not known here. */
  readonly delivery: ListedDelivery | undefined;
  /** The address of its person by now, if he has one. */
  readonly address?: string;
};

type ResentDocument = {
  /** Distinguishes this time from others. */
  readonly id: string;
  readonly accountId: string;
  readonly orderId: string;
  readonly number: string;
  /** Undefined: the owners. */
  readonly personId: string | undefined;
};

type Resending = {
  write(tx: Runner): Promise<void>;
  written(): void;
};

/**
 * Between two looks; how long a process that looks or delivers is waited for; and between two looks
 * for deliveries.
 */
type Times = { readonly everyMs: number; readonly leaseMs: number; readonly pollMs: number };
const usualTimes: Times = { everyMs: 30_000, leaseMs: 120_000, pollMs: 5_000 };

export function createAlerts(parts: {
  postgres: Postgres;
  sources: Omit<Sources, "billing"> & { billing: BillingFigures & AccountState };
  listRecipients: ListRecipients;
  /** Undefined: nothing is mailed. */
  mailer: Mailer | undefined;
  publicUrl: () => URL;
  config: AlertsConfig;
  /** Seal the signing secrets of webhooks: the first one seals, all of them open. */
  contentKeys: readonly Uint8Array[];
  /** Holds the URL of the proxy of webhooks. */
  env?: NodeJS.ProcessEnv;
  log: Log;
  times?: Partial<Times>;
  /** Default: posts to public addresses, and to the hosts of `config`. */
  post?: PostWebhook;
}): Alerts {
  const { sources, listRecipients, mailer, publicUrl, log } = parts;
  const { everyMs, leaseMs, pollMs } = { ...usualTimes, ...parts.times };
  const store = createAlertStore(parts.postgres, new WebhookSecrets(parts.contentKeys));
  const watch = createAlertWatch({
    store,
    read: ({ accountId, hidesPeople }) => readNewest(store, accountId, hidesPeople),
    log,
  });
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
    documentsOf: sources.payments.documentsOf,
    onSwitchedOff: () => evaluation.wake(),
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
    onRaised(accountIds) {
      deliverer.wake();
      for (const accountId of accountIds) watch.changed(accountId);
    },
  });
  sources.payments.onEvents(() => evaluation.wake());
  const sealing = new Task({
    run: () => store.sealSecrets(),
    everyMs: sealEveryMs,
    report: warnOnce(log, { code: "secrets_unsealed", failed: "signing secrets are not sealed" }),
  });
  const all: ServiceParts = { store, post, statusOf: sources.billing, mails: mailer !== undefined };
  const tested = createWaits("This webhook was tested a moment ago.");
  const sentAgain = createWaits("An alert was sent again a moment ago.");
  return {
    service: {
      updateAlertSettings: (request, call) => setAlerts(all, request, call),
      async listAlerts(request, call) {
        const accountId = await knownAccount(all, call);
        const { unread } = request;
        const isTrusted = seesPeople(call);
        const listed = { accountId, unread, hidesPeople: !isTrusted };
        const { listAlerts } = AlertsService.method;
        const { entries, nextPageToken } = await readPage(listAlerts, request, call, {
          read: (after, limit) => store.listAlerts(listed, cursorOf(after), limit),
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
          ...troubleOf(settings?.webhook),
          mails: all.mails,
        });
      },
      async dismissAlert({ alertId }, call) {
        const { accountId } = call;
        const dismissed = { alertId, accountId, hidesPeople: !seesPeople(call) };
        const { isListed, isChanged } = await store.run(sql.dismissAlert, dismissed);
        if (!isListed) throw noSuchAlert();
        if (isChanged) watch.changed(accountId);
        return create(DismissAlertResponseSchema);
      },
      async *watchAlerts(_, call) {
        const accountId = await knownAccount(all, call);
        yield* watch.watch({ accountId, hidesPeople: !seesPeople(call) }, call.signal);
      },
      listDeliveries: (request, call) => listDeliveries(all, request, call),
      async resendDelivery({ alertId }, call) {
        const accountId = await knownAccount(all, call);
        const { webhook } = await settingsOf(store, accountId);
        if (!webhook) throw new ApiError("wrong_state", { message: "There is no webhook." });
        if (webhook.offAt)
          throw new ApiError("wrong_state", {
            message: "The webhook is switched off. Save its settings to switch it on.",
          });
        sentAgain.begin(accountId);
        const again = { alertId, accountId, leaseMs, triedMs: webhookTriedMs };
        if ((await store.run(sql.postAgain, again)) === 0) {
          sentAgain.cancel(accountId);
          throw noSuchAlert();
        }
        deliverer.wake();
        return create(ResendDeliveryResponseSchema);
      },
      async testWebhook(_, call) {
        const accountId = await knownAccount(all, call);
        const { webhook } = await settingsOf(store, accountId);
        if (!webhook) throw new ApiError("wrong_state", { message: "There is no webhook." });
        tested.begin(accountId);
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
    forDesk: createForDesk({
      ...{ store, listRecipients, mails: mailer !== undefined },
      wake: deliverer.wake,
    }),
    reload(next) {
      proxy = proxyOf(next);
      config = next;
    },
    start() {
      sealing.start();
      evaluation.start();
      deliverer.start();
    },
    async stop() {
      await sealing.stop();
      await watch.stop();
      await evaluation.stop();
      await deliverer.stop();
    },
    look: evaluation.look,
    async operatorChannels() {
      const { rules, webhook } = await settingsOf(store, "");
      const has = (channel: "mail" | "webhook") =>
        Object.values(rules).some((rule) => rule[channel]);
      // A mail that goes to nobody is none.
      const isMailed =
        mailer !== undefined && has("mail") && (await listRecipients([""], [])).length > 0;
      return [
        ...(isMailed ? ["mail"] : []),
        ...(webhook && !webhook.offAt && has("webhook") ? ["webhook"] : []),
      ];
    },
  };
}

function cursorOf(after: string | undefined): TimeCursor | undefined {
  return after === undefined ? undefined : parseTimeCursor(after);
}

function cursorAt({ at, alertId }: StoredAlert): string {
  return encodeTimeCursor({ at, id: alertId });
}

type AccountState = { readStatus(accountId: string): Promise<string | undefined> };
type ServiceParts = {
  readonly store: AlertStore;
  readonly post: PostWebhook;
  readonly statusOf: AccountState;
  readonly mails: boolean;
};

const waitMsMin = 5_000;
const waitsMax = 10_000;
/** A key may be replaced while a process of before still seals with the other one. */
const sealEveryMs = 3_600_000;

/** Lets an account do something once in five seconds at this process. */
function createWaits(message: string) {
  const begun = new BoundedMap<string, number>(waitsMax);
  return {
    /** Throws `rate_limited`. */
    begin(accountId: string): void {
      const retryAfterMs = (begun.get(accountId) ?? 0) + waitMsMin - Date.now();
      if (retryAfterMs > 0) throw new ApiError("rate_limited", { message, retryAfterMs });
      begun.set(accountId, Date.now());
    },
    /** It came to nothing. */
    cancel: (accountId: string) => begun.delete(accountId),
  };
}

async function setAlerts(
  { store, statusOf }: ServiceParts,
  { settings: given, updateMask, rotateWebhookSecret: isRenewed }: UpdateAlertSettingsRequest,
  { accountId, note }: AuthenticatedCall,
) {
  const paths = isRenewed && !updateMask && !given ? [] : readMask(maskRule, given, updateMask);
  const isOfWebhook = isRenewed || paths.includes("webhook_url") || paths.includes("form");
  if (accountId !== "") {
    const status = await statusOf.readStatus(accountId);
    if (status === undefined) throw noSuchAccount();
    if (status === "closed") throw new ApiError("account_closed");
  }
  const { stored, isNew } = await store.transaction(async (tables) => {
    const before = await tables.lockSettings(accountId, defaultSettings(accountId));
    const asked = withChanges(toMessage(accountId, before), given, paths);
    const { webhookUrl, form, ...others } = readSettings(accountId, asked);
    const webhook = !isOfWebhook
      ? before.webhook
      : webhookUrl && nextWebhook(before.webhook, { url: webhookUrl, form, isRenewed });
    const next: StoredSettings = { ...others, webhook };
    await tables.putSettings(accountId, next, !isOfWebhook);
    // What is not signed needs no secret.
    const isSigned = webhook !== undefined && webhook.form === "standard";
    return { stored: next, isNew: isSigned && webhook.secret !== before.webhook?.secret };
  });
  note?.({
    settings: paths.join(" "),
    webhook: isNew ? "new secret" : stored.webhook ? "same secret" : "none",
  });
  return create(UpdateAlertSettingsResponseSchema, {
    settings: toMessage(accountId, stored),
    ...(isNew && stored.webhook?.secret && { webhookSecret: showSecret(stored.webhook.secret) }),
  });
}

/** Since when a webhook takes no posts, as lists show it. */
function troubleOf(webhook: KeptWebhook | undefined) {
  return {
    ...(webhook?.failingSince && { webhookFailingSince: timestampFromDate(webhook.failingSince) }),
    ...(webhook?.offAt && { webhookOffAt: timestampFromDate(webhook.offAt) }),
  };
}

/**
 * With another host, another secret: the receiver of before must not sign for the new one. And with
 * another form: nobody has seen that of an unsigned webhook.
 */
function nextWebhook(
  before: Webhook | undefined,
  { url, form, isRenewed }: { url: URL; form: Form; isRenewed: boolean },
): Webhook {
  const isSame = before && new URL(before.url).host === url.host && before.form === form;
  const secret = isSame && !isRenewed ? before.secret : undefined;
  return { url: url.href, form, secret: secret ?? randomBytes(secretBytes) };
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
  const title = "A test of this webhook.";
  const body = JSON.stringify(
    webhook.form === "slack"
      ? { text: title }
      : {
          type: "alert.test",
          timestamp: at.toISOString(),
          data: { alert_id: alertId, account_id: accountId, title, facts },
        },
  );
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

async function readNewest(
  store: AlertStore,
  accountId: string,
  hidesPeople: boolean,
): Promise<NewestAlerts> {
  const listed = { accountId, unread: false, hidesPeople };
  const alerts = await store.listAlerts(listed, undefined, newestMax);
  const counted = { accountId, hidesPeople, unreadMost: unreadMax };
  const { unread } = await store.run(sql.countUnread, counted);
  return create(NewestAlertsSchema, { alerts: alerts.map((one) => toAlert(one, [])), unread });
}

async function listDeliveries(
  parts: ServiceParts,
  request: ListDeliveriesRequest,
  call: AuthenticatedCall,
) {
  const { store } = parts;
  const accountId = await knownAccount(parts, call);
  const { failed } = request;
  const { listDeliveries } = AlertsService.method;
  const { entries, nextPageToken } = await readPage(listDeliveries, request, call, {
    read: (after, rows) =>
      store.run(sql.listAccountDeliveries, {
        ...{ accountId, failed, rows },
        ...beforeDelivery(after),
      }),
    cursorOf: (row) => deliveryCursor(row),
  });
  return create(ListDeliveriesResponseSchema, {
    deliveries: entries.flatMap((row) => toListed(row, accountId)),
    nextPageToken,
  });
}

type DeliveryPlace = Pick<sql.ListAccountDeliveriesRow, "madeAt" | "alertId" | "channel">;

function deliveryCursor({ madeAt: at, alertId, channel }: DeliveryPlace): string {
  return encodeTimeCursor({ at, id: [alertId, channel].map(encodeURIComponent).join("/") });
}

/** The place of a cursor, for statements that list from the newest delivery. */
function beforeDelivery(after: string | undefined) {
  const { at: before = null, id = "" } = cursorOf(after) ?? {};
  const [beforeId = "", beforeChannel = ""] = id.split("/").map(decodeURIComponent);
  return { before, beforeId, beforeChannel };
}

function toListed(row: sql.ListAccountDeliveriesRow, accountId: string): ListedDelivery[] {
  const { alertId, madeAt } = row;
  return toAlerts({ ...row, accountId, raisedAt: madeAt }).map(({ kind, facts }) =>
    create(ListedDeliverySchema, {
      ...{ alertId, delivery: toDelivery(row), createdAt: timestampFromDate(madeAt) },
      ...{ kind: kindOf(kind), title: titleOf(kind, facts) },
    }),
  );
}

function createForDesk(parts: {
  store: AlertStore;
  listRecipients: ListRecipients;
  mails: boolean;
  wake: () => void;
}): ForDesk {
  const { store, listRecipients, mails, wake: written } = parts;
  /** The channels by which an alert is mailed. */
  const channelsOf = (recipients: readonly { personId: string }[] = []) => {
    if (!mails) throw new ApiError("wrong_state", { message: "This gateway has no mail server." });
    if (recipients.length === 0)
      throw new ApiError("wrong_state", {
        message: "Nobody who would get it has a confirmed address.",
      });
    return recipients.map(({ personId }) => `mail:${personId}`);
  };
  return {
    async listMails(accountId, after, rows) {
      const page = { accountId, rows, ...beforeDelivery(after) };
      const found = (await store.run(sql.listAccountMails, page)).map((row) => ({
        at: row.madeAt,
        cursor: deliveryCursor(row),
        delivery: toListed(row, accountId)[0],
      }));
      const persons = found.flatMap(({ delivery }) => delivery?.delivery?.personId ?? []);
      const people =
        persons.length > 0 ? await listRecipients([accountId], [...new Set(persons)]) : [];
      const addresses = new Map(people.map(({ personId, address }) => [personId, address]));
      return found.map((one) => {
        const address = addresses.get(one.delivery?.delivery?.personId ?? "");
        return { ...one, ...(address !== undefined && { address }) };
      });
    },
    async resendNotice(named) {
      const row = await store.run(sql.findAlert, named);
      const [alert] = row ? toAlerts(row) : [];
      if (!alert) throw noSuchAlert();
      const { alertId } = alert;
      const channels = channelsOf((await recipientsOf([alert], listRecipients)).get(alertId));
      return {
        async write(tx) {
          await tx.run(sql.mailAgain, { alertId, channels, triedMs: mailTriedMs });
        },
        written,
      };
    },
    async resendDocument({ id, accountId, orderId, number, personId }) {
      const kind = "document_sent" as const;
      const alertId = `${kind}/${accountId}/${number}/${id}`;
      const facts = {
        ...{ order_id: orderId, document: number },
        ...(personId !== undefined && { person_id: personId }),
      };
      const alert = { alertId, accountId, kind, facts, onPage: false };
      const channels = channelsOf((await recipientsOf([alert], listRecipients)).get(alertId));
      return {
        async write(tx) {
          await store.on(tx).insertAlerts([alert], []);
          await tx.run(sql.mailAgain, { alertId, channels, triedMs: mailTriedMs });
        },
        written,
      };
    },
  };
}

function noSuchAlert(): ApiError {
  return new ApiError("not_found", { message: "No such alert.", field: "alert_id" });
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
    occurredAt: timestampFromDate(at),
    title: titleOf(kind, facts),
    facts,
    ...(dismissedAt && { dismissedAt: timestampFromDate(dismissedAt) }),
    deliveries: deliveries.map(toDelivery),
    orderId: facts.order_id ?? "",
    keyId: facts.key_id ?? "",
    ...(facts.payer && { payer: { payer: toPayer(facts.payer) } }),
  });
}

function toDelivery({
  channel,
  state,
  problem,
  failures,
  nextAt,
}: Omit<StoredDelivery, "alertId">): Delivery {
  return create(DeliverySchema, {
    ...(channel.startsWith("mail:") && { personId: channel.slice("mail:".length) }),
    state: states[state],
    ...{ problem, failures },
    attemptedAt: timestampFromDate(nextAt),
  });
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * signing secrets of webhooks stay as they are in the database for an hour more; look at the
     * database
     */
    secrets_unsealed: true;
  }
}
