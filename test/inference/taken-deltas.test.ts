// Deltas that a listener of the same process takes as they come, beside the messages of the answer:
// the client gets the same, and pays the same.

import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import type { TakeDeltas } from "../../src/contract/contract.ts";
import { createEventEncoder } from "../../src/formats/native/native.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { freshInference, type TestInference } from "../support/inference.ts";
import {
  type FakeProvider,
  Gate,
  type Script,
  startFakeProvider,
  type WriteStep,
} from "../support/provider.ts";
import { chatStream, nativeEvents, nativeStream } from "../support/provider-answers.ts";
import { openBothKinds } from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
let gateway: TestInference;
let payer: Payer;
const confirmAlive = vi.fn<() => Promise<void> | undefined>();
beforeAll(async () => {
  provider = await startFakeProvider();
  providers = openBothKinds(provider.url);
  gateway = await freshInference({ providers, confirmAlive });
  payer = await gateway.payer(1_000_000_000_000n);
});
afterAll(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
  await gateway.close();
  await providers.close();
  await provider.stop();
});

/** The bytes that a client of the native format gets, and what it pays. */
async function run(model: string, maxTokens: number, take?: TakeDeltas) {
  const encoder = createEventEncoder({ model, estimatedInputTokens: 1, showCost: false });
  let bytes = "";
  const taken: Event["kind"]["case"][] = [];
  const takeDeltas: TakeDeltas = (deltas) => {
    if (take?.(deltas) !== true) return false;
    bytes += encoder.encode(deltas);
    taken.push(...deltas.map(({ kind }) => kind.case));
    return true;
  };
  const request = { model, maxTokens, stream: true };
  const answer = gateway.generate(payer, request, new AbortController(), takeDeltas);
  const { receipt } = await gateway.collect(
    (async function* () {
      for await (const message of answer) {
        if (message.kind.case === "events") bytes += encoder.encode(message.kind.value.events);
        yield message;
      }
    })(),
  );
  const { usage, amountMicrocredits, outcome } = receipt ?? {};
  return {
    sent: bytes.replaceAll(/"id":"\w+"/g, '"id":""'),
    paid: { usage, amountMicrocredits, outcome },
    taken,
  };
}

const content = {
  thinking: { pieces: ["Hm", "m…"] },
  text: ["Grüße ", "🙂 ", '"dir" ', "x".repeat(2_000), "und ", "y".repeat(3_000), "ihm"],
  tool: { name: "get_weather", input: ['{"city":"Å', 'lesund"}'] },
  usage: { input: 20, output: 9 },
};
const scripts: Readonly<Record<string, (more: Script) => Script>> = {
  haiku: (more) => nativeStream(content, more),
  sonnet: (more) => chatStream(content, more),
};

test("whichever deltas are taken, in any reads, the client gets and pays the same", async () => {
  const anyAnswer = fc.record({
    model: fc.constantFrom(...Object.keys(scripts)),
    splitBytes: fc.constantFrom(60, 500, 10_000),
    pauseMs: fc.constantFrom(0, 0, 1),
    // The smaller grant ends the answer early.
    maxTokens: fc.constantFrom(50, 1_000),
    /** What is taken of the reads, over and over. */
    takes: fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }),
  });
  await fc.assert(
    fc.asyncProperty(anyAnswer, async ({ model, maxTokens, takes, ...more }) => {
      provider.always(scripts[model]?.(more) ?? {});
      const expected = await run(model, maxTokens);
      let reads = 0;
      const take = () => takes[reads++ % takes.length] === true;
      const { taken, ...got } = await run(model, maxTokens, take);
      expect(expected.taken).toEqual([]);
      expect(got).toEqual({ sent: expected.sent, paid: expected.paid });
      // All else waits for the hold or the charge.
      expect(taken.filter((kind) => kind !== "blockDelta")).toEqual([]);
    }),
    { numRuns: 30 },
  );
});

