// The services in the public description: each method as Connect serves it, which is a POST with
// JSON, and the messages in the JSON form of protobuf. All of it comes from the descriptors, and
// the words from the comments of the protos.

import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  getOption,
  type JsonObject,
  ScalarType,
} from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { codeToHttpStatus, codeToString } from "@connectrpc/connect/protocol-connect";
import { comments } from "../../gen/comments.ts";
import { audited, callers, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  AccountRole,
  AccountRoleSchema,
  AdminScope,
  AdminScopeSchema,
  ManagementScopeSchema,
  OperatorRole,
  OperatorRoleSchema,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { errorCatalog } from "../base/errors.ts";
import { described, list, oneOf, open, ref, type Schema, text, time } from "../base/json-schema.ts";
import { scopesFor } from "../contract/callers.ts";
import { count, type Limits, limitsOf, rangeText, secondsOf } from "../contract/limits.ts";
import { json } from "./operation.ts";

/** The media type of a stream of messages. */
const frames = "application/connect+json";

/** The path of a method. */
export function methodPath({ parent, name }: DescMethod): string {
  return `/${parent.typeName}/${name}`;
}

/** The part of the description that is about these methods. */
export function describeServices(methods: readonly DescMethod[]): {
  readonly tags: JsonObject[];
  readonly paths: Record<string, JsonObject>;
  readonly schemas: Record<string, Schema>;
  readonly parameters: Record<string, JsonObject>;
} {
  const schemas: Record<string, Schema> = { ConnectError: connectError };
  for (const { input, output } of methods) {
    addMessage(schemas, input);
    addMessage(schemas, output);
  }
  const services = new Set(methods.map(({ parent }) => parent));
  return {
    tags: [...services].map(({ typeName }) => ({
      name: typeName,
      description: comments[typeName] ?? "",
    })),
    paths: Object.fromEntries(
      methods.map((desc) => [methodPath(desc), { post: describeMethod(desc) }]),
    ),
    schemas,
    parameters: { ConnectTimeout: connectTimeout, RequestId: requestId },
  };
}

const connectTimeout = {
  name: "connect-timeout-ms",
  in: "header",
  required: false,
  schema: { type: "integer", minimum: 0 },
  description: "The longest duration of the call, in milliseconds.",
};

const requestId = {
  name: "x-request-id",
  in: "header",
  required: false,
  schema: { type: "string", pattern: "^req_[0-9A-Za-z_-]{8,64}$" },
  description: "An id for this call. The answer repeats it.",
};

const codes = [...new Set(Object.values(errorCatalog).map(({ rpc }) => rpc))].sort(
  (one, other) => one - other,
);

const connectError = described(
  "The error of a call. `details` are messages of `google.rpc` and `gateway.common.v1`, in base64 " +
    "and, for reading, as JSON. One is a `google.rpc.ErrorInfo`, whose `reason` is one of the " +
    "closed list of reasons. Statuses: " +
    `${codes.map((code) => `${codeToHttpStatus(code)} \`${codeToString(code)}\``).join(", ")}.`,
  open(
    { code: text },
    { message: text, details: list(open({ type: text, value: text }, { debug: {} })) },
  ),
);

function describeMethod(desc: DescMethod): JsonObject {
  const { parent, name, input, output, methodKind } = desc;
  const comment = comments[`${parent.typeName}.${name}`] ?? "";
  const [summary = "", ...rest] = comment.split(/(?<=\.) /);
  const isUnary = methodKind === "unary";
  const content = (message: DescMessage) =>
    isUnary
      ? { [json]: { schema: ref(message.typeName) } }
      : { [frames]: { schema: framesOf(message) } };
  return {
    operationId: `${parent.name}_${name}`,
    tags: [parent.typeName],
    summary: summary.replace(/\.$/, ""),
    description: [rest.join(" "), callersText(desc)].filter((one) => one !== "").join("\n\n"),
    security: securityOf(desc),
    "x-idempotency": MethodOptions_IdempotencyLevel[desc.idempotency],
    parameters: [parameterRef("ConnectTimeout"), parameterRef("RequestId")],
    requestBody: { required: true, content: content(input) },
    responses: {
      "200": { description: isUnary ? "The answer." : streamText, content: content(output) },
      default: {
        description: "An error.",
        content: { [json]: { schema: ref("ConnectError") } },
      },
    },
  };
}

function parameterRef(name: string): JsonObject {
  return { $ref: `#/components/parameters/${name}` };
}

const streamText =
  "A stream. Each frame is a byte of flags, the length of the message in four bytes, and the " +
  "message in JSON. The last frame, with the flag 2, has the `error` if the call failed.";

/** OpenAPI has no word for a stream of messages: the schema is that of each of them. */
function framesOf({ typeName }: DescMessage): Schema {
  return { type: "string", contentMediaType: frames, contentSchema: ref(typeName) };
}

