// The limits of fields, which the protos state as rules of `buf.validate`, so that clients in every
// language read them too. This file evaluates them: a closed part of the rules, each field compiled
// once into a function. Any other rule is refused at its first use, and by a test.

import {
  type DescField,
  type DescMessage,
  type DescMethod,
  getOption,
  hasOption,
  isMessage,
  type Message,
} from "@bufbuild/protobuf";
import { isReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import {
  type Duration,
  DurationSchema,
  TimestampSchema,
  timestampMs,
} from "@bufbuild/protobuf/wkt";
import {
  type FieldRules,
  FieldRulesSchema,
  field as fieldRules,
  Ignore,
} from "../../gen/buf/validate/validate_pb.ts";
import { form } from "../../gen/gateway/common/v1/options_pb.ts";

/** The limits of one field, or of the entries of one. Absent: there is none of this kind. */
export type Limits = {
  /** A message has to be present, a text or list not empty, a number or enum not zero. */
  readonly isRequired?: true;
  /** The empty value stands for absence, and no other limit counts for it. */
  readonly skipsZero?: true;
  /** Characters of a text. */
  readonly lengthMin?: number;
  readonly lengthMax?: number;
  /** Bytes, of a text in UTF-8. */
  readonly bytesMax?: number;
  /** The form of a text, and the same in words, which continue "is". */
  readonly pattern?: RegExp;
  readonly form?: string;
  /** The smallest and the largest number, of a Duration in nanoseconds. */
  readonly least?: number | bigint;
  readonly most?: number | bigint;
  /** Of a Duration. */
  readonly unit?: "nanoseconds";
  /** Values that an enum must not have. */
  readonly notIn?: readonly number[];
  /** Entries of a list or map. */
  readonly itemsMin?: number;
  readonly itemsMax?: number;
  /** No two entries of a list are equal. */
  readonly isUnique?: true;
  /** Limits of each entry of a list, of each key and of each value of a map. */
  readonly items?: Limits;
  readonly keys?: Limits;
  readonly values?: Limits;
  /** A time that is not over. */
  readonly isFuture?: true;
};

/**
 * An invalid value. `path` holds parts such as `.messages`, `[0]`, `.role`, and `message` continues
 * the name of the field. It is built only for an invalid field.
 */
export type Fault = { path: string[]; message: string; allowed: string[] };

/** Finds the fault of a value that is set. */
export type Check = (value: unknown) => Fault | undefined;

const known = new WeakMap<DescField, Limits | null>();

/** The limits of a field. Undefined: none. Throws for rules that this file does not evaluate. */
export function limitsOf(field: DescField): Limits | undefined {
  const found = known.get(field);
  if (found !== undefined) return found ?? undefined;
  const limits = hasOption(field, fieldRules)
    ? readLimits(field, getOption(field, fieldRules))
    : undefined;
  known.set(field, limits ?? null);
  return limits;
}

/** The most entries of a page of what a method lists. */
export function pageSizeMaxOf({ input }: DescMethod): number {
  const size = input.field.pageSize;
  return Number(size && limitsOf(size)?.most);
}

/** The rules that are evaluated, by the kind of the field. */
const evaluated: Readonly<Record<string, readonly string[]>> = {
  string: ["min_len", "max_len", "max_bytes", "pattern"],
  bytes: ["max_len"],
  double: ["gte", "lte"],
  int32: ["gte", "lte"],
  int64: ["gte", "lte"],
  uint32: ["gte", "lte"],
  enum: ["not_in"],
  repeated: ["min_items", "max_items", "unique", "items"],
  map: ["min_pairs", "max_pairs", "keys", "values"],
  duration: ["gte", "lte"],
  timestamp: ["gt_now"],
};

/** Reads the rules of `field`, or of its entries. */
export function readLimits(field: DescField, rules: FieldRules): Limits {
  const name = `${field.parent.typeName}.${field.name}`;
  const kind = rules.type.case;
  const allowed = ["required", "ignore", kind ?? ""];
  const own = ruleValues(FieldRulesSchema, rules, allowed, name);
  if (own.get("ignore") === Ignore.ALWAYS) throw new Error(`${name}: ignores all of its rules`);
  const inner = own.get(kind ?? "");
  const values = isReflectMessage(inner)
    ? ruleValues(inner.desc, inner.message, evaluated[kind ?? ""] ?? [], name)
    : new Map<string, unknown>();
  const countOf = (rule: string) => numberOf(values.get(rule));
  const limitsIn = (rule: string) => {
    const entry = values.get(rule);
    return isReflectMessage(entry) && isMessage(entry.message, FieldRulesSchema)
      ? readLimits(field, entry.message)
      : undefined;
  };
  const notIn = values.get("not_in");
  const pattern = values.get("pattern");
  return withoutAbsent({
    isRequired: own.get("required") === true || undefined,
    skipsZero: own.get("ignore") === Ignore.IF_ZERO_VALUE || undefined,
    lengthMin: countOf("min_len"),
    lengthMax: kind === "bytes" ? undefined : countOf("max_len"),
    bytesMax: kind === "bytes" ? countOf("max_len") : countOf("max_bytes"),
    ...(typeof pattern === "string" && readPattern(pattern, field, name)),
    least: boundOf(values.get("gte")),
    most: boundOf(values.get("lte")),
    unit: kind === "duration" ? "nanoseconds" : undefined,
    notIn: isIterable(notIn) ? [...notIn].map(Number) : undefined,
    itemsMin: countOf("min_items") ?? countOf("min_pairs"),
    itemsMax: countOf("max_items") ?? countOf("max_pairs"),
    isUnique: values.get("unique") === true || undefined,
    items: limitsIn("items"),
    keys: limitsIn("keys"),
    values: limitsIn("values"),
    isFuture: values.get("gt_now") === true || undefined,
  });
}

/** The rules that are set, by name. Throws for one that is not `allowed`. */
function ruleValues(
  type: DescMessage,
  rules: Message,
  allowed: readonly string[],
  field: string,
): ReadonlyMap<string, unknown> {
  const reflected = reflect(type, rules);
  const set = type.fields.filter((rule) => reflected.isSet(rule));
  const other = set.find(({ name }) => !allowed.includes(name));
  if (other || rules.$unknown !== undefined)
    throw new Error(`${field}: the rule ${other?.name ?? "of an extension"} is not evaluated here`);
  return new Map(set.map((rule) => [rule.name, reflected.get(rule)]));
}

/**
 * What RE2, which other clients use, and JavaScript read alike: whole texts of ASCII, without
 * groups that look around, references, classes beyond ASCII, and the point, which is none of a line
 * break here and there.
 */
const portable =
  /^\^(?:[^\\.()[\]^$\u{80}-\u{10ffff}]|\((?:\?:|(?!\?))|\)|\\[dwDWtnr.^$*+?()[\]{}|/\\-]|\\x[0-7][0-9a-f]|\[\^?(?:[^\\\]\u{80}-\u{10ffff}]|\\[dwtnr.^$*+?()[\]{}|/\\-]|\\x[0-7][0-9a-f])+\])*\$$/u;

