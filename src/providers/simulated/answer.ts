// Plans the answer of the simulated model: blocks that depend only on the request. The same request
// always gets the same answer, except for ids.

import { createHash } from "node:crypto";
import type { Tool } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { type BlockKind, type Directives, readDirectives } from "./directives.ts";
import { type LastTurn, readLastTurn } from "./prompt.ts";
import { answerFor, argumentsFor } from "./schema-values.ts";
import { cutText, fillText, tokensOf } from "./tokens.ts";

/** A planned block. */
export type PlannedBlock =
  | { readonly kind: "text"; readonly text: string }
  | {
      readonly kind: "thinking";
      readonly thinking: string;
      readonly isShown: boolean;
      readonly signature: string;
    }
  /** `input` is JSON. */
  | { readonly kind: "tool_use"; readonly name: string; readonly input: string };

export type Plan = {
  readonly blocks: readonly PlannedBlock[];
  readonly stopReason: string;
  readonly stopSequence?: string;
  /** Includes thinking. */
  readonly outputTokens: number;
  readonly thinkingTokens: number;
  readonly directives: Directives;
};

/**
 * Plans the answer to a request with a prompt of `inputTokens`. Throws `invalid_request` for a
 * wrong directive.
 */
export function planAnswer(
  request: GenerateRequest,
  inputTokens: number,
  obeysDirectives: boolean,
): Plan {
  const turn = readLastTurn(request.messages);
  const { directives, rest } = obeysDirectives
    ? readDirectives(turn.text)
    : { directives: {}, rest: turn.text };
  const wanted = directives.blocks ?? chooseBlocks(request, { ...turn, text: rest });
  const tools = chooseTools(request, { ...turn, text: rest });
  const fullText = writeText(request, { ...turn, text: rest }, inputTokens);
  const text = directives.tokens === undefined ? fullText : fillText(fullText, directives.tokens);
  const blocks = wanted.flatMap((kind): PlannedBlock[] => {
    if (kind === "text") return text === "" ? [] : [{ kind, text }];
    if (kind === "thinking") return [writeThinking(request, rest)];
    return tools.length > 0 ? tools.map(callTool) : [exampleCall];
  });
  return finish(request, blocks, directives);
}

/** Where the request has no tool, and a directive wants a call. */
const exampleCall = { kind: "tool_use", name: "example", input: '{"example":true}' } as const;

function chooseBlocks(request: GenerateRequest, turn: LastTurn): BlockKind[] {
  const thinks = request.thinking !== undefined && request.thinking.type !== "disabled";
  const calls = chooseTools(request, turn).length > 0;
  return [
    ...(thinks ? (["thinking"] as const) : []),
    "text",
    ...(calls ? (["tool_use"] as const) : []),
  ];
}

// Calls the tools that the user's text names. After a tool result it answers with text, unless the
// request demands a call.
function chooseTools(request: GenerateRequest, turn: LastTurn): Tool[] {
  const { type = "auto", name, disableParallelToolUse = false } = request.toolChoice ?? {};
  const callable = request.tools.filter((tool) => tool.name !== "");
  if (type === "none") return [];
  if (type === "tool") return callable.filter((tool) => tool.name === name).slice(0, 1);
  const named =
    turn.results.length > 0 ? [] : callable.filter((tool) => isNamed(tool.name, turn.text));
  if (named.length === 0) return type === "any" ? callable.slice(0, 1) : [];
  return disableParallelToolUse ? named.slice(0, 1) : named;
}

function isNamed(tool: string, text: string): boolean {
  const at = text.indexOf(tool);
  const around = `${text[at - 1] ?? " "}${text[at + tool.length] ?? " "}`;
  return at >= 0 && !/[A-Za-z0-9_-]/.test(around);
}

