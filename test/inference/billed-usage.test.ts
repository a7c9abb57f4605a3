import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Basis } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { AttachedSchema, Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type Event,
  EventSchema,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { progress } from "../../src/formats/events.ts";
import * as native from "../../src/formats/native/native.ts";
import { events } from "../support/inference.ts";
import { Metered, metered } from "../support/metered.ts";
import type { Script } from "../support/provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
} from "../support/provider-answers.ts";

type Reported = Exclude<MessageInitShape<typeof ReportedUsageSchema>, { $typeName: string }>;

const countedInput = 77;
const noUsage = {
  input: 0,
  output: 0,
  cacheWrite5m: 0,
  cacheWrite1h: 0,
  cacheRead: 0,
  thinking: 0,
};

function start(usage?: Reported): Event {
  return create(EventSchema, {
    kind: { case: "messageStart", value: { id: "m", model: "m", ...(usage && { usage }) } },
  });
}
function delta(usage?: Reported): Event {
  return create(EventSchema, {
    kind: { case: "messageDelta", value: { stopReason: "end_turn", ...(usage && { usage }) } },
  });
}
function thought(text: string, extensions?: JsonObject): Event {
  const value = {
    index: 0,
    kind: { case: "thinking" as const, value: text },
    ...(extensions && { extensions }),
  };
  return create(EventSchema, { kind: { case: "blockDelta", value } });
}
function signature(bytes: number): Event {
  return create(EventSchema, {
    kind: {
      case: "blockDelta",
      value: { index: 0, kind: { case: "signature", value: "s".repeat(bytes) } },
    },
  });
}
function encrypted(bytes: number): Event {
  const members = { encrypted_content: "e".repeat(bytes) };
  return create(EventSchema, {
    kind: { case: "blockDelta", value: { index: 0, attached: { members } } },
  });
}
function redacted(bytes: number): Event {
  const kind = { case: "redactedThinking" as const, value: { data: "r".repeat(bytes) } };
  return create(EventSchema, {
    kind: { case: "blockStart", value: { index: 0, block: { kind } } },
  });
}

test("searches without a report are counted by their calls, and no more than are allowed", () => {
  const block = (value: JsonObject): Event =>
    create(EventSchema, {
      kind: { case: "blockStart", value: { block: { kind: { case: "other", value } } } },
    });
  const calls = [
    block({ type: "server_tool_use", name: "web_search", input: {} }),
    block({ type: "server_tool_use", name: "web_fetch", input: {} }),
    block({ type: "web_search_tool_result", content: [] }),
    block({ type: "web_search_call", status: "completed" }),
  ];
  const read = [start(reported), ...calls, delta({ outputTokens: 9 }), events.stop()];
  const billed = (webSearches: number) =>
    metered(read, { webSearches }).billedAt("complete").usage.webSearches;
  expect([billed(8), billed(1), billed(0)]).toEqual([2, 1, 0]);
});

