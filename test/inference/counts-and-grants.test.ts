// The reading of reports, of what was handed on, and of the grant, each at its borders.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Basis } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { BlockSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDeltaSchema,
  type Event,
  EventSchema,
  ReportedUsageSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import { Counted, Grant } from "../../src/inference/counted.ts";
import { type EndingName, endings, seenUsage } from "../../src/inference/endings.ts";
import { Reported } from "../../src/inference/reported.ts";
import { events } from "../support/inference.ts";
import { Metered, metered, usageRules } from "../support/metered.ts";

type Report = Exclude<MessageInitShape<typeof ReportedUsageSchema>, { $typeName: string }>;
type Block = MessageInitShape<typeof BlockSchema>;
type Delta = MessageInitShape<typeof BlockDeltaSchema>;

const eventOf = (kind: MessageInitShape<typeof EventSchema>["kind"]): Event =>
  create(EventSchema, kind ? { kind } : {});
const start = (usage?: Report) =>
  eventOf({ case: "messageStart", value: { id: "m", ...(usage && { usage }) } });
const end = (usage: Report) =>
  eventOf({ case: "messageDelta", value: { stopReason: "end_turn", usage } });
const open = (block: Block, index = 0) => eventOf({ case: "blockStart", value: { index, block } });
const part = (delta: Delta) => eventOf({ case: "blockDelta", value: { index: 0, ...delta } });

