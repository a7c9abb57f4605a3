// A charge as a line of JSON, as the database writes it: for the digest of a closed month, for
// exports and for sinks. One form for all three, so that a line of one can be looked up in another.
//
// A change of the form changes the digests of months that are closed later, not of earlier ones:
// raise `lineVersion` with it, which manifests name.

import { categoryColumns, tokenCategories } from "./token-categories.ts";

/** The form of the lines. */
export const lineVersion = 1;

const texts = ["request_id", "account_id", "family", "key_id", "outcome", "basis", "price_version"];
const bigNumbers = ["hold", "amount", "overrun"];
const numbers = [
  ...tokenCategories.map((category) => categoryColumns[category]),
  "granted_output",
  "output_over",
  "thinking_over",
];

/** UTC, ISO 8601, as precise as stored. The form does not depend on settings of the session. */
const timeOf = (column: string) => `rtrim(to_json(${column} at time zone 'utc')::text, '"')`;

/**
 * The members of a line: the name, the form of the value, and the value in SQL. The types stand
 * together: `format` looks up how to write a type whenever it changes.
 */
const members: readonly (readonly [name: string, form: string, sql: string])[] = [
  ...texts.map((name) => [name, '"%s"', `#."${name}"`] as const),
  ["secret_id", "%s", `coalesce('"' || #.secret_id || '"', 'null')`],
  ["model", "%s", "to_json(#.model)::text"],
  ["admitted_at", '%sZ"', timeOf("#.admitted_at")],
  ["settled_at", '%sZ"', timeOf("#.settled_at")],
  ["attempts", "%s", "#.attempts::text"],
  ["tags", "%s", "coalesce(#.tags::text, '{}')"],
  ...bigNumbers.map((name) => [name, "%s", `#.${name}`] as const),
  ...numbers.map((name) => [name, "%s", `#.${name}`] as const),
];

const form = `{${members.map(([name, value]) => `"${name}":${value}`).join(",")}}`;
const values = members.map(([, , sql]) => sql).join(", ");

/** Expands `charge_line(c)` in SQL, where `c` is a row of charges. */
export function expandChargeLine(sql: string): string {
  return sql.replace(/\bcharge_line\((\w+)\)/g, (_, row: string) => {
    return `format('${form}', ${values.replaceAll("#", row)})`;
  });
}

const figures = [...bigNumbers, ...numbers.slice(0, tokenCategories.length)];
// The end of every line. Nothing in front of it can look like it: in a string its quotes would be
// escaped, and nested objects have none of these members.
const figuresForm = new RegExp(
  `${figures.map((name) => `"${name}":(\\d+)`).join(",")},"granted_output":\\d+,[^{}]*}$`,
);

/** What the charges of an export are added up by. */
export const figureNames: readonly string[] = figures;

/** The figures of a line, in the order of `figureNames`. Undefined: it is not such a line. */
export function readFigures(line: string): bigint[] | undefined {
  return figuresForm.exec(line)?.slice(1).map(BigInt);
}
