// Builds the events of an answer. In the chat format, text, reasoning and the fragments of tool
// calls arrive in any order. This class puts them into blocks, one after the other.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attached, Block, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { AnswerSource } from "../codec.ts";
import {
  attachedDelta,
  blockDelta,
  blockStart,
  blockStop,
  messageDelta,
  messageStart,
  messageStop,
  progress,
  redactedStart,
  textStart,
  thinkingStart,
  toolUseStart,
} from "../events.ts";
import { attachedOf, type Writer } from "../packs.ts";
import { cover, emptyForm, pieceEvent } from "../pieces.ts";
import { runDelta, type TextRun } from "../text-run.ts";

/**
 * The events of one answer. Content of another kind than the open block closes that block and opens
 * a new one.
 */
export class AnswerEvents {
  readonly #source: AnswerSource;
  #events: Event[] = [];
  #open: "text" | "refusal" | "thinking" | "toolUse" | undefined;
  /** What the provider wants back with the open thinking, and its signature. */
  #attached: Partial<Attached> | undefined;
  #signature = "";
  /** The number of the latest block, which is the open one if any is open. */
  #index = -1;
  #isOver = false;

  constructor(source: AnswerSource = {}) {
    this.#source = source;
  }

  /** True after the end of the answer, including a failure. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Who writes the answer, if he wants anything back. */
  get writer(): Writer | undefined {
    return this.#source.writer;
  }

  get isThinking(): boolean {
    return this.#open === "thinking";
  }

  /** True while a text is open, and the answer is not over. */
  get isText(): boolean {
    return this.#open === "text" && !this.#isOver;
  }

  /** True while the block with this number is open. */
  isOpen(index: number): boolean {
    return this.#open !== undefined && index === this.#index;
  }

