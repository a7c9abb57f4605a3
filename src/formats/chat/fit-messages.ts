// Fits messages to the habits of their provider: members that it refuses, ids that it accepts, and
// reasoning that it needs and that the client lost.

import { hash } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Dialect, IdForm } from "../../config/catalog.ts";
import { type Fit, notePlaceholder, reasoningPlaceholder } from "../fit.ts";
import { isObject } from "../json.ts";
import { PairedIds } from "../tool-ids.ts";

/** `messages` as the provider accepts them. Changed messages are copies. */
export function fitMessages(messages: JsonObject[], dialect: Dialect, fit: Fit): JsonObject[] {
  const { refusedMembers = [], reasoning, reasoningNeeded, callPlaceholder } = dialect;
  const { noDeveloper, ids } = dialect;
  const noParts = reasoning !== undefined && !reasoning.includes("content");
  const refused = refusedMembers.length > 0 ? new Set(refusedMembers) : undefined;
  const callIds = ids && new CallIds(ids);
  if (!refused && !noParts && !callPlaceholder && !noDeveloper && !callIds) return messages;
  return messages.map((given, index) => {
    let message = given;
    if (noDeveloper && message.role === "developer") message = { ...message, role: "system" };
    if (noParts) message = withoutThoughts(message, index, fit);
    if (refused) message = withoutRefused(message, refused, index, fit);
    if (reasoningNeeded !== undefined) message = addReasoning(message, reasoningNeeded, index, fit);
    if (callPlaceholder) message = addPlaceholder(message, callPlaceholder, index, fit);
    return callIds ? fitIds(message, callIds) : message;
  });
}

/** Without parts of thinking, which only providers know that write it so. */
function withoutThoughts(message: JsonObject, index: number, fit: Fit): JsonObject {
  const { content } = message;
  if (message.role !== "assistant" || !Array.isArray(content)) return message;
  const kept = content.filter((part) => !isObject(part) || part.type !== "thinking");
  if (kept.length === content.length) return message;
  fit.carry("foreign");
  fit.leaveOut({ where: `messages[${index}]`, what: "thinking", why: "foreign" });
  return { ...message, content: kept.length > 0 ? kept : callsOf(message).length > 0 ? null : "" };
}

function withoutRefused(
  message: JsonObject,
  refused: ReadonlySet<string>,
  index: number,
  fit: Fit,
): JsonObject {
  const without = (value: JsonObject): JsonObject => {
    const entries = Object.entries(value);
    const kept = entries.filter(([name]) => !refused.has(name));
    if (kept.length === entries.length) return value;
    for (const [name, left] of entries)
      if (refused.has(name) && left !== null)
        fit.leaveOut({ where: `messages[${index}]`, what: name, why: "member" });
    return Object.fromEntries(kept);
  };
  const inside = (list: JsonValue | undefined) => {
    if (!Array.isArray(list)) return list;
    const fitted = list.map((entry) => (isObject(entry) ? without(entry) : entry));
    return fitted.some((entry, at) => entry !== list[at]) ? fitted : list;
  };
  const own = without(message);
  const [content, calls] = [inside(own.content), inside(own.tool_calls)];
  if (content === own.content && calls === own.tool_calls) return own;
  return {
    ...own,
    ...(content !== undefined && { content }),
    ...(calls !== undefined && { tool_calls: calls }),
  };
}

function callsOf({ tool_calls: calls }: JsonObject): JsonObject[] {
  return Array.isArray(calls) ? calls.filter(isObject) : [];
}

function nameOf(call: JsonObject): string {
  const { name } = isObject(call.function) ? call.function : {};
  return typeof name === "string" ? name : "";
}

/** Gives a turn with calls the reasoning that its client lost. */
function addReasoning(message: JsonObject, name: string, index: number, fit: Fit): JsonObject {
  const calls = callsOf(message);
  if (calls.length === 0 || typeof message[name] === "string") return message;
  const text = reasoningPlaceholder(calls.map(nameOf), `messages[${index}]`, fit);
  return { ...message, [name]: text };
}

/** Gives the first call of a turn the members that are lost or were never there. */
function addPlaceholder(
  message: JsonObject,
  placeholder: NonNullable<Dialect["callPlaceholder"]>,
  index: number,
  fit: Fit,
): JsonObject {
  const { tool_calls: calls } = message;
  const [first, ...others] = Array.isArray(calls) ? calls : [];
  if (!isObject(first)) return message;
  const missing = Object.entries(placeholder).filter(([name]) => !isObject(first[name]));
  if (missing.length === 0) return message;
  notePlaceholder(`messages[${index}]`, fit);
  const filled: JsonObject = { ...first, ...Object.fromEntries(missing) };
  return { ...message, tool_calls: [filled, ...others] };
}

/** Replaces ids of calls that a provider does not accept, with those of their results. */
export class CallIds {
  readonly #form: IdForm;
  readonly #pairs = new PairedIds();
  #calls = 0;

  constructor(form: IdForm) {
    this.#form = form;
  }

  /** The id of the next call of the conversation. */
  ofCall(id: string, name: string): string {
    const replaced = this.#replace(id, name);
    this.#pairs.addCall(id, replaced);
    this.#calls++;
    return replaced;
  }

  ofResult(id: string): string {
    return this.#pairs.ofResult(id) ?? this.#replace(id, "");
  }

  #replace(id: string, name: string): string {
    const { accepted, replacement } = this.#form;
    if (accepted.test(id)) return id;
    if (replacement.kind === "counted") return `functions.${name}:${this.#calls}`;
    return digestOf(id, replacement.length);
  }
}

function fitIds(message: JsonObject, ids: CallIds): JsonObject {
  const { tool_calls: calls, tool_call_id: id } = message;
  if (Array.isArray(calls))
    return {
      ...message,
      tool_calls: calls.map((call) =>
        isObject(call) && typeof call.id === "string"
          ? { ...call, id: ids.ofCall(call.id, nameOf(call)) }
          : call,
      ),
    };
  return typeof id === "string" ? { ...message, tool_call_id: ids.ofResult(id) } : message;
}

/** Letters and digits, the same for the same id, so that nothing needs to be stored. */
function digestOf(id: string, length: number): string {
  return hash("sha256", id, "base64")
    .replace(/[^a-zA-Z0-9]/g, "")
    .slice(0, length);
}
