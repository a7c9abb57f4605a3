// Chat messages → messages of the canonical request, one for each. Nothing is merged, moved or left
// out: `turns.ts` fits them for providers of other formats.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  ContentForm,
  type Message,
  Role,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";
import type { Carried } from "../packs.ts";
import { checkArguments, isBlankText } from "../turns.ts";
import {
  type DecodedContent,
  decodeContent,
  decodeFunctionCall,
  decodeReasoning,
  decodeToolCall,
  toolResult,
} from "./decode-block.ts";
import { decodeCacheMark, invalid, markLast, objectAt, optionalArray, textAt } from "./fields.ts";

const roles = ["system", "developer", "user", "assistant", "tool", "function"];

/** What is known of the conversation while it is decoded. */
type Conversation = {
  readonly carried: Carried;
  /** Number of legacy function calls. They have no ids, so their number serves as one. */
  functionCalls: number;
};

/**
 * The messages of a request. Throws `invalid_request`, also if none has content, or
 * `request_too_large` if the arguments of its calls have too many items.
 */
export function decodeMessages(value: JsonValue | undefined, carried: Carried): Message[] {
  const list = optionalArray(value, "messages");
  if (!list || list.length === 0)
    throw invalid("messages", "must be an array of at least one message");
  checkCalls(list);
  const conversation: Conversation = { carried, functionCalls: 0 };
  const messages = list.map((message, index) => {
    const at = `messages[${index}]`;
    return decodeMessage(conversation, objectAt(message, at), at);
  });
  checkContent(messages);
  return messages;
}

// A blank message reaches a provider as it is, beside others.
function checkContent(messages: readonly Message[]): void {
  const hasContent = ({ content }: Message) => content.some((block) => !isBlankText(block));
  const isUser = ({ role }: Message) => role === Role.USER;
  const first = messages.findIndex(isUser);
  if (first >= 0 && !messages.some((message) => isUser(message) && hasContent(message)))
    throw invalid(`messages[${first}].content`, "must not be blank");
  if (!messages.some(hasContent)) throw invalid("messages", "must have a message with content");
}

function checkCalls(list: readonly JsonValue[]): void {
  const texts: string[] = [];
  const add = (called: JsonValue | undefined) => {
    if (isObject(called) && typeof called.arguments === "string") texts.push(called.arguments);
  };
  for (const message of list) {
    if (!isObject(message)) continue;
    if (Array.isArray(message.tool_calls))
      for (const call of message.tool_calls) if (isObject(call)) add(call.function);
    add(message.function_call);
  }
  checkArguments(texts);
}

function decodeMessage(conversation: Conversation, message: JsonObject, at: string): Message {
  const { carried } = conversation;
  const content = decodeContent(message.content, `${at}.content`, carried);
  switch (message.role) {
    case "system":
    case "developer":
      if (content.blocks.some(({ kind }) => kind.case !== "text"))
        throw invalid(`${at}.content`, "an instruction may hold text only");
      return messageOf(Role.SYSTEM, content.blocks, message, content, at);
    case "user":
      if (content.form === ContentForm.ABSENT)
        throw invalid(`${at}.content`, "must be a string or an array of parts");
      return messageOf(Role.USER, content.blocks, message, content, at);
    case "assistant": {
      const blocks = decodeAssistant(conversation, message, content, at);
      return messageOf(Role.ASSISTANT, blocks, message, content, at);
    }
    case "tool": {
      const id = textAt(message.tool_call_id, `${at}.tool_call_id`);
      return resultOf(id, message, content, at);
    }
    case "function": {
      if (conversation.functionCalls === 0)
        throw invalid(`${at}.role`, "no function was called before this message");
      return resultOf(legacyId(conversation.functionCalls - 1), message, content, at);
    }
    default:
      throw invalid(`${at}.role`, "is not a supported role", roles);
  }
}

/** Roles that a message has without a source. */
const plainRoles = new Map<Role, string>([
  [Role.SYSTEM, "system"],
  [Role.USER, "user"],
  [Role.ASSISTANT, "assistant"],
]);

function messageOf(
  role: Role,
  blocks: Block[],
  message: JsonObject,
  { form, isExact }: DecodedContent,
  at: string,
): Message {
  const { content, ...around } = message;
  const isPlain = isExact && around.role === plainRoles.get(role) && !hasMore(around);
  const decoded: Message = {
    $typeName: "gateway.inference.v1.Message",
    role,
    content: markLast(blocks, decodeCacheMark(message, at)),
    form,
  };
  if (!isPlain) decoded.source = isExact ? around : message;
  return decoded;
}

function resultOf(id: string, message: JsonObject, content: DecodedContent, at: string): Message {
  const decoded = messageOf(Role.USER, [toolResult(id, content)], message, content, at);
  decoded.form = ContentForm.UNSPECIFIED;
  return decoded;
}

/** True if the message has more members than its role. */
function hasMore(around: JsonObject): boolean {
  let members = 0;
  for (const _ in around) members++;
  return members > 1;
}

function legacyId(count: number): string {
  return `call_fn_${count}`;
}

function decodeAssistant(
  conversation: Conversation,
  message: JsonObject,
  content: DecodedContent,
  at: string,
): Block[] {
  const { tool_calls, function_call, refusal } = message;
  const blocks = decodeReasoning(message, at, conversation.carried);
  // Not a spread: a message may have more parts than a call may have arguments.
  for (const block of content.blocks) blocks.push(block);
  if (typeof refusal === "string" && content.form === ContentForm.ABSENT)
    blocks.push(...decodeContent(refusal, at, conversation.carried).blocks);
  const known = new Set(blocks.map(callIdOf));
  for (const [index, call] of (optionalArray(tool_calls, `${at}.tool_calls`) ?? []).entries()) {
    const block = decodeToolCall(call, `${at}.tool_calls[${index}]`);
    // Some editors send a call as a part, and once more in this list.
    if (!known.has(callIdOf(block))) blocks.push(block);
  }
  if (function_call !== undefined && function_call !== null) {
    const id = legacyId(conversation.functionCalls);
    blocks.push(decodeFunctionCall(function_call, `${at}.function_call`, id));
    conversation.functionCalls += 1;
  }
  return blocks;
}

function callIdOf({ kind }: Block): string {
  return kind.case === "toolUse" ? kind.value.id : "";
}
