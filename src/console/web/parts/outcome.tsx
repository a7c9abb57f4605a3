// How a request ended, for lists and receipts.

import type { JSX } from "preact";
import { Outcome, type Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import { words } from "../words.ts";
import { textOf } from "./enum-names.ts";
import { Notice, Tag, type Tone } from "./small.tsx";

/** How a request ended, in a word. */
export function OutcomeTag({ outcome }: { readonly outcome: Outcome }): JSX.Element {
  const tone = toneOf(outcome);
  return <Tag {...toneProps(tone)}>{wordsOf(outcome).label}</Tag>;
}

/** The same with the sentence behind it, as a paragraph that must be seen. */
export function OutcomeNotice({ outcome }: { readonly outcome: Outcome }): JSX.Element {
  const { label, sentence } = wordsOf(outcome);
  return (
    <Notice {...toneProps(toneOf(outcome))}>
      <strong>{label}.</strong> {sentence}
    </Notice>
  );
}

/** The same word alone. Some outcomes share one. */
export function outcomeLabel(outcome: Outcome): string {
  return wordsOf(outcome).label;
}

/** How a request ended, in a sentence. */
export function outcomeText({ outcome }: Receipt): string {
  return wordsOf(outcome).sentence;
}

function toneProps(tone: "good" | "warn" | "bad" | undefined): {
  tone?: Tone & ("good" | "warn" | "bad");
} {
  return tone ? { tone } : {};
}

function wordsOf(outcome: Outcome): { readonly label: string; readonly sentence: string } {
  return textOf(Outcome, words.receipt.outcomes, outcome);
}

function toneOf(outcome: Outcome): "good" | "warn" | "bad" | undefined {
  switch (outcome) {
    case Outcome.COMPLETED:
    case Outcome.RUNNING:
      return undefined;
    case Outcome.PROVIDER_FAILED:
    case Outcome.PROVIDER_BROKE:
    case Outcome.GATEWAY_FAILED:
    case Outcome.REAPED:
    case Outcome.INPUT_ABOVE_HOLD:
      return "bad";
    default:
      return "warn";
  }
}
