// Schemas that are fitted to a target, against what its documentation says that it accepts.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { leftOutReasonName } from "../../src/base/left-out.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { Fit } from "../../src/formats/fit.ts";
import { isObject } from "../../src/formats/json.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { withoutReferences } from "../../src/formats/schemas.ts";

const names = fc.constantFrom("a", "b", "city", "$ref", "type", "__proto__");
const scalars = fc.oneof(fc.string({ maxLength: 5 }), fc.integer(), fc.constant(null));

/** Schemas with keywords that every target knows, some that one knows, and some of nobody. */
const leaves = fc
  .record({ type: fc.constantFrom("string", "integer"), description: fc.constant("A word.") })
  .map((one): JsonObject => one);
const { schema: schemas } = fc.letrec<{ schema: JsonObject; node: JsonObject }>((tie) => ({
  schema: fc.oneof({ maxDepth: 3 }, leaves, tie("node")),
  node: fc
    .record(
      {
        type: fc.constantFrom("object", "string", "integer", "array"),
        description: fc.string({ maxLength: 8 }),
        properties: fc.dictionary(names, tie("schema"), { maxKeys: 3 }),
        required: fc.subarray(["a", "b", "city"]),
        additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
        items: fc.oneof(tie("schema"), fc.boolean()),
        anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
        oneOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
        allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
        enum: fc.array(fc.oneof(scalars, fc.constant({ a: 1 })), { minLength: 1, maxLength: 3 }),
        minItems: fc.nat(3),
        minimum: fc.integer(),
        pattern: fc.constant("^a"),
        format: fc.constantFrom("date", "regex", "uuid"),
        default: scalars,
        not: tie("schema"),
        patternProperties: fc.dictionary(fc.constant("^x"), tie("schema")),
        "x-of-tomorrow": scalars,
      },
      { requiredKeys: [] },
    )
    .map((one): JsonObject => JSON.parse(JSON.stringify(one))),
}));

const subschemas = (schema: JsonObject): JsonValue[] =>
  [schema.properties, schema.$defs]
    .flatMap((one) => (isObject(one) ? Object.values(one) : []))
    .concat(schema.items ?? [], ...["anyOf", "oneOf", "allOf"].map((name) => schema[name] ?? []));

/** What native providers refuse in the schema of an answer. */
function nativeFaults(schema: JsonValue, at = ""): string[] {
  if (!isObject(schema)) return [`${at}: no object`];
  const known =
    "$ref $defs definitions enum type const anyOf allOf description title properties required items additionalProperties minItems format";
  const formats = "date-time time date duration email hostname uri ipv4 ipv6 uuid".split(" ");
  const { type, properties, additionalProperties, minItems, format } = schema;
  const isMap = type === "object" || properties !== undefined;
  const values = Array.isArray(schema.enum) ? schema.enum : [];
  return [
    ...Object.keys(schema).filter((name) => !known.split(" ").includes(name)),
    ...(isMap && additionalProperties !== false ? ["additionalProperties"] : []),
    ...(typeof minItems === "number" && minItems > 1 ? ["minItems"] : []),
    ...(format !== undefined && !formats.includes(String(format)) ? ["format"] : []),
    ...(values.some((one) => typeof one === "object" && one !== null) ? ["enum"] : []),
  ]
    .map((fault) => `${at}: ${fault}`)
    .concat(...subschemas(schema).map((one) => nativeFaults(one, `${at}/`)));
}

/** What OpenAI refuses in a strict schema. */
function strictFaults(schema: JsonValue, isRoot = true): string[] {
  if (!isObject(schema)) return ["no object"];
  const refused =
    "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties unevaluatedProperties unevaluatedItems prefixItems contains uniqueItems minProperties maxProperties propertyNames";
  const { type, properties, additionalProperties, required } = schema;
  const listed = Array.isArray(required) ? required : [];
  const all = isObject(properties) ? Object.keys(properties) : [];
  const isMap = type === "object" || properties !== undefined;
  return [
    ...Object.keys(schema).filter((name) => refused.split(" ").includes(name)),
    ...(isRoot && (type !== "object" || schema.anyOf !== undefined) ? ["root"] : []),
    ...(isMap && additionalProperties !== false ? ["additionalProperties"] : []),
    ...(all.every((name) => listed.includes(name)) ? [] : ["required"]),
  ].concat(...subschemas(schema).map((one) => strictFaults(one, false)));
}

