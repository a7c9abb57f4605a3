// The tool calls of a provider's answer. In a stream they arrive in fragments, and the fragments of
// several calls may be interleaved.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { randomId } from "../../base/ids.ts";
import { unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject, parseJsonText } from "../json.ts";
import type { AnswerEvents } from "./answer-events.ts";

/** The known part of a tool call. */
type Call = {
  /** As the provider wrote it. */
  given: string;
  /** The id for the client; empty until the call is passed on. */
  id: string;
  name: string;
  arguments: string;
  /** Its place among the calls of the answer. */
  readonly number: number;
  /** Members that the provider wants back. */
  attached: JsonObject | undefined;
  /** The number of its block, once that is open. */
  block: number | undefined;
};

/** A call, or the part of a call that one chunk has. Absent members are empty. */
type CallFragment = { id: string; name: string; arguments: string };

/** Joins the fragments of calls and passes the calls to `answer`, one after the other. */
export class StreamedCalls {
  readonly #answer: AnswerEvents;
  readonly #calls: Call[] = [];
  /** The latest call with each number of the provider. Some providers use a number twice. */
  readonly #byIndex = new Map<number, Call>();
  readonly #ids = new CallIds();
  /** The call whose block was opened last. */
  #latestOpened: Call | undefined;

  constructor(answer: AnswerEvents) {
    this.#answer = answer;
  }

  /** True if the answer has called a tool. */
  get any(): boolean {
    return this.#calls.length > 0;
  }

  /** Numbers of the calls without arguments. */
  get withoutArguments(): number[] {
    return this.#calls.flatMap((call) => (call.arguments.trim() === "" ? [call.number] : []));
  }

  /** True while the open block is a call whose arguments are incomplete. */
  get isCallIncomplete(): boolean {
    const call = this.#latestOpened;
    return call !== undefined && this.#isOpen(call) && !hasWholeArguments(call);
  }

  /**
   * Adds one entry of `tool_calls`. Returns it as clients of this format can read it, which is the
   * entry itself for most providers; undefined for one that says nothing. Fails the answer if the
   * entry continues a call whose block was closed by other content.
   */
  add(entry: JsonObject): JsonObject | undefined {
    const given = readFragment(entry);
    const known = this.#find(entry.index, given.id);
    const fragment = withoutNull(given, known);
    // Snowflake sends an empty call beside the text of an answer without calls.
    if (!known && isEmptyFragment(fragment)) return undefined;
    if (known && isRepeat(known, fragment)) return undefined;
    const isNew = !known || beginsAnother(known, fragment);
    const call = isNew ? this.#begin(entry.index, fragment) : known;
    if (call.block !== undefined && !this.#isOpen(call)) {
      if (fragment.arguments === "" || hasWholeArguments(call)) return undefined;
      this.#answer.fail(
        failure(unreadableAnswer, "The model provider continued a tool call after other content."),
      );
      return undefined;
    }
    call.given ||= fragment.id;
    call.name ||= fragment.name;
    call.arguments += fragment.arguments;
    const attached = attachedMembers(entry);
    call.attached = attached ? { ...call.attached, ...attached } : call.attached;
    if (call.block !== undefined) {
      this.#answer.addArguments(fragment.arguments);
      if (attached) this.#answer.attachToCall(call.attached ?? attached);
    }
    // Other calls wait until the arguments of the open one are complete, because a closed block
    // cannot be opened again.
    else if (call.name !== "" && !this.isCallIncomplete) this.#open(call);
    return this.#repaired(entry, fragment, call, isNew);
  }

  /** The entry with the members without which clients fail. */
  #repaired(entry: JsonObject, fragment: CallFragment, call: Call, isNew: boolean): JsonObject {
    const { function: called } = entry;
    const isReadable =
      entry.index === call.number &&
      isObject(called) &&
      (called.arguments === undefined || called.arguments === fragment.arguments);
    if (isNew) this.#assignId(call);
    const isReplaced = fragment.id !== "" && fragment.id !== call.id;
    if (isReadable && !isReplaced && (!isNew || (entry.id === call.id && isText(entry.type))))
      return entry;
    return {
      ...entry,
      index: call.number,
      ...((isNew || isReplaced) && { id: call.id }),
      ...(isNew && { type: "function" }),
      function: { ...(isObject(called) && called), arguments: fragment.arguments },
    };
  }

  /** Passes on the calls that still wait. A call without a name fails the answer. */
  finish(): void {
    for (const call of this.#calls) {
      if (call.block !== undefined) continue;
      if (call.name === "") {
        this.#answer.fail(
          failure(unreadableAnswer, "The model provider sent a tool call without a name."),
        );
        return;
      }
      this.#open(call);
    }
  }

  #isOpen({ block }: Call): boolean {
    return block !== undefined && this.#answer.isOpen(block);
  }

  #open(call: Call): void {
    this.#assignId(call);
    call.block = this.#answer.openCall(call.id, call.name, call.attached);
    this.#answer.addArguments(call.arguments);
    this.#latestOpened = call;
  }

  #assignId(call: Call): void {
    call.id ||= this.#ids.assign(call.given);
  }

  #begin(index: JsonValue | undefined, { id }: CallFragment): Call {
    const call: Call = {
      given: id,
      id: "",
      name: "",
      arguments: "",
      number: this.#calls.length,
      attached: undefined,
      block: undefined,
    };
    this.#calls.push(call);
    if (typeof index === "number") this.#byIndex.set(index, call);
    return call;
  }

  #find(index: JsonValue | undefined, id: string): Call | undefined {
    if (typeof index === "number") return this.#byIndex.get(index);
    return id === "" ? this.#calls.at(-1) : this.#calls.findLast((call) => call.given === id);
  }
}

