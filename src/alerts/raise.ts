// Raises alerts: stores each of them once, with its deliveries.

import type { AlertFacts, KindName } from "./kinds.ts";
import { defaultSettings, type StoredSettings } from "./settings.ts";
import type { AlertStore, NewAlert, NewDelivery } from "./store.ts";

/** Who gets a mail. */
export type Recipient = {
  /** Empty: the recipient is an operator admin. */
  readonly accountId: string;
  readonly personId: string;
  readonly address: string;
};

/**
 * The confirmed addresses of the owners of accounts and of these other members; of operator admins
 * for the account ''.
 */
export type ListRecipients = (
  accountIds: readonly string[],
  personIds: readonly string[],
) => Promise<readonly Recipient[]>;

/** Something that may become an alert. */
export type Finding = {
  /** Empty: the operators. */
  readonly accountId: string;
  readonly kind: KindName;
  /** What it is about, such as a key, with the threshold. */
  readonly about: string;
  /** Distinguishes one occurrence from the next. */
  readonly period: string;
  readonly facts: AlertFacts;
  /** True: it is stored, so that it is never raised, and nobody gets it. */
  readonly isSilent?: boolean;
};

const hourMs = 3_600_000;
/** Long enough for the last of six attempts. */
export const webhookTriedMs = 24 * hourMs;
export const mailTriedMs = 72 * hourMs;
/** Findings of one statement. */
const batchMax = 1_000;

export type RaiseParts = {
  readonly store: AlertStore;
  readonly listRecipients: ListRecipients;
  /** False: there is no mail server. */
  readonly mails: boolean;
  /** Called after alerts of these accounts were raised here. */
  readonly onRaised: (accountIds: readonly string[]) => void;
};

/**
 * Raises the findings that are new and have a channel in the settings of their account. `settings`:
 * of these accounts, if they are known.
 */
export async function raise(
  parts: RaiseParts,
  findings: readonly Finding[],
  settings?: ReadonlyMap<string, StoredSettings>,
): Promise<void> {
  for (let start = 0; start < findings.length; start += batchMax)
    await raiseBatch(parts, findings.slice(start, start + batchMax), settings);
}

async function raiseBatch(
  { store, listRecipients, mails, onRaised }: RaiseParts,
  findings: readonly Finding[],
  known: ReadonlyMap<string, StoredSettings> | undefined,
): Promise<void> {
  const byId = new Map(findings.map((finding) => [alertIdOf(finding), finding]));
  const isNew = await store.findNew([...byId.keys()]);
  const fresh = [...byId].filter(([alertId]) => isNew.has(alertId));
  if (fresh.length === 0) return;
  const accountIds = [...new Set(fresh.map(([, { accountId }]) => accountId))];
  const settings = known ?? (await store.readSettings(accountIds));
  const wanted = fresh.flatMap(([alertId, finding]) => {
    const { accountId, kind, facts, isSilent = false } = finding;
    const { rules, webhook } = settings.get(accountId) ?? defaultSettings(accountId);
    const rule = isSilent ? undefined : rules[kind];
    const channels = rule && { ...rule, webhook: rule.webhook && !webhook?.offAt };
    const hasChannel = channels && (channels.page || channels.mail || channels.webhook);
    // A finding without a channel is not stored, so it is raised when the settings give it one.
    if (!hasChannel && !isSilent) return [];
    const onPage = channels?.page ?? false;
    return [{ alert: { alertId, accountId, kind, facts, onPage }, channels }];
  });
  if (wanted.length === 0) return;
  const mailed = mails ? wanted.filter(({ channels }) => channels?.mail) : [];
  const recipients = await recipientsOf(
    mailed.map(({ alert }) => alert),
    listRecipients,
  );
  const deliveries = wanted.flatMap(({ alert, channels }): NewDelivery[] => [
    ...(channels?.webhook
      ? [{ alertId: alert.alertId, channel: "webhook" as const, triedMs: webhookTriedMs }]
      : []),
    ...(recipients.get(alert.alertId) ?? []).map(({ personId }) => ({
      alertId: alert.alertId,
      channel: `mail:${personId}` as const,
      triedMs: mailTriedMs,
    })),
  ]);
  const raised = await store.insertAlerts(
    wanted.map(({ alert }) => alert),
    deliveries,
  );
  // Another process may have raised them meanwhile, and wakes what waits for them.
  if (raised.length > 0) onRaised(raised);
}

/** `kind/account/what/period`. */
function alertIdOf({ kind, accountId, about, period }: Finding): string {
  return [kind, accountId, about, period].join("/");
}

/**
 * Who gets each of these alerts, by their ids: the owners, and the person whom it is about. A
 * document that was sent again to its buyer is for him alone.
 */
export async function recipientsOf(
  alerts: readonly NewAlert[],
  listRecipients: ListRecipients,
): Promise<ReadonlyMap<string, readonly Recipient[]>> {
  if (alerts.length === 0) return new Map();
  const accountIds = [...new Set(alerts.map(({ accountId }) => accountId))];
  const persons = alerts.flatMap(({ facts }) => facts.person_id ?? []);
  const owners = Map.groupBy(await listRecipients(accountIds, []), (one) => one.accountId);
  const members = persons.length === 0 ? [] : await listRecipients(accountIds, persons);
  return new Map(
    alerts.map(({ alertId, accountId, kind, facts }) => {
      const others = members.filter(
        (one) => one.accountId === accountId && one.personId === facts.person_id,
      );
      const isForOne = kind === "document_sent" && facts.person_id !== undefined;
      const all = [...(isForOne ? [] : (owners.get(accountId) ?? [])), ...others];
      return [alertId, [...new Map(all.map((one) => [one.personId, one])).values()]];
    }),
  );
}
