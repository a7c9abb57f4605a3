// The items of a request → the turns of user and assistant in the canonical request, and its
// instruction.
//
// Turns of one role are merged, as the native format requires. The extension `begins` of a block
// marks where an item began, so that a provider of this format gets the items as they were.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type Message,
  MessageSchema,
  Role,
  type System,
  SystemSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  decodeFile,
  decodeImageUrl,
  parseArguments,
  toolId,
  toolUse,
} from "../chat/decode-block.ts";
import { invalid, objectAt, optionalText, textAt } from "../chat/fields.ts";
import { isObject } from "../json.ts";
import { checkArguments, isBlankText, normaliseTurns, textBlock } from "../turns.ts";
import { type OpenContent, readSealedText } from "./sealed.ts";
import { flatName } from "./tool-names.ts";

const itemTypes = [
  "message",
  "reasoning",
  "function_call",
  "function_call_output",
  "custom_tool_call",
  "custom_tool_call_output",
];
const roles = ["system", "developer", "user", "assistant"];
const partTypes = ["input_text", "output_text", "input_image", "input_file", "refusal"];

/** The part of the conversation that is decoded. */
type Conversation = {
  readonly open: OpenContent;
  readonly instructions: Block[];
  readonly turns: Message[];
  /** Ids of the calls without a result. */
  readonly openCalls: Set<string>;
  /** Instructions that wait for the results of the open calls, which must follow the calls. */
  waiting: Message[];
};

/**
 * The turns and the instruction of a request. Throws `invalid_request`, or `request_too_large` if
 * the arguments of its calls have too many items.
 */
export function decodeItems(
  body: JsonObject,
  open: OpenContent,
): { messages: Message[]; system: System | undefined } {
  const { input } = body;
  const conversation: Conversation = {
    open,
    instructions: [],
    turns: [],
    openCalls: new Set(),
    waiting: [],
  };
  const { instructions, turns } = conversation;
  const instruction = optionalText(body.instructions, "instructions") ?? "";
  if (instruction.trim() !== "") instructions.push(begin("instructions", [textBlock(instruction)]));
  if (typeof input === "string") {
    if (input.trim() === "") throw invalid("input", "must not be blank");
    turns.push(turn(Role.USER, [begin("message", [textBlock(input)])]));
  } else {
    if (!Array.isArray(input) || input.length === 0)
      throw invalid("input", "must be a string or an array of at least one item");
    checkArguments(
      input.flatMap((item) =>
        isObject(item) && typeof item.arguments === "string" ? [item.arguments] : [],
      ),
    );
    for (const [index, item] of input.entries()) {
      const at = `input[${index}]`;
      decodeItem(conversation, objectAt(item, at), at);
      if (conversation.openCalls.size === 0) endWaiting(conversation);
    }
    endWaiting(conversation);
  }

  const messages = normaliseTurns(turns);
  // Of instructions alone, the last one is the message.
  const last = messages.length === 0 ? instructions.pop() : undefined;
  if (last) messages.push(turn(Role.SYSTEM, [last], ContentForm.TEXT));
  if (messages.length === 0) throw invalid("input", "must have an item with content");
  return { messages, system: joinInstructions(instructions) };
}

function joinInstructions(blocks: readonly Block[]): System | undefined {
  if (blocks.length === 0) return undefined;
  const form = blocks.length === 1 ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
  return create(SystemSchema, { content: [...blocks], form });
}

function endWaiting(conversation: Conversation): void {
  conversation.turns.push(...conversation.waiting);
  conversation.waiting = [];
}

function decodeItem(conversation: Conversation, item: JsonObject, at: string): void {
  const { turns, openCalls } = conversation;
  switch (item.type ?? "message") {
    case "message":
      decodeMessage(conversation, item, at);
      return;
    case "reasoning": {
      const block = decodeReasoning(conversation, item, at);
      if (block) turns.push(turn(Role.ASSISTANT, [block]));
      return;
    }
    case "function_call": {
      const input = parseArguments(item.arguments);
      const call = decodeCall(item, at, input);
      openCalls.add(callIdOf(call));
      turns.push(turn(Role.ASSISTANT, [call]));
      return;
    }
    case "custom_tool_call": {
      const call = decodeCall(item, at, { input: textAt(item.input, `${at}.input`) });
      openCalls.add(callIdOf(call));
      turns.push(turn(Role.ASSISTANT, [mark(call, "custom_tool_call")]));
      return;
    }
    case "function_call_output":
    case "custom_tool_call_output": {
      const result = decodeResult(item, at);
      openCalls.delete(callIdOf(result));
      if (item.type === "custom_tool_call_output") mark(result, item.type);
      turns.push(turn(Role.USER, [result]));
      return;
    }
    case "item_reference":
      throw invalid(
        `${at}.type`,
        "refers to a stored item, and nothing is stored here: send the item itself (store: false)",
      );
    default:
      throw invalid(`${at}.type`, "is not a supported item", itemTypes);
  }
}

