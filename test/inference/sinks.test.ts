// The sinks of an answer: however much they take of it at once, and whenever they fall behind, the
// client gets the same and pays the same.

import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import type { Sink } from "../../src/contract/generation.ts";
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

/** A sink that writes for a client of the native format. `takes`: what each write returns. */
class NativeSink implements Sink {
  readonly takesRuns: boolean;
  readonly kinds: Event["kind"]["case"][] = [];
  readonly #takes: () => boolean;
  readonly #encoder = createEventEncoder({ model: "m", estimatedInputTokens: 1, showCost: false });
  admission: Admission | undefined;
  bytes = "";
  /** Writes after one that returned false, and before `drained`. */
  early = 0;
  #isBehind = false;

  constructor(takesRuns: boolean, takes: () => boolean = () => true) {
    this.takesRuns = takesRuns;
    this.#takes = takes;
  }

  accepted(): void {}

  admit(admission: Admission): void {
    this.admission = admission;
  }

  write(events: Event[]): boolean {
    const isEnd = events.some(({ kind }) => kind.case === "messageStop");
    if (this.#isBehind && !isEnd) this.early++;
    this.kinds.push(...events.map(({ kind }) => kind.case));
    this.bytes += this.#encoder.encode(events);
    this.#isBehind = !this.#takes();
    return !this.#isBehind;
  }

  async drained(): Promise<void> {
    await setImmediate();
    this.#isBehind = false;
  }
}

/** The bytes that a client of the native format gets, and what it pays. */
async function run(model: string, maxTokens: number, sink: NativeSink) {
  const more = { model, maxTokens };
  const {
    usage,
    chargedMicrocredits: amountMicrocredits,
    outcome,
  } = await gateway.generateInto(sink, payer, { more });
  return {
    sent: sink.bytes.replaceAll(/"id":"\w+"/g, '"id":""'),
    paid: { usage, amountMicrocredits, outcome },
  };
}

/** The same over messages. */
async function runOverMessages(model: string, maxTokens: number) {
  const sink = new NativeSink(false);
  const { shown, seen, receipt } = await gateway.collect(
    gateway.generate(payer, { model, maxTokens }),
  );
  expect(shown.length).toBeGreaterThan(0);
  for (const { kind } of seen) if (kind.case === "events") sink.write(kind.value.events);
  const { usage, chargedMicrocredits: amountMicrocredits, outcome } = receipt ?? {};
  return {
    sent: sink.bytes.replaceAll(/"id":"\w+"/g, '"id":""'),
    paid: { usage, amountMicrocredits, outcome },
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

test("whatever a sink takes, in any reads, the client gets and pays the same", async () => {
  const anyAnswer = fc.record({
    model: fc.constantFrom(...Object.keys(scripts)),
    splitBytes: fc.constantFrom(60, 500, 10_000),
    pauseMs: fc.constantFrom(0, 0, 1),
    // The smaller grant ends the answer early.
    maxTokens: fc.constantFrom(50, 1_000),
    takesRuns: fc.boolean(),
    /** The values that its writes return, over and over. */
    takes: fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }),
  });
  await fc.assert(
    fc.asyncProperty(anyAnswer, async ({ model, maxTokens, takesRuns, takes, ...more }) => {
      provider.always(scripts[model]?.(more) ?? {});
      const expected = await runOverMessages(model, maxTokens);
      let writes = 0;
      const sink = new NativeSink(takesRuns, () => takes[writes++ % takes.length] === true);
      expect(await run(model, maxTokens, sink)).toEqual(expected);
      expect(sink.early).toBe(0);
    }),
    { numRuns: 30 },
  );
});

test("a sink that fails ends its answer with an error, and what came before it is charged", async () => {
  provider.always(nativeStream(content, { pauseMs: 1 }));
  let writes = 0;
  const sink = new NativeSink(true, () => {
    if (++writes === 8) throw new Error("a fault of the listener");
    return true;
  });
  const failing = gateway.generateInto(sink, payer);
  await expect(failing).rejects.toMatchObject({
    reason: "internal",
    cause: { message: "a fault of the listener" },
  });
  expect(writes).toBe(8);
  const charge = await gateway.charged(sink.admission?.requestId ?? "");
  expect(charge).toMatchObject({ outcome: Outcome.GATEWAY_FAILED, usage: { input: 20 } });
  expect(charge.chargedMicrocredits).toBeGreaterThan(0n);
});

/** Begins an answer of these steps whose first two events are written. */
async function startStream(writes: readonly WriteStep[], sink: NativeSink) {
  provider.always(nativeStream({}, { writes, pauseMs: 1 }));
  const hangUp = new AbortController();
  const answer = gateway.generateInto(sink, payer, {
    more: { model: "haiku" },
    hangUp,
  });
  answer.catch(() => undefined);
  await vi.waitFor(() => expect(sink.kinds).toEqual(["messageStart", "blockStart"]));
  return { answer, hangUp };
}

test("nothing is written after the reader left", async () => {
  const gate = new Gate();
  const [start = "", open = "", ...others] = nativeEvents({ text: ["1", "2"], noUsage: true });
  const sink = new NativeSink(true);
  const { answer, hangUp } = await startStream([start + open, gate, ...others], sink);
  hangUp.abort();
  gate.open();
  await expect(answer).rejects.toMatchObject({ reason: "cancelled" });
  expect(sink.kinds).toEqual(["messageStart", "blockStart"]);
});

test("what follows the stop reason is written with the end, which is charged first", async () => {
  const gate = new Gate();
  const [start = "", open = "", ...others] = nativeEvents({ text: ["1", "2"] });
  // A start that holds a whole answer, with its reason.
  const complete = start
    .replace('"content":[]', '"content":[{"type":"text","text":"0"}]')
    .replace('"stop_reason":null', '"stop_reason":"end_turn"');
  const writes: number[] = [];
  const sink = new NativeSink(true, () => writes.push(sink.kinds.length) > 0);
  provider.always(nativeStream({}, { writes: [complete, open, gate, ...others], pauseMs: 1 }));
  const answer = gateway.generateInto(sink, payer, { more: { model: "haiku" } });
  await vi.waitFor(() => expect(writes.length).toBe(1));
  gate.open();
  await answer;
  expect(writes.length).toBe(2);
  expect(sink.kinds.at(-1)).toBe("messageStop");
});

test("nothing is written while the ledger has not confirmed a process that was paused", async () => {
  const [first, second] = [new Gate(), new Gate()];
  const [start = "", open = "", one = "", ...others] = nativeEvents({ text: ["1", "2", "3"] });
  const sink = new NativeSink(true);
  const { answer } = await startStream([start + open, first, one, second, ...others], sink);
  const confirmed = Promise.withResolvers<void>();
  confirmAlive.mockClear().mockReturnValue(confirmed.promise);
  first.open();
  await vi.waitFor(() => expect(confirmAlive).toHaveBeenCalled());
  await setImmediate();
  expect(sink.kinds).toHaveLength(2);
  confirmAlive.mockReturnValue(undefined);
  confirmed.resolve();
  await vi.waitFor(() => expect(sink.kinds).toHaveLength(3));
  second.open();
  await answer;
  expect(sink.kinds.at(-1)).toBe("messageStop");
});

test("nothing that waited is written once the process was declared dead", async () => {
  const gate = new Gate();
  const [start = "", open = "", ...others] = nativeEvents({ text: ["1", "2"] });
  const sink = new NativeSink(true);
  const { answer } = await startStream([start + open, gate, ...others], sink);
  const confirmed = Promise.withResolvers<void>();
  confirmAlive.mockClear().mockReturnValue(confirmed.promise);
  gate.open();
  await vi.waitFor(() => expect(confirmAlive).toHaveBeenCalled());
  const cancelled = gateway.inference.cancelAll("declared dead");
  confirmAlive.mockReturnValue(undefined);
  confirmed.resolve();
  await expect(answer).rejects.toMatchObject({ reason: "gateway_unavailable" });
  await cancelled;
  expect(sink.kinds).toEqual(["messageStart", "blockStart"]);
});

/** Begins an answer whose hold is placed while its provider is called. */
async function overlapped(sink: NativeSink, hangUp = new AbortController()) {
  provider.always(nativeStream(content));
  // Shows that the pool can pay.
  await gateway.generateInto(new NativeSink(true), payer);
  const called = provider.requests.length;
  const answer = gateway.generateInto(sink, payer, {
    more: { maxTokens: 5_000 },
    isNewId: true,
    hangUp,
  });
  answer.catch(() => undefined);
  return { answer, called };
}

test("nothing of an overlapped answer is written before the ledger has confirmed the process", async () => {
  const sink = new NativeSink(true);
  const confirmed = Promise.withResolvers<void>();
  const { answer } = await overlapped(sink);
  confirmAlive.mockClear().mockReturnValue(confirmed.promise);
  await vi.waitFor(() => expect(confirmAlive).toHaveBeenCalled());
  await setImmediate();
  expect([sink.admission?.model, sink.kinds]).toEqual([expect.any(String), []]);
  confirmAlive.mockReturnValue(undefined);
  confirmed.resolve();
  await answer;
  expect(sink.kinds.at(-1)).toBe("messageStop");
});

test("a sink that fails at an overlapped answer ends it with an error, and costs nothing", async () => {
  const sink = new NativeSink(true, () => {
    throw new Error("a fault of the listener");
  });
  const { answer } = await overlapped(sink);
  await expect(answer).rejects.toThrow();
  expect(await gateway.charged(sink.admission?.requestId ?? "")).toMatchObject({
    outcome: Outcome.GATEWAY_FAILED,
    chargedMicrocredits: 0n,
  });
});

test("no provider is called for a client that is gone before its hold", async () => {
  const hangUp = new AbortController();
  hangUp.abort();
  const { answer, called } = await overlapped(new NativeSink(true), hangUp);
  await expect(answer).rejects.toMatchObject({ reason: "cancelled" });
  expect(provider.requests.length).toBe(called);
});
