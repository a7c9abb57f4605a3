// OpenAI's old billing paths, which tools read that show a balance: subscription, usage and
// credit_grants, in dollars. A tool takes `hard_limit_usd` less the usage of the month for the
// balance, so the limit is what can still be spent, and what this key has spent this month.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  boolean,
  closed,
  count,
  described,
  list,
  number,
  oneOf,
  ref,
  type Schema,
  text,
} from "../base/json-schema.ts";
import { max, min, usd } from "../base/money.ts";
import { rangeParams, readQuery } from "../base/query.ts";
import type { Core } from "../contract/contract.ts";
import { keyOfRequest, readFunds } from "./balance-and-receipts.ts";
import { callFor, sendJson } from "./context.ts";
import { json, type Operation } from "./operation.ts";

/** Micro-credits that the key can spend, and that it has spent this month. */
type Balance = { readonly key: Key; readonly free: bigint; readonly spent: bigint };

async function readBalance(core: Core, request: FastifyRequest): Promise<Balance> {
  const key = keyOfRequest(request);
  const { pool, budgets } = await readFunds(core, request);
  const left = budgets.flatMap(({ windows }) =>
    windows.flatMap(({ freeMicrocredits }) => freeMicrocredits ?? []),
  );
  const free = left.reduce(min, max(pool.freeMicrocredits, 0n));
  return { key, free, spent: key.monthSpentMicrocredits };
}

/** Dollars as a number, which is what these paths have always had. */
const dollars = (microCredits: bigint) => Number(usd(microCredits));

export function getSubscription(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { key, free, spent } = await readBalance(core, request);
    const limit = dollars(free + spent);
    return sendJson(reply, {
      object: "billing_subscription",
      has_payment_method: true,
      soft_limit_usd: limit,
      hard_limit_usd: limit,
      system_hard_limit_usd: limit,
      access_until: Number(key.expiresAt?.seconds ?? 0n),
    });
  };
}

export function getCreditGrants(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { free, spent } = await readBalance(core, request);
    return sendJson(reply, {
      object: "credit_summary",
      total_granted: dollars(free + spent),
      total_used: dollars(spent),
      total_available: dollars(free),
      grants: { object: "list", data: [] },
    });
  };
}

const usageParameters = {
  start_date: described(
    "The first day, such as `2026-11-01`. Default: the first of this month.",
    text,
  ),
  end_date: described("The day after the last one. Default: now.", text),
};

export function getBillingUsage(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const query = readQuery(request.query, Object.keys(usageParameters));
    const range = rangeParams(query, "start_date", "end_date");
    const { keyId, monthSpentMicrocredits: spent } = keyOfRequest(request);
    const cents = (microCredits: bigint) => dollars(microCredits * 100n);
    if (!range.startAt && !range.endAt)
      return sendJson(reply, { object: "list", total_usage: cents(spent) });
    const call = callFor(request);
    // A key that reads its whole account is asked for its own usage, too.
    const { totals } = await core.billing.queryUsage(
      { ...range, keyIds: [keyId], pageSize: 1 },
      call,
    );
    return sendJson(reply, {
      object: "list",
      total_usage: cents(totals?.chargedMicrocredits ?? 0n),
    });
  };
}

export const openaiBillingSchemas: Readonly<Record<string, Schema>> = {
  BillingSubscription: closed({
    object: oneOf("billing_subscription"),
    has_payment_method: boolean,
    soft_limit_usd: number,
    hard_limit_usd: described("The free credits, and what the key spent this month.", number),
    system_hard_limit_usd: number,
    access_until: described("When the key expires, in seconds since 1970. 0: never.", count),
  }),
  BillingUsage: closed({
    object: oneOf("list"),
    total_usage: described("In cents of a dollar.", number),
  }),
  CreditGrants: closed({
    object: oneOf("credit_summary"),
    total_granted: number,
    total_used: number,
    total_available: number,
    grants: closed({ object: oneOf("list"), data: list(text) }),
  }),
};

export const subscriptionOperation: Operation = {
  id: "getBillingSubscription",
  summary: "Returns the limit of the key in dollars, for tools that show a balance",
  answer: { [json]: ref("BillingSubscription") },
};

export const billingUsageOperation: Operation = {
  id: "getBillingUsage",
  summary: "Returns what the key spent, in cents, for tools that show a balance",
  query: usageParameters,
  answer: { [json]: ref("BillingUsage") },
  errors: ["report_too_large"],
};

export const creditGrantsOperation: Operation = {
  id: "getCreditGrants",
  summary: "Returns the credits of the key in dollars, for tools that show a balance",
  answer: { [json]: ref("CreditGrants") },
};
