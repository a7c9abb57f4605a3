import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { createCatalog } from "../../src/inference/inference.ts";
import { prepare, prepareModel } from "../../src/inference/prepare.ts";
import { errorOf, type RequestMembers, requestOf, userMessage } from "../support/requests.ts";

const asked = (reasoningEffort: string) => ({ format: Format.CHAT, reasoningEffort });

const catalog = createCatalog(readCatalogFile(defaultCatalog()));
const prepared = (more: RequestMembers = {}, allowed: string[] = []) =>
  prepare(catalog, requestOf(more), allowed);
const refused = (more: RequestMembers, allowed: string[] = []) =>
  errorOf(() => prepared(more, allowed));

test("a request for an alias is prepared, priced and sent under the model's id", () => {
  const { request, price } = prepared({ model: "claude-haiku-4-5" });
  expect(request.model).toBe("model-haiku-4.5");
  expect(price).toMatchObject({ input: 140_000n, output: 700_000n });
});

test("a key's models are checked after the name is resolved", () => {
  expect(prepared({ model: "haiku" }, ["model-haiku-4.5"]).request.model).toBe("model-haiku-4.5");
  expect(refused({ model: "opus" }, ["model-haiku-4.5"])).toMatchObject({
    reason: "model_not_allowed",
    facts: { allowed: ["model-haiku-4.5"] },
  });
});

test("a request has at most 40,000 blocks and 512 tools, whichever listener received it", () => {
  const block = { kind: { case: "text", value: { text: "x" } } } as const;
  const conversation = (count: number) => ({
    messages: [{ role: Role.USER, content: Array(count).fill(block) }],
  });
  const tools = (count: number) => ({
    tools: Array.from({ length: count }, (_, index) => ({ name: `t${index}` })),
  });
  expect(prepared({ ...conversation(40_000), ...tools(512) }).request.tools).toHaveLength(512);
  expect(refused(conversation(40_001))).toMatchObject({
    reason: "request_too_large",
    facts: { limit: { name: "messages_and_parts", limit: 40_000n } },
  });
  // Those of the instruction and of results count, and a message counts for one at least.
  const content = (count: number) => Array(count).fill(block);
  const user = (count: number) => ({ role: Role.USER, content: content(count) });
  const system = { content: content(20_000) };
  const { request } = prepared({ system, messages: [user(20_000)] });
  expect(request.messages).toHaveLength(1);
  const value = { toolUseId: "t", content: content(39_999) };
  const resulting = {
    role: Role.USER,
    content: [{ kind: { case: "toolResult", value } as const }],
  };
  expect(prepared({ messages: [resulting] }).request.messages).toHaveLength(1);
  for (const more of [
    { system, messages: [user(20_001)] },
    { messages: [resulting, user(1)] },
    { messages: [resulting, user(0)] },
  ])
    expect(refused(more)?.reason).toBe("request_too_large");
  expect(refused(tools(513))).toMatchObject({
    reason: "request_too_large",
    facts: { limit: { name: "tools", limit: 512n } },
  });
});

