// Events → the chunks of a chat completion stream.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Cost,
  Event,
  MessageStart,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import { type AnswerContext, type EventEncoder, encodeCost } from "../codec.ts";
import { escapeLineSeparators, stringifyJson } from "../json.ts";
import { readStartContent } from "../start-content.ts";
import { runOf, type TextRun } from "../text-run.ts";
import { encodeUsage, mergeUsage, reasoningDetail, toFinishReason } from "./usage-and-endings.ts";

/** The values of an answer that come from the gateway, not from the provider. */
export type CompletionContext = AnswerContext & {
  /** `stream_options.include_usage` of the request. Plain answers always have their usage. */
  readonly includeUsage: boolean;
  readonly createdAtMs: number;
};

/** The first members of a plain answer and of every chunk. */
export function completionHead(
  object: "chat.completion" | "chat.completion.chunk",
  context: CompletionContext,
) {
  const created = Math.floor(context.createdAtMs / 1000);
  return { id: randomId("chatcmpl-"), object, created, model: context.model };
}

/**
 * Encodes one stream: a role chunk, the chunks of content, reasoning and tool calls, the final
 * chunk, a usage chunk if the client requests it, and `[DONE]`.
 */
export function createEventEncoder(context: CompletionContext): EventEncoder {
  return new ChunkEncoder(context);
}

const keepAlive = ": keep-alive\n\n";

class ChunkEncoder implements EventEncoder {
  readonly #context: CompletionContext;
  readonly #chunks: Chunks;
  #hasRole = false;
  #isClosed = false;
  #toolCalls = 0;
  #usage: ReportedUsage | undefined;
  #stopReason: string | undefined;
  #cost: Cost | undefined;
  #annotations: JsonValue | undefined;
  // At most one block is open at a time.
  #open: Block["kind"] = { case: undefined };
  #thinking = "";
  #signature = "";
  #hasArguments = false;

  constructor(context: CompletionContext) {
    this.#context = context;
    this.#chunks = new Chunks(context);
  }

  encode(events: readonly Event[]): string {
    let text = "";
    for (const event of events) if (!this.#isClosed) text += this.#encodeOne(event);
    return text;
  }

  /** A comment, because clients of this format fail on unknown events. */
  ping(): string {
    return keepAlive;
  }

  failure(body: JsonObject): string {
    this.#isClosed = true;
    return `data: ${stringifyJson(body)}\n\n`;
  }

  /** Empty if the events had their own end. */
  end(): string {
    if (this.#isClosed) return "";
    const { includeUsage, estimatedInputTokens, showCost } = this.#context;
    let text = this.#role() + this.#stopBlock();
    this.#isClosed = true;
    if (this.#annotations) text += this.#chunks.delta({ annotations: this.#annotations });
    const cost = showCost && this.#cost ? encodeCost(this.#cost) : undefined;
    const finishReason = toFinishReason(this.#stopReason);
    if (includeUsage) {
      const usage = encodeUsage(this.#usage, estimatedInputTokens);
      text += this.#chunks.finish(finishReason) + this.#chunks.usage(usage, cost);
    } else {
      text += this.#chunks.finish(finishReason, cost);
    }
    return `${text}data: [DONE]\n\n`;
  }

  #encodeOne({ kind }: Event): string {
    switch (kind.case) {
      case "blockDelta":
        return this.#continueBlock(kind.value);
      case "blockStart":
        return this.#role() + this.#stopBlock() + this.#startBlock(kind.value.block);
      case "blockStop":
        return this.#stopBlock();
      case "messageStart":
        this.#usage = mergeUsage(this.#usage, kind.value.usage);
        return this.#role() + this.#wholeBlocks(kind.value);
      case "messageDelta":
        this.#stopReason = kind.value.stopReason ?? this.#stopReason;
        this.#annotations = kind.value.extensions?.annotations ?? this.#annotations;
        this.#cost = kind.value.cost;
        this.#usage = mergeUsage(this.#usage, kind.value.usage);
        return "";
      case "messageStop":
        return this.end();
      case "ping":
        return keepAlive;
      default:
        return "";
    }
  }

  #role(): string {
    if (this.#hasRole) return "";
    this.#hasRole = true;
    return this.#chunks.delta({ role: "assistant" });
  }

  /** The content of an answer that starts complete. */
  #wholeBlocks(start: MessageStart): string {
    const { blocks, stopReason } = readStartContent(start);
    this.#stopReason = stopReason;
    return blocks.map((block) => this.#startBlock(block) + this.#stopBlock()).join("");
  }

  #startBlock(block: Block | undefined): string {
    const kind: Block["kind"] = block?.kind ?? { case: undefined };
    this.#open = kind;
    switch (kind.case) {
      case "text":
        return this.#text(kind.value.text);
      case "thinking":
        this.#thinking = "";
        this.#signature = kind.value.signature;
        return this.#reasoning(kind.value.thinking);
      case "toolUse": {
        const { id, name } = kind.value;
        // Tool calls have numbers of their own; blocks of other kinds do not count.
        const index = this.#toolCalls++;
        this.#hasArguments = false;
        return this.#chunks.delta({
          tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }],
        });
      }
      default:
        return "";
    }
  }

  #continueBlock(delta: BlockDelta): string {
    const run = runOf(delta);
    if (run) return this.#open.case === "text" ? this.#chunks.run(run) : "";
    const { kind } = delta;
    // The kind of the block decides, not the kind of the delta: the deltas of a block without a
    // counterpart are omitted too.
    switch (this.#open.case) {
      case "text":
        return kind.case === "text" ? this.#text(kind.value) : "";
      case "thinking":
        if (kind.case === "signature") this.#signature += kind.value;
        return kind.case === "thinking" ? this.#reasoning(kind.value) : "";
      case "toolUse":
        return kind.case === "inputJson" ? this.#arguments(kind.value) : "";
      default:
        return "";
    }
  }

  #stopBlock(): string {
    const kind = this.#open;
    this.#open = { case: undefined };
    // Sent right after the thinking that it signs, so that a gateway before this one can sign its
    // block before it ends.
    if (kind.case === "thinking" && this.#signature !== "") {
      const detail = reasoningDetail(this.#thinking, this.#signature);
      return this.#chunks.delta({ reasoning_details: [detail] });
    }
    // The call arrived whole or has no arguments. Clients parse the text, and empty text is not
    // JSON.
    return kind.case === "toolUse" && !this.#hasArguments
      ? this.#arguments(JSON.stringify(kind.value.input ?? {}))
      : "";
  }

  #text(text: string): string {
    return text === "" ? "" : this.#chunks.text(text);
  }

  #reasoning(text: string): string {
    this.#thinking += text;
    return text === "" ? "" : this.#chunks.reasoning(text);
  }

  #arguments(text: string): string {
    if (text === "") return "";
    this.#hasArguments = true;
    return this.#chunks.callArguments(this.#toolCalls - 1, text);
  }
}

