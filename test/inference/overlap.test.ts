// The provider is called while the hold is being placed, over HTTP. A lock stops the database
// inside the commit. The clock of the process is held from before a warm-up, so that the free
// credits it left stay known however slow the machine is.

import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { HoldKeeper } from "../../src/billing/holds.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { type CommitLock, lockCommits } from "../support/commit-lock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer, nativeStream } from "../support/provider-answers.ts";

let provider: FakeProvider;
let gateway: TestGateway;
let lock: CommitLock;
beforeAll(async () => {
  provider = await startFakeProvider();
  const real = { kind: "anthropic", url: provider.url } as const;
  gateway = await startTestGateway({
    catalog: readCatalogFile(catalogFor({ first: real, second: real })),
    split: false,
  });
  lock = await lockCommits(gateway.databaseUrl);
});
afterAll(async () => {
  vi.restoreAllMocks();
  await lock.stop();
  await gateway.stop();
  await provider.stop();
});

const posted = async () => {
  const { accountId, admin } = gateway;
  const { pools } = await admin.core.billing.getPools({ accountId }, admin.call);
  return pools.find(({ family }) => family === Family.V1)?.postedMicrocredits ?? 0n;
};

/** Moves credits until the pool has this many. */
async function leave(microcredits: bigint): Promise<void> {
  const { accountId, admin } = gateway;
  const amountMicrocredits = microcredits - (await posted());
  if (amountMicrocredits === 0n) return;
  const transfer = {
    accountId,
    family: Family.V1,
    kind: TransferKind.ADJUSTMENT,
    amountMicrocredits,
    idempotencyKey: crypto.randomUUID(),
  };
  await admin.core.billing.createTransfer(transfer, admin.call);
}

/** More than 16 times a hold for 60,000 tokens of output, at 700 micro-credits each. */
const full = 1_000_000_000n;

type Form = {
  path: string;
  stream: boolean;
  maxTokens?: number;
  requestId?: string;
  secret?: string;
};
const nativeForm: Form = { path: "/v1/messages", stream: true };

/** Sends a request and records the status and the text as they arrive. */
function send(form: Form, hangUp = new AbortController()) {
  const { path, stream, maxTokens = 50, requestId, secret = gateway.v1 } = form;
  const seen = { status: 0, text: "" };
  const headers = {
    ...(path === "/v1/messages"
      ? { "x-api-key": secret, "anthropic-version": "2023-06-01" }
      : { authorization: `Bearer ${secret}` }),
    ...(requestId !== undefined && { "x-request-id": requestId }),
    "content-type": "application/json",
  };
  const content = "Hello";
  const message = { model: "haiku", max_tokens: maxTokens, stream };
  const body = JSON.stringify({ ...message, messages: [{ role: "user", content }] });
  const done = (async () => {
    const { signal } = hangUp;
    const answer = await fetch(gateway.address + path, { method: "POST", headers, body, signal });
    seen.status = answer.status;
    seen.text = await answer.text();
  })();
  return { seen, done };
}

let heldAtMs = 0;

/**
 * Holds the clock at the present time or, by `aheadMs`, later. With each look at it, it moves on by
 * a nanosecond: a cache takes a secret only from a read that began after the key's last change.
 */
function holdClock(aheadMs = 0): void {
  vi.restoreAllMocks();
  heldAtMs = Math.max(heldAtMs, performance.now()) + aheadMs;
  vi.spyOn(performance, "now").mockImplementation(() => {
    heldAtMs += 1e-6;
    return heldAtMs;
  });
}

beforeEach(async () => {
  // So that no test has the unpaid calls of the one before.
  holdClock(60_001);
  provider.always(nativeStream({ text: ["Hi"] }));
  await leave(full);
  const warmUp = send(nativeForm);
  await warmUp.done;
  expect(warmUp.seen.status).toBe(200);
});

const charges = async () => {
  const rows = await lock.database.query("select outcome, amount from charges order by settled_at");
  return rows.rows;
};

