// How large a prompt is, before any provider has seen it. Pure; walks the request once.

import type { JsonValue } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Block, CacheControl, Source } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

export type PromptSize = {
  /** UTF-8 bytes of everything that is text, JSON punctuation left out. */
  readonly textBytes: number;
  readonly images: number;
  /** About how many pages its documents have, at most 30; those in plain text are left out. */
  readonly pages: number;
  /** Something whose size cannot be told from here: a PDF, or a document behind an address. */
  readonly unbounded: boolean;
  /** What the mostExpensiveInput token of this prompt can be. */
  readonly mostExpensiveInput: InputCategory;
};

// The mostExpensiveInput image that a provider of native models counts: 1568 × 1568 pixels are
// 3,279 tokens, larger ones are scaled down; the newest accept 2576 pixels at 4,784.
const tokensPerImage = 4_800;
// Most of what clients send as PDF has about 100 KB a page, text with a few pictures; scans have
// more. Behind an address may be anything. Guesses are charged where a provider reports no usage,
// so they end far below what a hold allows for, which is the whole window.
const bytesPerPage = 100_000;
const pagesMax = 30;
/** Tokens of an image or a page as they mostly are. */
const tokensPerPicture = 1_600;
// Role markers, block boundaries and the like, per request.
const framingTokens = 64;

/**
 * Most tokens that a prompt of this size can be. No tokenizer in use makes more than one token of
 * two bytes of text.
 */
export function maxTokensOf(
  { textBytes, images, unbounded }: PromptSize,
  contextTokens: number,
): number {
  if (unbounded) return contextTokens;
  return Math.min(
    contextTokens,
    Math.ceil(textBytes / 2) + images * tokensPerImage + framingTokens,
  );
}

/** About how many tokens a prompt of this size is; at least 1. */
export function estimatedTokensOf({ textBytes, images, pages }: PromptSize): number {
  return Math.max(1, Math.ceil(textBytes / 4) + (images + pages) * tokensPerPicture);
}

export function measurePrompt(request: GenerateRequest): PromptSize {
  const size = {
    textBytes: 0,
    images: 0,
    pages: 0,
    unbounded: false,
    mostExpensiveInput: InputCategory.UNSPECIFIED as InputCategory,
  };

  const addText = (text: string) => {
    size.textBytes += Buffer.byteLength(text);
  };
  const addCaching = (ttl: JsonValue | undefined) => {
    if (ttl === "1h") size.mostExpensiveInput = InputCategory.CACHE_WRITE_1H;
    else if (size.mostExpensiveInput === InputCategory.UNSPECIFIED)
      size.mostExpensiveInput = InputCategory.CACHE_WRITE_5M;
  };
  const addCacheControl = (control: CacheControl | undefined) => {
    if (control) addCaching(control.ttl ?? control.extensions?.ttl);
  };
  const addJson = (value: JsonValue | undefined): void => {
    if (typeof value === "string") addText(value);
    else if (typeof value === "number" || typeof value === "boolean") size.textBytes += 8;
    else if (Array.isArray(value)) value.forEach(addJson);
    else if (value) {
      // No list of entries: a body may have a million members.
      for (const name in value) {
        const member = value[name];
        addText(name);
        if (
          name === "cache_control" &&
          member !== null &&
          typeof member === "object" &&
          !Array.isArray(member)
        )
          addCaching(member.ttl);
        addJson(member);
      }
    }
  };
  const addSource = (source: Source | undefined, isImage: boolean) => {
    if (source?.kind.case === "text") addText(source.kind.value.data);
    else if (isImage) size.images += 1;
    else {
      size.unbounded = true;
      size.pages = Math.min(pagesMax, size.pages + pagesOf(source));
    }
  };
  const addBlocks = (blocks: readonly Block[]): void => {
    for (const { kind, cacheControl, extensions } of blocks) {
      addCacheControl(cacheControl);
      if (extensions) addJson(extensions);
      switch (kind.case) {
        case "text":
          addText(kind.value.text);
          break;
        case "thinking":
          addText(kind.value.thinking);
          addText(kind.value.signature);
          break;
        case "redactedThinking":
          addText(kind.value.data);
          break;
        case "image":
          addSource(kind.value.source, true);
          break;
        case "document":
          addText(kind.value.title ?? "");
          addSource(kind.value.source, false);
          break;
        case "toolUse":
          addText(kind.value.name);
          addJson(kind.value.input);
          break;
        case "toolResult":
          addBlocks(kind.value.content);
          break;
        case "other":
          addJson(kind.value);
          break;
      }
    }
  };

  addCacheControl(request.cacheControl);
  if (request.extensions) addJson(request.extensions);
  if (request.system) addBlocks(request.system.content);
  for (const { content, extensions } of request.messages) {
    size.textBytes += 8;
    addBlocks(content);
    if (extensions) addJson(extensions);
  }
  for (const { name, description, inputSchema, cacheControl, extensions } of request.tools) {
    addText(name);
    addText(description ?? "");
    addJson(inputSchema);
    addCacheControl(cacheControl);
    if (extensions) addJson(extensions);
  }
  addJson(request.outputConfig?.format);
  return size;
}

function pagesOf(source: Source | undefined): number {
  if (source?.kind.case !== "base64") return 1;
  const bytes = (source.kind.value.data.length * 3) / 4;
  return Math.max(1, Math.ceil(bytes / bytesPerPage));
}
