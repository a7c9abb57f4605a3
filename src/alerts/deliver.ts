// Delivers alerts by mail and webhook, at least once each. Every node takes what is due, a few at a
// time; what a node that dies has taken is due again after its lease.

import type { Document } from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import { MailError, type Mailer } from "../mail/mail.ts";
import { detailOf, type KindName, titleOf } from "./kinds.ts";
import { documentText } from "./payment-texts.ts";
import { type ListRecipients, type Recipient, recipientsOf } from "./raise.ts";
import { failingDaysMax } from "./settings.ts";
import type { AlertStore, DueDelivery } from "./store.ts";
import { type Form, type PostWebhook, type Webhook, WebhookError } from "./webhook.ts";

const mailsAtOnce = 5;
const webhooksAtOnce = 10;
const second = 1_000;
const minute = 60 * second;
/** Between the six attempts of a webhook. */
const webhookWaitsMs = [30 * second, 2 * minute, 10 * minute, 60 * minute, 4 * 60 * minute];
const mailWaitMsMax = 30 * minute;
const switchedOff = "The webhook is switched off.";

type Outcome = "sent" | "waiting" | "failed";

export type Deliverer = {
  start(): void;
  /** Looks for what is due at once. */
  wake(): void;
  /** Resolves when no attempt runs any more. What was not delivered waits for another process. */
  stop(): Promise<void>;
};

