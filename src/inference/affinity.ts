// Tells the conversations of a key apart, so that each meets the same provider's prompt cache again.

import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

/** The same text for every call of a conversation of a key, whichever method it calls. `request.model` is a catalogue id. */
export function affinityOf(keyId: string, request: GenerateRequest): string {
  return `${keyId}/${request.model}/${conversationStart(request)}`;
}

// Enough of a conversation's beginning to tell it from others.
function conversationStart({ messages, system }: GenerateRequest): string {
  const instruction = system?.content.find((block) => !textOf(block).startsWith(attribution));
  const first = messages[0]?.content[0];
  return [instruction, first].map((block) => textOf(block).slice(0, 256)).join("/");
}

/** The first line of the coding assistant's instructions, which differs from call to call of one conversation. */
const attribution = "x-anthropic-billing-header:";

function textOf(block: Block | undefined): string {
  return block?.kind.case === "text" ? block.kind.value.text : "";
}
