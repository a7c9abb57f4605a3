// The choice of a provider's answer as clients of this format get it: in pieces, each with one
// choice and the few members of its chunk that do not show the operator's account or costs.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../json.ts";

/** Top-level members of an answer that a client gets. */
const passedMembers = ["system_fingerprint", "service_tier", "moderation"];

/** The piece of a choice from this chunk or answer. */
export function pieceOfChoice(choice: JsonObject, from: JsonObject): JsonObject {
  const piece: JsonObject = { choices: [choice] };
  for (const name of passedMembers) {
    const value = from[name];
    if (value !== undefined) piece[name] = value;
  }
  return piece;
}

/** True for a delta that says nothing, as the one with the finish reason. */
export function isEmptyDelta(delta: JsonObject): boolean {
  return Object.values(delta).every(
    (value) => value === null || value === "" || (Array.isArray(value) && value.length === 0),
  );
}

/** True for a delta that an encoder of events writes in the same way. */
export function isPlainDelta(delta: JsonObject): boolean {
  let names = 0;
  for (const _ in delta) names++;
  const text = delta.content ?? delta.reasoning_content;
  return names === 1 && typeof text === "string" && text !== "";
}

/** The message of a plain answer as one delta. */
export function toDelta({ tool_calls: calls, ...message }: JsonObject): JsonObject {
  if (!Array.isArray(calls))
    return calls === undefined ? message : { ...message, tool_calls: calls };
  const numbered = calls.map((call, index) => (isObject(call) ? { index, ...call } : call));
  return { ...message, tool_calls: numbered };
}

/** Texts that go on in the next delta. */
const texts = ["content", "refusal", "reasoning_content", "reasoning", "reasoning_text"];

/** The message that the deltas of one answer make. */
class MessageFold {
  readonly message: JsonObject = {};
  readonly #calls = new Map<number, JsonObject>();

  add(delta: JsonObject): void {
    for (const [name, value] of Object.entries(delta)) {
      if (name === "tool_calls" && Array.isArray(value)) this.#addCalls(value);
      else set(this.message, name, foldMember(name, this.message[name], value));
    }
  }

