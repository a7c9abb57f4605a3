// The tables of alerts. The only file that runs this folder's statements and reads their rows.

import { ApiError } from "../base/errors.ts";
import type { TimeCursor } from "../base/paging.ts";
import {
  isUnreachable,
  type Postgres,
  type Statement,
  statement,
  type Tx,
} from "../postgres/postgres.ts";
import type { AlertFacts, KindName } from "./kinds.ts";
import type { Channels, StoredSettings } from "./settings.ts";

// A database that does not answer within this time counts as unreachable.
const answerMsMax = 5_000;

const timed = (file: string): Statement => ({
  ...statement(import.meta.url, file),
  timeoutMs: answerMsMax,
});

const statements = {
  claimEvaluation: timed("claim-evaluation"),
  finishEvaluation: timed("finish-evaluation"),
  findNew: timed("find-new"),
  insertAlerts: timed("insert-alerts"),
  listAlerts: timed("list-alerts"),
  listDeliveries: timed("list-deliveries"),
  dismissAlert: timed("dismiss-alert"),
  readSettings: timed("read-settings"),
  lockSettings: timed("lock-settings"),
  putSettings: timed("put-settings"),
  claimDeliveries: timed("claim-deliveries"),
  settleDelivery: timed("settle-delivery"),
  postponeWebhooks: timed("postpone-webhooks"),
  removeAlerts: timed("remove-alerts"),
};

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

/** An alert on the page. */
export type StoredAlert = NewAlert & { readonly at: Date; readonly dismissedAt: Date | undefined };

export type StoredDelivery = {
  readonly alertId: string;
  readonly channel: string;
  readonly state: DeliveryStateName;
  readonly problem: string;
};
export type DeliveryStateName = "waiting" | "sent" | "failed";

/** A delivery that this process has to attempt. */
export type DueDelivery = NewAlert & {
  readonly channel: string;
  readonly at: Date;
  /** Attempts that failed before. */
  readonly failures: number;
};

export type AlertStore = ReturnType<typeof createAlertStore>;

/** Every function throws `billing_unavailable` while the database is unreachable. */
export function createAlertStore(postgres: Postgres) {
  return {
    ...tablesOn(postgres),
    /** Runs `work` in one transaction. Repeats it after a conflict. */
    transaction: <T>(work: (tables: ReturnType<typeof tablesOn>) => Promise<T>): Promise<T> =>
      postgres.transaction((tx) => work(tablesOn(tx))).catch((cause: unknown) => fail(cause)),
  };
}

function fail(cause: unknown): never {
  throw isUnreachable(cause)
    ? new ApiError("billing_unavailable", { retryAfterMs: 1000, cause })
    : cause;
}

