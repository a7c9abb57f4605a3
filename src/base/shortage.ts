// Resources of this machine that run out: no fault of a process at the other end.

import { type Clock, systemClock } from "./clock.ts";
import type { Log } from "./log.ts";

const codes: ReadonlySet<unknown> = new Set([
  // No descriptor is left for this process, or for the machine.
  "EMFILE",
  "ENFILE",
  // No memory is left for the buffers of sockets.
  "ENOBUFS",
  // No local port is left for a connection.
  "EADDRNOTAVAIL",
]);

const everyMs = 60_000;

/** Returns the function that logs a shortage, once a minute at most: each call may meet it. */
export function createShortageReport(log: Log, clock: Clock = systemClock) {
  let nextMs = Number.NEGATIVE_INFINITY;
  return (err: unknown): void => {
    const nowMs = clock.now();
    if (nowMs < nextMs) return;
    nextMs = nowMs + everyMs;
    log.warn(
      { code: "descriptors_short", err },
      "this machine has no descriptor, port or buffer left for a connection",
    );
  };
}

/** True if this machine lacked what `error`, or its cause, needed. */
export function isLocalShortage(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return ("code" in error && codes.has(error.code)) || isLocalShortage(error.cause);
}

declare module "./log.ts" {
  interface LogCodes {
    /**
     * calls get 503 until others end, and no provider is blamed; raise the limit of open files
     * (`LimitNOFILE` of the unit, `ulimit -n`), and look at who holds so many connections
     */
    descriptors_short: true;
  }
}
