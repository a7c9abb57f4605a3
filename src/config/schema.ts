// What schemas of settings are made of: texts and the sections that hold them, for valibot. A file
// is read with every scalar as its text, and so is the environment.
//
// A rule of several members is checked where each of them is right by itself, whatever else of the
// section is wrong. So one reading reports every problem.

import * as v from "valibot";
import { nearestName } from "../base/nearest-name.ts";

/** What is wrong with a value. Undefined: nothing. */
type Problem = string | undefined;

const noText = "must be a text that is not empty";
const withValue = (message: string, value: unknown) => `${message}, not ${value}`;

/** A text in which `find` finds no problem. */
export function checked(find: (text: string) => Problem) {
  return v.pipe(
    v.string(noText),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const message = dataset.value === "" ? noText : find(dataset.value);
      if (message !== undefined) addIssue({ message, input: dataset.value });
    }),
  );
}

export const text = checked(() => undefined);

/** A text of this form. `rule` follows "must be"; with `secret`, no problem repeats the value. */
export function formed(form: RegExp, rule: string, options?: { secret: true }) {
  return checked((value) =>
    form.test(value)
      ? undefined
      : options
        ? `must be ${rule}`
        : withValue(`must be ${rule}`, value),
  );
}

export function choice<const T extends string>(choices: readonly T[]) {
  return v.picklist(choices, ({ input }) =>
    typeof input === "string" && input !== ""
      ? withValue(`must be one of ${choices.join(", ")}`, input)
      : noText,
  );
}

export const flag = v.pipe(
  choice(["true", "false"]),
  v.transform((value) => value === "true"),
);

/** A whole number of this range. `rule`: more of what may stand there. */
export function integer(min: number, max: number, rule = "") {
  const isWithin = (value: string) =>
    /^\d{1,16}$/.test(value) && Number(value) >= min && Number(value) <= max;
  const wanted = `must be a whole number from ${min} to ${max}${rule}`;
  return v.pipe(
    checked((value) => (isWithin(value) ? undefined : withValue(wanted, value))),
    v.transform(Number),
  );
}

/** The name of an environment variable. The value may be the secret itself. */
export const variable = v.pipe(
  formed(/^[A-Za-z_][A-Za-z0-9_]*$/, "the name of an environment variable", { secret: true }),
  v.description("the name of an environment variable"),
);

/** A URL of http or https, without a slash at its end. */
export const httpUrl = v.pipe(
  checked((value) => {
    const url = URL.parse(value);
    if (!url || !/^https?:$/.test(url.protocol)) return "must be a URL of http or https";
    return url.username + url.password + url.search + url.hash === ""
      ? undefined
      : "must have no credentials, query or fragment";
  }),
  v.transform((value) => value.replace(/\/+$/, "")),
);

/** A list that is not empty. */
export function list<const S extends v.GenericSchema<unknown, unknown>>(item: S) {
  const rule = "must be a list, and not empty";
  return v.pipe(v.array(item, rule), v.minLength(1, rule), v.readonly());
}

export function anyList<const S extends v.GenericSchema<unknown, unknown>>(item: S) {
  return v.pipe(v.array(item, "must be a list"), v.readonly());
}

/** A rule of a list: no two entries have the same value in `member`. They are called `what`. */
export function distinct<T>(member: string, what: string) {
  const memberOf = (entry: unknown): unknown =>
    isMapping(entry) ? (entry[camelCase(member)] ?? entry[member]) : undefined;
  return v.rawCheck<readonly T[]>(({ dataset, addIssue }) => {
    if (!Array.isArray(dataset.value)) return;
    const seen = new Set<unknown>();
    for (const [key, entry] of dataset.value.entries()) {
      const value = memberOf(entry);
      if (value !== undefined && seen.has(value))
        addIssue({
          message: `there are two ${what} ${value}`,
          path: [step(dataset.value, key), step(entry, member)],
        });
      seen.add(value);
    }
  });
}

/** A mapping whose names the operator chooses. Without a prototype. */
export function named<S extends v.GenericSchema<unknown, unknown>>(
  value: S,
  name: v.GenericSchema<string, string> = v.string(),
) {
  return v.pipe(
    mapping,
    v.rawCheck(({ dataset, addIssue }) => {
      for (const key of ["__proto__", "constructor", "prototype"])
        if (dataset.typed && Object.hasOwn(dataset.value, key))
          addIssue({ message: "cannot be a name", path: [step(dataset.value, key)] });
    }),
    v.record(name, value),
    v.transform(
      (record): Readonly<Record<string, v.InferOutput<S>>> =>
        Object.assign(Object.create(null), record),
    ),
  );
}

/**
 * A section of which the member `by` decides what else it may have, beside `always`. `usual`: its
 * value by default.
 */
export function variant<S extends v.GenericSchema<unknown, unknown>>(
  by: string,
  kinds: Readonly<Record<string, S>>,
  { always = {}, usual }: { always?: Members; usual?: string } = {},
): v.GenericSchema<unknown, v.InferOutput<S>> {
  const members = { ...always, [by]: choice(Object.keys(kinds)) };
  const wrong = v.pipe(
    mapping,
    v.rawTransform(({ dataset, addIssue, NEVER }): never => {
      readMembers(members, dataset.value, addIssue);
      return NEVER;
    }),
  );
  const schemaOf = (kind: unknown) =>
    Object.entries(kinds).find(([name]) => name === kind)?.[1] ?? wrong;
  return v.lazy((input) => schemaOf(isMapping(input) ? (input[by] ?? usual) : undefined));
}

