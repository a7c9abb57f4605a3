import fc from "fast-check";
import { expect, test } from "vitest";
import { type Found, SecretCache } from "../../src/base/secret-cache.ts";
import { cacheLimits } from "../../src/keys/authenticate.ts";

function found(digest: string, ownerId: string, expiresInMs?: number): Found {
  return { digest, ownerId, expiresInMs };
}

/** A cache on a clock that the test moves. */
function cacheAt(limits = { foundMax: 100, unknownMax: 100 }) {
  const now = { ms: 1_000 };
  return { now, cache: new SecretCache<Found>({ ...cacheLimits, ...limits }, () => now.ms) };
}

test("an entry is fresh for 5 s, then stale but usable until 30 s, then gone", () => {
  const { now, cache } = cacheAt();
  expect(cache.get("d")).toBe(undefined);
  cache.set("d", found("d", "key_a"), now.ms);
  now.ms += 5_000;
  expect(cache.get("d")?.isStale).toBe(false);
  now.ms += 1;
  expect(cache.get("d")?.isStale).toBe(true);
  now.ms += 24_999;
  expect(cache.get("d")?.isStale).toBe(true);
  now.ms += 1;
  expect(cache.get("d")).toBe(undefined);
});

test("an unknown secret is cached for 30 s", () => {
  const { now, cache } = cacheAt();
  cache.set("d", undefined, now.ms);
  now.ms += 30_000;
  expect(cache.get("d")).toStrictEqual({ found: undefined, isExpired: false, isStale: false });
  now.ms += 1;
  expect(cache.get("d")).toBe(undefined);
});

test("a cached secret expires at its time", () => {
  const { now, cache } = cacheAt();
  cache.set("d", found("d", "key_a", 1_000), now.ms);
  now.ms += 999;
  expect(cache.get("d")?.isExpired).toBe(false);
  now.ms += 1;
  expect(cache.get("d")?.isExpired).toBe(true);
});

test("a change of a key invalidates only its entries, also one that is being read", () => {
  const { now, cache } = cacheAt();
  cache.set("a1", found("a1", "key_a"), now.ms);
  cache.set("b1", found("b1", "key_b"), now.ms);
  const readAtMs = now.ms + 1;
  now.ms += 2;
  cache.invalidate("key_a");
  expect(cache.get("a1")).toBe(undefined);
  expect(cache.get("b1")?.found?.ownerId).toBe("key_b");
  now.ms += 1;
  expect(cache.set("a1", found("a1", "key_a"), readAtMs)).toBe(false);
  expect(cache.get("a1")).toBe(undefined);
  expect(cache.set("a1", found("a1", "key_a"), now.ms)).toBe(true);
  expect(cache.get("a1")?.found?.ownerId).toBe("key_a");
});

test("more changes than the cache remembers invalidate every entry", () => {
  const { now, cache } = cacheAt();
  cache.set("a1", found("a1", "key_a"), now.ms);
  now.ms += 1;
  for (let index = 0; index < 150_000; index++) cache.invalidate(`key_${index}`);
  expect(cache.get("a1")).toBe(undefined);
});

test("invented secrets evict no real one, and both caches keep their bounds", () => {
  const { now, cache } = cacheAt({ foundMax: 100, unknownMax: 100 });
  cache.set("real", found("real", "key_a"), now.ms);
  for (let index = 0; index < 10_000; index++) cache.set(`none${index}`, undefined, now.ms);
  expect(cache.get("real")?.found?.ownerId).toBe("key_a");
  const kept = (name: string, count: number) =>
    Array.from({ length: count }, (_, index) => cache.get(name + index)).filter(Boolean).length;
  expect(kept("none", 10_000)).toBeGreaterThan(0);
  expect(kept("none", 10_000)).toBeLessThanOrEqual(100);
  for (let index = 0; index < 1_000; index++)
    cache.set(`more${index}`, found(`more${index}`, "key_b"), now.ms);
  expect(kept("more", 1_000)).toBeGreaterThan(0);
  expect(kept("more", 1_000)).toBeLessThanOrEqual(100);
});

test("in any order of events, no result was read before a known change or more than 30 s ago", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("read" as const), key: fc.nat(3), tookMs: fc.nat(3_000) }),
    fc.record({ kind: fc.constant("change" as const), key: fc.nat(3) }),
    fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(20_000) }),
    fc.record({ kind: fc.constant("get" as const), key: fc.nat(3) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { now, cache } = cacheAt({ foundMax: 4, unknownMax: 4 });
      const changedAtMs = new Map<number, number>();
      const readAtMs = new Map<number, number>();
      for (const one of steps) {
        now.ms += 1;
        if (one.kind === "wait") now.ms += one.ms;
        else if (one.kind === "change") {
          cache.invalidate(`key_${one.key}`);
          changedAtMs.set(one.key, now.ms);
        } else if (one.kind === "read") {
          const startMs = now.ms;
          now.ms += one.tookMs;
          if (cache.set(`d${one.key}`, found(`d${one.key}`, `key_${one.key}`), startMs))
            readAtMs.set(one.key, startMs);
        } else if (cache.get(`d${one.key}`)) {
          const atMs = readAtMs.get(one.key) ?? Number.NEGATIVE_INFINITY;
          expect(now.ms - atMs).toBeLessThanOrEqual(30_000);
          expect(atMs).toBeGreaterThan(changedAtMs.get(one.key) ?? Number.NEGATIVE_INFINITY);
        }
      }
    }),
  );
});
