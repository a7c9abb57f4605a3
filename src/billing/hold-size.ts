// The amount of a hold, and the output tokens that it grants. Pure arithmetic in micro-credits:
// each sum of tokens is rounded up once, as that of a charge.
//
// An agent requests 128,000 output tokens on every call and uses a few hundred. If a hold covered
// all of them, a pack of 1,000 credits could run three calls at a time. So a request is granted a
// likely amount of output, which the provider gets as its limit. The hold covers the grant fully.
//
// A count of the input is uncertain. The last request of a budget is admitted if the credits cover
// the least that its input can be: then it holds the most that it can be, or all that the pool has
// free. A limit bounds who starts, and the output; only the pool bounds what is charged. Otherwise
// whoever may change the limit could make every request the last one of a budget.

import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  dearestUpTo,
  microRoundedUp,
  nanoOf,
  promptOf,
  type SteppedPrices,
  searchesMicro,
  stepOf,
  tokensNano,
} from "../base/cost.ts";
import { maxInputPriceNano, maxOutputPriceNano } from "./price.ts";

/** The most that a request may use, in tokens. */
export type UsageBounds = {
  readonly input: number;
  readonly mostExpensiveInput: InputCategory;
  /**
   * The least input of the request, where its count is uncertain. The credits must cover it at the
   * price of plain input of such a prompt; the hold covers `input` as far as the pool lasts.
   * Absent: they must cover `input`.
   */
  readonly minInput?: number;
  /** The most web searches. */
  readonly webSearches: number;
  /** The request is not started with less output than this. */
  readonly minOutput: number;
  readonly maxOutput: number;
};

/** A limit of a key, its manager or its pool, in micro-credits. */
export type Limit = {
  /** What it leaves of this window, running requests aside. */
  readonly left: bigint;
  /** What running requests hold of that. */
  readonly held: bigint;
};

/** The credits of a pool, in micro-credits, and every limit that bounds them. */
export type Funds<L extends Limit = Limit> = {
  readonly posted: bigint;
  readonly poolHeld: bigint;
  /** Absent: there are none. */
  readonly limits?: readonly L[];
};

type Grant<L extends Limit> =
  /** `reduced`: less output than usual, although other running requests do not hold the rest. */
  | {
      readonly kind: "granted";
      readonly output: number;
      readonly amountMicro: bigint;
      readonly reduced: boolean;
      readonly freeMicro: bigint;
    }
  /**
   * `by`: "requests" if the credits would suffice without the holds of other running requests,
   * otherwise the pool, or the limit that leaves least.
   */
  | {
      readonly kind: "short";
      readonly by: "requests" | "pool" | L;
      readonly neededMicro: bigint;
      readonly freeMicro: bigint;
    };

/**
 * Output tokens that every request may be granted if the free credits cover them. More is granted
 * only as far as a quarter of the free credits covers it.
 */
const defaultOutput = 8192;

/**
 * Decides the hold of one request against the current funds. A hold takes more than the limits have
 * free by what the input of `bounds` may cost above its least, and by no more.
 */
export function sizeHold<L extends Limit>(
  prices: SteppedPrices,
  bounds: UsageBounds,
  { posted, poolHeld, limits = [] }: Funds<L>,
): Grant<L> {
  const tokenNano = outputNano(prices, bounds);
  const neededMicro = minHoldMicro(prices, bounds);

  const poolFree = posted - poolHeld;
  let freeMicro = poolFree;
  let everFreeMicro = posted;
  let tightest: L | undefined;
  for (const limit of limits) {
    freeMicro = least(freeMicro, limit.left - limit.held);
    everFreeMicro = least(everFreeMicro, limit.left);
    if (tightest === undefined || limit.left < tightest.left) tightest = limit;
  }
  if (freeMicro < neededMicro) {
    const short = { kind: "short", neededMicro, freeMicro } as const;
    if (posted < neededMicro) return { ...short, by: "pool" };
    if (tightest && tightest.left < neededMicro) return { ...short, by: tightest };
    return { ...short, by: "requests" };
  }

  const freeNano = nanoOf(freeMicro);
  const leftNano = freeNano - minInputNano(prices, bounds);
  const usual = usualOutput(bounds, tokenNano === 0n ? undefined : freeNano / 4n / tokenNano);
  const output = tokenNano === 0n ? usual : Math.min(usual, Number(leftNano / tokenNano));
  const holdOf = (granted: number) =>
    microRoundedUp(maxInputNano(prices, bounds) + BigInt(granted) * tokenNano);
  const fullMicro = holdOf(output);
  const usualMicro = holdOf(usual);
  return {
    kind: "granted",
    output,
    amountMicro: least(fullMicro, poolFree),
    reduced: output < usual && everFreeMicro < usualMicro,
    freeMicro,
  };
}

