// A plan as events, in order, with the pauses of a model that speaks token by token.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type BlockDelta,
  BlockDeltaSchema,
  type Event,
  EventSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../base/ids.ts";
import type { Plan } from "./answer.ts";
import { splitTokens } from "./measure.ts";
import type { InputTokens } from "./prompt-cache.ts";
import type { PlannedBlock } from "./samples.ts";

/** One event and the pause before it. */
export type Step = { readonly event: Event; readonly pause: "none" | "firstToken" | "token" };

/** The events of a planned answer. */
export function* renderPlan(plan: Plan, model: string, input: InputTokens): Generator<Step> {
  const { directives } = plan;
  const inputUsage = {
    inputTokens: input.input,
    cacheCreationInputTokens: input.write5m + input.write1h,
    cacheReadInputTokens: input.read,
    cacheCreation: { ephemeral5mInputTokens: input.write5m, ephemeral1hInputTokens: input.write1h },
  };
  const usage = directives.noUsage ? {} : { usage: { ...inputUsage, outputTokens: 0 } };
  yield step(
    { case: "messageStart", value: { id: randomId("msg_"), model, ...usage } },
    "firstToken",
  );
  for (const name of directives.events ?? []) {
    yield step(
      name === "ping" ? { case: "ping", value: {} } : { case: "other", value: { type: name } },
    );
  }
  for (const [index, block] of plan.blocks.entries()) yield* renderBlock(block, index);

  const { stopReason, stopSequence, outputTokens, thinkingTokens } = plan;
  const refusal = {
    type: "refusal",
    category: null,
    explanation: "The simulated model was asked to refuse.",
  };
  yield step({
    case: "messageDelta",
    value: {
      stopReason,
      ...(stopSequence !== undefined && { stopSequence }),
      ...(stopReason === "refusal" && { deltaExtensions: { stop_details: refusal } }),
      ...(!directives.noUsage && {
        usage: { ...inputUsage, outputTokens, ...(thinkingTokens > 0 && { thinkingTokens }) },
      }),
    },
  });
  yield step({ case: "messageStop", value: {} });
}

function* renderBlock(block: PlannedBlock, index: number): Generator<Step> {
  switch (block.kind) {
    case "text":
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "text", value: { text: "" } } } },
      });
      for (const text of splitTokens(block.text))
        yield delta(index, { case: "text", value: text }, "token");
      break;
    case "thinking":
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "thinking", value: {} } } },
      });
      if (block.shown) {
        for (const text of splitTokens(block.thinking))
          yield delta(index, { case: "thinking", value: text }, "token");
      }
      yield delta(index, { case: "signature", value: block.signature });
      break;
    case "tool_use": {
      const value = { id: randomId("toolu_"), name: block.name, input: {} };
      yield step({
        case: "blockStart",
        value: { index, block: { kind: { case: "toolUse", value } } },
      });
      for (const text of splitTokens(block.input))
        yield delta(index, { case: "inputJson", value: text }, "token");
      break;
    }
    case "sample":
      yield step({ case: "blockStart", value: { index, block: block.start } });
      for (const kind of block.deltas) yield delta(index, kind);
      break;
  }
  yield step({ case: "blockStop", value: { index } });
}

function step(
  kind: NonNullable<MessageInitShape<typeof EventSchema>["kind"]>,
  pause: Step["pause"] = "none",
): Step {
  return { event: create(EventSchema, { kind }), pause };
}

function delta(index: number, kind: BlockDelta["kind"], pause: Step["pause"] = "none"): Step {
  return step({ case: "blockDelta", value: create(BlockDeltaSchema, { index, kind }) }, pause);
}