describe("a report", () => {
  const all = {
    inputTokens: 10,
    cacheReadInputTokens: 5,
    cacheCreationInputTokens: 60,
    cacheCreation: { ephemeral5mInputTokens: 20, ephemeral1hInputTokens: 40 },
    outputTokens: 7,
  };

  test.for([
    [0, 0, 0, 0, 0],
    [5, 5, 0, 0, 0],
    [6, 5, 1, 0, 0],
    [15, 5, 10, 0, 0],
    [35, 5, 10, 20, 0],
    [36, 5, 10, 20, 1],
    [75, 5, 10, 20, 40],
    [76, 5, 10, 20, 40],
  ] as const)("in a window of %i tokens bills the cheapest input first", (one) => {
    const [contextTokens, cacheRead, input, cacheWrite5m, cacheWrite1h] = one;
    const { usage } = metered([start(all)], { contextTokens }).billedAt("left");
    expect(usage).toMatchObject({ cacheRead, input, cacheWrite5m, cacheWrite1h });
  });

  test.for<Report>([
    { inputTokens: 11 },
    { cacheReadInputTokens: 6 },
    { cacheCreationInputTokens: 61 },
    { cacheCreation: { ephemeral5mInputTokens: 21 } },
    { cacheCreation: { ephemeral1hInputTokens: 41 } },
    { cacheCreation: { ephemeral1hInputTokens: 39, ephemeral5mInputTokens: 21 } },
  ])("of another input is for the hold: %o", (change) => {
    const { reported } = metered([start(all)]);
    expect(reported.newInput()).toMatchObject({ input: 10, cacheRead: 5 });
    expect(reported.newInput()).toBeUndefined();
    reported.read(end(change));
    expect(reported.newInput()).toBeDefined();
    reported.read(end({ ...change, outputTokens: 9 }));
    expect(reported.newInput()).toBeUndefined();
  });

  test("of zeros replaces no positive report of the input, and an absent one no zero", () => {
    const zeros = {
      inputTokens: 0,
      cacheReadInputTokens: 0,
      cacheCreationInputTokens: 0,
      cacheCreation: { ephemeral5mInputTokens: 0, ephemeral1hInputTokens: 0 },
    };
    const { usage } = metered([start(all), end({ ...zeros, outputTokens: 3 })]).billedAt(
      "complete",
    );
    expect(usage).toMatchObject({ input: 10, cacheRead: 5, cacheWrite5m: 20, cacheWrite1h: 40 });
    const { reported } = metered([start(zeros), end({ outputTokens: 3 })]);
    expect([reported.input, reported.cacheRead, reported.cacheWrite]).toEqual([0, 0, 0]);
    expect([reported.write5m, reported.write1h, reported.hasInput]).toEqual([0, 0, false]);
  });

  test("is whole once the answer ends with both input and output, or is complete", () => {
    const total = (...read: Event[]) => metered(read).reported.hasTotal;
    expect(total(start(all))).toBe(false);
    expect(total(start(all), end({}))).toBe(false);
    expect(total(start(), end({ outputTokens: 1 }))).toBe(false);
    expect(total(start(all), end({ outputTokens: 1 }))).toBe(true);
    expect(total(start(), end({ inputTokens: 0, outputTokens: 1 }))).toBe(true);
    expect(total(start(), events.stop())).toBe(true);
  });

  test("is shown as charged: each figure that differs, and those that clients need", () => {
    const reported = new Reported(usageRules);
    const { outputTokens: _, ...inputs } = all;
    for (const event of [start(inputs), end({ outputTokens: 7, thinkingTokens: 2 })])
      reported.read(event);
    const charged = {
      $typeName: "gateway.common.v1.Usage" as const,
      ...{ input: 10, output: 5, thinking: 2, cacheRead: 5, cacheWrite5m: 20, cacheWrite1h: 40 },
      webSearches: 0,
    };
    expect(reported.shown(charged, undefined)).toBeUndefined();
    const shown = (change: Partial<typeof charged>) => {
      const { $typeName, ...members } = reported.shown({ ...charged, ...change }, undefined) ?? {};
      return members;
    };
    expect(shown({ input: 9 })).toEqual({ inputTokens: 9, outputTokens: 7 });
    expect(shown({ output: 4 })).toEqual({ inputTokens: 10, outputTokens: 6 });
    expect(shown({ cacheRead: 0 })).toMatchObject({ cacheReadInputTokens: 0, outputTokens: 7 });
    expect(shown({ thinking: 1, output: 6 })).toMatchObject({ thinkingTokens: 1, outputTokens: 7 });
    expect(shown({ cacheWrite5m: 60, cacheWrite1h: 0 })).toEqual({
      ...{ inputTokens: 10, outputTokens: 7 },
      cacheCreation: expect.objectContaining({ ephemeral5mInputTokens: 60 }),
    });
    expect(shown({ cacheWrite1h: 39 })).toMatchObject({
      cacheCreationInputTokens: 59,
      cacheCreation: { ephemeral5mInputTokens: 20, ephemeral1hInputTokens: 39 },
    });
    // A member that counts tokens in a form of its own does not stand beside the charged ones.
    const odd = create(ReportedUsageSchema, { extensions: { input_tokens: "7", tier: "x" } });
    expect(reported.shown(charged, odd)).toMatchObject({ inputTokens: 10, outputTokens: 7 });
    expect(reported.shown(charged, odd)?.extensions).toEqual({ tier: "x" });
    const other = create(ReportedUsageSchema, { extensions: { tier: "x" } });
    expect(reported.shown(charged, other)).toBeUndefined();
  });

  test("of the end keeps what an earlier one said, and ends nothing twice", () => {
    const iterations = [{ type: "compaction", input_tokens: 4 }];
    const { reported } = metered([
      start({ inputTokens: 1, thinkingTokens: 3, extensions: { iterations } }),
      end({ outputTokens: 9 }),
      events.stop(),
      end({}),
    ]);
    expect([reported.thinking, reported.iterations, reported.phase]).toEqual([
      ...[3, iterations, "complete"],
    ]);
  });

  test.for<Report>([
    { inputTokens: 5, cacheReadInputTokens: 5 },
    { inputTokens: 5, cacheCreationInputTokens: 5 },
    { inputTokens: 0, cacheReadInputTokens: 5 },
  ])("of some input is not shown again: %o", (report) => {
    const answer = metered([start(report), end({ outputTokens: 7 }), events.stop()]);
    const { usage } = answer.billedAt("complete");
    expect(answer.reported.shown(usage, undefined)).toBeUndefined();
  });

  test("of no input is shown, since clients would show an estimate", () => {
    const { reported } = metered([start({ inputTokens: 0 }), end({ outputTokens: 7 })]);
    const { usage } = metered([]).billedAt("providerFailed");
    expect(reported.shown({ ...usage, output: 7 }, undefined)).toMatchObject({ inputTokens: 0 });
  });
});

