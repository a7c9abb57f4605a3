// Laws of the charge, over any answers: of what a provider reports and an account is handed.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type Event,
  EventSchema,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import { costMicro } from "../../src/base/cost.ts";
import { chargedUsage } from "../../src/billing/billing.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { progress } from "../../src/formats/events.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import type { EndingName } from "../../src/inference/endings.ts";
import { Metered, metered } from "../support/metered.ts";
import {
  type AnswerContent,
  chatStream,
  nativeStream,
  responsesStream,
} from "../support/provider-answers.ts";

type Report = Exclude<MessageInitShape<typeof ReportedUsageSchema>, { $typeName: string }>;

const eventOf = (kind: MessageInitShape<typeof EventSchema>["kind"]): Event =>
  create(EventSchema, kind ? { kind } : {});
const start = (usage: Report) => eventOf({ case: "messageStart", value: { id: "m", usage } });
const delta = (usage: Report) =>
  eventOf({ case: "messageDelta", value: { stopReason: "end_turn", usage } });
const report = (usage: Report) => progress({ usage: create(ReportedUsageSchema, usage) });
const text = (value: string) =>
  eventOf({ case: "blockDelta", value: { index: 0, kind: { case: "text", value } } });
const thought = (value: string) =>
  eventOf({ case: "blockDelta", value: { index: 0, kind: { case: "thinking", value } } });
const stop = eventOf({ case: "messageStop", value: {} });
const result = (content: string) =>
  eventOf({
    case: "blockStart",
    value: {
      index: 1,
      block: { kind: { case: "other", value: { type: "web_search_tool_result", content } } },
    },
  });
const citation = (cited: string) =>
  eventOf({
    case: "blockDelta",
    value: { index: 0, kind: { case: "other", value: { type: "citations_delta", cited } } },
  });

const tokens = fc.integer({ min: 1, max: 50_000 });
const input = fc.record({
  inputTokens: tokens,
  cacheReadInputTokens: tokens,
  cacheCreationInputTokens: tokens,
});
const names = ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"] as const;
const pieces = fc.array(
  fc.oneof(fc.string({ minLength: 1, maxLength: 9 }).map(text), fc.constant(thought("hm, well"))),
  { minLength: 1, maxLength: 6 },
);
const price = {
  input: 5_000n,
  output: 25_000n,
  thinking: 30_000n,
  cacheWrite5m: 6_000n,
  cacheWrite1h: 10_000n,
  cacheRead: 1_000n,
  webSearch: 1_000n,
};

function costOf(answer: Metered, ending: EndingName, isPlain = false): bigint {
  return costMicro(price, chargedUsage(answer.billedAt(ending, isPlain).usage, 2 ** 31 - 1));
}

test("a 0 for an input category in any later report changes no charge", () => {
  fc.assert(
    fc.property(
      input,
      pieces,
      tokens,
      fc.subarray([...names]),
      fc.constantFrom("ahead", "end", "both"),
      (first, content, outputTokens, zeros, place) => {
        const zeroed = Object.fromEntries(zeros.map((name) => [name, 0]));
        const answer = (late: Report) => [
          start(first),
          ...content,
          ...(place === "end" ? [] : [report(late)]),
          delta({ outputTokens, ...(place === "ahead" ? {} : late) }),
          stop,
        ];
        expect(metered(answer(zeroed)).billedAt("complete")).toEqual(
          metered(answer({})).billedAt("complete"),
        );
      },
    ),
  );
});

test("results of tools, citations and unknown blocks change no charge and no cut", () => {
  fc.assert(
    fc.property(pieces, fc.integer({ min: 0, max: 200_000 }), (content, size) => {
      const answer = (bytes: number) => {
        const read = new Metered({}, 100);
        read.read([start({ inputTokens: 10 }), result("x".repeat(bytes))]);
        read.read([citation("y".repeat(bytes)), ...content]);
        return { billed: read.billedAt("left"), isCut: read.isCut };
      };
      expect(answer(size)).toEqual(answer(0));
      expect(answer(size).isCut).toBe(false);
    }),
    { numRuns: 30 },
  );
});

test("an unsplit output is divided by the counted shares, whether the client stays or leaves", () => {
  const bytes = fc.integer({ min: 1, max: 100 });
  fc.assert(
    fc.property(bytes, bytes, fc.integer({ min: 101, max: 500 }), (answer, thinking, output) => {
      const read = [
        start({ inputTokens: 10 }),
        thought("t".repeat(4 * thinking)),
        text("a".repeat(4 * answer)),
      ];
      const stayed = metered([...read, delta({ outputTokens: output }), stop]);
      const left = metered([...read, report({ outputTokens: output })]);
      const { usage } = stayed.billedAt("complete");
      expect(usage.output + usage.thinking).toBe(output);
      const share = thinking / (thinking + answer);
      expect(Math.abs(usage.thinking / output - share)).toBeLessThan(0.5 / output + 1e-9);
      if (output >= thinking + answer)
        expect(left.billedAt("left").usage).toMatchObject({
          output: usage.output,
          thinking: usage.thinking,
        });
    }),
  );
});

test("the same answer costs the same, plain or streamed, and in one read or in many", () => {
  fc.assert(
    fc.property(input, pieces, tokens, (usage, content, outputTokens) => {
      const events = [start(usage), ...content, delta({ outputTokens }), stop];
      const one = new Metered();
      for (const event of events) one.read([event]);
      const whole = metered(events).billedAt("complete", true);
      expect(one.billedAt("complete", false)).toEqual(whole);
    }),
  );
});

