// What providers report of usage and of the end of an answer, in each format, at the borders.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CountTokensResponseSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import * as chat from "../../src/formats/chat/usage-and-endings.ts";
import * as native from "../../src/formats/native/usage.ts";
import { endingOf, headOf } from "../../src/formats/responses/ending.ts";
import { readResponseError } from "../../src/formats/responses/read-output.ts";
import { anyTokens } from "../support/arbitraries.ts";

const most = 4_294_967_295;

describe("chat usage", () => {
  const members = (usage: JsonValue | undefined) => {
    const { $typeName, ...others } = chat.decodeUsage(usage) ?? {};
    return $typeName === undefined ? undefined : others;
  };
  const input = (inputTokens: number, cacheReadInputTokens: number, written: number) => ({
    ...{ inputTokens, cacheReadInputTokens, cacheCreationInputTokens: written },
  });

  test.for<[JsonValue | undefined, object | undefined]>([
    [undefined, undefined],
    [null, undefined],
    [[], undefined],
    [{}, {}],
    [{ prompt_tokens: "5", completion_tokens: null }, {}],
    [{ prompt_tokens: -1, completion_tokens: -1 }, {}],
    [{ prompt_tokens: 0 }, input(0, 0, 0)],
    [{ prompt_tokens: 2.5 }, input(3, 0, 0)],
    [{ prompt_tokens: 1e20 }, input(most, 0, 0)],
    [{ prompt_tokens: 10, prompt_tokens_details: { cached_tokens: 3 } }, input(7, 3, 0)],
    [{ prompt_tokens: 10, prompt_tokens_details: { cached_tokens: 11 } }, input(0, 10, 0)],
    [{ prompt_tokens: 10, prompt_tokens_details: { cached_tokens: -1 } }, input(10, 0, 0)],
    [{ prompt_tokens: 10, prompt_cache_hit_tokens: 4 }, input(6, 4, 0)],
    [{ prompt_tokens: 10, cached_tokens: 4 }, input(6, 4, 0)],
    [
      { prompt_tokens: 10, cached_tokens: 4, prompt_tokens_details: { cached_tokens: 0 } },
      input(10, 0, 0),
    ],
    [
      { prompt_tokens: 10, prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2 } },
      input(5, 3, 2),
    ],
    [
      { prompt_tokens: 10, prompt_tokens_details: { cached_tokens: 3, cache_creation_tokens: 9 } },
      input(0, 3, 7),
    ],
    [{ prompt_tokens: 10, prompt_tokens_details: [3] }, input(10, 0, 0)],
    [{ completion_tokens: 0 }, { outputTokens: 0 }],
    [{ completion_tokens: 9 }, { outputTokens: 9 }],
    [
      { completion_tokens: 9, completion_tokens_details: {} },
      { outputTokens: 9, thinkingTokens: 0 },
    ],
    [
      { completion_tokens: 9, reasoning_tokens: 4 },
      { outputTokens: 9, thinkingTokens: 4 },
    ],
    [
      { completion_tokens: 9, reasoning_tokens: 0 },
      { outputTokens: 9, thinkingTokens: 0 },
    ],
    [{ completion_tokens: 9, reasoning_tokens: "4" }, { outputTokens: 9 }],
    [
      { completion_tokens: 9, completion_tokens_details: { reasoning_tokens: 10 } },
      { outputTokens: 9, thinkingTokens: 9 },
    ],
    [
      {
        ...{ completion_tokens: 9, reasoning_tokens: 3 },
        completion_tokens_details: { reasoning_tokens: 5 },
      },
      { outputTokens: 9, thinkingTokens: 5 },
    ],
  ])("%j is read as %j", ([usage, expected]) => {
    expect(members(usage)).toEqual(expected);
  });

  test.for([
    [14, 9, 4],
    [13, 9, 4],
    [15, 10, 4],
    [17, 12, 4],
    [18, 13, 4],
    [19, 13, 4],
    [99, 13, 4],
  ] as const)("of a total of %i has %i of output, where thinking was not counted", (one) => {
    const [total_tokens, outputTokens, thinkingTokens] = one;
    const usage = { prompt_tokens: 5, completion_tokens: 9, total_tokens, reasoning_tokens: 4 };
    expect(members(usage)).toMatchObject({ outputTokens, thinkingTokens });
  });

  test("is written with all input in one, and reads back", () => {
    const values = fc.record({
      ...{ inputTokens: anyTokens, cacheReadInputTokens: fc.nat(900) },
      ...{ cacheCreationInputTokens: fc.nat(900), outputTokens: anyTokens },
      thinkingTokens: fc.nat(5_000),
    });
    fc.assert(
      fc.property(values, (usage) => {
        const reported = { $typeName: "gateway.inference.v1.ReportedUsage" as const, ...usage };
        const { inputTokens, cacheReadInputTokens: read, cacheCreationInputTokens: wrote } = usage;
        const written = chat.encodeUsage(reported, 77);
        const prompt = inputTokens + read + wrote;
        expect(written).toMatchObject({
          ...{ prompt_tokens: prompt, completion_tokens: usage.outputTokens },
          total_tokens: prompt + usage.outputTokens,
        });
        const thinkingTokens = Math.min(usage.thinkingTokens, usage.outputTokens);
        expect(members(written)).toEqual({ ...usage, thinkingTokens });
        // The format of responses has the same figures under its own names.
        expect(endingOf("end_turn", reported, 77)).toEqual({
          status: "completed",
          members: {
            usage: {
              ...{ input_tokens: prompt, output_tokens: usage.outputTokens },
              input_tokens_details: { cached_tokens: read, cache_write_tokens: wrote },
              output_tokens_details: { reasoning_tokens: thinkingTokens },
              total_tokens: prompt + usage.outputTokens,
            },
          },
        });
      }),
    );
    expect(chat.encodeUsage(undefined, 77)).toMatchObject({ prompt_tokens: 77, total_tokens: 77 });
  });

  test("of a later report replaces the earlier one member by member", () => {
    const names = [
      ...["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"],
      "thinkingTokens",
    ] as const;
    const some = fc.record(Object.fromEntries(names.map((name) => [name, fc.nat(9)])), {
      requiredKeys: [],
    });
    const report = (members: object) => ({
      $typeName: "gateway.inference.v1.ReportedUsage" as const,
      ...members,
    });
    fc.assert(
      fc.property(some, some, (earlier, later) => {
        const merged = chat.mergeUsage(report(earlier), report(later));
        expect(merged).toEqual(report({ ...earlier, ...later }));
      }),
    );
    expect(chat.mergeUsage(undefined, report({}))).toEqual(report({}));
    expect(chat.mergeUsage(report({}), undefined)).toEqual(report({}));
    expect(chat.mergeUsage(undefined, undefined)).toBeUndefined();
  });
});

