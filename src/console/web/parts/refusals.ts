// Why requests were refused, and what to do about it.

import type { QueryErrorsResponse } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { day, toDate } from "../format.ts";
import { words } from "../words.ts";
import { whyWords } from "../words-why.ts";
import { utc } from "../zone.ts";

export type Refusal = { readonly label: string; readonly advice: string };

/** `reason`: as the services give it, such as `CREDITS_EXHAUSTED`. */
export function refusalOf(reason: string): Refusal {
  const { other, ...known } = words.refusals;
  const found = Object.entries(known).find(([name]) => name === reason)?.[1];
  return found ?? { label: other.label(reason), advice: other.advice };
}

/**
 * A sentence on the time of which no refusals are kept, for a report that was asked for from `from`
 * to `to`; without `to`, until now. Undefined: all are kept.
 */
export function notKept(
  errors: Pick<QueryErrorsResponse, "from">,
  { from, to = new Date() }: { readonly from: Date; readonly to?: Date | undefined },
): string | undefined {
  if (!errors.from) return undefined;
  const keptFrom = toDate(errors.from);
  if (keptFrom <= from) return undefined;
  return keptFrom < to
    ? whyWords.refusals.keptSince(day(keptFrom, utc))
    : whyWords.refusals.notKept;
}

/** What stands where no refusal is found: `none`, unless that is not known. */
export function noRefusals(none: string, lacks: string | undefined): string {
  if (lacks === undefined) return none;
  return lacks === whyWords.refusals.notKept ? lacks : `${none} ${lacks}`;
}
