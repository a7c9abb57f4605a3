import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { test } from "vitest";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { KeyCache } from "../../src/keys/cache.ts";
import type { FoundSecret } from "../../src/keys/store.ts";

function found(digest: string, keyId: string, expiresInMs?: number): FoundSecret {
  const caller = {
    kind: "key",
    key: create(KeySchema, { keyId }),
    secret: create(SecretSchema),
  } as const;
  return { digest, keyId, caller, revoked: false, expiresInMs };
}

/** A cache on a clock that the test moves. */
function cacheAt(limits = { foundMax: 100, absentMax: 100 }) {
  const now = { ms: 1_000 };
  return { now, cache: new KeyCache(limits, () => now.ms) };
}

test("an entry is fresh for 5 s, usable while it is read anew until 30 s, and gone then", () => {
  const { now, cache } = cacheAt();
  assert.equal(cache.look("d"), undefined);
  cache.keep("d", found("d", "key_a"), now.ms);
  now.ms += 5_000;
  assert.equal(cache.look("d")?.stale, false);
  now.ms += 1;
  assert.equal(cache.look("d")?.stale, true);
  now.ms += 24_999;
  assert.equal(cache.look("d")?.stale, true);
  now.ms += 1;
  assert.equal(cache.look("d"), undefined);
});

test("a secret that does not exist is remembered for 30 s", () => {
  const { now, cache } = cacheAt();
  cache.keep("d", undefined, now.ms);
  now.ms += 30_000;
  assert.deepEqual(cache.look("d"), { found: undefined, expired: false, stale: false });
  now.ms += 1;
  assert.equal(cache.look("d"), undefined);
});

test("a secret expires by itself while it is cached", () => {
  const { now, cache } = cacheAt();
  cache.keep("d", found("d", "key_a", 1_000), now.ms);
  now.ms += 999;
  assert.equal(cache.look("d")?.expired, false);
  now.ms += 1;
  assert.equal(cache.look("d")?.expired, true);
});

test("a change of a key ends its entries and no other, and what was being read meanwhile is read again", () => {
  const { now, cache } = cacheAt();
  cache.keep("a1", found("a1", "key_a"), now.ms);
  cache.keep("b1", found("b1", "key_b"), now.ms);
  const readAtMs = now.ms + 1;
  now.ms += 2;
  cache.change("key_a");
  assert.equal(cache.look("a1"), undefined);
  assert.equal(cache.look("b1")?.found?.keyId, "key_b");
  now.ms += 1;
  assert.equal(cache.keep("a1", found("a1", "key_a"), readAtMs), false);
  assert.equal(cache.look("a1"), undefined);
  assert.equal(cache.keep("a1", found("a1", "key_a"), now.ms), true);
  assert.equal(cache.look("a1")?.found?.keyId, "key_a");
});

test("more changes than are remembered end every entry", () => {
  const { now, cache } = cacheAt();
  cache.keep("a1", found("a1", "key_a"), now.ms);
  now.ms += 1;
  for (let index = 0; index < 150_000; index++) cache.change(`key_${index}`);
  assert.equal(cache.look("a1"), undefined);
});

test("inventing secrets pushes out no real one, and neither grows beyond its size", () => {
  const { now, cache } = cacheAt({ foundMax: 100, absentMax: 100 });
  cache.keep("real", found("real", "key_a"), now.ms);
  for (let index = 0; index < 10_000; index++) cache.keep(`none${index}`, undefined, now.ms);
  assert.ok(cache.look("real")?.found);
  const remembered = Array.from({ length: 10_000 }, (_, index) =>
    cache.look(`none${index}`),
  ).filter(Boolean).length;
  assert.ok(remembered > 0 && remembered <= 100);
  for (let index = 0; index < 1_000; index++)
    cache.keep(`more${index}`, found(`more${index}`, "key_b"), now.ms);
  const kept = Array.from({ length: 1_000 }, (_, index) => cache.look(`more${index}`)).filter(
    Boolean,
  ).length;
  assert.ok(kept > 0 && kept <= 100);
});

test("whatever happens in whatever order, a look never answers what was read before a known change or 30 s ago", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("read" as const), key: fc.nat(3), tookMs: fc.nat(3_000) }),
    fc.record({ kind: fc.constant("change" as const), key: fc.nat(3) }),
    fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(20_000) }),
    fc.record({ kind: fc.constant("look" as const), key: fc.nat(3) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { now, cache } = cacheAt({ foundMax: 4, absentMax: 4 });
      const changedAtMs = new Map<number, number>();
      const readAtMs = new Map<number, number>();
      for (const one of steps) {
        now.ms += 1;
        if (one.kind === "wait") now.ms += one.ms;
        else if (one.kind === "change") {
          cache.change(`key_${one.key}`);
          changedAtMs.set(one.key, now.ms);
        } else if (one.kind === "read") {
          const startMs = now.ms;
          now.ms += one.tookMs;
          if (cache.keep(`d${one.key}`, found(`d${one.key}`, `key_${one.key}`), startMs))
            readAtMs.set(one.key, startMs);
        } else if (cache.look(`d${one.key}`)) {
          const atMs = readAtMs.get(one.key) ?? Number.NEGATIVE_INFINITY;
          assert.ok(
            now.ms - atMs <= 30_000 &&
              atMs > (changedAtMs.get(one.key) ?? Number.NEGATIVE_INFINITY),
          );
        }
      }
    }),
  );
});
