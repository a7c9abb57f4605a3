// The content of a message, and its tool calls, as blocks. Content is a string or a list of parts.
// Parts in the native form are accepted too: editors send them when they know a model's name from
// the native format.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  Format,
  type SourceSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject, parseJsonText } from "../json.ts";
import { blockOf, type Carried, claimed, isOurs } from "../packs.ts";
import { textBlock } from "../turns.ts";
import {
  decodeCacheMark,
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalText,
  textAt,
  textsOf,
} from "./fields.ts";

type SourceInit = MessageInitShape<typeof SourceSchema>;

const imageTypes = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/** A content as blocks. */
export type DecodedContent = {
  readonly blocks: Block[];
  readonly form: ContentForm;
  /** True if an encoder of this format makes the same content of the blocks. */
  readonly isExact: boolean;
};

/** A part as a block; undefined for one that has no place in other formats. */
export type DecodedPart = { readonly block: Block | undefined; readonly isExact: boolean };

/** Decodes the parts of a list. */
export function decodeParts(
  parts: readonly JsonValue[],
  at: string,
  decode: (part: JsonObject, at: string) => DecodedPart,
): DecodedContent {
  const blocks: Block[] = [];
  let isExact = true;
  for (const [index, value] of parts.entries()) {
    const path = `${at}[${index}]`;
    const decoded = decode(objectAt(value, path), path);
    if (decoded.block) blocks.push(decoded.block);
    isExact &&= decoded.isExact && decoded.block !== undefined;
  }
  return { blocks, form: ContentForm.UNSPECIFIED, isExact };
}

/** The content of a message or a tool result. Throws `invalid_request`. */
export function decodeContent(
  content: JsonValue | undefined,
  at: string,
  carried: Carried,
): DecodedContent {
  if (content === undefined || content === null)
    return { blocks: [], form: ContentForm.ABSENT, isExact: content === undefined };
  if (typeof content === "string")
    return { blocks: [textBlock(content)], form: ContentForm.TEXT, isExact: true };
  if (!Array.isArray(content)) throw invalid(at, "must be a string or an array of parts");
  return decodeParts(content, at, (part, path) => {
    const decoded = decodePart(part, path, carried);
    const mark = decodeCacheMark(part, path);
    if (mark && decoded.block) decoded.block.cacheControl = mark;
    return decoded;
  });
}

/** The block of a tool result. */
export function toolResult(
  id: string,
  content: DecodedContent,
  isError?: boolean | undefined,
): Block {
  const value = {
    $typeName: "gateway.inference.v1.ToolResultBlock",
    toolUseId: id,
    content: content.blocks,
    form: content.form,
    isError,
  } as const;
  return { $typeName: "gateway.inference.v1.Block", kind: { case: "toolResult", value } };
}

function decodePart(part: JsonObject, at: string, carried: Carried): DecodedPart {
  switch (part.type) {
    case "text": {
      const { type, text, ...rest } = part;
      return exact(textBlock(textAt(text, `${at}.text`)), rest);
    }
    case "image_url": {
      const { type, image_url, ...rest } = part;
      return decodeImageUrl(image_url, `${at}.image_url`, rest);
    }
    case "file": {
      const { type, file, ...rest } = part;
      return decodeFile(objectAt(file, `${at}.file`), `${at}.file`, rest);
    }
    case "refusal":
      return inexact(textBlock(typeof part.refusal === "string" ? part.refusal : ""));
    case "image":
      return inexact(
        create(BlockSchema, {
          kind: { case: "image", value: { source: decodeSource(part.source, `${at}.source`) } },
        }),
      );
    case "document": {
      const title = optionalText(part.title, `${at}.title`);
      const source = decodeSource(part.source, `${at}.source`);
      return inexact(create(BlockSchema, { kind: { case: "document", value: { source, title } } }));
    }
    case "tool_use":
      return inexact(
        toolUse({
          id: textAt(part.id, `${at}.id`),
          name: textAt(part.name, `${at}.name`),
          input: parseArguments(part.input),
        }),
      );
    case "tool_result": {
      const id = textAt(part.tool_use_id, `${at}.tool_use_id`);
      const isError = optionalBoolean(part.is_error, `${at}.is_error`);
      return inexact(
        toolResult(id, decodeContent(part.content, `${at}.content`, carried), isError),
      );
    }
    case "thinking":
      return inexact(decodeThinkingPart(part, at, carried));
    case "redacted_thinking":
      return inexact(decodeRedacted(textAt(part.data, `${at}.data`), `${at}.data`, carried));
    default:
      if (typeof part.type !== "string") throw invalid(`${at}.type`, "must be a string");
      return exact(create(BlockSchema, { kind: { case: "other", value: part } }), {});
  }
}

