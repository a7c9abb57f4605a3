// How a response begins and ends: what stands in every response that the gateway writes.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import { encodeUsage as encodeChatUsage } from "../chat/usage-and-endings.ts";
import type { AnswerContext } from "../codec.ts";
import { isObject } from "../json.ts";
import type { Wishes } from "./decode-request.ts";

/** The values of an answer that come from the gateway and from the request. */
export type ResponseContext = AnswerContext & {
  readonly createdAtMs: number;
  readonly wishes: Wishes;
};

/** How a response ends. */
export type Ending = { readonly status: string; readonly members: JsonObject };

/** The first members of a response. */
export function headOf({ createdAtMs, model }: ResponseContext): JsonObject {
  return {
    id: randomId("resp_"),
    object: "response",
    created_at: Math.floor(createdAtMs / 1000),
    model,
  };
}

/** The status of a response, with its usage. */
export function endingOf(
  stopReason: string | undefined,
  usage: ReportedUsage | undefined,
  estimatedInputTokens: number,
): Ending {
  const shown = encodeUsage(usage, estimatedInputTokens);
  const reason = incompleteReasons.get(stopReason ?? "");
  if (reason === undefined) return { status: "completed", members: { usage: shown } };
  return { status: "incomplete", members: { usage: shown, incomplete_details: { reason } } };
}

const incompleteReasons = new Map([
  ["max_tokens", "max_output_tokens"],
  ["model_context_window_exceeded", "max_output_tokens"],
  ["refusal", "content_filter"],
]);

function encodeUsage(usage: ReportedUsage | undefined, estimatedInputTokens: number): JsonObject {
  const chat = encodeChatUsage(usage, estimatedInputTokens);
  const { cached_tokens = 0, cache_write_tokens = 0 } = membersOf(chat.prompt_tokens_details);
  const { reasoning_tokens = 0 } = membersOf(chat.completion_tokens_details);
  return {
    input_tokens: chat.prompt_tokens ?? 0,
    input_tokens_details: { cached_tokens, cache_write_tokens },
    output_tokens: chat.completion_tokens ?? 0,
    output_tokens_details: { reasoning_tokens },
    total_tokens: chat.total_tokens ?? 0,
  };
}

function membersOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}
