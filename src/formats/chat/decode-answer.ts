// A provider's plain answer → events.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { unreadableAnswer } from "../codec.ts";
import {
  blockDelta,
  blockStop,
  failure,
  messageDelta,
  messageStart,
  messageStop,
  textStart,
  thinkingStart,
  toolUseStart,
} from "../events.ts";
import { isObject } from "../json.ts";
import { type CallFragment, CallIds, isEmptyFragment, readFragment } from "./tool-calls.ts";
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

/** The events of a `chat.completion` body; one `failure` if the body is not an answer. */
export function decodeAnswer(body: JsonObject): Event[] {
  const error = readProviderError(body);
  if (error) return [error];
  const choice = readChoice(body.choices);
  if (!choice)
    return [failure(unreadableAnswer, "The model provider's answer is not a chat completion.")];
  const { message, finishReason } = choice;
  const broken = failureOfReason(finishReason);
  if (broken) return [broken];

  const events = [
    messageStart({ id: "", model: typeof body.model === "string" ? body.model : "" }),
  ];
  let index = 0;
  for (const { text, signature } of readThoughts(message)) {
    events.push(thinkingStart(index, text, signature), blockStop(index++));
  }
  const text = readText(message);
  if (text !== "") events.push(textStart(index, text), blockStop(index++));
  const calls = readCalls(message);
  const ids = new CallIds();
  for (const { id: given, name, arguments: callArguments } of calls) {
    if (name === "")
      return [failure(unreadableAnswer, "The model provider sent a tool call without a name.")];
    events.push(toolUseStart(index, ids.assign(given), name));
    if (callArguments !== "")
      events.push(blockDelta(index, { case: "inputJson", value: callArguments }));
    events.push(blockStop(index++));
  }

  const refusal = typeof message.refusal === "string" && message.refusal !== "";
  const stopReason = toStopReason(finishReason, { toolCalls: calls.length > 0, refusal });
  const annotations = readAnnotations(message);
  events.push(
    messageDelta({
      stopReason,
      usage: decodeUsage(body.usage),
      ...(annotations.length > 0 && { extensions: { annotations } }),
    }),
    messageStop(),
  );
  return events;
}

/**
 * The message of the answer and its finish reason; undefined without a message. GitHub Copilot
 * sends the text and each call as choices of their own: their calls are joined.
 */
function readChoice(
  choices: JsonValue | undefined,
): { message: JsonObject; finishReason: string } | undefined {
  const own = (Array.isArray(choices) ? choices : []).filter(isObject).filter(isFirstChoice);
  const messages = own.map(({ message }) => message).filter(isObject);
  const [first] = messages;
  if (!first) return undefined;
  const calls = messages.flatMap(readToolCalls);
  const finishReasons = own.map(({ finish_reason: reason }) => reason);
  return {
    message: calls.length > 0 ? { ...first, tool_calls: calls } : first,
    finishReason: finishReasons.find((reason) => typeof reason === "string") ?? "stop",
  };
}

/**
 * One thought for each detail if the details have the whole reasoning; otherwise one thought with
 * the plain reasoning. Without either, the thoughts in the content.
 */
function readThoughts(message: JsonObject): Thought[] {
  const details = readDetails(message);
  const detailed = details.map((thought) => thought.text).join("");
  const plain = readReasoning(message);
  if (plain !== "" && plain !== detailed) return [{ text: plain, signature: "" }];
  if (details.length > 0) return details;
  return readContent(message.content).flatMap((part) => ("thought" in part ? [part.thought] : []));
}

function readText({ content, refusal }: JsonObject): string {
  const text = readContent(content)
    .map((part) => ("text" in part ? part.text : ""))
    .join("");
  return typeof refusal === "string" ? text + refusal : text;
}

/** The calls of the message. An entry in which all is empty stands for none. */
function readCalls(message: JsonObject): CallFragment[] {
  const calls = readToolCalls(message);
  if (calls.length === 0 && isObject(message.function_call))
    calls.push({ function: message.function_call });
  return calls.map(readFragment).filter((call) => !isEmptyFragment(call));
}
