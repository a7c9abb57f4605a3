// Requests to a real provider over HTTP that are interrupted at any moment, in any way: each is
// charged once, at most its hold, and leaves nothing behind.

import { getEventListeners } from "node:events";
import { setImmediate, setTimeout } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { costMicro } from "../../src/base/cost.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { freshInference, type TestInference } from "../support/inference.ts";
import { type FakeProvider, type Script, startFakeProvider } from "../support/provider.ts";
import { chatStream, nativeAnswer, nativeStream } from "../support/provider-answers.ts";
import { openBothKinds } from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
let gateway: TestInference;
beforeAll(async () => {
  provider = await startFakeProvider();
  // One call at a time: a call that did not release its place would stop all that follow.
  const more = "concurrency: 1, queue: 1, queue_ms: 1000";
  providers = openBothKinds(provider.url, more);
  gateway = await freshInference({ providers });
});
afterAll(async () => {
  await gateway.close();
  await providers.close();
  await provider.stop();
});

const content = {
  text: ["Hello ", "to ", "you, ", "client"],
  usage: { input: 40, output: 9, cacheRead: 3 },
};
const forms: Readonly<Record<string, { model: string; script: (more: Script) => Script }>> = {
  "native, streamed": { model: "haiku", script: (more) => nativeStream(content, more) },
  "native, plain": { model: "haiku", script: (more) => nativeAnswer(content, more) },
  "chat, streamed": { model: "sonnet", script: (more) => chatStream(content, more) },
};

const anyRun = fc.record({
  form: fc.constantFrom(...Object.keys(forms)),
  splitBytes: fc.constantFrom(20, 150, 10_000),
  pauseMs: fc.constantFrom(0, 0, 1),
  by: fc.constantFrom("hang-up", "return", "revocation", "drain", "nothing"),
  /** Messages that are read before the interruption. */
  read: fc.nat({ max: 6 }),
  /** Turns of the event loop between the last of these and the interruption. */
  turns: fc.nat({ max: 12 }),
  /** Pause of the reader before each message. */
  readerMs: fc.constantFrom(0, 0, 1),
  /** Whether deltas are taken as they come. */
});

type Run = typeof anyRun extends fc.Arbitrary<infer T> ? T : never;

/** Each way to interrupt, after the first events. */
const surely = (["hang-up", "return", "revocation", "drain", "nothing"] as const).map(
  (by): [Run] => [
    {
      ...{ form: "native, streamed", splitBytes: 20, pauseMs: 1, by, read: 2, turns: 0 },
      ...{ readerMs: 0 },
    },
  ],
);

async function interrupt({ form, by, read, turns, readerMs, ...script }: Run) {
  const { model, script: scriptOf } = forms[form] ?? forms["native, streamed"] ?? fail();
  provider.always(scriptOf(script));
  const payer = await gateway.payer(1_000_000_000n);
  const hangUp = new AbortController();
  const request = { model, maxTokens: 100, stream: form !== "native, plain" };
  const iterator = gateway.generate(payer, request, hangUp)[Symbol.asyncIterator]();
  const seen: GenerateResponse[] = [];
  const next = async (): Promise<boolean> => {
    if (readerMs > 0) await setTimeout(readerMs);
    const { value, done } = await iterator.next();
    if (value) seen.push(value);
    return done !== true;
  };
  const readAll = async (): Promise<void> => {
    while (await next());
  };

  const reached = Promise.withResolvers<void>();
  const reading = (async () => {
    for (let count = 0; count < read; count++) if (!(await next())) return;
    reached.resolve();
    // A reader is in the middle of a read when it is interrupted, and a `return` waits for it.
    if (by !== "return") await readAll();
  })().finally(reached.resolve);
  reading.catch(() => undefined);
  await reached.promise;
  for (let turn = 0; turn < turns; turn++) await setImmediate();
  if (by === "hang-up") hangUp.abort();
  else if (by === "revocation") gateway.revoke(payer.keyId);
  else if (by === "drain") await gateway.inference.cancelAll("draining");
  await reading.catch(() => undefined);
  await iterator.return?.();
  return { payer, seen, hangUp };
}

function fail(): never {
  throw new Error("no such form");
}

test("a request that is interrupted at any moment has one charge, and leaves nothing behind", async () => {
  await fc.assert(
    fc.asyncProperty(anyRun, async (run) => {
      const { payer, seen, hangUp } = await interrupt(run);
      await vi.waitFor(async () =>
        expect(await gateway.run("select 1 from holds where key_id = $1", [payer.keyId])).toEqual(
          [],
        ),
      );
      const rows = await gateway.run<{ request_id: string }>(
        "select request_id from charges where key_id = $1",
        [payer.keyId],
      );
      const admitted = seen.flatMap(({ kind }) =>
        kind.case === "admission" ? [kind.value.requestId] : [],
      );
      // A request whose reader left before the admission has a charge that the reader did not see.
      if (admitted.length > 0) expect(rows.map((row) => row.request_id)).toEqual(admitted);
      else expect(rows.length).toBeLessThanOrEqual(1);
      for (const { request_id } of rows) {
        const charge = await gateway.charged(request_id);
        expect(charge.chargedMicrocredits).toBeLessThanOrEqual(charge.holdMicrocredits);
        const { usage, price } = charge;
        if (!usage || !price) throw new Error("no usage");
        expect(charge.chargedMicrocredits).toBe(costMicro(price, usage));
        // An end that was shown was charged.
        const shown = seen.flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : []));
        const last = shown.findLast(({ kind }) => kind.case === "messageDelta")?.kind;
        if (last?.case !== "messageDelta") continue;
        expect(charge.outcome).toBe(Outcome.COMPLETED);
        const start = shown[0]?.kind;
        const reported = start?.case === "messageStart" ? start.value.usage : undefined;
        const { inputTokens = reported?.inputTokens, outputTokens } = last.value.usage ?? {};
        expect([inputTokens, outputTokens]).toEqual([usage.input, usage.output + usage.thinking]);
      }
      expect(getEventListeners(hangUp.signal, "abort")).toEqual([]);
      await gateway.inference.cancelAll("draining");
    }),
    { numRuns: 60, examples: surely },
  );
  expect(await gateway.store.verifyLedger()).toEqual([]);
  // Every place is free again.
  for (const { model, script } of Object.values(forms)) {
    provider.always(script({}));
    const payer = await gateway.payer(1_000_000_000n);
    const { receipt } = await gateway.collect(gateway.generate(payer, { model }));
    expect(receipt?.outcome).toBe(Outcome.COMPLETED);
  }
});
