// Messages of the services as the page needs them: made, compared, and read and written as JSON.
// The bundle has this file in place of the library of Protocol Buffers, against which the pages
// are written and checked: that one also reads descriptors, binary and extensions, and would be a
// sixth of all bytes that the page may have. `describe-messages.ts` writes the calls of `message`,
// `enumeration` and `service` from the descriptors.

type Json = unknown;
type Message = { $typeName: string; [field: string]: unknown };
type Init = { readonly [field: string]: unknown };

type Enumeration = { readonly prefix: string; readonly values: Readonly<Record<string, number>> };

type Field = {
  /** As in the proto, such as "requests_at_once". */
  readonly name: string;
  readonly localName: string;
  /** The group of which at most one field is set. */
  readonly oneof: string | undefined;
  /** "=": always there. "?": may be absent. "*": a list. "%": a map with strings as keys. */
  readonly kind: string;
  /** The number of the type in descriptors. */
  readonly scalar: number;
  readonly of: Schema | Enumeration | undefined;
};

type Schema = {
  /** A number: the page needs no name of a message. */
  readonly typeName: string;
  readonly fields: readonly Field[];
  /** The same by their local names. */
  readonly field: Readonly<Record<string, Field>>;
  /** Of a type with a form of its own in JSON. */
  readonly form?: Form | undefined;
};

type Form = { read(json: Json): unknown; write(value: Init): Json };

type Method = { readonly name: string; readonly input: Schema; readonly output: Schema };

/** Numbers of types in descriptors. */
export const ScalarType = {
  DOUBLE: 1,
  FLOAT: 2,
  INT64: 3,
  UINT64: 4,
  INT32: 5,
  BOOL: 8,
  STRING: 9,
  MESSAGE: 11,
  BYTES: 12,
  UINT32: 13,
  ENUM: 14,
};

let schemas = 0;

/**
 * The schema of a message. `fields`: such as "id=9 tags*9 limits=11 choice|days=5", each with its
 * kind and type, and with its name in the proto where that is not the usual one
 * ("cacheWrite5m:cache_write_5m=3"). `types`: those of its messages and enums, in the order of
 * the fields.
 */
export function message(
  fields: string,
  types: () => readonly (Schema | Enumeration)[] = () => [],
  form?: Form,
): Schema {
  let list: readonly Field[] | undefined;
  const schema = {
    typeName: `${schemas++}`,
    form,
    // Read when they are needed first: messages refer to each other.
    get fields() {
      list ??= readFields(fields, types());
      return list;
    },
    get field() {
      return Object.fromEntries(schema.fields.map((one) => [one.localName, one]));
    },
  };
  return schema;
}

function readFields(text: string, types: readonly (Schema | Enumeration)[]): Field[] {
  let next = 0;
  return Array.from(
    text.matchAll(/(?:(\w+)\|)?(\w+)(?::(\w+))?([=?*%])(\d+)/g),
    ([, oneof, localName = "", given, kind = "", type]) => {
      const scalar = Number(type);
      const isNamed = scalar === ScalarType.MESSAGE || scalar === ScalarType.ENUM;
      const name = given ?? snakeOf(localName);
      return { name, localName, oneof, kind, scalar, of: isNamed ? types[next++] : undefined };
    },
  );
}

/** `names`: of its values without the prefix; one that does not follow the last has its number. */
export function enumeration(prefix: string, names: string): Enumeration {
  const values: Record<string, number> = {};
  let next = 0;
  for (const one of names.split(" ")) {
    const [name = "", number = next] = one.split("=");
    values[name] = Number(number);
    next = Number(number) + 1;
  }
  return { prefix, values };
}

export function valuesOf({ values }: Enumeration): Readonly<Record<string, number>> {
  return values;
}

/** `names`: of its methods. `types`: what each takes, then what it answers. */
export function service(
  typeName: string,
  names: string,
  types: () => readonly Schema[],
): { readonly typeName: string; readonly method: Readonly<Record<string, Method>> } {
  const parent = { typeName };
  const methods = Array.from(names.matchAll(/\w+/g), ([name], index) => {
    const localName = name.charAt(0).toLowerCase() + name.slice(1);
    const type = (offset: number) => types()[index * 2 + offset] ?? TimestampSchema;
    return [
      localName,
      {
        parent,
        name,
        get input() {
          return type(0);
        },
        get output() {
          return type(1);
        },
      },
    ] as const;
  });
  return { typeName, method: Object.fromEntries(methods) };
}