  /** The message with its calls. */
  whole(): JsonObject {
    if (this.#calls.size === 0) return this.message;
    const calls = [...this.#calls].sort(([one], [other]) => one - other).map(([, call]) => call);
    return { ...this.message, tool_calls: calls };
  }

  #addCalls(entries: readonly JsonValue[]): void {
    for (const entry of entries) {
      if (!isObject(entry)) continue;
      const { index, ...members } = entry;
      const number = typeof index === "number" ? index : this.#calls.size;
      const known = this.#calls.get(number);
      if (known) for (const [name, value] of Object.entries(members)) addMember(known, name, value);
      else this.#calls.set(number, members);
    }
  }
}

/** Adds a member of a later fragment of a call. */
function addMember(call: JsonObject, name: string, value: JsonValue): void {
  const before = call[name];
  if (!isObject(before) || !isObject(value)) {
    if (value !== null && value !== "") set(call, name, value);
    return;
  }
  const { arguments: more, input, ...others } = value;
  const joined: JsonObject = { ...before, ...others };
  if (more !== undefined) joined.arguments = join(before.arguments, more);
  if (input !== undefined) joined.input = join(before.input, input);
  set(call, name, joined);
}

function join(before: JsonValue | undefined, more: JsonValue): JsonValue {
  return typeof before === "string" && typeof more === "string" ? before + more : more;
}

function foldMember(name: string, before: JsonValue | undefined, value: JsonValue): JsonValue {
  if (before === undefined || before === null) return value;
  if (value === null) return before;
  if (typeof before === "string" && typeof value === "string")
    return texts.includes(name) ? before + value : value;
  if (name === "reasoning_details" && Array.isArray(before) && Array.isArray(value))
    return value.reduce<JsonValue[]>(addDetail, [...before]);
  const [list, more] = [listOf(before), listOf(value)];
  if (list && more) return name === "content" ? joinParts(list, more) : [...list, ...more];
  // A call in the older form.
  if (isObject(before) && isObject(value)) {
    const { arguments: added, ...others } = value;
    return added === undefined
      ? { ...before, ...others }
      : { ...before, ...others, arguments: join(before.arguments, added) };
  }
  return value;
}

/** A list, or a text as a list of parts. */
function listOf(value: JsonValue): JsonValue[] | undefined {
  if (Array.isArray(value)) return value;
  if (typeof value !== "string") return undefined;
  return value === "" ? [] : [{ type: "text", text: value }];
}

/** The first of the later parts may go on with the last one: a text, or Mistral's thinking. */
function joinParts(before: JsonValue[], [next, ...others]: JsonValue[]): JsonValue[] {
  const last = before.at(-1);
  if (next === undefined) return before;
  const joined = isObject(last) && isObject(next) ? joinPart(last, next) : undefined;
  return joined ? [...before.slice(0, -1), joined, ...others] : [...before, next, ...others];
}

function joinPart(last: JsonObject, next: JsonObject): JsonObject | undefined {
  if (last.type !== next.type) return undefined;
  if (typeof last.text === "string" && typeof next.text === "string")
    return { ...last, ...next, text: last.text + next.text };
  const [before, more] = [last.thinking, next.thinking];
  if (!Array.isArray(before) || !Array.isArray(more)) return undefined;
  return { ...last, ...next, thinking: joinParts(before, more) };
}

/** Fragments with the same number and type are one entry. */
function addDetail(list: JsonValue[], entry: JsonValue): JsonValue[] {
  const last = list.at(-1);
  const isSame =
    isObject(entry) &&
    isObject(last) &&
    entry.index !== undefined &&
    entry.index === last.index &&
    entry.type === last.type;
  if (!isSame) return [...list, entry];
  const joined: JsonObject = { ...last };
  for (const [name, value] of Object.entries(entry))
    if (["text", "summary", "data"].includes(name)) joined[name] = join(joined[name], value);
    else if (value !== null) joined[name] = value;
  return [...list.slice(0, -1), joined];
}

/** As an assignment, also for a member called `__proto__`. */
function set(object: JsonObject, name: string, value: JsonValue): void {
  if (name === "__proto__")
    Object.defineProperty(object, name, {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  else object[name] = value;
}

/** The choice that the choices of one answer make: deltas and whole messages. */
export class ChoiceFold {
  readonly #message = new MessageFold();
  /** A message that came whole, as long as nothing followed it. */
  #wholeMessage: JsonObject | undefined;
  #members: JsonObject = {};

  add({ delta, message, logprobs, finish_reason: reason, ...others }: JsonObject): void {
    if (isObject(message)) this.#wholeMessage ??= message;
    const more = isObject(delta) ? delta : {};
    for (const _ in more) {
      if (this.#wholeMessage) this.#message.add(toDelta(this.#wholeMessage));
      this.#wholeMessage = undefined;
      this.#message.add(more);
      break;
    }
    this.#members = { ...this.#members, ...others };
    if (logprobs !== undefined)
      this.#members.logprobs = foldLogprobs(this.#members.logprobs, logprobs);
    // A reason comes once; null stands for none yet.
    if (reason !== undefined)
      this.#members.finish_reason = reason ?? this.#members.finish_reason ?? null;
  }

  whole(): JsonObject {
    return { ...this.#members, message: this.#wholeMessage ?? this.#message.whole() };
  }
}

function foldLogprobs(before: JsonValue | undefined, value: JsonValue): JsonValue {
  if (!isObject(before)) return value;
  if (!isObject(value)) return before;
  const joined: JsonObject = { ...before };
  for (const [name, more] of Object.entries(value)) {
    const known = joined[name];
    joined[name] =
      Array.isArray(known) && Array.isArray(more) ? [...known, ...more] : (more ?? known ?? null);
  }
  return joined;
}

/**
 * The choice for a client that knows the older form alone, with the first of its calls, or a piece
 * of that one.
 */
export function withFunctionCall({ delta, message, ...choice }: JsonObject): JsonObject {
  const isCall = choice.finish_reason === "tool_calls";
  return {
    ...choice,
    ...(isObject(delta) && { delta: inOlderForm(delta) }),
    ...(isObject(message) && { message: inOlderForm(message) }),
    ...(isCall && { finish_reason: "function_call" }),
  };
}

function inOlderForm({ tool_calls: calls, ...message }: JsonObject): JsonObject {
  const [first] = Array.isArray(calls) ? calls : [];
  if (!isObject(first) || (first.index ?? 0) !== 0 || first.function === undefined) return message;
  return { ...message, function_call: first.function };
}
