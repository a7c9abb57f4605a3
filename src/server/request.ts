// The parts that a request needs: providers, rate limits, and the service that answers.

import { createInference, GenaiMetrics, type Inference } from "../inference/inference.ts";
import { createProviders } from "../providers/providers.ts";
import { createRateLimits, limitStates } from "../rate-limits/rate-limits.ts";
import type { Accounts } from "./accounts.ts";
import type { Data } from "./data.ts";
import type { GatewayParts } from "./parts.ts";
import type { SettingsInUse } from "./settings.ts";

export type RequestParts = ReturnType<typeof createRequestParts>;

export function createRequestParts(
  parts: GatewayParts,
  { redis }: Data,
  settings: SettingsInUse,
  { billing, keys }: Accounts,
  stack: AsyncDisposableStack,
) {
  const { config, env, log, metrics, clock, outbound } = parts;
  const { file } = settings;
  const providers = stack.adopt(createProviders({ file, log, env, outbound, metrics }), (one) =>
    one.close(),
  );
  const nodes = { id: billing.nodeId, live: billing.liveNodes };
  const limiter = redis ? undefined : parts.shared?.limiter;
  limiter?.follow(billing.liveNodes);
  const limits = createRateLimits({ redis, limiter, nodes, log });
  const inference: Inference = createInference({
    settings,
    priceLists: settings.priceLists,
    findPriceList: billing.findPriceList,
    holds: billing.holds,
    askToEnd: billing.askToEnd,
    confirmAlive: billing.confirmAlive,
    countRejected: billing.countRejected,
    keys,
    limits,
    providers,
    log,
    overlap: config.overlap,
    clock,
    genai: metrics && config.metrics?.genai ? new GenaiMetrics(metrics) : undefined,
    tracer: parts.tracer,
  });
  if (metrics) {
    const { counters } = inference;
    metrics.readOne("gateway_provider_zero_usage_total", () => counters.providerReportedZero);
    metrics.readOne("gateway_overlap_aborted_total", () => counters.discardedCalls);
    metrics.readOne("gateway_left_unpaid_total", () => counters.leftUnpaid);
    metrics.read("gateway_limits_state", () => {
      const state = limits.state();
      return limitStates.map((one) => ({ labels: [one] as const, value: one === state ? 1 : 0 }));
    });
  }
  return { providers, limits, inference };
}
