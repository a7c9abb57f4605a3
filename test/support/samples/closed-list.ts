// The closed list: all that may differ between what a client and a provider of one format send each
// other. What is not here goes through as it came.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../../src/formats/json.ts";
import { grownNames } from "./grow.ts";

type Target = { readonly model: string; readonly stream: boolean };

/** The body that a native provider gets. */
export function closedNativeRequest(body: JsonObject, target: Target): JsonObject {
  const messages = Array.isArray(body.messages) ? body.messages.flatMap(withoutUnsigned) : [];
  return { ...body, ...target, messages };
}

/** Without thinking that the vendor refuses, and without a turn of nothing else. */
function withoutUnsigned(message: JsonValue): JsonValue[] {
  if (!isObject(message) || message.role !== "assistant" || !Array.isArray(message.content))
    return [message];
  const content = message.content.filter(
    (block) =>
      !isObject(block) ||
      block.type !== "thinking" ||
      (typeof block.thinking === "string" &&
        typeof block.signature === "string" &&
        block.signature !== ""),
  );
  if (content.length === message.content.length) return [message];
  return content.length === 0 ? [] : [{ ...message, content }];
}

/** The body that a chat provider gets. The limit is the grant. */
export function closedChatRequest(body: JsonObject, target: Target): JsonObject {
  const { n, store, stream_options, max_completion_tokens, max_tokens, ...members } = body;
  const limit = max_completion_tokens ?? max_tokens;
  const options = isObject(stream_options) ? stream_options : {};
  const known = Object.entries(members).filter(([name]) => !grownNames.includes(name));
  return {
    ...Object.fromEntries(known),
    ...withoutTags(body.metadata),
    ...(Array.isArray(body.tools) && { tools: body.tools.map(withChatSchema) }),
    ...(Array.isArray(body.messages) && { messages: body.messages.map(withChatArguments) }),
    ...(typeof limit === "number" && { max_tokens: limit }),
    ...target,
    ...(target.stream && { stream_options: { ...options, include_usage: true } }),
  };
}

/** Calls without arguments have an empty object. */
function withChatArguments(message: JsonValue): JsonValue {
  if (!isObject(message) || message.role !== "assistant" || !Array.isArray(message.tool_calls))
    return message;
  const calls = message.tool_calls.map((call) =>
    isObject(call) && isObject(call.function)
      ? { ...call, function: withArguments(call.function) }
      : call,
  );
  return { ...message, tool_calls: calls };
}

function withArguments(call: JsonObject): JsonObject {
  const { arguments: given } = call;
  const isNone = given === null || (typeof given === "string" && /^(null)?$/.test(given.trim()));
  return isNone ? { ...call, arguments: "{}" } : call;
}

/** The body that a provider of the Responses format gets. */
export function closedResponsesRequest(body: JsonObject, target: Target): JsonObject {
  const { effort } = isObject(body.reasoning) ? body.reasoning : {};
  const thinks = typeof effort === "string" && effort !== "none";
  const asked = Array.isArray(body.include) ? body.include : [];
  const sealed = "reasoning.encrypted_content";
  const include = thinks && !asked.includes(sealed) ? [...asked, sealed] : body.include;
  return {
    ...body,
    ...withoutTags(body.metadata),
    ...(Array.isArray(body.tools) && { tools: body.tools.map(withSchema) }),
    ...(Array.isArray(body.input) && {
      input: body.input.map((item) =>
        isObject(item) && item.type === "function_call" ? withArguments(item) : item,
      ),
    }),
    ...(include !== undefined && { include }),
    ...target,
    store: false,
  };
}

function withoutTags(metadata: JsonValue | undefined): JsonObject {
  if (!isObject(metadata)) return {};
  const rest = Object.entries(metadata).filter(([name]) => !name.startsWith("tag."));
  return { metadata: Object.fromEntries(rest) };
}

/** Some providers refuse a tool without properties. */
function complete(schema: JsonValue | undefined): JsonObject {
  return { type: "object", properties: {}, ...(isObject(schema) && schema) };
}

function withChatSchema(tool: JsonValue): JsonValue {
  const { function: called } = isObject(tool) ? tool : {};
  if (!isObject(tool) || !isObject(called)) return tool;
  return { ...tool, function: { ...called, parameters: complete(called.parameters) } };
}

function withSchema(tool: JsonValue): JsonValue {
  if (!isObject(tool)) return tool;
  if (Array.isArray(tool.tools)) return { ...tool, tools: tool.tools.map(withSchema) };
  return tool.type === "function" ? { ...tool, parameters: complete(tool.parameters) } : tool;
}

/** The answer that a native client gets, but for its id, model and usage. */
export function closedNativeAnswer(answer: JsonObject): JsonObject {
  const { id, model, usage, gateway, ...members } = answer;
  return members;
}

/** The answer that a chat client gets, but for its id, time, model and usage. */
export function closedChatAnswer(answer: JsonObject): JsonObject {
  const names = ["object", "choices", "system_fingerprint", "service_tier", "moderation"];
  return Object.fromEntries(Object.entries(answer).filter(([name]) => names.includes(name)));
}

/**
 * The response that a client gets, but for its id, time, model and usage. Members that each
 * response has to have come from the request, as `echo` has them, where the provider left them out.
 */
export function closedResponse(response: JsonObject, echo: JsonObject): JsonObject {
  const { id, created_at, model, usage, gateway, ...members } = response;
  return { ...echo, ...members, store: false };
}
