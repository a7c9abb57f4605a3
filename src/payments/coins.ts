// Amounts of coins as decimal text, such as `0.0000769`.

import { invalidField } from "../base/errors.ts";
import { decimal } from "../base/money.ts";

/** `numeric(78, 0)`: more than the 2^256 of any chain. */
const atomsMax = 10n ** 78n - 1n;

/** The sum of two amounts, which no node can make larger than a column holds. */
export function addAtoms(one: bigint, other: bigint): bigint {
  return one + other > atomsMax ? atomsMax : one + other;
}

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

/**
 * The atoms of an amount as programs write it, such as `0.0000769` or `7.69e-5`, without what is
 * smaller than an atom. Undefined: it is no amount, negative, or larger than any coin has.
 */
export function atomsOf(text: string, decimals: number): bigint | undefined {
  const [, whole, fraction = "", exponent = "0"] =
    /^(\d{1,80})(?:\.(\d{0,80}))?(?:[eE]([+-]?\d{1,2}))?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  const places = decimals - fraction.length + Number(exponent);
  const digits = BigInt(whole + fraction);
  const atoms = places >= 0 ? digits * 10n ** BigInt(places) : digits / 10n ** BigInt(-places);
  return atoms > atomsMax ? undefined : atoms;
}