const messages = [{ role: "user", content: "Go." }];
const chatBody = (schema: JsonObject, strict?: boolean): JsonObject => ({
  model: "m",
  messages,
  max_tokens: 64,
  response_format: {
    type: "json_schema",
    json_schema: { name: "own", schema, ...(strict !== undefined && { strict }) },
  },
  tools: [
    {
      type: "function",
      function: { name: "f", parameters: schema, ...(strict !== undefined && { strict }) },
    },
  ],
});
const target = { model: "m", stream: false };
const stricts = fc.constantFrom(undefined, false, true);
/** A fair number of strict schemas among them. */
const mixed = fc.oneof(
  schemas,
  schemas.map((one): JsonObject => {
    const { a = {} } = isObject(one.properties) ? one.properties : {};
    return {
      type: "object",
      properties: { a },
      required: ["a"],
      additionalProperties: false,
    };
  }),
);

const partOf = (value: JsonValue | undefined, ...path: (string | number)[]): JsonValue => {
  let at: JsonValue = value ?? null;
  for (const step of path)
    at = (Array.isArray(at) ? at[Number(step)] : isObject(at) ? at[step] : null) ?? null;
  return at;
};

test("a native provider accepts every schema of a chat client, and its words are kept", () => {
  fc.assert(
    fc.property(mixed, stricts, (schema, strict) => {
      const body = native.encodeRequest(chat.decodeRequest(chatBody(schema, strict)), target);
      const form = partOf(body, "output_config", "format", "schema");
      expect(nativeFaults(form)).toEqual([]);
      const tool = partOf(body, "tools", 0);
      expect(partOf(tool, "input_schema")).toMatchObject({ type: expect.anything() });
      for (const name of ["anyOf", "oneOf", "allOf"])
        expect(partOf(tool, "input_schema", name)).toBeNull();
      expect(isObject(partOf(tool, "input_schema", "properties"))).toBe(true);
      if (partOf(tool, "strict") === true) {
        expect(strict).toBe(true);
        expect(nativeFaults(partOf(tool, "input_schema"))).toEqual([]);
      }
      // No keyword is lost without a word.
      for (const name of ["pattern", "not", "x-of-tomorrow"])
        if (schema[name] !== undefined) expect(JSON.stringify(form)).toContain(name);
    }),
    { numRuns: 400 },
  );
});

test("OpenAI accepts what is sent as strict, and nothing is strict that nobody asked for", () => {
  let strictOnes = 0;
  fc.assert(
    fc.property(mixed, stricts, (schema, strict) => {
      const request = chat.decodeRequest(chatBody(schema, strict));
      const body = responses.encodeRequest(request, target);
      const answer = partOf(body, "text", "format");
      const tool = partOf(body, "tools", 0);
      expect(partOf(answer, "name")).toBe("own");
      expect(partOf(answer, "schema")).toEqual(schema);
      for (const [sent, own] of [
        [answer, "schema"],
        [tool, "parameters"],
      ] as const) {
        if (partOf(sent, "strict") !== true) continue;
        strictOnes++;
        expect([strict, strictFaults(partOf(sent, own))]).toEqual([true, []]);
      }
      if (strict === true && strictFaults(schema).length === 0)
        expect(partOf(answer, "strict")).toBe(true);
      if (strict === false) expect(partOf(answer, "strict")).toBe(false);
    }),
    { numRuns: 400 },
  );
  expect(strictOnes).toBeGreaterThan(0);
});

test("a schema of the client's own format goes out as it came", () => {
  fc.assert(
    fc.property(schemas, stricts, (schema, strict) => {
      const given = chatBody(schema, strict);
      const body = chat.encodeRequest(chat.decodeRequest(given), target);
      expect(body.response_format).toEqual(given.response_format);
      expect(partOf(body, "tools", 0, "function", "strict")).toEqual(strict ?? null);
      expect(partOf(body, "tools", 0, "function", "parameters")).toEqual({
        type: "object",
        properties: {},
        ...schema,
      });
    }),
    { numRuns: 200 },
  );
});