describe("what was handed on", () => {
  const call = { id: "c", name: "abcdef", input: { a: 1 } };
  /** Events, the tokens that they count as, and whether they are content. */
  test.for<[string, Event, { output: number; thinking: number }, boolean]>([
    ["an empty text", open({ kind: { case: "text", value: { text: "" } } }), none(), false],
    ["a text", open({ kind: { case: "text", value: { text: "漢字" } } }), out(2), true],
    [
      "a call with input",
      open({ kind: { case: "toolUse", value: call } }),
      // 6 bytes of the name and 7 of the input.
      out(4),
      true,
    ],
    [
      "a call without",
      open({ kind: { case: "toolUse", value: { ...call, input: {} } } }),
      out(2),
      true,
    ],
    ["no thought yet", open({ kind: { case: "thinking", value: {} } }), none(), false],
    [
      "a thought",
      open({ kind: { case: "thinking", value: { thinking: "hmmmm" } } }),
      thought(2),
      true,
    ],
    [
      "a signature",
      open({ kind: { case: "thinking", value: { signature: "12345" } } }),
      thought(2),
      true,
    ],
    [
      "redacted",
      open({ kind: { case: "redactedThinking", value: { data: "12345" } } }),
      thought(2),
      true,
    ],
    [
      "a call of the provider",
      other({ type: "server_tool_use", name: "abcde", input: {} }),
      out(2),
      true,
    ],
    ["one of MCP", other({ type: "mcp_tool_use", name: "abc", input: { a: 1 } }), out(3), true],
    ["one without a name", other({ type: "mcp_tool_use", name: 5, input: [1] }), none(), true],
    ["a result of a tool", other({ type: "web_search_tool_result", name: "abc" }), none(), true],
    ["a block of no kind", open({}), none(), true],
    ["a delta of text", part({ kind: { case: "text", value: "12345" } }), out(2), true],
    ["an empty delta", part({ kind: { case: "text", value: "" } }), none(), false],
    ["arguments", part({ kind: { case: "inputJson", value: "12345" } }), out(2), true],
    ["a delta of thought", part({ kind: { case: "thinking", value: "12345" } }), thought(2), true],
    [
      "a delta of a signature",
      part({ kind: { case: "signature", value: "12345" } }),
      thought(2),
      true,
    ],
    [
      "a delta of sealed thinking",
      part({ attached: { members: { encrypted_content: "12345" } } }),
      thought(2),
      true,
    ],
    [
      "an estimate of hidden thinking",
      part({ kind: { case: "thinking", value: "" }, extensions: { estimated_tokens: 2.5 } }),
      thought(3),
      true,
    ],
    [
      "an estimate of nothing",
      part({ kind: { case: "thinking", value: "" }, extensions: { estimated_tokens: 0 } }),
      none(),
      false,
    ],
    [
      "a citation",
      part({ kind: { case: "other", value: { type: "citations_delta", cited_text: "abc" } } }),
      none(),
      true,
    ],
  ])("of %s is counted in bytes", ([, event, output, began]) => {
    const counted = new Counted();
    counted.add(event);
    expect([counted.output(), counted.began]).toEqual([output, began]);
  });

  function none() {
    return { output: 0, thinking: 0 };
  }
  function out(output: number) {
    return { output, thinking: 0 };
  }
  function thought(thinking: number) {
    return { output: 0, thinking };
  }
  function other(value: NonNullable<Parameters<typeof JSON.stringify>[0]>) {
    return open({ kind: { case: "other", value } });
  }

  test("knows the block that is open", () => {
    const counted = new Counted();
    expect(counted.openBlock).toBeUndefined();
    counted.add(open({ kind: { case: "text", value: { text: "" } } }, 3));
    expect(counted.openBlock).toBe(3);
    counted.add(eventOf({ case: "blockStop", value: { index: 3 } }));
    expect(counted.openBlock).toBeUndefined();
  });

  test("divides a reported output by its shares", () => {
    fc.assert(
      fc.property(fc.nat(40), fc.nat(40), fc.nat(1_000), (answer, thinking, reported) => {
        const counted = new Counted();
        counted.add(part({ kind: { case: "text", value: "a".repeat(4 * answer) } }));
        counted.add(part({ kind: { case: "thinking", value: "t".repeat(4 * thinking) } }));
        const share = thinking === 0 ? 0 : Math.round((reported * thinking) / (answer + thinking));
        expect(counted.split(reported)).toEqual({ output: reported - share, thinking: share });
        expect(counted.bytes).toBe(4 * (answer + thinking));
      }),
    );
  });

  test("is what a running answer is charged for, or the running report if that is higher", () => {
    const seen = (reportedOutput: number | undefined, text = "x".repeat(40)) => {
      const answer = metered([
        start({
          inputTokens: 3,
          ...(reportedOutput !== undefined && { outputTokens: reportedOutput }),
        }),
        events.text(text),
      ]);
      return seenUsage(answer.reported, answer.counted)?.output;
    };
    expect([undefined, 9, 10, 11].map((output) => seen(output))).toEqual([10, 10, 10, 11]);
    expect(seen(11, "")).toBeUndefined();
  });
});

