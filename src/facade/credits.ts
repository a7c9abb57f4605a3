// GET /v1/credits: what the caller's pool holds, and what its key has spent this month.

import assert from "node:assert/strict";
import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Core } from "../core.ts";
import { credits } from "../decimal.ts";
import { Refusal } from "../errors.ts";
import { familyName } from "../families.ts";
import { identityOf } from "./exchange.ts";
import { sendJson } from "./json-reply.ts";
import { rfc3339 } from "./time.ts";

export function getCredits(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { call, caller } = identityOf(request);
    // The operator's token has no account, and so no balance.
    if (!caller.key) throw new Refusal("not_permitted");
    const { family } = caller.key;
    const { pools } = await core.billing.getPools({}, call);
    const pool = pools.find((one) => one.family === family);
    assert(pool, "an account has a pool of each family");
    return sendJson(reply, {
      object: "credits",
      pool: {
        family: familyName(family) ?? null,
        posted_credits: credits(pool.postedMicrocredits),
        held_credits: credits(pool.heldMicrocredits),
        free_credits: credits(pool.postedMicrocredits - pool.heldMicrocredits),
      },
      key: monthOf(caller.key, new Date()),
    });
  };
}

function monthOf(key: Key, now: Date): JsonObject {
  const { monthSpentMicrocredits, monthHeldMicrocredits, monthlyCapMicrocredits: cap } = key;
  return {
    key_id: key.keyId,
    month_spent_credits: credits(monthSpentMicrocredits),
    month_held_credits: credits(monthHeldMicrocredits),
    monthly_cap_credits: cap === undefined ? null : credits(cap),
    resets_at: rfc3339(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1))),
  };
}
