// The items of a request → messages of the canonical request, one for each. Nothing is merged,
// moved or left out: `turns.ts` fits them for providers of other formats.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type Message,
  Role,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type DecodedContent,
  type DecodedPart,
  decodeFile,
  decodeParts,
  imageOf,
  parseArguments,
  toolResult,
  toolUse,
} from "../chat/decode-block.ts";
import { invalid, objectAt, optionalText, textAt } from "../chat/fields.ts";
import { isObject } from "../json.ts";
import { blockOf, type Carried, isPack, type Packed } from "../packs.ts";
import { flatName } from "../tool-names.ts";
import { checkArguments, isBlankText, textBlock, turnOf } from "../turns.ts";
import {
  answeredTool,
  type ClientToolType,
  calledTool,
  clientToolOf,
  outputText,
} from "./client-tools.ts";
import { readableText } from "./reasoning.ts";

const roles = ["system", "developer", "user", "assistant"];

/**
 * The messages of a request whose instruction is `instruction`. Throws `invalid_request`, also if
 * none of both has content, or `request_too_large` if the arguments of its calls have too many
 * items.
 */
export function decodeItems(
  input: JsonValue | undefined,
  instruction: string,
  carried: Carried,
): Message[] {
  if (typeof input === "string") {
    if (input.trim() === "") throw invalid("input", "must not be blank");
    return [{ ...turnOf(Role.USER, [textBlock(input)]), form: ContentForm.TEXT }];
  }
  if (!Array.isArray(input) || input.length === 0)
    throw invalid("input", "must be a string or an array of at least one item");
  checkArguments(
    input.flatMap((item) =>
      isObject(item) && typeof item.arguments === "string" ? [item.arguments] : [],
    ),
  );
  const conversation = { carried, calls: new OpenCalls() };
  const messages = input.map((item, index) => {
    const at = `input[${index}]`;
    return decodeItem(objectAt(item, at), at, conversation);
  });
  const hasContent = messages.some(({ content }) => content.some((block) => !isBlankText(block)));
  if (!hasContent && instruction.trim() === "")
    throw invalid("input", "must have an item with content");
  return messages;
}

/** What is known of the conversation while it is decoded. */
type Conversation = { readonly carried: Carried; readonly calls: OpenCalls };

/** The calls without an output so far, in their order. */
class OpenCalls {
  readonly #calls: { readonly id: string; readonly name: string; readonly output: string }[] = [];

  /** `output`: the type of the item that has the output of the call. */
  add(id: string, name: string, output: string): void {
    this.#calls.push({ id, name, output });
  }

  /** The id of the call that an output belongs to; undefined where none is open. */
  close({ type, call_id: given, name }: JsonObject): string | undefined {
    const id = typeof given === "string" ? given : undefined;
    const isNamed = typeof name === "string";
    const index =
      id !== undefined
        ? this.#calls.findIndex((call) => call.id === id)
        : this.#calls.findLastIndex(
            (call) => call.output === type && (!isNamed || call.name === name),
          );
    const [call] = index < 0 ? [] : this.#calls.splice(index, 1);
    return id ?? call?.id;
  }
}

function decodeItem(item: JsonObject, at: string, conversation: Conversation): Message {
  const { carried } = conversation;
  const called = calledTool(item);
  if (called) return decodeOwnCall(item, at, called, conversation);
  if (answeredTool(item)) return decodeOwnOutput(item, conversation);
  switch (item.type ?? "message") {
    case "message":
      return decodeMessage(item, at);
    case "reasoning": {
      const packed = decodeReasoning(item, at, carried);
      const block = packed && blockOf(packed, readableText(item));
      const message = turnOf(Role.ASSISTANT, block ? [block] : []);
      return { ...message, source: item, ...(packed?.message && { attached: packed.message }) };
    }
    case "function_call": {
      const call = decodeCall(item, at, parseArguments(item.arguments), conversation);
      return { ...turnOf(Role.ASSISTANT, [call]), source: item };
    }
    case "custom_tool_call": {
      const input = { input: textAt(item.input, `${at}.input`) };
      const call = decodeCall(item, at, input, conversation);
      return { ...turnOf(Role.ASSISTANT, [call]), source: item };
    }
    case "function_call_output":
    case "custom_tool_call_output":
      return decodeResult(item, at, conversation);
    // Its tools are tools of the request, and its options of the request.
    case "additional_tools":
    case "configuration_update":
      return { ...turnOf(Role.SYSTEM, []), source: item };
    case "agent_message":
      return decodeAgentMessage(item);
    case "item_reference":
      throw invalid(
        `${at}.type`,
        "refers to a stored item, and nothing is stored here: send the item itself (store: false)",
      );
    default:
      return decodeOther(item, at, carried);
  }
}

