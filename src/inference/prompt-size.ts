// Measures a prompt without a provider, in one walk. Its tokens are counted by the tokens that a
// byte of text had in the last answers of the same account and model: a tokenizer would be slower,
// and wrong for other models (docs/decisions/0024-last-request-of-a-budget.md).

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type {
  Block,
  CacheControl,
  Message,
  Source,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";
import { isOpenai } from "../formats/codec.ts";
import { withoutTools } from "../formats/hosted-tools.ts";
import { isObject } from "../formats/json.ts";
import { isOurs } from "../formats/packs.ts";
import { textOfOnly } from "../formats/turns.ts";

export type PromptSize = {
  /** UTF-8 bytes of all text, without the punctuation of JSON. */
  readonly textBytes: number;
  readonly images: number;
  /** Estimated pages of its documents, at most 30. Documents in plain text count as text. */
  readonly pages: number;
  /** True if a part has an unknown size: a PDF, or a document at a URL. */
  readonly unbounded: boolean;
  /** The most expensive input category that a token of this prompt can belong to. */
  readonly mostExpensiveInput: InputCategory;
  /** True if the prompt has marks for the cache, and all of them ask for one hour. */
  readonly writesLiveLong: boolean;
};

// The most expensive image of a native model: 1568 × 1568 pixels are 3,279 tokens, and larger
// images are scaled down; the newest models accept 2576 pixels at 4,784 tokens.
const tokensPerImage = 4_800;
// A usual PDF has about 100 KB a page, text with a few pictures; a scan has more. The size of a
// document at a URL is unknown. This estimate is charged if the provider reports no usage, so it
// stays far below the hold, which covers the whole context window.
const bytesPerPage = 100_000;
const pagesMax = 30;
/** Tokens of a usual image or page. */
const tokensPerPicture = 1_600;
// Role markers, block boundaries and the like, per request.
const framingTokens = 64;

/**
 * The most tokens that a prompt of this size can have. No tokenizer in use makes more than one
 * token from two bytes of text.
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

/** The estimated tokens of a prompt of this size; at least 1. */
export function estimatedTokensOf({ textBytes, images, pages }: PromptSize): number {
  return Math.max(1, Math.ceil(textBytes / 4) + (images + pages) * tokensPerPicture);
}

export function measurePrompt(request: GenerateRequest): PromptSize {
  const size = {
    textBytes: 0,
    images: 0,
    pages: 0,
    unbounded: false,
    mostExpensiveInput: InputCategory.PLAIN as InputCategory,
    writesLiveLong: false,
  };
  let hasShortWrites = false;

  const addText = (text: string) => {
    size.textBytes += Buffer.byteLength(text);
  };
  const addCaching = (ttl: JsonValue | undefined) => {
    if (ttl === "1h") size.mostExpensiveInput = InputCategory.CACHE_WRITE_1H;
    else {
      hasShortWrites = true;
      if (size.mostExpensiveInput === InputCategory.PLAIN)
        size.mostExpensiveInput = InputCategory.CACHE_WRITE_5M;
    }
  };
  const addCacheControl = (control: CacheControl | undefined) => {
    if (control) addCaching(control.ttl ?? control.extensions?.ttl);
  };
  const addJson = (value: JsonValue | undefined): void => {
    if (typeof value === "string") addText(value);
    else if (typeof value === "number" || typeof value === "boolean") size.textBytes += 8;
    else if (Array.isArray(value)) value.forEach(addJson);
    else if (value) {
      // Not `Object.entries`, which would copy: a body may have hundreds of thousands of members.
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
    for (const { kind, cacheControl, attached, extensions } of blocks) {
      addCacheControl(cacheControl);
      if (extensions) addJson(extensions);
      // What a provider wrote and gets back, without its seal.
      if (attached?.members) addJson(attached.members);
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
          addJson(withoutImages(kind.value));
          break;
      }
    }
  };

  /** Adds the larger of two ways to say the same: no provider gets both. */
  const addLarger = (one: () => void, other: () => void) => {
    const before = size.textBytes;
    one();
    const first = size.textBytes;
    size.textBytes = before;
    other();
    size.textBytes = Math.max(first, size.textBytes);
  };
  const addMessage = ({ content, attached, extensions, source }: Message) => {
    size.textBytes += 8;
    if (extensions) addJson(extensions);
    if (attached?.members) addJson(attached.members);
    if (!source) {
      addBlocks(content);
      return;
    }
    // Of calls and thinking, the client's own words are around the content.
    addBlocks(content.filter(({ kind }) => !isAround(kind)));
    addLarger(
      () => addBlocks(content.filter(({ kind }) => isAround(kind))),
      () => addJson(withoutPacks(withoutTools(withoutImages(source)))),
    );
    size.images += imagesIn(source);
  };

  addCacheControl(request.cacheControl);
  const { extensions } = request;
  if (request.system) addBlocks(request.system.content);
  request.messages.forEach(addMessage);
  addLarger(
    () => {
      if (extensions && !isOpenai(request.origin?.format)) addJson(extensions);
      for (const { name, description, inputSchema, cacheControl, ...tool } of request.tools) {
        addText(name);
        addText(description ?? "");
        addJson(inputSchema);
        addCacheControl(cacheControl);
        if (tool.extensions) addJson(tool.extensions);
      }
      addJson(request.outputConfig?.format);
    },
    () => {
      if (!extensions || !isOpenai(request.origin?.format)) return;
      // A plain input is a message, too.
      const { input, ...members } = extensions;
      addJson(input === textOfOnly(request.messages) ? members : extensions);
    },
  );
  size.writesLiveLong = !hasShortWrites && size.mostExpensiveInput === InputCategory.CACHE_WRITE_1H;
  return size;
}

/** True for blocks that chat and Responses messages have beside their content. */
function isAround(kind: Block["kind"]): boolean {
  return ["toolUse", "thinking", "redactedThinking", "other"].includes(kind.case ?? "");
}

/** The images that a model made, in a message of the chat format or an item of Responses. */
function imagesIn({ type, result, images }: JsonObject): number {
  if (type === "image_generation_call") return typeof result === "string" ? 1 : 0;
  return Array.isArray(images) ? images.length : 0;
}

/** A message or an item without them. */
function withoutImages(source: JsonObject): JsonObject {
  if (imagesIn(source) === 0) return source;
  const { result, images, ...members } = source;
  return members;
}

/**
 * The members of a message as its client wrote it, without what this gateway sealed: providers get
 * that opened, or not at all, and the blocks have it.
 */
function withoutPacks({ encrypted_content, reasoning_details: details, ...members }: JsonObject) {
  const kept: JsonObject = { ...members };
  if (encrypted_content !== undefined && !isOurs(encrypted_content))
    kept.encrypted_content = encrypted_content;
  if (Array.isArray(details))
    kept.reasoning_details = details.filter(
      (entry) => !isObject(entry) || !(isOurs(entry.data) || isOurs(entry.signature)),
    );
  return kept;
}

function pagesOf(source: Source | undefined): number {
  if (source?.kind.case !== "base64") return 1;
  const bytes = (source.kind.value.data.length * 3) / 4;
  return Math.max(1, Math.ceil(bytes / bytesPerPage));
}

/** Bounds of a number of tokens. */
export type TokenRange = { readonly min: number; readonly max: number };

/** A count and the true number of tokens differ by at most this factor. */
const margin = 1.05;
/** Without answers: 2 to 8 bytes a token. */
const bytesPerTokenMax = 8;
/** Of smaller prompts the framing is a large part, so their answers tell nothing about others. */
const textBytesMin = 2_048;
const answersMin = 3;
const answersMax = 16;
const excessMs = 3_600_000;
/** About 200 bytes each. */
const entriesMax = 10_000;

/** What a count of a provider, or of another one, says about the true number. */
export function rangeOfCount(tokens: number): TokenRange {
  return { min: Math.floor(tokens / margin), max: Math.ceil(tokens * margin) };
}

/** The fewest tokens that a prompt of this size can have; only odd texts have fewer. */
export function fewestTokensOf({ textBytes }: PromptSize): number {
  return Math.floor(textBytes / (2 * bytesPerTokenMax));
}

/** Learns from answers, in the memory of this process. */
export class InputCounts {
  readonly #clock: Clock;
  /** The most tokens that an answer of the last hour had above the bound of its prompt. */
  readonly #excess = new BoundedMap<string, { readonly tokens: number; readonly atMs: number }>(
    entriesMax,
  );
  /** Tokens per byte in the last answers, by account and model. */
  readonly #ratios = new BoundedMap<string, number[]>(entriesMax);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Call it with what the reported input had above the bound of its prompt. */
  learnExcess({ accountId, model }: { accountId: string; model: string }, tokens: number): void {
    if (tokens <= this.excessOf({ accountId, model })) return;
    this.#excess.set(`${accountId}/${model}`, { tokens, atMs: this.#clock.now() });
  }

  /** Tokens to add to the bound of a prompt. */
  excessOf({ accountId, model }: { accountId: string; model: string }): number {
    const known = this.#excess.get(`${accountId}/${model}`);
    return known && known.atMs > this.#clock.now() - excessMs ? known.tokens : 0;
  }

  /** Call it with the input that a provider reported, cached tokens included. */
  learn(
    { accountId, model }: { accountId: string; model: string },
    size: PromptSize,
    tokens: number,
  ): void {
    if (!isText(size) || size.textBytes < textBytesMin || tokens <= 0) return;
    const ratios = this.#ratios.get(`${accountId}/${model}`) ?? [];
    ratios.push(tokens / size.textBytes);
    if (ratios.length > answersMax) ratios.shift();
    this.#ratios.set(`${accountId}/${model}`, ratios);
  }

  /** Undefined where a part of the prompt has an unknown size. */
  rangeOf(
    { accountId, model }: { accountId: string; model: string },
    size: PromptSize,
    contextTokens: number,
  ): TokenRange | undefined {
    if (size.unbounded) return undefined;
    const { textBytes, images } = size;
    const pictures = { min: (images * tokensPerPicture) / 2, max: images * tokensPerPicture * 2 };
    const ratios = this.#ratios.get(`${accountId}/${model}`) ?? [];
    const most = maxTokensOf(size, contextTokens);
    if (textBytes < textBytesMin || ratios.length < answersMin)
      return { min: Math.floor(textBytes / bytesPerTokenMax + pictures.min), max: most };
    return {
      min: Math.floor((textBytes * Math.min(...ratios)) / margin + pictures.min),
      max: Math.min(
        contextTokens,
        Math.ceil(textBytes * Math.max(...ratios) * margin + pictures.max),
      ),
    };
  }
}

function isText({ images, pages, unbounded }: PromptSize): boolean {
  return images === 0 && pages === 0 && !unbounded;
}
