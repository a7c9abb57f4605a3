// What the gateway counted of an answer: the output that its reader was handed. Results of tools
// that the provider runs, citations and blocks of an unknown kind are no output. And how much an
// answer may produce: a provider far past it is stopped.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { BlockDelta, Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { runOf } from "../formats/text-run.ts";
import type { Output, Reported } from "./reported.ts";

const bytesPerToken = 4;

export class Counted {
  #answerBytes = 0;
  #thinkingBytes = 0;
  /** Of hidden thinking, only these are visible. */
  #signatureBytes = 0;
  #redactedBytes = 0;
  #estimatedThinking = 0;
  /** Web searches, by the calls that were handed on. */
  searches = 0;
  /** True once there was content of any kind. The empty start of a block is none. */
  began = false;
  /** Index of the block that is open. Undefined between blocks. */
  openBlock: number | undefined;

  /** Bytes that a grant bounds. */
  get bytes(): number {
    return this.#answerBytes + this.#thinkingBytes;
  }

  add({ kind }: Event): void {
    switch (kind.case) {
      case "blockStart":
        this.openBlock = kind.value.index;
        if (kind.value.block) this.#addBlock(kind.value.block);
        break;
      case "blockDelta":
        this.#addDelta(kind.value);
        break;
      case "blockStop":
        this.openBlock = undefined;
        break;
    }
  }

  output(): Output {
    // The signature of visible thinking encodes the same thinking again.
    const bytes =
      (this.#thinkingBytes > 0 ? this.#thinkingBytes : this.#signatureBytes) + this.#redactedBytes;
    const thinking = Math.max(Math.ceil(bytes / bytesPerToken), this.#estimatedThinking);
    return { output: Math.ceil(this.#answerBytes / bytesPerToken), thinking };
  }

  /** Divides reported output tokens by the counted shares of answer and thinking. */
  split(reported: number): Output {
    const { output, thinking } = this.output();
    const share = thinking === 0 ? 0 : Math.round((reported * thinking) / (output + thinking));
    return { output: reported - share, thinking: share };
  }

  #addBlock({ kind }: Block): void {
    switch (kind.case) {
      case "text":
        if (kind.value.text !== "") this.began = true;
        this.#answerBytes += Buffer.byteLength(kind.value.text);
        break;
      case "thinking":
        if (kind.value.thinking !== "" || kind.value.signature !== "") this.began = true;
        this.#thinkingBytes += Buffer.byteLength(kind.value.thinking);
        this.#signatureBytes += kind.value.signature.length;
        break;
      case "redactedThinking":
        this.began = true;
        this.#redactedBytes += kind.value.data.length;
        break;
      case "toolUse":
        this.began = true;
        this.#answerBytes += Buffer.byteLength(kind.value.name) + bytesOfInput(kind.value.input);
        break;
      case "other":
        this.began = true;
        this.#answerBytes += bytesOfCall(kind.value);
        if (isSearch(kind.value)) this.searches += 1;
        break;
      default:
        this.began = true;
    }
  }

  #addDelta(delta: BlockDelta): void {
    const run = runOf(delta);
    if (run) {
      this.began = true;
      this.#answerBytes += run.textBytes;
      return;
    }
    const { kind, extensions, attached } = delta;
    const encrypted = attached?.members?.encrypted_content;
    if (typeof encrypted === "string") {
      this.began = true;
      this.#signatureBytes += encrypted.length;
    }
    if (kind.case !== undefined && kind.value !== "") this.began = true;
    switch (kind.case) {
      case "text":
      case "inputJson":
        this.#answerBytes += Buffer.byteLength(kind.value);
        break;
      case "thinking": {
        this.#thinkingBytes += Buffer.byteLength(kind.value);
        const estimated = extensions?.estimated_tokens;
        if (typeof estimated === "number" && estimated > this.#estimatedThinking) {
          this.began = true;
          this.#estimatedThinking = Math.ceil(estimated);
        }
        break;
      }
      case "signature":
        this.#signatureBytes += kind.value.length;
        break;
    }
  }
}

/** The arguments of a call that the provider runs itself are output, as those of other calls. */
function bytesOfCall({ type, name, input }: JsonObject): number {
  if (type !== "server_tool_use" && type !== "mcp_tool_use") return 0;
  const isObject = input !== null && typeof input === "object" && !Array.isArray(input);
  return (
    (typeof name === "string" ? Buffer.byteLength(name) : 0) +
    bytesOfInput(isObject ? input : undefined)
  );
}

/** The call of a native answer, or the item of a response. */
function isSearch({ type, name }: JsonObject): boolean {
  return (type === "server_tool_use" && name === "web_search") || type === "web_search_call";
}

// A tool call starts with the empty input `{}`, which is not output. Its arguments follow in
// deltas.
function bytesOfInput(input: JsonObject | undefined): number {
  if (input === undefined || Object.keys(input).length === 0) return 0;
  return Buffer.byteLength(JSON.stringify(input));
}

export class Grant {
  /** Output tokens, thinking included. */
  readonly output: number;
  /** False for an answer that came in one piece: it is delivered whole. */
  mayCut = true;

  constructor(output: number) {
    this.output = output;
  }

  /**
   * True if the answer may exceed its grant with these events. It is cut between two deltas, so
   * those of a run are needed one by one then.
   */
  mayReach(events: readonly Event[], { bytes }: Counted): boolean {
    if (!this.mayCut) return false;
    let most = bytes;
    for (const event of events) most += contentBytesMax(event);
    return this.#isAbove(most);
  }

  /** How many of these events come before the one with which the answer exceeds its grant. */
  cutAt(events: readonly Event[], { bytes }: Counted): number {
    const further = new Counted();
    const index = events.findIndex((event) => {
      further.add(event);
      return event.kind.case === "blockDelta" && this.#isAbove(bytes + further.bytes);
    });
    return index < 0 ? events.length : index;
  }

  /** True if the provider itself reported that it exceeds the grant, before its end. */
  isExceeded({ phase, output = 0 }: Reported): boolean {
    if (!this.mayCut || phase !== "running") return false;
    // The provider's count is exact. The margin allows for tokens that it generated before it
    // stopped.
    return output > this.output + Math.max(256, this.output * 0.05);
  }

  // Our own count estimates 4 bytes a token. Indented code and tables have up to 8.
  #isAbove(bytes: number): boolean {
    return bytes > bytesPerToken * (2 * this.output + 1_024);
  }
}

/** An upper bound of the bytes that `Counted` adds for an event. */
function contentBytesMax({ kind }: Event): number {
  if (kind.case === "blockStart") {
    const block = kind.value.block?.kind;
    return block?.case === "text" ? 3 * block.value.text.length : Number.POSITIVE_INFINITY;
  }
  if (kind.case !== "blockDelta") return 0;
  const run = runOf(kind.value);
  if (run) return run.textBytes;
  const delta = kind.value.kind;
  return typeof delta.value === "string" ? 3 * delta.value.length : Number.POSITIVE_INFINITY;
}
