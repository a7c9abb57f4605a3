// The reasoning in the deltas of a provider's answer → thinking. It comes as plain text under one
// of three names, as a list of details, as a part of the content, or as two of these at once.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../json.ts";
import type { AnswerEvents } from "./answer-events.ts";
import { plainReasoning, type Thought } from "./usage-and-endings.ts";

/** Adds the reasoning of one answer. */
export class ReasoningReader {
  readonly #answer: AnswerEvents;
  /** True once there was plain reasoning: details repeat its text. */
  #hasPlain = false;
  /** Number and type of the detail that the open thinking is of. */
  #entry: string | undefined;
  /** That detail as far as it came, without its text. */
  #members: JsonObject = {};

  constructor(answer: AnswerEvents) {
    this.#answer = answer;
  }

  /** Adds what a delta, or a whole message, has outside its content. */
  read(delta: JsonObject): void {
    const { names, text } = plainReasoning(delta);
    const { reasoning_details: details, thinking_blocks: blocks } = delta;
    const list = Array.isArray(details) ? "reasoning_details" : "thinking_blocks";
    const entries = Array.isArray(details) ? details : Array.isArray(blocks) ? blocks : [];
    // Details say the plain text of their delta again.
    if (text !== "" && !entries.some(hasText)) {
      this.#hasPlain = true;
      this.#answer.addThinking(
        text,
        this.#entry === undefined ? { textMembers: names } : undefined,
      );
    }
    for (const entry of entries) if (isObject(entry)) this.#addDetail(list, entry);
  }

  /** Adds a thought that is a part of the content. */
  addPart({ text, signature, members }: Thought): void {
    const attached = { list: "content", textMembers: ["thinking"], members };
    if (text !== "" || signature === "") this.#answer.addThinking(text, attached);
    if (signature !== "") this.#answer.addSignature(signature, attached);
  }

  /** Adds an entry without a text that a reader sees. */
  #addHidden(list: string, entry: JsonObject): void {
    this.#answer.closeText();
    this.#answer.addThinking("", { list, members: entry });
    this.#answer.closeText();
    this.#entry = undefined;
  }

  #addDetail(list: string, entry: JsonObject): void {
    const member = textMemberOf(entry.type);
    if (member === undefined) {
      if (entry.type === "reasoning.encrypted" && typeof entry.data === "string") {
        this.#entry = undefined;
        this.#answer.addRedacted(entry.data, { list, members: entry });
      }
      return;
    }
    const { [member]: given, ...members } = entry;
    const text = typeof given === "string" ? given : "";
    const signature = typeof entry.signature === "string" ? entry.signature : "";
    const key = `${String(entry.type)} ${String(entry.index)}`;
    const isSame = key === this.#entry && this.#answer.isThinking;
    if (!isSame && this.#entry !== undefined && this.#answer.isThinking) this.#answer.closeText();
    if (this.#hasPlain && !this.#answer.isThinking) {
      // Its text was shown, in a block that is closed. A signature alone signs nothing.
      if (text !== "") this.#addHidden(list, entry);
      return;
    }
    this.#members = isSame ? { ...this.#members, ...filled(members) } : members;
    this.#entry = key;
    const attached = { list, textMembers: [member], members: this.#members };
    const isNew = text !== "" && !this.#hasPlain;
    if (isNew || this.#answer.isThinking) this.#answer.addThinking(isNew ? text : "", attached);
    if (signature === "") return;
    this.#answer.addSignature(signature, attached);
    this.#entry = undefined;
  }
}

function hasText(entry: JsonValue): boolean {
  const member = isObject(entry) ? textMemberOf(entry.type) : undefined;
  return (
    isObject(entry) &&
    member !== undefined &&
    typeof entry[member] === "string" &&
    entry[member] !== ""
  );
}

function textMemberOf(type: JsonValue | undefined): string | undefined {
  if (type === "reasoning.text") return "text";
  if (type === "reasoning.summary") return "summary";
  return type === "thinking" ? "thinking" : undefined;
}

/** The members that say something: later fragments repeat some as null. */
function filled(members: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null));
}