describe("the end of a chat answer", () => {
  test.for([
    ["end_turn", "stop", "completed", undefined],
    ["max_tokens", "length", "incomplete", "max_output_tokens"],
    ["model_context_window_exceeded", "length", "incomplete", "max_output_tokens"],
    ["tool_use", "tool_calls", "completed", undefined],
    ["refusal", "content_filter", "incomplete", "content_filter"],
    ["novel", "stop", "completed", undefined],
    [undefined, "stop", "completed", undefined],
  ] as const)("after %s is %s, and a response is %s", ([stopReason, finish, status, reason]) => {
    expect(chat.toFinishReason(stopReason)).toBe(finish);
    const ending = endingOf(stopReason, undefined, 0);
    expect([ending.status, ending.members.incomplete_details]).toEqual([
      status,
      reason && { reason },
    ]);
  });

  const nothing = { toolCalls: false, refusal: false };
  test.for<[string, { toolCalls?: boolean; refusal?: boolean }, string]>([
    ["stop", {}, "end_turn"],
    ["STOP", {}, "end_turn"],
    ["stop", { toolCalls: true }, "tool_use"],
    ["stop", { refusal: true }, "refusal"],
    ["stop", { toolCalls: true, refusal: true }, "tool_use"],
    ["tool_calls", {}, "end_turn"],
    ["length", { toolCalls: true }, "max_tokens"],
    ["MAX_TOKENS", {}, "max_tokens"],
    ["model_length", {}, "max_tokens"],
    ["model_context_window_exceeded", {}, "model_context_window_exceeded"],
    ["content_filter", { toolCalls: true }, "refusal"],
    ["content_filter: RECITATION", {}, "refusal"],
    ["safety", {}, "refusal"],
    ["sensitive", {}, "refusal"],
    ["refusal", {}, "refusal"],
  ])("by %j, with %o, is the stop reason %s", ([finish, content, reason]) => {
    expect(chat.toStopReason(finish, { ...nothing, ...content })).toBe(reason);
  });

  test.for([
    ["error", "api_error"],
    ["ERROR", "api_error"],
    ["malformed_function_call", "api_error"],
    ["unexpected_tool_call", "api_error"],
    ["too_many_tool_calls", "api_error"],
    ["other", "api_error"],
    ["abort", "api_error"],
    ["network_error", "api_error"],
    ["insufficient_system_resource", "overloaded_error"],
    ["stop", undefined],
  ] as const)("by %s is the failure %s", ([finish, type]) => {
    const kind = chat.failureOfReason(finish)?.kind;
    expect(kind?.case === "failure" ? kind.value.type : undefined).toBe(type);
  });

  test.for<[JsonObject, object | undefined]>([
    [{}, undefined],
    [{ error: null }, undefined],
    [{ error: "oops" }, { type: "api_error", message: "oops" }],
    [
      { error: "oops", error_type: "rate_limit" },
      { type: "overloaded_error", message: "oops" },
    ],
    [{ error: {} }, { type: "api_error", message: "The model provider failed during its answer." }],
    [{ error: { message: "" } }, { message: "The model provider failed during its answer." }],
    [{ error: { message: "m", code: 429 } }, { type: "overloaded_error", message: "m" }],
    [{ error: { message: "m", status: 504 } }, { type: "timeout_error" }],
    [
      { error: { message: "m", code: "401" } },
      { type: "authentication_error", extensions: { code: "401" } },
    ],
    [{ error: { message: "m", type: "bad_request" } }, { type: "invalid_request_error" }],
    [{ error: { message: "m", type: "insufficient_quota" } }, { type: "authentication_error" }],
    [{ error: { message: "m", code: 4290 } }, { type: "api_error" }],
    [
      { object: "error", message: "old", code: 400 },
      { type: "invalid_request_error", message: "old" },
    ],
    [
      { error: { message: "m", code: "c", param: "p" } },
      { type: "api_error", extensions: { code: "c", param: "p" } },
    ],
    [{ error: { message: "m", code: 5, param: 7 } }, { type: "api_error" }],
  ])("by the error %j is the failure %j", ([body, expected]) => {
    const kind = chat.readProviderError(body)?.kind;
    const value = kind?.case === "failure" ? kind.value : undefined;
    if (expected === undefined) expect(value).toBeUndefined();
    else {
      expect(value).toMatchObject(expected);
      expect(value?.extensions).toEqual(Object(expected).extensions);
    }
  });
});

