// A provider's chunks → events. The usage arrives after the finish reason, so the end of the answer
// waits for it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { EventDecoder } from "../codec.ts";
import { unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { AnswerEvents } from "./answer-events.ts";
import { textsOf } from "./fields.ts";
import { StreamedCalls } from "./tool-calls.ts";
import {
  decodeUsage,
  failedDuringAnswer,
  readDetails,
  readProviderError,
  readReasoning,
  type Thought,
  toStopReason,
} from "./usage-and-endings.ts";

/**
 * Decodes the stream of one answer. An answer that is incomplete or malformed ends in a `failure`,
 * and nothing follows the end.
 */
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
      else this.#fail(incomplete);
    }
    return this.#answer.take();
  }

  #readEvent({ event: name, data }: SseEvent): void {
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
      // Some servers send an empty reason instead of null.
      const { finish_reason: reason } = choice;
      if (typeof reason === "string" && reason !== "") this.#finishReason = reason;
    }
    if (this.#answer.isOver) return;
    if (this.#finishReason === "error") {
      this.#fail(failedDuringAnswer);
      return;
    }
    const reported = decodeUsage(chunk.usage);
    this.#usage = reported ?? this.#usage;
    // Some servers send usage with every chunk; the final one follows the finish reason.
    if (reported && wasFinished) this.#finish();
    else if (this.#finishReason !== undefined && !wasFinished)
      this.#answer.report({ stopReason: this.#stopReason(), ...(reported && { usage: reported }) });
    else if (reported) this.#answer.report({ usage: reported });
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
    this.#answer.end(this.#stopReason(), this.#usage);
  }

  #stopReason(): string {
    const content = { toolCalls: this.#calls.any, refusal: this.#isRefused };
    return toStopReason(this.#finishReason ?? "stop", content);
  }

  #fail(message: string, type = "api_error"): void {
    this.#answer.fail(failure(type, message));
  }
}

const incomplete = "The model provider's answer ended before it was complete.";

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
