// Generated bodies of the native format: every kind of block, unknown and wrong-typed members at
// every level, names and texts that break careless code.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";

const text = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 12 }),
  fc.constantFrom(
    "",
    "😀",
    "漢字",
    "a\u2028b\u2029c\u0085d",
    "\n\ndata: x\n\nevent: error",
    "\u0000",
    '"\\',
  ),
);
const name = fc.oneof(
  fc.constantFrom(
    "__proto__",
    "constructor",
    "toString",
    "extensions",
    "$typeName",
    "case",
    "1",
    "",
    "hasOwnProperty",
    "other",
  ),
  // Without backslashes: where V8 (13.6) has read an object with the member `\\`, it takes one
  // called `\"` or `\n` at the same place for it.
  fc.string({ maxLength: 6 }).filter((one) => !one.includes("\\")),
);

/** Any JSON value, not too large. `Object.fromEntries` makes own members even of `__proto__`. */
export const anyValue: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constant<JsonValue>(null),
    fc.boolean(),
    fc.oneof(
      fc.integer(),
      fc
        .double({ noNaN: true, noDefaultInfinity: true })
        .filter((number) => !Object.is(number, -0)),
    ),
    text,
    fc.array(tie("value"), { maxLength: 3 }),
    fc
      .array(fc.tuple(name, tie("value")), { maxLength: 4 })
      .map((members) => Object.fromEntries(members)),
  ),
})).value;

export const anyObject: fc.Arbitrary<JsonObject> = fc
  .array(fc.tuple(name, anyValue), { maxLength: 4 })
  .map((members) => Object.fromEntries(members));

/** Members that no schema names. */
const unknown = fc.array(fc.tuple(name, anyValue), { maxLength: 2 });

/**
 * `required` as it must be, some of `optional` in the right or any other type, and unknown members.
 */
function object(
  required: Record<string, fc.Arbitrary<JsonValue>>,
  optional: Record<string, fc.Arbitrary<JsonValue>> = {},
): fc.Arbitrary<JsonObject> {
  const loose = Object.fromEntries(
    Object.entries(optional).map(([key, value]) => [
      key,
      fc.oneof({ weight: 4, arbitrary: value }, { weight: 1, arbitrary: anyValue }),
    ]),
  );
  return fc
    .tuple(unknown, fc.record(loose, { requiredKeys: [] }), fc.record(required))
    .map(([extra, some, all]) => merge(Object.fromEntries(extra), some, all));
}

/** All members in order, a later one in place of an earlier one of the same name. */
function merge(...parts: Record<string, JsonValue | undefined>[]): JsonObject {
  return Object.fromEntries(
    parts
      .flatMap((part) => Object.entries(part))
      .filter((member): member is [string, JsonValue] => member[1] !== undefined),
  );
}

export const cacheControl = object(
  { type: fc.constant("ephemeral") },
  { ttl: fc.constantFrom("5m", "1h") },
);
const cached = { cache_control: cacheControl };
const source: fc.Arbitrary<JsonValue> = fc.oneof(
  object(
    { type: fc.constant("base64") },
    { media_type: fc.constantFrom("image/png", "application/pdf"), data: fc.base64String() },
  ),
  object({ type: fc.constant("text"), media_type: fc.constant("text/plain"), data: text }),
  object({ type: fc.constant("url") }, { url: fc.webUrl() }),
  object({ type: fc.constantFrom("file", "content") }, { file_id: text, content: anyValue }),
  anyValue,
);
const textBlock = object(
  { type: fc.constant("text") },
  { text, citations: fc.constant(null), ...cached },
);

export const anyBlock: fc.Arbitrary<JsonObject> = fc.oneof(
  textBlock,
  object({ type: fc.constant("image") }, { source, ...cached }),
  object(
    { type: fc.constant("document") },
    { source, title: text, context: text, citations: anyValue, ...cached },
  ),
  object(
    { type: fc.constant("tool_use") },
    { id: text, name: text, input: anyObject, caller: anyValue, ...cached },
  ),
  object(
    { type: fc.constant("tool_result") },
    {
      tool_use_id: text,
      content: fc.oneof(text, fc.array(textBlock, { maxLength: 2 })),
      is_error: fc.boolean(),
      ...cached,
    },
  ),
  object({ type: fc.constant("thinking") }, { thinking: text, signature: text }),
  object({ type: fc.constant("redacted_thinking") }, { data: text }),
  object(
    { type: fc.constantFrom("search_result", "server_tool_use", "compaction", "", "__proto__") },
    { input: anyObject },
  ),
);

const content = fc.oneof(text, fc.array(anyBlock, { maxLength: 4 }));
const message = fc.oneof(
  object({ role: fc.constantFrom("user", "assistant", "system"), content }),
  object({ role: fc.constant("system"), output_config: anyObject }),
);
const tool = fc.oneof(
  object(
    { name: text },
    {
      type: fc.constant("custom"),
      description: text,
      input_schema: anyObject,
      strict: fc.boolean(),
      ...cached,
    },
  ),
  object({ type: fc.constant("bash_20250124") }, { name: text }),
);
const known = {
  model: text.filter((model) => model !== ""),
  messages: fc.array(message, { minLength: 1, maxLength: 4 }),
  max_tokens: fc.integer({ min: 1, max: 0xffff_ffff }),
};
const checked = fc.record(
  {
    system: fc.oneof(text, fc.array(textBlock, { maxLength: 3 })),
    stream: fc.boolean(),
    temperature: fc
      .double({ min: 0, max: 1, noNaN: true })
      .filter((number) => !Object.is(number, -0)),
    top_p: fc.double({ min: 0, max: 1, noNaN: true }).filter((number) => !Object.is(number, -0)),
    top_k: fc.oneof(fc.nat(), fc.constant(2 ** 40)),
    stop_sequences: fc.array(text, { maxLength: 2 }),
    tools: fc.array(tool, { maxLength: 3 }),
    tool_choice: object(
      {},
      {
        type: fc.constantFrom("auto", "any", "tool"),
        name: text,
        disable_parallel_tool_use: fc.boolean(),
      },
    ),
    thinking: object(
      {},
      { type: fc.constantFrom("enabled", "adaptive"), budget_tokens: fc.nat(), display: text },
    ),
    metadata: anyObject,
  },
  { requiredKeys: [] },
);
const open = object(
  {},
  {
    output_config: object({}, { effort: text, format: anyObject, task_budget: anyValue }),
    cache_control: cacheControl,
    service_tier: fc.constant("standard_only"),
    newest: text,
  },
);

/**
 * A body that the gateway accepts. Its members come in any order, unknown ones first where they may
 * stand anywhere.
 */
export const anyBody: fc.Arbitrary<JsonObject> = fc
  .tuple(open, checked, fc.record(known))
  .map(([extra, some, all]) => {
    // Members that the table of checks names have the values of the table, never those of the
    // generator.
    const names = [
      "system",
      "stream",
      "temperature",
      "top_p",
      "top_k",
      "stop_sequences",
      "tools",
      "tool_choice",
      "thinking",
      "metadata",
    ];
    const free = Object.entries(extra).filter(([key]) => !names.includes(key));
    return merge(Object.fromEntries(free), some, all);
  });