const anyAnswer: fc.Arbitrary<AnswerContent> = fc
  .record({
    text: fc.array(fc.string({ minLength: 1, maxLength: 9, unit: "grapheme" }), { maxLength: 4 }),
    thinking: fc.option(fc.array(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 3 })),
    hasTool: fc.boolean(),
    usage: fc.option(fc.record({ input: tokens, output: tokens, cacheRead: tokens })),
  })
  .map(({ text, thinking, hasTool, usage }) => ({
    text,
    ...(thinking && { thinking: { pieces: thinking } }),
    ...(hasTool && { tool: { name: "find", input: ['{"a":', '"ü"}'] } }),
    ...(usage ? { usage } : { noUsage: true }),
  }));
const formats = {
  native: [native, nativeStream],
  chat: [chat, chatStream],
  Responses: [responses, responsesStream],
} as const;

test.each(["native", "chat", "Responses"] as const)(
  "of %s, any split of a stream into reads costs the same, whole or broken off",
  (name) => {
    const [format, streamOf] = formats[name];
    fc.assert(
      fc.property(
        anyAnswer,
        fc.array(fc.nat(3_000), { maxLength: 8 }),
        fc.option(fc.nat(3_000)),
        (content, places, end) => {
          const whole = Buffer.from((streamOf(content).writes ?? []).join(""));
          const bytes = whole.subarray(0, end ?? whole.length);
          const billed = (pieces: readonly Uint8Array[]) => {
            const decoder = format.createEventDecoder();
            const answer = new Metered();
            for (const piece of pieces) answer.read(decoder.push(piece));
            answer.read(decoder.end());
            const names = ["complete", "left", "providerBroke"] as const;
            return names.map((ending) => answer.billedAt(ending));
          };
          const cuts = [...new Set([0, ...places.filter((at) => at < bytes.length)])].sort(
            (one, other) => one - other,
          );
          const pieces = cuts.map((at, index) => bytes.subarray(at, cuts[index + 1]));
          expect(billed(pieces)).toEqual(billed([bytes]));
        },
      ),
    );
  },
);

test("of a provider that reports less than was handed on, a leaver pays our count at most", () => {
  fc.assert(
    fc.property(input, pieces, fc.nat(), (usage, content, less) => {
      const handedOn = metered(content).counted.output();
      const most = handedOn.output + handedOn.thinking;
      const outputTokens = most === 0 ? 0 : 1 + (less % most);
      const end = delta({ outputTokens });
      const answer = new Metered();
      answer.read([start(usage)]);
      let last = costOf(answer, "leftBeforeContent");
      for (const piece of content) {
        answer.read([piece]);
        const cost = costOf(answer, "left");
        // Later never costs less, until the provider's own figure is there.
        expect(cost).toBeGreaterThanOrEqual(last);
        last = cost;
      }
      const counted = new Metered();
      counted.read([start(usage), ...content, delta({ outputTokens: most }), stop]);
      expect(last).toBeLessThanOrEqual(costOf(counted, "complete"));
      answer.read([end]);
      const after = costOf(answer, "left");
      answer.read([stop]);
      expect(after).toBe(costOf(answer, "complete"));
      expect(after).toBeLessThanOrEqual(last);
    }),
  );
});

test("leaving later never costs less, and after the last figure it costs what staying does", () => {
  const byBytes = (events: readonly Event[]) => {
    const { output, thinking } = metered(events).counted.output();
    return output + thinking;
  };
  fc.assert(
    fc.property(input, pieces, fc.integer({ min: 0, max: 900 }), (usage, content, more) => {
      // Of a provider that reports less than was handed on, a leaver pays our count.
      const outputTokens = byBytes(content) + more;
      const events = [start(usage), ...content, delta({ outputTokens }), stop];
      const answer = new Metered();
      let last = 0n;
      for (const event of events) {
        answer.read([event]);
        const ending = answer.counted.began ? "left" : "leftBeforeContent";
        const cost = costOf(answer, ending);
        expect(cost).toBeGreaterThanOrEqual(last);
        last = cost;
      }
      expect(last).toBe(costOf(answer, "complete"));
    }),
  );
});

test("what is shown at the end is what is charged, whatever was sent before it", () => {
  const maybe = fc.option(fc.nat(900), { nil: undefined });
  const anyReport = fc.record({
    inputTokens: maybe,
    outputTokens: maybe,
    cacheReadInputTokens: maybe,
    cacheCreationInputTokens: maybe,
    thinkingTokens: maybe,
  });
  const given = (report: Record<string, number | undefined>): Report =>
    Object.fromEntries(Object.entries(report).filter(([, value]) => value !== undefined));
  fc.assert(
    fc.property(anyReport, anyReport, anyReport, pieces, (first, running, end, content) => {
      const [opening, last] = [start(given(first)), delta(given(end))];
      const answer = metered([opening, ...content, report(given(running)), last, stop]);
      const charged = chargedUsage(answer.billedAt("complete").usage, 500);
      const before = last.kind.case === "messageDelta" ? last.kind.value.usage : undefined;
      const sent = { ...given(first), ...given(end), ...answer.reported.shown(charged, before) };
      expect({
        input: sent.inputTokens ?? 0,
        output: sent.outputTokens ?? 0,
        cacheRead: sent.cacheReadInputTokens ?? 0,
        written: sent.cacheCreationInputTokens ?? 0,
        thinking: sent.thinkingTokens ?? 0,
      }).toEqual({
        input: charged.input,
        output: charged.output + charged.thinking,
        cacheRead: charged.cacheRead,
        written: charged.cacheWrite5m + charged.cacheWrite1h,
        thinking: charged.thinking,
      });
      expect(charged.output + charged.thinking).toBeLessThanOrEqual(500);
    }),
  );
});
