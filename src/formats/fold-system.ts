// Replaces system messages inside a conversation, for models and servers that do not accept them,
// which includes most chat templates. Each becomes a text block at the end of the user message
// before it. It does not join the top-level instruction, because that would invalidate the prefix
// that the provider has cached.

import { create } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type Message,
  MessageSchema,
  Role,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { isOpenai } from "./codec.ts";

/**
 * True for a request of one of OpenAI's formats without a user or assistant message. Providers of
 * chat completions accept it as it is; for all others its last instruction is the user's message.
 */
export function hasOnlyInstructions({ sourceFormat, messages }: GenerateRequest): boolean {
  return isOpenai(sourceFormat) && messages.every(({ role }) => role === Role.SYSTEM);
}

/** `messages` without system messages. Changed messages are copies. */
export function foldSystemEntries(messages: readonly Message[]): readonly Message[] {
  if (!messages.some((message) => message.role === Role.SYSTEM)) return messages;
  const folded: Message[] = [];
  let own: Message | undefined;
  for (const message of messages) {
    if (message.role !== Role.SYSTEM) {
      folded.push(message);
      continue;
    }
    const reminder = toReminder(message);
    if (!reminder) continue;
    const before = folded.at(-1);
    // Several system messages in a row extend one copy, which keeps the cost linear.
    if (own !== undefined && before === own) {
      own.content.push(reminder);
    } else if (before?.role === Role.USER) {
      own = { ...before, content: [...before.content, reminder], form: ContentForm.UNSPECIFIED };
      folded[folded.length - 1] = own;
    } else {
      own = create(MessageSchema, { role: Role.USER, content: [reminder] });
      folded.push(own);
    }
  }
  return folded;
}

/**
 * The text of a system message, marked as a system reminder. Undefined for a message without text,
 * which only changes settings that such servers do not have.
 */
function toReminder(message: Message): Block | undefined {
  const texts = message.content.flatMap(({ kind }) =>
    kind.case === "text" && kind.value.text !== "" ? [kind.value.text] : [],
  );
  if (texts.length === 0) return undefined;
  const text = `<system-reminder>\n${texts.join("\n")}\n</system-reminder>`;
  const cacheControl = message.content.findLast((block) => block.cacheControl)?.cacheControl;
  return create(BlockSchema, {
    kind: { case: "text", value: { text } },
    ...(cacheControl && { cacheControl }),
  });
}
