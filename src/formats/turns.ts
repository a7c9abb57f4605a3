// The turns of a conversation and its instruction, by the rules of the native format, which are the
// strictest. The decoders of OpenAI's two formats keep every message as it came; the encoders of
// other formats fit them here.

import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  Format,
  type Message,
  Role,
  type SystemPrompt,
  SystemPromptSchema,
  type ToolResultBlock,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

import { ApiError } from "../base/errors.ts";
import { isOpenai } from "./codec.ts";
import type { Fit } from "./fit.ts";
import { countItems, jsonItemsMax, tooManyItems } from "./json.ts";

export function textBlock(text: string): Block {
  return create(BlockSchema, { kind: { case: "text", value: { text } } });
}

/** The text of a conversation of one message, which is plain text. */
export function textOfOnly(messages: readonly Message[]): string | undefined {
  const [only, second] = messages;
  const [block] = only?.content ?? [];
  const isPlain = !second && only?.form === ContentForm.TEXT && !only.source;
  return isPlain && block?.kind.case === "text" ? block.kind.value.text : undefined;
}

export function isBlankText(block: Block): boolean {
  return block.kind.case === "text" && block.kind.value.text.trim() === "";
}

/**
 * Throws `request_too_large` if the JSON texts of the arguments of all calls have too many items:
 * they are text inside JSON, so the limit of the items of a body does not count theirs.
 */
export function checkArguments(texts: readonly string[]): void {
  const characters = texts.reduce((sum, { length }) => sum + length, 0);
  // Every item has at least one character.
  if (characters <= jsonItemsMax) return;
  let items = 0;
  for (const text of texts) {
    items += countItems(Buffer.from(text), jsonItemsMax - items);
    if (items > jsonItemsMax) throw tooManyItems(jsonItemsMax);
  }
}

/**
 * The turns of a request in one of OpenAI's formats as providers of other formats accept them. Of a
 * chat request, all instructions become one; of a Responses request, those before the first turn,
 * and later ones keep their place, because the provider has cached what is before them. Neighbours
 * of one role are merged, tool results come first in a user turn (providers require them right
 * after the call), blank text and empty turns are omitted, and the end of a final assistant turn is
 * trimmed. Invents nothing: no stub turns, no missing tool results. Does not change `request`;
 * requests of other formats are returned as they are.
 *
 * Throws `feature_not_offered` for a part of a user's message that no other format has.
 */
export function fitTurns(request: GenerateRequest, fit?: Fit): GenerateRequest {
  if (!isOpenai(request.origin?.format)) return request;
  const isChat = request.origin?.format === Format.CHAT;
  const { instructions, turns } = splitInstructions(request, isChat, fit);
  let messages = mergeTurns(turns);
  const last = messages.length === 0 ? instructions.pop() : undefined;
  // Of instructions alone, the last one is the message.
  if (last) messages = mergeTurns([turnOf(Role.SYSTEM, last)]);
  const joined = isChat ? joinInstructions(instructions.flat()) : listOf(instructions.flat());
  return { ...request, system: joined, messages };
}

/** The instructions of a request, and its turns. */
function splitInstructions(
  { system, messages }: GenerateRequest,
  isChat: boolean,
  fit: Fit | undefined,
): { readonly instructions: Block[][]; readonly turns: readonly Message[] } {
  const instructions: Block[][] = system ? [[...system.content]] : [];
  const turns: Message[] = [];
  /** Instructions that wait for the results of the open calls, which must follow the calls. */
  let waiting: Message[] = [];
  /** Ids of the calls without a result. */
  const open = new Set<string>();
  for (const [index, message] of messages.entries()) {
    if (message.role === Role.SYSTEM) {
      const content = message.content.filter((block) => !isBlankText(block));
      if (content.length === 0) continue;
      if (isChat || turns.length === 0) instructions.push(content);
      else (open.size > 0 ? waiting : turns).push({ ...message, content });
      continue;
    }
    checkParts(message, index, isChat, fit);
    noteCalls(message, open);
    const content = message.content.filter(({ kind }) => kind.case !== "other");
    turns.push(content.length === message.content.length ? message : { ...message, content });
    if (open.size === 0) {
      turns.push(...waiting);
      waiting = [];
    }
  }
  return { instructions, turns: [...turns, ...waiting] };
}

function noteCalls({ content }: Message, open: Set<string>): void {
  for (const { kind } of content) {
    if (kind.case === "toolUse") open.add(kind.value.id);
    if (kind.case === "toolResult") open.delete(kind.value.toolUseId);
  }
}

/** A message without anything but its role and its content. */
export function turnOf(role: Role, content: Block[]): Message {
  const form = ContentForm.UNSPECIFIED;
  return { $typeName: "gateway.inference.v1.Message", role, content, form };
}

/**
 * Joins all instructions of the conversation, in their order. The result is a list only if cache
 * marks need the boundaries between them.
 */
