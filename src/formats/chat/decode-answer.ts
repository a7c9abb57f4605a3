// A provider's plain answer as the events of an answer whose blocks arrive whole.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
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
  readDetails,
  readProviderError,
  readReasoning,
  type Thought,
  toStopReason,
} from "./usage-and-endings.ts";

/** The events of a `chat.completion` body; one `failure` where the body is something else. */
export function decodeAnswer(body: JsonObject): Event[] {
  const error = readProviderError(body);
  if (error) return [error];
  const choice = Array.isArray(body.choices) ? body.choices[0] : undefined;
  if (!isObject(choice) || !isObject(choice.message)) {
    return [failure("api_error", "The model provider's answer is not a chat completion.")];
  }
  if (choice.finish_reason === "error")
    return [failure("api_error", "The model provider failed amid its answer.")];

  const events = [
    messageStart({ id: "", model: typeof body.model === "string" ? body.model : "" }),
  ];
  let index = 0;
  const { message } = choice;
  for (const { text, signature } of thoughtsOf(message)) {
    events.push(thinkingStart(index, text, signature), blockStop(index++));
  }
  const text = textOf(message);
  if (text !== "") events.push(textStart(index, text), blockStop(index++));
  const calls = readCalls(message);
  const ids = new CallIds();
  for (const call of calls) {
    const called = isObject(call.function) ? call.function : {};
    if (typeof called.name !== "string" || called.name === "") {
      return [failure("api_error", "The model provider sent a tool call without a name.")];
    }
    events.push(
      toolUseStart(index, ids.take(typeof call.id === "string" ? call.id : ""), called.name),
    );
    const callArguments = argumentsText(called.arguments);
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
 * One thought per detail, where the details tell the whole reasoning; else what the plain member
 * says.
 */
function thoughtsOf(message: JsonObject): Thought[] {
  const details = Array.isArray(message.reasoning_details)
    ? readDetails(message.reasoning_details)
    : [];
  const detailed = details.map((thought) => thought.text).join("");
  const plain = readReasoning(message);
  if (plain === "" || plain === detailed) return details;
  return [{ text: plain, signature: "" }];
}

function textOf({ content, refusal }: JsonObject): string {
  const text =
    typeof content === "string" ? content : Array.isArray(content) ? textsOf(content).join("") : "";
  return typeof refusal === "string" ? text + refusal : text;
}

function readCalls(message: JsonObject): JsonObject[] {
  if (Array.isArray(message.tool_calls) && message.tool_calls.length > 0)
    return message.tool_calls.filter(isObject);
  return isObject(message.function_call) ? [{ function: message.function_call }] : [];
}
