// GET /v1/credits: the balance of the caller's pool and the key's spending this month. A management
// key sees both pools.
// GET /v1/receipts/{request_id}: the cost of one request.
// GET /v1/receipts?limit=…: the finished requests, newest first, in pages.
// The admin token names the account in the query, `?account_id=…`.

import assert from "node:assert/strict";
import type { DescEnum, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Pool } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Attempt,
  BasisSchema,
  Outcome,
  OutcomeSchema,
  type Receipt,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Actor } from "../../gen/gateway/common/v1/actor_pb.ts";
import { type Budget, BudgetWindow_Name } from "../../gen/gateway/common/v1/budget_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { actorText, toActor } from "../base/actors.ts";
import { attemptOutcomeName } from "../base/attempt-outcomes.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import {
  boolean,
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
import { leftOutReasonNames } from "../base/left-out.ts";
import { credits, creditsOfNano, parseCredits, usd } from "../base/money.ts";
import {
  choiceOf,
  countParam,
  listParam,
  type Query,
  rangeParams,
  readQuery,
  textParam,
} from "../base/query.ts";
import { parseTags, sortedTags } from "../base/tags.ts";
import { categoryColumns, type TokenCategory, tokenCategories } from "../base/token-categories.ts";
import type { Core } from "../contract/contract.ts";
import { pageSizeMaxOf } from "../contract/limits.ts";
import { encodeLeftOut } from "../formats/codec.ts";
import { callFor, identityOf, pathParam, queryParam, rfc3339OrNull, sendJson } from "./context.ts";
import { json, type Operation, pageParameters, rangeParameters } from "./operation.ts";

/** The key of a request. Throws `not_permitted` for the admin token, which is of no account. */
export function keyOfRequest(request: FastifyRequest): Key {
  const { key } = identityOf(request).caller;
  if (!key) throw new ApiError("not_permitted");
  return key;
}

/**
 * The pool that the key of a request draws on, and every budget that bounds it. Throws as
 * `keyOfRequest` does.
 */
export async function readFunds(
  core: Core,
  request: FastifyRequest,
): Promise<{ pool: Pool; budgets: readonly Budget[] }> {
  const { family, budget } = keyOfRequest(request);
  const { pools, budgets } = await core.billing.getPools({}, callFor(request));
  const pool = pools.find((one) => one.family === family);
  assert(pool, "an account has a pool of each family");
  return { pool, budgets: budget ? [budget, ...budgets] : budgets };
}

export function getCredits(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    if (identityOf(request).caller.management) {
      const { pools } = await core.billing.getPools({}, callFor(request));
      return sendJson(reply, { object: "credits", pools: pools.map(renderPool) });
    }
    const key = keyOfRequest(request);
    const { pool, budgets } = await readFunds(core, request);
    return sendJson(reply, {
      object: "credits",
      pool: renderPool(pool),
      key: renderKeyMonth(key),
      budgets: budgets.flatMap(renderBudget),
    });
  };
}

function renderPool(pool: Pool): JsonObject {
  const { postedMicrocredits: posted, heldMicrocredits: held, freeMicrocredits: free } = pool;
  return {
    family: familyName(pool.family) ?? null,
    // Only an account reader sees what the account bought, and what other keys hold.
    ...(posted !== undefined && { posted_credits: credits(posted) }),
    ...(held !== undefined && { held_credits: credits(held) }),
    free_credits: credits(free),
  };
}

const windowNames: Readonly<Record<BudgetWindow_Name, string>> = {
  [BudgetWindow_Name.UNSPECIFIED]: "",
  [BudgetWindow_Name.DAY]: "day",
  [BudgetWindow_Name.WEEK]: "week",
  [BudgetWindow_Name.MONTH]: "month",
  [BudgetWindow_Name.TOTAL]: "total",
};

/** A line for each window with a limit. A plain key may not learn what others spend. */
function renderBudget({ payer, windows }: Budget): JsonObject[] {
  const kind = payer?.payer.case;
  const of = kind === "keyId" ? "key" : kind === "pool" ? "pool" : "manager";
  return windows.flatMap(
    ({ window, freeMicrocredits: free, spentMicrocredits, resetsAt, ...one }) =>
      free === undefined
        ? []
        : [
            {
              of,
              window: windowNames[window] ?? null,
              limit_credits:
                one.limitMicrocredits === undefined ? null : credits(one.limitMicrocredits),
              spent_credits: spentMicrocredits === undefined ? null : credits(spentMicrocredits),
              free_credits: credits(free),
              resets_at: rfc3339OrNull(resetsAt),
            },
          ],
  );
}

function renderKeyMonth(key: Key): JsonObject {
  const { monthSpentMicrocredits, monthHeldMicrocredits, monthlyCapMicrocredits: cap } = key;
  return {
    key_id: key.keyId,
    month_spent_credits: credits(monthSpentMicrocredits),
    month_held_credits: credits(monthHeldMicrocredits),
    monthly_cap_credits: cap === undefined ? null : credits(cap),
    resets_at: rfc3339OrNull(key.monthResetsAt),
  };
}

