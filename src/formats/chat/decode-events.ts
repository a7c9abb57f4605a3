// A provider's chunks → events. The usage arrives after the finish reason, so the end of the answer
// waits for it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, type EventDecoder, unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject, parseAnswerJson } from "../json.ts";
import { pieceEvent } from "../pieces.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { type TextDeltas, type TextRun, TextRuns } from "../text-run.ts";
import { AnswerEvents } from "./answer-events.ts";
import { isEmptyDelta, isPlainDelta, pieceOfChoice, toDelta } from "./choice.ts";
import { ReasoningReader } from "./read-reasoning.ts";
import { attachedMembers, StreamedCalls } from "./tool-calls.ts";
import {
  decodeUsage,
  failureOfEmpty,
  failureOfReason,
  isFirstChoice,
  readAnnotations,
  readContent,
  readImages,
  readProviderError,
  readToolCalls,
  toStopReason,
  withTier,
} from "./usage-and-endings.ts";

/**
 * Decodes the stream of one answer. An answer that is incomplete or malformed ends in a `failure`,
 * and nothing follows the end.
 */
export function createEventDecoder(acceptsRuns = false, source?: AnswerSource): EventDecoder {
  return new ChunkDecoder(acceptsRuns, source);
}

const textDeltas: TextDeltas = {
  mark: '"content"',
  firstForm: undefined,
  read(name, chunk) {
    const { error, object, usage, x_groq, choices } = chunk;
    if (name === "error" || object === "error" || !hasNone([error, usage, x_groq])) return;
    const [choice] = Array.isArray(choices) && choices.length === 1 ? choices : [];
    if (!isObject(choice) || !isFirstChoice(choice) || !isObject(choice.delta)) return;
    const { delta } = choice;
    const { role, content, ...others } = delta;
    if (!hasNone([choice.finish_reason, choice.usage, ...Object.values(others)])) return;
    if (typeof content !== "string") return;
    const pieceFor = (text: string) =>
      pieceOfChoice({ ...choice, delta: { ...delta, content: text } }, chunk);
    if (isPlainPiece(pieceFor(content))) return { text: content, index: 0 };
    const piece = (text: string, kind: Event["kind"]) =>
      pieceEvent(Format.CHAT, pieceFor(text), kind);
    return { text: content, index: 0, piece };
  },
};

/** True if none of the values has an effect on the answer. */
function hasNone(values: readonly (JsonValue | undefined)[]): boolean {
  return values.every((value) => value === undefined || value === null || value === "");
}

class ChunkDecoder implements EventDecoder {
  readonly #parser: ReturnType<typeof createSseParser>;
  readonly #answer: AnswerEvents;
  readonly #calls: StreamedCalls;
  readonly #reasoning: ReasoningReader;
  #isStarted = false;
  #isRefused = false;
  #finishReason: string | undefined;
  #usage: ReportedUsage | undefined;
  /** Members of the message that its provider wants back. */
  #attached: JsonObject | undefined;
  /** The pieces with the end of the answer, for clients of this format. */
  readonly #last: JsonObject[] = [];

  constructor(acceptsRuns: boolean, source: AnswerSource | undefined) {
    this.#parser = createSseParser(acceptsRuns ? new TextRuns(textDeltas) : undefined);
    this.#answer = new AnswerEvents(source);
    this.#calls = new StreamedCalls(this.#answer);
    this.#reasoning = new ReasoningReader(this.#answer);
  }

