// When an order is looked at again.

const second = 1_000;
const minute = 60 * second;

export const pageOpenPaceMs = 10 * second;
const quotePaceMs = minute;
const latePaceMs = 10 * minute;
const restPaceMs = 60 * minute;
/** For so long after the quote, money that was sent in time is expected. */
const quoteGraceMs = 15 * minute;
const lateForMs = 60 * minute;

export type Watched = {
  readonly isClosed: boolean;
  readonly quotedUntil: Date;
  readonly watchedUntil: Date;
  readonly pageOpenUntil: Date | null;
  /** Looks without an answer since the last one with one. */
  readonly failedLooks: number;
  /** True: somebody asked for a look, such as a webhook, and has no answer yet. */
  readonly isAsked: boolean;
};

/**
 * Milliseconds until the next look. Undefined: the order is not watched any more. An order whose
 * processor is away stays watched.
 */
export function nextLookMs(order: Watched, now: Date): number | undefined {
  if (order.isClosed) return undefined;
  const nowMs = now.getTime();
  const pace = paceMs(order, nowMs);
  if (order.failedLooks > 0)
    return Math.max(order.isAsked ? 0 : pace, backOffMs(order.failedLooks));
  // The end of the quote and of the watching change the order, so each gets its look.
  const turns = [order.quotedUntil, order.watchedUntil]
    .map((at) => at.getTime() + second - nowMs)
    .filter((ms) => ms > 0);
  return Math.min(pace, ...turns);
}

function paceMs({ pageOpenUntil, quotedUntil }: Watched, nowMs: number): number {
  if (pageOpenUntil && pageOpenUntil.getTime() > nowMs) return pageOpenPaceMs;
  const lateMs = nowMs - quotedUntil.getTime();
  if (lateMs <= quoteGraceMs) return quotePaceMs;
  return lateMs <= lateForMs ? latePaceMs : restPaceMs;
}

/** 10 s after the first failure, then twice as long each time, up to 10 minutes. */
function backOffMs(failedLooks: number): number {
  return Math.min(latePaceMs, pageOpenPaceMs * 2 ** Math.min(failedLooks - 1, 6));
}
