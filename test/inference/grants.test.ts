// A provider that exceeds the granted output is stopped, and its client pays for the grant.

import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { countTokens } from "gpt-tokenizer";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  type Event,
  EventSchema,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { progress } from "../../src/formats/events.ts";
import { events, freshInference, type TestInference } from "../support/inference.ts";
import { log } from "../support/ledger.ts";

const input = 140n;
const output = 700n;
const usage = { inputTokens: 11 };

let gateway: TestInference;
let payer: Payer;
beforeAll(async () => {
  gateway = await freshInference();
  payer = await gateway.payer(1_000_000_000_000n);
});
afterAll(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
  await gateway.close();
});

const runningAt = (outputTokens: number): Event =>
  progress({ usage: create(ReportedUsageSchema, { outputTokens }) });

/** Plays these reads and then silence. Returns whether the provider was stopped. */
function play(reads: readonly Event[][]): { stopped: () => boolean } {
  let signal: AbortSignal | undefined;
  gateway.plays(async function* (request) {
    signal = request.signal;
    request.onAccepted(true);
    yield* reads;
    // A stopped provider sends no more events, not even the end.
    if (reads.at(-1)?.at(-1)?.kind.case !== "messageStop") yield await new Promise<never>(() => {});
  });
  return { stopped: () => signal?.aborted === true };
}

async function run(reads: readonly Event[][], maxTokens: number) {
  const { stopped } = play(reads);
  const { seen, receipt } = await gateway.collect(gateway.generate(payer, { maxTokens }));
  const shown = seen.flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : []));
  const text = shown.map(({ kind }) =>
    kind.case === "blockDelta" && kind.value.kind.case === "text" ? kind.value.kind.value : "",
  );
  return { stopped: stopped(), receipt, shown, text: text.join("") };
}

function cutInto(all: readonly Event[], cuts: readonly number[]): Event[][] {
  const places = [0, ...cuts.map((cut) => cut % (all.length + 1)), all.length];
  places.sort((one, other) => one - other);
  return places
    .slice(1)
    .map((to, index) => all.slice(places[index], to))
    .filter((read) => read.length > 0);
}

