// Schemas of tools and answers, fitted to the provider that gets them. A schema is never made
// stricter in what the client asked for, and one of the client's own format stays as it is but for
// the two members without which some providers refuse it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Fit } from "./fit.ts";
import { isObject } from "./json.ts";

/** A schema with the two members without which some providers refuse it. */
export function withProperties(schema: JsonValue | undefined): JsonObject {
  if (!isObject(schema)) return { type: "object", properties: {} };
  if (schema.type !== undefined && schema.properties !== undefined) return schema;
  return { type: "object", properties: {}, ...schema };
}

/** The form that a request asks of its answer. */
export type AnswerForm = {
  readonly schema: JsonObject;
  /** Of a native client, which has no names, `answer`. */
  readonly name: string;
  readonly description: string | undefined;
  /** Undefined: the client does not say. A native client asks for it always. */
  readonly strict: boolean | undefined;
  /** Its place in the body of the client. */
  readonly where: string;
};

/** The schema that the answer must follow, with what the client said of it. */
export function answerFormOf(request: GenerateRequest): AnswerForm | undefined {
  const { outputConfig, origin } = request;
  const format = outputConfig?.format;
  const schema = format?.type === "json_schema" ? format.schema : undefined;
  if (!isObject(schema)) return undefined;
  const isNative = origin?.format !== Format.CHAT && origin?.format !== Format.RESPONSES;
  const { name, description, strict } = isNative ? { strict: true } : describedForm(request);
  return {
    schema,
    name: typeof name === "string" && name !== "" ? name : "answer",
    description: typeof description === "string" ? description : undefined,
    strict: typeof strict === "boolean" ? strict : undefined,
    where: isNative ? "output_config.format" : formPlace(request),
  };
}

/** True if the answer must be any JSON object. */
export function wantsJsonObject(request: GenerateRequest): boolean {
  return formatOf(request).type === "json_object";
}

/** `response_format` of a chat client, `text.format` of a Responses client. */
function formatOf({ origin, extensions }: GenerateRequest): JsonObject {
  const { response_format: chat, text } = extensions ?? {};
  const own = origin?.format === Format.CHAT ? chat : isObject(text) ? text.format : undefined;
  return isObject(own) ? own : {};
}

function describedForm(request: GenerateRequest): JsonObject {
  const format = formatOf(request);
  return isObject(format.json_schema) ? format.json_schema : format;
}

function formPlace({ origin }: GenerateRequest): string {
  return origin?.format === Format.CHAT ? "response_format" : "text.format";
}

/**
 * The members with an answer's schema for a provider of OpenAI's formats. `strict` is left out
 * where OpenAI would refuse the schema for it.
 */
export function openaiForm(form: AnswerForm, fit: Fit): JsonObject {
  const { schema, name, description, strict, where } = form;
  return {
    name,
    ...(description !== undefined && { description }),
    schema,
    ...strictOf(strict, schema, where, fit),
  };
}

/** The member `strict` of a schema for OpenAI; none where the schema is not of that form. */
export function strictOf(
  strict: boolean | undefined,
  schema: JsonObject,
  where: string,
  fit: Fit,
): { strict?: boolean } {
  if (strict === undefined) return {};
  if (!strict || isStrictForm(schema)) return { strict };
  fit.leaveOut({ where, what: "strict", why: "unsupported" });
  return {};
}

/** Keywords that OpenAI refuses in a strict schema. */
const notStrict = [
  ...["allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"],
  ...["dependencies", "patternProperties", "unevaluatedProperties", "unevaluatedItems"],
  ...["prefixItems", "contains", "uniqueItems", "minProperties", "maxProperties"],
  "propertyNames",
];

function isStrictForm(schema: JsonObject): boolean {
  return schema.type === "object" && schema.anyOf === undefined && isStrict(schema);
}

function isStrict(schema: JsonObject): boolean {
  if (notStrict.some((name) => schema[name] !== undefined)) return false;
  const { type, properties, required, additionalProperties } = schema;
  if (type === "object" || properties !== undefined) {
    const names = isObject(properties) ? Object.keys(properties) : [];
    const listed = new Set(Array.isArray(required) ? required : []);
    if (additionalProperties !== false || !names.every((name) => listed.has(name))) return false;
  }
  return subschemas(schema).every((one) => isObject(one) && isStrict(one));
}

/** The schemas directly inside a schema. */
function subschemas({ properties, items, anyOf, $defs, definitions }: JsonObject): JsonValue[] {
  const inObjects = [properties, $defs, definitions].flatMap((one) =>
    isObject(one) ? Object.values(one) : [],
  );
  return [
    ...inObjects,
    ...(items === undefined ? [] : [items]),
    ...(Array.isArray(anyOf) ? anyOf : []),
  ];
}

