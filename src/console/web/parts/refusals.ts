// Why requests were refused, and what to do about it.

import { words } from "../words.ts";

export type Refusal = { readonly label: string; readonly advice: string };

/** `reason`: as the services give it, such as `CREDITS_EXHAUSTED`. */
export function refusalOf(reason: string): Refusal {
  const { other, ...known } = words.refusals;
  const found = Object.entries(known).find(([name]) => name === reason)?.[1];
  return found ?? { label: other.label(reason), advice: other.advice };
}
