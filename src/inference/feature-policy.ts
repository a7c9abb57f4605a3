// Features with a price beyond tokens. A feature for which a provider charges something else is
// refused, unless the operator allows it and it has a price here or costs tokens alone: a speed, a
// geography or a tier is allowed by its entry in the price of the model. The check
// runs on the canonical request, extensions included, so it is the same for every listener.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  Format,
  type Message,
  type Tool,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest, Origin } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { CatalogFile, Offered } from "../config/catalog.ts";
import { isOpenai } from "../formats/codec.ts";
import { Fit } from "../formats/fit.ts";
import {
  checkChoice,
  hostedToolsIn,
  itemsOf,
  toolListsOf,
  withoutHosted,
} from "../formats/hosted-tools.ts";
import { isObject } from "../formats/json.ts";

type FeaturePolicy = CatalogFile["features"];

const nothingOffered: Offered = { speed: new Set(), geo: new Set(), tier: new Set() };

/** What may become of the hosted tools of a Responses request. */
export type HostedPolicy = {
  /** Whether a provider of the model knows such tools. */
  readonly known: boolean;
  readonly otherwise: CatalogFile["hostedTools"];
};

const webSearch = /^web_search_/;
/** Their results are input; of these only searches cost more. */
const providerTools = /^(web_search_|web_fetch_|advisor_|mcp_toolset)/;
/** Its containers cost by the hour, for which there is no price. */
const codeExecution = /^code_execution_/;

/** Web searches of a request that does not bound them. The hold covers all. */
const webSearchesDefault = 8;

/**
 * The request without the members that only the gateway may set and without hosted tools that it
 * may not use, and with a bound of its web searches. Throws `feature_not_offered`,
 * `thread_unsupported_request`, or `invalid_request` for an extension with the name of a field and
 * for a wrong bound.
 */
export function enforceFeaturePolicy(
  request: GenerateRequest,
  features: FeaturePolicy,
  hosted: HostedPolicy = { known: false, otherwise: "leave_out" },
  offered: Offered = nothingOffered,
): GenerateRequest {
  let { tools } = request;
  for (const [index, { type, extensions }] of tools.entries()) {
    if (typeof extensions?.type === "string") throw hasField(`tools[${index}].type`);
    if (type === undefined) continue;
    if (codeExecution.test(type) || (providerTools.test(type) && !features.serverTools))
      throw notOffered(`tools[${index}].type`, type);
  }
  if (tools.some(isWebSearch)) tools = tools.map(boundSearches);
  for (const [index, { content }] of request.messages.entries())
    refuseFiles(content, `messages[${index}]`);
  // Its items may bring tools, too.
  if (request.origin?.format === Format.RESPONSES) {
    const given = request.extensions && enforceTier(request.extensions, offered);
    const { origin } = request;
    return enforceOnHosted({ ...request, origin, tools, extensions: given }, features, hosted);
  }
  if (request.extensions === undefined)
    return tools === request.tools ? request : { ...request, tools };
  if (!isOpenai(request.origin?.format)) {
    const extensions = enforceOnExtensions(request.extensions, features, offered);
    return { ...request, tools, extensions };
  }
  const extensions = enforceTier(request.extensions, offered);
  refuseHosted(extensions.tools, "tools");
  return { ...request, tools, extensions };
}

function boundSearches(tool: Tool, index: number): Tool {
  if (!isWebSearch(tool)) return tool;
  const { max_uses: uses } = tool.extensions ?? {};
  if (uses === undefined || uses === null)
    return { ...tool, extensions: { ...tool.extensions, max_uses: webSearchesDefault } };
  if (typeof uses === "number" && Number.isInteger(uses) && uses > 0 && uses <= usesMax)
    return tool;
  throw invalidField(`tools[${index}].max_uses`, `must be an integer from 1 to ${usesMax}`);
}

/** With more, the sum over all tools would not be exact. */
const usesMax = 1_000_000;

/** The most web searches that a request may make whose tools the policy has passed. */
export function webSearchesOf({ tools, extensions, messages, origin }: GenerateRequest) {
  let searches = 0;
  for (const tool of tools) {
    const uses = isWebSearch(tool) ? tool.extensions?.max_uses : 0;
    searches += typeof uses === "number" ? uses : 0;
  }
  if (origin?.format === Format.RESPONSES) {
    const hosted = hostedToolsIn(toolListsOf(extensions?.tools, itemsOf(messages)));
    const calls = extensions?.max_tool_calls;
    if (hosted.some(({ type }) => hostedSearch.test(type)) && typeof calls === "number")
      searches += calls;
  }
  return Math.min(searches, 2 ** 31 - 1);
}

