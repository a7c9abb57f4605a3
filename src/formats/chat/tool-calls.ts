// The tool calls of a streamed answer. They come in fragments, which may be those of several calls
// at once.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { randomId } from "../../base/ids.ts";
import { failure } from "../events.ts";
import { isObject, parseJsonText } from "../json.ts";
import type { AnswerEvents } from "./answer-events.ts";
import { toolId } from "./decode-block.ts";

/** A tool call as far as it is known. `block` is the number of its block, once that was opened. */
type Call = { id: string; name: string; arguments: string; block: number | undefined };

/** What a chunk says of a call. Empty: nothing. */
type Fragment = { id: string; name: string; text: string };

/** Puts the fragments of calls together, and passes the calls to `answer` one after the other. */
export class StreamedCalls {
  readonly #answer: AnswerEvents;
  readonly #calls: Call[] = [];
  /**
   * The provider's own numbers of the calls; some count anew, so the latest call of a number is
   * meant.
   */
  readonly #byIndex = new Map<number, Call>();
  readonly #ids = new CallIds();
  /** The call that was told last. */
  #told: Call | undefined;

  constructor(answer: AnswerEvents) {
    this.#answer = answer;
  }

  /** True once the answer has called a tool. */
  get any(): boolean {
    return this.#calls.length > 0;
  }

  /** True while the block of a call is open whose arguments are not whole yet. */
  get isAmidCall(): boolean {
    return this.#told !== undefined && this.#isOpen(this.#told) && !isWhole(this.#told);
  }

  /**
   * Takes one entry of `tool_calls`. It fails the answer if it goes on with a call that was left
   * for other content.
   */
  add(entry: JsonObject): void {
    const fragment = readFragment(entry);
    const known = this.#find(entry.index, fragment.id);
    if (known && isEcho(known, fragment)) return;
    const call =
      known && !beginsAnother(known, fragment) ? known : this.#begin(entry.index, fragment);
    if (call.block !== undefined && !this.#isOpen(call)) {
      if (fragment.text === "" || isWhole(call)) return;
      this.#answer.fail(
        failure("api_error", "The model provider went on with a tool call that it had left."),
      );
      return;
    }
    call.id ||= fragment.id;
    call.name ||= fragment.name;
    call.arguments += fragment.text;
    if (call.block !== undefined) this.#answer.addArguments(fragment.text);
    // A call whose arguments are whole will get no more of them; while it may, the others wait,
    // since its block cannot be opened again.
    else if (call.name !== "" && !this.isAmidCall) this.#tell(call);
  }

  /** Tells the calls that still wait. One without a name fails the answer. */
  finish(): void {
    for (const call of this.#calls) {
      if (call.block !== undefined) continue;
      if (call.name === "") {
        this.#answer.fail(
          failure("api_error", "The model provider sent a tool call without a name."),
        );
        return;
      }
      this.#tell(call);
    }
  }

  #isOpen({ block }: Call): boolean {
    return block !== undefined && this.#answer.isOpen(block);
  }

  #tell(call: Call): void {
    call.block = this.#answer.openCall(this.#ids.take(call.id), call.name);
    this.#answer.addArguments(call.arguments);
    this.#told = call;
  }

  #begin(index: JsonValue | undefined, { id }: Fragment): Call {
    const call: Call = { id, name: "", arguments: "", block: undefined };
    this.#calls.push(call);
    if (typeof index === "number") this.#byIndex.set(index, call);
    return call;
  }

  #find(index: JsonValue | undefined, id: string): Call | undefined {
    if (typeof index === "number") return this.#byIndex.get(index);
    return id === "" ? this.#calls.at(-1) : this.#calls.findLast((call) => call.id === id);
  }
}

function readFragment({ id, function: called }: JsonObject): Fragment {
  const { name, arguments: text } = isObject(called) ? called : {};
  return {
    id: typeof id === "string" ? id : "",
    name: typeof name === "string" ? name : "",
    text: argumentsText(text),
  };
}

/**
 * True when the fragment belongs to another call than the one its number or id means: some servers
 * number all calls 0, and some give them no ids or all the same. A name that comes again amid the
 * arguments goes on with its call.
 */
function beginsAnother(call: Call, { id, name, text }: Fragment): boolean {
  if (name === "") return false;
  if (id !== "" && call.id !== "" && id !== call.id) return true;
  if (call.name === "") return false;
  return name !== call.name || (text.trim() !== "" && isWhole(call));
}

/** True when the fragment says once more all that a whole call said: some servers end with that. */
function isEcho(call: Call, { id, name, text }: Fragment): boolean {
  return (
    id !== "" && id === call.id && name === call.name && text === call.arguments && isWhole(call)
  );
}

function isWhole(call: Call): boolean {
  return call.arguments !== "" && parseJsonText(call.arguments) !== undefined;
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

/** The arguments in a provider's answer as text; some servers send the object itself. */
export function argumentsText(value: JsonValue | undefined): string {
  if (typeof value === "string") return value;
  return isObject(value) ? JSON.stringify(value) : "";
}
