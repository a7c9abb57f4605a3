// Numbers that people type, within the limits of a field of a request in the proto.

import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { largest } from "../../../../gen/form-limits.ts";
import { packStepUsdCents } from "../../../base/shown-figures.ts";
import { fieldError } from "../call-error.ts";
import { count, credits, parseCredits } from "../format.ts";
import { words } from "../words.ts";

const most: Readonly<Partial<Record<ScalarType, bigint>>> = {
  [ScalarType.INT32]: 2n ** 31n - 1n,
  [ScalarType.UINT32]: 2n ** 32n - 1n,
  [ScalarType.INT64]: 2n ** 63n - 1n,
  [ScalarType.UINT64]: 2n ** 64n - 1n,
};

/** The largest number that a field takes. No field of a form takes a negative one. */
function mostOf({ scalar, name }: DescField): bigint {
  const limit = largest[name];
  if (limit !== undefined) return BigInt(limit);
  const bound = scalar === undefined ? undefined : most[scalar];
  if (bound === undefined) throw new Error(`${name} is no whole number`);
  return bound;
}

/** A whole number, such as "600" or "1,200". Undefined: empty. Throws a CallError at the field. */
export function readWhole(text: string, field: DescField): number | undefined {
  const typed = text.trim();
  if (typed === "") return undefined;
  const max = mostOf(field);
  const isWhole = /^(\d+|\d{1,3}(,\d{3})+)$/.test(typed);
  const value = isWhole ? BigInt(typed.replaceAll(",", "")) : undefined;
  if (value === undefined || value > max)
    throw fieldError(field.name, words.keyForm.whole(count(max)));
  return Number(value);
}

/** Micro-credits of typed credits. Undefined: empty. Throws a CallError at the field. */
export function readCredits(text: string, field: DescField): bigint | undefined {
  if (text.trim() === "") return undefined;
  const value = parseCredits(text);
  const max = mostOf(field);
  if (value === undefined) throw fieldError(field.name, words.keyForm.notAnAmount);
  if (value > max) throw fieldError(field.name, words.keyForm.atMost(credits(max)));
  return value;
}

/** US cents of micro-dollars. */
export function centsOf(microdollars: bigint): number {
  return Number(microdollars / 10_000n);
}

/** US cents of a pack, such as "500". Undefined: it is none that can be ordered. */
export function readPack(text: string, mostUsdCents: number): number | undefined {
  const cents = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  return cents >= packStepUsdCents && cents % packStepUsdCents === 0 && cents <= mostUsdCents
    ? cents
    : undefined;
}
