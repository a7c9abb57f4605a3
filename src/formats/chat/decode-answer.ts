// A provider's plain answer → events.

import type { JsonObject } from "@bufbuild/protobuf";
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
import { textsOf } from "./fields.ts";
import { argumentsText, CallIds } from "./tool-calls.ts";
import {
  decodeUsage,
  failedDuringAnswer,
  readDetails,
  readProviderError,
  readReasoning,
  type Thought,
  toStopReason,
} from "./usage-and-endings.ts";

/** The events of a `chat.completion` body; one `failure` if the body is not an answer. */
export function decodeAnswer(body: JsonObject): Event[] {
  const error = readProviderError(body);
  if (error) return [error];
  const choice = Array.isArray(body.choices) ? body.choices[0] : undefined;
  if (!isObject(choice) || !isObject(choice.message)) {
    return [failure(unreadableAnswer, "The model provider's answer is not a chat completion.")];
  }
  if (choice.finish_reason === "error") return [failure("api_error", failedDuringAnswer)];

  const events = [
    messageStart({ id: "", model: typeof body.model === "string" ? body.model : "" }),
  ];
  let index = 0;
  const { message } = choice;
  for (const { text, signature } of readThoughts(message)) {
    events.push(thinkingStart(index, text, signature), blockStop(index++));
  }
  const text = readText(message);
  if (text !== "") events.push(textStart(index, text), blockStop(index++));
  const calls = readCalls(message);
  const ids = new CallIds();
  for (const call of calls) {
    const { name, arguments: given } = isObject(call.function) ? call.function : {};
    if (typeof name !== "string" || name === "") {
      return [failure(unreadableAnswer, "The model provider sent a tool call without a name.")];
    }
    const id = ids.assign(typeof call.id === "string" ? call.id : "");
    events.push(toolUseStart(index, id, name));
    const callArguments = argumentsText(given);
    if (callArguments !== "")
      events.push(blockDelta(index, { case: "inputJson", value: callArguments }));
    events.push(blockStop(index++));
  }

  const finishReason = typeof choice.finish_reason === "string" ? choice.finish_reason : "stop";
  const refusal = typeof message.refusal === "string" && message.refusal !== "";
  const stopReason = toStopReason(finishReason, { toolCalls: calls.length > 0, refusal });
  events.push(messageDelta({ stopReason, usage: decodeUsage(body.usage) }), messageStop());
  return events;
}

/**
 * One thought for each detail if the details have the whole reasoning; otherwise one thought with
 * the plain reasoning.
 */
function readThoughts(message: JsonObject): Thought[] {
  const details = Array.isArray(message.reasoning_details)
    ? readDetails(message.reasoning_details)
    : [];
  const detailed = details.map((thought) => thought.text).join("");
  const plain = readReasoning(message);
  if (plain === "" || plain === detailed) return details;
  return [{ text: plain, signature: "" }];
}

function readText({ content, refusal }: JsonObject): string {
  const text =
    typeof content === "string" ? content : Array.isArray(content) ? textsOf(content).join("") : "";
  return typeof refusal === "string" ? text + refusal : text;
}

function readCalls(message: JsonObject): JsonObject[] {
  if (Array.isArray(message.tool_calls) && message.tool_calls.length > 0)
    return message.tool_calls.filter(isObject);
  return isObject(message.function_call) ? [{ function: message.function_call }] : [];
}