describe("an ending", () => {
  const answer = (isSeen: boolean, isReported = true) =>
    metered([
      start(isReported ? { inputTokens: 10 } : undefined),
      ...(isSeen ? [events.text("x".repeat(40))] : []),
    ]);

  test.for(Object.entries(endings))(
    "%s charges its share of each kind of answer",
    ([name, row]) => {
      const shares = { nothing: [0, 0], input: [10, 0], usage: [10, 10] } as const;
      for (const [isPlain, isSeen, share] of [
        [true, true, row.plain],
        [false, false, row.unseen],
        [false, true, row.seen],
      ] as const) {
        const billed = answer(isSeen).billedAt(name as EndingName, isPlain);
        const [input, output] = shares[share];
        const isSeenOutput = isSeen ? output : 0;
        expect([billed.outcome, billed.usage.input, billed.usage.output]).toEqual([
          row.outcome,
          input,
          isSeenOutput,
        ]);
      }
    },
  );

  const said = part({ kind: { case: "text", value: "x".repeat(40) } });
  const hmm = part({ kind: { case: "thinking", value: "x".repeat(40) } });
  /** What is billed of ten tokens of answer and ten of thought, and these reports. */
  test.for<[string, Report, Report | undefined, Event[], [number, number], Basis]>([
    ["a final report", {}, { outputTokens: 41 }, [said], [41, 0], Basis.REPORTED],
    [
      "one of thinking too",
      {},
      { outputTokens: 41, thinkingTokens: 3 },
      [said],
      [38, 3],
      Basis.REPORTED,
    ],
    [
      "more thinking than output",
      {},
      { outputTokens: 2, thinkingTokens: 3 },
      [said],
      [0, 2],
      Basis.REPORTED,
    ],
    ["a final 0 beside content", {}, { outputTokens: 0 }, [said], [10, 0], Basis.PARTLY_COUNTED],
    ["a final 0 without", {}, { outputTokens: 0 }, [], [0, 0], Basis.REPORTED],
    ["a final 1 without", {}, { outputTokens: 1 }, [], [1, 0], Basis.REPORTED],
    ["a running one without", { outputTokens: 5 }, undefined, [], [0, 0], Basis.PARTLY_COUNTED],
    [
      "a running one as high as our count",
      { outputTokens: 20, thinkingTokens: 3 },
      undefined,
      [said, hmm],
      [10, 10],
      Basis.PARTLY_COUNTED,
    ],
    [
      "a running one above our count",
      { outputTokens: 21, thinkingTokens: 3 },
      undefined,
      [said, hmm],
      [18, 3],
      Basis.PARTLY_COUNTED,
    ],
    [
      "one that splits nothing",
      { outputTokens: 30 },
      undefined,
      [said, hmm],
      [15, 15],
      Basis.PARTLY_COUNTED,
    ],
  ])("bills %s", ([, first, last, content, [output, thinking], basis]) => {
    const ended = last ? [end(last)] : [];
    const answered = metered([start({ inputTokens: 10, ...first }), ...content, ...ended]);
    expect(answered.billedAt("complete")).toMatchObject({ usage: { output, thinking }, basis });
  });

  test("says what it is based on", () => {
    const basis = (name: EndingName, isReported: boolean) =>
      answer(true, isReported).billedAt(name).basis;
    expect(basis("left", true)).toBe(Basis.PARTLY_COUNTED);
    expect(basis("left", false)).toBe(Basis.COUNTED);
    expect(basis("leftBeforeContent", true)).toBe(Basis.REPORTED);
    expect(basis("leftBeforeContent", false)).toBe(Basis.COUNTED);
    expect(basis("providerFailed", true)).toBe(Basis.NONE);
  });
});