test("an answer without content has failed, unless its reason says why it is empty", () => {
  const isFailure = (reason: string | undefined) => chat.failureOfEmpty(reason) !== undefined;
  const known = [
    "stop",
    "eos",
    "END_TURN",
    "tool_calls",
    "function_call",
    "length",
    "content_filter",
  ];
  expect(known.filter(isFailure)).toEqual([]);
  const odd = [undefined, "", "unknown", "nonstop", "stopped", "xeos"];
  expect(odd.filter((reason) => !isFailure(reason))).toEqual([]);
});

test("a refusal in words has stopped, and one without is a filter's", () => {
  const of = (reason: string | undefined) =>
    [false, true].map((isInWords) => chat.toFinishReason(reason, isInWords));
  expect(of("refusal")).toEqual(["content_filter", "stop"]);
  expect(of("max_tokens")).toEqual(["length", "length"]);
  expect(of("tool_use")).toEqual(["tool_calls", "tool_calls"]);
  expect(of(undefined)).toEqual(["stop", "stop"]);
});

test("a signed thought is one detail of the reasoning", () => {
  const detail = { type: "reasoning.text", text: "hm", signature: "s" };
  expect(chat.reasoningDetail("hm", "s")).toEqual(detail);
});

test("a response that failed or was cancelled has no answer, also without an error", () => {
  const kindOf = (body: JsonObject) => readResponseError(body)?.kind;
  for (const status of ["failed", "cancelled"])
    for (const error of [undefined, null])
      expect(kindOf(error === undefined ? { status } : { status, error })).toMatchObject({
        case: "failure",
        value: { type: "api_error" },
      });
  for (const status of ["completed", "incomplete", "in_progress", "queued"])
    expect(kindOf({ status, error: null })).toBeUndefined();
  for (const [code, type] of [
    ["invalid_prompt", "invalid_request_error"],
    ["image_too_large", "invalid_request_error"],
    ["rate_limit_exceeded", "overloaded_error"],
    ["not_invalid_", "api_error"],
  ] as const)
    expect(kindOf({ status: "failed", error: { code, message: "m" } })).toMatchObject({
      value: { type, message: "m" },
    });
});

