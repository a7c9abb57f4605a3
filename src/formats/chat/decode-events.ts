// A provider's chunks → events. The usage arrives after the finish reason, so the end of the answer
// waits for it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { EventDecoder } from "../codec.ts";
import { unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { type TextDeltas, type TextRun, TextRuns } from "../text-run.ts";
import { AnswerEvents } from "./answer-events.ts";
import { StreamedCalls } from "./tool-calls.ts";
import {
  decodeUsage,
  failureOfReason,
  isFirstChoice,
  readAnnotations,
  readContent,
  readDetails,
  readProviderError,
  readReasoning,
  readToolCalls,
  type Thought,
  toStopReason,
} from "./usage-and-endings.ts";

/**
 * Decodes the stream of one answer. An answer that is incomplete or malformed ends in a `failure`,
 * and nothing follows the end.
 */
export function createEventDecoder(acceptsRuns = false): EventDecoder {
  return new ChunkDecoder(acceptsRuns);
}

const textDeltas: TextDeltas = {
  mark: '"content"',
  firstForm: undefined,
  read(name, { error, object, usage, x_groq, choices }) {
    if (name === "error" || object === "error" || !hasNone([error, usage, x_groq])) return;
    const [choice] = Array.isArray(choices) && choices.length === 1 ? choices : [];
    if (!isObject(choice) || !isFirstChoice(choice) || !isObject(choice.delta)) return;
    const { role, content, ...others } = choice.delta;
    if (!hasNone([choice.finish_reason, choice.usage, ...Object.values(others)])) return;
    return typeof content === "string" ? { text: content, index: 0 } : undefined;
  },
};

/** True if none of the values has an effect on the answer. */
function hasNone(values: readonly (JsonValue | undefined)[]): boolean {
  return values.every((value) => value === undefined || value === null || value === "");
}

class ChunkDecoder implements EventDecoder {
  readonly #parser: ReturnType<typeof createSseParser>;
  readonly #answer = new AnswerEvents();
  readonly #calls = new StreamedCalls(this.#answer);
  #isStarted = false;
  #isRefused = false;
  #hasPlainReasoning = false;
  #finishReason: string | undefined;
  #usage: ReportedUsage | undefined;
  readonly #annotations: JsonObject[] = [];

  constructor(acceptsRuns: boolean) {
    this.#parser = createSseParser(acceptsRuns ? new TextRuns(textDeltas) : undefined);
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

  #readEvent({ event: name, data, run }: SseEvent): void {
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
    const chunk = parseChunk(data);
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
      this.#answer.start(typeof chunk.model === "string" ? chunk.model : "");
    }
    const wasFinished = this.#finishReason !== undefined;
    for (const choice of choices) if (!this.#answer.isOver) this.#readChoice(choice);
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

  #readChoice({ delta, message, finish_reason: reason }: JsonObject): void {
    if (isObject(delta)) this.#readDelta(delta);
    // A server that cannot stream sends the whole message; some repeat it at the end.
    else if (isObject(message) && !this.#answer.hasContent) this.#readDelta(message);
    // Some servers send an empty reason instead of null.
    if (typeof reason === "string" && reason !== "") this.#finishReason = reason;
  }

  #readDelta(delta: JsonObject): void {
    const reasoning = readReasoning(delta);
    if (reasoning !== "") {
      this.#hasPlainReasoning = true;
      this.#answer.addThinking(reasoning);
    }
    for (const detail of readDetails(delta)) this.#addDetail(detail);
    const { content, refusal } = delta;
    for (const part of readContent(content)) {
      if ("text" in part) this.#addText(part.text);
      else this.#addDetail(part.thought);
    }
    if (typeof refusal === "string" && refusal !== "") {
      this.#isRefused = true;
      this.#addText(refusal);
    }
    const calls = readToolCalls(delta);
    if (calls.length === 0 && isObject(delta.function_call))
      calls.push({ index: 0, function: delta.function_call });
    for (const entry of calls) if (!this.#answer.isOver) this.#calls.add(entry);
    this.#annotations.push(...readAnnotations(delta));
  }

  // Details repeat the plain reasoning, so beside it only their signatures count. A signature that
  // arrives after its thinking block has ended is dropped.
  #addDetail({ text, signature }: Thought): void {
    if (text !== "" && !this.#hasPlainReasoning) this.#answer.addThinking(text);
    if (signature === "" || (this.#hasPlainReasoning && !this.#answer.isThinking)) return;
    this.#answer.addSignature(signature);
  }

  #addText(text: string): void {
    if (text === "") return;
    // Blank text would close the block of the call, which could not continue after it.
    if (this.#calls.isCallIncomplete && text.trim() === "") return;
    this.#answer.addText(text);
  }

  #finish(): void {
    this.#calls.finish();
    if (this.#answer.isOver) return;
    const annotations = this.#annotations;
    this.#answer.end(
      this.#stopReason(),
      this.#usage,
      annotations.length > 0 ? { annotations } : undefined,
    );
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

const incomplete = "The model provider's answer ended before it was complete.";

function parseChunk(data: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(data);
    // Google's endpoint reports an error in a list.
    const chunk = Array.isArray(value) && value.length === 1 ? value[0] : value;
    return isObject(chunk) ? chunk : undefined;
  } catch {
    return undefined;
  }
}

/** The usage of a chunk. Groq has it in a member of its own, Moonshot in the choice. */
function readUsage(
  { usage, x_groq: groq }: JsonObject,
  choices: readonly JsonObject[],
): ReportedUsage | undefined {
  return (
    decodeUsage(usage) ??
    decodeUsage(choices[0]?.usage) ??
    (isObject(groq) ? decodeUsage(groq.usage) : undefined)
  );
}
