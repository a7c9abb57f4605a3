// An answer on its way into events. Chat has no blocks: text, reasoning and the fragments of tool
// calls come in any order. Here they get blocks, one after the other.

import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import {
  blockDelta,
  blockStop,
  messageDelta,
  messageStart,
  messageStop,
  textStart,
  thinkingStart,
  toolUseStart,
} from "../events.ts";

/**
 * The events of one answer. What differs from the open block closes it and opens one of its own.
 */
export class AnswerEvents {
  #events: Event[] = [];
  #open: "text" | "thinking" | "toolUse" | undefined;
  /** The number of the newest block. If a block is open, it is this one. */
  #index = -1;
  #isOver = false;

  /** True once the answer has ended, well or not. */
  get isOver(): boolean {
    return this.#isOver;
  }

  get isThinking(): boolean {
    return this.#open === "thinking";
  }

  /** True while the block of this number is open. */
  isOpen(index: number): boolean {
    return this.#open !== undefined && index === this.#index;
  }

  /** The events since the last call. */
  take(): Event[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  start(model: string): void {
    this.#events.push(messageStart({ id: "", model }));
  }

  addText(text: string): void {
    if (this.#open !== "text") this.#events.push(textStart(this.#next("text"), ""));
    this.#events.push(blockDelta(this.#index, { case: "text", value: text }));
  }

  addThinking(text: string): void {
    this.#openThinking();
    this.#events.push(blockDelta(this.#index, { case: "thinking", value: text }));
  }

  /** Signs the open thought, or one without words. That is its end. */
  addSignature(signature: string): void {
    this.#openThinking();
    this.#events.push(blockDelta(this.#index, { case: "signature", value: signature }));
    this.#close();
  }

  /** Opens a tool call. Returns the number of its block. */
  openCall(id: string, name: string): number {
    this.#events.push(toolUseStart(this.#next("toolUse"), id, name));
    return this.#index;
  }

  /** Goes on with the arguments of the open call. */
  addArguments(text: string): void {
    if (text !== "") this.#events.push(blockDelta(this.#index, { case: "inputJson", value: text }));
  }

  end(stopReason: string, usage: ReportedUsage | undefined): void {
    this.#isOver = true;
    this.#close();
    this.#events.push(messageDelta({ stopReason, usage }), messageStop());
  }

  fail(failure: Event): void {
    this.#isOver = true;
    this.#events.push(failure);
  }

  #openThinking(): void {
    if (this.#open !== "thinking") this.#events.push(thinkingStart(this.#next("thinking"), "", ""));
  }

  /** The number of a block of this kind, which is opened now. */
  #next(kind: "text" | "thinking" | "toolUse"): number {
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