/** A block that keeps the members of its part that have no typed field. */
function exact(block: Block, rest: JsonObject): DecodedPart {
  for (const _ in rest) {
    block.extensions = rest;
    break;
  }
  return { block, isExact: true };
}

const inexact = (block: Block | undefined): DecodedPart => ({ block, isExact: false });

/** Thinking in the native form, or in that of providers that write a list of texts. */
function decodeThinkingPart(part: JsonObject, at: string, carried: Carried): Block | undefined {
  if (Array.isArray(part.thinking)) {
    const text = textsOf(part.thinking).join("");
    const { type, thinking, ...members } = part;
    return thinkingBlock(text, "", { list: "content", textMembers: ["thinking"], members });
  }
  const signature = optionalText(part.signature, `${at}.signature`) ?? "";
  const text = part.thinking ?? "";
  if (signature === "")
    return typeof text === "string" && text !== ""
      ? thinkingBlock(text, "", { textMembers: ["thinking"] })
      : undefined;
  return decodeSigned(textAt(text, `${at}.thinking`), signature, `${at}.signature`, carried);
}

/** `claim`: how a provider of this format wrote it. Absent: it has a signature that others know. */
function thinkingBlock(
  thinking: string,
  signature: string,
  claim?: Parameters<typeof claimed>[1],
): Block {
  const value = { $typeName: "gateway.inference.v1.ThinkingBlock", thinking, signature } as const;
  const block: Block = {
    $typeName: "gateway.inference.v1.Block",
    kind: { case: "thinking", value },
  };
  if (claim) block.attached = claimed(Format.CHAT, claim);
  return block;
}

function decodeSigned(
  text: string,
  signature: string,
  at: string,
  carried: Carried,
): Block | undefined {
  if (!isOurs(signature)) return thinkingBlock(text, signature);
  const packed = carried.open(signature, at);
  return packed && blockOf(packed, text);
}

function decodeRedacted(data: string, at: string, carried: Carried): Block | undefined {
  if (isOurs(data)) {
    const packed = carried.open(data, at);
    return packed && blockOf(packed, "");
  }
  return create(BlockSchema, { kind: { case: "redactedThinking", value: { data } } });
}

/**
 * The reasoning of an assistant message, one block for each entry of `reasoning_details`. Plain
 * reasoning is a block of its own, unless the details repeat it.
 */
export function decodeReasoning(message: JsonObject, at: string, carried: Carried): Block[] {
  const path = `${at}.reasoning_details`;
  const blocks = (optionalArray(message.reasoning_details, path) ?? []).flatMap(
    (entry, index) =>
      decodeDetail(objectAt(entry, `${path}[${index}]`), `${path}[${index}]`, carried) ?? [],
  );
  const hasText = blocks.some(({ kind }) => kind.case === "thinking" && kind.value.thinking !== "");
  const names = hasText ? [] : plainNames.filter((name) => isText(message[name]));
  const [first] = names;
  const text = first === undefined ? undefined : message[first];
  if (typeof text !== "string") return blocks;
  const textMembers = names.filter((name) => message[name] === text);
  return [thinkingBlock(text, "", { textMembers }), ...blocks];
}

