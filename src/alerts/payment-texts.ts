// What alerts of payments say, and the documents that their mails hold. All that a customer, a
// processor or a chain has chosen comes through `plainText`, which leaves no markup, no address and
// no line end.

import { type Document, DocumentKind } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { familyName } from "../base/families.ts";
import { credits, decimal } from "../base/money.ts";
import { plainText } from "../base/plain-text.ts";

export type PaymentKind =
  | "payment_seen"
  | "payment_credited"
  | "payment_short"
  | "payment_late"
  | "payment_lost"
  | "payment_refunded"
  | "payment_decided";

type Facts = Readonly<Record<string, string>>;

/** One sentence. */
export function paymentTitle(kind: PaymentKind, facts: Facts): string {
  const amount = inCredits(facts.microcredits);
  switch (kind) {
    case "payment_seen":
      return `A payment of ${coinsOf(facts, "amount")} was seen.`;
    case "payment_credited":
      return facts.of === "bonus"
        ? `A bonus of ${amount} came back.`
        : `${amount} were added to the pool ${plainText(facts.family ?? "")}.`;
    case "payment_short":
      return `Less arrived than was ordered: ${inUsd(facts.missing_usd_micro)} are missing.`;
    case "payment_late":
      return `A payment of ${coinsOf(facts, "amount")} came after its quote.`;
    case "payment_lost":
      return facts.of === "bonus"
        ? `A bonus of ${amount} was taken back: the purchase that it needed is gone.`
        : `A payment is gone, and ${amount} were charged back.`;
    case "payment_refunded":
      return facts.usd_micro === undefined
        ? "A payment was sent back."
        : `${inUsd(facts.usd_micro)} were sent back.`;
    case "payment_decided":
      return facts.choice === "grant"
        ? `The operator granted ${amount} for an order.`
        : "The operator closed what waited in an order.";
  }
}

/** What is known besides, for mails. */
export function paymentDetail(kind: PaymentKind, facts: Facts): string {
  const usd = facts.usd_micro === undefined ? "" : inUsd(facts.usd_micro);
  const sentences: Readonly<Record<PaymentKind, readonly string[]>> = {
    payment_seen: [
      usd && `It is worth about ${usd}.`,
      "Credits follow when it has settled. You need do nothing.",
    ],
    payment_credited: [
      facts.amount ? `In all, ${coinsOf(facts, "amount")} arrived.` : "",
      usd && `These credits are worth ${usd}.`,
    ],
    payment_short: [
      `${coinsOf(facts, "amount")} arrived, worth ${usd}.`,
      facts.missing_amount ? `${coinsOf(facts, "missing_amount")} are missing.` : "",
      facts.microcredits === "0" ? "" : `${inCredits(facts.microcredits)} were credited.`,
      `What is sent to the same address until ${minuteOf(facts.until)} still counts.`,
    ],
    payment_late: [
      facts.rated === "person" ? "The operator decides what it is worth." : "",
      facts.rate_usd_micro
        ? `It counts at ${inUsd(facts.rate_usd_micro)} for one ${plainText(facts.asset ?? "")}.`
        : "",
      usd && `It is worth ${usd}.`,
    ],
    payment_lost: ["The network or the processor has taken back what had arrived."],
    payment_refunded: [
      facts.microcredits === "0" ? "" : `${inCredits(facts.microcredits)} were taken back for it.`,
      facts.document ? `${documentName(facts)} is on the page of the order.` : "",
    ],
    payment_decided: [
      facts.choice === "grant" ? "" : "Nothing is credited for it by itself any more.",
    ],
  };
  return [
    ...sentences[kind],
    facts.tx ? `Transaction ${longText(facts.tx)}.` : "",
    facts.order_id ? `Order ${longText(facts.order_id)}.` : "",
  ]
    .filter((one) => one !== "")
    .join(" ");
}

/** `The receipt R2026-000001`, or the credit note. */
export function documentName({ document = "" }: Facts): string {
  const name = document.startsWith("C") ? "The credit note" : "The receipt";
  return `${name} ${plainText(document)}`;
}

/** A receipt or credit note as lines of a mail. */
export function documentText(document: Document): string {
  const { number, kind, issuedAt, seller, buyer, lines, family } = document;
  const isReceipt = kind === DocumentKind.RECEIPT;
  const at = issuedAt ? new Date(Number(issuedAt.seconds) * 1_000).toISOString().slice(0, 10) : "";
  return [
    `${isReceipt ? "Receipt" : "Credit note"} ${plainText(number)} of ${at}`,
    ...(document.receiptNumber === ""
      ? []
      : [`For the receipt ${plainText(document.receiptNumber)}`]),
    ...partyLines("Seller", seller),
    ...partyLines("Buyer", buyer),
    ...lines.map(
      ({ microcredits, microdollars }) =>
        `${credits(microcredits)} credits of the pool ${familyName(family) ?? ""}: ` +
        `${decimal(microdollars, 6, 2)} USD`,
    ),
    `Total: ${credits(document.totalMicrocredits)} credits, ` +
      `${decimal(document.totalMicrodollars, 6, 2)} USD`,
  ].join("\n");
}

function partyLines(
  what: string,
  party: { name: string; address: string; taxId: string } | undefined,
): string[] {
  if (!party || party.name + party.address + party.taxId === "") return [];
  const address = party.address.split(/[\r\n]+/).map((line) => plainText(line, ","));
  const taxId = plainText(party.taxId, "/");
  const texts = [plainText(party.name, ","), ...address, taxId && `Tax id ${taxId}`];
  return [`${what}: ${texts.filter((one) => one !== "").join(", ")}`];
}

const wholeNumber = /^\d{1,30}$/;

function inCredits(micro = ""): string {
  return `${wholeNumber.test(micro) ? credits(BigInt(micro)) : "?"} credits`;
}

function inUsd(micro = ""): string {
  return `${wholeNumber.test(micro) ? decimal(BigInt(micro), 6, 2) : "?"} USD`;
}

function coinsOf(facts: Facts, name: "amount" | "missing_amount"): string {
  const amount = facts[name] ?? "";
  // A point in anything else could make an address of it.
  return `${/^\d{1,80}(\.\d{1,80})?$/.test(amount) ? amount : "?"} ${plainText(facts.asset ?? "")}`;
}

/** A hash or an id, which is longer than a name. What is none is cut as names are. */
function longText(text: string): string {
  return /^[0-9A-Za-z_:-]{1,140}$/.test(text) ? text : plainText(text);
}

function minuteOf(text = ""): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime())
    ? "?"
    : `${at.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}