function decodeMessage(conversation: Conversation, item: JsonObject, at: string): void {
  const { instructions, turns, openCalls } = conversation;
  const content = decodeContent(item.content, `${at}.content`);
  switch (item.role) {
    case "user":
      turns.push(turn(Role.USER, begun("message", content)));
      return;
    case "assistant": {
      const phase = optionalText(item.phase, `${at}.phase`);
      for (const { kind } of content)
        if (kind.case === "text" && phase !== undefined) kind.value.phase = phase;
      turns.push(turn(Role.ASSISTANT, begun("message", content)));
      return;
    }
    case "system":
    case "developer": {
      if (content.some(({ kind }) => kind.case !== "text"))
        throw invalid(`${at}.content`, "an instruction may hold text only");
      const texts = content.filter((block) => !isBlankText(block));
      if (texts.length === 0) return;
      const blocks = begun(item.role, texts);
      // Later ones stay in their place: the provider has cached what is before them.
      if (turns.length === 0) instructions.push(...blocks);
      else (openCalls.size > 0 ? conversation.waiting : turns).push(turn(Role.SYSTEM, blocks));
      return;
    }
    default:
      throw invalid(`${at}.role`, "is not a supported role", roles);
  }
}

function decodeContent(content: JsonValue | undefined, at: string): Block[] {
  if (typeof content === "string") return [textBlock(content)];
  if (!Array.isArray(content)) throw invalid(at, "must be a string or an array of parts");
  return content.map((part, index) => {
    const path = `${at}[${index}]`;
    return decodePart(objectAt(part, path), path);
  });
}

function decodePart(part: JsonObject, at: string): Block {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "text":
      return textBlock(textAt(part.text, `${at}.text`));
    case "refusal":
      return textBlock(textAt(part.refusal, `${at}.refusal`));
    case "input_image":
      if (typeof part.file_id === "string") throw noFiles(at);
      return decodeImage(part, at);
    case "input_file":
      if (typeof part.file_id === "string") throw noFiles(at);
      return decodeInputFile(part, at);
    default:
      throw invalid(`${at}.type`, "is not a supported type of part", partTypes);
  }
}

function decodeImage({ image_url: url, detail }: JsonObject, at: string): Block {
  const image = decodeImageUrl(textAt(url, `${at}.image_url`), `${at}.image_url`);
  if (typeof detail === "string") image.extensions = { detail };
  return image;
}

function noFiles(at: string): Error {
  return invalid(`${at}.file_id`, "there is no file store here; send the content itself");
}

function decodeInputFile(part: JsonObject, at: string): Block {
  if (typeof part.file_data === "string") return decodeFile(part, at);
  const url = textAt(part.file_url, `${at}.file_url`);
  if (!/^https?:\/\//i.test(url)) throw invalid(`${at}.file_url`, "must be an http or https URL");
  const title = optionalText(part.filename, `${at}.filename`);
  const source = { kind: { case: "url", value: url } } as const;
  return create(BlockSchema, { kind: { case: "document", value: { source, title } } });
}

/** The signed thinking of a reasoning item. Without it a provider takes no thinking back. */
function decodeReasoning({ open }: Conversation, item: JsonObject, at: string): Block | undefined {
  const path = `${at}.encrypted_content`;
  const sealed = optionalText(item.encrypted_content, path) ?? "";
  if (sealed === "") return undefined;
  const block = readSealedText(open(sealed, path));
  if (!block) throw invalid(path, "was not made by this gateway");
  return block;
}

function decodeCall(item: JsonObject, at: string, input: JsonObject): Block {
  const id = textAt(item.call_id, `${at}.call_id`);
  if (id === "") throw invalid(`${at}.call_id`, "must not be empty");
  const name = textAt(item.name, `${at}.name`);
  if (name === "") throw invalid(`${at}.name`, "must not be empty");
  const namespace = optionalText(item.namespace, `${at}.namespace`);
  const call = toolUse({ id, name: flatName(name, namespace), input });
  if (namespace) call.extensions = { namespace, name };
  return call;
}

function decodeResult(item: JsonObject, at: string): Block {
  const toolUseId = toolId(textAt(item.call_id, `${at}.call_id`));
  const { output } = item;
  const content = decodeContent(output, `${at}.output`).filter((block) => !isBlankText(block));
  const form =
    content.length === 0
      ? ContentForm.ABSENT
      : typeof output === "string"
        ? ContentForm.TEXT
        : ContentForm.UNSPECIFIED;
  return create(BlockSchema, {
    kind: { case: "toolResult", value: { toolUseId, content, form } },
  });
}

function callIdOf({ kind }: Block): string {
  if (kind.case === "toolUse") return kind.value.id;
  return kind.case === "toolResult" ? kind.value.toolUseId : "";
}

function turn(role: Role, content: Block[], form: ContentForm = ContentForm.UNSPECIFIED): Message {
  return create(MessageSchema, { role, content, form });
}

function mark(block: Block, begins: string): Block {
  block.extensions = { ...block.extensions, begins };
  return block;
}

function begin(begins: string, [block]: [Block]): Block {
  return mark(block, begins);
}

/** `blocks` with the mark on the first that is not blank: blank ones are omitted later. */
function begun(begins: string, blocks: Block[]): Block[] {
  const first = blocks.find((block) => !isBlankText(block));
  if (first) mark(first, begins);
  return blocks;
}
