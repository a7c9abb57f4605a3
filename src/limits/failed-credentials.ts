// Guessing credentials is slowed down per client address. In the memory of one process: it protects the process, and a guess at 256
// random bits is hopeless anyhow.

import { isIPv6 } from "node:net";
import { Refusal } from "../errors.ts";
import { RecentMap } from "../recent-map.ts";
import { windowMs } from "./sliding-log.ts";

/** Failures of one address in any 60 seconds, beyond which it is refused unread. */
const failuresMax = 100;
// At most 100 times each: 10 MB when all of them guess.
const addressesMax = 10_000;

export type FailedCredentials = {
  /** Throws `auth_rate_limited` for an address that failed too often in the last minute. */
  check(address: string): void;
  record(address: string): void;
};

/** `nowMs` must never go back. */
export function createFailedCredentials(nowMs: () => number = () => performance.now()): FailedCredentials {
  const failures = new RecentMap<string, number[]>(addressesMax);

  function failuresOf(client: string): number[] {
    const oldestMs = nowMs() - windowMs;
    return (failures.get(client) ?? []).filter((atMs) => atMs > oldestMs);
  }

  return {
    check(address) {
      const times = failuresOf(clientOf(address));
      const first = times.at(-failuresMax);
      if (first !== undefined) throw new Refusal("auth_rate_limited", { retryAfterMs: Math.ceil(first + windowMs - nowMs()) });
    },
    record(address) {
      const client = clientOf(address);
      failures.set(client, [...failuresOf(client).slice(1 - failuresMax), nowMs()]);
    },
  };
}

/** An IPv6 client owns at least the 64-bit network of its address, and would otherwise never run out of addresses. */
function clientOf(address: string): string {
  if (!isIPv6(address)) return address;
  const mapped = /^::ffff:([\d.]+)$/i.exec(address);
  if (mapped?.[1]) return mapped[1];
  const [head = "", tail] = address.split("%")[0]?.split("::") ?? [];
  const groups = head === "" ? [] : head.split(":");
  const missing = tail === undefined ? 0 : 8 - groups.length - (tail === "" ? 0 : tail.split(":").length);
  const all = [...groups, ...Array<string>(missing).fill("0"), ...(tail ? tail.split(":") : [])];
  return all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}