test("a taker that fails ends its answer with an error, and what came before it is charged", async () => {
  provider.always(nativeStream(content, { pauseMs: 1 }));
  const take = vi
    .fn<TakeDeltas>()
    .mockReturnValueOnce(true)
    .mockImplementation(() => {
      throw new Error("a fault of the listener");
    });
  const answer = gateway.generate(payer, { stream: true }, new AbortController(), take);
  const { admission, receipt, failure } = await gateway.collect(answer);
  expect(failure).toMatchObject({ reason: "internal" });
  expect([receipt, take.mock.calls.length]).toEqual([undefined, 2]);
  const charge = await gateway.charged(admission?.requestId ?? "");
  expect(charge).toMatchObject({ outcome: Outcome.GATEWAY_FAILED, usage: { input: 20 } });
  expect(charge.amountMicrocredits).toBeGreaterThan(0n);
});

/** Begins an answer of these steps, and reads its first events. */
async function startStream(writes: readonly WriteStep[], take: TakeDeltas) {
  provider.always(nativeStream({}, { writes, pauseMs: 1 }));
  const iterator = gateway
    .generate(payer, { model: "haiku", stream: true }, new AbortController(), take)
    [Symbol.asyncIterator]();
  const admission = await iterator.next();
  const first = await iterator.next();
  expect([admission, first].map(({ value }) => value?.kind.case)).toEqual(["admission", "events"]);
  return iterator;
}

test("no delta is taken after its reader left", async () => {
  const gate = new Gate();
  const [start = "", open = "", ...others] = nativeEvents({ text: ["1", "2"], noUsage: true });
  const take = vi.fn(() => true);
  const writes = [start + open, gate, ...others];
  const iterator = await startStream(writes, take);
  // Without content, the provider may still report the input.
  const returned = iterator.return?.();
  gate.open();
  await returned;
  expect(take).not.toHaveBeenCalled();
});

test("no delta is taken after the stop reason: it belongs to the end, which is charged first", async () => {
  const gate = new Gate();
  const [start = "", open = "", ...others] = nativeEvents({ text: ["1", "2"] });
  // A start that holds a whole answer, with its reason.
  const complete = start
    .replace('"content":[]', '"content":[{"type":"text","text":"0"}]')
    .replace('"stop_reason":null', '"stop_reason":"end_turn"');
  const take = vi.fn(() => true);
  const steps = [complete, open, gate, ...others];
  const iterator = await startStream(steps, take);
  gate.open();
  const kinds: unknown[] = [];
  for (let read = await iterator.next(); !read.done; read = await iterator.next())
    kinds.push(read.value.kind.case);
  expect(kinds).toEqual(["events", "receipt"]);
  expect(take).not.toHaveBeenCalled();
});

test("no delta is taken while the ledger has not confirmed a process that was paused", async () => {
  const [first, second] = [new Gate(), new Gate()];
  const [start = "", open = "", one = "", ...others] = nativeEvents({ text: ["1", "2", "3"] });
  const writes = [start + open, first, one, second, ...others];
  provider.always(nativeStream({}, { writes, pauseMs: 1 }));
  const seen: string[] = [];
  const take = vi.fn(() => true);
  const answer = gateway.generate(payer, { stream: true }, new AbortController(), take);
  const reading = (async () => {
    for await (const { kind } of answer) seen.push(kind.case ?? "");
  })();
  await first.reached;
  await vi.waitFor(() => expect(seen.at(-1)).toBe("events"));
  const [before, confirmed] = [seen.length, Promise.withResolvers<void>()];
  confirmAlive.mockClear().mockReturnValue(confirmed.promise);
  first.open();
  await vi.waitFor(() => expect(confirmAlive).toHaveBeenCalled());
  await setImmediate();
  expect(take).not.toHaveBeenCalled();
  expect(seen.length).toBe(before);
  confirmAlive.mockReturnValue(undefined);
  confirmed.resolve();
  await vi.waitFor(() => expect(seen.length).toBe(before + 1));
  second.open();
  await reading;
  expect(take).toHaveBeenCalled();
});