export function getReceipt(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const requestId = pathParam(request, "requestId");
    const { receipt } = await core.billing.getReceipt(
      { requestId, accountId: queryParam(request, "account_id") },
      callFor(request),
    );
    assert(receipt, "the service returns a receipt or throws");
    return sendJson(reply, renderReceipt(receipt));
  };
}

const { listCharges } = UsageService.method;

/** The outcomes of finished requests, by their names in lower case. */
const outcomes: Readonly<Record<string, Outcome>> = Object.fromEntries(
  Object.entries(Outcome)
    .filter(([, outcome]) => outcome !== Outcome.UNSPECIFIED && outcome !== Outcome.RUNNING)
    .map(([name, outcome]) => [name.toLowerCase(), outcome]),
);

const listParameters = {
  ...rangeParameters,
  key_id: described("Only charges of this key.", text),
  model: described("Only charges of this model, by its id in the catalogue.", text),
  outcome: described(
    `Only charges with one of these, separated by commas: ${Object.keys(outcomes).join(", ")}.`,
    text,
  ),
  min_credits: described("Only charges of so many credits or more.", decimal),
  tag: described("Only requests with all of these tags, such as `team=a,env=ci`.", text),
  made_by: described("Only requests that were charged by this program.", text),
  ...pageParameters(listCharges),
};

const pool = closed(
  { family: oneOf("v1", "v2"), free_credits: decimal },
  { posted_credits: decimal, held_credits: decimal },
);

const keyMonth = closed({
  key_id: text,
  month_spent_credits: decimal,
  month_held_credits: decimal,
  monthly_cap_credits: orNull(decimal),
  resets_at: orNull(time),
});

const budget = closed({
  of: oneOf("key", "manager", "pool"),
  window: oneOf("day", "week", "month", "total"),
  limit_credits: described("Null: it is another's, who keeps it to himself.", orNull(decimal)),
  spent_credits: described("By the time of settlement. Null: as `limit_credits`.", orNull(decimal)),
  free_credits: described("What a new request may still use.", decimal),
  resets_at: described("Null: it does not reset by itself.", orNull(time)),
});

const attempt = closed({
  provider: text,
  outcome: text,
  status: orNull(count),
  first_event_ms: orNull(count),
});

const leftOut = closed({
  where: text,
  what: text,
  why: described(
    "Why. `unknown`: for a reason that this version does not have.",
    oneOf(...leftOutReasonNames, "unknown"),
  ),
  count,
});

const receipt = closed(
  {
    object: oneOf("receipt"),
    request_id: text,
    model: text,
    key_id: text,
    family: orNull(oneOf("v1", "v2")),
    outcome: described(
      "How the request ended. `RUNNING`: it has not, and its numbers are those metered so far.",
      oneOf("RUNNING", ...Object.keys(outcomes).map((name) => name.toUpperCase())),
    ),
    basis: orNull(
      oneOf(...BasisSchema.values.filter(({ number }) => number > 0).map((one) => one.localName)),
    ),
    tokens: ref("Tokens"),
    web_searches: count,
    granted_output: count,
    price_version: orNull(text),
    price_note: described("Why it is another price than the plain one of the model.", orNull(text)),
    credits_per_token: orNull(
      closed(Object.fromEntries(tokenCategories.map((one) => [categoryColumns[one], decimal]))),
    ),
    credits_per_web_search: orNull(decimal),
    hold_credits: decimal,
    charge_credits: decimal,
    charge_usd: decimal,
    overrun_credits: described("The cost beyond the hold, which the operator bears.", decimal),
    attempts: described("The calls to providers, in their order.", list(attempt)),
    left_out: described("Parts of the request that the provider did not get.", list(leftOut)),
    tags: described("The tags of the request: values by key.", {
      type: "object",
      additionalProperties: text,
    }),
    made_by: described(
      "The program that had the request charged, such as `token:billing-bot`. Null: the gateway.",
      orNull(text),
    ),
    admitted_at: orNull(time),
    settled_at: orNull(time),
  },
  { reported_tokens: described("Where they are not the charged ones.", ref("Tokens")) },
);

export const receiptSchemas: Readonly<Record<string, Schema>> = {
  Credits: closed(
    { object: oneOf("credits") },
    {
      ...{ pool, key: keyMonth, budgets: list(budget) },
      pools: described("For a management key, in place of the others.", list(pool)),
    },
  ),
  Receipt: receipt,
  ReceiptList: closed({
    object: oneOf("list"),
    data: list(ref("Receipt")),
    has_more: boolean,
    next_page_token: orNull(text),
    searched_to: orNull(time),
    archived_before: described(
      "On the last page, if charges of earlier months were archived, and so are not listed.",
      orNull(time),
    ),
  }),
};

