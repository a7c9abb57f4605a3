// The text of the chunks of one stream. Per delta: one string is escaped and put between two that
// never change.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { randomId } from "../../base/ids.ts";
import type { AnswerContext } from "../codec.ts";
import { escapeLineSeparators, stringifyJson } from "../json.ts";

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

/** Writes chunks that differ in their delta only. */
export class Chunks {
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
