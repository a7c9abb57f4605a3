// What a person sets of a key: its name and its limits. The fields hold texts; `readKeyFields`
// turns them into a request.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Key, KeySettingsSchema } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { fieldError } from "../call-error.ts";
import { fieldDay, plainCredits, toDate } from "../format.ts";
import { words } from "../words.ts";
import { readCredits, readWhole } from "./bounds.ts";
import { parseTags, tagsText } from "./tags.ts";
import { dayOf } from "./usage-report.ts";

export type KeyFields = {
  readonly name: string;
  readonly perMinute: string;
  /** In credits. */
  readonly cap: string;
  /** The same in dollars. */
  readonly capDollars: string;
  /** In credits. */
  readonly daily: string;
  readonly weekly: string;
  readonly total: string;
  readonly atOnce: string;
  readonly hasAllModels: boolean;
  readonly models: readonly string[];
  /** The last day, such as `2026-11-22`. */
  readonly expires: string;
  /** One a line. */
  readonly addresses: string;
  readonly reader: boolean;
  /** As `team=a, env=ci`. */
  readonly tags: string;
};

export const noKeyFields: KeyFields = {
  name: "",
  perMinute: "",
  cap: "",
  capDollars: "",
  daily: "",
  weekly: "",
  total: "",
  atOnce: "",
  expires: "",
  addresses: "",
  hasAllModels: true,
  models: [],
  reader: false,
  tags: "",
};

const dayMs = 86_400_000;

export function keyFieldsOf(key: Key): KeyFields {
  const cap = key.monthlyCapMicrocredits;
  return {
    name: key.name,
    perMinute: key.requestsPerMinute === undefined ? "" : String(key.requestsPerMinute),
    cap: cap === undefined ? "" : plainCredits(cap),
    capDollars: cap === undefined ? "" : plainCredits(cap / 200n),
    daily: creditsIn(key.dailyCapMicrocredits),
    weekly: creditsIn(key.weeklyCapMicrocredits),
    total: creditsIn(key.totalCapMicrocredits),
    atOnce: key.requestsAtOnce === undefined ? "" : String(key.requestsAtOnce),
    hasAllModels: key.allowedModels.length === 0,
    models: key.allowedModels,
    // A key expires when a day begins: the day before is the last one.
    expires: key.expiresAt ? fieldDay(new Date(toDate(key.expiresAt).getTime() - 1)) : "",
    addresses: key.allowedAddresses.join("\n"),
    reader: key.accountReader,
    tags: tagsText(key.tags),
  };
}

const creditsIn = (micro: bigint | undefined) => (micro === undefined ? "" : plainCredits(micro));

/** The fields of CreateKey and UpdateKey. Throws a CallError that names a field with a mistake. */
export function readKeyFields(fields: KeyFields) {
  const { name, perMinute, cap, hasAllModels, models, expires, addresses, reader } = fields;
  const rate = readWhole(perMinute, KeySettingsSchema.field.requestsPerMinute);
  const amount = readCredits(cap, KeySettingsSchema.field.monthlyCapMicrocredits);
  const daily = readCredits(fields.daily, KeySettingsSchema.field.dailyCapMicrocredits);
  const weekly = readCredits(fields.weekly, KeySettingsSchema.field.weeklyCapMicrocredits);
  const total = readCredits(fields.total, KeySettingsSchema.field.totalCapMicrocredits);
  const atOnce = readWhole(fields.atOnce, KeySettingsSchema.field.requestsAtOnce);
  const lastDay = dayOf(expires);
  if (expires !== "" && lastDay === undefined)
    throw fieldError("expires_at", words.keyForm.notADay);
  return {
    name: name.trim(),
    ...(rate !== undefined && { requestsPerMinute: rate }),
    ...(amount !== undefined && { monthlyCapMicrocredits: amount }),
    ...(daily !== undefined && { dailyCapMicrocredits: daily }),
    ...(weekly !== undefined && { weeklyCapMicrocredits: weekly }),
    ...(total !== undefined && { totalCapMicrocredits: total }),
    ...(atOnce !== undefined && { requestsAtOnce: atOnce }),
    allowedModels: hasAllModels ? [] : [...models],
    allowedAddresses: linesOf(addresses),
    accountReader: reader,
    tags: parseTags(fields.tags),
    ...(lastDay && { expiresAt: timestampFromDate(new Date(lastDay.getTime() + dayMs)) }),
  };
}

/** The lines that are not blank. */
export function linesOf(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

const paths = {
  name: "name",
  perMinute: "requests_per_minute",
  cap: "monthly_cap_microcredits",
  daily: "daily_cap_microcredits",
  weekly: "weekly_cap_microcredits",
  total: "total_cap_microcredits",
  atOnce: "requests_at_once",
  hasAllModels: "allowed_models",
  models: "allowed_models",
  expires: "expires_at",
  addresses: "allowed_addresses",
  reader: "account_reader",
  tags: "tags",
} as const satisfies Partial<Record<keyof KeyFields, string>>;

/** What a form can show errors for. */
export const keyFieldNames = [...new Set<string>(Object.values(paths))];

/** The paths of what was changed: nobody else's changes of other fields are undone. */
export function changedPaths(before: KeyFields, after: KeyFields): string[] {
  const changed = Object.entries(paths).filter(
    ([field]) =>
      JSON.stringify(Reflect.get(before, field)) !== JSON.stringify(Reflect.get(after, field)),
  );
  return [...new Set(changed.map(([, path]) => path))];
}
