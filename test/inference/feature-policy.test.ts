import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { leftOutReasonName } from "../../src/base/left-out.ts";
import {
  enforceFeaturePolicy,
  type HostedPolicy,
  webSearchesOf,
} from "../../src/inference/feature-policy.ts";
import { errorOf, requestOf } from "../support/requests.ts";

const none = { serverTools: false };
const all = { serverTools: true };
/** What has a price. */
const offered = { speed: new Set(["fast"]), geo: new Set(["eu"]), tier: new Set(["priority"]) };

const refused: { member: JsonObject; reason: string; isAllowable?: true }[] = [
  { member: { thread: { type: "create" } }, reason: "thread_unsupported_request" },
  { member: { fallbacks: [{ model: "x" }] }, reason: "feature_not_offered" },
  { member: { fallback_credit_token: "t" }, reason: "feature_not_offered" },
  { member: { billing_policy: "x" }, reason: "feature_not_offered" },
  { member: { speed: "fast" }, reason: "feature_not_offered", isAllowable: true },
  { member: { inference_geo: "eu" }, reason: "feature_not_offered", isAllowable: true },
  { member: { service_tier: "priority" }, reason: "feature_not_offered" },
  { member: { mcp_servers: [{ url: "x" }] }, reason: "feature_not_offered", isAllowable: true },
  { member: { container: "c" }, reason: "feature_not_offered" },
];
for (const { member, reason, isAllowable } of refused) {
  test(`${JSON.stringify(member)} is refused${isAllowable ? " unless it is allowed or has a price" : ", also if all features are allowed and priced"}`, () => {
    const request = requestOf({ extensions: member });
    expect(errorOf(() => enforceFeaturePolicy(request, none))?.reason).toBe(reason);
    const given = errorOf(() => enforceFeaturePolicy(request, all, undefined, offered));
    expect(given?.reason).toBe(isAllowable ? undefined : reason);
  });
}

test("a geography, a speed and a tier without a price are refused, whatever others have one", () => {
  const openai = { origin: { format: Format.CHAT } };
  for (const [member, of] of [
    [{ inference_geo: "us" }, {}],
    [{ speed: "faster" }, {}],
    [{ service_tier: "flex" }, openai],
  ] as const)
    expect(
      errorOf(() =>
        enforceFeaturePolicy(requestOf({ extensions: member, ...of }), all, undefined, offered),
      ),
    ).toMatchObject({ reason: "feature_not_offered" });
  const asked = requestOf({ extensions: { service_tier: "priority" }, ...openai });
  expect(enforceFeaturePolicy(asked, none, undefined, offered).extensions).toEqual({
    service_tier: "priority",
  });
});

