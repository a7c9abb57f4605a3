import { expect, test } from "vitest";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { createCatalog } from "../../src/inference/inference.ts";
import { errorOf } from "../support/requests.ts";

const catalog = createCatalog(readCatalogFile(defaultCatalog()));
const strict = createCatalog({ ...readCatalogFile(defaultCatalog()), tierFallback: false });

const exact: Record<string, string> = {
  "model-haiku-4.5": "model-haiku-4.5",
  haiku: "model-haiku-4.5",
  sonnet: "model-sonnet-4.6",
  "Model-Opus-4.6": "model-opus-4.6",
  "claude-opus-4-6": "model-opus-4.6",
  "claude-haiku-4-5-20251001": "model-haiku-4.5",
  "claude-haiku-4-5@20251001": "model-haiku-4.5",
  "claude-haiku-4-5-latest": "model-haiku-4.5",
  "anthropic/claude-sonnet-4.6": "model-sonnet-4.6",
  "vendor/model-sonnet-4.6": "model-sonnet-4.6",
  "claude-sonnet-4-6[1m]": "model-sonnet-4.6",
  "us.anthropic.claude-haiku-4-5-20251001-v1:0": "model-haiku-4.5",
  "openrouter/anthropic/claude-opus-4.6:thinking": "model-opus-4.6",
  "vertex_ai/claude-sonnet-4-6@default": "model-sonnet-4.6",
};
for (const [name, id] of Object.entries(exact)) {
  test(`${name} is ${id}`, () => {
    expect(strict.find(name)).toMatchObject({ model: { id }, exact: true });
  });
}

const byTier: Record<string, string> = {
  "claude-opus-5-5": "model-opus-4.6",
  "claude-3-5-sonnet-20241022": "model-sonnet-4.6",
  "anthropic/claude-haiku-9": "model-haiku-4.5",
  "claude-sonnet-5-5-20270101": "model-sonnet-4.6",
  "eu.anthropic.claude-opus-6-v2:0": "model-opus-4.6",
  "sonnet-5.5": "model-sonnet-4.6",
};
for (const [name, id] of Object.entries(byTier)) {
  test(`${name} selects the current model of its tier, ${id}, unless the operator forbids it`, () => {
    expect(catalog.find(name)).toMatchObject({ model: { id }, exact: false });
    expect(strict.find(name)).toBeUndefined();
  });
}

for (const name of [
  "gpt-4o",
  "gpt-6.2-sol",
  "magnum-opus-4",
  "model-opus-9",
  "claude",
  "",
  "__proto__",
  "constructor",
  "opus-claude?",
]) {
  const outcome = name === "opus-claude?" ? "model-opus-4.6" : undefined;
  test(`${JSON.stringify(name)} is ${outcome ?? "no model"}`, () => {
    expect(catalog.find(name)?.model.id).toBe(outcome);
  });
}

test("the error of an unknown name lists the names that the key may use, and quotes at most its beginning", () => {
  const error = errorOf(() => catalog.resolve("x".repeat(10_000), ["model-haiku-4.5"]));
  expect(error).toMatchObject({
    reason: "model_not_found",
    facts: { allowed: ["model-haiku-4.5", "haiku"] },
  });
  expect(error?.message.length).toBeLessThan(300);
});
