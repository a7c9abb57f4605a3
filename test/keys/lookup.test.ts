import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { test, vi } from "vitest";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { KeyCache } from "../../src/keys/cache.ts";
import { createLookup } from "../../src/keys/lookup.ts";
import type { FoundSecret } from "../../src/keys/store.ts";
import { errorOf } from "../support/keys.ts";

function found(digest: string): FoundSecret {
  const keyId = `key_${digest}`;
  const caller = {
    kind: "key",
    key: create(KeySchema, { keyId }),
    secret: create(SecretSchema),
  } as const;
  return { digest, keyId, caller, revoked: false, expiresInMs: undefined };
}

/** A look-up whose questions wait until the test answers them. */
function heldLookup() {
  const questions: { digests: readonly string[]; answer: PromiseWithResolvers<FoundSecret[]> }[] =
    [];
  const cache = new KeyCache({ foundMax: 1_000, absentMax: 1_000 });
  const lookup = createLookup((digests) => {
    const answer = Promise.withResolvers<FoundSecret[]>();
    questions.push({ digests, answer });
    return answer.promise;
  }, cache);
  return { questions, cache, lookup };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("whoever asks for the same secret at the same time shares one question", async () => {
  const { questions, lookup } = heldLookup();
  const asked = Array.from({ length: 100 }, () => lookup.find("a"));
  assert.deepEqual(
    questions.map((one) => one.digests),
    [["a"]],
  );
  questions[0]?.answer.resolve([found("a")]);
  for (const one of await Promise.all(asked)) assert.equal(one?.keyId, "key_a");
  assert.equal(questions.length, 1);
});

test("secrets asked for while a question is under way go into the next one, a bounded number at a time", async () => {
  const { questions, lookup, cache } = heldLookup();
  const first = lookup.find("first");
  const others = Array.from({ length: 600 }, (_, index) => lookup.find(`d${index}`));
  questions[0]?.answer.resolve([]);
  assert.equal(await first, undefined);
  for (let index = 1; index <= 3; index++) {
    await settled();
    questions[index]?.answer.resolve([found("d599")]);
  }
  assert.equal((await Promise.all(others)).filter(Boolean).length, 1);
  assert.deepEqual(
    questions.map((one) => one.digests.length),
    [1, 256, 256, 88],
  );
  assert.equal(cache.look("d0")?.found, undefined);
  assert.equal(cache.look("d599")?.found?.keyId, "key_d599");
});

test("a key that changes while it is read is read again, and its callers get the newer answer", async () => {
  const { questions, lookup, cache } = heldLookup();
  const asked = lookup.find("a");
  await settled();
  cache.change("key_a");
  questions[0]?.answer.resolve([found("a")]);
  await settled();
  questions[1]?.answer.resolve([{ ...found("a"), revoked: true }]);
  assert.equal((await asked)?.revoked, true);
});

test("too many waiting secrets are refused at once, and those that wait are served", async () => {
  const { questions, lookup } = heldLookup();
  const waiting = Array.from({ length: 10_000 }, (_, index) => lookup.find(`d${index}`));
  assert.equal(await errorOf(lookup.find("more")), "gateway_unavailable");
  for (let index = 0; index <= 40; index++) {
    questions[index]?.answer.resolve([]);
    await settled();
  }
  await Promise.all(waiting);
});

test("a database that is away for a moment is asked again; callers notice a delay only", async () => {
  let attempts = 0;
  const lookup = createLookup(
    async (digests) => {
      attempts += 1;
      if (attempts < 3) throw new ApiError("billing_unavailable");
      return digests.map(found);
    },
    new KeyCache({ foundMax: 10, absentMax: 10 }),
  );
  assert.equal((await lookup.find("a"))?.keyId, "key_a");
  assert.equal(attempts, 3);
});

test("a database that stays away is reported to those who waited long enough", async () => {
  const away = async () => {
    throw new ApiError("billing_unavailable");
  };
  const lookup = createLookup(away, new KeyCache({ foundMax: 10, absentMax: 10 }), 100);
  const refusals = await Promise.all(["a", "b"].map((digest) => errorOf(lookup.find(digest))));
  assert.deepEqual(refusals, ["billing_unavailable", "billing_unavailable"]);
});

test("what only gets old is read anew in company: with the next question, or a tenth of a second later", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const { questions, lookup } = heldLookup();
    lookup.refresh("old1");
    lookup.refresh("old1");
    lookup.refresh("old2");
    assert.equal(questions.length, 0);
    const asked = lookup.find("new");
    assert.deepEqual(questions[0]?.digests, ["new", "old1", "old2"]);
    lookup.refresh("old3");
    questions[0]?.answer.resolve([found("new"), found("old1")]);
    assert.equal((await asked)?.keyId, "key_new");
    assert.equal(questions.length, 1);
    await vi.advanceTimersByTimeAsync(100);
    assert.deepEqual(questions[1]?.digests, ["old3"]);
    questions[1]?.answer.reject(new Error("nobody waits for this"));
    await settled();
  } finally {
    vi.useRealTimers();
  }
});

test("a failure of the question itself reaches those who asked, and the next ones are served", async () => {
  let attempts = 0;
  const lookup = createLookup(
    async (digests) => {
      attempts += 1;
      if (attempts === 1) throw new Error("broken");
      return digests.map(found);
    },
    new KeyCache({ foundMax: 10, absentMax: 10 }),
  );
  await assert.rejects(lookup.find("a"), /broken/);
  assert.equal((await lookup.find("a"))?.keyId, "key_a");
});