function securityOf(desc: DescMethod): JsonObject[] {
  const {
    key,
    accountReader,
    management,
    admin,
    person,
    operatorRole: operator,
    anyone,
  } = getOption(desc, callers);
  const isForBearers =
    key || accountReader || management.length > 0 || admin !== AdminScope.UNSPECIFIED;
  const isForPeople = person !== AccountRole.UNSPECIFIED || operator !== OperatorRole.UNSPECIFIED;
  return [
    ...(anyone ? [{}] : []),
    ...(isForBearers ? [{ bearer: [] }] : []),
    ...(isForPeople ? [{ session: [] }] : []),
  ];
}

function callersText(desc: DescMethod): string {
  const {
    key,
    accountReader,
    admin,
    person,
    operatorRole: operator,
    anyone,
  } = getOption(desc, callers);
  const word = (type: DescEnum, value: number) => type.value[value]?.localName.toLowerCase() ?? "";
  const scopes = scopesFor(getOption(desc, callers)).map((scope) =>
    word(ManagementScopeSchema, scope),
  );
  const who = [
    ...(anyone ? ["everybody"] : []),
    ...(key ? ["API keys"] : accountReader ? ["API keys that read the account"] : []),
    ...(scopes.length > 0 ? [`management keys (${scopes.join(", ")})`] : []),
    ...(person ? [`members of the account, from ${word(AccountRoleSchema, person)}`] : []),
    ...(operator ? [`operators, from ${word(OperatorRoleSchema, operator)}`] : []),
    ...(admin ? [`admin tokens (${word(AdminScopeSchema, admin)})`] : []),
  ];
  const notes = [
    ...(getOption(desc, strong) ? ["A person has to confirm who they are."] : []),
    ...(getOption(desc, audited) ? ["The call leaves an audit event."] : []),
  ];
  return [`For ${who.join("; ")}.`, ...notes].join(" ");
}

/** Adds the schema of a message, and those of all that is inside it. */
function addMessage(schemas: Record<string, Schema>, desc: DescMessage): void {
  if (schemas[desc.typeName] || desc.typeName in wellKnown) return;
  const requiredNames = desc.fields
    .filter((field) => limitsOf(field)?.isRequired)
    .map(({ jsonName }) => jsonName);
  const schema: Schema = {
    type: "object",
    ...descriptionOf(desc.typeName),
    properties: Object.fromEntries(
      desc.fields.map((field) => [field.jsonName, fieldSchema(field)]),
    ),
    ...(requiredNames.length > 0 && { required: requiredNames }),
    ...atMostOne(desc),
  };
  schemas[desc.typeName] = schema;
  for (const field of desc.fields) {
    if (field.message) addMessage(schemas, field.message);
    if (field.enum) schemas[field.enum.typeName] ??= enumSchema(field.enum);
  }
}

/** The members of a `oneof` exclude each other. */
function atMostOne({ oneofs }: DescMessage): Schema {
  const choices = oneofs.map(({ fields }) => {
    const alone = fields.map(({ jsonName }) => ({ required: [jsonName] }));
    return { oneOf: [...alone, { not: { anyOf: alone } }] };
  });
  const [first, ...others] = choices;
  if (!first) return {};
  return others.length === 0 ? first : { allOf: choices };
}

function fieldSchema(field: DescField): Schema {
  const limits = limitsOf(field);
  const schema = withLimits(typeOf(field), limits, field.enum);
  const words = comments[`${field.parent.typeName}.${field.name}`];
  const description = [words, limits && wordsOf(limits)].filter((one) => one !== undefined);
  return {
    ...schema,
    ...(limits?.isRequired && noZero(field, schema)),
    ...(description.length > 0 && { description: description.join(" ") }),
  };
}

/** What a required field must not be: the value that stands for its absence. */
function noZero(field: DescField, { type, minLength = 1 }: Schema): Schema {
  if (type === "array") return { minItems: 1 };
  if (field.fieldKind === "map") return { minProperties: 1 };
  if (field.enum) return { not: oneOf(field.enum.values[0]?.name ?? "") };
  if (field.scalar === ScalarType.STRING) return { minLength };
  if (field.message || field.scalar === ScalarType.BYTES) return {};
  return { not: { const: type === "string" ? "0" : 0 } };
}

/** The schema of a value with what JSON Schema can say of its limits. */
function withLimits(schema: Schema, limits: Limits | undefined, desc?: DescEnum): Schema {
  if (!limits) return schema;
  const { itemsMin, itemsMax } = limits;
  return {
    ...schema,
    ...textLimits(schema, limits),
    ...numberLimits(schema, limits),
    ...(limits.notIn && {
      not: oneOf(...limits.notIn.map((number) => desc?.value[number]?.name ?? "")),
    }),
    ...(schema.type === "array" && {
      ...given("minItems", limits.skipsZero ? undefined : itemsMin),
      ...given("maxItems", itemsMax),
      ...(limits.isUnique && { uniqueItems: true }),
      items: withLimits(Object(schema.items), limits.items, desc),
    }),
    ...(schema.type === "object" && {
      ...given("minProperties", limits.skipsZero ? undefined : itemsMin),
      ...given("maxProperties", itemsMax),
      ...(limits.keys && { propertyNames: withLimits(text, limits.keys) }),
      additionalProperties: withLimits(Object(schema.additionalProperties), limits.values),
    }),
  };
}