describe("a grant", () => {
  const letters = (count: number) => "x".repeat(count);
  const opened = (text: string) => open({ kind: { case: "text", value: { text } } });
  // 4,896 bytes are twice its tokens and 1,024 more. A character has at most three of them.
  test.for<[string, Event, boolean]>([
    ["a block of 1,632 characters", opened(letters(1_632)), false],
    ["one more", opened(letters(1_633)), true],
    ["a block of a call", open({ kind: { case: "toolUse", value: { name: "f" } } }), true],
    ["a block of no kind", eventOf({ case: "blockStart", value: { index: 0 } }), true],
    ["a delta of 1,632", events.text(letters(1_632)), false],
    ["a longer one", events.text(letters(1_633)), true],
    ["a delta of another kind", part({ kind: { case: "other", value: { a: 1 } } }), true],
    ["a delta of no kind", part({}), true],
    ["the end of a block", events.close(), false],
  ])("may be reached by %s: %s", ([, event, may]) => {
    expect(new Grant(100).mayReach([event], new Counted())).toBe(may);
  });

  test("is cut at a delta, not at the start of a block", () => {
    const all = [opened(letters(5_000)), events.text("x")];
    expect(new Grant(100).cutAt(all, new Counted())).toBe(1);
  });

  const reported = (output: number, ...more: Event[]) =>
    metered([start({ inputTokens: 1, outputTokens: output }), ...more]).reported;

  test("is exceeded by a running report of 256 tokens more, or of a twentieth", () => {
    const exceeded = (grant: number, output: number) =>
      new Grant(grant).isExceeded(reported(output));
    expect([356, 357].map((output) => exceeded(100, output))).toEqual([false, true]);
    expect([10_500, 10_501].map((output) => exceeded(10_000, output))).toEqual([false, true]);
    // The end has its own total.
    expect(new Grant(100).isExceeded(reported(999, end({})))).toBe(false);
    const whole = new Grant(100);
    whole.mayCut = false;
    expect(whole.isExceeded(reported(999))).toBe(false);
  });

  test("cuts before the delta with which our count is above twice its tokens and 1,024", () => {
    const most = 4 * (2 * 100 + 1_024);
    const [first, last, more] = [most - 10, 10, 1].map((bytes) => events.text("x".repeat(bytes)));
    const all = [events.open(), first, last, more, events.close()].flatMap((one) => one ?? []);
    const answer = new Metered({}, 100);
    expect(answer.read(all.slice(0, 3))).toHaveLength(3);
    expect(answer.isCut).toBe(false);
    expect(answer.read(all.slice(3))).toEqual([]);
    expect(answer.isCut).toBe(true);
    expect(new Metered({}, 100).read(all)).toEqual(all.slice(0, 3));
    const grant = new Grant(100);
    const counted = new Counted();
    expect(grant.cutAt(all, counted)).toBe(3);
    expect([grant.mayReach(all, counted), grant.mayReach(all.slice(0, 1), counted)]).toEqual([
      true,
      false,
    ]);
    grant.mayCut = false;
    expect(grant.mayReach(all, counted)).toBe(false);
  });
});
