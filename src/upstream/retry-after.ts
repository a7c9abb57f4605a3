// When a provider wants to be asked again.

import type { IncomingHttpHeaders } from "node:http";

/** Milliseconds from now, of `retry-after-ms` or `retry-after` (seconds or a date). Undefined where neither makes sense. */
export function readRetryAfterMs(headers: IncomingHttpHeaders, now: number = Date.now()): number | undefined {
  const exact = headers["retry-after-ms"];
  if (typeof exact === "string" && /^\d{1,9}$/.test(exact)) return Number(exact);
  const text = headers["retry-after"];
  if (text === undefined) return undefined;
  if (/^\d{1,7}$/.test(text)) return Number(text) * 1000;
  const ms = Date.parse(text) - now;
  return ms > 0 ? ms : undefined;
}