function writeText(
  request: GenerateRequest,
  { text, results }: LastTurn,
  inputTokens: number,
): string {
  const schema = request.outputConfig?.format?.schema;
  if (typeof schema === "object" && schema !== null && !Array.isArray(schema))
    return JSON.stringify(answerFor(schema));
  if (results.length > 0) {
    return results
      .map(
        (result) =>
          `${result.tool} ${result.isError ? "failed" : "answered"}: ${cutText(result.text, 400)}`,
      )
      .join("\n");
  }
  const count = request.messages.length;
  const read = `I have read ${count} ${count === 1 ? "message" : "messages"} (${inputTokens} tokens).`;
  return `This is the simulated provider, playing ${request.model}. ${read}${text === "" ? "" : ` You said: ${cutText(text, 400)}`}`;
}

function writeThinking(request: GenerateRequest, text: string): PlannedBlock {
  const thinking = `The last message is ${Buffer.byteLength(text)} bytes long. I shall answer it plainly.`;
  const isShown = request.thinking?.extensions?.display !== "omitted";
  const signature = createHash("sha256").update(`${request.model}\0${thinking}`).digest("base64");
  return { kind: "thinking", thinking, isShown, signature };
}

function callTool(tool: Tool): PlannedBlock {
  return {
    kind: "tool_use",
    name: tool.name,
    input: JSON.stringify(argumentsFor(tool.inputSchema)),
  };
}

// Applies the limits of the request, and counts the tokens.
function finish(
  request: GenerateRequest,
  blocks: readonly PlannedBlock[],
  directives: Directives,
): Plan {
  const calls = blocks.some((block) => block.kind === "tool_use");
  let stopReason = directives.stopReason ?? (calls ? "tool_use" : "end_turn");
  let stopSequence: string | undefined;
  let remaining = request.maxTokens ?? Number.POSITIVE_INFINITY;
  let outputTokens = 0;
  let thinkingTokens = 0;
  const limited: PlannedBlock[] = [];
  for (const planned of blocks) {
    const stop = findStop(planned, request.stopSequences);
    if (stop) {
      stopReason = "stop_sequence";
      stopSequence = stop.sequence;
    }
    let block = limitBlock(planned, stop?.at, request.thinking?.budgetTokens);
    const tokens = tokensOf(Buffer.byteLength(contentOf(block)));
    const fits = tokens <= remaining;
    const granted = fits ? tokens : remaining;
    if (!fits) {
      block = cutBlock(block, granted * 4);
      stopReason = "max_tokens";
      stopSequence = undefined;
    }
    remaining -= granted;
    outputTokens += granted;
    if (block.kind === "thinking") thinkingTokens += granted;
    if (fits || granted > 0) limited.push(block);
    if (!fits || stopSequence !== undefined) break;
  }
  return {
    blocks: limited,
    stopReason,
    ...(stopSequence !== undefined && { stopSequence }),
    outputTokens,
    thinkingTokens,
    directives,
  };
}

/** A block up to the place where its text stops, or within the budget of thinking. */
function limitBlock(
  block: PlannedBlock,
  stopAt: number | undefined,
  thinkingTokens: number | undefined,
): PlannedBlock {
  if (block.kind === "text" && stopAt !== undefined)
    return { ...block, text: block.text.slice(0, stopAt) };
  if (block.kind === "thinking" && thinkingTokens !== undefined)
    return { ...block, thinking: cutText(block.thinking, thinkingTokens * 4) };
  return block;
}

function findStop(
  block: PlannedBlock,
  sequences: readonly string[],
): { at: number; sequence: string } | undefined {
  if (block.kind !== "text") return undefined;
  let first: { at: number; sequence: string } | undefined;
  for (const sequence of sequences) {
    const at = sequence === "" ? -1 : block.text.indexOf(sequence);
    if (at >= 0 && (first === undefined || at < first.at)) first = { at, sequence };
  }
  return first;
}

function contentOf(block: PlannedBlock): string {
  switch (block.kind) {
    case "text":
      return block.text;
    case "thinking":
      return block.thinking;
    case "tool_use":
      return block.input;
  }
}

function cutBlock(block: PlannedBlock, bytes: number): PlannedBlock {
  switch (block.kind) {
    case "text":
      return { ...block, text: cutText(block.text, bytes) };
    case "thinking":
      return { ...block, thinking: cutText(block.thinking, bytes) };
    case "tool_use":
      return { ...block, input: cutText(block.input, bytes) };
  }
}
