// Builds the events of a streamed answer. Chat has no blocks: text, reasoning and the fragments of
// tool calls arrive in any order. This class puts them into blocks, one after the other.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import {
  blockDelta,
  blockStop,
  messageDelta,
  messageStart,
  messageStop,
  progress,
  textStart,
  thinkingStart,
  toolUseStart,
} from "../events.ts";
import { runDelta, type TextRun } from "../text-run.ts";

/**
 * The events of one answer. Content of another kind than the open block closes that block and opens
 * a new one.
 */
export class AnswerEvents {
  #events: Event[] = [];
  #open: "text" | "thinking" | "toolUse" | undefined;
  /** The number of the latest block, which is the open one if any is open. */
  #index = -1;
  #isOver = false;

  /** True after the end of the answer, including a failure. */
  get isOver(): boolean {
    return this.#isOver;
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

  start(model: string): void {
    this.#events.push(messageStart({ id: "", model }));
  }

  /** `phase` is that of the block, if this opens one. */
  addText(text: string, phase?: string): void {
    if (this.#open !== "text") this.#events.push(textStart(this.#openBlock("text"), "", phase));
    this.#events.push(blockDelta(this.#index, { case: "text", value: text }));
  }

  /** Adds a run to the open text. */
  addRun(run: TextRun): void {
    this.#events.push(runDelta(this.#index, run));
  }

  addThinking(text: string): void {
    this.#openThinking();
    this.#events.push(blockDelta(this.#index, { case: "thinking", value: text }));
  }

  /** Adds the signature of the open thinking block, or of a new empty one, and closes the block. */
  addSignature(signature: string): void {
    this.#openThinking();
    this.#events.push(blockDelta(this.#index, { case: "signature", value: signature }));
    this.#close();
  }

  /** Closes an open text or thinking block, so that the next one is a block of its own. */
  closeText(): void {
    if (this.#open !== "toolUse") this.#close();
  }

  /** Opens a tool call. Returns the number of its block. */
  openCall(id: string, name: string): number {
    this.#events.push(toolUseStart(this.#openBlock("toolUse"), id, name));
    return this.#index;
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

  end(stopReason: string, usage: ReportedUsage | undefined, extensions?: JsonObject): void {
    this.#isOver = true;
    this.#close();
    this.#events.push(
      messageDelta({ stopReason, usage, ...(extensions && { extensions }) }),
      messageStop(),
    );
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
  #openBlock(kind: "text" | "thinking" | "toolUse"): number {
    this.#close();
    this.#open = kind;
    return ++this.#index;
  }

  #close(): void {
    if (this.#open === undefined) return;
    this.#events.push(blockStop(this.#index));
    this.#open = undefined;
  }
}
