// How large a hold is, and how much output it grants. Pure arithmetic in micro-credits.
//
// An agent asks for 128,000 output tokens on every call and uses a few hundred. Holding all of it
// would let a pack of 1,000 credits carry three calls, so a hold covers what is likely and the
// provider is told the granted figure as its limit.

import type { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { costMicro, maxInputPriceMicro, maxOutputPriceMicro, type TokenPrices } from "./price.ts";

/** What a request may use, in tokens. */
export type UsageBounds = {
  readonly input: number;
  readonly mostExpensiveInput: InputCategory;
  /** Output below which the request is not worth starting. */
  readonly minOutput: number;
  readonly maxOutput: number;
};

/** What a pool and a key's month have, in micro-credits. */
export type Funds = {
  readonly posted: bigint;
  readonly poolHeld: bigint;
  /** Absent: the key has no cap. */
  readonly cap?: { readonly limit: bigint; readonly spent: bigint; readonly held: bigint };
};

export type Grant =
  | { readonly kind: "granted"; readonly output: number; readonly amountMicro: bigint }
  /** `held` is true when the funds are there but running requests hold them. */
  | {
      readonly kind: "short";
      readonly of: "pool" | "cap";
      readonly held: boolean;
      readonly neededMicro: bigint;
    };

/**
 * Output that any request may be granted, funds permitting. Longer answers need a quarter of what
 * is free to cover them.
 */
const defaultOutput = 8192;

/** Decides the hold of one request against the funds of this moment. */
export function sizeHold(prices: TokenPrices, bounds: UsageBounds, funds: Funds): Grant {
  const inputMicro = inputPartMicro(prices, bounds);
  const tokenMicro = maxOutputPriceMicro(prices);
  const neededMicro = leastMicro(prices, bounds);

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

/** The hold below which a request is not worth starting. */
export function leastMicro(prices: TokenPrices, bounds: UsageBounds): bigint {
  return inputPartMicro(prices, bounds) + BigInt(bounds.minOutput) * maxOutputPriceMicro(prices);
}

/**
 * The output that a hold of `amountMicro` grants: the reverse of `sizeHold`. Undefined: these
 * bounds never lead to that amount.
 */
export function grantedBy(
  prices: TokenPrices,
  bounds: UsageBounds,
  amountMicro: bigint,
): number | undefined {
  const tokenMicro = maxOutputPriceMicro(prices);
  const outputMicro = amountMicro - inputPartMicro(prices, bounds);
  if (tokenMicro === 0n) return outputMicro === 0n ? bounds.maxOutput : undefined;
  const output = outputMicro / tokenMicro;
  const isExact = output * tokenMicro === outputMicro;
  return isExact && output >= bounds.minOutput && output <= bounds.maxOutput
    ? Number(output)
    : undefined;
}

/** What the input of a request can cost at most. */
export function inputPartMicro(
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
 * The hold that a running request needs once its input is known: the exact price of that input, and
 * the output it was granted.
 */
export function resizedHoldMicro(prices: TokenPrices, input: Usage, grantedOutput: number): bigint {
  return (
    costMicro(prices, { ...input, output: 0, thinking: 0 }) +
    BigInt(grantedOutput) * maxOutputPriceMicro(prices)
  );
}
