// Mutants of SQL: borders of comparisons, intervals, dropped conditions, turned orders, swapped
// columns. Each changes one statement of `gen/sql` at one place.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Query, Text } from "../../src/postgres/statement.ts";
import { root } from "../runner/suites.ts";

export type StatementMutant = {
  /** The statement's: `billing/find-account`. */
  readonly name: string;
  /** The whole mutated statement. */
  readonly text: string;
  /** Its changed line, before and after. */
  readonly before: string;
  readonly after: string;
};

type Runnable = Text & { with(...parameters: readonly unknown[]): Query };

/** Every statement of the product. */
export async function statements(): Promise<Runnable[]> {
  const folder = join(root, "gen/sql");
  const modules: unknown[] = await Promise.all(
    readdirSync(folder).map((file) => import(join(folder, file))),
  );
  return modules.flatMap((module) => Object.values(Object(module))).filter(isStatement);
}

function isStatement(value: unknown): value is Runnable {
  return typeof value === "object" && value !== null && "with" in value && "text" in value;
}

/** One change: the text from `at` to `to` becomes `by`. */
type Change = { readonly at: number; readonly to: number; readonly by: string };

/** What one token becomes. */
const tokens: readonly (readonly [RegExp, string])[] = [
  [/ < /g, " <= "],
  [/ <= /g, " < "],
  [/ > /g, " >= "],
  [/ >= /g, " > "],
  [/ = /g, " <> "],
  [/ <> /g, " = "],
  [/ \+ /g, " - "],
  [/ - /g, " + "],
  [/\bleast\(/g, "greatest("],
  [/\bgreatest\(/g, "least("],
  [/\bmin\(/g, "max("],
  [/\bmax\(/g, "min("],
  [/ desc\b/g, ""],
  [/\bis null\b/g, "is not null"],
  [/\bis not null\b/g, "is null"],
  [/ distinct\b(?! from)/g, ""],
  [/\nlimit \$?\w+/g, ""],
];
const interval = /interval '(\d+)/g;
/** The words before a condition that may be dropped. */
const conditionStart = /\b(where|and|or|on|when)\s+/g;
/** What ends a condition, outside of its brackets. */
const conditionEnd = new RegExp(
  String.raw`^(?:\)|,|\s+(?:and|or|then|order|group|limit|returning|union|for|on|where|join|left|cross|` +
    String.raw`window|having|set)\b|$)`,
);
const columnList = /\binsert into \w+(?: as \w+)? \(([^)]*)\)/g;

/** Every mutant of a statement. Some are no SQL: the server tells. */
export function mutantsOf({ name, text }: Text): StatementMutant[] {
  const body = maskComments(text);
  const changes = [
    ...tokens.flatMap(([from, by]) =>
      [...body.matchAll(from)].map((found) => change(found.index, found[0].length, by)),
    ),
    ...[...body.matchAll(interval)].map((found) =>
      change(found.index, found[0].length, `interval '${Number(found[1]) * 2}`),
    ),
    ...[...body.matchAll(conditionStart)].flatMap((found) => {
      const at = found.index + found[0].length;
      const to = endOfCondition(body, at);
      const by = found[1] === "or" ? "false" : "true";
      return body.slice(at, to) === by ? [] : [{ at, to, by }];
    }),
    ...[...body.matchAll(columnList)].flatMap((found) => swaps(found[1] ?? "", found)),
  ];
  return changes.map(({ at, to, by }) => {
    const mutated = text.slice(0, at) + by + text.slice(to);
    return { name, text: mutated, before: lineAt(text, at), after: lineAt(mutated, at) };
  });
}

function change(at: number, length: number, by: string): Change {
  return { at, to: at + length, by };
}

/** The text with blanks in the place of its comments. */
function maskComments(text: string): string {
  return text.replace(/--[^\n]*/g, (comment) => " ".repeat(comment.length));
}

function endOfCondition(text: string, from: number): number {
  let depth = 0;
  let isBetween = false;
  for (let at = from; at < text.length; at++) {
    const rest = text.slice(at, at + 12);
    if (text[at] === "'") at = text.indexOf("'", at + 1);
    else if (/^\sbetween\b/.test(rest)) isBetween = true;
    else if (depth === 0 && isBetween && /^\s+and\b/.test(rest)) isBetween = false;
    else if (depth === 0 && conditionEnd.test(text.slice(at, at + 40).replace(/\n/g, " ")))
      return at;
    if (text[at] === "(") depth++;
    if (text[at] === ")") depth--;
  }
  return text.length;
}

/** Each two neighbours of a list of columns, swapped. */
function swaps(list: string, found: RegExpExecArray): Change[] {
  const start = found.index + found[0].length - 1 - list.length;
  const names = [...list.matchAll(/"?\w+"?/g)];
  return names.flatMap((one, index) => {
    const next = names[index + 1];
    if (next === undefined) return [];
    const to = next.index + next[0].length;
    const between = list.slice(one.index + one[0].length, next.index);
    return [{ at: start + one.index, to: start + to, by: next[0] + between + one[0] }];
  });
}

function lineAt(text: string, at: number): string {
  const start = text.lastIndexOf("\n", at) + 1;
  const end = text.indexOf("\n", Math.max(at, start));
  return text.slice(start, end < 0 ? undefined : end).trim();
}
