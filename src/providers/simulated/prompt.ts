// A request as the simulated model reads it: a line of segments in the order in which a provider
// caches them (tools, system, messages), and what its last turn asks for.

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

/** A piece of the prompt. */
export type Segment = {
  /** What tells it from another piece. */
  readonly content: string;
  /** Its weight. */
  readonly bytes: number;
  /** Marks the end of a prefix that shall be cached. */
  readonly cacheControl?: CacheControl;
};

// An image or a document weighs the same whatever its size, since nothing here looks at it.
const attachmentBytes = 4_000;

/** The request as segments. */
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
  const { content, bytes } = weighBlock(block);
  return segment(`${role}\0${content}`, bytes, block.cacheControl);
}

function segment(content: string, bytes: number, cacheControl: CacheControl | undefined): Segment {
  return cacheControl === undefined ? { content, bytes } : { content, bytes, cacheControl };
}

function weighBlock({ kind }: Block): { content: string; bytes: number } {
  switch (kind.case) {
    case "text":
      return weighText(kind.value.text);
    case "image":
    case "document":
      return weighSource(kind.value.source);
    case "toolUse":
      return weighText(kind.value.name + stringify(kind.value.input));
    case "toolResult": {
      const parts = kind.value.content.map(weighBlock);
      const content = kind.value.toolUseId + parts.map((part) => part.content).join("\0");
      return { content, bytes: parts.reduce((sum, part) => sum + part.bytes, 0) };
    }
    case "thinking":
      return weighText(kind.value.thinking);
    case "redactedThinking":
      return weighText(kind.value.data);
    case "other":
      return weighText(stringify(kind.value));
    default:
      return weighText("");
  }
}

function weighSource(source: Source | undefined): { content: string; bytes: number } {
  const kind = source?.kind;
  switch (kind?.case) {
    case "text":
      return weighText(kind.value.data);
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

function weighText(text: string): { content: string; bytes: number } {
  return { content: text, bytes: Buffer.byteLength(text) };
}

function stringify(value: JsonObject | undefined): string {
  return value === undefined ? "" : JSON.stringify(value);
}

/** What the last turn of a conversation holds. */
export type LastTurn = {
  /** Last text of the user. Reminders that clients wrap in tags are not the user's words. */
  readonly text: string;
  /** Results of tools, in order. */
  readonly results: readonly {
    readonly tool: string;
    readonly text: string;
    readonly isError: boolean;
  }[];
};

/** The last turn of the user; `system` entries after it are passed over. */
export function readLastTurn(messages: readonly Message[]): LastTurn {
  const last = messages.findLast((message) => message.role === Role.USER);
  let text = "";
  const tools = toolsOfCalls(messages);
  const results: { tool: string; text: string; isError: boolean }[] = [];
  for (const { kind } of last?.content ?? []) {
    if (kind.case === "text" && !kind.value.text.trimStart().startsWith("<system-reminder>"))
      text = kind.value.text;
    if (kind.case !== "toolResult") continue;
    const said = kind.value.content.flatMap((block) =>
      block.kind.case === "text" ? [block.kind.value.text] : [],
    );
    results.push({
      tool: tools.get(kind.value.toolUseId) ?? "tool",
      text: said.join("\n"),
      isError: kind.value.isError ?? false,
    });
  }
  return { text, results };
}

/** Names of the tools by the ids of their calls. */
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