function joinInstructions(blocks: readonly Block[]): SystemPrompt | undefined {
  if (blocks.length === 0) return undefined;
  if (blocks.some((block) => block.cacheControl))
    return create(SystemPromptSchema, { content: [...blocks] });
  const text = blocks
    .map((block) => (block.kind.case === "text" ? block.kind.value.text : ""))
    .join("\n");
  return create(SystemPromptSchema, { content: [textBlock(text)], form: ContentForm.TEXT });
}

function listOf(blocks: readonly Block[]): SystemPrompt | undefined {
  if (blocks.length === 0) return undefined;
  const form = blocks.length === 1 ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
  return create(SystemPromptSchema, { content: [...blocks], form });
}

// The question may depend on what a user's message holds, so a part of it is never left out.
function checkParts(
  { role, content, source }: Message,
  index: number,
  isChat: boolean,
  fit: Fit | undefined,
): void {
  const at = `${isChat ? "messages" : "input"}[${index}]`;
  const isOutput = !isChat && source?.type !== undefined && source.type !== "message";
  for (const [part, { kind }] of content.entries()) {
    if (kind.case === "toolResult") checkResult(kind.value, at, isChat, fit);
    if (kind.case === "other") {
      if (kind.value.type === "compaction_trigger") throw notCompacted(at);
      if (role === Role.USER && !isOutput) throw notKnown(`${at}.content[${part}]`, kind.value);
      const why = hostedItem.test(typeOf(kind.value)) ? "hosted" : "unsupported";
      fit?.leaveOut({ where: at, what: typeOf(kind.value), why });
    }
  }
}

function checkResult(
  { content }: ToolResultBlock,
  at: string,
  isChat: boolean,
  fit: Fit | undefined,
): void {
  for (const [index, { kind }] of content.entries()) {
    if (kind.case !== "other") continue;
    const path = `${at}.${isChat ? "content" : "output"}[${index}]`;
    // A part of one result must not end a session.
    if (isChat) throw notKnown(path, kind.value);
    fit?.leaveOut({ where: path, what: typeOf(kind.value), why: "unsupported" });
  }
}

/** Items of tools that the vendor runs itself. */
const hostedItem =
  /^(web_search|file_search|code_interpreter|image_generation|computer|mcp|program)(_|$)/;

function notCompacted(at: string): ApiError {
  const field = `${at}.type`;
  const message =
    `${field}: the provider of this model does not compact conversations. In Codex, give the ` +
    "provider another name than OpenAI: it then compacts with an ordinary request.";
  return new ApiError("feature_not_offered", { field, message });
}

function notKnown(at: string, part: JsonObject): ApiError {
  const field = `${at}.type`;
  return new ApiError("feature_not_offered", {
    field,
    message: `${field}: the provider of this model does not accept parts of type ${typeOf(part)}.`,
  });
}

function typeOf({ type }: JsonObject): string {
  return typeof type === "string" ? type.slice(0, 64) : "";
}

function mergeTurns(turns: readonly Message[]): Message[] {
  const merged: Message[] = [];
  for (const turn of turns) {
    const content = turn.content.filter((block) => !isBlankText(block)).map(fitResult);
    if (content.length === 0 && !turn.attached) continue;
    const last = merged.at(-1);
    if (last?.role === turn.role) {
      for (const block of content) last.content.push(block);
      last.attached ??= turn.attached;
    } else merged.push({ ...turnOf(turn.role, content), attached: turn.attached });
  }
  const filled = merged.filter(({ content }) => content.length > 0);
  for (const turn of filled) {
    if (turn.role === Role.USER) turn.content = resultsFirst(turn.content);
    setForm(turn);
  }
  trimFinalAnswer(filled.at(-1));
  return filled;
}

/** A tool result without blank text, which providers reject. Other blocks stay as they are. */
function fitResult(block: Block): Block {
  if (block.kind.case !== "toolResult") return block;
  const { value } = block.kind;
  // `checkParts` has noted those of an unknown kind.
  const content = value.content.filter(
    (inner) => !isBlankText(inner) && inner.kind.case !== "other",
  );
  if (content.length > 0 && content.length === value.content.length) return block;
  const form = content.length === 0 ? ContentForm.ABSENT : value.form;
  return { ...block, kind: { case: "toolResult", value: { ...value, content, form } } };
}

function resultsFirst(content: Block[]): Block[] {
  const isResult = (block: Block) => block.kind.case === "toolResult";
  if (!content.some(isResult)) return content;
  return [...content.filter(isResult), ...content.filter((block) => !isResult(block))];
}

// Every provider accepts a plain string.
function setForm(turn: Message): void {
  const [only, second] = turn.content;
  const isPlain = only?.kind.case === "text" && !second && !only.cacheControl;
  turn.form = isPlain ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
}

function trimFinalAnswer(turn: Message | undefined): void {
  const last = turn?.role === Role.ASSISTANT ? turn.content.at(-1) : undefined;
  if (turn && last?.kind.case === "text") {
    const { value } = last.kind;
    const trimmed = { ...value, text: value.text.trimEnd() };
    turn.content[turn.content.length - 1] = { ...last, kind: { case: "text", value: trimmed } };
  }
}
