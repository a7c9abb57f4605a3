import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { enforceFeaturePolicy } from "../../src/inference/feature-policy.ts";
import { errorOf, requestOf } from "../support/requests.ts";

const none = { serverTools: false, fastSpeed: false, inferenceGeo: false };
const all = { serverTools: true, fastSpeed: true, inferenceGeo: true };

const refused: { member: JsonObject; reason: string; pricedAway?: true }[] = [
  { member: { thread: { type: "create" } }, reason: "thread_unsupported_request" },
  { member: { fallbacks: [{ model: "x" }] }, reason: "feature_not_offered" },
  { member: { fallback_credit_token: "t" }, reason: "feature_not_offered" },
  { member: { billing_policy: "x" }, reason: "feature_not_offered" },
  { member: { speed: "fast" }, reason: "feature_not_offered", pricedAway: true },
  { member: { inference_geo: "eu" }, reason: "feature_not_offered", pricedAway: true },
  { member: { service_tier: "priority" }, reason: "feature_not_offered" },
  { member: { mcp_servers: [{ url: "x" }] }, reason: "feature_not_offered", pricedAway: true },
  { member: { container: "c" }, reason: "feature_not_offered", pricedAway: true },
];
for (const { member, reason, pricedAway } of refused) {
  test(`${JSON.stringify(member)} is refused${pricedAway ? " unless it is priced" : ", whatever is priced"}`, () => {
    const judge = (features: typeof none) =>
      errorOf(() => enforceFeaturePolicy(requestOf({ extensions: member }), features));
    expect(judge(none)?.reason).toBe(reason);
    expect(judge(all)?.reason).toBe(pricedAway ? undefined : reason);
  });
}

const kept: { member: JsonObject; as: JsonObject }[] = [
  { member: { speed: "standard" }, as: { speed: "standard" } },
  { member: { speed: null }, as: { speed: null } },
  { member: { service_tier: "auto" }, as: { service_tier: "standard_only" } },
  { member: { service_tier: "standard_only" }, as: { service_tier: "standard_only" } },
  { member: { inference_geo: null, billing_policy: null, thread: null, fallbacks: null }, as: {} },
  { member: { mcp_servers: [], container: null }, as: { mcp_servers: [], container: null } },
  {
    member: { context_management: { edits: [{ type: "compact_20260112" }] } },
    as: { context_management: { edits: [{ type: "compact_20260112" }] } },
  },
  { member: { safeguards: [1], tools: [] }, as: { safeguards: [1], tools: [] } },
];
for (const { member, as } of kept) {
  test(`${JSON.stringify(member)} is sent on as ${JSON.stringify(as)}`, () => {
    expect(enforceFeaturePolicy(requestOf({ extensions: member }), none).extensions).toEqual(as);
  });
}

test("a member called __proto__ is a member like any other", () => {
  const extensions: JsonObject = JSON.parse('{"__proto__": {"speed": "fast"}, "a": 1}');
  const judged = enforceFeaturePolicy(requestOf({ extensions }), none).extensions;
  expect(Object.keys(judged ?? {})).toEqual(["__proto__", "a"]);
});

for (const type of [
  "web_search_20250305",
  "web_fetch_20250910",
  "code_execution_20250825",
  "advisor_20260101",
  "mcp_toolset",
]) {
  test(`the tool ${type} costs beyond tokens, so it is refused unless it is priced`, () => {
    const request = requestOf({ tools: [{ name: "a" }, { type, name: "b" }] });
    expect(errorOf(() => enforceFeaturePolicy(request, none))).toMatchObject({
      reason: "feature_not_offered",
      facts: { field: "tools[1].type" },
    });
    expect(errorOf(() => enforceFeaturePolicy(request, all))).toBeUndefined();
  });
}

for (const type of [
  "tool_search_tool_regex_20251119",
  "memory_20250818",
  "bash_20250124",
  "text_editor_20250728",
  "custom",
]) {
  test(`the tool ${type} is free`, () => {
    expect(
      errorOf(() => enforceFeaturePolicy(requestOf({ tools: [{ type, name: "a" }] }), none)),
    ).toBeUndefined();
  });
}

const file = { kind: { case: "other" as const, value: { type: "file", file_id: "file_1" } } };
const image = { kind: { case: "image" as const, value: { source: file } } };
test("files are refused wherever they stand: a provider's ids belong to another account", () => {
  const nested = {
    kind: { case: "toolResult" as const, value: { toolUseId: "t", content: [image] } },
  };
  const upload = {
    kind: { case: "other" as const, value: { type: "container_upload", file_id: "f" } },
  };
  for (const block of [image, nested, upload]) {
    const request = requestOf({ messages: [{ role: Role.USER, content: [block] }] });
    expect(errorOf(() => enforceFeaturePolicy(request, all))?.reason).toBe("feature_not_offered");
  }
});

const bypasses: JsonObject[] = [
  { model: "model-opus-4.6" },
  { max_tokens: 128_000 },
  { messages: [{ role: "user", content: "x" }] },
  { system: "x" },
  { stream: true },
  { thinking: { type: "enabled", budget_tokens: 60_000 } },
  { tool_choice: { type: "any" } },
  { tools: [{ type: "web_search_20250305" }] },
];
for (const extensions of bypasses) {
  test(`an extension ${Object.keys(extensions)} cannot go around what is judged, granted and held`, () => {
    expect(errorOf(() => enforceFeaturePolicy(requestOf({ extensions }), all))?.reason).toBe(
      "invalid_request",
    );
  });
}

test("an extension of a tool or an image cannot change what it is", () => {
  const tool = { name: "a", extensions: { type: "web_search_20250305" } };
  expect(errorOf(() => enforceFeaturePolicy(requestOf({ tools: [tool] }), none))?.reason).toBe(
    "invalid_request",
  );
  const source = { kind: { case: "url" as const, value: "https://example.com/a.png" } };
  const block = {
    kind: { case: "image" as const, value: { source } },
    extensions: { source: { type: "file", file_id: "f" } },
  };
  const request = requestOf({ messages: [{ role: Role.USER, content: [block] }] });
  expect(errorOf(() => enforceFeaturePolicy(request, none))?.reason).toBe("invalid_request");
});

test("members of a chat request are never judged, because they never reach a provider", () => {
  const request = requestOf({
    sourceFormat: Format.CHAT,
    extensions: { service_tier: "priority", thread: {} },
  });
  expect(enforceFeaturePolicy(request, none).extensions).toEqual({
    service_tier: "priority",
    thread: {},
  });
});
