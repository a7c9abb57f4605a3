// Who calls at the public listener: asked of the keys service before a body is read, on behalf of both doors there. An address that sent
// too many wrong credentials is not asked about any more, unless the credential was good lately.

import { hash } from "node:crypto";
import type { CallOptions } from "@connectrpc/connect";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Core } from "../core.ts";
import { toRefusal } from "../errors.ts";
import { RecentMap } from "../recent-map.ts";
import type { FailedCredentials } from "./failed-credentials.ts";

// Enough for the keys that are in use at one time, in a few megabytes.
const knownMax = 10_000;
// Whatever a request asks of the services is checked by them again, so what is trusted here is only that its body is worth reading.
const trustedMs = 1_000;

/** Who asks to be let in. */
export type Knock = {
  /** The credential, as the call to the services carries it. Empty without one. */
  readonly authorization: string;
  /** Of the client. */
  readonly address: string;
  /** Asks for what the key spent this month, which costs a look into the database. */
  readonly monthFigures: boolean;
};

/** Throws what `authenticate` of the keys service throws, and `auth_rate_limited`. */
export type IdentifyCaller = (knock: Knock, call: CallOptions) => Promise<AuthenticateResponse>;

/** Of one listener: its doors share what they learnt of credentials and addresses. */
export function createIdentifyCaller(core: Core, failedCredentials: FailedCredentials): IdentifyCaller {
  // Digests of credentials that were good lately: an address shared by many is not closed to those who use good ones from it.
  const known = new RecentMap<string, { caller: AuthenticateResponse; atMs: number }>(knownMax);

  return async ({ authorization, address, monthFigures }, call) => {
    const digest = hash("sha256", authorization, "base64");
    const lately = known.get(digest);
    if (lately && !monthFigures && performance.now() - lately.atMs < trustedMs) return lately.caller;
    if (!lately) failedCredentials.check(address);
    try {
      const caller = await core.keys.authenticate({ monthFigures }, call);
      known.set(digest, { caller, atMs: performance.now() });
      return caller;
    } catch (error) {
      known.delete(digest);
      if (toRefusal(error).refusal === "invalid_key") failedCredentials.record(address);
      throw error;
    }
  };
}
