// The tables of alerts. The only file that runs this folder's statements and reads their rows.

import * as sql from "../../gen/sql/alerts.ts";
import type { TimeCursor } from "../base/paging.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import { type AlertFacts, isKindName, type KindName } from "./kinds.ts";
import type { WebhookSecrets } from "./secrets.ts";
import { type StoredSettings, storedRules } from "./settings.ts";

export type NewAlert = {
  /** `kind/account/what/period`. */
  readonly alertId: string;
  /** Empty: the operators'. */
  readonly accountId: string;
  readonly kind: KindName;
  readonly facts: AlertFacts;
};

export type NewDelivery = {
  readonly alertId: string;
  readonly channel: Channel;
  /** How long it is tried. */
  readonly triedMs: number;
};

/** `webhook`, or `mail:` and the id of a person. */
export type Channel = "webhook" | `mail:${string}`;

const secretsOfPage = 500;

/** An alert on the page. */
export type StoredAlert = NewAlert & { readonly at: Date; readonly dismissedAt: Date | undefined };

export type StoredDelivery = sql.ListDeliveriesRow;

/** A delivery that this process has to attempt. */
export type DueDelivery = NewAlert & {
  readonly channel: string;
  readonly at: Date;
  /** Attempts that failed before. */
  readonly failures: number;
};

/** Of one account. Alerts beyond are on its page. */
const mailsPerDayMax = 50;
/** Of these, those about payments. The last one counts the others. */
const paymentMailsPerDayMax = 20;

export type AlertStore = ReturnType<typeof createAlertStore>;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createAlertStore(postgres: Postgres, secrets: WebhookSecrets) {
  return {
    ...tablesOn(postgres, secrets),
    /** In the transaction of another folder. */
    on: (tx: Runner) => tablesOn(tx, secrets),
    /** Runs `work` in one transaction. Repeats it after a conflict. */
    transaction: <T>(work: (tables: ReturnType<typeof tablesOn>) => Promise<T>): Promise<T> =>
      postgres.transaction((tx) => work(tablesOn(tx, secrets))),
  };
}