function isWebSearch({ type }: Tool): boolean {
  return type !== undefined && webSearch.test(type);
}

/** Types of tools that run at the client. The vendor runs all others itself, at a price. */
const clientTools: readonly unknown[] = [undefined, null, "function", "custom", "namespace"];

function enforceTier(extensions: JsonObject, offered: Offered): JsonObject {
  const { service_tier: tier } = extensions;
  if (tier === undefined || tier === null) return extensions;
  if (typeof tier === "string" && offered.tier.has(tier)) return extensions;
  // With `auto` the operator's account may choose a more expensive tier.
  if (tier !== "auto" && tier !== "default") throw notOffered("service_tier", tier);
  return { ...extensions, service_tier: "default" };
}

// Chat clients ask for them on purpose, so a tool that is left out would surprise them.
function refuseHosted(tools: JsonValue | undefined, at: string): void {
  if (!Array.isArray(tools)) return;
  for (const [index, tool] of tools.entries()) {
    if (!isObject(tool)) continue;
    if (!clientTools.includes(tool.type)) throw notOffered(`${at}[${index}].type`, tool.type);
    refuseHosted(tool.tools, `${at}[${index}].tools`);
  }
}

const hostedSearch = /^web_search/;
/** Their calls cost tokens alone. */
const tokensAlone = /^(mcp|computer|computer_use_preview|tool_search)$/;

/** Codex defines hosted tools by default: what may not run is left out. */
function enforceOnHosted(
  request: GenerateRequest & { readonly origin: Origin },
  { serverTools }: FeaturePolicy,
  { known, otherwise }: HostedPolicy,
): GenerateRequest {
  const lists = toolListsOf(request.extensions?.tools, itemsOf(request.messages));
  const hosted = hostedToolsIn(lists);
  if (hosted.length === 0) return request;
  const mayRun = ({ type }: { readonly type?: JsonValue }) =>
    serverTools && known && (hostedSearch.test(String(type)) || tokensAlone.test(String(type)));
  const [left, kept] = [hosted.filter((one) => !mayRun(one)), hosted.filter(mayRun)];
  const isLeft = (tool: JsonValue) => isObject(tool) && left.some(({ type }) => type === tool.type);
  const [first] = left;
  if (first && otherwise === "refuse") throw notOffered(`${first.at}.type`, first.type);
  const reason = serverTools
    ? "no provider of this model runs it, or it has no price here"
    : "features.server_tools is off at this gateway";
  checkChoice(request, left, kept, reason);
  const fit = new Fit();
  for (const { type, at } of left) fit.leaveOut({ where: at, what: type, why: "hosted" });
  const extensions: JsonObject = { ...request.extensions };
  if (Array.isArray(extensions.tools)) extensions.tools = withoutHosted(extensions.tools, mayRun);
  const { tool_choice: choice } = extensions;
  if (isObject(choice) && Array.isArray(choice.tools))
    extensions.tool_choice = { ...choice, tools: choice.tools.filter((one) => !isLeft(one)) };
  if (kept.some(({ type }) => hostedSearch.test(type)))
    extensions.max_tool_calls = boundedCalls(extensions.max_tool_calls);
  return {
    ...request,
    extensions,
    messages: left.length === 0 ? request.messages : request.messages.map(withoutLeft(mayRun)),
    origin: { ...request.origin, leftOut: [...request.origin.leftOut, ...fit.leftOut] },
  };
}

/** All hosted calls of a Responses request count for its bound, searches too. */
function boundedCalls(calls: JsonValue | undefined): JsonValue {
  if (calls === undefined || calls === null) return webSearchesDefault;
  if (typeof calls === "number" && Number.isInteger(calls) && calls > 0 && calls <= usesMax)
    return calls;
  throw invalidField("max_tool_calls", `must be an integer from 1 to ${usesMax}`);
}

function withoutLeft(mayRun: (tool: JsonObject) => boolean) {
  return (message: Message): Message => {
    const { source } = message;
    if (!source || !Array.isArray(source.tools)) return message;
    return { ...message, source: { ...source, tools: withoutHosted(source.tools, mayRun) } };
  };
}

