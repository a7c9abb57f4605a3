// Why an answer ended, in both vocabularies.

const finishReasons = new Map([
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
]);

/** Chat's `finish_reason`; every other way to end is a "stop" to chat clients. */
export function toFinishReason(stopReason: string | undefined): string {
  return finishReasons.get(stopReason ?? "") ?? "stop";
}

/**
 * The native stop reason. Whether tools were called decides over the provider's word where the two differ: some say "stop" after a
 * call that was demanded, and native clients run tools on "tool_use" only.
 */
export function toStopReason(finishReason: string, saw: { toolCalls: boolean; refusal: boolean }): string {
  switch (finishReason) {
    case "length":
      return "max_tokens";
    case "content_filter":
      return "refusal";
    default:
      if (saw.toolCalls) return "tool_use";
      return saw.refusal ? "refusal" : "end_turn";
  }
}
