// Parameters of an HTTP query. Each names itself in its error.

import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ApiError, invalidField } from "./errors.ts";

/** The values of each parameter that was given, in their order. */
export type Query = ReadonlyMap<string, readonly string[]>;

/**
 * The parameters of a parsed query. Throws `invalid_request` for one that is not in `names`: a
 * filter that is misspelt must not find everything.
 */
export function readQuery(parsed: unknown, names: readonly string[]): Query {
  const query = new Map<string, readonly string[]>();
  for (const [name, value] of Object.entries(Object(parsed))) {
    if (!names.includes(name)) throw invalidField(name, "is not a parameter of this path", names);
    const values: unknown[] = Array.isArray(value) ? value : [value];
    const texts = values.filter((one) => typeof one === "string" && one !== "").map(String);
    // PostgreSQL refuses a text with NUL.
    if (texts.some((text) => text.includes("\0")))
      throw invalidField(name, "must not contain the character U+0000");
    query.set(name, texts);
  }
  return query;
}

/** A text, empty if it is absent. */
export function textParam(query: Query, name: string): string {
  const values = query.get(name) ?? [];
  if (values.length > 1) throw invalidField(name, "is given more than once");
  return values[0] ?? "";
}

const listMax = 1_000;

/** Texts that are separated by commas, or given one by one. */
export function listParam(query: Query, name: string): string[] {
  const given = query.get(name) ?? [];
  const texts = given.flatMap((text) => text.split(",")).filter((one) => one !== "");
  if (texts.length > listMax) throw invalidField(name, `has more than ${listMax} entries`);
  return texts;
}

/** A whole number from 1 to `max`. 0: it is absent. */
export function countParam(query: Query, name: string, max: number): number {
  const text = textParam(query, name);
  if (text === "") return 0;
  const count = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (count < 1 || count > max) throw invalidField(name, `is a whole number from 1 to ${max}`);
  return count;
}

const timeForm = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/;

/** A day, which begins at midnight UTC, or a time with its offset. */
function timeParam(query: Query, name: string): Timestamp | undefined {
  const text = textParam(query, name);
  if (text === "") return undefined;
  const time = new Date(text);
  if (!timeForm.test(text) || Number.isNaN(time.getTime()) || !isDay(text.slice(0, 10)))
    throw invalidField(name, "is neither a day (2026-11-01) nor a time (2026-11-01T12:00:00Z)");
  return timestampFromDate(time);
}

// JavaScript takes the 30th of February for the 2nd of March.
function isDay(day: string): boolean {
  return new Date(day).toISOString().startsWith(day);
}

/** The parameters `from` and `to`, or those of other names, as fields of a request. */
export function rangeParams(
  query: Query,
  fromName = "from",
  toName = "to",
): { startAt?: Timestamp; endAt?: Timestamp } {
  const startAt = timeParam(query, fromName);
  const endAt = timeParam(query, toName);
  return { ...(startAt && { startAt }), ...(endAt && { endAt }) };
}

/** Parameters from which the fields of a range are read, the usual one first. */
const rangeNames: Readonly<Record<string, readonly string[]>> = {
  start_at: ["from", "start_date"],
  end_at: ["to", "end_date"],
};

/** The same error, which names the parameter of `parsed` in place of the field of a range. */
export function asParam(error: ApiError, parsed: unknown): ApiError {
  const nameOf = (field: string) => {
    const names = rangeNames[field] ?? [field];
    return names.find((name) => Object.hasOwn(Object(parsed), name)) ?? names[0] ?? field;
  };
  const { field, ...facts } = error.facts;
  if (field === undefined || !(field in rangeNames)) return error;
  const message = error.message.replace(/\b(start_at|end_at)\b/g, nameOf);
  return new ApiError(error.reason, { ...facts, field: nameOf(field), message });
}

/** The value of one of these names, in any case. Throws `invalid_request` for another name. */
export function choiceOf<Value>(
  choices: Readonly<Record<string, Value>>,
  param: string,
  text: string,
): Value {
  const value = Object.hasOwn(choices, text.toLowerCase())
    ? choices[text.toLowerCase()]
    : undefined;
  if (value === undefined) {
    const names = Object.keys(choices);
    throw invalidField(param, `${JSON.stringify(text)} is not one of ${names.join(", ")}`, names);
  }
  return value;
}
