// System entries in the middle of a conversation, for models and servers that do not take them, as
// most chat templates do not. Each becomes a text block at the end of the user message before it,
// never part of the top-level instruction, whose prefix the provider has cached.

import { create } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type Message,
  MessageSchema,
  Role,
} from "../../gen/gateway/inference/v1/content_pb.ts";

/** `messages` without system entries. Messages are read-only: those that change are copies. */
export function foldSystemEntries(messages: readonly Message[]): readonly Message[] {
  if (!messages.some((message) => message.role === Role.SYSTEM)) return messages;
  const folded: Message[] = [];
  let own: Message | undefined;
  for (const message of messages) {
    if (message.role !== Role.SYSTEM) {
      folded.push(message);
      continue;
    }
    const reminder = remind(message);
    if (!reminder) continue;
    const before = folded.at(-1);
    // Many entries in a row share one copy.
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
 * The text of an entry, marked as what it is. An entry of settings only has none; servers without
 * the role do not know them either.
 */
function remind(entry: Message): Block | undefined {
  const texts = entry.content.flatMap(({ kind }) =>
    kind.case === "text" && kind.value.text !== "" ? [kind.value.text] : [],
  );
  if (texts.length === 0) return undefined;
  const text = `<system-reminder>\n${texts.join("\n")}\n</system-reminder>`;
  const cacheControl = entry.content.findLast((block) => block.cacheControl)?.cacheControl;
  return create(BlockSchema, {
    kind: { case: "text", value: { text } },
    ...(cacheControl && { cacheControl }),
  });
}
