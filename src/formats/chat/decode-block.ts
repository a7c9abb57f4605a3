// The content of a message, and its tool calls, as blocks. Content is a string or a list of parts.
// Parts in the native form are accepted too: editors send them when they know a model's name from
// the native format.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type SourceSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject, parseJsonText } from "../json.ts";
import { isBlankText, textBlock } from "../turns.ts";
import {
  decodeCacheMark,
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalText,
  textAt,
} from "./fields.ts";

type SourceInit = MessageInitShape<typeof SourceSchema>;

const imageTypes = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const partTypes = [
  "text",
  "image_url",
  "file",
  "input_audio",
  "refusal",
  "image",
  "document",
  "tool_use",
  "tool_result",
  "thinking",
];

/**
 * The blocks of a content; undefined if it is absent. Parts without a counterpart (audio, refusals)
 * are omitted. Throws `invalid_request`.
 */
export function decodeContent(content: JsonValue | undefined, at: string): Block[] | undefined {
  if (content === undefined || content === null) return undefined;
  if (typeof content === "string") return [textBlock(content)];
  if (!Array.isArray(content)) throw invalid(at, "must be a string or an array of parts");
  const blocks: Block[] = [];
  for (const [index, value] of content.entries()) {
    const path = `${at}[${index}]`;
    const block = decodePart(objectAt(value, path), path);
    if (!block) continue;
    const mark = decodeCacheMark(objectAt(value, path), path);
    if (mark) block.cacheControl = mark;
    blocks.push(block);
  }
  return blocks;
}

/** The block of a tool result. Blank text is omitted, because providers reject it. */
export function toolResult(result: {
  id: string;
  content: JsonValue | undefined;
  at: string;
  isError?: boolean | undefined;
}): Block {
  const content = (decodeContent(result.content, result.at) ?? []).filter(
    (block) => !isBlankText(block),
  );
  const form =
    content.length === 0
      ? ContentForm.ABSENT
      : typeof result.content === "string"
        ? ContentForm.TEXT
        : ContentForm.UNSPECIFIED;
  const value = {
    $typeName: "gateway.inference.v1.ToolResultBlock",
    toolUseId: toolId(result.id),
    content,
    form,
    isError: result.isError,
  } as const;
  return {
    $typeName: "gateway.inference.v1.Block",
    kind: { case: "toolResult", value },
  };
}

function decodePart(part: JsonObject, at: string): Block | undefined {
  switch (part.type) {
    case "text":
      return textBlock(textAt(part.text, `${at}.text`));
    case "image_url":
      return decodeImageUrl(part.image_url, `${at}.image_url`);
    case "file":
      return decodeFile(objectAt(part.file, `${at}.file`), `${at}.file`);
    case "input_audio":
    case "refusal":
      return undefined;
    case "image":
      return create(BlockSchema, {
        kind: { case: "image", value: { source: decodeSource(part.source, `${at}.source`) } },
      });
    case "document": {
      const title = optionalText(part.title, `${at}.title`);
      const source = decodeSource(part.source, `${at}.source`);
      return create(BlockSchema, { kind: { case: "document", value: { source, title } } });
    }
    case "tool_use":
      return toolUse({
        id: textAt(part.id, `${at}.id`),
        name: textAt(part.name, `${at}.name`),
        input: parseArguments(part.input),
      });
    case "tool_result":
      return toolResult({
        id: textAt(part.tool_use_id, `${at}.tool_use_id`),
        content: part.content,
        at: `${at}.content`,
        isError: optionalBoolean(part.is_error, `${at}.is_error`),
      });
    case "thinking":
      return decodeThinking(part, at);
    case "redacted_thinking":
      return create(BlockSchema, {
        kind: { case: "redactedThinking", value: { data: textAt(part.data, `${at}.data`) } },
      });
    default:
      throw invalid(`${at}.type`, "is not a supported type of part", partTypes);
  }
}

// Providers reject a thinking block without a signature, so it is omitted.
function decodeThinking(part: JsonObject, at: string): Block | undefined {
  const signature = optionalText(part.signature, `${at}.signature`) ?? "";
  if (signature === "") return undefined;
  const thinking = textAt(part.thinking, `${at}.thinking`);
  return create(BlockSchema, { kind: { case: "thinking", value: { thinking, signature } } });
}

/**
 * The thinking blocks in the `reasoning_details` of an assistant message, in the form in which the
 * encoders of this format write them. Entries of other kinds and entries without a signature are
 * omitted.
 */
export function decodeReasoningDetails(value: JsonValue | undefined, at: string): Block[] {
  const blocks: Block[] = [];
  for (const [index, entry] of (optionalArray(value, at) ?? []).entries()) {
    const path = `${at}[${index}]`;
    const { type, text, signature } = objectAt(entry, path);
    const block =
      type === "reasoning.text" &&
      decodeThinking({ thinking: text ?? "", signature: signature ?? null }, path);
    if (block) blocks.push(block);
  }
  return blocks;
}

export function decodeImageUrl(value: JsonValue | undefined, at: string): Block {
  // Some clients send the URL itself instead of an object with it.
  const path = typeof value === "string" ? at : `${at}.url`;
  const url = typeof value === "string" ? value : textAt(objectAt(value, at).url, path);
  if (/^https?:\/\//i.test(url)) return imageBlock({ kind: { case: "url", value: url } });
  const inline = readDataUrl(url);
  if (!inline) throw invalid(path, "must be an http, https or base64 data URL");
  const mediaType = inline.mediaType === "image/jpg" ? "image/jpeg" : inline.mediaType;
  if (!imageTypes.includes(mediaType))
    throw invalid(path, "is not a supported image type", imageTypes);
  return imageBlock({ kind: { case: "base64", value: { mediaType, data: inline.data } } });
}

function imageBlock(source: SourceInit): Block {
  return create(BlockSchema, { kind: { case: "image", value: { source } } });
}

export function decodeFile(file: JsonObject, at: string): Block {
  if (typeof file.file_id === "string") {
    throw invalid(`${at}.file_id`, "there is no file store here; send the file in file_data");
  }
  const title = optionalText(file.filename, `${at}.filename`);
  const text = textAt(file.file_data, `${at}.file_data`);
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
  return create(BlockSchema, { kind: { case: "document", value: { source, title } } });
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
  if (call.type !== undefined && call.type !== null && call.type !== "function") {
    throw invalid(`${at}.type`, "only function calls are supported", ["function"]);
  }
  const id = textAt(call.id, `${at}.id`);
  if (id === "") throw invalid(`${at}.id`, "must not be empty");
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
    id: toolId(id),
    name,
    input,
  } as const;
  return { $typeName: "gateway.inference.v1.Block", kind: { case: "toolUse", value } };
}

/**
 * The arguments as an object. A text that is not the JSON of an object becomes `{"_raw": …}`: a
 * call that was cut off stays in the client's history, and must not make all later requests fail.
 */
export function parseArguments(value: JsonValue | undefined): JsonObject {
  if (value === undefined || value === null) return {};
  if (isObject(value)) return value;
  if (typeof value !== "string") return { _raw: JSON.stringify(value) };
  if (value.trim() === "") return {};
  // Not JSON.parse: the check of the body does not see the depth and the surrogates of this text.
  const parsed = parseJsonText(value);
  return isObject(parsed) ? parsed : { _raw: value };
}

/**
 * The id in the native form: other characters are replaced. Calls and results use the same
 * replacement, so that they still match.
 */
export function toolId(id: string): string {
  return id.replace(/[^a-zA-Z0-9_-]/g, "_");
}