function textLimits(schema: Schema, limits: Limits): Schema {
  const { lengthMin, lengthMax, bytesMax, pattern, skipsZero } = limits;
  const isText = schema.type === "string" && schema.contentEncoding === undefined;
  // The empty text stands for absence, and is one of the texts that the form allows.
  const empty = skipsZero ? "^$|" : "";
  return {
    ...(isText && given("minLength", skipsZero ? undefined : lengthMin)),
    // A text of so many bytes has at most as many characters.
    ...(isText && given("maxLength", lengthMax ?? bytesMax)),
    ...(pattern && { pattern: `${empty}${pattern.source}` }),
  };
}

function numberLimits({ format }: Schema, { least, most, skipsZero }: Limits): Schema {
  return {
    ...(typeof least === "number" && !skipsZero && { minimum: least }),
    ...(typeof most === "number" && { maximum: most }),
    // Numbers of 64 bits are texts in JSON.
    ...(typeof least === "bigint" && format === "int64" && { "x-minimum": String(least) }),
    ...(typeof most === "bigint" && format === "int64" && { "x-maximum": String(most) }),
  };
}

function given(name: string, limit: number | undefined): Schema {
  return limit === undefined ? {} : { [name]: limit };
}

/** What JSON Schema cannot say. */
function wordsOf({ least, most, unit, bytesMax, isFuture }: Limits): string | undefined {
  if (isFuture) return "It is in the future.";
  if (bytesMax !== undefined) return `It has at most ${count(bytesMax, "byte")}.`;
  if (typeof (least ?? most) !== "bigint") return undefined;
  if (unit) return `It ${rangeText(secondsOf(least), secondsOf(most))} seconds.`;
  return `It ${rangeText(least, most)}.`;
}

function typeOf(field: DescField): Schema {
  switch (field.fieldKind) {
    case "list":
      return list(field.listKind === "scalar" ? scalarSchema(field.scalar) : innerSchema(field));
    case "map":
      return {
        type: "object",
        additionalProperties:
          field.mapKind === "scalar" ? scalarSchema(field.scalar) : innerSchema(field),
      };
    case "scalar":
      return scalarSchema(field.scalar);
    default:
      return innerSchema(field);
  }
}

function innerSchema({ message, enum: desc }: DescField): Schema {
  if (desc) return ref(desc.typeName);
  return message ? (wellKnown[message.typeName] ?? ref(message.typeName)) : {};
}

/** The messages of `google.protobuf` that have a JSON form of their own. */
const wellKnown: Readonly<Record<string, Schema>> = {
  "google.protobuf.Timestamp": time,
  "google.protobuf.Duration": { type: "string", pattern: "^-?\\d{1,11}(\\.\\d{1,9})?s$" },
  "google.protobuf.FieldMask": {
    type: "string",
    pattern: "^([a-zA-Z0-9.]+(,[a-zA-Z0-9.]+)*)?$",
  },
  "google.protobuf.Struct": { type: "object" },
};

function scalarSchema(type: ScalarType): Schema {
  switch (type) {
    case ScalarType.BOOL:
      return { type: "boolean" };
    case ScalarType.STRING:
      return text;
    case ScalarType.BYTES:
      return { type: "string", contentEncoding: "base64" };
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return { type: "number" };
    case ScalarType.INT32:
    case ScalarType.SINT32:
    case ScalarType.SFIXED32:
      return { type: "integer", minimum: -(2 ** 31), maximum: 2 ** 31 - 1 };
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return { type: "integer", minimum: 0, maximum: 2 ** 32 - 1 };
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return { type: "string", format: "uint64", pattern: "^\\d{1,20}$" };
    default:
      return { type: "string", format: "int64", pattern: "^-?\\d{1,19}$" };
  }
}

function enumSchema({ typeName, values }: DescEnum): Schema {
  const lines = values.flatMap(({ name }) => {
    const comment = comments[`${typeName}.${name}`];
    return comment === undefined ? [] : [`- \`${name}\`: ${comment}`];
  });
  const about = [comments[typeName] ?? "", lines.join("\n")].filter((one) => one !== "");
  return {
    ...oneOf(...values.map(({ name }) => name)),
    ...(about.length > 0 && { description: about.join("\n\n") }),
  };
}

function descriptionOf(name: string): Schema {
  const description = comments[name];
  return description === undefined ? {} : { description };
}