function readPattern(source: string, field: DescField, name: string): Pick<Limits, "pattern"> {
  if (!portable.test(source)) throw new Error(`${name}: ${source} is no portable pattern`);
  const words = getOption(field, form);
  if (words === "") throw new Error(`${name}: its pattern has no form in words`);
  return { pattern: new RegExp(source, "u"), ...{ form: words } };
}

function numberOf(value: unknown): number | undefined {
  return value === undefined ? undefined : Number(value);
}

function boundOf(value: unknown): number | bigint | undefined {
  if (typeof value === "number" || typeof value === "bigint") return value;
  return isReflectMessage(value) && isMessage(value.message, DurationSchema)
    ? nanosecondsOf(value.message)
    : undefined;
}

function nanosecondsOf({ seconds, nanos }: Duration): bigint {
  return seconds * 1_000_000_000n + BigInt(nanos);
}

function isIterable(value: unknown): value is Iterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.iterator in value;
}

function withoutAbsent(limits: { [Name in keyof Limits]: Limits[Name] | undefined }): Limits {
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

/** The check of a field beside `required`. Undefined: every value of its type is valid. */
export function compileLimits(field: DescField): Check | undefined {
  const limits = limitsOf(field);
  return limits && compile(limits, field);
}

function compile(limits: Limits, field: DescField): Check | undefined {
  const checks = [
    checkOfText(limits),
    checkOfNumber(limits),
    checkOfEnum(limits, field),
    checkOfTime(limits),
    checkOfEntries(limits, field),
  ].filter((check) => check !== undefined);
  const [first, ...others] = checks;
  if (!first) return undefined;
  const check = others.length === 0 ? first : firstFault(checks);
  return limits.skipsZero ? (value) => (isZero(value) ? undefined : check(value)) : check;
}

function firstFault(checks: readonly Check[]): Check {
  return (value) => {
    for (const check of checks) {
      const fault = check(value);
      if (fault) return fault;
    }
    return undefined;
  };
}

function isZero(value: unknown): boolean {
  if (Array.isArray(value) || value instanceof Uint8Array) return value.length === 0;
  return value === "" || value === 0 || value === 0n || value === false;
}

function fault(message: string, more: Partial<Fault> = {}): Fault {
  return { path: [], message, allowed: [], ...more };
}

function checkOfText({ lengthMin, lengthMax, bytesMax, pattern, form }: Limits): Check | undefined {
  if ([lengthMin, lengthMax, bytesMax, pattern].every((limit) => limit === undefined))
    return undefined;
  const min = lengthMin ?? 0;
  const max = lengthMax ?? Number.POSITIVE_INFINITY;
  const most = bytesMax ?? Number.POSITIVE_INFINITY;
  return (value) => {
    if (value instanceof Uint8Array)
      return value.length > most ? fault(`has more than ${count(most, "byte")}`) : undefined;
    if (typeof value !== "string") return undefined;
    if (isLonger(value, max)) return fault(`has more than ${count(max, "character")}`);
    if (isShorter(value, min)) return fault(`has fewer than ${count(min, "character")}`);
    if (bytesMax !== undefined && Buffer.byteLength(value) > most)
      return fault(`has more than ${count(most, "byte")}`);
    return pattern && !pattern.test(value) ? fault(`is ${form}`) : undefined;
  };
}

// A character takes one or two units, so that most texts need not be counted.
function isLonger(text: string, max: number): boolean {
  return text.length > max && (text.length > 2 * max || lengthOf(text) > max);
}

function isShorter(text: string, min: number): boolean {
  return text.length < min || (text.length < 2 * min && lengthOf(text) < min);
}

function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length += 1;
  return length;
}