export function createDeliverer(parts: {
  readonly store: AlertStore;
  /** Undefined: there is no mail server, and no mail waits. */
  readonly mailer: Mailer | undefined;
  readonly post: PostWebhook;
  readonly listRecipients: ListRecipients;
  readonly publicUrl: () => URL;
  /** The receipt and the credit notes of an order. */
  readonly documentsOf: (orderId: string) => Promise<readonly Document[]>;
  /** Called when a webhook was switched off. */
  readonly onSwitchedOff: () => void;
  readonly log: Log;
  /** How long a delivery is left to a process that has taken it. */
  readonly leaseMs: number;
  /** How often it is looked for what other processes have raised or left. */
  readonly pollMs: number;
}): Deliverer {
  const { store, mailer, post, listRecipients, publicUrl, log, leaseMs, pollMs } = parts;
  const { documentsOf, onSwitchedOff } = parts;
  const stopped = new AbortController();

  async function deliverMails(send: Mailer["send"]): Promise<boolean> {
    const due = await store.claimMails(mailsAtOnce, leaseMs);
    // Asked now: an owner who left gets nothing, and a new address is used.
    const recipients = await orGiveBack(due.flat(), () => recipientsOf(due.flat(), listRecipients));
    await Promise.all(
      due.map(async ([newest, ...others]) => {
        if (newest) await deliverMail([newest, ...others], recipients, send);
      }),
    );
    return due.length > 0;
  }

  /** One mail about several alerts of a kind, to one person: the newest, and how many others. */
  async function deliverMail(
    deliveries: readonly [DueDelivery, ...DueDelivery[]],
    recipients: ReadonlyMap<string, readonly Recipient[]>,
    send: Mailer["send"],
  ): Promise<void> {
    const [delivery, ...others] = deliveries;
    const settleAll = (...outcome: [state: Outcome, problem: string, waitMs: number]) =>
      settle(deliveries, ...outcome);
    const to = recipients
      .get(delivery.alertId)
      ?.find(({ personId }) => delivery.channel === `mail:${personId}`);
    if (!to) return settleAll("failed", "The person has no confirmed address, or left.", 0);
    try {
      const document = await documentFor(delivery);
      const mail = mailOf(delivery, { others: others.length, document, publicUrl: publicUrl() });
      await send({ to: to.address, ...mail }, stopped.signal);
    } catch (error) {
      const { alertId, kind, failures } = delivery;
      const isPermanent = error instanceof MailError && error.isPermanent;
      const problem = error instanceof MailError ? error.message : "The mail could not be sent.";
      log.warn(
        { code: "alert_not_delivered", alert: alertId, kind, failures: failures + 1, problem },
        "an alert was not delivered by mail",
      );
      // A read of ours that failed is no reason to leave the mail server alone.
      const firstMs = error instanceof MailError ? minute : second;
      const waitMs = Math.min(mailWaitMsMax, firstMs * 2 ** Math.min(failures, 10));
      return settleAll(isPermanent ? "failed" : "waiting", problem, waitMs);
    }
    const counted = `The mail about ${delivery.alertId} counted it.`;
    await Promise.all([settle([delivery], "sent", "", 0), settle(others, "sent", counted, 0)]);
  }

  /** Reads what deliveries need. If that fails, they do not wait for the lease to end. */
  async function orGiveBack<T>(taken: readonly DueDelivery[], read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      await store
        .run(sql.giveBackDeliveries, {
          alertIds: taken.map(({ alertId }) => alertId),
          channels: taken.map(({ channel }) => channel),
        })
        .catch((err: unknown) => warnUnread(err));
      throw error;
    }
  }

  /** What a mail holds besides: the receipt of what was bought, the credit note of what went. */
  async function documentFor({ facts }: DueDelivery): Promise<Document | undefined> {
    const { order_id: orderId, document: number } = facts;
    if (orderId === undefined || number === undefined) return undefined;
    return (await documentsOf(orderId)).find((one) => one.number === number);
  }

  async function deliverPosts(): Promise<boolean> {
    const due = await store.claimPosts(webhooksAtOnce, leaseMs);
    if (due.length === 0) return false;
    const settings = await orGiveBack(due, () =>
      store.readSettings(due.map(({ accountId }) => accountId)),
    );
    await Promise.all(
      due.map(async (delivery) => {
        const webhook = settings.get(delivery.accountId)?.webhook;
        if (!webhook) return settle([delivery], "failed", "There is no webhook any more.", 0);
        if (webhook.offAt) return settle([delivery], "failed", switchedOff, 0);
        try {
          const body = bodyOf(delivery, webhook.form);
          await post(webhook, { id: delivery.alertId, body }, stopped.signal);
        } catch (error) {
          return postFailed(delivery, webhook, error);
        }
        await settle([delivery], "sent", "", 0);
        const { accountId } = delivery;
        // Whatever was read before the post: another one may have failed meanwhile.
        await store
          .run(sql.notePostTaken, { accountId, webhookUrl: webhook.url })
          .catch((err: unknown) => warnUnread(err));
      }),
    );
    return true;
  }

  /** Not logged: the receiver is a customer's, who sees the problem with the alert. */
  async function postFailed(
    delivery: DueDelivery,
    { url: webhookUrl }: Webhook,
    error: unknown,
  ): Promise<void> {
    // An attempt that the shutdown cut off says nothing about the receiver.
    if (stopped.signal.aborted) return;
    const { message: problem, isGone } =
      error instanceof WebhookError ? error : { message: "The post failed", isGone: false };
    const waitMs = isGone ? undefined : webhookWaitsMs[delivery.failures];
    const { accountId } = delivery;
    let isOff = false;
    try {
      const noted = { accountId, webhookUrl, isGone, days: failingDaysMax };
      isOff = (await store.run(sql.notePostFailed, noted))?.isOff ?? false;
      // The others would fail as well, and keep those of other accounts waiting.
      if (!isOff)
        await store.run(sql.postponeWebhooks, { accountId, waitMs: webhookWaitsMs[0] ?? 0 });
    } catch (err) {
      warnUnread(err);
    }
    // After them: the wait of this one is its own.
    await settle([delivery], waitMs === undefined ? "failed" : "waiting", problem, waitMs ?? 0);
    if (!isOff) return;
    await store
      .run(sql.failPosts, { accountId, problem: switchedOff })
      .catch((err: unknown) => warnUnread(err));
    onSwitchedOff();
  }

  /**
   * Of deliveries that shared an attempt. Without a database they stay taken, and are due again
   * after the lease.
   */
  async function settle(
    deliveries: readonly DueDelivery[],
    state: Outcome,
    problem: string,
    waitMs: number,
  ): Promise<void> {
    const [first] = deliveries;
    if (!first || (state !== "sent" && stopped.signal.aborted)) return;
    const { channel } = first;
    const alertIds = deliveries.map(({ alertId }) => alertId);
    await store
      .run(sql.settleDeliveries, { alertIds, channel, state, problem, waitMs })
      .catch((err: unknown) => warnUnread(err));
  }

  const unread = { code: "alerts_unread", failed: "alerts could not be delivered" } as const;
  function warnUnread(err: unknown): void {
    log.warn({ code: unread.code, err }, unread.failed);
  }

  const lane = (run: () => Promise<boolean>) =>
    new Task({ run, everyMs: pollMs, report: warnOnce(log, unread) });
  const lanes = [lane(deliverPosts), ...(mailer ? [lane(() => deliverMails(mailer.send))] : [])];
  return {
    start() {
      for (const one of lanes) one.start();
    },
    wake() {
      for (const one of lanes) one.wake();
    },
    async stop() {
      stopped.abort();
      await Promise.all(lanes.map((one) => one.stop()));
    },
  };
}

