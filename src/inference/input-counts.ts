// How many input tokens a request may have, counted without its provider: by the tokens that a byte
// of text had in the last answers of the same account and model. A tokenizer would be slower, and
// wrong for other models (docs/decisions/0024-last-request-of-a-budget.md).

import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";
import { maxTokensOf, type PromptSize, tokensPerPicture } from "./prompt-size.ts";

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