  /** Removes and returns the events since the last call. */
  take(): Event[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Events since the last call of `take`. */
  get count(): number {
    return this.#events.length;
  }

  /** Marks the events from number `from` on as made of a piece of this format, with its JSON. */
  cover(from: number, format: Format, piece: JsonObject, text?: string): void {
    if (this.#isOver) return;
    cover(this.#events, from, format, piece, text);
  }

  /** The same for several pieces: the first event, which begins the answer, carries the first. */
  coverFirst(from: number, format: Format, [first, ...others]: readonly JsonObject[]): void {
    if (this.#isOver || first === undefined) return;
    cover(this.#events, from, format, first);
    const pieces = others.map((piece) => pieceEvent(format, piece));
    this.#events.splice(from + 1, 0, ...pieces);
  }

  start(model: string): void {
    this.#events.push(messageStart({ id: "", model }, this.#source));
  }

  /** `phase` is that of the block, if this opens one. */
  addText(text: string, phase?: string, isRefusal = false): void {
    const kind = isRefusal ? "refusal" : "text";
    if (this.#open !== kind)
      this.#events.push(textStart(this.#openBlock(kind), "", phase, isRefusal));
    this.#events.push(blockDelta(this.#index, { case: "text", value: text }));
  }

  /** Adds a run to the open text. */
  addRun(run: TextRun): void {
    this.#events.push(runDelta(this.#index, run));
  }

  /** `attached`: how the provider wrote it, and whatever else it wants back. */
  addThinking(text: string, attached?: Partial<Attached>): void {
    this.#openThinking();
    this.#attached = attached ?? this.#attached;
    if (text !== "") this.#events.push(blockDelta(this.#index, { case: "thinking", value: text }));
  }

  /** Adds the signature of the open thinking block, or of a new empty one, and closes the block. */
  addSignature(signature: string, attached?: Partial<Attached>): void {
    this.#openThinking();
    this.#attached = attached ?? this.#attached;
    this.#signature = signature;
    this.#close();
  }

  /** A block of thinking that nobody but its provider can read. */
  addRedacted(data: string, attached: Partial<Attached>): void {
    this.#close();
    this.#index++;
    const { writer } = this.#source;
    const own = writer && attachedOf(writer, attached);
    this.#events.push(redactedStart(this.#index, data, own), blockStop(this.#index));
  }

  /** A block that came whole. */
  addBlock(block: Block): void {
    this.#close();
    this.#index++;
    this.#events.push(blockStart(this.#index, block), blockStop(this.#index));
  }

  /** Notes on the open text, such as citations, which only a reader wants. */
  addNotes(members: JsonObject, format: Format): void {
    if (this.#open !== "text") return;
    const notes = attachedOf({ format, dialect: "", model: "" }, { members });
    this.#events.push(attachedDelta(this.#index, notes));
  }

  /** Closes an open text or thinking block, so that the next one is a block of its own. */
  closeText(): void {
    if (this.#open !== "toolUse") this.#close();
  }

  /** Opens a tool call. Returns the number of its block. */
  openCall(id: string, name: string, attached?: JsonObject): number {
    const { writer, toolNames } = this.#source;
    const own = writer && attached ? attachedOf(writer, { members: attached }) : undefined;
    const called = toolNames?.get(name) ?? name;
    this.#events.push(toolUseStart(this.#openBlock("toolUse"), id, called, own));
    return this.#index;
  }

  /** Members of the open call that came after its start. */
  attachToCall(members: JsonObject): void {
    const { writer } = this.#source;
    if (writer) this.#events.push(attachedDelta(this.#index, attachedOf(writer, { members })));
  }

  /** Appends to the arguments of the open call. */
  addArguments(text: string): void {
    if (text !== "") this.#events.push(blockDelta(this.#index, { case: "inputJson", value: text }));
  }

  /** True if the answer has content. */
  get hasContent(): boolean {
    return this.#index >= 0;
  }

  /** Reports usage or the stop reason ahead of the end. */
  report(report: { stopReason?: string; usage?: ReportedUsage }): void {
    this.#events.push(progress(report));
  }

  /**
   * Ends the answer. `attached`: members of its message that the provider wants back. `last`: the
   * pieces with its end, in the format `format`; absent: the provider wrote none.
   */
  end(
    stopReason: string,
    usage: ReportedUsage | undefined,
    {
      attached,
      format,
      last,
    }: { attached?: JsonObject; format?: Format; last?: JsonObject[] } = {},
  ): void {
    this.#close();
    this.#isOver = true;
    const { writer } = this.#source;
    const delta = messageDelta({
      stopReason,
      usage,
      ...(writer && attached && { attached: attachedOf(writer, { members: attached }) }),
    });
    this.#events.push(delta);
    if (format !== undefined && last) {
      delta.wireForm = emptyForm(format);
      // After the usage and the charge, which an encoder writes into them.
      for (const piece of last) this.#events.push(pieceEvent(format, piece));
    }
    this.#events.push(messageStop());
  }

  fail(failure: Event): void {
    this.#isOver = true;
    this.#events.push(failure);
  }

  #openThinking(): void {
    if (this.#open !== "thinking")
      this.#events.push(thinkingStart(this.#openBlock("thinking"), "", ""));
  }

  /** Opens a block, without its event. Returns its number. */
  #openBlock(kind: "text" | "refusal" | "thinking" | "toolUse"): number {
    this.#close();
    this.#open = kind;
    return ++this.#index;
  }

  #close(): void {
    if (this.#open === undefined) return;
    if (this.#open === "thinking") this.#endThinking();
    this.#events.push(blockStop(this.#index));
    this.#open = undefined;
  }

  #endThinking(): void {
    const { writer } = this.#source;
    const [attached, signature] = [this.#attached, this.#signature];
    this.#attached = undefined;
    this.#signature = "";
    // First, so that a client of another format is sent one of the two.
    if (writer && attached)
      this.#events.push(attachedDelta(this.#index, attachedOf(writer, attached)));
    if (signature !== "")
      this.#events.push(blockDelta(this.#index, { case: "signature", value: signature }));
  }
}