function checkOfNumber({ least, most }: Limits): Check | undefined {
  if (least === undefined && most === undefined) return undefined;
  const isWithin = (number: number | bigint) =>
    (least === undefined || number >= least) && (most === undefined || number <= most);
  return (value) => {
    if (typeof value === "number" || typeof value === "bigint")
      return isWithin(value) ? undefined : fault(rangeText(least, most));
    if (!isMessage(value, DurationSchema) || isWithin(nanosecondsOf(value))) return undefined;
    return fault(`${rangeText(secondsOf(least), secondsOf(most))} seconds`);
  };
}

/** A bound of a Duration in seconds. */
export function secondsOf(bound: number | bigint | undefined): number | undefined {
  return bound === undefined ? undefined : Number(bound) / 1e9;
}

/** The bounds of a number, as errors and documents say them: `is from 0 to 1,000`. */
export function rangeText(
  least: number | bigint | undefined,
  most: number | bigint | undefined,
): string {
  if (least === undefined) return `is at most ${numberText(most ?? 0)}`;
  return most === undefined
    ? `is at least ${numberText(least)}`
    : `is from ${numberText(least)} to ${numberText(most)}`;
}

function numberText(number: number | bigint): string {
  return number.toLocaleString("en-US");
}

function checkOfEnum({ notIn }: Limits, field: DescField): Check | undefined {
  const values = field.enum?.values ?? [];
  if (!notIn) return undefined;
  const allowed = values.filter(({ number }) => !notIn.includes(number)).map(({ name }) => name);
  return (value) =>
    typeof value === "number" && notIn.includes(value)
      ? fault(`${field.enum?.value[value]?.name} is not taken here`, { allowed })
      : undefined;
}

function checkOfTime({ isFuture }: Limits): Check | undefined {
  if (!isFuture) return undefined;
  return (value) =>
    isMessage(value, TimestampSchema) && timestampMs(value) <= Date.now()
      ? fault("has to be in the future")
      : undefined;
}

function checkOfEntries(limits: Limits, field: DescField): Check | undefined {
  const { itemsMin = 0, itemsMax = Number.POSITIVE_INFINITY, isUnique } = limits;
  const { items, keys, values } = limits;
  if (!isUnique && itemsMin === 0 && itemsMax === Number.POSITIVE_INFINITY)
    if (!items && !keys && !values) return undefined;
  if (field.fieldKind === "map") {
    const checkKey = keys && compile(keys, field);
    const checkValue = values && compile(values, field);
    return (value) => {
      const entries = Object(value);
      let entriesFound = 0;
      for (const key in entries) {
        entriesFound += 1;
        // No place to name: its keys are the caller's.
        const wrong = checkKey?.(key);
        if (wrong) return { ...wrong, message: `the key of an entry ${wrong.message}` };
        const wrongValue = checkValue?.(entries[key]);
        if (wrongValue)
          return { ...wrongValue, message: `the value of an entry ${wrongValue.message}` };
      }
      return entriesFault(entriesFound, itemsMin, itemsMax);
    };
  }
  if (field.fieldKind !== "list") return undefined;
  const checkItem = items && compile(items, field);
  return (value) => {
    if (!Array.isArray(value)) return undefined;
    const wrong = entriesFault(value.length, itemsMin, itemsMax);
    if (wrong) return wrong;
    if (checkItem)
      for (let index = 0; index < value.length; index++) {
        const found = checkItem(value[index]);
        if (found) return { ...found, path: [`[${index}]`, ...found.path] };
      }
    if (!isUnique || new Set(value).size === value.length) return undefined;
    const index = value.findIndex((one, at) => value.indexOf(one) !== at);
    return fault("is there a second time", { path: [`[${index}]`] });
  };
}

function entriesFault(entries: number, min: number, max: number): Fault | undefined {
  if (entries > max) return fault(`has more than ${count(max, "entry")}`);
  return entries < min ? fault(`has fewer than ${count(min, "entry")}`) : undefined;
}

const plurals: Readonly<Record<string, string>> = {
  byte: "bytes",
  character: "characters",
  entry: "entries",
};

/** A number of things, such as `1,000 characters`. */
export function count(number: number, thing: "byte" | "character" | "entry"): string {
  return `${numberText(number)} ${number === 1 ? thing : plurals[thing]}`;
}
