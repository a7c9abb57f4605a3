// Which alerts an account gets, and by which channels.

import { clearField, clone, create, isFieldSet } from "@bufbuild/protobuf";
import {
  AlertChannel,
  type AlertRule,
  type AlertSettings,
  AlertSettingsSchema,
  WebhookForm,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { invalidField } from "../base/errors.ts";
import type { Json } from "../postgres/statement.ts";
import { isKindName, type KindName, kindOf, kindsOf } from "./kinds.ts";
import { checkWebhookUrl, type Form, type Webhook } from "./webhook.ts";

/** The channels by which alerts of a kind reach people. */
export type Channels = {
  readonly page: boolean;
  readonly mail: boolean;
  readonly webhook: boolean;
};

/** The settings of an account as the table has them. */
export type StoredSettings = {
  /** Micro-credits. Undefined: no alert. */
  readonly belowMicro: bigint | undefined;
  /** Undefined: no alert. */
  readonly belowDays: number | undefined;
  /** Of a limit of credits, in order. */
  readonly percents: readonly number[];
  /** A kind without a rule is not raised. */
  readonly rules: Partial<Readonly<Record<KindName, Channels>>>;
  readonly webhook: KeptWebhook | undefined;
};

export type KeptWebhook = Webhook & {
  /** Since when every post failed, with no day between two. Undefined: the last one did not. */
  readonly failingSince?: Date | undefined;
  /** When it was switched off. Undefined: it is on. */
  readonly offAt?: Date | undefined;
};

/** A webhook whose posts all failed for so long is switched off. */
export const failingDaysMax = 5;

/** The first payment that is seen needs nobody: what follows of it is mailed. */
function byDefault(kind: KindName): Channels {
  return { page: true, mail: kind !== "payment_seen", webhook: false };
}

const percentsByDefault = [80, 100];

/** What an account has that has set nothing. */
export function defaultSettings(accountId: string): StoredSettings {
  return {
    belowMicro: undefined,
    belowDays: accountId === "" ? undefined : 3,
    percents: percentsByDefault,
    rules: Object.fromEntries(kindsOf(accountId).map((kind) => [kind, byDefault(kind)])),
    webhook: undefined,
  };
}

/** The rules of a row. A kind that only a newer program knows has none. */
export function storedRules(json: Json): StoredSettings["rules"] {
  const rules: Partial<Record<KindName, Channels>> = {};
  for (const [kind, rule] of Object.entries(Object(json))) {
    const { page, mail, webhook } = Object(rule);
    if (isKindName(kind))
      rules[kind] = { page: page === true, mail: mail === true, webhook: webhook === true };
  }
  return rules;
}

/** What masks over alert settings may name. */
export const maskRule = {
  type: AlertSettingsSchema,
  changeable: ["below_microcredits", "below_days", "rules", "webhook_url", "percents", "form"],
  values: "settings.",
};

/** The settings of before with those that a mask names; absent ones are cleared. */
export function withChanges(
  before: AlertSettings,
  given: AlertSettings = create(AlertSettingsSchema),
  paths: readonly string[],
): AlertSettings {
  const next = clone(AlertSettingsSchema, before);
  for (const field of AlertSettingsSchema.fields) {
    if (!paths.includes(field.name)) continue;
    clearField(next, field);
    if (isFieldSet(given, field))
      Reflect.set(next, field.localName, Reflect.get(given, field.localName));
  }
  return next;
}

/** All settings of an account, without the secret. Throws `invalid_request`. */
export function readSettings(
  accountId: string,
  { belowMicrocredits, belowDays, percents, rules, webhookUrl, form }: AlertSettings,
): Omit<StoredSettings, "webhook"> & { readonly webhookUrl: URL | undefined; form: Form } {
  if (accountId === "" && (belowMicrocredits !== undefined || belowDays !== undefined))
    throw invalidField(
      `settings.below_${belowDays === undefined ? "microcredits" : "days"}`,
      "must be absent with all_accounts: operators have no pool",
    );
  const url = webhookUrl === "" ? undefined : checkWebhookUrl("settings.webhook_url", webhookUrl);
  return {
    belowMicro: belowMicrocredits,
    belowDays,
    percents: readPercents(accountId, percents),
    rules: readRules(accountId, rules, url !== undefined),
    webhookUrl: url,
    form: readForm(form, url),
  };
}

function readForm(form: WebhookForm, url: URL | undefined): Form {
  if (form !== WebhookForm.SLACK) return "standard";
  if (!url) return "slack";
  const { hostname, pathname } = url;
  const isDiscord = /^(www\.)?discord(app)?\.com$/.test(hostname) && pathname.endsWith("/slack");
  if (hostname !== "hooks.slack.com" && !isDiscord)
    throw invalidField(
      "settings.webhook_url",
      "is at hooks.slack.com, or at discord.com and ends in /slack, with the form SLACK",
    );
  return "slack";
}

function readPercents(accountId: string, percents: readonly number[]): readonly number[] {
  if (percents.length === 0) return percentsByDefault;
  if (accountId === "")
    throw invalidField(
      "settings.percents",
      "must be absent with all_accounts: operators have no budget",
    );
  return percents.toSorted((one, other) => one - other);
}

function readRules(
  accountId: string,
  rules: readonly AlertRule[],
  hasWebhook: boolean,
): StoredSettings["rules"] {
  const known = kindsOf(accountId);
  const read: Partial<Record<KindName, Channels>> = {};
  for (const [index, { kind, channels }] of rules.entries()) {
    const field = `settings.rules[${index}]`;
    const name = known.find((one) => kindOf(one) === kind);
    if (!name)
      throw invalidField(
        `${field}.kind`,
        accountId === "" ? "must be a kind of operators" : "must be a kind of an account",
        known.map((one) => `ALERT_KIND_${one.toUpperCase()}`),
      );
    if (read[name]) throw invalidField(`${field}.kind`, "has two rules");
    const has = (channel: AlertChannel) => channels.includes(channel);
    const webhook = has(AlertChannel.WEBHOOK);
    if (webhook && !hasWebhook)
      throw invalidField("settings.webhook_url", "is required, because a rule has a webhook");
    read[name] = { page: has(AlertChannel.PAGE), mail: has(AlertChannel.MAIL), webhook };
  }
  return read;
}

function channelsOf(rule: Channels | undefined): AlertChannel[] {
  return [
    ...(rule?.page ? [AlertChannel.PAGE] : []),
    ...(rule?.mail ? [AlertChannel.MAIL] : []),
    ...(rule?.webhook ? [AlertChannel.WEBHOOK] : []),
  ];
}

/** The settings as a response shows them: without the secret. */
export function toMessage(accountId: string, settings: StoredSettings): AlertSettings {
  const { belowMicro, belowDays, percents, rules, webhook } = settings;
  return create(AlertSettingsSchema, {
    ...(belowMicro !== undefined && { belowMicrocredits: belowMicro }),
    ...(belowDays !== undefined && { belowDays }),
    percents: accountId === "" ? [] : [...percents],
    rules: kindsOf(accountId).map((name) => ({
      kind: kindOf(name),
      channels: channelsOf(rules[name]),
    })),
    webhookUrl: webhook?.url ?? "",
    form: webhook?.form === "slack" ? WebhookForm.SLACK : WebhookForm.STANDARD,
  });
}
