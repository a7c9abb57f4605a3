// Answers of models: the implementation of InferenceService, over the catalogue, the providers and
// the holds.

import { create } from "@bufbuild/protobuf";
import {
  EndRequestResponseSchema,
  type GenerateRequest,
  type InferenceService,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { isRequestId, newRequestId, requestIdRule } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { type Billing, type Holds, PriceLists } from "../billing/billing.ts";
import type { AuthenticatedCall, CallHeaders, Implementation } from "../contract/contract.ts";
import {
  type Generate,
  type Generation,
  messagesOf,
  payingCaller,
} from "../contract/generation.ts";
import type { Keys } from "../keys/keys.ts";
import type { Providers } from "../providers/providers.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Tracer } from "../tracing/tracing.ts";
import { ActiveRequests, UnpaidCalls } from "./active-requests.ts";
import type { Catalog } from "./catalog.ts";
import { countTokens } from "./count.ts";
import type { GenaiMetrics } from "./genai-metrics.ts";
import { generate } from "./generate.ts";
import { getModel, listModels } from "./models.ts";
import { InputCounts } from "./prompt-size.ts";

export { createCatalog } from "./catalog.ts";
export { GenaiMetrics } from "./genai-metrics.ts";

export type Inference = {
  /** For callers of this process. Requests and rights are to be checked before (`guard`). */
  readonly generate: Generate;
  readonly service: Implementation<typeof InferenceService, AuthenticatedCall>;
  /**
   * Ends every active request and charges its usage so far. Resolves when each settlement is
   * queued.
   */
  cancelAll(reason: "draining" | "declared dead"): Promise<void>;
  /** Ends those of these requests that run here. Each is charged as if its client had left. */
  end(requests: readonly { readonly accountId: string; readonly requestId: string }[]): void;
  /** Counts of this process since its start. */
  readonly counters: {
    readonly providerReportedZero: number;
    /** Provider calls that were stopped because their hold was not granted as expected. */
    readonly discardedCalls: number;
    /** Requests whose client left while a provider may have worked and nobody was to pay yet. */
    readonly leftUnpaid: number;
  };
  stop(): void;
};

export function createInference(parts: {
  /** The catalogue of this moment; it may be replaced at any time. */
  settings: { readonly catalog: Catalog };
  /** Absent: every account has the public prices. */
  priceLists?: PriceLists | undefined;
  /** As `Billing.findPriceList`. Absent: every account has the public prices. */
  findPriceList?: Billing["findPriceList"] | undefined;
  holds: Holds;
  /** As `Billing.askToEnd`. */
  askToEnd: Billing["askToEnd"];
  keys: Pick<Keys, "onChanged" | "refusalOf">;
  limits: RateLimits;
  providers: Providers;
  log: Log;
  /** As `Billing.countRejected`. */
  countRejected?: Billing["countRejected"];
  /** As `Billing.confirmAlive`. */
  confirmAlive: () => Promise<void> | undefined;
  /** Whether a provider may be called while the hold is being placed. Default: true. */
  overlap?: boolean;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
  /** Absent: nothing is counted by the names of OpenTelemetry. */
  genai?: GenaiMetrics | undefined;
  /** Absent: nothing is traced. */
  tracer?: Tracer | undefined;
}): Inference {
  const activeRequests = new ActiveRequests();
  const clock = parts.clock ?? systemClock;
  const inputCounts = new InputCounts(clock);
  const unpaidCalls = new UnpaidCalls(clock);
  const counters = { providerReportedZero: 0, discardedCalls: 0, leftUnpaid: 0 };
  const overlap = parts.overlap ?? true;
  const countRejected = parts.countRejected ?? (() => {});
  const priceLists = parts.priceLists ?? new PriceLists();
  const findPriceList = parts.findPriceList ?? (async () => undefined);
  const reading = { ...parts, priceLists, findPriceList };
  const all = {
    ...reading,
    clock,
    activeRequests,
    unpaidCalls,
    counters,
    inputCounts,
    overlap,
    countRejected,
  };
  const stopWatching = parts.keys.onChanged(({ keyId }) => {
    cancelRefused(activeRequests, parts.keys, keyId).catch((err: unknown) =>
      parts.log.error({ code: "key_unread", err, keyId }, "a changed key could not be read"),
    );
  });
  const end: Inference["end"] = (requests) => {
    for (const { accountId, requestId } of requests)
      activeRequests.find(accountId, requestId)?.cancel(endedByOwner);
  };
  const run: Generate = (generation) => generate(all, generation);
  return {
    generate: run,
    service: {
      async endRequest({ requestId }, { accountId }) {
        const request = { accountId, requestId };
        const isAsked = await parts.askToEnd(request);
        if (isAsked === undefined) throw new ApiError("not_found");
        if (!isAsked)
          throw new ApiError("wrong_state", {
            message: "An internal service holds these credits, and settles them.",
          });
        // At once, if it runs here. Elsewhere within a second.
        end([request]);
        return create(EndRequestResponseSchema);
      },
      async *generate(request, call) {
        yield* messagesOf(run, generationOf(request, call));
      },
      countTokens: (request, call) => countTokens(all, request, call, payingCaller(call.caller)),
      listModels: (request, call) => listModels(reading, request, call),
      getModel: (request, call) => getModel(reading, request, call),
    },
    async cancelAll(reason) {
      activeRequests.cancelAll(endings[reason]);
      await activeRequests.whenIdle();
    },
    end,
    counters,
    stop: stopWatching,
  };
}

const endedByOwner = {
  error: new ApiError("cancelled", { message: "An owner of the account ended this request." }),
  ending: "revoked",
} as const;

const endings = {
  draining: {
    error: new ApiError("gateway_unavailable", {
      message: "The gateway is restarting and could not wait longer for this answer.",
    }),
    ending: "timeLimit",
  },
  "declared dead": {
    error: new ApiError("gateway_unavailable", {
      message: "The gateway lost its connection to the ledger for too long.",
    }),
    ending: "declaredDead",
  },
} as const;

async function cancelRefused(
  activeRequests: ActiveRequests,
  keys: Pick<Keys, "refusalOf">,
  keyId: string,
): Promise<void> {
  await Promise.all(
    activeRequests.ofKey(keyId).map(async (one) => {
      const reason = await keys.refusalOf(keyId, one.secretId);
      if (reason) one.cancel({ error: new ApiError(reason), ending: "revoked" });
    }),
  );
}

/** The generation of a call of the service. */
function generationOf(request: GenerateRequest, call: AuthenticatedCall): Omit<Generation, "sink"> {
  const { requestHeader: headers, signal: client } = call;
  const [caller, requestId] = [payingCaller(call.caller), requestIdOf(headers)];
  return { request, caller, headers, client, requestId, isNewId: false };
}

/** The id that the caller proposes, or a new one. */
function requestIdOf(headers: CallHeaders): string {
  const proposed = headers.get("x-request-id");
  if (proposed === null) return newRequestId();
  if (isRequestId(proposed)) return proposed;
  throw invalidField("x-request-id", requestIdRule);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * a changed key could not be read, so its running requests go on; look at the database and
     * revoke the key again
     */
    key_unread: true;
  }
}
