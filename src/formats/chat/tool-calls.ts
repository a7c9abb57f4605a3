// Tool calls of a conversation: their ids and their arguments.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type Block, BlockSchema } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { randomId } from "../../base/ids.ts";
import { isObject, parseJsonText } from "../json.ts";
import { invalid, objectAt, textAt } from "./fields.ts";

/**
 * The id with every character replaced that the native format refuses in one. Calls and results go
 * through it alike.
 */
export function toolId(id: string): string {
  return id.replace(/[^a-zA-Z0-9_-]/g, "_");
}

/**
 * The ids that the calls of one answer go by. Results name the call they belong to, so no two calls
 * may share one.
 */
export class CallIds {
  readonly #taken = new Set<string>();

  /**
   * The provider's id, made fit; one of our own where the provider gave none or has given it
   * before.
   */
  take(id: string): string {
    const fit = toolId(id);
    const own = fit === "" || this.#taken.has(fit) ? randomId("toolu_") : fit;
    this.#taken.add(own);
    return own;
  }
}

/** One entry of `tool_calls`. */
export function decodeToolCall(value: JsonValue, at: string): Block {
  const call = objectAt(value, at);
  if (call.type !== undefined && call.type !== null && call.type !== "function") {
    throw invalid(`${at}.type`, "only function calls are supported", ["function"]);
  }
  const id = textAt(call.id, `${at}.id`);
  if (id === "") throw invalid(`${at}.id`, "must not be empty");
  return decodeFunctionCall(call.function, `${at}.function`, id);
}

/** The `{name, arguments}` of a call, which goes by `id`. */
export function decodeFunctionCall(value: JsonValue | undefined, at: string, id: string): Block {
  const called = objectAt(value, at);
  const name = textAt(called.name, `${at}.name`);
  if (name === "") throw invalid(`${at}.name`, "must not be empty");
  return toolUse({ id, name, input: parseArguments(called.arguments) });
}

export function toolUse(call: { id: string; name: string; input: JsonObject }): Block {
  return create(BlockSchema, {
    kind: { case: "toolUse", value: { ...call, id: toolId(call.id) } },
  });
}

/**
 * The arguments as an object. What is not the text of one is wrapped as `{"_raw": …}`: a call that
 * was cut off stays in the client's history for good, and must not make every later request fail.
 */
export function parseArguments(value: JsonValue | undefined): JsonObject {
  if (value === undefined || value === null) return {};
  if (isObject(value)) return value;
  if (typeof value !== "string") return { _raw: JSON.stringify(value) };
  if (value.trim() === "") return {};
  // Not JSON.parse: escapes inside this text can hide depth and broken characters from the check of
  // the body around it.
  const parsed = parseJsonText(value);
  return isObject(parsed) ? parsed : { _raw: value };
}

/** The arguments in a provider's answer as text; some servers send the object itself. */
export function argumentsText(value: JsonValue | undefined): string {
  if (typeof value === "string") return value;
  return isObject(value) ? JSON.stringify(value) : "";
}
