// The kinds of alerts, and what each of them says.

import { AlertKind } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { plainText } from "../base/plain-text.ts";
import { documentName, paymentDetail, paymentTitle } from "./payment-texts.ts";

/** As tables and webhooks name them. `document_sent` has no rule: a person asks for it. */
export type KindName =
  | (typeof accountKinds)[number]
  | (typeof operatorKinds)[number]
  | "document_sent";

export const accountKinds = [
  "credits_low",
  "cap_reached",
  "key_created",
  "new_place",
  "key_stopped",
  "key_misplaced",
  "order_waiting",
  "payment_seen",
  "payment_credited",
  "payment_short",
  "payment_late",
  "payment_lost",
  "payment_refunded",
  "payment_decided",
  "webhook_off",
] as const;

const operatorKinds = [
  "key_misplaced",
  "order_waiting",
  "provider_alarm",
  "provider_recovered",
  "ledger_not_synchronous",
  "ledger_violated",
  "chain_unread",
  "approval_bypassed",
  "webhook_off",
] as const;

const kindsByName: Readonly<Record<KindName, AlertKind>> = {
  credits_low: AlertKind.CREDITS_LOW,
  cap_reached: AlertKind.CAP_REACHED,
  key_created: AlertKind.KEY_CREATED,
  new_place: AlertKind.NEW_PLACE,
  key_stopped: AlertKind.KEY_STOPPED,
  key_misplaced: AlertKind.KEY_MISPLACED,
  order_waiting: AlertKind.ORDER_WAITING,
  provider_alarm: AlertKind.PROVIDER_ALARM,
  provider_recovered: AlertKind.PROVIDER_RECOVERED,
  ledger_not_synchronous: AlertKind.LEDGER_NOT_SYNCHRONOUS,
  ledger_violated: AlertKind.LEDGER_VIOLATED,
  chain_unread: AlertKind.CHAIN_UNREAD,
  approval_bypassed: AlertKind.APPROVAL_BYPASSED,
  payment_seen: AlertKind.PAYMENT_SEEN,
  payment_credited: AlertKind.PAYMENT_CREDITED,
  payment_short: AlertKind.PAYMENT_SHORT,
  payment_late: AlertKind.PAYMENT_LATE,
  payment_lost: AlertKind.PAYMENT_LOST,
  payment_refunded: AlertKind.PAYMENT_REFUNDED,
  payment_decided: AlertKind.PAYMENT_DECIDED,
  webhook_off: AlertKind.WEBHOOK_OFF,
  document_sent: AlertKind.DOCUMENT_SENT,
};

export function isKindName(text: string): text is KindName {
  return Object.hasOwn(kindsByName, text);
}

export function kindOf(name: KindName): AlertKind {
  return kindsByName[name];
}

/** The kinds of the operators' own alerts, or of those of an account. */
export function kindsOf(accountId: string): readonly KindName[] {
  return accountId === "" ? operatorKinds : accountKinds;
}

/** What an alert is about, by name. Never a secret. */
export type AlertFacts = Readonly<Record<string, string>>;

/** One sentence about an alert. Names appear in letters and digits only. */
export function titleOf(kind: KindName, facts: AlertFacts): string {
  const fact = (name: string) => plainText(facts[name] ?? "", "_.:@/");
  const key = `The key “${plainText(facts.key ?? "")}”`;
  switch (kind) {
    case "credits_low":
      return facts.days === undefined
        ? `The pool ${fact("family")} has less than ${fact("below_credits")} credits.`
        : `The credits of the pool ${fact("family")} last for less than ${days(facts.days)}.`;
    case "cap_reached":
      return (
        `${payer(facts)} has ` +
        (facts.percent === "100" ? "reached" : `spent ${fact("percent")} % of`) +
        ` the limit of ${fact("cap_credits")} credits${poolOf(facts)} ${windowOf(facts)}.`
      );
    case "key_created":
      return `${key} was created.`;
    case "new_place":
      return `${fact("login")} signed in from a new place: ${fact("address")}.`;
    case "key_stopped":
      if (facts.key_id === undefined) return "The account was suspended.";
      return facts.revoked ? `${key} was revoked.` : `${key} was paused.`;
    case "key_misplaced":
      return facts.key_id === undefined
        ? `The admin token “${plainText(facts.key ?? "")}” was used from ${fact("address")}.`
        : `${key} was used from ${fact("address")}.`;
    case "order_waiting":
      return `The payment of the order ${fact("order_id")} waits for a person.`;
    case "provider_alarm":
      return `The provider ${fact("provider")} answers no calls for ${fact("model")}.`;
    case "provider_recovered":
      return `The provider ${fact("provider")} answers calls for ${fact("model")} again.`;
    case "ledger_not_synchronous":
      return "A failover would lose the last charges: the ledger is not synchronous.";
    case "ledger_violated":
      return "The verifier of the ledger found something.";
    case "chain_unread":
      return `Payments on the chain ${fact("chain")} are not read.`;
    case "approval_bypassed":
      return `A token of the machine gave away what a person could not alone: ${fact("actor")}.`;
    case "webhook_off":
      return `The webhook at ${fact("host")} was switched off.`;
    case "document_sent":
      return `${documentName(facts)} was sent again.`;
    default:
      return paymentTitle(kind, facts);
  }
}

