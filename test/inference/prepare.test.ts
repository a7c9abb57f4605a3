import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { defaultCatalog, readCatalogFile } from "../../src/catalog-file/catalog-file.ts";
import { createCatalog } from "../../src/inference/inference.ts";
import { prepare } from "../../src/inference/prepare.ts";
import { type RequestMembers, refusalOf, requestOf } from "./requests.ts";

const catalog = createCatalog(readCatalogFile(defaultCatalog()));
const prepared = (more: RequestMembers = {}, allowed: string[] = []) => prepare(catalog, requestOf(more), allowed);
const refused = (more: RequestMembers, allowed: string[] = []) => refusalOf(() => prepared(more, allowed));

test("a request for an alias is prepared, priced and sent under the model's id", () => {
  const { request, target } = prepared({ model: "claude-haiku-4-5" });
  expect(request.model).toBe("model-haiku-4.5");
  expect(target.price).toMatchObject({ input: 140n, output: 700n });
});

test("a key's models are checked after the name is resolved", () => {
  expect(prepared({ model: "haiku" }, ["model-haiku-4.5"]).request.model).toBe("model-haiku-4.5");
  expect(refused({ model: "opus" }, ["model-haiku-4.5"])).toMatchObject({
    refusal: "model_not_allowed",
    facts: { allowed: ["model-haiku-4.5"] },
  });
});

// haiku: 64,000 output tokens at most.
const limits: { name: string; more: RequestMembers; maxTokens: number; floor: number }[] = [
  { name: "nothing said", more: { maxTokens: undefined }, maxTokens: 32_000, floor: 1_024 },
  { name: "a few tokens", more: { maxTokens: 5 }, maxTokens: 5, floor: 5 },
  { name: "no tokens", more: { maxTokens: 0 }, maxTokens: 0, floor: 0 },
  { name: "the most", more: { maxTokens: 64_000 }, maxTokens: 64_000, floor: 1_024 },
  {
    name: "too much for a model that was guessed",
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
  { name: "an effort", more: { maxTokens: 8_000, reasoningEffort: "medium" }, maxTokens: 8_000, floor: 4_097 },
];
for (const { name, more, maxTokens, floor } of limits) {
  test(`with ${name}, at most ${maxTokens} tokens are wanted and ${floor} are worth starting`, () => {
    expect(prepared(more).bounds).toMatchObject({ maxOutput: maxTokens, minOutput: floor });
  });
}

test("more output than a named model can give is refused", () => {
  expect(refused({ maxTokens: 64_001 })).toMatchObject({ refusal: "invalid_request", facts: { field: "max_tokens" } });
});

test("the bounds of the hold follow from the prompt", () => {
  const { bounds } = prepared({ cacheControl: { ttl: "1h" } });
  expect(bounds.dearestInput).toBe(InputCategory.CACHE_WRITE_1H);
  expect(bounds.input).toBeGreaterThan(0);
});

const efforts: { effort: string; adaptive: object; budget: object }[] = [
  { effort: "none", adaptive: { thinking: { type: "disabled" } }, budget: { thinking: { type: "disabled" } } },
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
  test(`the effort ${effort} becomes what the model understands`, () => {
    const asked = { reasoningEffort: effort, maxTokens: 60_000, temperature: 0.5 };
    expect(prepared({ ...asked, model: "sonnet" }).request).toMatchObject(adaptive);
    expect(prepared(asked).request).toMatchObject(budget);
    // Providers refuse sampling beside thinking.
    expect(prepared(asked).request.temperature).toBe(effort === "none" ? 0.5 : undefined);
  });
}

test("an effort gives way to a thinking that was set, a forced tool, an unknown name and too few tokens", () => {
  const asked = { reasoningEffort: "high", maxTokens: 60_000 };
  expect(prepared({ ...asked, thinking: { type: "disabled" } }).request.thinking?.type).toBe("disabled");
  expect(prepared({ ...asked, toolChoice: { type: "any" } }).request.thinking).toBeUndefined();
  expect(prepared({ ...asked, reasoningEffort: "constructor" }).request.thinking).toBeUndefined();
  expect(prepared({ ...asked, maxTokens: 1_024 }).request.thinking).toBeUndefined();
  expect(prepared({ ...asked, maxTokens: 1_500 }).request.thinking?.budgetTokens).toBe(1_499);
});

const guesses: { name: string; asked: RequestMembers; sent: object }[] = [
  {
    name: "an effort",
    asked: { thinking: { type: "adaptive", extensions: { display: "omitted" } }, outputConfig: { effort: "medium" } },
    sent: { thinking: { type: "enabled", budgetTokens: 4_096, extensions: { display: "omitted" } }, outputConfig: undefined },
  },
  {
    name: "no effort",
    asked: { thinking: { type: "adaptive" } },
    sent: { thinking: { type: "enabled", budgetTokens: 16_384 } },
  },
  {
    name: "a budget for more output",
    asked: { thinking: { type: "enabled", budgetTokens: 127_999 } },
    sent: { thinking: { type: "enabled", budgetTokens: 63_999 } },
  },
  { name: "few tokens", asked: { maxTokens: 1_000, thinking: { type: "adaptive" } }, sent: { thinking: undefined } },
];
for (const { name, asked, sent } of guesses) {
  test(`thinking with ${name}, written for a model that we only guess at, becomes what the model takes`, () => {
    const { request } = prepared({ model: "claude-haiku-9", maxTokens: 128_000, ...asked });
    expect({ thinking: request.thinking, outputConfig: request.outputConfig }).toMatchObject(sent);
  });
}

test("thinking goes on as it is to a model that was named, and to one that takes it so", () => {
  const asked = { maxTokens: 8_000, thinking: { type: "adaptive" }, outputConfig: { effort: "low" } };
  expect(prepared(asked).request).toMatchObject({ thinking: asked.thinking, outputConfig: asked.outputConfig });
  expect(prepared({ ...asked, model: "claude-opus-9" }).request).toMatchObject({
    thinking: asked.thinking,
    outputConfig: asked.outputConfig,
  });
});

test("what costs beyond tokens is refused before anything is held", () => {
  expect(refused({ tools: [{ name: "s", type: "web_search_20250305" }] })?.refusal).toBe("feature_not_offered");
});