/** What a tool of the vendor did, or a kind of tomorrow. One must not end a session. */
function decodeOther(item: JsonObject, at: string, carried: Carried): Message {
  if (typeof item.type !== "string") throw invalid(`${at}.type`, "must be a string");
  const block = create(BlockSchema, { kind: { case: "other", value: item } });
  const sealed = item.encrypted_content;
  if (typeof sealed === "string") {
    const packed = carried.open(sealed, `${at}.encrypted_content`);
    if (packed?.block) block.attached = packed.block;
  }
  return { ...turnOf(Role.ASSISTANT, [block]), source: item };
}

function decodeMessage(item: JsonObject, at: string): Message {
  const { content: given, ...around } = item;
  const role = roleOf(item.role, at);
  const content = decodeContent(given, `${at}.content`, role === Role.ASSISTANT);
  if (role === Role.SYSTEM && content.blocks.some(({ kind }) => kind.case !== "text"))
    throw invalid(`${at}.content`, "an instruction may hold text only");
  if (role === Role.ASSISTANT) {
    const phase = optionalText(item.phase, `${at}.phase`);
    for (const { kind } of content.blocks)
      if (kind.case === "text" && phase !== undefined) kind.value.phase = phase;
  }
  const { blocks, form, isExact } = content;
  return { ...turnOf(role, blocks), form, source: isExact ? around : item };
}

function roleOf(role: JsonValue | undefined, at: string): Role {
  switch (role) {
    case "user":
      return Role.USER;
    case "assistant":
      return Role.ASSISTANT;
    case "system":
    case "developer":
      return Role.SYSTEM;
    default:
      throw invalid(`${at}.role`, "is not a supported role", roles);
  }
}

function decodeContent(
  content: JsonValue | undefined,
  at: string,
  isAnswer: boolean,
): DecodedContent {
  if (typeof content === "string")
    return { blocks: [textBlock(content)], form: ContentForm.TEXT, isExact: true };
  if (!Array.isArray(content)) throw invalid(at, "must be a string or an array of parts");
  return decodeParts(content, at, (part, path) => decodePart(part, path, isAnswer));
}

/** The type of a part with text, on each side. */
export function textTypeOf(isAnswer: boolean): "output_text" | "input_text" {
  return isAnswer ? "output_text" : "input_text";
}

function decodePart(part: JsonObject, at: string, isAnswer: boolean): DecodedPart {
  const { type, ...members } = part;
  switch (type) {
    case "input_text":
    case "output_text":
    case "text": {
      const { text, ...rest } = members;
      const block = textBlock(textAt(text, `${at}.text`));
      return exact(block, type === textTypeOf(isAnswer) ? rest : { type, ...rest });
    }
    case "refusal": {
      const { refusal, ...rest } = members;
      return exact(textBlock(textAt(refusal, `${at}.refusal`)), { type, ...rest });
    }
    case "input_image": {
      if (typeof part.file_id === "string") throw noFiles(at);
      const { image_url, ...rest } = members;
      const path = `${at}.image_url`;
      const { block, isExact } = imageOf(textAt(image_url, path), path);
      return { ...exact(block, rest), isExact };
    }
    case "input_file":
      if (typeof part.file_id === "string") throw noFiles(at);
      return decodeInputFile(members, at);
    default:
      if (typeof type !== "string") throw invalid(`${at}.type`, "must be a string");
      return exact(create(BlockSchema, { kind: { case: "other", value: part } }), {});
  }
}

function exact(block: Block, rest: JsonObject): DecodedPart {
  if (Object.keys(rest).length > 0) block.extensions = rest;
  return { block, isExact: true };
}

function noFiles(at: string): Error {
  return invalid(`${at}.file_id`, "there is no file store here; send the content itself");
}