/** The members of one entry of `tool_calls`. */
function readFragment({ id, function: called }: JsonObject): CallFragment {
  const { name, arguments: given } = isObject(called) ? called : {};
  return {
    id: typeof id === "string" ? id : "",
    name: typeof name === "string" ? name : "",
    arguments: argumentsText(given),
  };
}

/** Some servers send "null" for no arguments. Within arguments it is a piece of them. */
function withoutNull(fragment: CallFragment, call: Call | undefined): CallFragment {
  if (fragment.arguments.trim() !== "null") return fragment;
  const isPiece = call !== undefined && call.arguments.trim() !== "" && !hasWholeArguments(call);
  return isPiece ? fragment : { ...fragment, arguments: "" };
}

/** True if the fragment has nothing of a call. */
function isEmptyFragment({ id, name, arguments: text }: CallFragment): boolean {
  return id === "" && name === "" && text.trim() === "";
}

/**
 * True if the fragment starts a call of its own, although its number or id is that of `call`: some
 * servers give all calls the number 0, and some give no ids or the same id to all. A name that is
 * repeated within the arguments continues its call.
 */
function beginsAnother(call: Call, { id, name, arguments: more }: CallFragment): boolean {
  if (name === "") return false;
  if (id !== "" && call.given !== "" && id !== call.given) return true;
  if (call.name === "") return false;
  return name !== call.name || (more.trim() !== "" && hasWholeArguments(call));
}

/** True if the fragment repeats a whole call: some servers do that at the end. */
function isRepeat(call: Call, fragment: CallFragment): boolean {
  return (
    fragment.id !== "" &&
    fragment.id === call.given &&
    fragment.name === call.name &&
    fragment.arguments === call.arguments &&
    hasWholeArguments(call)
  );
}

/** True if the arguments are complete JSON text. */
function hasWholeArguments({ arguments: text }: Call): boolean {
  if (text === "") return false;
  // An object without its closing brace is incomplete. Some servers repeat the name in every
  // fragment, and parsing the arguments each time took seconds for a call of 20,000 fragments.
  if (text.startsWith("{") && !text.trimEnd().endsWith("}")) return false;
  return parseJsonText(text) !== undefined;
}

/** Assigns the ids of the calls of one answer. They are unique, because results refer to them. */
class CallIds {
  readonly #used = new Set<string>();

  /** The provider's id; a new one if it is empty or was used before. */
  assign(id: string): string {
    const assigned = id === "" || this.#used.has(id) ? randomId("toolu_") : id;
    this.#used.add(assigned);
    return assigned;
  }
}

/** Members of a call, or of a message, that a provider of this format wants back. */
const carriedMembers = ["extra_content", "encrypted_content"];

/** These members of `owner`; undefined if it has none. */
export function attachedMembers(owner: JsonObject): JsonObject | undefined {
  const found = carriedMembers.filter((name) => isPresent(owner[name]));
  if (found.length === 0) return undefined;
  return Object.fromEntries(found.map((name) => [name, owner[name] ?? null]));
}

function isText(value: JsonValue | undefined): boolean {
  return typeof value === "string";
}

function isPresent(value: JsonValue | undefined): boolean {
  return value !== undefined && value !== null;
}

/** The arguments of a call as JSON text. Some servers send the object itself. */
function argumentsText(value: JsonValue | undefined): string {
  if (typeof value === "string") return value;
  return isObject(value) ? JSON.stringify(value) : "";
}
