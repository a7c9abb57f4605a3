// The conversation of a canonical request → the instruction and the items for a provider. Blocks
// that were decoded from this format carry marks (`decode-items.ts`), so that the provider gets the
// items as they were.

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
import { instructionBlocks, textOf, toPart } from "../chat/encode-messages.ts";
import { encryptedOf } from "../codec.ts";
import { isObject } from "../json.ts";

/** The names of a tool for this provider. */
export type ToolNames = { readonly name: string; readonly namespace?: string };

/**
 * The members `instructions` and `input`. Throws `feature_not_offered` for content that this format
 * cannot express.
 */
export function encodeItems(request: GenerateRequest): JsonObject {
  const isOwn = request.sourceFormat === Format.RESPONSES;
  const items = new Items(isOwn);
  const system = request.system ? instructionBlocks(request.system) : [];
  let instructions: string | undefined;
  if (isOwn) {
    for (const block of system) {
      if (markOf(block) === "instructions") instructions = textOf(block);
      else items.addPart("developer", block);
    }
    items.endMessage();
  } else if (system.length > 0) instructions = system.map(textOf).join("\n");
  for (const turn of request.messages) items.addTurn(turn);
  return { ...(instructions !== undefined && { instructions }), input: items.input };
}

/** The item that a block begins; undefined for one that continues the item before it. */
function markOf({ extensions }: Block): string | undefined {
  const begins = extensions?.begins;
  return typeof begins === "string" ? begins : undefined;
}

const instructionRoles = ["system", "developer"];

class Items {
  readonly input: JsonObject[] = [];
  /** Whether the blocks carry the marks of this format. */
  readonly #isOwn: boolean;
  /** The parts of the message that continues. */
  #parts: JsonValue[] | undefined;

  constructor(isOwn: boolean) {
    this.#isOwn = isOwn;
  }

  addTurn({ role, content }: Message): void {
    const name =
      role === Role.ASSISTANT ? "assistant" : role === Role.SYSTEM ? "developer" : "user";
    for (const block of content) this.#add(name, block);
    this.endMessage();
  }

  endMessage(): void {
    this.#parts = undefined;
  }

  #add(role: string, block: Block): void {
    const { kind } = block;
    switch (kind.case) {
      case "toolUse":
        this.#addItem(encodeCall(block, kind.value, this.#isOwn));
        return;
      case "toolResult":
        this.#addItem(encodeResult(block, kind.value, this.#isOwn));
        return;
      case "thinking": {
        const encrypted = encryptedOf(kind.value.signature);
        if (encrypted !== undefined) this.#addItem(reasoningItem(kind.value.thinking, encrypted));
        return;
      }
      default:
        this.addPart(role, block);
    }
  }

  /** Adds a part to the message that continues, or to a new one of this role. */
  addPart(role: string, block: Block): void {
    const part = role === "assistant" ? outputPart(block) : inputPart(block);
    if (!part) return;
    const mark = this.#isOwn ? markOf(block) : undefined;
    if (!this.#parts || mark !== undefined) {
      const own = mark !== undefined && instructionRoles.includes(mark) ? mark : role;
      const phase = block.kind.case === "text" ? phaseOf(block.kind.value) : {};
      const parts: JsonValue[] = [];
      this.input.push({ type: "message", role: own, content: parts, ...phase });
      this.#parts = parts;
    }
    this.#parts.push(part);
  }

  #addItem(item: JsonObject): void {
    this.endMessage();
    this.input.push(item);
  }
}

function phaseOf({ phase }: TextBlock): JsonObject {
  return phase === undefined ? {} : { phase };
}

function reasoningItem(thinking: string, encrypted: string): JsonObject {
  const summary = thinking === "" ? [] : [{ type: "summary_text", text: thinking }];
  return { type: "reasoning", summary, encrypted_content: encrypted };
}

function outputPart(block: Block): JsonObject | undefined {
  const part = block.kind.case === "text" ? toPart(block) : undefined;
  return part && { type: "output_text", text: part.text ?? "" };
}

/** A part for the user's side, from the part that chat has for the block. */
function inputPart(block: Block): JsonObject | undefined {
  const { kind, extensions } = block;
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
      const { url = "" } = isObject(part.image_url) ? part.image_url : {};
      const detail = typeof extensions?.detail === "string" ? extensions.detail : undefined;
      return { type: "input_image", image_url: url, ...(detail !== undefined && { detail }) };
    }
    case "file":
      return isObject(part.file) ? { type: "input_file", ...part.file } : undefined;
    default:
      return undefined;
  }
}

function encodeCall(block: Block, { id, name, input }: ToolUseBlock, isOwn: boolean): JsonObject {
  const names = { call_id: id, ...(isOwn ? namesOf(block, name) : { name }) };
  if (isOwn && markOf(block) === "custom_tool_call")
    return { type: "custom_tool_call", ...names, input: input?.input ?? "" };
  return { type: "function_call", ...names, arguments: JSON.stringify(input ?? {}) };
}

/** The names that `extensions` keep of a tool or call; otherwise the flat name. */
export function namesOf(
  { extensions }: { extensions?: JsonObject | undefined },
  flat: string,
): ToolNames {
  const { name, namespace } = extensions ?? {};
  return typeof namespace === "string" && typeof name === "string"
    ? { name, namespace }
    : { name: flat };
}

function encodeResult(
  block: Block,
  { toolUseId, content, form }: ToolResultBlock,
  isOwn: boolean,
): JsonObject {
  const isCustom = isOwn && markOf(block) === "custom_tool_call_output";
  const parts = content.map(inputPart).filter((part) => part !== undefined);
  const [first] = parts;
  const isText = parts.length === 0 || form === ContentForm.TEXT;
  return {
    type: isCustom ? "custom_tool_call_output" : "function_call_output",
    call_id: toolUseId,
    output: isText ? (first?.text ?? "") : parts,
  };
}
