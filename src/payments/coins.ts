// Amounts of coins as decimal text, such as `0.0000769`.

import { invalidField } from "../base/errors.ts";
import { decimal } from "../base/money.ts";

/** `numeric(78, 0)`: more than the 2^256 of any chain. */
const atomsMax = 10n ** 78n - 1n;

/** Atoms as coins. */
export function coins(atoms: bigint, decimals: number): string {
  return decimal(atoms, decimals, 0);
}

/**
 * The atoms of an amount above 0. Throws `invalid_request` for anything else, and for more places
 * than the coin has.
 */
export function parseCoins(field: string, text: string, decimals: number): bigint {
  const [, whole = "", fraction = ""] = /^(\d{1,80})(?:\.(\d{1,80}))?$/.exec(text) ?? [];
  if (whole === "")
    throw invalidField(field, "must be a decimal number of coins, such as 0.0000769");
  if (fraction.length > decimals)
    throw invalidField(field, `has more than ${decimals} decimal places`);
  const atoms = BigInt(whole + fraction.padEnd(decimals, "0"));
  if (atoms === 0n) throw invalidField(field, "must be above 0");
  if (atoms > atomsMax) throw invalidField(field, "is larger than any coin has");
  return atoms;
}
