// The amount of a hold, and the output tokens that it grants. Pure arithmetic in micro-credits.
//
// An agent requests 128,000 output tokens on every call and uses a few hundred. If a hold covered
// all of them, a pack of 1,000 credits could run three calls at a time. So a request is granted a
// likely amount of output, which the provider gets as its limit. The hold covers the grant fully.

import type { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { costMicro, maxInputPriceMicro, maxOutputPriceMicro, type TokenPrices } from "./price.ts";

/** The most that a request may use, in tokens. */
export type UsageBounds = {
  readonly input: number;
  readonly mostExpensiveInput: InputCategory;
  /** The request is not started with less output than this. */
  readonly minOutput: number;
  readonly maxOutput: number;
};

/** The credits of a pool and of the current month of a key, in micro-credits. */
export type Funds = {
  readonly posted: bigint;
  readonly poolHeld: bigint;
  /** Absent: the key has no cap. */
  readonly cap?: { readonly limit: bigint; readonly spent: bigint; readonly held: bigint };
};

type Grant =
  | { readonly kind: "granted"; readonly output: number; readonly amountMicro: bigint }
  /** `held`: true if the credits would suffice without the holds of other running requests. */
  | {
      readonly kind: "short";
      readonly of: "pool" | "cap";
      readonly held: boolean;
      readonly neededMicro: bigint;
    };

/**
 * Output tokens that every request may be granted if the free credits cover them. More is granted
 * only as far as a quarter of the free credits covers it.
 */
const defaultOutput = 8192;

/** Decides the hold of one request against the current funds. */
export function sizeHold(prices: TokenPrices, bounds: UsageBounds, funds: Funds): Grant {
  const inputMicro = maxInputCostMicro(prices, bounds);
  const tokenMicro = maxOutputPriceMicro(prices);
  const neededMicro = minHoldMicro(prices, bounds);

  const poolFree = funds.posted - funds.poolHeld;
  const capFree = funds.cap && funds.cap.limit - funds.cap.spent - funds.cap.held;
  const freeMicro = capFree === undefined || poolFree < capFree ? poolFree : capFree;
  if (freeMicro < neededMicro) {
    if (funds.posted < neededMicro) return { kind: "short", of: "pool", held: false, neededMicro };
    if (funds.cap && funds.cap.limit - funds.cap.spent < neededMicro)
      return { kind: "short", of: "cap", held: false, neededMicro };
    return { kind: "short", of: poolFree < neededMicro ? "pool" : "cap", held: true, neededMicro };
  }

  const output =
    tokenMicro === 0n
      ? bounds.maxOutput
      : grantOutput(bounds, (freeMicro - inputMicro) / tokenMicro, freeMicro / 4n / tokenMicro);
  return { kind: "granted", output, amountMicro: inputMicro + BigInt(output) * tokenMicro };
}

/** The smallest hold with which a request is started. */
export function minHoldMicro(prices: TokenPrices, bounds: UsageBounds): bigint {
  return maxInputCostMicro(prices, bounds) + BigInt(bounds.minOutput) * maxOutputPriceMicro(prices);
}

/**
 * The output tokens that a hold of `amountMicro` grants: the inverse of `sizeHold`. Undefined when
 * these bounds cannot lead to that amount.
 */
export function grantedBy(
  prices: TokenPrices,
  bounds: UsageBounds,
  amountMicro: bigint,
): number | undefined {
  const tokenMicro = maxOutputPriceMicro(prices);
  const outputMicro = amountMicro - maxInputCostMicro(prices, bounds);
  if (tokenMicro === 0n) return outputMicro === 0n ? bounds.maxOutput : undefined;
  const output = outputMicro / tokenMicro;
  const isExact = output * tokenMicro === outputMicro;
  return isExact && output >= bounds.minOutput && output <= bounds.maxOutput
    ? Number(output)
    : undefined;
}

/** The highest possible cost of the input of a request. */
export function maxInputCostMicro(
  prices: TokenPrices,
  bounds: Pick<UsageBounds, "input" | "mostExpensiveInput">,
): bigint {
  return BigInt(bounds.input) * maxInputPriceMicro(prices, bounds.mostExpensiveInput);
}

function grantOutput(bounds: UsageBounds, affordable: bigint, quarterOfFree: bigint): number {
  const ceiling = Math.max(defaultOutput, bounds.minOutput, Number(quarterOfFree));
  return Math.min(bounds.maxOutput, Number(affordable), ceiling);
}

/**
 * The hold that a running request needs once its input is known: the exact cost of that input and
 * the highest cost of the granted output.
 */
export function resizedHoldMicro(prices: TokenPrices, input: Usage, grantedOutput: number): bigint {
  return (
    costMicro(prices, { ...input, output: 0, thinking: 0 }) +
    BigInt(grantedOutput) * maxOutputPriceMicro(prices)
  );
}
