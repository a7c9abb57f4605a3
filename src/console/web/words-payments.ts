// What became of payments, as the page says it from the facts: on the page of an order, and in the
// list of alerts.

import { credits } from "./format.ts";
import { exact, groupDigits } from "./parts/decimals.ts";

type Facts = Readonly<Record<string, string>>;

const whole = (text = "") => (/^\d+$/.test(text) ? BigInt(text) : 0n);
const usd = (micro = "") => `$${exact(whole(micro))}`;
const amountOf = ({ amount = "", asset = "" }: Facts) => `${groupDigits(amount)} ${asset}`;
const creditsOf = ({ microcredits }: Facts) => `${credits(whole(microcredits))} credits`;
const isBonus = (facts: Facts) => facts.of === "bonus";

/** By the name of the kind. Each is a sentence without an end. */
export const paymentWords = {
  SEEN: (facts: Facts) => `A payment of ${amountOf(facts)} was seen`,
  CREDITED: (facts: Facts) =>
    isBonus(facts) ? `A bonus of ${creditsOf(facts)} came back` : `${creditsOf(facts)} were added`,
  SHORT: (facts: Facts) => `${usd(facts.missing_usd_micro)} are missing: the quote is over`,
  LATE: (facts: Facts) =>
    facts.rated === "person"
      ? `${amountOf(facts)} came after the quote, and the operator decides`
      : `${amountOf(facts)} came after the quote, worth ${usd(facts.usd_micro)}`,
  LOST: (facts: Facts) =>
    isBonus(facts)
      ? `A bonus of ${creditsOf(facts)} was taken back`
      : `A payment is gone, and ${creditsOf(facts)} were charged back`,
  REFUNDED: (facts: Facts) =>
    facts.usd_micro === undefined
      ? "A payment was sent back"
      : `${usd(facts.usd_micro)} were sent back`,
  DECIDED: (facts: Facts) =>
    facts.choice === "grant"
      ? `The operator granted ${creditsOf(facts)}`
      : "The operator closed what waited",
} as const;

export type PaymentName = keyof typeof paymentWords;

export const timelineWords = {
  title: "What happened",
  /** Of a gateway that is newer than this page. */
  newer: "Something else",
  made: "Ordered",
} as const;