const plainNames = ["reasoning_content", "reasoning", "reasoning_text"];

function isText(value: JsonValue | undefined): value is string {
  return typeof value === "string" && value !== "";
}

/** True unless an entry says that a model of another vendor than the native one signed it. */
function isOfNative({ format }: JsonObject): boolean {
  return typeof format !== "string" || format.startsWith("anthropic-claude");
}

function decodeDetail(entry: JsonObject, at: string, carried: Carried): Block | undefined {
  const list = "reasoning_details";
  switch (entry.type) {
    case "reasoning.text":
    case "reasoning.summary": {
      const member = entry.type === "reasoning.text" ? "text" : "summary";
      const { [member]: given, ...members } = entry;
      const text = optionalText(given, `${at}.${member}`) ?? "";
      const signature = optionalText(entry.signature, `${at}.signature`) ?? "";
      if (signature !== "" && isOfNative(entry))
        return decodeSigned(text, signature, `${at}.signature`, carried);
      return text === ""
        ? undefined
        : thinkingBlock(text, "", { list, textMembers: [member], members });
    }
    case "reasoning.encrypted": {
      const data = optionalText(entry.data, `${at}.data`) ?? "";
      if (isOurs(data)) return decodeRedacted(data, `${at}.data`, carried);
      return thinkingBlock("", "", { list, members: entry });
    }
    default:
      return undefined;
  }
}

/**
 * The image of an `image_url`, which is an object with the URL, or the URL itself. `rest` are the
 * other members of the part.
 */
function decodeImageUrl(value: JsonValue | undefined, at: string, rest: JsonObject): DecodedPart {
  if (typeof value === "string") return inexact(imageOf(value, at).block);
  const { url, ...inner } = objectAt(value, at);
  const { block, isExact } = imageOf(textAt(url, `${at}.url`), `${at}.url`);
  const hasMore = Object.keys(inner).length > 0;
  const decoded = exact(block, hasMore ? { ...rest, image_url: inner } : rest);
  return isExact ? decoded : inexact(block);
}

