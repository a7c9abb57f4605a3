// The conversation of a canonical request → the instruction and the items for a provider. The items
// of a client of this format go out as they came.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  ContentForm,
  Format,
  type Message,
  Role,
  type TextBlock,
  type ToolResultBlock,
  type ToolUseBlock,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { dialectOf, type IdForm } from "../../config/catalog.ts";
import { isNoArguments } from "../chat/decode-block.ts";
import { instructionBlocks, textOf, toPart, urlOf } from "../chat/encode-messages.ts";
import { CallIds } from "../chat/fit-messages.ts";
import type { Fit } from "../fit.ts";
import { isObject } from "../json.ts";
import { type ReturnTarget, returnOf, thinkingOf } from "../returned.ts";
import { fromNativeId } from "../tool-ids.ts";
import { shortName } from "../tool-names.ts";
import { textTypeOf } from "./decode-items.ts";
import { isOwnId } from "./item-ids.ts";
import { unpackReasoning } from "./reasoning.ts";

/**
 * The members `instructions` and `input`. Throws `feature_not_offered` for content that this format
 * cannot express.
 */
export function encodeItems(request: GenerateRequest, target: ReturnTarget, fit: Fit): JsonObject {
  const items = new Items(target, fit);
  const isOwn = request.origin?.format === Format.RESPONSES;
  const { system: given } = request;
  const system = isOwn ? (given?.content ?? []) : given ? instructionBlocks(given) : [];
  const instructions = system.map(textOf).join("\n");
  for (const [index, message] of request.messages.entries())
    if (isOwn && message.source) items.addOwn(message, message.source, index);
    else items.addTurn(message, index);
  const { ids } = dialectOf(target.dialect);
  const input = ids ? fitIds(items.input, ids) : items.input;
  return { ...(system.length > 0 && { instructions }), input };
}

function fitIds(items: readonly JsonObject[], form: IdForm): JsonObject[] {
  const ids = new CallIds(form);
  return items.map((item) => {
    const { call_id: id, name } = item;
    if (typeof id !== "string") return item;
    const fitted =
      typeof name === "string" && !String(item.type).endsWith("_output")
        ? ids.ofCall(id, name)
        : ids.ofResult(id);
    return fitted === id ? item : { ...item, call_id: fitted };
  });
}

class Items {
  readonly input: JsonObject[] = [];
  readonly #target: ReturnTarget;
  readonly #fit: Fit;
  /** The parts of the message that continues. */
  #parts: JsonValue[] | undefined;

  constructor(target: ReturnTarget, fit: Fit) {
    this.#target = target;
    this.#fit = fit;
  }

  /** Adds an item as its client wrote it. */
  addOwn(message: Message, source: JsonObject, index: number): void {
    const { id, ...others } = source;
    const around = isOwnId(id) ? others : source;
    if (around.encrypted_content !== undefined && around.encrypted_content !== null) {
      const opened = this.#open(message.content[0], index);
      if (opened !== undefined) this.input.push({ ...around, encrypted_content: opened });
      return;
    }
    if (source.type === "reasoning" && dialectOf(this.#target.dialect).needsEncrypted) {
      this.#fit.leaveOut({ where: `input[${index}]`, what: "thinking", why: "unsupported" });
      return;
    }
    const isEmpty = source.type === "function_call" && isNoArguments(source.arguments);
    const given = isEmpty ? { arguments: "{}" } : ownContent(message, source);
    this.input.push({ ...around, ...given });
  }

  addTurn({ role, content }: Message, index: number): void {
    const name =
      role === Role.ASSISTANT ? "assistant" : role === Role.SYSTEM ? "developer" : "user";
    for (const block of content) this.#add(name, block, index);
    this.#parts = undefined;
  }

  /** The encrypted content that the provider wrote; undefined if this is not for it. */
  #open(block: Block | undefined, index: number): string | undefined {
    const returned = returnOf(block?.attached, Format.RESPONSES, this.#target);
    const encrypted = block?.attached?.members?.encrypted_content;
    if (returned === "back" && typeof encrypted === "string") {
      this.#fit.carry("back");
      return encrypted;
    }
    // What did not open was noted when it was decoded.
    if (block?.attached) this.#leaveOut(returned === "model" ? "model" : "foreign", index);
    return undefined;
  }

  #addReasoning(block: Block, index: number): void {
    const { attached } = block;
    const returned = returnOf(attached, Format.RESPONSES, this.#target);
    const members = attached?.members ?? {};
    const { needsEncrypted } = dialectOf(this.#target.dialect);
    const isComplete = typeof members.encrypted_content === "string" || !needsEncrypted;
    if (returned !== "back" || !isComplete) {
      this.#leaveOut(returned === "model" ? "model" : "foreign", index);
      return;
    }
    this.#fit.carry("back");
    this.#addItem(unpackReasoning(members, thinkingOf(block)));
  }

  #leaveOut(why: "foreign" | "model", index: number): void {
    this.#fit.carry(why);
    this.#fit.leaveOut({ where: `messages[${index}]`, what: "thinking", why });
  }

  #add(role: string, block: Block, index: number): void {
    const { kind } = block;
    switch (kind.case) {
      case "toolUse":
        this.#addItem(encodeCall(kind.value));
        return;
      case "toolResult":
        this.#addItem(encodeResult(kind.value));
        return;
      case "thinking":
      case "redactedThinking":
        this.#addReasoning(block, index);
        return;
      default:
        this.#addPart(role, block);
    }
  }