/** The smallest hold with which a request is started. */
export function minHoldMicro(prices: SteppedPrices, bounds: UsageBounds): bigint {
  return microRoundedUp(
    minInputNano(prices, bounds) + BigInt(bounds.minOutput) * outputNano(prices, bounds),
  );
}

/** The hold that covers all that a request may use. */
export function maxHoldMicro(prices: SteppedPrices, bounds: UsageBounds): bigint {
  return microRoundedUp(
    maxInputNano(prices, bounds) + BigInt(bounds.maxOutput) * outputNano(prices, bounds),
  );
}

/** True if `sizeHold` can lead to this hold: it belongs to a request with these bounds. */
export function isHoldOf(
  prices: SteppedPrices,
  bounds: UsageBounds,
  hold: { readonly amountMicro: bigint; readonly grantedOutput: number },
): boolean {
  const grantedNano = BigInt(hold.grantedOutput) * outputNano(prices, bounds);
  return (
    hold.grantedOutput >= bounds.minOutput &&
    hold.grantedOutput <= bounds.maxOutput &&
    hold.amountMicro >= microRoundedUp(minInputNano(prices, bounds) + grantedNano) &&
    hold.amountMicro <= microRoundedUp(maxInputNano(prices, bounds) + grantedNano)
  );
}

/** The highest price of an output token of a request, in nano-credits. */
function outputNano(prices: SteppedPrices, { input }: Pick<UsageBounds, "input">): bigint {
  return maxOutputPriceNano(dearestUpTo(prices, input));
}

/** The highest possible cost of the input of a request and of its web searches. */
function maxInputNano(
  prices: SteppedPrices,
  bounds: Pick<UsageBounds, "input" | "mostExpensiveInput" | "webSearches">,
): bigint {
  return (
    BigInt(bounds.input) *
      maxInputPriceNano(dearestUpTo(prices, bounds.input), bounds.mostExpensiveInput) +
    nanoOf(searchesMicro(prices, bounds.webSearches))
  );
}

/** The cost of input and web searches that the free credits must cover. */
function minInputNano(prices: SteppedPrices, bounds: UsageBounds): bigint {
  const { minInput, webSearches } = bounds;
  const maxNano = maxInputNano(prices, bounds);
  if (minInput === undefined) return maxNano;
  const minNano =
    BigInt(minInput) * maxInputPriceNano(stepOf(prices, minInput), InputCategory.PLAIN) +
    nanoOf(searchesMicro(prices, webSearches));
  return minNano < maxNano ? minNano : maxNano;
}

/** The output that is granted if the credits cover it. Undefined: output costs nothing. */
function usualOutput(bounds: UsageBounds, quarterOfFree: bigint | undefined): number {
  if (quarterOfFree === undefined) return bounds.maxOutput;
  return Math.min(
    bounds.maxOutput,
    Math.max(defaultOutput, bounds.minOutput, Number(quarterOfFree)),
  );
}

/** The smaller amount. Undefined: without a bound. */
export function least(one: bigint, other: bigint | undefined): bigint {
  return other === undefined || one < other ? one : other;
}

/**
 * The hold that a running request needs once its input is known: the exact cost of that input, with
 * the most web searches that it may make, and the highest cost of the granted output.
 */
export function resizedHoldMicro(
  prices: SteppedPrices,
  input: Usage,
  grantedOutput: number,
): bigint {
  const step = stepOf(prices, promptOf(input));
  return microRoundedUp(
    tokensNano(step, { ...input, output: 0, thinking: 0 }) +
      nanoOf(searchesMicro(step, input.webSearches)) +
      BigInt(grantedOutput) * maxOutputPriceNano(step),
  );
}
