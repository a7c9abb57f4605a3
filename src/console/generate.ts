// Writes `gen/form-limits.ts`: the limits of fields that the forms of the console send, as the
// protos have them. A part of `npm run generate`.

import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { allServices } from "../contract/contract.ts";
import { limitsOf } from "../contract/limits.ts";

const root = join(import.meta.dirname, "../..");

function fieldsIn(message: DescMessage, known: Set<DescMessage>): DescField[] {
  if (known.has(message)) return [];
  known.add(message);
  return message.fields.flatMap((field) => [
    field,
    ...(field.message ? fieldsIn(field.message, known) : []),
  ]);
}

/**
 * The text of that file: texts that the sources of the page name, as `name` or
 * `SearchRequest.query`, and numbers that they read by their descriptors. Of several fields with
 * one name, the largest limit, since the services check each by its own.
 */
export function writeFormLimits(): string {
  const sources = globSync("src/console/web/**/*.{ts,tsx}", { cwd: root })
    .map((path) => readFileSync(join(root, path), "utf8"))
    .join("\n");
  const wordsOf = (form: RegExp) => new Set([...sources.matchAll(form)].map(([, word]) => word));
  const named = wordsOf(/"((?:[A-Z]\w+\.)?[a-z][a-z_]+)"/g);
  const read = wordsOf(/\bfield\.(\w+)/g);
  const known = new Set<DescMessage>();
  const fields = allServices
    .flatMap(({ methods }) => methods.flatMap(({ input }) => fieldsIn(input, known)))
    .filter(({ fieldKind }) => fieldKind === "scalar");
  const longest = new Map<string, bigint>();
  const largest = new Map<string, bigint>();
  const add = (map: Map<string, bigint>, name: string, limit: bigint) => {
    const other = map.get(name) ?? 0n;
    map.set(name, limit > other ? limit : other);
  };
  for (const field of fields) {
    const { lengthMax, most } = limitsOf(field) ?? {};
    const { name, localName, parent } = field;
    for (const one of [name, `${parent.name}.${name}`])
      if (lengthMax !== undefined && named.has(one)) add(longest, one, BigInt(lengthMax));
    if (most !== undefined && read.has(localName)) add(largest, name, BigInt(most));
  }
  return [
    "// The limits of fields that forms send, by their names. `npm run generate` writes it.",
    "",
    "/** The most characters of a text. */",
    `export const longest: Readonly<Record<string, number>> = ${tableOf(longest)};`,
    "",
    "/** The largest number. */",
    `export const largest: Readonly<Record<string, number>> = ${tableOf(largest)};`,
    "",
  ].join("\n");
}

function tableOf(map: ReadonlyMap<string, bigint>): string {
  const lines = [...map].sort(([one], [other]) => (one < other ? -1 : 1));
  const quoted = (name: string) => (name.includes(".") ? JSON.stringify(name) : name);
  return `{\n${lines.map(([name, limit]) => `  ${quoted(name)}: ${limit},\n`).join("")}}`;
}

if (process.argv[1] === import.meta.filename)
  writeFileSync(join(root, "gen/form-limits.ts"), writeFormLimits());
