// A provider's chunks become events. The usage comes after the end here, so the end is held until
// it is known.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { EventDecoder } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { AnswerEvents } from "./answer-events.ts";
import { textsOf } from "./fields.ts";
import { StreamedCalls } from "./tool-calls.ts";
import {
  decodeUsage,
  readDetails,
  readProviderError,
  readReasoning,
  type Thought,
  toStopReason,
} from "./usage-and-endings.ts";

/** Incremental decoder of a provider's stream. */
export function createEventDecoder(): EventDecoder {
  return new ChunkDecoder();
}

class ChunkDecoder implements EventDecoder {
  readonly #parser = createSseParser();
  readonly #answer = new AnswerEvents();
  readonly #calls = new StreamedCalls(this.#answer);
  #isStarted = false;
  #isRefused = false;
  #hasPlainReasoning = false;
  #finishReason: string | undefined;
  #usage: ReportedUsage | undefined;

  push(bytes: Uint8Array): Event[] {
    for (const event of this.#parser.push(bytes)) this.#readEvent(event);
    return this.#answer.take();
  }

  end(): Event[] {
    for (const event of this.#parser.end()) this.#readEvent(event);
    if (!this.#answer.isOver) {
      if (this.#finishReason !== undefined) this.#finish();
      else this.#fail(brokenOff);
    }
    return this.#answer.take();
  }

  #readEvent({ event: name, data }: SseEvent): void {
    if (this.#answer.isOver || data === "") return;
    if (data.startsWith("[DONE]")) {
      if (this.#isStarted) this.#finish();
      else this.#fail(brokenOff);
      return;
    }
    const chunk = parseChunk(data);
    if (chunk)
      this.#readChunk(name === "error" && chunk.error === undefined ? { error: chunk } : chunk);
    else this.#fail("The model provider sent an event that is not a JSON object.");
  }

  #readChunk(chunk: JsonObject): void {
    const error = readProviderError(chunk);
    if (error) {
      this.#answer.fail(error);
      return;
    }
    if (!this.#isStarted) {
      this.#isStarted = true;
      this.#answer.start(typeof chunk.model === "string" ? chunk.model : "");
    }
    const wasFinished = this.#finishReason !== undefined;
    const choice = Array.isArray(chunk.choices) ? chunk.choices.find(isFirstChoice) : undefined;
    if (isObject(choice)) {
      if (isObject(choice.delta)) this.#readDelta(choice.delta);
      // Some servers write an empty reason where others write null.
      const { finish_reason: reason } = choice;
      if (typeof reason === "string" && reason !== "") this.#finishReason = reason;
    }
    if (this.#answer.isOver) return;
    if (this.#finishReason === "error") {
      this.#fail("The model provider failed amid its answer.");
      return;
    }
    const reported = decodeUsage(chunk.usage);
    this.#usage = reported ?? this.#usage;
    // Servers that report with every chunk report once more after the last one.
    if (reported && wasFinished) this.#finish();
  }

  #readDelta(delta: JsonObject): void {
    const reasoning = readReasoning(delta);
    if (reasoning !== "") {
      this.#hasPlainReasoning = true;
      this.#answer.addThinking(reasoning);
    }
    if (Array.isArray(delta.reasoning_details)) {
      for (const detail of readDetails(delta.reasoning_details)) this.#addDetail(detail);
    }
    const { content, refusal } = delta;
    if (typeof content === "string") this.#addText(content);
    else if (Array.isArray(content)) for (const text of textsOf(content)) this.#addText(text);
    if (typeof refusal === "string" && refusal !== "") {
      this.#isRefused = true;
      this.#addText(refusal);
    }
    if (Array.isArray(delta.tool_calls)) {
      for (const entry of delta.tool_calls)
        if (isObject(entry) && !this.#answer.isOver) this.#calls.add(entry);
    } else if (isObject(delta.function_call)) {
      this.#calls.add({ index: 0, function: delta.function_call });
    }
  }

  // Details repeat what the plain member says, so that only their signatures count beside it. One
  // that comes after the block of its thought has ended belongs to nothing any more.
  #addDetail({ text, signature }: Thought): void {
    if (text !== "" && !this.#hasPlainReasoning) this.#answer.addThinking(text);
    if (signature === "" || (this.#hasPlainReasoning && !this.#answer.isThinking)) return;
    this.#answer.addSignature(signature);
  }

  #addText(text: string): void {
    if (text === "") return;
    // A blank says nothing, and a call could not go on after it.
    if (this.#calls.isAmidCall && text.trim() === "") return;
    this.#answer.addText(text);
  }

  #finish(): void {
    this.#calls.finish();
    if (this.#answer.isOver) return;
    const saw = { toolCalls: this.#calls.any, refusal: this.#isRefused };
    this.#answer.end(toStopReason(this.#finishReason ?? "stop", saw), this.#usage);
  }

  #fail(message: string): void {
    this.#answer.fail(failure("api_error", message));
  }
}

const brokenOff = "The model provider's answer ended before it was complete.";

function parseChunk(data: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(data);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isFirstChoice(choice: JsonValue): boolean {
  return (
    isObject(choice) && (choice.index === undefined || choice.index === null || choice.index === 0)
  );
}