/**
 * Writes the chunks of one stream, which differ in their delta only. For each delta, it escapes one
 * string and puts it between two constant ones.
 */
class Chunks {
  readonly #head: string;
  readonly #tail: string;
  readonly #deltaHead: string;
  readonly #deltaTail: string;
  readonly #textHead: string;
  readonly #reasoningHead: string;
  readonly #textTail: string;

  constructor(context: CompletionContext) {
    this.#head = `data: ${stringifyJson(completionHead("chat.completion.chunk", context)).slice(0, -1)},"choices":[`;
    // Before a usage chunk, all chunks have a null usage.
    this.#tail = context.includeUsage ? `],"usage":null}\n\n` : "]}\n\n";
    this.#deltaHead = `${this.#head}{"index":0,"delta":`;
    this.#deltaTail = `,"finish_reason":null}${this.#tail}`;
    this.#textHead = `${this.#deltaHead}{"content":`;
    this.#reasoningHead = `${this.#deltaHead}{"reasoning_content":`;
    this.#textTail = `}${this.#deltaTail}`;
  }

  delta(delta: JsonValue): string {
    return this.#deltaHead + stringifyJson(delta) + this.#deltaTail;
  }

  text(text: string): string {
    return this.#textHead + quote(text) + this.#textTail;
  }

  run(run: TextRun): string {
    let chunks = "";
    run.eachText((text) => {
      chunks += `${this.#textHead}"${text}"${this.#textTail}`;
    });
    return chunks;
  }

  reasoning(text: string): string {
    return this.#reasoningHead + quote(text) + this.#textTail;
  }

  /** More of the arguments of tool call `index`. */
  callArguments(index: number, text: string): string {
    return `${this.#deltaHead}{"tool_calls":[{"index":${index},"function":{"arguments":${quote(text)}}}]}${this.#deltaTail}`;
  }

  /** The chunk that ends the choice. */
  finish(finishReason: string, cost?: JsonObject): string {
    const chunk = `${this.#deltaHead}{},"finish_reason":"${finishReason}"}${this.#tail}`;
    return withCost(chunk, cost);
  }

  usage(usage: JsonObject, cost?: JsonObject): string {
    return withCost(`${this.#head}],"usage":${stringifyJson(usage)}}\n\n`, cost);
  }
}

/** `chunk` with `cost` as its last member. */
function withCost(chunk: string, cost: JsonObject | undefined): string {
  if (cost === undefined) return chunk;
  return `${chunk.slice(0, chunk.lastIndexOf("}"))},"gateway":${JSON.stringify(cost)}}\n\n`;
}

function quote(text: string): string {
  return escapeLineSeparators(JSON.stringify(text));
}
