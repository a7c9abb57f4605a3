// Who calls: asked of the keys service before anything of the body is read.

import { hash } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Core } from "../core.ts";
import { toRefusal } from "../errors.ts";
import { RecentMap } from "../recent-map.ts";
import { type CredentialForm, type NativeBearer, readCredential } from "./credentials.ts";
import { hangUpSignal } from "./exchange.ts";

/** Failed credentials per client address. `check` throws `auth_rate_limited` for an address that had too many. */
export type FailedCredentials = { check(address: string): void; record(address: string): void };

// Enough for the keys that are in use at one time, in a few megabytes.
const knownKeysMax = 10_000;
// Whatever a request asks of the services is checked by them again, so what is trusted here is only that its body is worth reading.
const trustedMs = 1_000;

/** What a hook needs to know about its route. */
export type IdentifyOptions = {
  readonly form: CredentialForm;
  /** Asks for what the key spent this month, which costs a look into the database. */
  readonly monthFigures: boolean;
};

/** Builds hooks that identify the caller of a request and refuse it otherwise. */
export function createIdentify(parts: { core: Core; nativeBearer: () => NativeBearer; failedCredentials: FailedCredentials }) {
  const { core, nativeBearer, failedCredentials } = parts;
  // Digests of keys that were good lately: an address shared by many is not closed to those who use good keys from it.
  const known = new RecentMap<string, { caller: AuthenticateResponse; atMs: number }>(knownKeysMax);

  return ({ form, monthFigures }: IdentifyOptions) =>
    async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
      const { exchange } = request;
      const key = readCredential(form, request.raw, nativeBearer());
      const digest = hash("sha256", key, "base64");
      const headers = new Headers({ authorization: `Bearer ${key}`, "x-request-id": exchange.requestId });
      const call = { headers, signal: hangUpSignal(reply) };
      const lately = known.get(digest);
      if (lately && !monthFigures && performance.now() - lately.atMs < trustedMs) {
        exchange.identity = { call, caller: lately.caller };
        return;
      }
      if (!lately) failedCredentials.check(request.ip);
      try {
        const caller = await core.keys.authenticate({ monthFigures }, call);
        known.set(digest, { caller, atMs: performance.now() });
        exchange.identity = { call, caller };
      } catch (error) {
        known.delete(digest);
        if (toRefusal(error).refusal === "invalid_key") failedCredentials.record(request.ip);
        throw error;
      }
    };
}