function tablesOn(db: Tx) {
  const query = <Row>(one: Statement, values: readonly unknown[]): Promise<Row[]> =>
    db.query<Row>(one, values).catch((cause: unknown) => fail(cause));

  return {
    /** Undefined: it is not due, or another process is at it. */
    async claimEvaluation(everyMs: number, leaseMs: number) {
      const [row] = await query<{ events_at: Date; began_at: Date }>(statements.claimEvaluation, [
        everyMs,
        leaseMs,
      ]);
      return row && { eventsAt: row.events_at, beganAt: row.began_at };
    },
    /** `eventsAt` undefined: the events are to be read again. */
    async finishEvaluation(eventsAt: Date | undefined): Promise<void> {
      await query(statements.finishEvaluation, [eventsAt ?? null]);
    },

    /** The ids of alerts that nobody has raised. */
    async findNew(alertIds: readonly string[]): Promise<ReadonlySet<string>> {
      const rows = await query<{ alert_id: string }>(statements.findNew, [alertIds]);
      return new Set(rows.map(({ alert_id }) => alert_id));
    },
    /** Returns how many were new. The others stay as they are, with their deliveries. */
    async insertAlerts(
      alerts: readonly (NewAlert & { readonly onPage: boolean })[],
      deliveries: readonly NewDelivery[],
    ): Promise<number> {
      const rows = await query(statements.insertAlerts, [
        alerts.map(({ alertId }) => alertId),
        alerts.map(({ accountId }) => accountId),
        alerts.map(({ kind }) => kind),
        alerts.map(({ facts }) => JSON.stringify(facts)),
        alerts.map(({ onPage }) => onPage),
        deliveries.map(({ alertId }) => alertId),
        deliveries.map(({ channel }) => channel),
        deliveries.map(({ triedMs }) => triedMs),
      ]);
      return rows.length;
    },
    async removeAlerts(days: number, limit: number): Promise<void> {
      await query(statements.removeAlerts, [days, limit]);
    },

    /** `hidesPeople`: leaves out who signed in from where. */
    async listAlerts(
      { accountId, unread, hidesPeople }: ListedAlerts,
      after: TimeCursor | undefined,
      limit: number,
    ): Promise<StoredAlert[]> {
      const rows = await query<AlertRow & { dismissed_at: Date | null }>(statements.listAlerts, [
        ...[accountId, unread, hidesPeople],
        ...[after?.at ?? null, after?.id ?? null, limit],
      ]);
      return rows.map((row) => ({
        ...toAlert(row),
        dismissedAt: row.dismissed_at ?? undefined,
      }));
    },
    async listDeliveries(alertIds: readonly string[]): Promise<StoredDelivery[]> {
      const rows = await query<DeliveryRow>(statements.listDeliveries, [alertIds]);
      return rows.map(({ alert_id, ...row }) => ({ alertId: alert_id, ...row }));
    },
    /** False: the account has no such alert. */
    async dismissAlert(alertId: string, accountId: string, hidesPeople: boolean) {
      const rows = await query(statements.dismissAlert, [alertId, accountId, hidesPeople]);
      return rows.length > 0;
    },

    /** By account. An account without settings is left out. */
    async readSettings(accountIds: readonly string[]) {
      const rows = await query<SettingsRow>(statements.readSettings, [accountIds]);
      return new Map(rows.map((row) => [row.account_id, toSettings(row)] as const));
    },
    /** Locks the settings, if there are any. */
    async lockSettings(accountId: string): Promise<StoredSettings | undefined> {
      const [row] = await query<SettingsRow>(statements.lockSettings, [accountId]);
      return row && toSettings(row);
    },
    async putSettings(accountId: string, settings: StoredSettings): Promise<void> {
      const { belowMicro, belowDays, rules, webhook } = settings;
      await query(statements.putSettings, [
        ...[accountId, belowMicro ?? null, belowDays ?? null, JSON.stringify(rules)],
        ...[webhook?.url ?? null, webhook?.secret ?? null],
      ]);
    },

    async claimDeliveries(
      to: "webhook" | "mail",
      limit: number,
      leaseMs: number,
    ): Promise<DueDelivery[]> {
      const values = [to === "webhook", limit, leaseMs];
      const rows = await query<AlertRow & { channel: string; failures: number }>(
        statements.claimDeliveries,
        values,
      );
      return rows.map((row) => ({
        ...toAlert(row),
        channel: row.channel,
        failures: row.failures,
      }));
    },
    async settleDelivery(
      { alertId, channel }: Pick<DueDelivery, "alertId" | "channel">,
      state: DeliveryStateName,
      problem: string,
      waitMs: number,
    ): Promise<void> {
      await query(statements.settleDelivery, [alertId, channel, state, problem, waitMs]);
    },
    /** The other deliveries to the webhook of an account wait at least so long. */
    async postponeWebhooks(accountId: string, waitMs: number): Promise<void> {
      await query(statements.postponeWebhooks, [accountId, waitMs]);
    },
  };
}

export type ListedAlerts = {
  readonly accountId: string;
  /** Without those that somebody has dismissed. */
  readonly unread: boolean;
  /** Without those that name people. */
  readonly hidesPeople: boolean;
};

type AlertRow = {
  alert_id: string;
  account_id: string;
  kind: KindName;
  facts: AlertFacts;
  raised_at: Date;
};
type DeliveryRow = { alert_id: string; channel: string; state: DeliveryStateName; problem: string };
type SettingsRow = {
  account_id: string;
  below_credits: bigint | null;
  below_days: number | null;
  rules: Partial<Record<KindName, Channels>>;
  webhook_url: string | null;
  webhook_secret: Buffer | null;
};

function toAlert({ alert_id, account_id, kind, facts, raised_at }: AlertRow) {
  return { alertId: alert_id, accountId: account_id, kind, facts, at: raised_at };
}

function toSettings(row: SettingsRow): StoredSettings {
  const { webhook_url: url, webhook_secret: secret } = row;
  return {
    belowMicro: row.below_credits ?? undefined,
    belowDays: row.below_days ?? undefined,
    rules: row.rules,
    webhook: url !== null && secret !== null ? { url, secret } : undefined,
  };
}