test("a response begins with its id, its second and its model", () => {
  const wishes = {
    echo: {},
    clientTools: new Map(),
    includeSealed: false,
    includeSummary: false,
  };
  const head = headOf({ createdAtMs: 1_999, model: "m", estimatedInputTokens: 1, wishes });
  expect(head).toMatchObject({ object: "response", created_at: 1, model: "m" });
  expect(head.id).toMatch(/^resp_[0-9A-Za-z]{16,}$/);
});

describe("native usage", () => {
  test.for<[JsonObject, object]>([
    [{}, {}],
    [
      { input_tokens: 0, output_tokens: 3 },
      { inputTokens: 0, outputTokens: 3 },
    ],
    [{ cache_creation_input_tokens: 5 }, { cacheCreationInputTokens: 5 }],
    [{ cache_read_input_tokens: 7 }, { cacheReadInputTokens: 7 }],
    // A number that is no count is dropped; what is no number is kept as it came.
    [{ input_tokens: -1, output_tokens: 1.5 }, {}],
    [{ input_tokens: null }, { extensions: { input_tokens: null } }],
    [{ input_tokens: "7", tier: "x" }, { extensions: { input_tokens: "7", tier: "x" } }],
    [
      { cache_creation: { ephemeral_5m_input_tokens: 2, ephemeral_1h_input_tokens: 3, new: 1 } },
      {
        cacheCreation: {
          ...{ ephemeral5mInputTokens: 2, ephemeral1hInputTokens: 3 },
          extensions: { new: 1 },
        },
      },
    ],
    [{ cache_creation: null }, { extensions: { cache_creation: null } }],
    [{ output_tokens_details: { thinking_tokens: 4 } }, { thinkingTokens: 4 }],
    [
      { output_tokens_details: { thinking_tokens: 4, new: 1 } },
      { thinkingTokens: 4, extensions: { output_tokens_details: { thinking_tokens: 4, new: 1 } } },
    ],
    [
      { output_tokens_details: { thinking_tokens: -4 } },
      { extensions: { output_tokens_details: { thinking_tokens: -4 } } },
    ],
    [{ output_tokens_details: "x" }, { extensions: { output_tokens_details: "x" } }],
  ])("%j is read as %j, and written as it came", ([usage, expected]) => {
    const decoded = native.decodeUsage(usage);
    const plain = JSON.parse(
      JSON.stringify(decoded, (name, value) => (name === "$typeName" ? undefined : value)),
    );
    expect(plain).toEqual(expected);
    const kept = Object.fromEntries(
      Object.entries(usage).filter(
        ([, value]) => typeof value !== "number" || (value >= 0 && value % 1 === 0),
      ),
    );
    expect(decoded.$typeName).toBe("gateway.inference.v1.ReportedUsage");
    expect(native.encodeUsage(decoded)).toStrictEqual(kept);
  });

  test("has what clients need, and an estimate only while the provider reported no input", () => {
    const zeros = { cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
    const of = (usage: JsonObject, estimated?: number) => native.completeUsage(usage, estimated);
    expect(of({}, 9)).toEqual({ ...zeros, input_tokens: 9, output_tokens: 0 });
    expect(of({}, 0)).toMatchObject({ input_tokens: 1 });
    expect(of({})).toMatchObject({ input_tokens: 0 });
    expect(of({ input_tokens: 1, output_tokens: 2 }, 9)).toMatchObject({
      ...{ input_tokens: 1, output_tokens: 2 },
    });
    for (const name of Object.keys(zeros))
      expect(of({ [name]: 1 }, 9)).toMatchObject({ ...zeros, [name]: 1, input_tokens: 0 });
    expect(of({ input_tokens: "x", output_tokens: null, tier: 1 }, 9)).toEqual({
      ...{ ...zeros, input_tokens: 9, output_tokens: 0, tier: 1 },
    });
  });

  test("of a later report replaces the earlier one, and a null only what is absent", () => {
    const merge = native.mergeUsage;
    expect(merge({ a: 1, b: 2 }, { b: 3, c: 4 })).toEqual({ a: 1, b: 3, c: 4 });
    expect(merge({ a: 1 }, { a: null, b: null })).toEqual({ a: 1, b: null });
    expect(merge({ a: 1 }, { a: 0, b: null })).toEqual({ a: 0, b: null });
  });

  test("of a count is its number, or no answer", () => {
    expect(native.decodeCount({ input_tokens: 5 })).toEqual({ inputTokens: 5 });
    const more = native.decodeCount({ input_tokens: 0, x: 1 });
    expect(more).toEqual({ inputTokens: 0, extensions: { x: 1 } });
    const count = create(CountTokensResponseSchema, more);
    expect(native.encodeCount(count)).toEqual({ input_tokens: 0, x: 1 });
    for (const body of [{}, { input_tokens: "5" }, { input_tokens: -1 }])
      expect(() => native.decodeCount(body)).toThrow(
        expect.objectContaining({ reason: "upstream_error" }),
      );
  });
});

describe("the members of a chat message", () => {
  test.for<[JsonObject, boolean]>([
    [{}, true],
    [{ index: null }, true],
    [{ index: 0 }, true],
    [{ index: 1 }, false],
  ])("that are of the answer: %j", ([choice, isFirst]) => {
    expect(chat.isFirstChoice(choice)).toBe(isFirst);
  });

  test("calls and citations, in a list or alone", () => {
    expect(chat.readToolCalls({ tool_calls: [{ id: "a" }, 5, null] })).toEqual([{ id: "a" }]);
    expect(chat.readToolCalls({ tool_calls: { id: "a" } })).toEqual([{ id: "a" }]);
    expect([{}, { tool_calls: null }, { tool_calls: "x" }].map(chat.readToolCalls)).toEqual([
      ...[[], [], []],
    ]);
    expect(chat.readAnnotations({ annotations: [{ type: "url" }, 1] })).toEqual([{ type: "url" }]);
    expect(chat.readAnnotations({ annotations: {} })).toEqual([]);
  });

  test("plain reasoning, under each of its names", () => {
    for (const name of ["reasoning_content", "reasoning", "reasoning_text"])
      expect(chat.plainReasoning({ [name]: "hm" })).toEqual({ names: [name], text: "hm" });
    expect(chat.plainReasoning({ reasoning_content: "", reasoning: "hm" })).toEqual({
      ...{ names: ["reasoning"], text: "hm" },
    });
    expect(chat.plainReasoning({ reasoning: "hm", reasoning_text: "hm" }).names).toEqual([
      ...["reasoning", "reasoning_text"],
    ]);
    for (const none of [{}, { reasoning: "" }, { reasoning: {} }])
      expect(chat.plainReasoning(none)).toEqual({ names: [], text: "" });
  });

  test.for<[JsonValue | undefined, unknown[]]>([
    [undefined, []],
    ["", []],
    ["a", [{ text: "a" }]],
    [
      [{ type: "text", text: "a" }, { type: "text", text: "" }, 5, { type: "reference" }],
      [{ text: "a" }],
    ],
    [
      [{ type: "thinking", thinking: [{ type: "text", text: "a" }], signature: "s", more: 1 }],
      [{ thought: { text: "a", signature: "s", members: { signature: "s", more: 1 } } }],
    ],
    [
      [{ type: "thinking", thinking: "a" }],
      [{ thought: { text: "a", signature: "", members: {} } }],
    ],
    [
      [{ type: "reasoning", summary: [{ text: "a", signature: "s" }, 5] }, { type: "reasoning" }],
      [{ thought: { text: "a", signature: "s", members: {} } }],
    ],
  ])("content %j is %j", ([content, parts]) => {
    expect(chat.readContent(content)).toEqual(parts);
  });

  test("images, inline or by their address", () => {
    const image = (url: JsonValue) => ({ image_url: { url } });
    const images = [
      image("data:image/png;base64,AAAA"),
      image("https://a.example/b.png"),
      image(5),
      7,
    ];
    expect(chat.readImages({ images }).map(({ kind }) => kind.value)).toMatchObject([
      { source: { kind: { case: "base64", value: { mediaType: "image/png", data: "AAAA" } } } },
      { source: { kind: { case: "url", value: "https://a.example/b.png" } } },
    ]);
    expect(chat.readImages({})).toEqual([]);
  });
});