/** Keywords of structured output that native providers know and that hold no schema. */
const nativeKept = new Set(["$ref", "const", "description", "title", "type", "required"]);
const nativeFormats: readonly JsonValue[] = [
  ...["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
];
/** Keywords that say nothing to a model. */
const silent = new Set(["$schema", "$id", "$comment"]);

/**
 * The schema of an answer as native providers accept it: what they do not know stands in words in
 * the description of its place. A reference to itself stays, and the provider refuses it.
 */
export function nativeForm({ schema, where }: AnswerForm, fit: Fit): JsonObject {
  return toNative(schema, (keyword) => fit.leaveOut({ where, what: keyword, why: "unsupported" }));
}

/** True if native providers accept the schema as it is, as a strict one. */
export function hasNativeForm(schema: JsonObject): boolean {
  let isSame = true;
  const fitted = toNative(schema, () => {
    isSame = false;
  });
  return isSame && JSON.stringify(fitted) === JSON.stringify(schema);
}

function toNative(schema: JsonObject, leaveOut: (keyword: string) => void): JsonObject {
  const own: JsonObject = {};
  const words: string[] = [];
  const inner = (value: JsonValue) => (isObject(value) ? toNative(value, leaveOut) : {});
  for (const [name, value] of Object.entries(schema)) {
    if (silent.has(name)) continue;
    // Beside alternatives that stay, others have no place: they are left out as a whole.
    const isSecond = name === "oneOf" && schema.anyOf !== undefined;
    const nested = isSecond ? undefined : withInner(name, value, inner);
    if (nested !== undefined) own[name === "oneOf" ? "anyOf" : name] = nested;
    else if (isNativeAsItIs(name, value)) own[name] = value;
    else {
      leaveOut(name);
      words.push(`${name}: ${JSON.stringify(value)}`);
    }
  }
  if (own.type === "object" || own.properties !== undefined) own.additionalProperties = false;
  if (words.length === 0) return own;
  const { description } = own;
  const before = typeof description === "string" && description !== "" ? `${description}\n` : "";
  return { ...own, description: `${before}(${words.join(", ")})` };
}

/** The value of a keyword that holds schemas, with each of them changed. Undefined: another one. */
function withInner(
  name: string,
  value: JsonValue,
  inner: (value: JsonValue) => JsonObject,
): JsonValue | undefined {
  switch (name) {
    case "properties":
    case "$defs":
    case "definitions":
      return isObject(value) ? mapValues(value, inner) : undefined;
    case "anyOf":
    case "allOf":
    case "oneOf":
      return Array.isArray(value) ? value.map(inner) : undefined;
    case "items":
      return isObject(value) ? inner(value) : undefined;
    default:
      return undefined;
  }
}

/** True for a keyword without schemas that native providers take with this value. */
function isNativeAsItIs(name: string, value: JsonValue): boolean {
  switch (name) {
    case "enum":
      return Array.isArray(value) && value.every(isPrimitive);
    case "minItems":
      return value === 0 || value === 1;
    case "format":
      return nativeFormats.includes(value);
    case "additionalProperties":
      return value === false;
    default:
      return nativeKept.has(name);
  }
}

function mapValues(of: JsonObject, change: (value: JsonValue) => JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(of).map(([name, value]) => [name, change(value)]));
}

function isPrimitive(value: JsonValue): boolean {
  return typeof value !== "object" || value === null;
}

const alternatives = ["anyOf", "oneOf", "allOf"] as const;

/**
 * The schema of a tool as native providers accept it: an object without alternatives at its top.
 * Those of a client become one object with the properties of all, and stand in words beside it.
 */
export function nativeTool(schema: JsonValue | undefined): JsonObject {
  const whole = withProperties(schema);
  if (alternatives.every((name) => whole[name] === undefined)) return whole;
  const { anyOf, oneOf, allOf, ...rest } = whole;
  let { properties, required, description } = rest;
  for (const [name, list] of Object.entries({ anyOf, oneOf, allOf })) {
    const parts = (Array.isArray(list) ? list : []).filter(isObject);
    if (parts.length === 0) continue;
    const all = [...parts.map((part) => part.properties), properties].filter(isObject);
    if (all.length > 0) properties = Object.fromEntries(all.flatMap((one) => Object.entries(one)));
    const lists = parts.map((part) => (Array.isArray(part.required) ? part.required : []));
    const shared =
      name === "allOf"
        ? lists.flat()
        : (lists[0] ?? []).filter((one) => lists.every((all) => all.includes(one)));
    required = [...new Set([...(Array.isArray(required) ? required : []), ...shared])];
    const of = { anyOf: "Any of", oneOf: "One of", allOf: "All of" }[name];
    const words = `${of}: ${parts.map((part) => JSON.stringify(part)).join(" | ")}`;
    description = typeof description === "string" ? `${description}\n${words}` : words;
  }
  return {
    ...rest,
    ...(properties !== undefined && { properties }),
    ...(Array.isArray(required) && required.length > 0 && { required }),
    ...(description !== undefined && { description }),
  };
}

/** Schemas that a resolved one may have: references to references double. */
const resolvedMax = 5_000;

/**
 * The schema with its references replaced by what they name, for providers that know none. One
 * that refers to itself, or grows too large, stays as it is.
 */
export function withoutReferences(schema: JsonObject): JsonObject {
  let count = 0;
  const resolve = (value: JsonValue, within: ReadonlySet<string>): JsonValue => {
    if (Array.isArray(value)) return value.map((one) => resolve(one, within));
    if (!isObject(value)) return value;
    if (++count > resolvedMax) throw new Unresolvable();
    const { $ref, ...others } = value;
    const own = Object.fromEntries(
      Object.entries(others).map(([name, one]) => [name, resolve(one, within)]),
    );
    if (typeof $ref !== "string") return $ref === undefined ? own : { $ref, ...own };
    const found = within.has($ref) ? undefined : targetOf(schema, $ref);
    if (found === undefined) throw new Unresolvable();
    const target = resolve(found, new Set([...within, $ref]));
    return isObject(target) ? { ...target, ...own } : target;
  };
  try {
    const { $defs: _, definitions: __, ...rest } = schema;
    const resolved = resolve(rest, new Set());
    return isObject(resolved) ? resolved : schema;
  } catch (error) {
    if (error instanceof Unresolvable) return schema;
    throw error;
  }
}

class Unresolvable extends Error {}

/** The value at a reference such as `#/$defs/city`. */
function targetOf(schema: JsonObject, reference: string): JsonValue | undefined {
  if (!reference.startsWith("#/")) return undefined;
  let at: JsonValue | undefined = schema;
  for (const step of reference.slice(2).split("/")) {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    at = isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  }
  return at;
}