/** Whose limit it is. Alerts of before say only the key and the month. */
function payer(facts: AlertFacts): string {
  const name = (fact: string) => plainText(facts[fact] ?? "");
  if (facts.of === "person") return `The member ${plainText(facts.login ?? "", "_.:@/")}`;
  if (facts.of === "management_key") return `The management key “${name("management_key")}”`;
  return facts.of === "pool" ? `The pool ${name("family")}` : `The key “${name("key")}”`;
}

/** A person and a management key may spend of two pools. */
function poolOf({ of, family }: AlertFacts): string {
  return of === "person" || of === "management_key"
    ? ` of the pool ${plainText(family ?? "")}`
    : "";
}

function windowOf({ window, period, month }: AlertFacts): string {
  if (window === "total") return "in total";
  return `for ${window === "week" ? "the week of " : ""}${plainText(period ?? month ?? "")}`;
}

function days(text: string): string {
  return text === "1" ? "a day" : `${plainText(text)} days`;
}

/** The line for what is known besides, in mails. Empty: the title says all. */
export function detailOf(kind: KindName, facts: AlertFacts): string {
  const fact = (name: string) => plainText(facts[name] ?? "", "_.:@/%");
  switch (kind) {
    case "credits_low":
      return `${fact("free_credits")} credits are free.`;
    case "cap_reached":
      return (
        `${fact("spent_credits")} of ${fact("cap_credits")} credits are spent.` +
        (facts.percent !== "100"
          ? ""
          : facts.window === "total"
            ? " Requests are rejected until an owner raises the limit or begins it anew."
            : ` Requests are rejected until the ${fact("window")} ends or an owner raises the limit.`)
      );
    case "new_place":
      return "If that was not you, end your sessions in the settings, and tell the operator.";
    case "key_created":
      if (facts.management_key !== undefined)
        return `By the management key “${plainText(facts.management_key)}”.`;
      return facts.by ? `By ${fact("by")}.` : "";
    case "key_stopped":
      return facts.by ? `By ${fact("by")}.` : "";
    case "key_misplaced":
      return (
        "It may not be used from there, and was refused. " +
        "If that was not you, somebody else has it: rotate or revoke it."
      );
    case "order_waiting":
      return facts.account_id ? `Of the account ${fact("account_id")}.` : "You need do nothing.";
    case "provider_alarm":
      return (facts.reason ?? "").slice(0, 500);
    case "provider_recovered":
      return `It did not since ${fact("opened_at")}.`;
    case "ledger_not_synchronous":
      return (facts.problem ?? "").slice(0, 300);
    case "ledger_violated":
      return `${fact("violations")} violations. Run npm run verify-ledger for the list.`;
    case "chain_unread":
      return (
        `It was read to its end at ${fact("since")}.` +
        (facts.block === undefined
          ? " Look at its node."
          : ` Its node cannot give block ${fact("block")}.`)
      );
    case "approval_bypassed":
      return `${fact("what")} Of the account ${fact("account_id")}. Ask who used the token.`;
    case "webhook_off":
      return (
        (facts.gone === undefined
          ? `Every post failed since ${fact("since")}.`
          : "Its receiver answered that it is gone for good.") +
        " Save the settings of alerts to switch it on again."
      );
    case "document_sent":
      return "An operator sent it.";
    default:
      return paymentDetail(kind, facts);
  }
}