function decodeInputFile(members: JsonObject, at: string): DecodedPart {
  const { filename, file_data, file_url, ...rest } = members;
  if (typeof file_data === "string") {
    const decoded = decodeFile(
      { ...(filename !== undefined && { filename }), file_data },
      at,
      rest,
    );
    return { ...decoded, isExact: decoded.isExact && file_url === undefined };
  }
  const url = textAt(file_url, `${at}.file_url`);
  if (!/^https?:\/\//i.test(url)) throw invalid(`${at}.file_url`, "must be an http or https URL");
  const title = optionalText(filename, `${at}.filename`);
  const source = { kind: { case: "url", value: url } } as const;
  const block = create(BlockSchema, { kind: { case: "document", value: { source, title } } });
  return { ...exact(block, rest), isExact: file_data === undefined && filename !== null };
}

/** What this gateway sealed. Reasoning that it did not seal is left out: nobody here can vouch. */
function decodeReasoning(item: JsonObject, at: string, carried: Carried): Packed | undefined {
  const path = `${at}.encrypted_content`;
  const sealed = optionalText(item.encrypted_content, path) ?? "";
  return sealed === "" ? undefined : carried.open(sealed, path);
}

function decodeCall(
  item: JsonObject,
  at: string,
  input: JsonObject,
  { calls }: Conversation,
): Block {
  const id = textAt(item.call_id, `${at}.call_id`);
  if (id === "") throw invalid(`${at}.call_id`, "must not be empty");
  const name = textAt(item.name, `${at}.name`);
  if (name === "") throw invalid(`${at}.name`, "must not be empty");
  const namespace = optionalText(item.namespace, `${at}.namespace`);
  calls.add(id, name, `${String(item.type)}_output`);
  return toolUse({ id, name: flatName(name, namespace), input });
}

/** A call of a tool whose calls have a form of their own. The older ones may have no `call_id`. */
function decodeOwnCall(
  item: JsonObject,
  at: string,
  type: ClientToolType,
  { calls }: Conversation,
): Message {
  const isId = (id: unknown) => typeof id === "string" && id !== "";
  const id = String([item.call_id, item.id].find(isId) ?? `call_${at}`);
  calls.add(id, type, type === "tool_search" ? `${type}_output` : `${type}_call_output`);
  const call = toolUse({ id, name: type, input: clientToolOf(type).argumentsOf(item) });
  return { ...turnOf(Role.ASSISTANT, [call]), source: item };
}

function decodeOwnOutput(item: JsonObject, { calls }: Conversation): Message {
  const text = textBlock(outputText(item));
  const id = calls.close(item);
  const content = { blocks: [text], form: ContentForm.TEXT, isExact: true };
  const block = id === undefined ? text : toolResult(id, content);
  return { ...turnOf(Role.USER, [block]), source: item };
}

function decodeResult(item: JsonObject, at: string, { calls }: Conversation): Message {
  const { output, ...around } = item;
  const content = decodeContent(output, `${at}.output`, false);
  optionalText(item.call_id, `${at}.call_id`);
  const id = calls.close(item);
  // An item of no known call is a text as any other.
  if (id === undefined) return { ...turnOf(Role.USER, content.blocks), source: item };
  const result = toolResult(id, content);
  return { ...turnOf(Role.USER, [result]), source: content.isExact ? around : item };
}

/** A message of one agent to another. */
function decodeAgentMessage(item: JsonObject): Message {
  const { author, content } = item;
  const texts = (Array.isArray(content) ? content : []).flatMap((part) =>
    isObject(part) && typeof part.text === "string" ? [part.text] : [],
  );
  const head = typeof author === "string" ? [`Message from ${author}:`] : [];
  const blocks = texts.length === 0 ? [] : [textBlock([...head, ...texts].join("\n"))];
  return { ...turnOf(Role.USER, blocks), source: item };
}

/** True if a request has an `encrypted_content` in the form that was used until packs came. */
export function hasOldContent(body: JsonValue): boolean {
  if (!isObject(body) || !Array.isArray(body.input)) return false;
  return body.input.some((item) => {
    const content = isObject(item) ? item.encrypted_content : undefined;
    return typeof content === "string" && !isPack(content);
  });
}
