// How long the HTTP listener keeps an idle connection. The parent of workers knows it too: a worker
// that retires waits for such connections.

/**
 * As the header `keep-alive` tells clients: longer than the minute for which balancers keep theirs.
 */
export const keepAliveTimeoutMs = 72_000;
/** Added before one is closed: a request may be on its way. */
export const keepAliveMarginMs = 1_000;

/** How long a listener that accepts no more connections has idle ones at most. */
export const disconnectMsMax = keepAliveTimeoutMs + keepAliveMarginMs;

/** How long a worker takes to retire at most: with its requests, and the last ones of clients. */
export const retireMsMax = (drainLimitMs: number) => disconnectMsMax + 2 * drainLimitMs;
