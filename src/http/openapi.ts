// GET /openapi.json: the public API in OpenAPI 3.1, made of the routes themselves, of what their
// handlers say of them, of the error table, and of the descriptors of the services.

import type { DescMethod, JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { type ErrorReason, errorCatalog } from "../base/errors.ts";
import {
  closed,
  decimal,
  described,
  oneOf,
  open,
  orNull,
  ref,
  type Schema,
  text,
  uncheckedMark,
} from "../base/json-schema.ts";
import { tagKeyMax, tagPrefix, tagsHeader, tagsMax, tagValueMax } from "../base/tags.ts";
import { chatSchemas } from "../formats/chat/chat.ts";
import { nativeSchemas } from "../formats/native/native.ts";
import { responsesSchemas } from "../formats/responses/responses.ts";
import { supportedVersions } from "./authenticate.ts";
import { receiptSchemas } from "./balance-and-receipts.ts";
import { type Envelope, rowOf } from "./error-table.ts";
import { modelSchemas } from "./models.ts";
import { openaiBillingSchemas } from "./openai-billing.ts";
import { describeServices } from "./openapi-services.ts";
import { type DescribedRoute, json, type Operation, type Parameters } from "./operation.ts";
import { usageSchemas } from "./usage.ts";

/** What is served, and so what the document is about. */
export type DescribedApi = {
  readonly routes: readonly DescribedRoute[];
  /** The methods that Connect serves. */
  readonly methods: readonly DescMethod[];
  /** What this gateway posts to its customers, by name. */
  readonly posts: Readonly<Record<string, DescribedPost>>;
};

/** A webhook, of which customers give the address. */
export type DescribedPost = {
  readonly summary: string;
  readonly description: string;
  /** Schemas by the name of the header. */
  readonly headers: Readonly<Record<string, Schema>>;
  readonly body: Schema;
};

const servers = [{ url: "/", description: "This gateway." }];

/** The document. Everything that is served is in it. */
export function describeApi({ routes, methods, posts }: DescribedApi): JsonObject {
  const paths: Record<string, JsonObject> = {};
  // First what programs call.
  const isForBrowsers = ({ credential }: DescribedRoute) => credential === "cookie";
  for (const route of [
    ...routes.filter((one) => !isForBrowsers(one)),
    ...routes.filter(isForBrowsers),
  ]) {
    const path = pathOf(route);
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeRoute(route) };
  }
  const services = describeServices(methods);
  const webhooks = Object.entries(posts).map(([name, post]) => [
    name,
    { post: describePost(name, post) },
  ]);
  return {
    openapi: "3.1.0",
    info: {
      title: "Model gateway",
      version: "1",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      description:
        "Language models, paid from the credits of a key. Times are RFC 3339 in UTC. Credits and " +
        "dollars are exact decimals in strings; 1 credit is 0.005 USD. Every answer of these " +
        "paths has the id of its request in `request-id`. A member with the mark " +
        `\`${uncheckedMark}\` may have another value: it is ignored here, or the provider decides.` +
        "\n\nThe paths that begin with `/gateway.` are the methods of the services by Connect: a " +
        "POST with JSON in the form of protobuf, where whole numbers of 64 bits are texts, and a " +
        'member that is 0, false, "" or empty may be absent. gRPC serves the same methods; ' +
        "`/protos/descriptor.binpb` has their descriptors.",
    },
    servers,
    tags: services.tags,
    paths: { ...paths, ...services.paths },
    webhooks: Object.fromEntries(webhooks),
    components: {
      schemas: { ...schemas, ...services.schemas },
      parameters: services.parameters,
      securitySchemes,
    },
  };
}

export const openapiOperation: Operation = {
  id: "getOpenapi",
  summary: "Returns this document",
  answer: { [json]: open({ openapi: text, info: { type: "object" }, paths: { type: "object" } }) },
};

export function getOpenapi(document: () => JsonObject) {
  // Once: everybody may ask for it, and it is large.
  let bytes: Buffer | undefined;
  return async (_: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    bytes ??= Buffer.from(JSON.stringify(document()));
    return reply.headers({ "content-type": json, "cache-control": "no-cache" }).send(bytes);
  };
}