function tablesOn(db: Runner, secrets: WebhookSecrets) {
  return {
    run: db.run,

    /** The ids of alerts that nobody has raised. */
    async findNew(alertIds: readonly string[]): Promise<ReadonlySet<string>> {
      const rows = await db.run(sql.findNew, { alertIds });
      return new Set(rows.map(({ alertId }) => alertId));
    },
    /** Returns the accounts of those that were new. The others stay as they are. */
    async insertAlerts(
      alerts: readonly (NewAlert & { readonly onPage: boolean })[],
      deliveries: readonly NewDelivery[],
    ): Promise<string[]> {
      const raised = await db.run(sql.insertAlerts, {
        alertIds: alerts.map(({ alertId }) => alertId),
        accountIds: alerts.map(({ accountId }) => accountId),
        kinds: alerts.map(({ kind }) => kind),
        facts: alerts.map(({ facts }) => JSON.stringify(facts)),
        onPage: alerts.map(({ onPage }) => onPage),
        deliveredIds: deliveries.map(({ alertId }) => alertId),
        channels: deliveries.map(({ channel }) => channel),
        triedMs: deliveries.map(({ triedMs }) => triedMs),
      });
      return [...new Set(raised.map(({ accountId }) => accountId))];
    },

    /** `hidesPeople`: leaves out who signed in from where. */
    async listAlerts(
      listed: ListedAlerts,
      after: TimeCursor | undefined,
      limit: number,
    ): Promise<StoredAlert[]> {
      const rows = await db.run(sql.listAlerts, {
        ...listed,
        before: after?.at ?? null,
        beforeId: after?.id ?? null,
        rows: limit,
      });
      return rows.flatMap((row) =>
        toAlerts(row).map((alert) => ({ ...alert, dismissedAt: row.dismissedAt ?? undefined })),
      );
    },

    /** By account. An account without settings is left out. */
    async readSettings(accountIds: readonly string[]) {
      const rows = await db.run(sql.readSettings, { accountIds });
      return new Map(rows.map((row) => [row.accountId, toSettings(row, secrets)] as const));
    },
    /** The settings, locked: an account that has none gets `first`, in this transaction. */
    async lockSettings(accountId: string, first: StoredSettings): Promise<StoredSettings> {
      const { belowDays, percents, rules } = first;
      await db.run(sql.ensureSettings, {
        accountId,
        belowDays: belowDays ?? null,
        percents,
        rules: JSON.stringify(rules),
      });
      return toSettings(await db.run(sql.lockSettings, { accountId }), secrets);
    },
    /** `keepsWebhook`: a webhook that fails or is off stays so. */
    async putSettings(
      accountId: string,
      settings: StoredSettings,
      keepsWebhook: boolean,
    ): Promise<void> {
      const { belowMicro, belowDays, percents, rules, webhook } = settings;
      await db.run(sql.putSettings, {
        accountId,
        belowCredits: belowMicro ?? null,
        belowDays: belowDays ?? null,
        percents,
        rules: JSON.stringify(rules),
        webhookUrl: webhook?.url ?? null,
        webhookSecret: webhook?.secret ? secrets.seal(webhook.secret, accountId) : null,
        webhookForm: webhook?.form ?? "standard",
        keepsWebhook,
      });
    },
    /** Seals each secret that is not sealed, or not with the first key. */
    async sealSecrets(): Promise<void> {
      for (let after = ""; ; ) {
        const rows = await db.run(sql.listSecrets, { after, rows: secretsOfPage });
        for (const { accountId, webhookSecret: stored } of rows) {
          const opened = secrets.open(stored, accountId);
          if (!opened || opened.isCurrent) continue;
          const sealed = secrets.seal(opened.secret, accountId);
          await db.run(sql.replaceSecret, { accountId, stored, sealed });
        }
        const last = rows.at(-1);
        if (!last) return;
        after = last.accountId;
      }
    },

    async claimPosts(limit: number, leaseMs: number): Promise<DueDelivery[]> {
      return (await db.run(sql.claimPosts, { rows: limit, leaseMs })).flatMap(toDue);
    },
    /** Those that one mail tells of, newest first. None is empty. */
    async claimMails(limit: number, leaseMs: number): Promise<DueDelivery[][]> {
      const rows = await db.run(sql.claimMails, {
        rows: limit,
        leaseMs,
        perDay: mailsPerDayMax,
        paymentsPerDay: paymentMailsPerDayMax,
      });
      // Of each account, what one mail tells.
      const byMail = Map.groupBy(rows.flatMap(toDue), ({ accountId }) => accountId);
      return [...byMail.values()];
    },
  };
}

function toDue(row: sql.ClaimMailsRow): DueDelivery[] {
  const { channel, failures } = row;
  return toAlerts(row).map((alert) => ({ ...alert, channel, failures }));
}

export type ListedAlerts = {
  readonly accountId: string;
  /** Without those that somebody has dismissed. */
  readonly unread: boolean;
  /** Without those that name people. */
  readonly hidesPeople: boolean;
};

type AlertRow = Pick<sql.ListAlertsRow, "alertId" | "accountId" | "kind" | "facts" | "raisedAt">;

/** The alert of a row. None: only a newer program knows its kind. */
export function toAlerts({ kind, facts, raisedAt: at, alertId, accountId }: AlertRow) {
  return isKindName(kind) ? [{ alertId, accountId, kind, facts: readFacts(facts), at }] : [];
}

function readFacts(json: Json): AlertFacts {
  const facts = Object.entries(Object(json)).map(([name, fact]) => [name, String(fact)] as const);
  return Object.fromEntries(facts);
}

function toSettings(row: sql.ReadSettingsRow, secrets: WebhookSecrets): StoredSettings {
  const { webhookUrl: url, webhookSecret: stored, webhookForm: form } = row;
  return {
    belowMicro: row.belowCredits ?? undefined,
    belowDays: row.belowDays ?? undefined,
    percents: row.percents,
    rules: storedRules(row.rules),
    webhook:
      url !== null && stored !== null
        ? {
            ...{ url, form },
            secret: secrets.open(stored, row.accountId)?.secret,
            failingSince: row.failingSince ?? undefined,
            offAt: row.webhookOffAt ?? undefined,
          }
        : undefined,
  };
}
