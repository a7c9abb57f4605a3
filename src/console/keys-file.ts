// The file of the keys of an account: those that the page of keys shows, with the same filters.

import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import { type Key, KeyAttention, KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { actorText } from "../base/actors.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { familyName } from "../base/families.ts";
import { described, oneOf, text } from "../base/json-schema.ts";
import { credits } from "../base/money.ts";
import { choiceOf, listParam, type Query, textParam } from "../base/query.ts";
import { parseTags, tagsText } from "../base/tags.ts";
import type { Core } from "../contract/contract.ts";

const statuses = {
  active: KeyState.ACTIVE,
  paused: KeyState.PAUSED,
  expired: KeyState.EXPIRED,
  revoked: KeyState.REVOKED,
};
const looks = {
  unused: KeyAttention.UNUSED,
  expires_soon: KeyAttention.EXPIRES_SOON,
  near_budget: KeyAttention.NEAR_BUDGET,
};

/** What the public description says of it, and its lines. */
export const keysFile = {
  id: "downloadKeys",
  summary: "Downloads the keys of an account, oldest first, a line for each",
  parameters: {
    account: described("The account. May be absent for a member of one account.", text),
    key: described("Only these keys, separated by commas.", text),
    status: described("Only keys of these statuses, separated by commas.", text),
    query: described("Only keys whose name or hint has this text.", text),
    tag: described("Only keys with these tags, such as `team=a,env=ci`.", text),
    without_tag: described("Only keys without the tag of this name.", text),
    attention: described("Only keys that deserve this look.", oneOf(...Object.keys(looks))),
  },
  lines: keyLines,
} as const;

const columns = [
  ...["key_id", "name", "hint", "family", "status", "tags", "requests_per_minute"],
  ...["allowed_models", "allowed_addresses", "daily_cap_credits", "weekly_cap_credits"],
  ...["monthly_cap_credits", "total_cap_credits", "requests_at_once", "month_spent_credits"],
  ...["last_used_at", "expires_at", "created_at", "created_by", "managed_by", "revoked_at"],
];

async function* keyLines(core: Core, query: Query, options: CallOptions): AsyncGenerator<string> {
  const look = textParam(query, "attention");
  const request = {
    accountId: textParam(query, "account"),
    keyIds: listParam(query, "key"),
    states: listParam(query, "status").map((name) => choiceOf(statuses, "status", name)),
    query: textParam(query, "query"),
    tags: parseTags(textParam(query, "tag"), "tag"),
    withoutTag: textParam(query, "without_tag"),
    attention: look === "" ? KeyAttention.UNSPECIFIED : choiceOf(looks, "attention", look),
    pageSize: 1_000,
  };
  let pageToken = "";
  let head = csvLine(columns);
  do {
    const page = await core.keys.listKeys({ ...request, pageToken }, options);
    yield head + page.keys.map(lineOf).join("");
    head = "";
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

const statusNames = new Map<KeyState, string>(
  Object.entries(statuses).map(([name, status]) => [status, name]),
);

function lineOf(key: Key): string {
  return csvLine([
    key.keyId,
    textCell(key.name),
    textCell(key.secrets[0]?.hint ?? ""),
    familyName(key.family) ?? "",
    statusNames.get(key.state) ?? "",
    textCell(tagsText(key.tags)),
    key.requestsPerMinute ?? "",
    textCell(key.allowedModels.join(" ")),
    textCell(key.allowedAddresses.join(" ")),
    limit(key.dailyCapMicrocredits),
    limit(key.weeklyCapMicrocredits),
    limit(key.monthlyCapMicrocredits),
    limit(key.totalCapMicrocredits),
    key.requestsAtOnce ?? "",
    credits(key.monthSpentMicrocredits),
    time(key.lastUsedAt),
    time(key.expiresAt),
    time(key.createdAt),
    textCell(actorText(key.createdBy)),
    textCell(actorText(key.managedBy)),
    time(key.revokedAt),
  ]);
}

/** Empty: there is none. */
const limit = (micro: bigint | undefined) => (micro === undefined ? "" : credits(micro));
const time = (at: Timestamp | undefined) => (at ? timestampDate(at).toISOString() : "");