// haiku: 64,000 output tokens at most.
const limits: { name: string; more: RequestMembers; maxTokens: number; floor: number }[] = [
  { name: "no limit", more: { maxTokens: undefined }, maxTokens: 64_000, floor: 1_024 },
  { name: "a few tokens", more: { maxTokens: 5 }, maxTokens: 5, floor: 5 },
  { name: "no tokens", more: { maxTokens: 0 }, maxTokens: 0, floor: 0 },
  { name: "the most", more: { maxTokens: 64_000 }, maxTokens: 64_000, floor: 1_024 },
  { name: "too much", more: { maxTokens: 64_001 }, maxTokens: 64_000, floor: 1_024 },
  { name: "the largest number", more: { maxTokens: 2 ** 32 - 1 }, maxTokens: 64_000, floor: 1_024 },
  {
    name: "a thinking budget above the model's limit",
    more: { maxTokens: 99_000, thinking: { type: "enabled", budgetTokens: 90_000 } },
    maxTokens: 64_000,
    floor: 64_000,
  },
  {
    name: "too much for a model selected by its tier",
    more: { model: "claude-haiku-9", maxTokens: 99_000 },
    maxTokens: 64_000,
    floor: 1_024,
  },
  {
    name: "a thinking budget",
    more: { maxTokens: 20_000, thinking: { type: "enabled", budgetTokens: 10_000 } },
    maxTokens: 20_000,
    floor: 10_001,
  },
  {
    name: "a thinking budget that leaves no room",
    more: { maxTokens: 4_000, thinking: { type: "enabled", budgetTokens: 4_000 } },
    maxTokens: 4_000,
    floor: 1_024,
  },
  {
    name: "an effort",
    more: { maxTokens: 8_000, origin: asked("medium") },
    maxTokens: 8_000,
    floor: 4_097,
  },
];
for (const { name, more, maxTokens, floor } of limits) {
  test(`with ${name}, the output is at most ${maxTokens} tokens and at least ${floor}`, () => {
    expect(prepared(more).bounds).toMatchObject({ maxOutput: maxTokens, minOutput: floor });
  });
}

test("a limit that the client does not name leaves room for the prompt", () => {
  // Of 200,000 tokens, about 150,000 by three bytes a token.
  const content = [{ kind: { case: "text", value: { text: "x".repeat(450_000) } } }] as const;
  const messages = [{ role: Role.USER, content: [...content] }];
  const { bounds } = prepared({ maxTokens: undefined, messages });
  expect(bounds.maxOutput).toBe(200_000 - Math.ceil((112_502 * 4) / 3));
  expect(prepared({ maxTokens: 64_000, messages }).bounds.maxOutput).toBe(64_000);
});

test("the bounds of the hold follow from the prompt", () => {
  const { bounds } = prepared({ cacheControl: { ttl: "1h" } });
  expect(bounds.mostExpensiveInput).toBe(InputCategory.CACHE_WRITE_1H);
  expect(bounds.input).toBeGreaterThan(0);
});

const efforts: { effort: string; adaptive: object; budget: object }[] = [
  {
    effort: "none",
    adaptive: { thinking: { type: "disabled" } },
    budget: { thinking: { type: "disabled" } },
  },
  ...[
    { effort: "minimal", level: "low", tokens: 1_024 },
    { effort: "low", level: "low", tokens: 1_024 },
    { effort: "medium", level: "medium", tokens: 4_096 },
    { effort: "high", level: "high", tokens: 16_384 },
    { effort: "xhigh", level: "max", tokens: 32_768 },
    { effort: "max", level: "max", tokens: 32_768 },
  ].map(({ effort, level, tokens }) => ({
    effort,
    adaptive: { thinking: { type: "adaptive" }, outputConfig: { effort: level } },
    budget: { thinking: { type: "enabled", budgetTokens: tokens } },
  })),
];
for (const { effort, adaptive, budget } of efforts) {
  test(`the effort ${effort} becomes the thinking options of the model`, () => {
    const received = { origin: asked(effort), maxTokens: 60_000, temperature: 0.5 };
    expect(prepared({ ...received, model: "sonnet" }).request).toMatchObject(adaptive);
    expect(prepared(received).request).toMatchObject(budget);
    // Providers refuse sampling beside thinking.
    expect(prepared(received).request.temperature).toBe(effort === "none" ? 0.5 : undefined);
  });
}

test("an effort is ignored beside thinking options, a forced tool, an unknown effort and too few tokens", () => {
  const received = { origin: asked("high"), maxTokens: 60_000 };
  expect(prepared({ ...received, thinking: { type: "disabled" } }).request.thinking?.type).toBe(
    "disabled",
  );
  expect(prepared({ ...received, toolChoice: { type: "any" } }).request.thinking).toBeUndefined();
  expect(prepared({ ...received, origin: asked("constructor") }).request.thinking).toBeUndefined();
  expect(prepared({ ...received, maxTokens: 1_024 }).request.thinking).toBeUndefined();
  expect(prepared({ ...received, maxTokens: 1_500 }).request.thinking?.budgetTokens).toBe(1_499);
});