export const creditsOperation: Operation = {
  id: "getCredits",
  summary: "Returns the credits of the key's pool, and its spending this month",
  answer: { [json]: ref("Credits") },
};

export const receiptOperation: Operation = {
  id: "getReceipt",
  summary: "Returns what one request cost",
  path: { requestId: described("The id of the request.", text) },
  query: { account_id: pageParameters(listCharges).account_id },
  answer: { [json]: ref("Receipt") },
  errors: ["not_found"],
};

export const receiptsOperation: Operation = {
  id: "listReceipts",
  summary: "Lists the finished requests, newest first",
  description: "Looks at 20,000 requests for each page: a page may have fewer than asked for.",
  query: listParameters,
  answer: { [json]: ref("ReceiptList") },
  errors: ["report_too_large", "not_found"],
};

/** Who did something, as receipts name them. Throws `invalid_request`. */
function actorParam(query: Query, name: string): Actor | undefined {
  const actor = toActor(textParam(query, name));
  if (actor && !actor.kind.value)
    throw invalidField(name, "is such as `person:per_1` or `token:billing-bot`");
  return actor;
}

export function listReceipts(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const query = readQuery(request.query, Object.keys(listParameters));
    const { charges, nextPageToken, searchedTo, archivedBefore } = await core.billing.listCharges(
      {
        ...rangeParams(query),
        accountId: textParam(query, "account_id"),
        pageSize: countParam(query, "limit", pageSizeMaxOf(listCharges)),
        pageToken: textParam(query, "page_token"),
        filter: {
          keyId: textParam(query, "key_id"),
          model: textParam(query, "model"),
          outcomes: listParam(query, "outcome").map((name) => choiceOf(outcomes, "outcome", name)),
          minChargedMicrocredits: creditsParam(query, "min_credits"),
          tags: parseTags(textParam(query, "tag"), "tag"),
          madeBy: actorParam(query, "made_by"),
        },
      },
      callFor(request),
    );
    return sendJson(reply, {
      object: "list",
      data: charges.map(renderReceipt),
      has_more: nextPageToken !== "",
      next_page_token: nextPageToken || null,
      searched_to: rfc3339OrNull(searchedTo),
      archived_before: rfc3339OrNull(archivedBefore),
    });
  };
}

function creditsParam(query: Query, name: string): bigint {
  const micro = parseCredits(textParam(query, name) || "0");
  if (micro === undefined) throw invalidField(name, "is a decimal number of credits, such as 0.5");
  return micro;
}

/** A receipt as JSON. Credits and dollars are exact decimals in strings. */
function renderReceipt(receipt: Receipt): JsonObject {
  const { usage, reportedUsage, price } = receipt;
  return {
    object: "receipt",
    request_id: receipt.requestId,
    model: receipt.model,
    key_id: receipt.keyId,
    family: familyName(receipt.family) ?? null,
    outcome: nameOf(OutcomeSchema, receipt.outcome),
    basis: receipt.settledAt ? nameOf(BasisSchema, receipt.basis) : null,
    tokens: renderTokens(usage),
    web_searches: usage?.webSearches ?? 0,
    // Only where the provider reported other tokens than the charged ones.
    ...(reportedUsage && { reported_tokens: renderTokens(reportedUsage) }),
    granted_output: receipt.grantedOutputTokens,
    price_version: price?.priceVersion ?? null,
    price_note: price?.note || null,
    credits_per_token: price ? byColumn((category) => creditsOfNano(price[category])) : null,
    credits_per_web_search: price ? credits(price.webSearch) : null,
    hold_credits: credits(receipt.holdMicrocredits),
    charge_credits: credits(receipt.chargedMicrocredits),
    charge_usd: usd(receipt.chargedMicrocredits),
    overrun_credits: credits(receipt.overrunMicrocredits),
    attempts: receipt.attempts.map(renderAttempt),
    left_out: encodeLeftOut(receipt.leftOut),
    tags: Object.fromEntries(sortedTags(receipt.tags)),
    made_by: actorText(receipt.madeBy) || null,
    admitted_at: rfc3339OrNull(receipt.admittedAt),
    settled_at: rfc3339OrNull(receipt.settledAt),
  };
}

function renderTokens(usage: Usage | undefined): JsonObject {
  return byColumn((category) => usage?.[category] ?? 0);
}

function byColumn(read: (category: TokenCategory) => JsonValue): JsonObject {
  return Object.fromEntries(
    tokenCategories.map((category) => [categoryColumns[category], read(category)]),
  );
}

function renderAttempt({ provider, outcome, status, firstEventAfter }: Attempt): JsonObject {
  return {
    provider,
    outcome: attemptOutcomeName(outcome),
    status: status === 0 ? null : status,
    first_event_ms: firstEventAfter ? durationMs(firstEventAfter) : null,
  };
}

/** The name of an enum value without the prefix of its enum. */
function nameOf(schema: DescEnum, value: number): string | null {
  return schema.value[value]?.localName ?? null;
}
