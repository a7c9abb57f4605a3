// GET /v1/usage: what the caller's key used and was charged, by time, key, model, family and
// member.

import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import {
  Bucket,
  UsageGroup,
  type UsageRow,
  UsageService,
  type UsageSums,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { actorText } from "../base/actors.ts";
import { familyName } from "../base/families.ts";
import {
  closed,
  count,
  decimal,
  described,
  list,
  oneOf,
  orNull,
  ref,
  type Schema,
  text,
  time,
} from "../base/json-schema.ts";
import { credits, usd } from "../base/money.ts";
import {
  choiceOf,
  countParam,
  listParam,
  rangeParams,
  readQuery,
  textParam,
} from "../base/query.ts";
import { parseTags } from "../base/tags.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type { Core } from "../contract/contract.ts";
import { pageSizeMaxOf } from "../contract/limits.ts";
import { callFor, rfc3339OrNull, sendJson } from "./context.ts";
import { json, type Operation, pageParameters, rangeParameters } from "./operation.ts";

const { queryUsage } = UsageService.method;
const buckets = { none: Bucket.NONE, hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH };
const groups = {
  key: UsageGroup.KEY,
  model: UsageGroup.MODEL,
  family: UsageGroup.FAMILY,
  member: UsageGroup.MEMBER,
};

const parameters = {
  ...rangeParameters,
  bucket: described("The time that one row covers. Default: none, the whole range.", {
    ...oneOf(...Object.keys(buckets)),
  }),
  group_by: described(
    `What gets rows of its own: some of ${Object.keys(groups).join(", ")}, separated by commas.`,
    text,
  ),
  group_by_tag: described("The key of a tag: each of its values gets rows of its own.", text),
  key_id: described("Only these keys, separated by commas.", text),
  model: described("Only these models, separated by commas.", text),
  tag: described("Only requests with this tag, such as `team=a`.", text),
  ...pageParameters(queryUsage),
};

const sums = {
  requests: count,
  completed: count,
  failed: count,
  cut: count,
  tokens: ref("Tokens"),
  web_searches: count,
  charge_credits: decimal,
  charge_usd: decimal,
};

export const usageSchemas: Readonly<Record<string, Schema>> = {
  Tokens: described(
    "Tokens, or something for each of them, by category. A cached token is in one category only.",
    closed(Object.fromEntries(tokenCategories.map((one) => [categoryColumns[one], count]))),
  ),
  Usage: closed(
    {
      object: oneOf("usage"),
      from: time,
      to: time,
      complete_until: described("Requests that were admitted before are in the sums.", time),
      data: list(ref("UsageRow")),
      next_page_token: orNull(text),
    },
    { totals: described("Of all pages. On the first page.", closed(sums)) },
  ),
  UsageRow: closed(
    { from: described("The start of the bucket.", time), ...sums },
    {
      key_id: text,
      model: text,
      family: oneOf("v1", "v2"),
      member: described(
        "Who manages the keys now, such as `person:per_…`. Null: nobody.",
        orNull(text),
      ),
      tag_value: described("Null: the requests without the tag.", orNull(text)),
    },
  ),
};

export const usageOperation: Operation = {
  id: "getUsage",
  summary: "Sums what was used and charged",
  description:
    "By UTC time of admission, key, model, family and member, or by the values of one tag. A " +
    "request may have several tags, so sums by different tags are never added up.",
  query: parameters,
  answer: { [json]: ref("Usage") },
  errors: ["report_too_large", "not_found"],
};

export function getUsage(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const query = readQuery(request.query, Object.keys(parameters));
    const answer = await core.billing.queryUsage(
      {
        ...rangeParams(query),
        accountId: textParam(query, "account_id"),
        bucket: choiceOf(buckets, "bucket", textParam(query, "bucket") || "none"),
        groupBy: listParam(query, "group_by").map((name) => choiceOf(groups, "group_by", name)),
        keyIds: listParam(query, "key_id"),
        models: listParam(query, "model"),
        groupByTag: textParam(query, "group_by_tag"),
        tags: parseTags(textParam(query, "tag"), "tag"),
        pageSize: countParam(query, "limit", pageSizeMaxOf(queryUsage)),
        pageToken: textParam(query, "page_token"),
      },
      callFor(request),
    );
    return sendJson(reply, {
      object: "usage",
      // Full hours or days: the range may be wider than the one that was asked for.
      from: rfc3339OrNull(answer.startAt),
      to: rfc3339OrNull(answer.endAt),
      complete_until: rfc3339OrNull(answer.completeUntil),
      data: answer.rows.map((row) =>
        renderRow(row, {
          isByMember: listParam(query, "group_by").includes("member"),
          isByTag: textParam(query, "group_by_tag") !== "",
        }),
      ),
      // On the first page: the sums of all pages.
      ...(answer.totals && { totals: renderSums(answer.totals) }),
      next_page_token: answer.nextPageToken || null,
    });
  };
}

function renderRow(
  { startAt: from, keyId, model, family, member, sums, tagValue }: UsageRow,
  { isByMember, isByTag }: { isByMember: boolean; isByTag: boolean },
): JsonObject {
  return {
    from: rfc3339OrNull(from),
    ...(keyId !== "" && { key_id: keyId }),
    ...(model !== "" && { model }),
    ...(familyName(family) && { family: familyName(family) ?? null }),
    ...(isByMember && { member: actorText(member) || null }),
    // Null: the requests without that tag.
    ...(isByTag && { tag_value: tagValue || null }),
    ...(sums && renderSums(sums)),
  };
}

function renderSums(sums: UsageSums): JsonObject {
  const { usage, chargedMicrocredits: amount } = sums;
  return {
    requests: Number(sums.requests),
    completed: Number(sums.completed),
    failed: Number(sums.failed),
    cut: Number(sums.cut),
    tokens: Object.fromEntries(
      tokenCategories.map((category) => [
        categoryColumns[category],
        Number(usage?.[category] ?? 0n),
      ]),
    ),
    web_searches: Number(usage?.webSearches ?? 0n),
    charge_credits: credits(amount),
    charge_usd: usd(amount),
  };
}
