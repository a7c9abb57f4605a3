// Bodies with members that no schema names, in their objects at every level.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { isObject } from "../../../src/formats/json.ts";
import { anyValue } from "./native-bodies.ts";

/** The names of the added members. Some break careless code. */
export const grownNames = [
  ...["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"],
  ...["x_new", "vendor_extra", "$typeName", "", "1"],
];

/** Values of `body` with some of these members added to some of their objects. */
export function grown(body: fc.Arbitrary<JsonObject>): fc.Arbitrary<JsonObject> {
  const extras = fc.array(fc.tuple(fc.constantFrom(...grownNames), anyValue), {
    minLength: 1,
    maxLength: 6,
  });
  return fc.tuple(body, extras, fc.nat(6)).map(([value, members, every]) => {
    let count = 0;
    const grow = (given: JsonValue): JsonValue => {
      if (Array.isArray(given)) return given.map(grow);
      if (!isObject(given)) return given;
      const number = count++;
      const entries = Object.entries(given).map(([name, inner]) => [name, grow(inner)] as const);
      const extra = members[number % members.length];
      const isGrown = every > 0 && number % every === 0 && extra !== undefined;
      return Object.fromEntries(isGrown ? [[extra[0], extra[1]], ...entries] : entries);
    };
    const whole = grow(value);
    return isObject(whole) ? whole : value;
  });
}

/** A text that is not blank, and well-formed. */
export const words = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 12 })
  .filter((text) => text.trim() !== "" && text.isWellFormed());

export const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });

/** An object without its undefined members. */
export function compact(members: Record<string, JsonValue | undefined>): JsonObject {
  return Object.fromEntries(
    Object.entries(members).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
}

/** The pieces of a text, cut at these places. */
export function cutAt(text: string, places: readonly number[]): string[] {
  const characters = [...text];
  const cuts = [0, ...places.map((place) => place % (characters.length + 1)), characters.length];
  cuts.sort((one, other) => one - other);
  return cuts
    .slice(1)
    .map((to, index) => characters.slice(cuts[index], to).join(""))
    .filter((piece) => piece !== "");
}

/** The reads of a stream whose bytes are cut at these places. */
export function reads(text: string, places: readonly number[]): Buffer[] {
  const bytes = Buffer.from(text);
  const cuts = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length];
  cuts.sort((one, other) => one - other);
  return cuts.slice(1).map((to, index) => bytes.subarray(cuts[index], to));
}
