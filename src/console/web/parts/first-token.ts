// How times to the first token are written. Sums count them up to bounds, so a median is known as
// well as these are apart.

import { firstEventBoundsMs } from "../../../base/shown-figures.ts";
import { words } from "../words.ts";

/** "≤ 0.5 s". `ms`: of `firstEventWithin`. */
export function boundText(ms: number): string {
  if (ms === Infinity) return words.usage.beyond(`${(firstEventBoundsMs.at(-1) ?? 0) / 1000} s`);
  return words.usage.about(`${ms / 1000} s`);
}