/** The image at a URL. `isExact`: `urlOf` makes the same text of it. */
export function imageOf(url: string, at: string): { block: Block; isExact: boolean } {
  if (/^https?:\/\//i.test(url))
    return { block: imageBlock({ kind: { case: "url", value: url } }), isExact: true };
  const inline = readDataUrl(url);
  if (!inline) throw invalid(at, "must be an http, https or base64 data URL");
  const mediaType = inline.mediaType === "image/jpg" ? "image/jpeg" : inline.mediaType;
  if (!imageTypes.includes(mediaType))
    throw invalid(at, "is not a supported image type", imageTypes);
  const block = imageBlock({ kind: { case: "base64", value: { mediaType, data: inline.data } } });
  return { block, isExact: url.startsWith(`data:${mediaType};base64,`) };
}

function imageBlock(source: SourceInit): Block {
  return create(BlockSchema, { kind: { case: "image", value: { source } } });
}

/** The document of a file. `rest` are the other members of its part. */
export function decodeFile(file: JsonObject, at: string, rest: JsonObject): DecodedPart {
  if (typeof file.file_id === "string") {
    throw invalid(`${at}.file_id`, "there is no file store here; send the file in file_data");
  }
  const { filename, file_data, ...inner } = file;
  const title = optionalText(filename, `${at}.filename`);
  const text = textAt(file_data, `${at}.file_data`);
  const inline = readDataUrl(text);
  const isPdf = inline
    ? inline.mediaType === "application/pdf"
    : !text.startsWith("data:") && /\.pdf$/i.test(title ?? "");
  const data = inline ? inline.data : text;
  if (!isPdf || data === "")
    throw invalid(
      `${at}.file_data`,
      "must be a PDF, as a base64 data URL or as bare base64 with a .pdf filename",
    );
  const source: SourceInit = {
    kind: { case: "base64", value: { mediaType: "application/pdf", data } },
  };
  const block = create(BlockSchema, { kind: { case: "document", value: { source, title } } });
  const isExact =
    title !== undefined &&
    Object.keys(inner).length === 0 &&
    text.startsWith("data:application/pdf;base64,");
  return isExact ? exact(block, rest) : inexact(block);
}

// Parses `data:<media type>[;parameters];base64,<data>`. No regular expression: it would run over
// the megabytes after the comma.
function readDataUrl(url: string): { mediaType: string; data: string } | undefined {
  const comma = url.indexOf(",");
  if (comma < 0 || comma > 200) return undefined;
  const head = url.slice(0, comma).toLowerCase();
  if (!head.startsWith("data:") || !head.endsWith(";base64") || comma === url.length - 1)
    return undefined;
  return { mediaType: head.slice("data:".length).split(";")[0] ?? "", data: url.slice(comma + 1) };
}

// A `source` in the native form.
function decodeSource(value: JsonValue | undefined, at: string): SourceInit {
  const source = objectAt(value, at);
  switch (source.type) {
    case "url":
      return { kind: { case: "url", value: textAt(source.url, `${at}.url`) } };
    case "base64":
    case "text": {
      const mediaType = textAt(source.media_type, `${at}.media_type`);
      return {
        kind: { case: source.type, value: { mediaType, data: textAt(source.data, `${at}.data`) } },
      };
    }
    default:
      throw invalid(`${at}.type`, "is not a supported source", ["base64", "text", "url"]);
  }
}

/** One entry of `tool_calls`. */
export function decodeToolCall(value: JsonValue, at: string): Block {
  const call = objectAt(value, at);
  const { type } = call;
  if (type !== undefined && type !== null && type !== "function" && type !== "custom") {
    const types = ["function", "custom"];
    throw invalid(`${at}.type`, "only calls of functions and custom tools are supported", types);
  }
  const id = textAt(call.id, `${at}.id`);
  if (id === "") throw invalid(`${at}.id`, "must not be empty");
  if (type === "custom") {
    const custom = objectAt(call.custom, `${at}.custom`);
    const name = textAt(custom.name, `${at}.custom.name`);
    if (name === "") throw invalid(`${at}.custom.name`, "must not be empty");
    return toolUse({ id, name, input: { input: textAt(custom.input, `${at}.custom.input`) } });
  }
  return decodeFunctionCall(call.function, `${at}.function`, id);
}

/** The `{name, arguments}` of a call with this id. */
export function decodeFunctionCall(value: JsonValue | undefined, at: string, id: string): Block {
  const called = objectAt(value, at);
  const name = textAt(called.name, `${at}.name`);
  if (name === "") throw invalid(`${at}.name`, "must not be empty");
  return toolUse({ id, name, input: parseArguments(called.arguments) });
}

export function toolUse({
  id,
  name,
  input,
}: {
  id: string;
  name: string;
  input: JsonObject;
}): Block {
  const value = {
    $typeName: "gateway.inference.v1.ToolUseBlock",
    id,
    name,
    input,
  } as const;
  return { $typeName: "gateway.inference.v1.Block", kind: { case: "toolUse", value } };
}

/** True for the ways in which servers and clients write that a call has no arguments. */
export function isNoArguments(value: JsonValue | undefined): boolean {
  return value === null || (typeof value === "string" && ["", "null"].includes(value.trim()));
}

/**
 * The arguments as an object. A text that is not the JSON of an object becomes `{"_raw": …}`: a
 * call that was cut off stays in the client's history, and must not make all later requests fail.
 */
export function parseArguments(value: JsonValue | undefined): JsonObject {
  if (value === undefined || isNoArguments(value)) return {};
  if (isObject(value)) return value;
  if (typeof value !== "string") return { _raw: JSON.stringify(value) };
  // Not JSON.parse: the check of the body does not see the depth and the surrogates of this text.
  const parsed = parseJsonText(value);
  return isObject(parsed) ? parsed : { _raw: value };
}