  /** Adds a part to the message that continues, or to a new one of this role. */
  #addPart(role: string, block: Block): void {
    const part = role === "assistant" ? outputPart(block) : inputPart(block);
    if (!part) return;
    if (!this.#parts) {
      const phase = block.kind.case === "text" ? phaseOf(block.kind.value) : {};
      this.#parts = [];
      this.input.push({ type: "message", role, content: this.#parts, ...phase });
    }
    this.#parts.push(part);
  }

  #addItem(item: JsonObject): void {
    this.#parts = undefined;
    this.input.push(item);
  }
}

const plainOutputs: readonly unknown[] = ["function_call_output", "custom_tool_call_output"];

/** The `content` or the `output` of an item whose blocks hold all of it. */
function ownContent({ role, content, form }: Message, source: JsonObject): JsonObject {
  const [first] = content;
  const isAnswer = role === Role.ASSISTANT;
  // Other items with results have all of it around them.
  if (first?.kind.case === "toolResult" && plainOutputs.includes(source.type))
    return source.output === undefined
      ? { output: ownParts(first.kind.value.content, first.kind.value.form, false) }
      : {};
  const hasContent = source.type === undefined || source.type === "message";
  if (!hasContent || source.content !== undefined) return {};
  return { content: ownParts(content, form, isAnswer) };
}

function ownParts(blocks: readonly Block[], form: ContentForm, isAnswer: boolean): JsonValue {
  const [text] = blocks;
  if (form === ContentForm.TEXT && text) return textOf(text);
  return blocks.map((block) => ownPart(block, isAnswer));
}

function ownPart({ kind, extensions = {} }: Block, isAnswer: boolean): JsonObject {
  switch (kind.case) {
    case "text": {
      const member = extensions.type === "refusal" ? "refusal" : "text";
      return { type: textTypeOf(isAnswer), [member]: kind.value.text, ...extensions };
    }
    case "image":
      return { type: "input_image", image_url: urlOf(kind.value.source, "image"), ...extensions };
    case "document": {
      const { title, source } = kind.value;
      const member = source?.kind.case === "url" ? "file_url" : "file_data";
      return {
        type: "input_file",
        ...(title !== undefined && { filename: title }),
        [member]: urlOf(source, "document"),
        ...extensions,
      };
    }
    case "other":
      return kind.value;
    default:
      return {};
  }
}

function phaseOf({ phase }: TextBlock): JsonObject {
  return phase === undefined ? {} : { phase };
}

function outputPart(block: Block): JsonObject | undefined {
  const part = block.kind.case === "text" ? toPart(block) : undefined;
  return part && { type: "output_text", text: part.text ?? "" };
}

/** A part for the user's side, from the part that chat has for the block. */
function inputPart(block: Block): JsonObject | undefined {
  const { kind } = block;
  // Chat has no files by URL.
  if (kind.case === "document" && kind.value.source?.kind.case === "url") {
    const { title } = kind.value;
    const file_url = kind.value.source.kind.value;
    return { type: "input_file", ...(title !== undefined && { filename: title }), file_url };
  }
  const part = toPart(block);
  switch (part?.type) {
    case "text":
      return { type: "input_text", text: part.text ?? "" };
    case "image_url": {
      const { url = "", ...detail } = isObject(part.image_url) ? part.image_url : {};
      return { type: "input_image", image_url: url, ...detail };
    }
    case "file":
      return isObject(part.file) ? { type: "input_file", ...part.file } : undefined;
    default:
      return undefined;
  }
}

function encodeCall({ id, name, input }: ToolUseBlock): JsonObject {
  return {
    type: "function_call",
    call_id: fromNativeId(id),
    name: shortName(name),
    arguments: JSON.stringify(input ?? {}),
  };
}

function encodeResult({ toolUseId, content, form }: ToolResultBlock): JsonObject {
  const parts = content.map(inputPart).filter((part) => part !== undefined);
  const [first] = parts;
  const isText = parts.length === 0 || form === ContentForm.TEXT;
  return {
    type: "function_call_output",
    call_id: fromNativeId(toolUseId),
    output: isText ? (first?.text ?? "") : parts,
  };
}
