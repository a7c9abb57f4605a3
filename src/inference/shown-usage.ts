// What a client is shown as usage is what it is charged for, also where we had to count.

import { create } from "@bufbuild/protobuf";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { type Event, EventSchema, MessageDeltaSchema, ReportedUsageSchema } from "../../gen/gateway/inference/v1/event_pb.ts";

/** The end of an answer, with the charged usage in place of what the provider left out. */
export function showCharged(end: readonly Event[], usage: Usage): Event[] {
  return end.map((event) => {
    if (event.kind.case !== "messageDelta") return event;
    const { usage: reported, ...delta } = event.kind.value;
    const cacheWrite = usage.cacheWrite5m + usage.cacheWrite1h;
    const shown = create(ReportedUsageSchema, {
      ...reported,
      inputTokens: usage.input,
      outputTokens: usage.output + usage.thinking,
      ...(cacheWrite > 0 && { cacheCreationInputTokens: cacheWrite }),
      ...(usage.cacheRead > 0 && { cacheReadInputTokens: usage.cacheRead }),
      ...(usage.thinking > 0 && { thinkingTokens: usage.thinking }),
    });
    // The provider's own bytes say something else.
    return create(EventSchema, {
      kind: { case: "messageDelta", value: create(MessageDeltaSchema, { ...delta, usage: shown }) },
    });
  });
}
