// The turns of a conversation and its instruction, as the decoders of OpenAI's two formats build
// them: by the rules of the native format, which are the strictest.

import { create } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  type Message,
  Role,
  type System,
  SystemSchema,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import { countItems, jsonItemsMax, tooManyItems } from "./json.ts";

export function textBlock(text: string): Block {
  return create(BlockSchema, { kind: { case: "text", value: { text } } });
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
 * Joins all instructions of the conversation, in their order. The result is a list only if cache
 * marks need the boundaries between them.
 */
export function joinInstructions(blocks: readonly Block[]): System | undefined {
  if (blocks.length === 0) return undefined;
  if (blocks.some((block) => block.cacheControl))
    return create(SystemSchema, { content: [...blocks] });
  const text = blocks
    .map((block) => (block.kind.case === "text" ? block.kind.value.text : ""))
    .join("\n");
  return create(SystemSchema, { content: [textBlock(text)], form: ContentForm.TEXT });
}

/**
 * Adapts turns to the native rules: merges neighbours of one role, puts tool results first in a
 * user turn (providers require them right after the call), omits blank text and empty turns, and
 * trims the end of a final assistant turn. Invents nothing: no stub turns, no missing tool results.
 * Changes the given messages.
 */
export function normaliseTurns(turns: readonly Message[]): Message[] {
  const merged: Message[] = [];
  for (const turn of turns) {
    const content = turn.content.filter((block) => !isBlankText(block));
    if (content.length === 0) continue;
    const last = merged.at(-1);
    if (last?.role === turn.role) {
      for (const block of content) last.content.push(block);
      continue;
    }
    turn.content = content;
    merged.push(turn);
  }
  for (const turn of merged) {
    if (turn.role === Role.USER) turn.content = resultsFirst(turn.content);
    setForm(turn);
  }
  trimFinalAnswer(merged.at(-1));
  return merged;
}

function resultsFirst(content: Block[]): Block[] {
  const isResult = (block: Block) => block.kind.case === "toolResult";
  if (!content.some(isResult)) return content;
  return [...content.filter(isResult), ...content.filter((block) => !isResult(block))];
}

// Every provider accepts a plain string.
export function setForm(turn: Message): void {
  const [only, second] = turn.content;
  const isPlain = only?.kind.case === "text" && !second && !only.cacheControl;
  turn.form = isPlain ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
}

function trimFinalAnswer(turn: Message | undefined): void {
  const last = turn?.role === Role.ASSISTANT ? turn.content.at(-1) : undefined;
  if (last?.kind.case === "text") last.kind.value.text = last.kind.value.text.trimEnd();
}