const text = { kind: { case: "text" as const, value: { text: "Let me see." } } };
const thought = {
  kind: { case: "thinking" as const, value: { thinking: "Hm", signature: "c2ln" } },
};
const hidden = { kind: { case: "redactedThinking" as const, value: { data: "c2ln" } } };
const call = { kind: { case: "toolUse" as const, value: { id: "t", name: "n" } } };
const result = { kind: { case: "toolResult" as const, value: { toolUseId: "t" } } };
const answered = (...content: (typeof text | typeof thought | typeof hidden | typeof call)[]) => ({
  role: Role.ASSISTANT,
  content,
});
const resulted = { role: Role.USER, content: [result] };

const turns: {
  name: string;
  messages: NonNullable<RequestMembers["messages"]>;
  thinks: boolean;
}[] = [
  {
    name: "an earlier turn without thinking",
    messages: [userMessage("A"), answered(text), userMessage("B")],
    thinks: true,
  },
  {
    name: "tool calls without thinking",
    messages: [userMessage("A"), answered(call), resulted],
    thinks: false,
  },
  {
    name: "tool calls after a text",
    messages: [userMessage("A"), answered(text, call), resulted],
    thinks: false,
  },
  {
    name: "tool calls after thinking",
    messages: [userMessage("A"), answered(thought, call), resulted],
    thinks: true,
  },
  {
    name: "tool calls after redacted thinking",
    messages: [userMessage("A"), answered(hidden, call), resulted],
    thinks: true,
  },
  {
    name: "tool calls whose turn began with thinking",
    messages: [userMessage("A"), answered(thought, call), resulted, answered(call), resulted],
    thinks: true,
  },
  {
    name: "tool calls without thinking after a turn with it",
    messages: [
      userMessage("A"),
      answered(thought, text),
      userMessage("B"),
      answered(call),
      resulted,
    ],
    thinks: false,
  },
  {
    name: "a text beside the results",
    messages: [userMessage("A"), answered(call), { role: Role.USER, content: [result, text] }],
    thinks: false,
  },
  {
    name: "the start of an answer",
    messages: [userMessage("A"), answered(text)],
    thinks: false,
  },
];
for (const { name, messages, thinks } of turns) {
  test(`after ${name}, a model with thinking budgets ${thinks ? "gets a budget" : "gets none: its provider would refuse it"}`, () => {
    const budget = thinks ? { type: "enabled", budgetTokens: 16_384 } : undefined;
    const received = { messages, maxTokens: 60_000, origin: asked("high"), temperature: 0.5 };
    const { request } = prepared(received);
    expect([request.thinking, request.temperature]).toMatchObject([
      budget,
      thinks ? undefined : 0.5,
    ]);
    expect(prepared({ ...received, model: "sonnet" }).request.thinking).toMatchObject({
      type: "adaptive",
    });
    const clear = { type: "clear_thinking_20251015", keep: "all" };
    const shrink = { type: "clear_tool_uses_20250919" };
    const extensions = { context_management: { edits: [clear, shrink] } };
    const byTier = {
      model: "claude-haiku-9",
      messages,
      maxTokens: 60_000,
      thinking: { type: "adaptive" },
      extensions,
    };
    const adaptedRequest = prepared(byTier).request;
    expect([adaptedRequest.thinking]).toMatchObject([budget]);
    expect(adaptedRequest.extensions).toEqual({
      context_management: { edits: thinks ? [clear, shrink] : [shrink] },
    });
  });
}

