// The prompt cache of the simulated model: it remembers the hashes of prefixes that were marked,
// for as long as they asked.

import { createHash } from "node:crypto";
import { tokensOf } from "./measure.ts";
import type { Segment } from "./prompt.ts";

/** Input tokens by category; the four are disjoint. */
export type InputTokens = {
  readonly input: number;
  readonly read: number;
  readonly write5m: number;
  readonly write1h: number;
};

const prefixesMax = 10_000;
const lifeMs = { "5m": 300_000, "1h": 3_600_000 };

/** Remembers the prefixes of one simulated provider. */
export class PromptCache {
  // Hash → moment of expiry, oldest use first.
  readonly #prefixes = new Map<string, number>();

  /**
   * Counts the input of a prompt and remembers its marked prefixes. Without marks nothing is read,
   * written or hashed.
   */
  count(model: string, segments: readonly Segment[], nowMs: number): InputTokens {
    const total = tokensOf(segments.reduce((sum, { bytes }) => sum + bytes, 0));
    if (!segments.some(({ cacheControl }) => cacheControl))
      return { input: total, read: 0, write5m: 0, write1h: 0 };

    const marks = findMarks(model, segments);
    const known = marks.findLast(({ key }) => this.#isKnown(key, nowMs));
    const read = known?.tokens ?? 0;
    let counted = read;
    let write5m = 0;
    let write1h = 0;
    for (const { key, ttl, tokens } of marks) {
      this.#remember(key, ttl, nowMs);
      if (tokens <= counted) continue;
      if (ttl === "1h") write1h += tokens - counted;
      else write5m += tokens - counted;
      counted = tokens;
    }
    return { input: total - counted, read, write5m, write1h };
  }

  #isKnown(key: string, nowMs: number): boolean {
    return (this.#prefixes.get(key) ?? Number.NEGATIVE_INFINITY) > nowMs;
  }

  #remember(key: string, ttl: "5m" | "1h", nowMs: number): void {
    this.#prefixes.delete(key);
    this.#prefixes.set(key, nowMs + lifeMs[ttl]);
    for (const oldest of this.#prefixes.keys()) {
      if (this.#prefixes.size <= prefixesMax) break;
      this.#prefixes.delete(oldest);
    }
  }
}

function findMarks(
  model: string,
  segments: readonly Segment[],
): { key: string; ttl: "5m" | "1h"; tokens: number }[] {
  const hash = createHash("sha256").update(model);
  let bytes = 0;
  return segments.flatMap((segment) => {
    hash.update(`\0${segment.content.length}\0`).update(segment.content);
    bytes += segment.bytes;
    if (segment.cacheControl === undefined) return [];
    const ttl = segment.cacheControl.ttl === "1h" ? "1h" : "5m";
    return [{ key: hash.copy().digest("base64"), ttl, tokens: tokensOf(bytes) } as const];
  });
}