const forms = [
  { name: "native stream", ...nativeForm, end: "message_stop" },
  { name: "native answer", path: "/v1/messages", stream: false, end: '"stop_reason":"end_turn"' },
  {
    name: "chat stream",
    path: "/v1/chat/completions",
    stream: true,
    end: '"finish_reason":"stop"',
  },
  {
    name: "chat answer",
    path: "/v1/chat/completions",
    stream: false,
    end: '"finish_reason":"stop"',
  },
];

describe("while the hold is being placed", () => {
  for (const form of forms) {
    test(`${form.name}: the provider answers to its end, and nothing of it leaves`, async () => {
      const called = provider.requests.length;
      await lock.stall();
      const { seen, done } = send(form);
      const early = await provider.received(called + 1);
      expect((await early.over).by).toBe("provider");
      await lock.stalled();
      for (let look = 0; look < 3; look++) {
        expect(seen).toEqual({ status: 0, text: "" });
        expect((await lock.database.query("select 1 from holds")).rows).toHaveLength(0);
      }
      await lock.release();
      await done;
      expect(seen).toMatchObject({ status: 200, text: expect.stringContaining(form.end) });
      expect(provider.requests).toHaveLength(called + 1);
    });
  }

  test("a client that leaves pays nothing, and its call is stopped", async () => {
    const charged = (await charges()).length;
    const before = new Gate();
    provider.play(nativeStream({ text: ["Hi"] }, { before }));
    const called = provider.requests.length;
    await lock.stall();
    const hangUp = new AbortController();
    const { done } = send(nativeForm, hangUp);
    const early = await provider.received(called + 1);
    await lock.stalled();
    hangUp.abort();
    await expect(done).rejects.toThrow("abort");
    expect((await early.over).by).toBe("client");
    await lock.release();
    before.open();
    await vi.waitFor(async () => expect(await charges()).toHaveLength(charged + 1));
    expect((await charges()).at(-1)).toMatchObject({
      outcome: "client_left_before_acceptance",
      amount: "0",
    });
    expect(provider.requests).toHaveLength(called + 1);
  });

  test("a call that fails is repeated only once the hold is durable", async () => {
    const failure = nativeAnswer({}, { status: 529 });
    provider.play(failure);
    const called = provider.requests.length;
    await lock.stall();
    const { seen, done } = send(nativeForm);
    const early = await provider.received(called + 1);
    await early.over;
    await lock.stalled();
    for (let look = 0; look < 3; look++) {
      await lock.database.query("select 1");
      expect(provider.requests).toHaveLength(called + 1);
    }
    await lock.release();
    await done;
    expect(seen).toMatchObject({ status: 200, text: expect.stringContaining("message_stop") });
    expect(provider.requests).toHaveLength(called + 2);
  });
});

/** Sends a request whose provider works while a transfer leaves the pool with so many credits. */
async function sendWhileLeaving(microcredits: bigint, form: Form) {
  const before = new Gate();
  provider.play(nativeStream({ text: ["Hi"] }, { before }));
  const called = provider.requests.length;
  await lock.stall();
  const leaving = leave(microcredits);
  await lock.stalled();
  const { seen, done } = send(form);
  const early = await provider.received(called + 1);
  await lock.release();
  await leaving;
  // The call of the first attempt waits at its gate until it is stopped.
  expect((await early.over).by).toBe("client");
  before.open();
  await done;
  const calls = provider.requests.slice(called).filter(({ path }) => path === "/v1/messages");
  return { seen, calls };
}