function enforceOnExtensions(
  extensions: JsonObject,
  features: FeaturePolicy,
  offered: Offered,
): JsonObject {
  const permitted: JsonObject = {};
  for (const [name, value] of Object.entries(extensions)) {
    const rule = memberRules.get(name);
    const sent = rule ? rule(value, { name, features, offered }) : value;
    // Not an assignment: the member `__proto__` is a member like any other.
    if (sent !== undefined)
      Object.defineProperty(permitted, name, {
        value: sent,
        enumerable: true,
        writable: true,
        configurable: true,
      });
  }
  return permitted;
}

/** What may be sent of a member: the value to send on; undefined drops the member. */
type MemberRule = (value: JsonValue, at: MemberPlace) => JsonValue | undefined;
type MemberPlace = {
  readonly name: string;
  readonly features: FeaturePolicy;
  readonly offered: Offered;
};

/** Of a member that has a field of its own. */
const refuseField: MemberRule = (_value, { name }) => {
  throw hasField(name);
};
/** Of a member that may only say that it is not there. */
const dropNull: MemberRule = (value, { name }) => {
  if (value === null) return undefined;
  throw notOffered(name);
};
const sendEmpty: MemberRule = (value, { name }) => {
  if (value === null || isEmptyList(value)) return value;
  throw notOffered(name);
};

/** The rules of members. All others are sent on. */
const memberRules: ReadonlyMap<string, MemberRule> = new Map<string, MemberRule>([
  // These would override the checked fields of the request, and the grant of the hold.
  ["model", refuseField],
  ["messages", refuseField],
  ["system", refuseField],
  ["max_tokens", refuseField],
  ["stream", refuseField],
  ["thinking", refuseField],
  ["tool_choice", refuseField],
  ["tools", (value, at) => (isEmptyList(value) ? value : refuseField(value, at))],
  [
    "thread",
    (value) => {
      if (value === null) return undefined;
      throw new ApiError("thread_unsupported_request", { field: "thread" });
    },
  ],
  ["fallbacks", dropNull],
  ["fallback_credit_token", dropNull],
  ["billing_policy", dropNull],
  [
    "inference_geo",
    (value, { offered }) => {
      if (value === null) return undefined;
      if (typeof value === "string" && offered.geo.has(value)) return value;
      throw notOffered("inference_geo", value);
    },
  ],
  [
    "speed",
    (value, { offered }) => {
      if (value === null || value === "standard") return value;
      if (typeof value === "string" && offered.speed.has(value)) return value;
      throw notOffered("speed", value);
    },
  ],
  [
    "service_tier",
    (value) => {
      if (value === null) return value;
      // With `auto` the provider may choose a more expensive tier.
      if (value === "auto" || value === "standard_only") return "standard_only";
      throw notOffered("service_tier", value);
    },
  ],
  ["container", sendEmpty],
  ["mcp_servers", (value, at) => (at.features.serverTools ? value : sendEmpty(value, at))],
]);

function isEmptyList(value: JsonValue): boolean {
  return Array.isArray(value) && value.length === 0;
}

// There is no file store here, and a provider's ids belong to another account.
function refuseFiles(content: readonly Block[], path: string): void {
  content.forEach(({ kind, extensions }, index) => {
    if (kind.case === "toolResult") refuseFiles(kind.value.content, `${path}.content[${index}]`);
    const hasSource = kind.case === "image" || kind.case === "document";
    if (hasSource && extensions?.source !== undefined)
      throw hasField(`${path}.content[${index}].source`);
    const source = hasSource ? kind.value.source?.kind : undefined;
    if (source?.case === "other" && source.value.type === "file")
      throw notOffered(`${path}.content[${index}].source`, "file");
    if (kind.case === "other" && kind.value.type === "container_upload")
      throw notOffered(`${path}.content[${index}]`, "container_upload");
  });
}

// Only gRPC and Connect callers can send this: the decoders move each member into its field.
function hasField(field: string): ApiError {
  return invalidField(field, "has a field of its own and cannot be an extension");
}

function notOffered(field: string, value?: JsonValue | undefined): ApiError {
  const feature = typeof value === "string" ? `${field}: ${value.slice(0, 100)}` : field;
  return new ApiError("feature_not_offered", {
    field,
    message: `${feature} is not offered by this gateway.`,
  });
}
