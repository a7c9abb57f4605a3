// Values that a JSON Schema describes, for the words that our descriptions use.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { isObject } from "../../src/formats/json.ts";

type Schemas = Readonly<Record<string, JsonObject>>;

const made = new WeakMap<Schemas, Readonly<Record<string, fc.Arbitrary<JsonValue>>>>();

/** Values of the schema `name`, one of those that a document defines. */
export function valuesOf(schemas: Schemas, name: string): fc.Arbitrary<JsonValue> {
  // Once for a document: it has hundreds.
  const values =
    made.get(schemas) ??
    fc.letrec<Record<string, JsonValue>>((tie) =>
      Object.fromEntries(Object.entries(schemas).map(([key, one]) => [key, build(one, tie)])),
    );
  made.set(schemas, values);
  return values[name] ?? fc.constant(null);
}

const anything: fc.Arbitrary<JsonValue> = fc.constantFrom<JsonValue>(
  ...[null, true, 0, 1.5, "", "text", [], ["x"], {}, { type: "x" }],
);
const word = fc.constantFrom("", " ", "a", "text 漢", "x".repeat(65));

type Tie = (name: string) => fc.Arbitrary<JsonValue>;

function build(schema: JsonObject, tie: Tie): fc.Arbitrary<JsonValue> {
  const { not, ...others } = schema;
  // No value of a type.
  if (isObject(not) && typeof not.type === "string")
    return buildAny(others, tie).filter((value) => typeOf(value) !== not.type);
  if (!isObject(not) || not.const === undefined) return buildAny(schema, tie);
  // Without it nothing would be said of the value: that of a format.
  if (Object.keys(others).length === 0) return fc.constantFrom("text", "other", null);
  return buildAny(others, tie).filter((value) => value !== not.const);
}

function typeOf(value: JsonValue): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function buildAny(schema: JsonObject, tie: Tie): fc.Arbitrary<JsonValue> {
  const { $ref, anyOf, oneOf, allOf, ...own } = schema;
  const choices = objectsIn(anyOf ?? oneOf);
  if (choices.length > 0) {
    const excluding = oneOf === undefined ? [] : choices.flatMap(namesOf);
    const made = choices.map((one) => build(chosen(own, one, excluding), tie));
    return fc.oneof({ depthSize: "small", withCrossShrink: true }, ...made);
  }
  if (typeof $ref === "string") return tie($ref.split("/").at(-1) ?? "");
  const all = objectsIn(allOf);
  if (all.length === 0) return buildOwn(own, tie);
  // As a tool: the members of a function, and a type.
  return fc
    .tuple(...all.map((one) => build(one, tie)))
    .map((values) => Object.assign({}, ...values.filter(isObject)));
}

/** A schema together with one of its choices, without the members of `excluding` ones. */
function chosen(own: JsonObject, choice: JsonObject, excluding: readonly string[]): JsonObject {
  if (own.properties === undefined) return choice;
  const excluded = excluding.filter((name) => !namesOf(choice).includes(name));
  const members = { ...Object(own.properties), ...Object(choice.properties) };
  const properties: JsonObject = Object.fromEntries(
    Object.entries<JsonValue>(members).filter(([name]) => !excluded.includes(name)),
  );
  return { ...own, properties, required: [...namesOf(own), ...namesOf(choice)] };
}

function namesOf({ required }: JsonObject): string[] {
  return Array.isArray(required) ? required.map(String) : [];
}

function objectsIn(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function buildOwn(schema: JsonObject, tie: Tie): fc.Arbitrary<JsonValue> {
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  switch (schema.type ?? (schema.properties || schema.required ? "object" : undefined)) {
    case "null":
      return fc.constant(null);
    case "boolean":
      return fc.boolean();
    case "integer":
    case "number":
      return buildNumber(schema);
    case "string":
      return buildText(schema);
    case "array": {
      const items = isObject(schema.items) ? build(schema.items, tie) : anything;
      const [min, max] = [Number(schema.minItems ?? 0), Number(schema.maxItems ?? 2)];
      const lengths = { minLength: min, maxLength: Math.min(max, 2) };
      return schema.uniqueItems ? fc.uniqueArray(items, lengths) : fc.array(items, lengths);
    }
    case "object":
      return buildObject(schema, tie);
    default:
      return anything;
  }
}

function buildNumber({ type, minimum, maximum }: JsonObject): fc.Arbitrary<number> {
  const min = Number(minimum ?? -1_000);
  const max = Number(maximum ?? min + 1_000_000);
  if (type === "integer") return fc.integer({ min, max });
  return fc.double({ min, max, noNaN: true }).map((number) => (Object.is(number, -0) ? 0 : number));
}

const times = fc.constantFrom("2026-11-22T10:00:00Z", "1970-01-01T00:00:00.123456789Z");

function buildText({
  pattern,
  minLength,
  maxLength,
  format,
  contentEncoding,
}: JsonObject): fc.Arbitrary<string> {
  if (format === "date-time") return times;
  if (format === "int64") return fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String);
  if (format === "uint64") return fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String);
  if (contentEncoding === "base64") return fc.base64String();
  if (typeof pattern === "string" && pattern !== "\\S")
    return fc.stringMatching(new RegExp(pattern), { size: "small" });
  const shortest = pattern === undefined ? Number(minLength ?? 0) : 1;
  const longest = Number(maxLength ?? Number.POSITIVE_INFINITY);
  return word.filter((text) => {
    const { length } = pattern ? text.trim() : text;
    return length >= shortest && length <= longest;
  });
}

const image = fc.constantFrom("https://example.com/a.png", "data:image/png;base64,AA==");
const samples: Readonly<Record<string, fc.Arbitrary<JsonValue>>> = {
  url: image,
  image_url: image,
  file_data: fc.constant("data:application/pdf;base64,AA=="),
  content: fc.constant("Hello"),
};

function buildObject(schema: JsonObject, tie: Tie): fc.Arbitrary<JsonValue> {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = namesOf(schema);
  const names = [...new Set([...Object.keys(properties), ...required])];
  const members = Object.fromEntries(
    names.map((name) => {
      const inner = properties[name];
      const value = isObject(inner) ? build(inner, tie) : anything;
      const sample = samples[name];
      const isText = isObject(inner) && JSON.stringify(inner).includes('"string"');
      // Texts that no generator finds, and others sometimes.
      return [name, isText && sample ? fc.oneof({ weight: 9, arbitrary: sample }, value) : value];
    }),
  );
  const { additionalProperties: inner } = schema;
  const others = isObject(inner)
    ? fc.dictionary(fc.constantFrom("a", "b"), build(inner, tie), {
        maxKeys: Number(schema.maxProperties ?? 2),
      })
    : fc.constant<Record<string, JsonValue>>({});
  return fc
    .tuple(others, fc.record(members, { requiredKeys: required }))
    .map(([more, known]) => ({ ...more, ...known }));
}
