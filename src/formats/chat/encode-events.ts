// Events become chunks of a chat completion stream.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import type { AnswerContext, EventEncoder } from "../codec.ts";
import { escapeLineSeparators, stringifyJson } from "../json.ts";
import { encodeUsage, laterUsage, reasoningDetail, toFinishReason } from "./usage-and-endings.ts";

/** What an answer of this format shows beside its events. */
export type CompletionContext = AnswerContext & {
  /** `stream_options.include_usage` of the request; plain answers tell their usage always. */
  readonly includeUsage: boolean;
  readonly createdAtMs: number;
};

/** The members that a plain answer and every chunk of a stream begin with. */
export function completionHead(
  object: "chat.completion" | "chat.completion.chunk",
  context: CompletionContext,
) {
  const created = Math.floor(context.createdAtMs / 1000);
  return { id: randomId("chatcmpl-"), object, created, model: context.model };
}

/**
 * Encoder of one stream: role chunk, content, reasoning and tool call chunks, final chunk, usage
 * chunk if asked, `[DONE]`.
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
  readonly #details: JsonObject[] = [];
  // Blocks come one after the other, so one is open at a time.
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

  /** A comment, since clients of this format choke on unknown events. */
  ping(): string {
    return keepAlive;
  }

  failure(problem: JsonObject): string {
    this.#isClosed = true;
    return `data: ${stringifyJson(problem)}\n\n`;
  }

  /** Nothing where the events held their own end. */
  end(): string {
    if (this.#isClosed) return "";
    const { includeUsage, estimatedInputTokens } = this.#context;
    let text = this.#role() + this.#stopBlock();
    this.#isClosed = true;
    if (this.#details.length > 0) text += this.#chunks.delta({ reasoning_details: this.#details });
    text += this.#chunks.finish(toFinishReason(this.#stopReason));
    if (includeUsage) text += this.#chunks.usage(encodeUsage(this.#usage, estimatedInputTokens));
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
        this.#usage = laterUsage(this.#usage, kind.value.usage);
        return this.#role();
      case "messageDelta":
        this.#stopReason = kind.value.stopReason ?? this.#stopReason;
        this.#usage = laterUsage(this.#usage, kind.value.usage);
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
        // Tool calls are numbered among themselves; blocks of other kinds do not count.
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

  #continueBlock({ kind }: BlockDelta): string {
    // The kind of the block decides, not that of the delta: what a block without a counterpart says
    // is left out as well.
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
    if (kind.case === "thinking" && this.#signature !== "")
      this.#details.push(reasoningDetail(this.#thinking, this.#signature));
    // A call that arrived whole, or has no arguments at all: clients parse the text, and an empty
    // one is not JSON.
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

/** Writes chunks that differ in their delta only. */
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
    // With a usage chunk to come, all chunks before it say that theirs is none.
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

  reasoning(text: string): string {
    return this.#reasoningHead + quote(text) + this.#textTail;
  }

  /** More of the arguments of tool call `index`. */
  callArguments(index: number, text: string): string {
    return `${this.#deltaHead}{"tool_calls":[{"index":${index},"function":{"arguments":${quote(text)}}}]}${this.#deltaTail}`;
  }

  /** The chunk that ends the choice. */
  finish(finishReason: string): string {
    return `${this.#deltaHead}{},"finish_reason":"${finishReason}"}${this.#tail}`;
  }

  usage(usage: JsonObject): string {
    return `${this.#head}],"usage":${stringifyJson(usage)}}\n\n`;
  }
}

function quote(text: string): string {
  return escapeLineSeparators(JSON.stringify(text));
}
