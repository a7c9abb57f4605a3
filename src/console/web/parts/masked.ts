// What goes with an update mask.

import { snakeOf } from "../messages.ts";

/** Only the values that a mask names: others are refused. */
export function masked<Values extends object>(
  values: Values,
  paths: readonly string[],
): Partial<Values> {
  const kept: Partial<Values> = { ...values };
  for (const name in kept) if (!paths.includes(snakeOf(name))) delete kept[name];
  return kept;
}