/** A message with what `init` has, or `init` itself if it is one. */
export function create(schema: Schema, init: Init = {}): Message {
  if (isMessage(init, schema)) return init;
  const made: Message = { $typeName: schema.typeName };
  for (const field of schema.fields) {
    const { oneof, localName, kind, scalar } = field;
    const value = valueIn(init, field);
    const toOne = (one: unknown) => (isSchema(field.of) ? createInside(field.of, one) : one);
    if (oneof !== undefined) {
      if (value !== undefined) made[oneof] = { case: localName, value: toOne(value) };
      made[oneof] ??= { case: undefined };
    } else if (value !== undefined) made[localName] = each(field, value, toOne);
    else if (kind === "*") made[localName] = [];
    else if (kind === "%") made[localName] = {};
    else if (kind === "=" && scalar !== ScalarType.MESSAGE) made[localName] = emptyOf(scalar);
  }
  return made;
}

function createInside(schema: Schema, value: unknown): unknown {
  return schema === StructSchema ? value : create(schema, Object(value));
}

function isMessage(init: Init, { typeName }: Schema): init is Message {
  return init.$typeName === typeName;
}

function isSchema(type: Schema | Enumeration | undefined): type is Schema {
  return type !== undefined && "typeName" in type;
}

/** Undefined: it is not set. */
function valueIn(init: Init, { oneof, localName }: Field): unknown {
  if (oneof === undefined) return init[localName] ?? undefined;
  const set = Object(init[oneof]);
  return set.case === localName ? set.value : undefined;
}

function each(field: Field, value: unknown, toOne: (one: unknown) => unknown): unknown {
  if (field.kind === "*") return Array.isArray(value) ? value.map(toOne) : [];
  if (field.kind !== "%") return toOne(value);
  return Object.fromEntries(Object.entries(Object(value)).map(([key, one]) => [key, toOne(one)]));
}

function emptyOf(scalar: number): unknown {
  if (isLong(scalar)) return 0n;
  if (scalar === ScalarType.STRING) return "";
  if (scalar === ScalarType.BOOL) return false;
  return scalar === ScalarType.BYTES ? new Uint8Array(0) : 0;
}

function isLong(scalar: number): boolean {
  return scalar === ScalarType.INT64 || scalar === ScalarType.UINT64;
}

export function equals(schema: Schema, one: Message, other: Message): boolean {
  return toJsonString(schema, one) === toJsonString(schema, other);
}

/** The message of an answer. What a newer gateway has besides is left out. Throws on other JSON. */
export function fromJson(schema: Schema, json: Json): Message {
  if (typeof json !== "object" || json === null || Array.isArray(json))
    throw new Error("no message");
  const init: Record<string, unknown> = {};
  for (const field of schema.fields) {
    const given = Object(json)[field.localName] ?? undefined;
    if (given === undefined) continue;
    const value = each(field, given, (one) => readOne(field, one));
    if (field.oneof === undefined) init[field.localName] = withoutUnknown(value);
    else if (value !== undefined) init[field.oneof] = { case: field.localName, value };
  }
  return create(schema, init);
}

function readOne({ of, scalar }: Field, json: Json): unknown {
  if (isSchema(of)) return of.form ? of.form.read(json) : fromJson(of, json);
  if (of) return typeof json === "number" ? json : of.values[`${json}`.slice(of.prefix.length)];
  if (isLong(scalar)) return BigInt(`${json}`);
  if (scalar === ScalarType.BYTES)
    return Uint8Array.from(atob(`${json}`), (letter) => letter.charCodeAt(0));
  return scalar === ScalarType.STRING || scalar === ScalarType.BOOL ? json : Number(json);
}

/** Values of enums that a newer gateway has are left out of lists. */
function withoutUnknown(value: unknown): unknown {
  return Array.isArray(value) ? value.filter((one) => one !== undefined) : value;
}

export function toJsonString(schema: Schema, value: Message): string {
  return JSON.stringify(toJson(schema, value));
}

