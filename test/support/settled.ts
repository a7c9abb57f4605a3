// Waits until something has come to rest.

import { setTimeout as pause } from "node:timers/promises";

/** The value once it has stopped changing. */
export async function settled(value: () => number): Promise<number> {
  for (let quiet = 0, before = value(); ; before = value()) {
    await pause(50);
    quiet = value() === before ? quiet + 1 : 0;
    if (quiet === 5) return before;
  }
}