  push(bytes: Uint8Array): Event[] {
    for (const event of this.#parser.push(bytes)) this.#readEvent(event);
    return this.#answer.take();
  }

  end(): Event[] {
    for (const event of this.#parser.end()) this.#readEvent(event);
    if (!this.#answer.isOver) {
      if (this.#finishReason !== undefined) this.#finish();
      else this.#fail(incomplete);
    }
    return this.#answer.take();
  }

  #readEvent({ event: name, data, run, hasSurrogates }: SseEvent): void {
    if (run) {
      this.#readRun(run);
      return;
    }
    if (this.#answer.isOver || data === "") return;
    if (data.startsWith("[DONE]")) {
      if (this.#isStarted) this.#finish();
      else this.#fail(incomplete);
      return;
    }
    const chunk = parseChunk(data, hasSurrogates === true);
    if (chunk)
      this.#readChunk(name === "error" && chunk.error === undefined ? { error: chunk } : chunk);
    else
      this.#fail("The model provider sent an event that is not a JSON object.", unreadableAnswer);
  }

  /** In the middle of a text, nothing but the text matters. Elsewhere, each chunk is read. */
  #readRun(run: TextRun): void {
    const isText = this.#finishReason === undefined && !this.#calls.any && this.#answer.isText;
    if (isText) this.#answer.addRun(run);
    else
      for (const event of createSseParser().push(Buffer.from(run.frames))) this.#readEvent(event);
  }

  #readChunk(chunk: JsonObject): void {
    const choices = Array.isArray(chunk.choices)
      ? chunk.choices.filter(isObject).filter(isFirstChoice)
      : [];
    const reported = readUsage(chunk, choices);
    const error = readProviderError(chunk);
    if (error) {
      this.#failWith(error, reported);
      return;
    }
    if (!this.#isStarted) {
      this.#isStarted = true;
      const from = this.#answer.count;
      this.#answer.start(typeof chunk.model === "string" ? chunk.model : "");
      // An empty piece says that others follow.
      this.#answer.cover(from, Format.CHAT, { choices: [] });
    }
    const wasFinished = this.#finishReason !== undefined;
    for (const choice of choices) if (!this.#answer.isOver) this.#readChoice(choice, chunk);
    if (this.#answer.isOver) return;
    const broken = failureOfReason(this.#finishReason ?? "");
    if (broken) {
      this.#failWith(broken, reported);
      return;
    }
    this.#usage = reported ?? this.#usage;
    // Some servers send usage with every chunk; the final one follows the finish reason.
    if (reported && wasFinished) this.#finish();
    else if (this.#finishReason !== undefined && !wasFinished)
      this.#answer.report({ stopReason: this.#stopReason(), ...(reported && { usage: reported }) });
    else if (reported) this.#answer.report({ usage: reported });
  }

  #readChoice(given: JsonObject, chunk: JsonObject): void {
    const { delta, message, finish_reason: reason } = given;
    const from = this.#answer.count;
    const wasFinished = this.#finishReason !== undefined;
    // A server that cannot stream sends the whole message; some repeat it at the end.
    const isWhole = !isObject(delta) && isObject(message);
    const read = isObject(delta)
      ? delta
      : isWhole && !this.#answer.hasContent
        ? toDelta(message)
        : {};
    const own = this.#readDelta(read);
    // Some servers send an empty reason instead of null.
    const isFinish = typeof reason === "string" && reason !== "";
    if (isFinish) this.#finishReason = reason;
    if (this.#answer.isOver) return;
    const { message: _, ...choice } = own === delta ? given : { ...given, delta: own };
    if (wasFinished || (isFinish && isEmptyDelta(own))) {
      this.#last.push(pieceOfChoice(choice, chunk));
      return;
    }
    const piece = pieceOfChoice(isFinish ? { ...choice, finish_reason: null } : choice, chunk);
    if (!isPlainPiece(piece)) this.#answer.cover(from, Format.CHAT, piece);
    // The end of the answer waits for its charge; its content does not.
    if (isFinish) this.#last.push({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
  }

  /** Reads a delta. Returns it as clients of this format can read it. */
  #readDelta(delta: JsonObject): JsonObject {
    this.#reasoning.read(delta);
    const { content, refusal } = delta;
    for (const part of readContent(content)) {
      if ("text" in part) this.#addText(part.text);
      else this.#reasoning.addPart(part.thought);
    }
    if (typeof refusal === "string" && refusal !== "") {
      this.#isRefused = true;
      this.#addText(refusal, true);
    }
    const annotations = readAnnotations(delta);
    if (annotations.length > 0) this.#answer.addNotes({ annotations }, Format.CHAT);
    for (const image of readImages(delta)) this.#answer.addBlock(image);
    const attached = attachedMembers(delta);
    if (attached) this.#attached = { ...this.#attached, ...attached };
    return this.#readCalls(delta);
  }

  #readCalls(delta: JsonObject): JsonObject {
    const calls = readToolCalls(delta);
    if (calls.length === 0) {
      if (isObject(delta.function_call))
        this.#calls.add({ index: 0, function: delta.function_call });
      return delta;
    }
    const read = calls.map((entry) => (this.#answer.isOver ? undefined : this.#calls.add(entry)));
    if (Array.isArray(delta.tool_calls) && read.every((entry, at) => entry === calls[at]))
      return delta;
    const kept = read.filter((entry) => entry !== undefined);
    const { tool_calls: _, ...others } = delta;
    return kept.length === 0 ? others : { ...others, tool_calls: kept };
  }

  #addText(text: string, isRefusal = false): void {
    if (text === "") return;
    // Blank text would close the block of the call, which could not continue after it.
    if (this.#calls.isCallIncomplete && text.trim() === "") return;
    this.#answer.addText(text, undefined, isRefusal);
  }

  #finish(): void {
    this.#calls.finish();
    if (this.#answer.isOver) return;
    const empty = this.#answer.hasContent ? undefined : failureOfEmpty(this.#finishReason);
    if (empty) {
      this.#failWith(empty, this.#usage);
      return;
    }
    // Clients parse the arguments, and an empty text is not JSON.
    const missing = this.#calls.withoutArguments.map((index) => ({
      index,
      function: { arguments: "{}" },
    }));
    const arguments_ = {
      choices: [{ index: 0, delta: { tool_calls: missing }, finish_reason: null }],
    };
    const last = missing.length > 0 ? [arguments_, ...this.#last] : this.#last;
    this.#answer.end(this.#stopReason(), this.#usage, {
      ...(this.#attached && { attached: this.#attached }),
      ...(this.#last.length > 0 && { format: Format.CHAT, last }),
    });
  }

  #stopReason(): string {
    const content = { toolCalls: this.#calls.any, refusal: this.#isRefused };
    return toStopReason(this.#finishReason ?? "stop", content);
  }

  #fail(message: string, type = "api_error"): void {
    this.#answer.fail(failure(type, message));
  }

  /** Ends the answer with `error`. Before its start, an answer has no usage. */
  #failWith(error: Event, usage: ReportedUsage | undefined): void {
    if (this.#isStarted && usage) this.#answer.report({ usage });
    this.#answer.fail(error);
  }
}

/** True for a piece that an encoder makes of the events in the same way. */
function isPlainPiece({ choices, ...others }: JsonObject): boolean {
  for (const _ in others) return false;
  const [choice] = Array.isArray(choices) ? choices : [];
  if (!isObject(choice) || !isObject(choice.delta) || !isPlainDelta(choice.delta)) return false;
  const { index, delta, finish_reason: reason, ...more } = choice;
  for (const _ in more) return false;
  return index === 0 && reason === null;
}

const incomplete = "The model provider's answer ended before it was complete.";

function parseChunk(data: string, hasSurrogates: boolean): JsonObject | undefined {
  try {
    const value = parseAnswerJson(data, hasSurrogates);
    // Google's endpoint reports an error in a list.
    const chunk = Array.isArray(value) && value.length === 1 ? value[0] : value;
    return isObject(chunk) ? chunk : undefined;
  } catch {
    return undefined;
  }
}

/** The usage of a chunk. Groq has it in a member of its own, Moonshot in the choice. */
function readUsage(chunk: JsonObject, choices: readonly JsonObject[]): ReportedUsage | undefined {
  const { usage, x_groq: groq } = chunk;
  const reported =
    decodeUsage(usage) ??
    decodeUsage(choices[0]?.usage) ??
    (isObject(groq) ? decodeUsage(groq.usage) : undefined);
  return withTier(reported, chunk);
}
