// A provider's event stream → events.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, type EventDecoder, unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject, parseAnswerJson } from "../json.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { OutputReader, readResponseError } from "./read-output.ts";

/**
 * Decodes the stream of one answer. An answer that is incomplete or malformed ends in a `failure`,
 * and nothing follows the end. There are no runs: each event has its own number.
 */
export function createEventDecoder(_acceptsRuns = false, source?: AnswerSource): EventDecoder {
  return new ResponseDecoder(source);
}

class ResponseDecoder implements EventDecoder {
  readonly #parser = createSseParser();
  readonly #output: OutputReader;

  constructor(source: AnswerSource | undefined) {
    this.#output = new OutputReader(source);
  }

  push(bytes: Uint8Array): Event[] {
    for (const event of this.#parser.push(bytes)) this.#readEvent(event);
    return this.#output.take();
  }

  end(): Event[] {
    for (const event of this.#parser.end()) this.#readEvent(event);
    if (!this.#output.isOver)
      this.#fail("The model provider's answer ended before it was complete.");
    return this.#output.take();
  }

  #readEvent({ event: name, data, hasSurrogates }: SseEvent): void {
    if (this.#output.isOver || data === "" || data.startsWith("[DONE]")) return;
    const event = parseObject(data, hasSurrogates === true);
    if (!event) {
      this.#fail("The model provider sent an event that is not a JSON object.", unreadableAnswer);
      return;
    }
    const type = typeof event.type === "string" ? event.type : name;
    const isWhole = event.type === type && !data.includes("\n") && !hasSurrogates;
    const typed = event.type === type ? event : { ...event, type };
    this.#output.readPiece(typed, isWhole ? data : undefined, () => this.#read(type, typed));
  }

  #read(type: string, event: JsonObject): void {
    const output = this.#output;
    const index = typeof event.output_index === "number" ? event.output_index : 0;
    const { delta } = event;
    if (type.endsWith(".delta"))
      this.#readDelta(type, index, typeof delta === "string" ? delta : "");
    switch (type) {
      case "response.created":
        output.accept(objectOf(event.response));
        return;
      case "response.output_item.added":
        if (isObject(event.item)) output.open(index, event.item);
        return;
      case "response.content_part.added":
        output.openPart(index, partOf(event.content_index));
        return;
      case "response.reasoning_summary_part.added":
        output.openPart(index, partOf(event.summary_index));
        return;
      case "response.output_item.done":
        if (isObject(event.item)) output.close(index, event.item);
        return;
      case "response.completed":
      case "response.incomplete":
      case "response.failed":
        this.#finish(type, event);
        return;
      case "error":
        output.fail(
          readResponseError(isObject(event.error) ? event : { error: event }) ??
            failure("api_error", "The model provider failed during its answer."),
        );
    }
  }

  #readDelta(type: string, index: number, text: string): void {
    const output = this.#output;
    switch (type) {
      case "response.output_text.delta":
        output.text(index, text);
        return;
      case "response.function_call_arguments.delta":
      case "response.custom_tool_call_input.delta":
        output.arguments(index, text);
        return;
      case "response.reasoning_summary_text.delta":
        output.thinking(index, "summary", text);
        return;
      case "response.reasoning_text.delta":
        output.thinking(index, "content", text);
        return;
      case "response.refusal.delta":
        output.text(index, text, true);
    }
  }

  #finish(type: string, event: JsonObject): void {
    const status = type.slice("response.".length);
    this.#output.finish({ ...objectOf(event.response), status }, event);
  }

  #fail(message: string, type = "api_error"): void {
    this.#output.fail(failure(type, message));
  }
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}

function partOf(index: JsonValue | undefined): number {
  return typeof index === "number" ? index : 0;
}

function parseObject(data: string, hasSurrogates: boolean): JsonObject | undefined {
  try {
    const value = parseAnswerJson(data, hasSurrogates);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
