// What the native format demands of a conversation and chat does not. Nothing is invented: no stub
// turns, no missing tool results.

import {
  type Block,
  ContentForm,
  type Message,
  Role,
} from "../../../gen/gateway/inference/v1/content_pb.ts";

export function isBlankText(block: Block): boolean {
  return block.kind.case === "text" && block.kind.value.text.trim() === "";
}

/**
 * Merges neighbours of one role, puts tool results first in a user turn (the provider wants them
 * right after the call), leaves out blank text and what is empty then, and trims the end of a final
 * assistant turn, which the provider refuses otherwise. Takes over and changes the given messages.
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

// The plain string is the form that every provider takes.
function setForm(turn: Message): void {
  const [only, second] = turn.content;
  const isPlain = only?.kind.case === "text" && !second && !only.cacheControl;
  turn.form = isPlain ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
}

function trimFinalAnswer(turn: Message | undefined): void {
  const last = turn?.role === Role.ASSISTANT ? turn.content.at(-1) : undefined;
  if (last?.kind.case === "text") last.kind.value.text = last.kind.value.text.trimEnd();
}