function mailOf(
  { alertId, accountId, kind, facts, at }: DueDelivery,
  also: { others: number; document: Document | undefined; publicUrl: URL },
): { subject: string; text: string } {
  const { others, document, publicUrl } = also;
  const title = titleOf(kind, facts);
  const detail = detailOf(kind, facts);
  const lines = [
    title,
    ...(detail === "" ? [] : [detail]),
    ...(others === 0 ? [] : [othersText(kind, others)]),
    ...(document ? [documentText(document)] : []),
    `At ${at.toISOString().slice(0, 16).replace("T", " ")} UTC.`,
    new URL(pathOf(accountId, facts), publicUrl).href,
    `Alert ${alertId}. It may arrive more than once.`,
  ];
  return {
    subject: `${title.replace(/\.$/, "")} (${publicUrl.host})`,
    text: `${lines.join("\n\n")}\n\n-- \nModel Gateway, ${publicUrl.origin}\n`,
  };
}

/** The page of what an alert is about. */
function pathOf(accountId: string, { order_id: orderId }: DueDelivery["facts"]): string {
  if (accountId === "") return "/console/";
  const path = orderId === undefined ? "" : `credits/orders/${encodeURIComponent(orderId)}`;
  return `/console/${accountId}/${path}`;
}

function othersText(kind: KindName, others: number): string {
  if (kind.startsWith("payment_"))
    return `And ${others.toLocaleString("en-US")} more about payments, on the page.`;
  return others === 1
    ? "There was another one of this kind, which is on the page."
    : `There were ${others} others of this kind, which are on the page.`;
}

type Posted = Omit<DueDelivery, "channel" | "failures">;

/** What a webhook gets, as JSON. */
function bodyOf({ alertId, accountId, kind, facts, at }: Posted, form: Form): string {
  const title = titleOf(kind, facts);
  if (form === "slack") return JSON.stringify({ text: escaped(title) });
  const data = { alert_id: alertId, account_id: accountId, title, facts };
  return JSON.stringify({ type: `alert.${kind}`, timestamp: at.toISOString(), data });
}

/** Without what Slack takes for a link or a mention, and what Discord takes for one. */
function escaped(text: string): string {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b" };
  return text.replace(/[&<>@]/g, (sign) => Object(entities)[sign]);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * an alert did not reach its receiver by mail, and is tried again; look at SMTP_URL and the
     * mail server
     */
    alert_not_delivered: true;
    /**
     * alerts could not be found or delivered at this moment, and are looked for again; look at the
     * database if it continues
     */
    alerts_unread: true;
  }
}
