// Tells the operator of a proxy that TRUSTED_PROXIES does not name: all of its clients then share
// one address, and one limit. The peer may as well be a client who makes the header up, so nothing
// is believed of it.

import { BoundedMap } from "../base/bounded-map.ts";
import { matchAddresses } from "../base/client-address.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";

/** Each peer is named once in this time. */
const everyMs = 3_600_000;
/** More of them are clients rather than proxies. */
const peersMax = 1_000;

/**
 * Returns a function to call with the peer of each request that has `X-Forwarded-For`. `onUnnamed`
 * gets each peer that is reported, once an hour.
 */
export function createProxyReport(
  log: Log,
  trustedProxies: readonly string[],
  clock: Clock = systemClock,
  onUnnamed?: (peer: string) => void,
): (peer: string) => void {
  const isTrusted = matchAddresses(trustedProxies);
  const reportedAtMs = new BoundedMap<string, number>(peersMax);
  return (address) => {
    const peer = address.replace(/^::ffff:/, "");
    if (isTrusted(peer)) return;
    const nowMs = clock.now();
    const beforeMs = reportedAtMs.get(peer);
    if (beforeMs !== undefined && nowMs - beforeMs < everyMs) return;
    reportedAtMs.set(peer, nowMs);
    onUnnamed?.(peer);
    log.warn(
      {
        code: "proxy_not_trusted",
        peer,
        set: `TRUSTED_PROXIES=${[...trustedProxies, peer].join(",")}`,
      },
      "X-Forwarded-For of a peer that TRUSTED_PROXIES does not name is not believed; set it if the peer is your proxy",
    );
  };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * if `peer` is your proxy, set TRUSTED_PROXIES as `set` says: its clients share one address and
     * one limit until then; otherwise nothing, a client made the header up
     */
    proxy_not_trusted: true;
  }
}
