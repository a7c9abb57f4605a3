// GET /v1/usage: what the caller's key used and was charged, by time, key, model and family.

import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import {
  Bucket,
  UsageGroup,
  type UsageRow,
  type UsageSums,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { familyName } from "../base/families.ts";
import { credits, usd } from "../base/money.ts";
import {
  choiceOf,
  countParam,
  listParam,
  rangeParams,
  readQuery,
  textParam,
} from "../base/query.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type { Core } from "../contract/contract.ts";
import { identityOf } from "./context.ts";
import { rfc3339OrNull, sendJson } from "./reply.ts";

const parameters = [
  ...["from", "to", "bucket", "group_by", "key_id", "model"],
  ...["limit", "page_token", "account_id"],
];
const buckets = { none: Bucket.NONE, hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH };
const groups = { key: UsageGroup.KEY, model: UsageGroup.MODEL, family: UsageGroup.FAMILY };
const rowsMax = 2_000;

export function getUsage(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const query = readQuery(request.query, parameters);
    const answer = await core.billing.queryUsage(
      {
        ...rangeParams(query),
        accountId: textParam(query, "account_id"),
        bucket: choiceOf(buckets, "bucket", textParam(query, "bucket") || "none"),
        groupBy: listParam(query, "group_by").map((name) => choiceOf(groups, "group_by", name)),
        keyIds: listParam(query, "key_id"),
        models: listParam(query, "model"),
        pageSize: countParam(query, "limit", rowsMax),
        pageToken: textParam(query, "page_token"),
      },
      identityOf(request).call,
    );
    return sendJson(reply, {
      object: "usage",
      // Full hours or days: the range may be wider than the one that was asked for.
      from: rfc3339OrNull(answer.from),
      to: rfc3339OrNull(answer.to),
      complete_until: rfc3339OrNull(answer.completeUntil),
      data: answer.rows.map(renderRow),
      // On the first page: the sums of all pages.
      ...(answer.totals && { totals: renderSums(answer.totals) }),
      next_page_token: answer.nextPageToken || null,
    });
  };
}

function renderRow({ from, keyId, model, family, sums }: UsageRow): JsonObject {
  return {
    from: rfc3339OrNull(from),
    ...(keyId !== "" && { key_id: keyId }),
    ...(model !== "" && { model }),
    ...(familyName(family) && { family: familyName(family) ?? null }),
    ...(sums && renderSums(sums)),
  };
}

function renderSums(sums: UsageSums): JsonObject {
  const { usage, amountMicrocredits: amount } = sums;
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
    charge_credits: credits(amount),
    charge_usd: usd(amount),
  };
}
