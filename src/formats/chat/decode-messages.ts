// Chat messages → the turns of user and assistant in the canonical request, and its instruction.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  ContentForm,
  type Message,
  Role,
  type System,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";
import {
  checkArguments,
  isBlankText,
  joinInstructions,
  normaliseTurns,
  setForm,
} from "../turns.ts";
import {
  decodeContent,
  decodeFunctionCall,
  decodeReasoningDetails,
  decodeToolCall,
  toolResult,
} from "./decode-block.ts";
import { decodeCacheMark, invalid, markLast, objectAt, optionalArray, textAt } from "./fields.ts";

const roles = ["system", "developer", "user", "assistant", "tool", "function"];

/** The part of the conversation that is decoded. */
type Conversation = {
  /** The blocks of each instruction that is not blank. */
  instructions: Block[][];
  turns: Message[];
  /** Number of legacy function calls. They have no ids, so their number serves as one. */
  functionCalls: number;
  /** Path of the first user message without content. */
  blankUser?: string;
};

/**
 * The turns and the instruction of a request. Throws `invalid_request`, or `request_too_large` if
 * the arguments of its calls have too many items.
 */
export function decodeMessages(value: JsonValue | undefined): {
  messages: Message[];
  system: System | undefined;
} {
  const list = optionalArray(value, "messages");
  if (!list || list.length === 0)
    throw invalid("messages", "must be an array of at least one message");
  checkCalls(list);

  const conversation: Conversation = { instructions: [], turns: [], functionCalls: 0 };
  for (const [index, message] of list.entries()) {
    decodeMessage(conversation, objectAt(message, `messages[${index}]`), `messages[${index}]`);
  }

  const instructions = conversation.instructions.filter((blocks) => blocks.length > 0);
  const messages =
    conversation.turns.length === 0
      ? takeLastInstruction(instructions)
      : normaliseTurns(conversation.turns);
  if (
    conversation.blankUser !== undefined &&
    !messages.some((message) => message.role === Role.USER)
  ) {
    throw invalid(conversation.blankUser, "must not be blank");
  }
  if (messages.length === 0) throw invalid("messages", "must have a message with content");
  return { messages, system: joinInstructions(instructions.flat()) };
}

/**
 * The messages of a conversation that consists of instructions: the last one, which is removed from
 * `instructions`. None if there is no instruction.
 */
function takeLastInstruction(instructions: Block[][]): Message[] {
  const content = instructions.pop();
  if (!content) return [];
  const message = turn(Role.SYSTEM, content);
  setForm(message);
  return [message];
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

function decodeMessage(conversation: Conversation, message: JsonObject, at: string): void {
  const { instructions, turns } = conversation;
  switch (message.role) {
    case "system":
    case "developer":
      instructions.push(decodeInstruction(message, at));
      return;
    case "user": {
      const content = decodeUser(message, at);
      if (content.every(isBlankText)) conversation.blankUser ??= `${at}.content`;
      turns.push(turn(Role.USER, content));
      return;
    }
    case "assistant":
      turns.push(turn(Role.ASSISTANT, decodeAssistant(conversation, message, at)));
      return;
    case "tool": {
      const id = textAt(message.tool_call_id, `${at}.tool_call_id`);
      turns.push(turn(Role.USER, [decodeResult(message, at, id)]));
      return;
    }
    case "function": {
      if (conversation.functionCalls === 0)
        throw invalid(`${at}.role`, "no function was called before this message");
      turns.push(
        turn(Role.USER, [decodeResult(message, at, legacyId(conversation.functionCalls - 1))]),
      );
      return;
    }
    default:
      throw invalid(`${at}.role`, "is not a supported role", roles);
  }
}

function turn(role: Role, content: Block[]): Message {
  const form = ContentForm.UNSPECIFIED;
  return { $typeName: "gateway.inference.v1.Message", role, content, form };
}

function legacyId(count: number): string {
  return `call_fn_${count}`;
}

function decodeInstruction(message: JsonObject, at: string): Block[] {
  const content = decodeContent(message.content, `${at}.content`) ?? [];
  const other = content.findIndex((block) => block.kind.case !== "text");
  if (other >= 0) throw invalid(`${at}.content`, "an instruction may hold text only");
  return markLast(
    content.filter((block) => !isBlankText(block)),
    decodeCacheMark(message, at),
  );
}

function decodeUser(message: JsonObject, at: string): Block[] {
  const content = decodeContent(message.content, `${at}.content`);
  if (!content) throw invalid(`${at}.content`, "must be a string or an array of parts");
  if (content.length === 0 && Array.isArray(message.content) && message.content.length > 0) {
    throw invalid(`${at}.content`, "has no supported part (audio is not supported)");
  }
  return markLast(content, decodeCacheMark(message, at));
}

function decodeAssistant(conversation: Conversation, message: JsonObject, at: string): Block[] {
  const blocks = decodeReasoningDetails(message.reasoning_details, `${at}.reasoning_details`);
  for (const block of decodeContent(message.content, `${at}.content`) ?? []) blocks.push(block);
  for (const [index, call] of (
    optionalArray(message.tool_calls, `${at}.tool_calls`) ?? []
  ).entries()) {
    blocks.push(decodeToolCall(call, `${at}.tool_calls[${index}]`));
  }
  if (message.function_call !== undefined && message.function_call !== null) {
    blocks.push(
      decodeFunctionCall(
        message.function_call,
        `${at}.function_call`,
        legacyId(conversation.functionCalls),
      ),
    );
    conversation.functionCalls += 1;
  }
  return markLast(blocks, decodeCacheMark(message, at));
}

function decodeResult(message: JsonObject, at: string, id: string): Block {
  const block = toolResult({ id, content: message.content, at: `${at}.content` });
  return markLast([block], decodeCacheMark(message, at))[0] ?? block;
}
