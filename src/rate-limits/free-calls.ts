// What the free calls of a key may take of one process: bytes in any 60 seconds, and how many run
// at once.

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ApiError } from "../base/errors.ts";
import { windowMs } from "./sliding-window.ts";

const bytesPerMinuteMax = 256 * 1024 * 1024;
const concurrencyMax = 4;
// One command of a coding assistant sends 27 counting calls at once; they take their turns.
const waitingMax = 100;

type CountedCall = { readonly atMs: number; readonly bytes: number };
type Use = { running: number; calls: CountedCall[]; waiting: (() => void)[] };

/** Ends a call; `refused` takes its bytes back. Further calls of it do nothing. */
export type EndCall = (outcome: "counted" | "refused") => void;

export class FreeCallLimiter {
  readonly #nowMs: () => number;
  readonly #uses = new Map<string, Use>();
  #sweptAtMs: number;

  /** `nowMs` must never go back. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#sweptAtMs = nowMs();
  }

  /** Begins a call, in its turn. Throws `count_rate_limited`, and counts nothing then. */
  async begin(keyId: string, bytes: number): Promise<EndCall> {
    const nowMs = this.#nowMs();
    this.#sweep(nowMs);
    const use = this.#uses.get(keyId) ?? { running: 0, calls: [], waiting: [] };
    forget(use, nowMs);
    if (use.waiting.length >= waitingMax) {
      throw new ApiError("count_rate_limited", {
        message: `This key may run ${concurrencyMax} counting calls at once, and too many wait already.`,
        retryAfterMs: 1_000,
        limit: {
          name: "count_concurrency",
          limit: BigInt(concurrencyMax),
          used: BigInt(use.running),
          remaining: 0n,
        },
      });
    }
    checkBytes(use.calls, bytes, nowMs);

    const call = { atMs: nowMs, bytes };
    use.calls.push(call);
    this.#uses.set(keyId, use);
    if (use.running < concurrencyMax) use.running += 1;
    // Whoever ends hands its place on.
    else await new Promise<void>((resolve) => use.waiting.push(resolve));
    let ended = false;
    return (outcome) => {
      if (ended) return;
      ended = true;
      const next = use.waiting.shift();
      if (next) next();
      else use.running -= 1;
      if (outcome === "refused") use.calls = use.calls.filter((one) => one !== call);
    };
  }

  /** Forgets keys that made no call for a minute, once a minute. */
  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptAtMs < windowMs) return;
    this.#sweptAtMs = nowMs;
    for (const [keyId, use] of this.#uses) {
      forget(use, nowMs);
      if (use.calls.length === 0 && use.running === 0) this.#uses.delete(keyId);
    }
  }
}

function forget(use: Use, nowMs: number): void {
  const kept = use.calls.findIndex((call) => call.atMs > nowMs - windowMs);
  use.calls = kept === -1 ? [] : use.calls.slice(kept);
}

function checkBytes(calls: readonly CountedCall[], bytes: number, nowMs: number): void {
  const used = calls.reduce((sum, call) => sum + call.bytes, 0);
  if (used + bytes <= bytesPerMinuteMax) return;
  // The oldest calls leave the window until there is room.
  let freed = 0;
  const leaving = calls.find((call) => {
    freed += call.bytes;
    return used - freed + bytes <= bytesPerMinuteMax;
  });
  const waitMs = Math.ceil((leaving?.atMs ?? nowMs) + windowMs - nowMs);
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