/** The path with `{name}`. */
function pathOf({ path }: Pick<DescribedRoute, "path">): string {
  return path.replace(/:(\w+)/g, "{$1}");
}

const securitySchemes = {
  apiKey: { type: "apiKey", in: "header", name: "x-api-key", description: "An API key." },
  bearer: { type: "http", scheme: "bearer", description: "An API key or an admin token." },
  session: {
    type: "http",
    scheme: "Session",
    description: "The token of a session: a person who is signed in.",
  },
  cookie: {
    type: "apiKey",
    in: "cookie",
    name: "__Host-session",
    description: "The session of a browser, on pages of this gateway alone.",
  },
};

const securityOf: Readonly<Record<NonNullable<DescribedRoute["credential"]>, JsonObject[]>> = {
  native: [{ apiKey: [] }, { bearer: [] }],
  chat: [{ bearer: [] }],
  either: [{ apiKey: [] }, { bearer: [] }],
  cookie: [{ cookie: [] }],
};

function describeRoute(route: DescribedRoute): JsonObject {
  const { credential, operation } = route;
  const { id, summary, description, body, bodyType = json, answer, failures = {} } = operation;
  const content = Object.fromEntries(
    Object.entries(answer).map(([type, schema]) => [type, { schema }]),
  );
  const withContent = Object.keys(content).length > 0 ? { content } : {};
  return {
    operationId: id,
    summary,
    ...(description && { description }),
    security: credential ? securityOf[credential] : [],
    parameters: parametersOf(route),
    ...(body && { requestBody: { required: true, content: { [bodyType]: { schema: body } } } }),
    responses: {
      "200": { description: "The answer.", headers: headersOf(operation), ...withContent },
      ...errorsOf(route),
      ...Object.fromEntries(
        Object.entries(failures).map(([status, schema]) => [
          status,
          { description: "No success.", content: { [json]: { schema } } },
        ]),
      ),
    },
  };
}

function describePost(
  name: string,
  { summary, description, headers, body }: DescribedPost,
): JsonObject {
  return {
    operationId: `receive_${name}`,
    summary,
    description,
    security: [],
    parameters: headerParameters(headers, true),
    requestBody: { required: true, content: { [json]: { schema: body } } },
    responses: { "2XX": { description: "It is taken. Anything else is repeated." } },
  };
}

function parametersOf({ needsVersion, operation }: DescribedRoute): JsonObject[] {
  const { query = {}, path = {}, isPaid } = operation;
  const version = described("The version of the format.", oneOf(...supportedVersions));
  return [
    ...parametersIn("path", path, true),
    ...parametersIn("query", query, false),
    ...(needsVersion ? headerParameters({ "anthropic-version": version }, true) : []),
    ...(isPaid ? headerParameters(paidHeaders, false) : []),
  ];
}

function headerParameters(schemas: Parameters, required: boolean): JsonObject[] {
  return parametersIn("header", schemas, required);
}

function parametersIn(place: string, schemas: Parameters, required: boolean): JsonObject[] {
  return Object.entries(schemas).map(([name, { description, ...schema }]) => ({
    name,
    in: place,
    required,
    schema,
    ...(description !== undefined && { description }),
  }));
}

const paidHeaders = {
  [tagsHeader]: described(
    `Tags, such as \`team=a,env=ci\`: at most ${tagsMax}, with keys of up to ${tagKeyMax} and ` +
      `values of up to ${tagValueMax} characters.`,
    text,
  ),
  "x-request-id": described("An id for this request, which no other request used.", {
    type: "string",
    pattern: "^req_[0-9A-Za-z_-]{8,64}$",
  }),
};

function headersOf({ isPaid }: Operation): JsonObject {
  const header = (description: string, schema: Schema) => ({ description, schema });
  return {
    "request-id": header("The id of the request.", text),
    ...(isPaid && {
      "x-gateway-cost-credits": header("What a plain answer was charged.", decimal),
      "x-gateway-max-tokens": header("The granted output, if it is less than asked for.", text),
    }),
  };
}

