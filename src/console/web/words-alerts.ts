// The texts of alerts, which are loaded with their parts of the page.

import type { Alert, AlertKind } from "../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { alertsKeptDays, deliveriesKeptDays } from "../../base/shown-figures.ts";
import { credits } from "./format.ts";
import { paymentWords } from "./words-payments.ts";

export const alertWords = {
  title: "Alerts",
  none: "Nothing new.",
  dismiss: "Dismiss",
  belowCredits: "Credits below",
  belowDays: "Lasting less than",
  days: "days",
  percents: "Of a budget spent",
  percentsHint: "Such as 50, 80, 100.",
  percentsWrong: "Up to ten whole numbers from 1 to 100, with commas between them.",
  webhook: "Webhook",
  webhookHint: "An https address that gets posts.",
  form: "Posts",
  forms: { STANDARD: "Signed JSON", SLACK: "For Slack or Discord" },
  failing: "Every post fails since",
  off: "The webhook is switched off, because its posts failed. Save to switch it on.",
  newSecret: "Make a new secret",
  test: "Send a test",
  tested: "The receiver took the test.",
  saved: "Saved.",
  kind: "Alert",
  channels: { page: "Page", mail: "Mail", webhook: "Webhook" },
  kinds: {
    CREDITS_LOW: "Low credits",
    CAP_REACHED: "Budget spent",
    KEY_CREATED: "New key",
    NEW_PLACE: "Sign-in from a new place",
    KEY_STOPPED: "Key paused, account suspended",
    ORDER_WAITING: "Payment that waits",
    KEY_MISPLACED: "Key used from another address",
    PAYMENT_SEEN: "Payment seen",
    PAYMENT_CREDITED: "Credits bought, with the receipt",
    PAYMENT_SHORT: "Payment that is too small",
    PAYMENT_LATE: "Payment after its quote",
    PAYMENT_LOST: "Payment that is gone",
    PAYMENT_REFUNDED: "Refund",
    PAYMENT_DECIDED: "Decision about a payment",
    WEBHOOK_OFF: "Webhook switched off",
    DOCUMENT_SENT: "Receipt sent again",
    PROVIDER_ALARM: "Provider that needs a repair",
    LEDGER_NOT_SYNCHRONOUS: "Ledger that is not synchronous",
    LEDGER_VIOLATED: "Finding of the verifier",
    PROVIDER_RECOVERED: "Provider that answers again",
    APPROVAL_BYPASSED: "Large gift by the machine alone",
    CHAIN_UNREAD: "Chain that nobody can read",
  } satisfies Record<Exclude<keyof typeof AlertKind, "UNSPECIFIED">, string>,
  /** Of a gateway that is newer than this page. */
  newKind: (number: number) => `Kind ${number}`,
  bell: (unread: string) => `Alerts, ${unread} unread`,
  all: "All alerts",
  every: `Of the last ${alertsKeptDays} days, the newest first.`,
  more: "100 or more",
  deliveries: "Deliveries",
  deliveriesAbout: `Mails and posts of the last ${deliveriesKeptDays} days.`,
  noDeliveries: "Nothing was delivered yet.",
  onlyFailed: "Only those that failed",
  time: "Time",
  about: "Alert",
  to: "To",
  mail: "Mail",
  state: "State",
  states: { UNSPECIFIED: "Unknown", WAITING: "Waits", SENT: "Sent", FAILED: "Failed" },
  again: "Send again",
  sentAgain: "It is sent again.",
} as const;

type Facts = Readonly<Record<string, string>>;

const amount = (micro: string | undefined, otherwise = "") =>
  micro !== undefined && /^\d+$/.test(micro) ? credits(BigInt(micro)) : otherwise;

function ownerOf({ of, key, login, management_key: managementKey, family }: Facts): string {
  if (of === "person") return login ?? "";
  return of === "pool" ? `Pool ${family}` : (managementKey ?? key ?? "");
}

/** What alerts say of kinds that accounts have, by their facts. */
const sentences: Partial<Record<keyof typeof AlertKind, (facts: Facts) => string>> = {
  CREDITS_LOW: ({ family, days, below_microcredits: below, below_credits: text }) =>
    days === undefined
      ? `Pool ${family} is below ${amount(below, text)} credits`
      : `Pool ${family} lasts for less than ${days} days`,
  CAP_REACHED: (facts) =>
    `${ownerOf(facts)}: ${facts.percent} % of ` +
    `${amount(facts.cap_microcredits, facts.cap_credits)} credits spent`,
  KEY_CREATED: ({ key }) => `Key ${key} was made`,
  NEW_PLACE: ({ login, address }) => `${login} signed in from ${address}`,
  KEY_STOPPED: ({ key, revoked }) =>
    key === undefined
      ? "The account was suspended"
      : `Key ${key} was ${revoked ? "revoked" : "paused"}`,
  KEY_MISPLACED: ({ key, address }) => `Key ${key} was used from ${address}, and refused`,
  ORDER_WAITING: () => "A payment waits for the operator",
  PAYMENT_SEEN: paymentWords.SEEN,
  PAYMENT_CREDITED: paymentWords.CREDITED,
  PAYMENT_SHORT: paymentWords.SHORT,
  PAYMENT_LATE: paymentWords.LATE,
  PAYMENT_LOST: paymentWords.LOST,
  PAYMENT_REFUNDED: paymentWords.REFUNDED,
  PAYMENT_DECIDED: paymentWords.DECIDED,
  WEBHOOK_OFF: ({ host }) => `The webhook at ${host} was switched off`,
};

/** An alert as the page says it. `kind`: its name. Those of operators have a title alone. */
export function alertText({ title, facts }: Alert, kind: string | undefined): string {
  const sentence = Object.hasOwn(sentences, kind ?? "") ? Object(sentences)[kind ?? ""] : undefined;
  return sentence ? sentence(facts) : title;
}
