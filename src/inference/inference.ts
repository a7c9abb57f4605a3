// Answers of models: the implementation of InferenceService, over the catalogue, the providers and the holds.

import { Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { Refusal } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Holds } from "../billing/billing.ts";
import type { Caller, CallOf, Implementation } from "../contract/contract.ts";
import type { Keys } from "../keys/keys.ts";
import type { Upstreams } from "../providers/providers.ts";
import type { Limits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";
import { countTokens } from "./count.ts";
import { generate, type PayingCaller } from "./generate.ts";
import { getModel, listModels } from "./models.ts";
import { RunningRequests } from "./running.ts";

export { type Catalog, createCatalog } from "./catalog.ts";

export type Inference = {
  readonly service: Implementation<typeof InferenceService, CallOf>;
  /** Ends every running request, billed for what was produced; resolves when each is handed to the ledger. */
  endAll(reason: "draining" | "declared dead"): Promise<void>;
  stop(): void;
};

export function createInference(parts: {
  /** The catalogue of this moment; it may be replaced at any time. */
  catalog: () => Catalog;
  holds: Holds;
  keys: Pick<Keys, "onChanged" | "isLive">;
  limits: Limits;
  upstreams: Upstreams;
  log: Log;
  /** Longest life of a request. */
  requestMaxMs?: number;
}): Inference {
  const running = new RunningRequests();
  const all = { ...parts, running, requestMaxMs: parts.requestMaxMs ?? 30 * 60_000 };
  const stopWatching = parts.keys.onChanged(({ keyId }) => {
    endRevoked(running, parts.keys, keyId).catch((err: unknown) =>
      parts.log.error({ err, keyId }, "a changed key could not be read"),
    );
  });
  return {
    service: {
      generate: (request, call) => generate(all, request, call, payingCaller(call.caller)),
      countTokens: (request, call) => countTokens(all, request, call, payingCaller(call.caller)),
      listModels: (request, { caller }) => listModels(parts, request, caller),
      getModel: (request, { caller }) => getModel(parts, request, caller),
    },
    async endAll(reason) {
      running.endAll(endings[reason]);
      await running.emptied();
    },
    stop: stopWatching,
  };
}

const endings = {
  draining: {
    refusal: new Refusal("gateway_unavailable", {
      message: "The gateway is restarting and could not wait longer for this answer.",
    }),
    outcome: Outcome.TIME_LIMIT,
  },
  "declared dead": {
    refusal: new Refusal("gateway_unavailable", { message: "The gateway lost its connection to the ledger for too long." }),
    outcome: Outcome.REAPED,
  },
} as const;

const revoked = { refusal: new Refusal("revoked_key"), outcome: Outcome.REVOKED };

async function endRevoked(running: RunningRequests, keys: Pick<Keys, "isLive">, keyId: string): Promise<void> {
  await Promise.all(
    running.ofKey(keyId).map(async (one) => {
      if (!(await keys.isLive(keyId, one.secretId))) one.end(revoked);
    }),
  );
}

function payingCaller(caller: Caller): PayingCaller {
  // The methods that need a payer admit no other caller.
  if (caller.kind !== "key") throw new Refusal("not_permitted");
  return caller;
}