const ofEvery: readonly ErrorReason[] = ["gateway_unavailable", "internal"];
const ofCredentials: readonly ErrorReason[] = [
  ...([
    "missing_key",
    "invalid_key",
    "revoked_key",
    "key_expired",
    "key_paused",
    "address_not_allowed",
  ] as const),
  ...(["wrong_credential_header", "account_suspended", "not_permitted"] as const),
  ...(["auth_rate_limited", "database_unavailable", "invalid_request"] as const),
];
const ofVersions: readonly ErrorReason[] = ["version_required", "version_unsupported"];
const ofBodies: readonly ErrorReason[] = [
  ...(["request_too_large", "request_body_too_large_after_decoding"] as const),
  ...(["request_body_encoding_unsupported", "request_body_encoding_invalid"] as const),
  ...(["body_too_slow", "too_many_bodies", "model_not_found", "model_not_allowed"] as const),
  ...(["feature_not_offered", "thread_unsupported_request", "context_length_exceeded"] as const),
  ...(["overloaded", "upstream_error", "upstream_refused", "timeout"] as const),
];
const ofPaying: readonly ErrorReason[] = [
  ...(["request_id_used", "rate_limited", "requests_not_allowed", "too_many_failed"] as const),
  ...(["credits_exhausted", "credits_held", "monthly_cap_reached", "cancelled"] as const),
  ...(["budget_reached", "too_many_running"] as const),
];

/** The errors of a route, by status: which reasons there are, and how their bodies look. */
function errorsOf({ credential, needsVersion, envelope, operation }: DescribedRoute): JsonObject {
  if (!envelope) return {};
  const { body, bodyType, isPaid, errors = [] } = operation;
  const reasons = new Set([
    ...(credential ? ofCredentials : []),
    ...(needsVersion ? ofVersions : []),
    ...(body && !bodyType ? ofBodies : []),
    ...(isPaid ? ofPaying : []),
    ...errors,
    ...ofEvery,
  ]);
  const byStatus = new Map<number, string[]>();
  for (const reason of reasons) {
    const { status, chatStatus = status } = rowOf(reason);
    const shown = envelope === "native" ? status : chatStatus;
    const line = `- \`${codeOf(reason, envelope)}\`: ${errorCatalog[reason].message}`;
    byStatus.set(shown, [...(byStatus.get(shown) ?? []), line]);
  }
  const content = { [json]: { schema: ref(errorSchemaOf[envelope]) } };
  const statuses = [...byStatus.keys()].sort((one, other) => one - other);
  return {
    ...Object.fromEntries(
      statuses.map((status) => [
        String(status),
        { description: (byStatus.get(status) ?? []).join("\n"), content },
      ]),
    ),
    // A provider may refuse a request with a status of its own.
    default: { description: "Any other error.", content },
  };
}

function codeOf(reason: ErrorReason, envelope: Envelope): string {
  const { native, chat } = rowOf(reason);
  return envelope === "native" ? (native[1] ?? native[0]) : (chat[1] ?? chat[0]);
}

const errorSchemaOf = {
  native: "NativeError",
  chat: "ChatError",
  responses: "ChatError",
  union: "Error",
} as const satisfies Record<Envelope, string>;

const nativeError = { type: text, message: text };
const chatError = { param: orNull(text), code: orNull(text) };
const details = open({}, { error_code: text });

const schemas: Readonly<Record<string, Schema>> = {
  ...nativeSchemas,
  ...chatSchemas,
  ...responsesSchemas,
  ...modelSchemas,
  ...usageSchemas,
  ...receiptSchemas,
  ...openaiBillingSchemas,
  Metadata: described(
    `Members whose names begin with \`${tagPrefix}\` and whose values are texts are tags of the ` +
      "request. All others are for the provider, if it knows them, and are not stored.",
    { type: "object" },
  ),
  Cost: closed({ request_id: text, cost_credits: decimal }),
  NativeError: open({
    type: oneOf("error"),
    error: open(nativeError, { details }),
    request_id: text,
  }),
  ChatError: closed({ error: open({ message: text, type: text, ...chatError }) }),
  Error: open({
    type: oneOf("error"),
    error: open({ ...nativeError, ...chatError }, { details }),
    request_id: text,
  }),
};