const reported = { inputTokens: 10, outputTokens: 1 };
const table: { name: string; read: Event[]; usage: Partial<typeof noUsage>; basis: Basis }[] = [
  {
    name: "the last report of each category counts, never a sum",
    read: [
      start(reported),
      events.text("abcd"),
      delta({ outputTokens: 20 }),
      delta({ outputTokens: 30, inputTokens: 12 }),
    ],
    usage: { input: 12, output: 30 },
    basis: Basis.REPORTED,
  },
  {
    name: "a lower report replaces a higher one: the provider has corrected itself",
    read: [
      start({ inputTokens: 50 }),
      events.text("abcd"),
      delta({ outputTokens: 30 }),
      delta({ outputTokens: 8, inputTokens: 9 }),
    ],
    usage: { input: 9, output: 8 },
    basis: Basis.REPORTED,
  },
  {
    name: "output reported at the start is not the total",
    read: [start(reported), events.text("x".repeat(400)), delta(), events.stop()],
    usage: { input: 10, output: 100 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "an answer without reported usage is counted",
    read: [start(), events.text("x".repeat(9)), delta(), events.stop()],
    usage: { input: countedInput, output: 3 },
    basis: Basis.COUNTED,
  },
  {
    name: "missing input is counted, and reported output counts as reported",
    read: [start(), events.text("x".repeat(9)), delta({ outputTokens: 40 }), events.stop()],
    usage: { input: countedInput, output: 40 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "an answer without content costs the reported output, also if it is 0",
    read: [start(reported), delta({ outputTokens: 0 }), events.stop()],
    usage: { input: 10 },
    basis: Basis.REPORTED,
  },
  {
    name: "thinking is part of the reported output, and subtracted once",
    read: [start(reported), events.text("a"), delta({ outputTokens: 50, thinkingTokens: 30 })],
    usage: { input: 10, output: 20, thinking: 30 },
    basis: Basis.REPORTED,
  },
  {
    name: "reported thinking is at most the reported output",
    read: [start(reported), events.text("a"), delta({ outputTokens: 50, thinkingTokens: 80 })],
    usage: { input: 10, output: 0, thinking: 50 },
    basis: Basis.REPORTED,
  },
  {
    name: "cache reads count apart from the input",
    read: [
      start({ inputTokens: 3, cacheReadInputTokens: 900 }),
      events.text("a"),
      delta({ outputTokens: 1 }),
    ],
    usage: { input: 3, cacheRead: 900, output: 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "a prompt that was read entirely from the cache has no other input",
    read: [
      start({ inputTokens: 0, cacheReadInputTokens: 900 }),
      events.text("a"),
      delta({ outputTokens: 1 }),
    ],
    usage: { cacheRead: 900, output: 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "cache writes are split by their reported lifetime",
    read: [
      start({
        inputTokens: 3,
        cacheCreationInputTokens: 100,
        cacheCreation: { ephemeral5mInputTokens: 30, ephemeral1hInputTokens: 70 },
      }),
      delta({ outputTokens: 1 }),
    ],
    usage: { input: 3, cacheWrite5m: 30, cacheWrite1h: 70, output: 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "cache writes without a reported lifetime last five minutes",
    read: [
      start({ cacheCreationInputTokens: 100, cacheCreation: { ephemeral1hInputTokens: 40 } }),
      delta({ outputTokens: 1 }),
    ],
    usage: { cacheWrite5m: 60, cacheWrite1h: 40, output: 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "a split larger than its total counts in full",
    read: [
      start({
        cacheCreationInputTokens: 10,
        cacheCreation: { ephemeral5mInputTokens: 30, ephemeral1hInputTokens: 40 },
      }),
      delta({ outputTokens: 1 }),
    ],
    usage: { cacheWrite5m: 30, cacheWrite1h: 40, output: 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "compaction and advice are added to the totals, which contain other iterations",
    read: [
      start(reported),
      events.text("a"),
      delta({
        outputTokens: 5,
        extensions: {
          iterations: [
            { type: "message", input_tokens: 1_000, output_tokens: 1_000 },
            {
              type: "compaction",
              input_tokens: 200,
              output_tokens: 30,
              cache_read_input_tokens: 4,
            },
            {
              type: "advisor_message",
              input_tokens: 7,
              cache_creation_input_tokens: 2,
              output_tokens: -9,
            },
            { type: "compaction", input_tokens: 1.5, output_tokens: "many" },
            null,
            "compaction",
          ],
        },
      }),
    ],
    usage: { input: 217, output: 35, cacheRead: 4, cacheWrite5m: 2 },
    basis: Basis.REPORTED,
  },
  {
    name: "usage is limited to 32-bit integers",
    read: [
      start({ inputTokens: 0xffff_ffff }),
      events.text("a"),
      delta({ outputTokens: 0xffff_ffff }),
    ],
    usage: { input: 2 ** 31 - 1, output: 2 ** 31 - 1 },
    basis: Basis.REPORTED,
  },
  {
    name: "visible thinking is counted as thinking, and its signature is not counted again",
    read: [start({ inputTokens: 1 }), thought("x".repeat(40)), signature(4_000), delta()],
    usage: { input: 1, thinking: 10 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "hidden thinking is counted by its signature and its redacted data",
    read: [start({ inputTokens: 1 }), signature(400), redacted(80), delta()],
    usage: { input: 1, thinking: 120 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "hidden thinking is counted by its encrypted content",
    read: [start({ inputTokens: 1 }), encrypted(400), delta()],
    usage: { input: 1, thinking: 100 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "the encrypted content of visible thinking is not counted again",
    read: [start({ inputTokens: 1 }), thought("x".repeat(40)), encrypted(4_000), delta()],
    usage: { input: 1, thinking: 10 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "redacted thinking is counted beside visible thinking",
    read: [start({ inputTokens: 1 }), thought("x".repeat(40)), redacted(80), delta()],
    usage: { input: 1, thinking: 30 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "the provider's own estimate of hidden thinking counts if it is larger",
    read: [
      start({ inputTokens: 1 }),
      thought("", { estimated_tokens: 350.2 }),
      signature(40),
      delta(),
    ],
    usage: { input: 1, thinking: 351 },
    basis: Basis.PARTLY_COUNTED,
  },
];
for (const { name, read, usage, basis } of table) {
  test(name, () => {
    const billable = metered(read).billedAt("complete");
    expect(billable.usage).toMatchObject({ ...noUsage, ...usage });
    expect(billable.basis).toBe(basis);
  });
}

test("cache writes without a reported lifetime last an hour if the request sets an hour", () => {
  const iterations = [{ type: "compaction", cache_creation_input_tokens: 7 }];
  const read = [
    start({ cacheCreationInputTokens: 100 }),
    delta({ outputTokens: 1, extensions: { iterations } }),
  ];
  expect(metered(read, { writesLiveLong: true }).billedAt("complete").usage).toMatchObject({
    cacheWrite5m: 0,
    cacheWrite1h: 107,
  });
});

test("a report of input is for the hold only if it changes the input that is billed", () => {
  const inputs = (reads: Event[], contextTokens = 2 ** 31 - 1) => {
    const answer = new Metered({ contextTokens });
    return reads.flatMap((event) => {
      answer.read([event]);
      return answer.reported.newInput()?.input ?? [];
    });
  };
  const repeated = delta({ outputTokens: 20, inputTokens: 10 });
  expect(inputs([start(reported), events.text("abcd"), repeated])).toEqual([10]);
  const advised = { iterations: [{ type: "advisor_message", input_tokens: 5 }] };
  const later = delta({ outputTokens: 20, extensions: advised });
  expect(inputs([start(reported), events.text("abcd"), later])).toEqual([10, 15]);
  const above = delta({ outputTokens: 2, inputTokens: 11 });
  expect(inputs([start(reported), events.text("abcd"), above], 8)).toEqual([8]);
});

/** A report ahead of the end. */
function running(usage: Reported, stopReason?: string): Event {
  return progress({ usage: create(ReportedUsageSchema, usage), stopReason });
}

test("a running count is provisional: only a count with the end is final", () => {
  const begun = metered([start(), running({ inputTokens: 0, outputTokens: 1 })]);
  expect([begun.reported.hasInput, begun.reported.newInput()]).toEqual([false, undefined]);
  expect(begun.billedAt("leftBeforeContent")).toMatchObject({ usage: { input: countedInput } });

  const ending = metered([
    start(reported),
    running({ outputTokens: 1 }),
    events.text("x".repeat(400)),
    running({}, "end_turn"),
  ]);
  expect([ending.reported.phase, ending.reported.hasTotal]).toEqual(["ending", false]);
  expect(ending.billedAt("left")).toMatchObject({ usage: { output: 100 } });
  ending.read([running({ outputTokens: 90 })]);
  expect(ending.reported.hasTotal).toBe(true);
  expect(ending.billedAt("left")).toMatchObject({ usage: { output: 90 } });
});

test("a report ahead of the end is shown with the end, since it was not relayed itself", () => {
  const last = { outputTokens: 5 };
  const answer = metered([
    start(),
    events.text("hi"),
    running({ inputTokens: 12, outputTokens: 1 }),
    delta(last),
    events.stop(),
  ]);
  const { usage } = answer.billedAt("complete");
  expect(answer.reported.shown(usage, create(ReportedUsageSchema, last))).toMatchObject({
    inputTokens: 12,
    outputTokens: 5,
  });
});

test("an input of 0 counts as a missing report if the model's configuration sets it so", () => {
  for (const zeroUsage of ["reported", "missing"] as const) {
    const read = [start(), events.text("hi"), delta({ inputTokens: 0, outputTokens: 5 })];
    const answer = metered(read, { zeroUsage });
    const isReported = zeroUsage === "reported";
    expect(answer.reported.hasInput).toBe(isReported);
    expect(answer.billedAt("complete").usage.input).toBe(isReported ? 0 : countedInput);
  }
});

test("an output of 0 beside content is believed only where it closes a native answer", () => {
  for (const [format, output] of [
    [Format.NATIVE, 0],
    [Format.RESPONSES, 0],
    [Format.CHAT, 1],
  ] as const) {
    const opened = start(reported);
    if (opened.kind.case === "messageStart")
      opened.kind.value.attached = create(AttachedSchema, { format });
    const read = [opened, events.text("abcd"), delta({ outputTokens: 0 }), events.stop()];
    expect(metered(read).billedAt("complete").usage.output).toBe(output);
    expect(metered(read, { zeroUsage: "missing" }).billedAt("complete").usage.output).toBe(1);
  }
});

test("an answer that breaks off costs the larger of the reported and the counted output", () => {
  expect(
    metered([start(reported), events.text("x".repeat(400))]).billedAt("left").usage,
  ).toMatchObject({
    input: 10,
    output: 100,
  });
  const ahead = metered([
    start({ inputTokens: 10, outputTokens: 500, thinkingTokens: 300 }),
    events.text("x".repeat(400)),
  ]);
  expect(ahead.billedAt("left").usage).toMatchObject({ output: 200, thinking: 300 });
});

test("an answer without content costs at most its input", () => {
  expect(metered([]).billedAt("leftBeforeContent")).toMatchObject({
    usage: { input: countedInput, output: 0 },
    basis: Basis.COUNTED,
  });
  expect(metered([start(reported)]).billedAt("leftBeforeContent")).toMatchObject({
    usage: { input: 10, output: 0 },
    basis: Basis.REPORTED,
  });
  expect(metered([start(reported)]).billedAt("providerFailed")).toMatchObject({
    usage: noUsage,
    basis: Basis.NONE,
  });
});

const piece = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 12 }),
  fc.constantFrom("", "漢字", "😀", "\n"),
);
const pieces = fc.array(piece, { minLength: 1, maxLength: 6 });
const tokens = fc.oneof(fc.nat(2_000), fc.constantFrom(0, 1, 0xffff_ffff));
const anyContent: fc.Arbitrary<AnswerContent> = fc
  .record({
    text: pieces,
    thinking: fc.option(fc.record({ pieces, signature: fc.constantFrom("c2ln", "s".repeat(99)) })),
    tool: fc.option(
      fc.dictionary(fc.string({ maxLength: 5 }), fc.nat(), { minKeys: 1, maxKeys: 3 }),
    ),
    noUsage: fc.boolean(),
    input: tokens,
    output: tokens,
    cacheRead: tokens,
    cacheWrite: tokens,
    thinkingTokens: fc.option(tokens),
  })
  .map(({ text, thinking, tool, noUsage, thinkingTokens, ...usage }) => ({
    text,
    noUsage,
    usage: { ...usage, ...(thinkingTokens !== null && { thinking: thinkingTokens }) },
    ...(thinking && { thinking }),
    ...(tool && { tool: { name: "look", input: [JSON.stringify(tool)] } }),
  }));

type Codec = Pick<typeof native, "createEventDecoder" | "decodeAnswer">;

function textOf({ writes = [] }: Script): string {
  return writes.filter((one) => typeof one === "string").join("");
}

function readStream(
  { createEventDecoder }: Codec,
  script: Script,
  cuts: readonly number[],
): Event[][] {
  const bytes = Buffer.from(textOf(script));
  const decoder = createEventDecoder();
  const places = [
    0,
    ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b),
    bytes.length,
  ];
  const reads = places.slice(1).map((to, index) => decoder.push(bytes.subarray(places[index], to)));
  return [...reads, decoder.end()];
}

function readWhole({ decodeAnswer }: Codec, script: Script): Event[] {
  return decodeAnswer(JSON.parse(textOf(script)));
}

test("an answer costs the same however it is cut into reads", () => {
  fc.assert(
    fc.property(anyContent, fc.array(fc.nat(), { maxLength: 8 }), (content, cuts) => {
      for (const [codec, script] of [
        [native, nativeStream(content)],
        [chat, chatStream(content)],
      ] as const) {
        const cut = new Metered();
        for (const read of readStream(codec, script, cuts)) cut.read(read);
        const whole = metered(readStream(codec, script, []).flat());
        expect(cut.billedAt("complete")).toEqual(whole.billedAt("complete"));
        expect(cut.reported.phase).toBe("complete");
      }
    }),
  );
});

test("a streamed answer costs as much as the same answer in one JSON body", () => {
  fc.assert(
    fc.property(anyContent, (content) => {
      // A streamed native answer has its input in the start only, where a 0 is a placeholder.
      const { input, cacheRead, cacheWrite } = content.usage ?? {};
      fc.pre((input ?? 0) + (cacheRead ?? 0) + (cacheWrite ?? 0) > 0);
      expect(
        metered(readStream(native, nativeStream(content), []).flat()).billedAt("complete"),
      ).toEqual(metered(readWhole(native, nativeAnswer(content))).billedAt("complete"));
      expect(
        metered(readStream(chat, chatStream(content), []).flat()).billedAt("complete"),
      ).toEqual(metered(readWhole(chat, chatAnswer(content))).billedAt("complete"));
    }),
  );
});
