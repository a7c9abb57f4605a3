// Delivers alerts by mail and webhook, at least once each. Every node takes what is due, a few at a
// time; what a node that dies has taken is due again after its lease.

import * as sql from "../../gen/sql/alerts.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import { MailError, type Mailer } from "../mail/mail.ts";
import { detailOf, titleOf } from "./kinds.ts";
import { type ListRecipients, type Recipient, recipientsOf } from "./raise.ts";
import type { AlertStore, DueDelivery } from "./store.ts";
import { type PostWebhook, WebhookError } from "./webhook.ts";

const mailsAtOnce = 5;
const webhooksAtOnce = 10;
const second = 1_000;
const minute = 60 * second;
/** Between the six attempts of a webhook. */
const webhookWaitsMs = [30 * second, 2 * minute, 10 * minute, 60 * minute, 4 * 60 * minute];
const mailWaitMsMax = 30 * minute;

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
  readonly log: Log;
  /** How long a delivery is left to a process that has taken it. */
  readonly leaseMs: number;
  /** How often it is looked for what other processes have raised or left. */
  readonly pollMs: number;
}): Deliverer {
  const { store, mailer, post, listRecipients, publicUrl, log, leaseMs, pollMs } = parts;
  const stopped = new AbortController();

  async function deliverMails(send: Mailer["send"]): Promise<boolean> {
    const due = await store.claimMails(mailsAtOnce, leaseMs);
    // Asked now: an owner who left gets nothing, and a new address is used.
    const recipients = await recipientsOf(due.flat(), listRecipients);
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
    const settleAll = async (...outcome: [state: Outcome, problem: string, waitMs: number]) => {
      await Promise.all(deliveries.map((one) => settle(one, ...outcome)));
    };
    const to = recipients
      .get(delivery.alertId)
      ?.find(({ personId }) => delivery.channel === `mail:${personId}`);
    if (!to) return settleAll("failed", "The person has no confirmed address, or left.", 0);
    try {
      const mail = mailOf(delivery, others.length, publicUrl());
      await send({ to: to.address, ...mail }, stopped.signal);
    } catch (error) {
      const { alertId, kind, failures } = delivery;
      const isPermanent = error instanceof MailError && error.isPermanent;
      const problem = error instanceof MailError ? error.message : "The mail could not be sent.";
      log.warn(
        { code: "alert_not_delivered", alert: alertId, kind, failures: failures + 1, problem },
        "an alert was not delivered by mail",
      );
      const waitMs = Math.min(mailWaitMsMax, minute * 2 ** Math.min(failures, 10));
      return settleAll(isPermanent ? "failed" : "waiting", problem, waitMs);
    }
    const told = `The mail about ${delivery.alertId} counted it.`;
    await Promise.all([
      settle(delivery, "sent", "", 0),
      ...others.map((one) => settle(one, "sent", told, 0)),
    ]);
  }

  async function deliverPosts(): Promise<boolean> {
    const due = await store.claimPosts(webhooksAtOnce, leaseMs);
    if (due.length === 0) return false;
    const settings = await store.readSettings(due.map(({ accountId }) => accountId));
    await Promise.all(
      due.map(async (delivery) => {
        const webhook = settings.get(delivery.accountId)?.webhook;
        if (!webhook) return settle(delivery, "failed", "There is no webhook any more.", 0);
        try {
          await post(webhook, { id: delivery.alertId, body: bodyOf(delivery) }, stopped.signal);
        } catch (error) {
          return postFailed(delivery, error);
        }
        return settle(delivery, "sent", "", 0);
      }),
    );
    return true;
  }

  /** Not logged: the receiver is a customer's, who sees the problem with the alert. */
  async function postFailed(delivery: DueDelivery, error: unknown): Promise<void> {
    const problem = error instanceof WebhookError ? error.message : "The post failed";
    const waitMs = webhookWaitsMs[delivery.failures];
    await settle(delivery, waitMs === undefined ? "failed" : "waiting", problem, waitMs ?? 0);
    // The others would fail as well, and keep those of other accounts waiting.
    await store
      .run(sql.postponeWebhooks, { accountId: delivery.accountId, waitMs: webhookWaitsMs[0] ?? 0 })
      .catch((err: unknown) => warnUnread(err));
  }

  /** Without a database the delivery stays taken, and is due again after the lease. */
  async function settle(
    delivery: DueDelivery,
    state: Outcome,
    problem: string,
    waitMs: number,
  ): Promise<void> {
    // An attempt that the shutdown cut off says nothing about the receiver.
    if (state !== "sent" && stopped.signal.aborted) return;
    const { alertId, channel } = delivery;
    await store
      .run(sql.settleDelivery, { alertId, channel, state, problem, waitMs })
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
  others: number,
  publicUrl: URL,
): { subject: string; text: string } {
  const title = titleOf(kind, facts);
  const detail = detailOf(kind, facts);
  const page = new URL(`/console/${accountId === "" ? "" : `${accountId}/`}`, publicUrl).href;
  const lines = [
    title,
    ...(detail === "" ? [] : [detail]),
    ...(others === 0 ? [] : [othersText(others)]),
    `At ${at.toISOString().slice(0, 16).replace("T", " ")} UTC.`,
    page,
    `Alert ${alertId}. It may arrive more than once.`,
  ];
  return {
    subject: `${title.replace(/\.$/, "")} (${publicUrl.host})`,
    text: `${lines.join("\n\n")}\n\n-- \nModel Gateway, ${publicUrl.origin}\n`,
  };
}

function othersText(others: number): string {
  return others === 1
    ? "There was another one of this kind, which is on the page."
    : `There were ${others} others of this kind, which are on the page.`;
}

/** What a webhook gets, as JSON. */
function bodyOf({
  alertId,
  accountId,
  kind,
  facts,
  at,
}: Omit<DueDelivery, "channel" | "failures">): string {
  const data = {
    alert_id: alertId,
    account_id: accountId,
    title: titleOf(kind, facts),
    facts,
  };
  return JSON.stringify({ type: `alert.${kind}`, timestamp: at.toISOString(), data });
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