type Members = Readonly<Record<string, v.GenericSchema<unknown, unknown>>>;

type Camel<K> = K extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<Camel<Rest>>}` : K;

type Optional<M> = {
  [K in keyof M]: M[K] extends { readonly type: "exact_optional" } ? K : never;
}[keyof M];

type Flat<T> = { [K in keyof T]: T[K] } & {};

/** The settings of a section: its members in camel case. */
export type Settings<M extends Members> = Flat<
  { readonly [K in Exclude<keyof M, Optional<M>> as Camel<K>]: v.InferOutput<M[K]> } & {
    readonly [K in Optional<M> as Camel<K>]?: v.InferOutput<M[K]>;
  }
>;

/** The members of a section by the names of the file, where each is right by itself. */
type Right<M extends Members> = {
  readonly [K in keyof M]: K extends Optional<M>
    ? v.InferOutput<M[K]> | undefined
    : v.InferOutput<M[K]>;
};

/**
 * States one rule of a section: `find` gets the members `of`, unless one of them has a problem by
 * itself, and gives the problem of the member `at`, or of the whole section for an empty text.
 */
type Rule<M extends Members> = <K extends keyof M & string>(
  at: string,
  of: readonly K[],
  find: (members: Pick<Right<M>, K>) => Problem,
) => void;

/**
 * A mapping with these members, by the names of the file, and no other. One that may be absent is
 * `v.exactOptional`, or `v.optional` with the default as a file would write it. `rules` get `has`,
 * too: whether a member is there, right or wrong.
 */
export function section<const M extends Members>(
  members: M,
  rules?: (rule: Rule<M>, has: (name: string) => boolean) => void,
): v.GenericSchema<unknown, Settings<M>> {
  const names = Object.keys(members);
  const hasAll = (given: object, of: readonly string[]): given is Right<M> =>
    of.every((name) => Object.hasOwn(given, name));
  const read = v.rawTransform<Record<string, unknown>, Settings<M>>((context) => {
    const { dataset, addIssue, NEVER } = context;
    const input = dataset.value;
    const right = readMembers(members, input, addIssue);
    const problem = (at: string, message: string) =>
      addIssue(at === "" ? { message } : { message, path: [step(input, at)] });
    rules?.(
      (at, of, find) => {
        const message = hasAll(right, of) ? find(right) : undefined;
        if (message !== undefined) problem(at, message);
      },
      (name) => Object.hasOwn(input, name),
    );
    for (const name of Object.keys(input))
      if (!Object.hasOwn(members, name))
        problem(name, `is not a known member${suggest(name, names)}`);
    const settings = inCamelCase(members, right);
    return hasAll(right, names) && isSettings<M>(settings) ? settings : NEVER;
  });
  return v.pipe(mapping, read);
}

type AddIssue = (issue: {
  message: string;
  input?: unknown;
  path: [v.IssuePathItem, ...v.IssuePathItem[]];
}) => void;

/** The members that are right, by their names. Absent ones are undefined. */
function readMembers(
  members: Members,
  input: Readonly<Record<string, unknown>>,
  addIssue: AddIssue,
) {
  const right: Record<string, unknown> = Object.create(null);
  for (const [name, schema] of Object.entries(members)) {
    const isAbsent = !Object.hasOwn(input, name);
    if (isAbsent && schema.type === "exact_optional") {
      right[name] = undefined;
    } else if (isAbsent && schema.type !== "optional") {
      const hint = v.getDescription(schema);
      const message = hint === undefined ? "is required" : `is required: ${hint}`;
      addIssue({ message, path: [step(input, name)] });
    } else {
      const { success, output, issues } = v.safeParse(schema, input[name]);
      if (success) right[name] = output;
      for (const { message, input: value, path } of issues ?? [])
        addIssue({ message, input: value, path: [step(input, name), ...(path ?? [])] });
    }
  }
  return right;
}

/** Members in camel case, without those that are absent. */
function inCamelCase(
  members: Members,
  right: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const given = Object.entries(right).filter(
    ([name, value]) => value !== undefined || members[name]?.type !== "exact_optional",
  );
  return Object.fromEntries(given.map(([name, value]) => [camelCase(name), value]));
}

/** True for what `inCamelCase` gives of all members: the type says the same in types. */
function isSettings<M extends Members>(value: object): value is Settings<M> {
  return Object.keys(value).every((name) => name === camelCase(name));
}

function step(input: unknown, key: string | number): v.IssuePathItem {
  return { type: "unknown", origin: "value", input, key, value: undefined };
}

/** Where an issue is, as a file would name the place. `whole`: the name of the whole. */
export function placeOf({ path }: v.BaseIssue<unknown>, whole = "the file"): string {
  const place = (path ?? [])
    .map(({ key }) => (typeof key === "number" ? `[${key}]` : `.${key}`))
    .join("");
  return place === "" ? whole : place.slice(1);
}

const mapping = v.pipe(v.unknown(), v.guard(isMapping, "must be a mapping"));

/** True for what a file writes as a mapping. */
export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The end of a message about a name that nobody knows. */
export function suggest(name: string, names: readonly string[]): string {
  const nearest = nearestName(name, names);
  return nearest === undefined ? "" : `; did you mean ${nearest}?`;
}

function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
