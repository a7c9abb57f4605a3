// The limits of a key's free calls (counting tokens, reading models) on one process: bytes in any
// 60 seconds, and concurrent calls.

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ApiError } from "../base/errors.ts";
import { ByteWindow, bytesPerMinuteMax } from "./byte-window.ts";
import { windowMs } from "./sliding-window.ts";

const concurrencyMax = 4;
// One command of a coding assistant sends 27 counting calls at once: let them wait their turn.
const waitingMax = 100;

type KeyState = {
  active: number;
  readonly calls: ByteWindow;
  waiting: (() => void)[];
};

/** Ends a call; `refused` also uncounts its bytes. Repeating it has no effect. */
export type EndCall = (outcome: "counted" | "refused") => void;

export class FreeCallLimiter {
  readonly #nowMs: () => number;
  readonly #keys = new Map<string, KeyState>();
  #sweptAtMs: number;

  /** `nowMs` must never go back. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#sweptAtMs = nowMs();
  }

  /**
   * Begins a call, after waiting for its turn. Throws `count_rate_limited`, without counting it.
   */
  async begin(keyId: string, bytes: number): Promise<EndCall> {
    const nowMs = this.#nowMs();
    this.#sweep(nowMs);
    const key = this.#keys.get(keyId) ?? { active: 0, calls: new ByteWindow(), waiting: [] };
    key.calls.expire(nowMs);
    if (key.waiting.length >= waitingMax) {
      throw new ApiError("count_rate_limited", {
        message: `This key may run ${concurrencyMax} counting calls at once, and too many are waiting.`,
        retryAfterMs: 1_000,
        limit: {
          name: "count_concurrency",
          limit: BigInt(concurrencyMax),
          used: BigInt(key.active),
          remaining: 0n,
        },
      });
    }
    checkBytes(key.calls, bytes, nowMs);

    const call = { atMs: nowMs, bytes };
    key.calls.add(call);
    this.#keys.set(keyId, key);
    if (key.active < concurrencyMax) key.active += 1;
    // A call that ends passes its slot to the first that waits.
    else await new Promise<void>((resolve) => key.waiting.push(resolve));
    let ended = false;
    return (outcome) => {
      if (ended) return;
      ended = true;
      const next = key.waiting.shift();
      if (next) next();
      else key.active -= 1;
      if (outcome === "refused") key.calls.remove(call);
    };
  }

  /** Forgets the keys without a call in the last minute. Runs once a minute. */
  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptAtMs < windowMs) return;
    this.#sweptAtMs = nowMs;
    for (const [keyId, key] of this.#keys) {
      key.calls.expire(nowMs);
      if (key.calls.isEmpty && key.active === 0) this.#keys.delete(keyId);
    }
  }
}

function checkBytes(calls: ByteWindow, bytes: number, nowMs: number): void {
  const waitMs = calls.waitMs(bytes, nowMs);
  if (waitMs === undefined) return;
  const { used } = calls;
  throw new ApiError("count_rate_limited", {
    message: "This key may send 256 MiB a minute in counting calls.",
    retryAfterMs: waitMs,
    limit: {
      name: "count_bytes_per_minute",
      limit: BigInt(bytesPerMinuteMax),
      used: BigInt(used),
      remaining: BigInt(Math.max(0, bytesPerMinuteMax - used)),
      resetsAt: timestampFromMs(Date.now() + waitMs),
    },
  });
}
