// Answers of models: the implementation of InferenceService, over the catalogue, the providers and the holds.

import { create } from "@bufbuild/protobuf";
import { Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  CountTokensResponseSchema,
  GetModelResponseSchema,
  type InferenceService,
  ListModelsResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Holds } from "../billing/billing.ts";
import { Refusal } from "../errors.ts";
import type { Keys } from "../keys/keys.ts";
import type { Limits } from "../limits/limits.ts";
import type { Log } from "../log.ts";
import type { Caller, CallOf, Implementation } from "../service.ts";
import type { Upstreams } from "../upstream/upstream.ts";
import type { Catalog } from "./catalog.ts";
import { countTokens } from "./count.ts";
import { generate, type Payer } from "./generate.ts";
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
  const { catalog } = parts;
  const running = new RunningRequests();
  const all = { ...parts, running, requestMaxMs: parts.requestMaxMs ?? 30 * 60_000 };
  const stopWatching = parts.keys.onChanged(({ keyId }) => {
    endRevoked(running, parts.keys, keyId).catch((err: unknown) =>
      parts.log.error({ err, keyId }, "a changed key could not be read"),
    );
  });
  return {
    service: {
      generate: (request, call) => generate(all, request, call, payerOf(call.caller)),
      countTokens: async ({ request }, call) => {
        if (!request) throw new Refusal("invalid_request", { field: "request", message: "request: is required" });
        return create(CountTokensResponseSchema, await countTokens(all, request, call, payerOf(call.caller)));
      },
      listModels: async ({ pageSize, pageToken }, { caller }) => {
        await paceFreeCall(parts.limits, caller);
        if (pageSize > 1000)
          throw new Refusal("invalid_request", { field: "page_size", message: "page_size: is at most 1000" });
        const models = catalog().list(allowedModels(caller));
        const start = pageToken === "" ? 0 : models.findIndex(({ id }) => id === pageToken) + 1;
        if (pageToken !== "" && start === 0) {
          throw new Refusal("invalid_request", { field: "page_token", message: "page_token: is not one that this list gave" });
        }
        const page = pageSize === 0 ? models.slice(start) : models.slice(start, start + pageSize);
        const isLast = start + page.length >= models.length;
        return create(ListModelsResponseSchema, { models: page, nextPageToken: isLast ? "" : (page.at(-1)?.id ?? "") });
      },
      getModel: async ({ model }, { caller }) => {
        await paceFreeCall(parts.limits, caller);
        const allowed = allowedModels(caller);
        const usable = catalog().list(allowed);
        const named = usable.find(({ id }) => id === model) ?? usable.find(({ id }) => id === catalog().find(model)?.model.id);
        if (!named) {
          const valid = usable.map(({ id }) => id);
          const message = `model: ${model.slice(0, 100)} is not one of ${valid.join(", ")}`;
          throw new Refusal("model_not_found", { field: "model", allowed: valid, message });
        }
        return create(GetModelResponseSchema, { model: named });
      },
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

function payerOf(caller: Caller): Payer {
  // The methods that need a payer admit no other caller.
  if (caller.kind !== "key") throw new Refusal("not_permitted");
  return caller;
}

// Reading the catalogue shares the bucket of counting, so that neither takes from a key's requests per minute.
async function paceFreeCall(limits: Limits, caller: Caller): Promise<void> {
  if (caller.kind !== "key") return;
  const end = await limits.count(caller.key.keyId, 0);
  end();
}

function allowedModels(caller: Caller): readonly string[] {
  return caller.kind === "key" ? caller.key.allowedModels : [];
}
