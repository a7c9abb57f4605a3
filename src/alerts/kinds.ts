// The kinds of alerts, and what each of them says.

import { AlertKind } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { plainText } from "../base/plain-text.ts";
import { documentName, type PaymentKind, paymentDetail, paymentTitle } from "./payment-texts.ts";

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
  return textsOf[kind].title(facts);
}

/** The line for what is known besides, in mails. Empty: the title says all. */
export function detailOf(kind: KindName, facts: AlertFacts): string {
  return textsOf[kind].detail(facts);
}

type Texts = {
  readonly title: (facts: AlertFacts) => string;
  readonly detail: (facts: AlertFacts) => string;
};

/** What an alert of each kind says. */
const textsOf: Readonly<Record<KindName, Texts>> = {
  credits_low: {
    title: (facts) =>
      facts.days === undefined
        ? `The pool ${name(facts, "family")} has less than ${name(facts, "below_credits")} credits.`
        : `The credits of the pool ${name(facts, "family")} last for less than ${days(facts.days)}.`,
    detail: (facts) => `${fact(facts, "free_credits")} credits are free.`,
  },
  cap_reached: {
    title: (facts) =>
      `${payer(facts)} has ` +
      (facts.percent === "100" ? "reached" : `spent ${name(facts, "percent")} % of`) +
      ` the limit of ${name(facts, "cap_credits")} credits${poolOf(facts)} ${windowOf(facts)}.`,
    detail: (facts) =>
      `${fact(facts, "spent_credits")} of ${fact(facts, "cap_credits")} credits are spent.` +
      rejectionOf(facts),
  },
  new_place: {
    title: (facts) =>
      `${name(facts, "login")} signed in from a new place: ${name(facts, "address")}.`,
    detail: () => "If that was not you, end your sessions in the settings, and tell the operator.",
  },
  key_created: {
    title: (facts) => `${keyOf(facts)} was created.`,
    detail: (facts) =>
      facts.management_key === undefined
        ? makerOf(facts)
        : `By the management key “${plainText(facts.management_key)}”.`,
  },
  key_stopped: {
    title: (facts) =>
      facts.key_id === undefined
        ? "The account was suspended."
        : `${keyOf(facts)} was ${facts.revoked ? "revoked" : "paused"}.`,
    detail: makerOf,
  },
  key_misplaced: {
    title: (facts) =>
      facts.key_id === undefined
        ? `The admin token “${plainText(facts.key ?? "")}” was used from ${name(facts, "address")}.`
        : `${keyOf(facts)} was used from ${name(facts, "address")}.`,
    detail: () =>
      "It may not be used from there, and was refused. " +
      "If that was not you, somebody else has it: rotate or revoke it.",
  },
  order_waiting: {
    title: (facts) => `The payment of the order ${name(facts, "order_id")} waits for a person.`,
    detail: (facts) =>
      facts.account_id ? `Of the account ${fact(facts, "account_id")}.` : "You need do nothing.",
  },
  provider_alarm: {
    title: (facts) =>
      `The provider ${name(facts, "provider")} answers no calls for ${name(facts, "model")}.`,
    detail: (facts) => (facts.reason ?? "").slice(0, 500),
  },
  provider_recovered: {
    title: (facts) =>
      `The provider ${name(facts, "provider")} answers calls for ${name(facts, "model")} again.`,
    detail: (facts) => `It did not since ${fact(facts, "opened_at")}.`,
  },
  ledger_not_synchronous: {
    title: () => "A failover would lose the last charges: the ledger is not synchronous.",
    detail: (facts) => (facts.problem ?? "").slice(0, 300),
  },
  ledger_violated: {
    title: () => "The verifier of the ledger found something.",
    detail: (facts) =>
      `${fact(facts, "violations")} violations. Run npm run verify-ledger for the list.`,
  },
  chain_unread: {
    title: (facts) => `Payments on the chain ${name(facts, "chain")} are not read.`,
    detail: (facts) =>
      `It was read to its end at ${fact(facts, "since")}.` +
      (facts.block === undefined
        ? " Look at its node."
        : ` Its node cannot give block ${fact(facts, "block")}.`),
  },
  approval_bypassed: {
    title: (facts) =>
      `A token of the machine gave away what a person could not alone: ${name(facts, "actor")}.`,
    detail: (facts) =>
      `${fact(facts, "what")} Of the account ${fact(facts, "account_id")}. Ask who used the token.`,
  },
  webhook_off: {
    title: (facts) => `The webhook at ${name(facts, "host")} was switched off.`,
    detail: (facts) =>
      (facts.gone === undefined
        ? `Every post failed since ${fact(facts, "since")}.`
        : "Its receiver answered that it is gone for good.") +
      " Save the settings of alerts to switch it on again.",
  },
  document_sent: {
    title: (facts) => `${documentName(facts)} was sent again.`,
    detail: () => "An operator sent it.",
  },
  payment_seen: ofPayment("payment_seen"),
  payment_credited: ofPayment("payment_credited"),
  payment_short: ofPayment("payment_short"),
  payment_late: ofPayment("payment_late"),
  payment_lost: ofPayment("payment_lost"),
  payment_refunded: ofPayment("payment_refunded"),
  payment_decided: ofPayment("payment_decided"),
};

function ofPayment(kind: PaymentKind): Texts {
  return {
    title: (facts) => paymentTitle(kind, facts),
    detail: (facts) => paymentDetail(kind, facts),
  };
}

/** A fact for a title. */
function name(facts: AlertFacts, fact: string): string {
  return plainText(facts[fact] ?? "", "_.:@/");
}

/** A fact for a detail. */
function fact(facts: AlertFacts, name: string): string {
  return plainText(facts[name] ?? "", "_.:@/%");
}

function keyOf({ key = "" }: AlertFacts): string {
  return `The key “${plainText(key)}”`;
}

function makerOf(facts: AlertFacts): string {
  return facts.by ? `By ${fact(facts, "by")}.` : "";
}

/** What follows from a limit that is spent. */
function rejectionOf(facts: AlertFacts): string {
  if (facts.percent !== "100") return "";
  return facts.window === "total"
    ? " Requests are rejected until an owner raises the limit or begins it anew."
    : ` Requests are rejected until the ${fact(facts, "window")} ends or an owner raises the limit.`;
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
