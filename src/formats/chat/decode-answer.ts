// A provider's plain answer → events.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { AnswerEvents } from "./answer-events.ts";
import { pieceOfChoice } from "./choice.ts";
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

/** The events of a `chat.completion` body; one `failure` if the body is not an answer. */
export function decodeAnswer(body: JsonObject, source?: AnswerSource): Event[] {
  const error = readProviderError(body);
  if (error) return [error];
  const given = readChoice(body.choices);
  if (!given)
    return [failure(unreadableAnswer, "The model provider's answer is not a chat completion.")];
  const reported = typeof given.finish_reason === "string" ? given.finish_reason : undefined;
  const reason = reported ?? "stop";
  const broken = failureOfReason(reason);
  if (broken) return [broken];

  const answer = new AnswerEvents(source);
  answer.start(typeof body.model === "string" ? body.model : "");
  const calls = new StreamedCalls(answer);
  const { message, ...choice } = given;
  const own = readMessage(message, answer, calls);
  calls.finish();
  if (answer.isOver) return answer.take().slice(-1);
  const empty = answer.hasContent ? undefined : failureOfEmpty(reported);
  if (empty) return [empty];
  // Of a stream, the reason comes with the end.
  const { finish_reason: last, ...begun } = choice;
  answer.cover(
    0,
    Format.CHAT,
    pieceOfChoice({ ...begun, message: own, finish_reason: null }, body),
  );
  const refusal = typeof message.refusal === "string" && message.refusal !== "";
  const attached = attachedMembers(message);
  answer.end(
    toStopReason(reason, { toolCalls: calls.any, refusal }),
    withTier(decodeUsage(body.usage), body),
    {
      ...(attached && { attached }),
      ...(typeof last === "string" && {
        format: Format.CHAT,
        last: [{ choices: [{ index: 0, delta: {}, finish_reason: last }] }],
      }),
    },
  );
  return answer.take();
}

/** Reads a message. Returns it as clients of this format can read it. */
function readMessage(message: JsonObject, answer: AnswerEvents, calls: StreamedCalls): JsonObject {
  const reasoning = new ReasoningReader(answer);
  reasoning.read(message);
  answer.closeText();
  for (const part of readContent(message.content))
    if ("text" in part) answer.addText(part.text);
    else reasoning.addPart(part.thought);
  const { refusal } = message;
  if (typeof refusal === "string" && refusal !== "") answer.addText(refusal, undefined, true);
  const annotations = readAnnotations(message);
  if (annotations.length > 0) answer.addNotes({ annotations }, Format.CHAT);
  for (const image of readImages(message)) answer.addBlock(image);
  const entries = readToolCalls(message);
  if (entries.length === 0) {
    if (isObject(message.function_call)) calls.add({ index: 0, function: message.function_call });
    return message;
  }
  const read = entries.map((entry, index) => readCall(entry, index, calls));
  if (Array.isArray(message.tool_calls) && read.every((entry, at) => entry === entries[at]))
    return message;
  const { tool_calls: _, ...others } = message;
  const kept = read.filter((entry) => entry !== undefined);
  return kept.length === 0 ? others : { ...others, tool_calls: kept };
}

/** Adds a whole call. Returns it as clients can read it; undefined if it says nothing. */
function readCall(entry: JsonObject, index: number, calls: StreamedCalls): JsonObject | undefined {
  const numbered = { ...entry, index };
  const added = calls.add(numbered);
  if (added === undefined) return undefined;
  const { function: called } = added;
  const text = isObject(called) && typeof called.arguments === "string" ? called.arguments : "";
  // Clients parse the arguments, and an empty text is not JSON.
  if (added === numbered && text.trim() !== "") return entry;
  const { index: _, ...members } = added;
  if (text.trim() !== "" || !isObject(called)) return members;
  return { ...members, function: { ...called, arguments: "{}" } };
}

function isFiltered({ finish_reason: reason }: JsonObject): boolean {
  return typeof reason === "string" && reason.toLowerCase().startsWith("content_filter");
}

/**
 * The choice of the answer; undefined without a message. GitHub Copilot sends the text and each
 * call as choices of their own: their calls are joined.
 */
function readChoice(
  choices: JsonValue | undefined,
): (JsonObject & { message: JsonObject }) | undefined {
  const own = (Array.isArray(choices) ? choices : []).filter(isObject).filter(isFirstChoice);
  const first = own.find(({ message }) => isObject(message)) ?? own.find(isFiltered);
  if (!first) return undefined;
  // Azure answers a filtered prompt with a reason and no message.
  if (!isObject(first.message)) return { ...first, message: {} };
  if (own.length === 1) return { ...first, message: first.message };
  const messages = own.map(({ message }) => message).filter(isObject);
  const calls = messages.flatMap(readToolCalls);
  const reasons = own.map(({ finish_reason: reason }) => reason);
  const reason = reasons.find((one) => typeof one === "string");
  return {
    ...first,
    message: calls.length > 0 ? { ...first.message, tool_calls: calls } : first.message,
    ...(reason !== undefined && { finish_reason: reason }),
  };
}