describe("a provider that exceeds its grant", () => {
  test("is stopped by its own count: the answer ends with max_tokens and costs the grant", async () => {
    const reads = [
      [events.start(usage), events.open(), events.text("one "), runningAt(100)],
      [events.text("two "), runningAt(356)],
      [events.text("three "), runningAt(357)],
      [events.text("four ")],
    ];
    const alarm = vi.spyOn(log, "error");
    const { stopped, receipt, shown, text } = await run(reads, 100);
    expect(stopped).toBe(true);
    expect(alarm.mock.lastCall?.[0]).toMatchObject({
      code: "provider_past_grant",
      provider: "played",
      grantedOutput: 100,
      tokens: 357,
    });
    alarm.mockRestore();
    expect(text).toBe("one two three ");
    expect(shown.slice(-3).map(({ kind }) => kind)).toMatchObject([
      { case: "blockStop", value: { index: 0 } },
      {
        case: "messageDelta",
        value: { stopReason: "max_tokens", usage: { inputTokens: 11, outputTokens: 100 } },
      },
      { case: "messageStop" },
    ]);
    expect(receipt).toMatchObject({
      outcome: Outcome.COMPLETED,
      usage: { input: 11, output: 100 },
      reportedUsage: { output: 357 },
      chargedMicrocredits: 11n * input + 100n * output,
      overrunMicrocredits: 257n * output,
    });
  });

  test("is stopped by our count if it reports none, at the same event in any reads", async () => {
    const all = [
      events.start(usage),
      events.open(),
      ...Array.from({ length: 40 }, (_, index) => events.text(`${index}`.padStart(200, "x"))),
    ];
    // 4 bytes × (2 × 100 + 1,024) are 4,896: the 25th piece crosses.
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(), { maxLength: 6 }), async (cuts) => {
        const { stopped, receipt, text } = await run(cutInto(all, cuts), 100);
        expect([stopped, text.length]).toEqual([true, 24 * 200]);
        expect(receipt).toMatchObject({
          usage: { input: 11, output: 100 },
          chargedMicrocredits: 11n * input + 100n * output,
        });
      }),
      { numRuns: 20 },
    );
  });

  test("is charged the grant where its running count stands still, and shows that", async () => {
    for (const running of [1, 100]) {
      const reads = [
        [events.start(usage), events.open(), runningAt(running)],
        ...Array.from({ length: 40 }, () => [events.text("x".repeat(200))]),
      ];
      const { receipt, shown } = await run(reads, 100);
      expect(receipt).toMatchObject({ usage: { input: 11, output: 100 } });
      expect(shown.at(-2)?.kind).toMatchObject({
        value: { stopReason: "max_tokens", usage: { inputTokens: 11, outputTokens: 100 } },
      });
    }
  });

  test("after its stop reason is stopped as well, and what it sent keeps its order", async () => {
    const stopReason = progress({ stopReason: "end_turn" });
    const all = [events.start(usage), events.open(), events.text("a"), stopReason];
    all.push(events.text("b"), events.text("c"), events.text("d".repeat(5_000)));
    for (const reads of [[all], [all.slice(0, 5), all.slice(5)], all.map((event) => [event])]) {
      const { stopped, text } = await run(reads, 100);
      expect([stopped, text]).toEqual([true, "abc"]);
    }
  });

  test("is delivered completely if its answer comes in one piece, and costs the grant", async () => {
    const long = "x".repeat(10_000);
    gateway.plays(async function* () {
      yield [
        events.start(usage),
        create(EventSchema, {
          kind: {
            case: "blockStart",
            value: { index: 0, block: { kind: { case: "text", value: { text: long } } } },
          },
        }),
        events.close(),
        events.delta({ inputTokens: 11, outputTokens: 2_500 }),
        events.stop(),
      ];
    });
    const { receipt, shown } = await gateway.collect(gateway.generate(payer, { maxTokens: 100 }));
    expect(shown).toContain("blockStart");
    expect(receipt).toMatchObject({ usage: { output: 100 }, reportedUsage: { output: 2_500 } });
  });
});

const samples: Readonly<Record<string, string>> = {
  prose: "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. ",
  "indented code": "        if (value === undefined) {\n                return;\n        }\n",
  "a table":
    "| name              | amount   | unit     |\n|-------------------|---------:|----------|\n",
  Chinese: "机器学习模型的输出通常以词元计费，因此网关必须准确地计算每一个词元。",
  base64:
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO",
};
for (const [name, sample] of Object.entries(samples)) {
  test(`${name} that uses exactly its grant is never cut`, async () => {
    for (const repeats of [1, 30, 300]) {
      const whole = sample.repeat(repeats);
      const granted = countTokens(whole);
      const pieces = whole.match(/[\s\S]{1,50}/g) ?? [];
      const reads = [
        [events.start(usage), events.open()],
        ...pieces.map((piece) => [events.text(piece)]),
        [events.close(), events.delta({ outputTokens: granted }), events.stop()],
      ];
      const { receipt, text } = await run(reads, granted);
      expect(text).toBe(whole);
      expect(receipt).toMatchObject({ usage: { output: granted }, overrunMicrocredits: 0n });
    }
  });
}

test("a last report of 0 input tokens is charged as reported, counted and logged", async () => {
  const warning = vi.spyOn(log, "warn");
  const before = gateway.inference.counters.providerReportedZero;
  const reads = [
    [events.start({ inputTokens: 0 }), events.open(), events.text("continued")],
    [events.close(), events.delta({ inputTokens: 0, outputTokens: 2 }), events.stop()],
  ];
  const { receipt } = await run(reads, 100);
  expect(receipt).toMatchObject({
    usage: { input: 0, output: 2 },
    chargedMicrocredits: 2n * output,
  });
  expect(gateway.inference.counters.providerReportedZero).toBe(before + 1);
  expect(warning.mock.lastCall?.[0]).toMatchObject({
    code: "provider_reported_zero",
    provider: "played",
  });
  warning.mockRestore();
});
