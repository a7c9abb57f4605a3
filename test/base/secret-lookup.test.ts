import { expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { type Found, SecretCache } from "../../src/base/secret-cache.ts";
import { createSecretLookup } from "../../src/base/secret-lookup.ts";
import { cacheLimits } from "../../src/keys/authenticate.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { errorOf } from "../support/keys.ts";

/** `version` tells two reads of one secret apart. */
type Read = Found & { readonly version: number };

function found(digest: string, version = 1): Read {
  return { digest, ownerId: `key_${digest}`, expiresInMs: undefined, version };
}

/** A look-up whose statements wait until the test answers them. */
function heldLookup() {
  const statements: { digests: readonly string[]; answer: PromiseWithResolvers<Read[]> }[] = [];
  const { cache, clock, lookup } = lookupBy((digests) => {
    const answer = Promise.withResolvers<Read[]>();
    statements.push({ digests, answer });
    return answer.promise;
  });
  return { statements, cache, clock, lookup };
}

/** A look-up by these statements. Time creeps. */
function lookupBy(findAll: (digests: readonly string[]) => Promise<Read[]>) {
  const clock = new ManualClock({ creeps: true });
  const limits = { ...cacheLimits, foundMax: 1_000, unknownMax: 1_000 };
  const cache = new SecretCache<Read>(limits, () => clock.now());
  return { cache, clock, lookup: createSecretLookup(findAll, cache, { clock }) };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("concurrent look-ups of one secret share one statement", async () => {
  const { statements, lookup } = heldLookup();
  const results = Array.from({ length: 100 }, () => lookup.find("a"));
  expect(statements.map((one) => one.digests)).toStrictEqual([["a"]]);
  statements[0]?.answer.resolve([found("a")]);
  for (const one of await Promise.all(results)) expect(one?.ownerId).toBe("key_a");
  expect(statements.length).toBe(1);
});

test("look-ups during a statement share the next one, in bounded batches", async () => {
  const { statements, lookup, cache } = heldLookup();
  const first = lookup.find("first");
  const others = Array.from({ length: 600 }, (_, index) => lookup.find(`d${index}`));
  statements[0]?.answer.resolve([]);
  expect(await first).toBe(undefined);
  for (let index = 1; index <= 3; index++) {
    await settled();
    statements[index]?.answer.resolve([found("d599")]);
  }
  expect((await Promise.all(others)).filter(Boolean).length).toBe(1);
  expect(statements.map((one) => one.digests.length)).toStrictEqual([1, 256, 256, 88]);
  expect(cache.get("d0")?.found).toBe(undefined);
  expect(cache.get("d599")?.found?.ownerId).toBe("key_d599");
});

test("a key that changes during a read is read again, and its callers get the newer result", async () => {
  const { statements, lookup, cache } = heldLookup();
  const result = lookup.find("a");
  await settled();
  cache.invalidate("key_a");
  statements[0]?.answer.resolve([found("a")]);
  await settled();
  statements[1]?.answer.resolve([found("a", 2)]);
  expect((await result)?.version).toBe(2);
});

test("beyond 10,000 waiting look-ups further ones fail at once, and those that wait are served", async () => {
  const { statements, lookup } = heldLookup();
  const waiting = Array.from({ length: 10_000 }, (_, index) => lookup.find(`d${index}`));
  expect(await errorOf(lookup.find("more"))).toBe("gateway_unavailable");
  for (let index = 0; index <= 40; index++) {
    statements[index]?.answer.resolve([]);
    await settled();
  }
  await Promise.all(waiting);
});

test("after a short outage of the database callers get their result late, not an error", async () => {
  let attempts = 0;
  const { clock, lookup } = lookupBy(async (digests) => {
    attempts += 1;
    if (attempts < 3) throw new ApiError("database_unavailable");
    return digests.map(found);
  });
  const result = passDuring(() => clock.endPause(), lookup.find("a"));
  expect((await result)?.ownerId).toBe("key_a");
  expect(attempts).toBe(3);
});

test("a longer outage of the database fails the look-ups that waited long enough", async () => {
  const { clock, lookup } = lookupBy(async () => {
    throw new ApiError("database_unavailable");
  });
  /** When each look-up failed. */
  const failed: Record<string, number> = {};
  const find = async (digest: string) => {
    expect(await errorOf(lookup.find(digest))).toBe("database_unavailable");
    failed[digest] = Math.round(clock.now());
  };
  const first = find("a");
  await clock.advance(5_000);
  const second = find("b");
  await passDuring(() => clock.endPause(), Promise.all([first, second]));
  expect(failed).toStrictEqual({ a: 10_000, b: 15_000 });
});

test("a refresh joins the next statement, or runs a tenth of a second later", async () => {
  const { statements, clock, lookup } = heldLookup();
  lookup.refresh("old1");
  lookup.refresh("old1");
  lookup.refresh("old2");
  expect(statements.length).toBe(0);
  const result = lookup.find("new");
  expect(statements[0]?.digests).toStrictEqual(["new", "old1", "old2"]);
  lookup.refresh("old3");
  statements[0]?.answer.resolve([found("new"), found("old1")]);
  expect((await result)?.ownerId).toBe("key_new");
  await clock.advance(99);
  expect(statements.length).toBe(1);
  await clock.advance(1);
  expect(statements[1]?.digests).toStrictEqual(["old3"]);
  statements[1]?.answer.reject(new Error("no caller waits for this"));
  await settled();
});

test("a failed statement fails its look-ups, and later ones are served", async () => {
  let attempts = 0;
  const { lookup } = lookupBy(async (digests) => {
    attempts += 1;
    if (attempts === 1) throw new Error("broken");
    return digests.map(found);
  });
  await expect(lookup.find("a")).rejects.toThrow(/broken/);
  expect((await lookup.find("a"))?.ownerId).toBe("key_a");
});