describe("alternatives at the top of a tool's schema", () => {
  const parts = [
    { properties: { a: { type: "string" }, b: {} }, required: ["a", "b"] },
    { properties: { a: { type: "integer" } }, required: ["a"] },
  ];
  test.each([
    ["anyOf", ["a"]],
    ["oneOf", ["a"]],
    ["allOf", ["a", "b"]],
  ] as const)("%s become one object, and words", (name, required) => {
    const schema = { type: "object", description: "Find.", [name]: parts };
    const body = native.encodeRequest(chat.decodeRequest(chatBody(schema)), target);
    const found = partOf(body, "tools", 0, "input_schema");
    expect(found).toMatchObject({ properties: { a: { type: "integer" }, b: {} }, required });
    expect(partOf(found, "description")).toContain(JSON.stringify(parts[0]));
    expect(partOf(found, name)).toBeNull();
  });
});

test("alternatives beside others are left out as a whole", () => {
  const choice = {
    ...{ anyOf: [{ type: "string" }] },
    oneOf: [{ type: "string", pattern: "^a", minLength: 3 }],
  };
  const fit = new Fit();
  const request = chat.decodeRequest(chatBody({ type: "object", properties: { a: choice } }, true));
  const body = native.encodeRequest(request, target, fit);
  const said = fit.leftOut.filter(({ where }) => where === "response_format");
  expect(said.map(({ what }) => what)).toEqual(["oneOf"]);
  expect(partOf(body, "output_config", "format", "schema", "properties", "a")).toEqual({
    anyOf: choice.anyOf,
    description: `(oneOf: ${JSON.stringify(choice.oneOf)})`,
  });
});

test("what a target does not know is said, by its keyword", () => {
  const fit = new Fit();
  const schema = { type: "object", properties: { a: { type: "integer", minimum: 3 } } };
  const request = chat.decodeRequest({ ...chatBody(schema, true), seed: 7, logit_bias: {} });
  const body = native.encodeRequest(request, target, fit);
  expect(partOf(body, "output_config", "format", "schema", "properties", "a")).toEqual({
    type: "integer",
    description: "(minimum: 3)",
  });
  const of = ({ leftOut }: Fit) =>
    leftOut.map(({ where, what, why }) => [where, what, leftOutReasonName(why)]);
  expect(of(fit)).toEqual(
    expect.arrayContaining([
      ["response_format", "minimum", "unsupported"],
      ["seed", "seed", "member"],
      ["logit_bias", "logit_bias", "member"],
    ]),
  );
  const other = new Fit();
  responses.encodeRequest(request, target, other);
  expect(of(other)).toContainEqual(["tools[0]", "strict", "unsupported"]);
});

describe("references", () => {
  test("are replaced by what they name, with the members beside them", () => {
    const city = { type: "string", description: "A city." };
    const $defs = { "a/b": city, list: { type: "array", items: { $ref: "#/$defs/a~1b" } } };
    const properties = { to: { $ref: "#/$defs/list", description: "Where." } };
    expect(withoutReferences({ type: "object", properties, $defs })).toEqual({
      type: "object",
      properties: { to: { type: "array", items: city, description: "Where." } },
    });
  });

  test("to themselves, to nothing, or to too much leave the schema as it is", () => {
    const doubled = Object.fromEntries(
      Array.from({ length: 40 }, (_, at) => {
        const next = { $ref: `#/$defs/d${at + 1}` };
        return [`d${at}`, { anyOf: [next, next] }];
      }),
    );
    for (const schema of [
      { $ref: "#/$defs/tree", $defs: { tree: { items: { $ref: "#/$defs/tree" } } } },
      { properties: { a: { $ref: "#/$defs/none" } }, $defs: {} },
      { properties: { a: { $ref: "https://example.test/city" } } },
      { $ref: "#/$defs/d0", $defs: { ...doubled, d40: { type: "string" } } },
    ])
      expect(withoutReferences(schema)).toBe(schema);
  });
});

test("schemas of 10,000 properties and as many levels as a body may have are fitted", () => {
  const wide: JsonObject = {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`p${at}`, {}])),
  };
  let deep: JsonObject = { type: "string", minLength: 1 };
  for (let level = 0; level < 300; level++) deep = { type: "object", properties: { a: deep } };
  for (const schema of [wide, deep]) {
    const body = native.encodeRequest(chat.decodeRequest(chatBody(schema, true)), target);
    expect(nativeFaults(partOf(body, "output_config", "format", "schema"))).toEqual([]);
  }
});
