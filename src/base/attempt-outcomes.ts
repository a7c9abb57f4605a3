// How calls to providers end: the values of the API, and the names that charges, metrics, traces
// and the HTTP API have.

import { AttemptOutcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";

const outcomes = {
  delivered: AttemptOutcome.DELIVERED,
  refused: AttemptOutcome.REFUSED,
  failed: AttemptOutcome.FAILED,
  broke: AttemptOutcome.BROKE,
  aborted: AttemptOutcome.ABORTED,
  timeout: AttemptOutcome.TIMED_OUT,
} as const;

export type AttemptOutcomeName = keyof typeof outcomes;

const byName: ReadonlyMap<string, AttemptOutcome> = new Map(Object.entries(outcomes));
const names = new Map([...byName].map(([name, outcome]) => [outcome, name]));

export function attemptOutcomeName(outcome: AttemptOutcome): string {
  return names.get(outcome) ?? "";
}

/** The value of a name. UNSPECIFIED: it is none of them. */
export function attemptOutcomeOf(name: string): AttemptOutcome {
  return byName.get(name) ?? AttemptOutcome.UNSPECIFIED;
}