describe("a pool that empties between two looks", () => {
  test("fails the request as it would have without the call, and charges nothing", async () => {
    const charged = (await charges()).length;
    const { seen, calls } = await sendWhileLeaving(1n, nativeForm);
    expect(seen).toMatchObject({
      status: 402,
      text: expect.stringContaining("credits_exhausted"),
    });
    expect(calls).toHaveLength(1);
    expect(await charges()).toHaveLength(charged);
    expect((await lock.database.query("select 1 from holds")).rows).toHaveLength(0);
  });

  test("is answered by a second call with the smaller grant, and charged once", async () => {
    const charged = (await charges()).length;
    // At 700 micro-credits a token, these cover 5,000 tokens of output.
    const { seen, calls } = await sendWhileLeaving(3_500_000n, {
      ...nativeForm,
      maxTokens: 60_000,
    });
    expect(seen).toMatchObject({ status: 200, text: expect.stringContaining("message_stop") });
    expect(calls).toHaveLength(2);
    expect(calls[0]?.body.max_tokens).toBe(60_000);
    expect(Number(calls[1]?.body.max_tokens)).toBeLessThan(5_000);
    expect(await charges()).toHaveLength(charged + 1);
  });

  test("looks up its id in the second attempt: the first may have been committed unseen", async () => {
    const first = vi.spyOn(HoldKeeper.prototype, "placeFull");
    const second = vi.spyOn(HoldKeeper.prototype, "place");
    await sendWhileLeaving(1n, nativeForm);
    const [[tried] = []] = first.mock.calls;
    expect(tried).toMatchObject({ hasNewId: true });
    expect(second.mock.calls.map(([request]) => request)).toMatchObject([
      { requestId: tried?.requestId, hasNewId: false },
    ]);
  });

  test("is no failure of its provider, and leaves its concurrency free", async () => {
    for (let time = 0; time < 12; time++) {
      const { seen } = await sendWhileLeaving(1n, nativeForm);
      expect(seen.status).toBe(402);
      holdClock(60_001);
      await leave(full);
      const { seen: next, done } = send(nativeForm);
      await done;
      expect(next.status).toBe(200);
    }
  });
});

type Order = "overlap" | "strict";

/** Overlap: the provider is called while the hold is being placed. Strict: once it is durable. */
async function expectOrder(order: Order, form: Form): Promise<void> {
  const called = provider.requests.length;
  await lock.stall();
  const { seen, done } = send(form);
  await lock.stalled();
  if (order === "overlap") await provider.received(called + 1);
  for (let look = 0; look < 3 && order === "strict"; look++) {
    await lock.database.query("select 1");
    expect(provider.requests).toHaveLength(called);
  }
  await lock.release();
  await done;
  expect(seen.status).toBe(200);
  expect(provider.requests).toHaveLength(called + 1);
}

describe("the strict order is kept", () => {
  test("for a key with five calls in a minute that nobody paid for", async () => {
    for (let time = 0; time < 5; time++) {
      await sendWhileLeaving(1n, nativeForm);
      holdClock();
      await leave(full);
      await send(nativeForm).done;
    }
    await expectOrder("strict", nativeForm);
    holdClock(60_001);
    await send(nativeForm).done;
    await expectOrder("overlap", nativeForm);
  });

  test("for a request id that the client proposes", async () => {
    const requestId = `req_${crypto.randomUUID()}`;
    await expectOrder("strict", { ...nativeForm, requestId });
  });

  test("for a hold above a sixteenth of what is free", async () => {
    holdClock();
    await leave(50n * 700n * 15n);
    const { seen, done } = send(nativeForm);
    await done;
    expect(seen.status).toBe(200);
    await expectOrder("strict", nativeForm);
  });

  test("when the last admission of the pool is more than a second old", async () => {
    holdClock(1_001);
    await expectOrder("strict", nativeForm);
  });

  test.for([
    ["whose month is not known", 1_000_000_000n, ["strict", "overlap"]],
    ["whose month leaves less than sixteen such holds", 50n * 700n * 15n, ["strict", "strict"]],
  ] as const)("for a key with a cap %s", async ([, monthlyCapMicrocredits, orders]) => {
    const { accountId, admin } = gateway;
    const settings = { name: "capped", monthlyCapMicrocredits };
    const request = { accountId, family: Family.V1, settings };
    const { secret } = await admin.core.keys.createKey(request, admin.call);
    const form = { ...nativeForm, secret };
    for (const order of orders) await expectOrder(order, form);
  });
});
