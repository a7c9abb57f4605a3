// The prompt of the simulated model: its segments in the order in which a provider caches them
// (tools, system, messages), its last turn, and the prompt cache.

import { createHash } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import {
  type Block,
  type CacheControl,
  type Message,
  Role,
  type Source,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { tokensOf } from "./tokens.ts";

/** A piece of the prompt. */
export type Segment = {
  /** Identifies the piece. */
  readonly content: string;
  /** Its size, from which tokens are counted. */
  readonly bytes: number;
  /** Marks the end of a prefix to be cached. */
  readonly cacheControl?: CacheControl;
};

// Every image or document counts the same: nothing here looks into it.
const attachmentBytes = 4_000;

/** Splits a request into segments. */
export function segmentPrompt(request: GenerateRequest): Segment[] {
  const segments: Segment[] = [];
  for (const tool of request.tools) {
    const content = `${tool.type ?? ""}${tool.name}${tool.description ?? ""}${stringify(tool.inputSchema)}`;
    segments.push(segment(content, Buffer.byteLength(content), tool.cacheControl));
  }
  for (const block of request.system?.content ?? []) segments.push(segmentBlock("system", block));
  for (const message of request.messages) {
    for (const block of message.content)
      segments.push(segmentBlock(`message ${message.role}`, block));
  }
  const last = segments.at(-1);
  if (request.cacheControl !== undefined && last !== undefined && last.cacheControl === undefined) {
    segments[segments.length - 1] = { ...last, cacheControl: request.cacheControl };
  }
  return segments;
}

function segmentBlock(role: string, block: Block): Segment {
  const { content, bytes } = measureBlock(block);
  return segment(`${role}\0${content}`, bytes, block.cacheControl);
}

function segment(content: string, bytes: number, cacheControl: CacheControl | undefined): Segment {
  return cacheControl === undefined ? { content, bytes } : { content, bytes, cacheControl };
}

function measureBlock({ kind }: Block): { content: string; bytes: number } {
  switch (kind.case) {
    case "text":
      return measureText(kind.value.text);
    case "image":
    case "document":
      return measureSource(kind.value.source);
    case "toolUse":
      return measureText(kind.value.name + stringify(kind.value.input));
    case "toolResult": {
      const parts = kind.value.content.map(measureBlock);
      const content = kind.value.toolUseId + parts.map((part) => part.content).join("\0");
      return { content, bytes: parts.reduce((sum, part) => sum + part.bytes, 0) };
    }
    case "thinking":
      return measureText(kind.value.thinking);
    case "redactedThinking":
      return measureText(kind.value.data);
    case "other":
      return measureText(stringify(kind.value));
    default:
      return measureText("");
  }
}

function measureSource(source: Source | undefined): { content: string; bytes: number } {
  const kind = source?.kind;
  switch (kind?.case) {
    case "text":
      return measureText(kind.value.data);
    case "base64":
      return {
        content: createHash("sha256").update(kind.value.data).digest("base64"),
        bytes: attachmentBytes,
      };
    case "url":
      return { content: kind.value, bytes: attachmentBytes };
    default:
      return { content: stringify(kind?.value), bytes: attachmentBytes };
  }
}

function measureText(text: string): { content: string; bytes: number } {
  return { content: text, bytes: Buffer.byteLength(text) };
}

function stringify(value: JsonObject | undefined): string {
  return value === undefined ? "" : JSON.stringify(value);
}

/** The last turn of the user. */
export type LastTurn = {
  /** The last text of the user. Reminders that clients add in tags are left out. */
  readonly text: string;
  /** Tool results, in order. */
  readonly results: readonly {
    readonly tool: string;
    readonly text: string;
    readonly isError: boolean;
  }[];
};

/**
 * Reads the last turn of the user. `system` entries after it are ignored; without such a turn, the
 * last entry takes its place.
 */
export function readLastTurn(messages: readonly Message[]): LastTurn {
  const last =
    messages.findLast((message) => message.role === Role.USER) ??
    messages.findLast((message) => message.role === Role.SYSTEM);
  let text = "";
  const tools = toolsOfCalls(messages);
  const results: { tool: string; text: string; isError: boolean }[] = [];
  for (const { kind } of last?.content ?? []) {
    if (kind.case === "text" && !kind.value.text.trimStart().startsWith("<system-reminder>"))
      text = kind.value.text;
    if (kind.case !== "toolResult") continue;
    const texts = kind.value.content.flatMap((block) =>
      block.kind.case === "text" ? [block.kind.value.text] : [],
    );
    results.push({
      tool: tools.get(kind.value.toolUseId) ?? "tool",
      text: texts.join("\n"),
      isError: kind.value.isError ?? false,
    });
  }
  return { text, results };
}

/** Tool names by the ids of their calls. */
function toolsOfCalls(messages: readonly Message[]): ReadonlyMap<string, string> {
  const tools = new Map<string, string>();
  for (const { content } of messages) {
    for (const { kind } of content) {
      if (kind.case === "toolUse" && !tools.has(kind.value.id))
        tools.set(kind.value.id, kind.value.name);
    }
  }
  return tools;
}

/** Input tokens by category; the four are disjoint. */
export type InputTokens = {
  readonly input: number;
  readonly read: number;
  readonly write5m: number;
  readonly write1h: number;
};

const prefixesMax = 10_000;
const lifeMs = { "5m": 300_000, "1h": 3_600_000 };

/** Stores hashes of the marked prefixes of one provider, for as long as their marks state. */
export class PromptCache {
  // Hash → time of expiry, least recently used first.
  readonly #prefixes = new Map<string, number>();

  /**
   * Counts the input tokens of a prompt and stores its marked prefixes. Without marks, nothing is
   * read, written or hashed.
   */
  count(model: string, segments: readonly Segment[], nowMs: number): InputTokens {
    const total = tokensOf(segments.reduce((sum, { bytes }) => sum + bytes, 0));
    if (!segments.some(({ cacheControl }) => cacheControl))
      return { input: total, read: 0, write5m: 0, write1h: 0 };

    const marks = findMarks(model, segments);
    const known = marks.findLast(({ key }) => this.#isKnown(key, nowMs));
    const read = known?.tokens ?? 0;
    let counted = read;
    let write5m = 0;
    let write1h = 0;
    for (const { key, ttl, tokens } of marks) {
      this.#store(key, ttl, nowMs);
      if (tokens <= counted) continue;
      if (ttl === "1h") write1h += tokens - counted;
      else write5m += tokens - counted;
      counted = tokens;
    }
    return { input: total - counted, read, write5m, write1h };
  }

  #isKnown(key: string, nowMs: number): boolean {
    return (this.#prefixes.get(key) ?? Number.NEGATIVE_INFINITY) > nowMs;
  }

  #store(key: string, ttl: "5m" | "1h", nowMs: number): void {
    this.#prefixes.delete(key);
    this.#prefixes.set(key, nowMs + lifeMs[ttl]);
    for (const oldest of this.#prefixes.keys()) {
      if (this.#prefixes.size <= prefixesMax) break;
      this.#prefixes.delete(oldest);
    }
  }
}

function findMarks(
  model: string,
  segments: readonly Segment[],
): { key: string; ttl: "5m" | "1h"; tokens: number }[] {
  const hash = createHash("sha256").update(model);
  let bytes = 0;
  return segments.flatMap((segment) => {
    hash.update(`\0${segment.content.length}\0`).update(segment.content);
    bytes += segment.bytes;
    if (segment.cacheControl === undefined) return [];
    const ttl = segment.cacheControl.ttl === "1h" ? "1h" : "5m";
    return [{ key: hash.copy().digest("base64"), ttl, tokens: tokensOf(bytes) } as const];
  });
}
