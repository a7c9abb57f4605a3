// Refused requests are kept for some time only: what a report of an older time says of them.
// Apart from `refusals.ts`, which the first page needs.

import type { QueryRefusalsResponse } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { day, toDate } from "../format.ts";
import { whyWords } from "../words-why.ts";
import { utc } from "../zone.ts";

/**
 * A sentence on the time of which no refusals are kept, for a report that was asked for from `from`
 * to `to`; without `to`, until now. Undefined: all are kept.
 */
export function notKept(
  errors: Pick<QueryRefusalsResponse, "startAt">,
  { from, to = new Date() }: { readonly from: Date; readonly to?: Date | undefined },
): string | undefined {
  if (!errors.startAt) return undefined;
  const keptFrom = toDate(errors.startAt);
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
