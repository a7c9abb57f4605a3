// Events → the chunks of a chat completion stream.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { type Block, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Cost,
  Event,
  MessageStart,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import { Carrier } from "../carry.ts";
import { type AnswerContext, type EventEncoder, encodeCost } from "../codec.ts";
import { escapeLineSeparators, isObject, stringifyJson } from "../json.ts";
import { readStartContent } from "../native/decode-block.ts";
import { pieceOf } from "../pieces.ts";
import { runOf, type TextForm, type TextRun } from "../text-run.ts";
import { fromNativeId } from "../tool-ids.ts";
import { customInput } from "../tool-names.ts";
import { toDelta, withFunctionCall } from "./choice.ts";
import { encodeUsage, mergeUsage, reasoningDetail, toFinishReason } from "./usage-and-endings.ts";

/** The values of an answer that come from the gateway, not from the provider. */
export type CompletionContext = AnswerContext & {
  /** `stream_options.include_usage` of the request. Plain answers always have their usage. */
  readonly includeUsage: boolean;
  readonly createdAtMs: number;
  /** True for a client that sent `functions`: its one call comes as `function_call`. */
  readonly hasFunctions?: boolean;
  /** Names of the tools whose input is plain text. Default: none. */
  readonly customTools?: ReadonlySet<string>;
  /**
   * True where the request was not in this format's own form, so that what a provider of this
   * format wrote is not what its client reads. Default: false.
   */
  readonly isTranslated?: boolean;
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
/** Stands for a text. */
const probe = "the probe for a text";

/** How clients of this format return what other formats' providers want back. */
export function carrierOf({ sealing }: AnswerContext): Carrier {
  return new Carrier({ format: Format.CHAT, toClientId: fromNativeId, hidesText: false }, sealing);
}

/** Thinking that nobody but its provider can read. */
export function encryptedDetail(data: string): JsonObject {
  return { type: "reasoning.encrypted", data };
}

/** True if `first` begins an answer whose client gets it as its provider wrote it. */
export function isRelayed(
  first: Event | undefined,
  { isTranslated = false }: CompletionContext,
): boolean {
  return (
    first?.kind.case === "messageStart" && first.wireForm?.format === Format.CHAT && !isTranslated
  );
}

class ChunkEncoder implements EventEncoder {
  readonly #context: CompletionContext;
  readonly #chunks: Chunks;
  /** Of an answer of another format. Absent: a provider of this format writes it. */
  #carrier: Carrier | undefined;
  #hasRole = false;
  #isClosed = false;
  #toolCalls = 0;
  #usage: ReportedUsage | undefined;
  #stopReason: string | undefined;
  #cost: Cost | undefined;
  /** True once a piece had the finish reason. */
  #isFinished = false;
  #isRefusal = false;
  // At most one block is open at a time.
  #open: Block["kind"] = { case: undefined };
  #thinking = "";
  #signature = "";
  #hasArguments = false;
  /** Of an open call of a custom tool: its arguments so far. */
  #customArguments: string | undefined;

  constructor(context: CompletionContext) {
    this.#context = context;
    this.#chunks = new Chunks(context);
    this.#carrier = carrierOf(context);
  }

  encode(events: readonly Event[]): string {
    const [first] = events;
    // As it came: a provider of this format wrote it.
    if (isRelayed(first, this.#context)) this.#carrier = undefined;
    let text = "";
    for (const event of this.#carrier ? this.#carrier.carry(events) : events) {
      if (this.#isClosed) break;
      const isPiece = this.#isOwn && event.wireForm?.format === Format.CHAT;
      text += isPiece ? this.#piece(event) : this.#encodeOne(event);
    }
    return text;
  }

  /** What the provider wrote in one piece, at its first event. The others have nothing to add. */
  #piece(event: Event): string {
    this.#note(event);
    const { choices, ...members } = pieceOf(event) ?? {};
    let text = "";
    for (const choice of Array.isArray(choices) ? choices : [])
      if (isObject(choice)) text += this.#choice(choice, members);
    return text;
  }

  #choice({ message, ...given }: JsonObject, members: JsonObject): string {
    // A plain answer to a client that reads a stream.
    const choice: JsonObject = isObject(message) ? { ...given, delta: toDelta(message) } : given;
    const { role } = isObject(choice.delta) ? choice.delta : {};
    const before = typeof role === "string" ? "" : this.#role();
    this.#hasRole = true;
    const isFinish = typeof choice.finish_reason === "string";
    // The charge stands where the usage is, or else with the reason.
    const cost = isFinish && !this.#isFinished && !this.#context.includeUsage;
    this.#isFinished ||= isFinish;
    return before + this.#chunks.choice(choice, members, cost ? this.#shownCost() : undefined);
  }

  #shownCost(): JsonObject | undefined {
    return this.#context.showCost && this.#cost ? encodeCost(this.#cost) : undefined;
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
    const { includeUsage, estimatedInputTokens } = this.#context;
    let text = this.#role() + this.#stopBlock();
    this.#isClosed = true;
    const cost = this.#shownCost();
    if (!this.#isFinished)
      text += this.#chunks.finish(
        toFinishReason(this.#stopReason, this.#isRefusal),
        includeUsage ? undefined : cost,
      );
    if (includeUsage)
      text += this.#chunks.usage(encodeUsage(this.#usage, estimatedInputTokens), cost);
    return `${text}data: [DONE]\n\n`;
  }

  /** Usage, reason and charge. */
  #note({ kind }: Pick<Event, "kind">): void {
    if (kind.case !== "messageStart" && kind.case !== "messageDelta") return;
    this.#usage = mergeUsage(this.#usage, kind.value.usage);
    if (kind.case === "messageStart") return;
    this.#stopReason = kind.value.stopReason ?? this.#stopReason;
    this.#cost = kind.value.cost;
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
        this.#note({ kind });
        return this.#role() + this.#wholeBlocks(kind.value);
      case "messageDelta":
        this.#note({ kind });
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
        this.#isRefusal ||= kind.value.refusal;
        return this.#text(kind.value.text);
      case "thinking":
        this.#thinking = "";
        this.#signature = kind.value.signature;
        return this.#reasoning(kind.value.thinking);
      case "redactedThinking":
        return this.#isOwn ? "" : this.#detail(encryptedDetail(kind.value.data));
      case "toolUse": {
        // Of a provider of this format, its pieces have the calls.
        if (this.#isOwn) return "";
        const { id, name } = kind.value;
        // Tool calls have numbers of their own; blocks of other kinds do not count.
        const index = this.#toolCalls++;
        this.#hasArguments = false;
        this.#customArguments = this.#context.customTools?.has(name) ? "" : undefined;
        if (this.#customArguments !== undefined)
          return this.#chunks.delta({
            tool_calls: [{ index, id, type: "custom", custom: { name, input: "" } }],
          });
        return this.#chunks.call(index, { id, name });
      }
      default:
        return "";
    }
  }

  /** True if a provider of this format writes the answer. */
  get #isOwn(): boolean {
    return this.#carrier === undefined;
  }

  #continueBlock(delta: BlockDelta): string {
    const run = runOf(delta);
    if (run) {
      if (this.#open.case !== "text" && !this.#isOwn) return "";
      return this.#role() + this.#chunks.run(run, this.#isOwn);
    }
    const { kind } = delta;
    if (this.#isOwn) {
      // The start of the block may be a part of a piece.
      if (kind.case === "text") return this.#text(kind.value);
      return kind.case === "thinking" ? this.#reasoning(kind.value) : "";
    }
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
    if (this.#isOwn) return "";
    if (kind.case === "thinking" && this.#signature !== "")
      return this.#detail(reasoningDetail(this.#thinking, this.#signature));
    if (kind.case === "toolUse" && this.#customArguments !== undefined)
      return this.#customInput(this.#customArguments, kind.value.input);
    // The call arrived whole or has no arguments. Clients parse the text, and empty text is not
    // JSON.
    return kind.case === "toolUse" && !this.#hasArguments
      ? this.#arguments(JSON.stringify(kind.value.input ?? {}))
      : "";
  }

  /** The input of a custom call, which is text inside of its arguments. */
  #customInput(given: string, whole: JsonObject | undefined): string {
    const input = customInput(given === "" ? JSON.stringify(whole ?? {}) : given);
    this.#customArguments = undefined;
    return this.#chunks.delta({ tool_calls: [{ index: this.#toolCalls - 1, custom: { input } }] });
  }

  #detail(detail: JsonObject): string {
    return this.#chunks.delta({ reasoning_details: [detail] });
  }

  #text(text: string): string {
    if (text === "") return "";
    const isRefusal = this.#open.case === "text" && this.#open.value.refusal;
    return (
      this.#role() + (isRefusal ? this.#chunks.delta({ refusal: text }) : this.#chunks.text(text))
    );
  }

  #reasoning(text: string): string {
    this.#thinking += text;
    return text === "" ? "" : this.#role() + this.#chunks.reasoning(text);
  }

  #arguments(text: string): string {
    if (text === "" || this.#isOwn) return "";
    if (this.#customArguments !== undefined) {
      this.#customArguments += text;
      return "";
    }
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
  readonly #hasFunctions: boolean;
  /** Of the form that the texts of runs came in last. */
  #form: { readonly form: TextForm; readonly head: string; readonly tail: string } | undefined;

  constructor(context: CompletionContext) {
    this.#head = `data: ${stringifyJson(completionHead("chat.completion.chunk", context)).slice(0, -1)},"choices":[`;
    // Before a usage chunk, all chunks have a null usage.
    this.#tail = context.includeUsage ? `],"usage":null}\n\n` : "]}\n\n";
    this.#deltaHead = `${this.#head}{"index":0,"delta":`;
    this.#deltaTail = `,"finish_reason":null}${this.#tail}`;
    this.#textHead = `${this.#deltaHead}{"content":`;
    this.#reasoningHead = `${this.#deltaHead}{"reasoning_content":`;
    this.#textTail = `}${this.#deltaTail}`;
    this.#hasFunctions = context.hasFunctions === true;
  }

  delta(delta: JsonValue): string {
    return this.#deltaHead + stringifyJson(delta) + this.#deltaTail;
  }

  text(text: string): string {
    return this.#textHead + quote(text) + this.#textTail;
  }

  /** `isOwn`: a provider of this format wrote them, whose other members are kept. */
  run(run: TextRun, isOwn: boolean): string {
    const { head, tail } = isOwn
      ? this.#formOf(run.form)
      : { head: this.#textHead, tail: this.#textTail };
    let chunks = "";
    run.eachText((text) => {
      chunks += `${head}"${text}"${tail}`;
    });
    return chunks;
  }

  /** What stands around the text of a chunk whose provider wrote its text in this form. */
  #formOf(form: TextForm): { head: string; tail: string } {
    if (this.#form?.form === form) return this.#form;
    const event = form.piece?.(probe, { case: undefined });
    const { choices, ...members } = (event && pieceOf(event)) ?? {};
    const [choice] = Array.isArray(choices) ? choices : [];
    const [head, tail] = isObject(choice) ? this.choice(choice, members).split(`"${probe}"`) : [];
    const known = head !== undefined && tail !== undefined ? { head, tail } : undefined;
    this.#form = { form, head: this.#textHead, tail: this.#textTail, ...known };
    return this.#form;
  }

  /** A choice as its provider wrote it, with some members of its chunk. */
  choice(given: JsonObject, members: JsonObject, cost?: JsonObject): string {
    const choice = this.#hasFunctions ? withFunctionCall(given) : given;
    const more = stringifyJson(members).slice(1, -1);
    const own = `${this.#head}${stringifyJson({ index: 0, ...choice })}`;
    const chunk = more === "" ? own + this.#tail : `${own}],${more}${this.#tail.slice(1)}`;
    return withCost(chunk, cost);
  }

  reasoning(text: string): string {
    return this.#reasoningHead + quote(text) + this.#textTail;
  }

  /** The start of tool call `index`. */
  call(index: number, { id, name }: { id: string; name: string }): string {
    const called = { name, arguments: "" };
    if (this.#hasFunctions) return index === 0 ? this.delta({ function_call: called }) : "";
    return this.delta({ tool_calls: [{ index, id, type: "function", function: called }] });
  }

  /** More of the arguments of tool call `index`. */
  callArguments(index: number, text: string): string {
    if (this.#hasFunctions)
      return index === 0 ? this.delta({ function_call: { arguments: text } }) : "";
    return `${this.#deltaHead}{"tool_calls":[{"index":${index},"function":{"arguments":${quote(text)}}}]}${this.#deltaTail}`;
  }

  /** The chunk that ends the choice. */
  finish(finishReason: string, cost?: JsonObject): string {
    const isCall = this.#hasFunctions && finishReason === "tool_calls";
    const reason = isCall ? "function_call" : finishReason;
    const chunk = `${this.#deltaHead}{},"finish_reason":"${reason}"}${this.#tail}`;
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