const permitted: { member: JsonObject; as: JsonObject }[] = [
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
for (const { member, as } of permitted) {
  test(`${JSON.stringify(member)} is sent on as ${JSON.stringify(as)}`, () => {
    expect(enforceFeaturePolicy(requestOf({ extensions: member }), none).extensions).toEqual(as);
  });
}

test("a member called __proto__ is a member like any other", () => {
  const extensions: JsonObject = JSON.parse('{"__proto__": {"speed": "fast"}, "a": 1}');
  const permitted = enforceFeaturePolicy(requestOf({ extensions }), none).extensions;
  expect(Object.keys(permitted ?? {})).toEqual(["__proto__", "a"]);
});

for (const type of [
  "web_search_20250305",
  "web_fetch_20250910",
  "advisor_20260101",
  "mcp_toolset",
]) {
  test(`the tool ${type} costs beyond tokens, so it is refused unless the operator allows it`, () => {
    const request = requestOf({ tools: [{ name: "a" }, { type, name: "b" }] });
    expect(errorOf(() => enforceFeaturePolicy(request, none))).toMatchObject({
      reason: "feature_not_offered",
      facts: { field: "tools[1].type" },
    });
    expect(errorOf(() => enforceFeaturePolicy(request, all))).toBeUndefined();
  });
}

test("code execution has no price, so it is refused, whatever the operator allows", () => {
  const request = requestOf({ tools: [{ type: "code_execution_20250825", name: "b" }] });
  for (const features of [none, all])
    expect(errorOf(() => enforceFeaturePolicy(request, features))).toMatchObject({
      reason: "feature_not_offered",
      facts: { field: "tools[0].type" },
    });
});

const search = (extensions?: JsonObject) => ({
  ...{ type: "web_search_20250305", name: "web_search" },
  ...(extensions && { extensions }),
});

test("a request that does not bound its web searches may make eight", () => {
  for (const given of [undefined, { max_uses: null }]) {
    const request = requestOf({ tools: [search(given), { name: "a" }] });
    const bounded = enforceFeaturePolicy(request, all);
    expect(bounded.tools.map(({ extensions }) => extensions)).toEqual([{ max_uses: 8 }, undefined]);
    expect(webSearchesOf(bounded)).toBe(8);
  }
  const more = search({ max_uses: 3, allowed_domains: ["example.org"] });
  const bounded = enforceFeaturePolicy(requestOf({ tools: [more, search()] }), all);
  expect(bounded.tools[0]?.extensions).toEqual(more.extensions);
  expect(webSearchesOf(bounded)).toBe(11);
  const most = requestOf({ tools: [search({ max_uses: 1_000_000 })] });
  expect(webSearchesOf(enforceFeaturePolicy(most, all))).toBe(1_000_000);
});

test.each([0, -1, 1.5, 1_000_001, 1e15, "3", [1], true])(
  "a request for %o web searches is refused",
  (uses) => {
    const request = requestOf({ tools: [{ name: "a" }, search({ max_uses: uses })] });
    expect(errorOf(() => enforceFeaturePolicy(request, all))).toMatchObject({
      reason: "invalid_request",
      facts: { field: "tools[1].max_uses" },
    });
  },
);

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
test("files are refused in every block: a provider's file ids belong to another account", () => {
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
  test(`an extension ${Object.keys(extensions)} is refused: it would override a checked field`, () => {
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

const openai = [
  ["chat", Format.CHAT],
  ["Responses", Format.RESPONSES],
] as const;
for (const [name, format] of openai) {
  const enforce = (extensions: JsonObject) =>
    enforceFeaturePolicy(requestOf({ origin: { format }, extensions }), none).extensions;

  test(`of the ${name} format, the service tier is the default one, and others are refused`, () => {
    expect(enforce({ service_tier: "auto", thread: {} })).toEqual({
      service_tier: "default",
      thread: {},
    });
    expect(enforce({ service_tier: "default" })).toEqual({ service_tier: "default" });
    expect(enforce({ service_tier: null })).toEqual({ service_tier: null });
    for (const tier of ["flex", "priority", "scale", "fast", "tomorrow", 1, {}])
      expect(() => enforce({ service_tier: tier })).toThrow("service_tier");
  });
}

test("of the chat format, tools that the vendor runs are refused by their path", () => {
  const enforce = (extensions: JsonObject) =>
    enforceFeaturePolicy(requestOf({ origin: { format: Format.CHAT }, extensions }), all)
      .extensions;
  const inNamespace = { type: "namespace", name: "n", tools: [{ type: "mcp" }] };
  expect(() => enforce({ tools: [{ type: "function" }, { type: "web_search" }] })).toThrow(
    "tools[1].type: web_search is not offered",
  );
  expect(() => enforce({ tools: [inNamespace] })).toThrow("tools[0].tools[0].type: mcp");
  const tools = [
    { type: "function", name: "f" },
    { type: "custom", name: "c" },
  ];
  expect(enforce({ tools })).toEqual({ tools });
});

describe("of the Responses format, tools that the vendor runs", () => {
  const known = { known: true, otherwise: "leave_out" } as const;
  const enforce = (
    request: Parameters<typeof requestOf>[0],
    features = none,
    hosted: HostedPolicy = known,
  ) =>
    enforceFeaturePolicy(
      requestOf({ origin: { format: Format.RESPONSES }, ...request }),
      features,
      hosted,
    );
  const local = { type: "local_shell" };
  const search = { type: "web_search", external_web_access: false };
  const tools = [local, search, { type: "image_generation" }, { type: "mcp", server_label: "m" }];

  test("are left out, and the request says so", () => {
    for (const [features, hosted] of [
      [none, known],
      [all, { ...known, known: false }],
    ] as const) {
      const { extensions, origin } = enforce({ extensions: { tools } }, features, hosted);
      expect(extensions).toEqual({ tools: [local] });
      const said = origin?.leftOut.map((one) => [one.where, one.what, leftOutReasonName(one.why)]);
      expect(said).toEqual([
        ["tools[1]", "web_search", "hosted"],
        ["tools[2]", "image_generation", "hosted"],
        ["tools[3]", "mcp", "hosted"],
      ]);
    }
  });

  test("remain where the operator allows them and they have a price or cost tokens alone", () => {
    const enforced = enforce({ extensions: { tools } }, all);
    expect(enforced.extensions).toEqual({ tools: [local, search, tools[3]], max_tool_calls: 8 });
    expect(enforced.origin?.leftOut.map(({ what }) => what)).toEqual(["image_generation"]);
    expect(webSearchesOf(enforced)).toBe(8);
    const bounded = enforce({ extensions: { tools: [search], max_tool_calls: 3 } }, all);
    expect(webSearchesOf(bounded)).toBe(3);
    expect(webSearchesOf(enforce({ extensions: { tools: [tools[3] ?? {}] } }, all))).toBe(0);
    const most = enforce({ extensions: { tools: [search], max_tool_calls: 1_000_000 } }, all);
    expect(webSearchesOf(most)).toBe(1_000_000);
    for (const calls of [0, -1, 1.5, 1_000_001, 1e15, "3"])
      expect(() =>
        enforce({ extensions: { tools: [search], max_tool_calls: calls } }, all),
      ).toThrow("max_tool_calls");
  });

  test("leave items that bring tools, too", () => {
    const source = { type: "additional_tools", role: "developer", tools };
    const { messages, origin } = enforce({ messages: [{ source }] });
    expect(messages[0]?.source).toEqual({ ...source, tools: [local] });
    expect(origin?.leftOut[0]).toMatchObject({ where: "input[0].tools[1]", what: "web_search" });
  });

  test("are refused where the operator says so", () => {
    const refuse = { ...known, otherwise: "refuse" } as const;
    expect(() => enforce({ extensions: { tools } }, none, refuse)).toThrow(
      "tools[1].type: web_search is not offered",
    );
    expect(enforce({ extensions: { tools: [search] } }, all, refuse).origin?.leftOut).toEqual([]);
  });

  test("are never demanded where they are left out", () => {
    const demand = (toolChoice: { type: string; name?: string }, features = none) =>
      enforce({ extensions: { tools: [search] }, toolChoice }, features);
    const reason = "demands web_search, which is left out: features.server_tools is off";
    expect(() => demand({ type: "tool", name: "web_search" })).toThrow(reason);
    expect(() => demand({ type: "any" })).toThrow(reason);
    expect(demand({ type: "auto" }).extensions).toEqual({ tools: [] });
    const choice = { type: "allowed_tools", mode: "auto", tools: [{ type: "web_search" }] };
    const allowing = enforce({ extensions: { tools: [search, local], tool_choice: choice } });
    expect(allowing.extensions?.tool_choice).toEqual({ ...choice, tools: [] });
    expect(demand({ type: "any" }, all).origin?.leftOut).toEqual([]);
  });
});