function toJson(schema: Schema, value: Message): Json {
  const json: Record<string, Json> = {};
  for (const field of schema.fields) {
    const one = valueIn(value, field);
    if (one === undefined || (field.oneof === undefined && isEmpty(field, one))) continue;
    json[field.localName] = each(field, one, (inside) => writeOne(field, inside));
  }
  return json;
}

function isEmpty({ kind, scalar }: Field, value: unknown): boolean {
  if (kind === "*" || kind === "%") return Object.keys(Object(value)).length === 0;
  if (kind === "?" || scalar === ScalarType.MESSAGE) return false;
  return value instanceof Uint8Array ? value.length === 0 : value === emptyOf(scalar);
}

function writeOne({ of }: Field, value: unknown): Json {
  if (isSchema(of)) {
    const inside = Object(value);
    return of.form ? of.form.write(inside) : toJson(of, create(of, inside));
  }
  if (of) {
    const name = Object.keys(of.values).find((one) => of.values[one] === value);
    return name === undefined ? value : of.prefix + name;
  }
  if (value instanceof Uint8Array) return btoa(String.fromCharCode(...value));
  return typeof value === "bigint" ? `${value}` : value;
}

const msPerSecond = 1_000;
const nanosPerMs = 1_000_000;
/** Of a fraction of a second. */
const nanoDigits = 9;

/** "2026-11-27T08:00:00.123456Z" */
export const TimestampSchema = /* @__PURE__ */ message("seconds=3 nanos=5", undefined, {
  read: (json) => {
    const [, whole = "", fraction] = /^(.*?)(?:\.(\d+))?Z$/.exec(`${json}`) ?? [];
    const seconds = BigInt(Date.parse(`${whole}Z`) / msPerSecond);
    return create(TimestampSchema, { seconds, nanos: nanosOf(fraction) });
  },
  write: ({ seconds, nanos }) => {
    const whole = new Date(Number(seconds) * msPerSecond).toISOString().slice(0, -".000Z".length);
    return `${whole}${fractionOf(Number(nanos))}Z`;
  },
});

/** "-1.5s" */
export const DurationSchema = /* @__PURE__ */ message("seconds=3 nanos=5", undefined, {
  read: (json) => {
    const [, sign = "", whole = "", fraction] = /^(-?)(\d+)(?:\.(\d+))?s$/.exec(`${json}`) ?? [];
    const nanos = nanosOf(fraction);
    return create(DurationSchema, {
      seconds: BigInt(sign + whole),
      nanos: sign ? 0 - nanos : nanos,
    });
  },
  write: ({ seconds, nanos }) => {
    const text = `${seconds}${fractionOf(Math.abs(Number(nanos)))}s`;
    return Number(nanos) < 0 && !text.startsWith("-") ? `-${text}` : text;
  },
});

/** "name,monthlyCapMicrocredits" */
export const FieldMaskSchema = /* @__PURE__ */ message("paths*9", undefined, {
  read: (json) => {
    const paths = `${json}`.split(",").filter((path) => path !== "");
    return create(FieldMaskSchema, { paths: paths.map(snakeOf) });
  },
  write: ({ paths }) =>
    [paths]
      .flat()
      .map((path) => `${path}`.replaceAll(/_(\w)/g, (_, letter) => letter.toUpperCase()))
      .join(","),
});

/** An object in messages as in JSON. */
export const StructSchema = /* @__PURE__ */ message("", undefined, {
  read: (json) => json,
  write: (value) => value,
});

function nanosOf(fraction = ""): number {
  return Number(fraction.padEnd(nanoDigits, "0"));
}

function fractionOf(nanos: number): string {
  if (nanos === 0) return "";
  const digits = `${nanos}`.padStart(nanoDigits, "0");
  return `.${digits.replace(/(?:000){1,2}$/, "")}`;
}

/** The usual name in the proto of a field that code calls so. */
export function snakeOf(localName: string): string {
  return localName.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

export function timestampFromDate(date: Date): Message {
  const ms = date.getTime();
  const seconds = Math.floor(ms / msPerSecond);
  const nanos = (ms - seconds * msPerSecond) * nanosPerMs;
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos });
}

export function timestampMs({ seconds, nanos }: Message): number {
  return Number(seconds) * msPerSecond + Math.round(Number(nanos) / nanosPerMs);
}

export function timestampDate(timestamp: Message): Date {
  return new Date(timestampMs(timestamp));
}