test("a model that cannot think gets no thinking options", () => {
  const file = defaultCatalog().replace("thinking: budget", "thinking: none");
  const withoutThinking = createCatalog(readCatalogFile(file));
  const format = { type: "json_schema", schema: { type: "object" } };
  const received: { request: RequestMembers; outputConfig: object | undefined }[] = [
    {
      request: { thinking: { type: "adaptive" }, outputConfig: { effort: "high" } },
      outputConfig: undefined,
    },
    {
      request: { thinking: { type: "adaptive" }, outputConfig: { effort: "high", format } },
      outputConfig: { format },
    },
    { request: { thinking: { type: "enabled", budgetTokens: 5_000 } }, outputConfig: undefined },
    { request: { outputConfig: { effort: "low" } }, outputConfig: undefined },
    { request: { origin: asked("high") }, outputConfig: undefined },
  ];
  const extensions = {
    context_management: { edits: [{ type: "clear_thinking_20251015" }] },
    metadata: { user_id: "u" },
  };
  expect(
    prepareModel(withoutThinking, requestOf({ model: "haiku", extensions }), []).request.extensions,
  ).toEqual({
    metadata: { user_id: "u" },
  });
  for (const { request: members, outputConfig } of received) {
    for (const model of ["haiku", "claude-haiku-9"]) {
      const incoming = requestOf({ ...members, model, maxTokens: 20_000 });
      const { request, bounds } = prepare(withoutThinking, incoming, []);
      expect([
        request.thinking,
        request.origin?.reasoningEffort,
        request.outputConfig,
      ]).toMatchObject([undefined, undefined, outputConfig]);
      expect(bounds.minOutput).toBe(1_024);
      expect(chat.encodeRequest(request, { model: "m", stream: true })).not.toHaveProperty(
        "reasoning_effort",
      );
      expect(prepareModel(withoutThinking, incoming, []).request.thinking).toBeUndefined();
    }
  }
});

const adapted: { name: string; received: RequestMembers; sent: object }[] = [
  {
    name: "an effort",
    received: {
      thinking: { type: "adaptive", extensions: { display: "omitted" } },
      outputConfig: { effort: "medium" },
    },
    sent: {
      thinking: { type: "enabled", budgetTokens: 4_096, extensions: { display: "omitted" } },
      outputConfig: undefined,
    },
  },
  {
    name: "no effort",
    received: { thinking: { type: "adaptive" } },
    sent: { thinking: { type: "enabled", budgetTokens: 16_384 } },
  },
  {
    name: "a budget for more output",
    received: { thinking: { type: "enabled", budgetTokens: 127_999 } },
    sent: { thinking: { type: "enabled", budgetTokens: 63_999 } },
  },
  {
    name: "few tokens",
    received: { maxTokens: 1_000, thinking: { type: "adaptive" } },
    sent: { thinking: undefined },
  },
];
for (const { name, received, sent } of adapted) {
  test(`thinking with ${name} that was written for an unknown model is adapted to the selected one`, () => {
    const { request } = prepared({ model: "claude-haiku-9", maxTokens: 128_000, ...received });
    expect({ thinking: request.thinking, outputConfig: request.outputConfig }).toMatchObject(sent);
  });
}

test("an effort that was written for an unknown model becomes one that the selected model knows", () => {
  const effortSent = (model: string, effort: string) =>
    prepared({ model, maxTokens: 8_000, thinking: { type: "adaptive" }, outputConfig: { effort } })
      .request.outputConfig?.effort;
  expect(
    ["low", "xhigh", "max", "new"].map((effort) => effortSent("claude-sonnet-9", effort)),
  ).toEqual(["low", "max", "max", "new"]);
  expect(effortSent("sonnet", "xhigh")).toBe("xhigh");
});

test("thinking options stay as they are for a named model, and for one that accepts them", () => {
  const received = {
    maxTokens: 8_000,
    thinking: { type: "adaptive" },
    outputConfig: { effort: "low" },
  };
  expect(prepared(received).request).toMatchObject({
    thinking: received.thinking,
    outputConfig: received.outputConfig,
  });
  expect(prepared({ ...received, model: "claude-opus-9" }).request).toMatchObject({
    thinking: received.thinking,
    outputConfig: received.outputConfig,
  });
});

test("a feature that costs beyond tokens is refused", () => {
  expect(refused({ tools: [{ name: "s", type: "web_search_20250305" }] })?.reason).toBe(
    "feature_not_offered",
  );
});
