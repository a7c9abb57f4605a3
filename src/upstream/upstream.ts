// The providers behind the models.

import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import {
  type CatalogFile,
  findMissingCredentials,
  type ProviderSettings,
  type UpstreamSettings,
} from "../catalog-file/catalog-file.ts";
import type { Log } from "../log.ts";
import { Answer } from "./answer.ts";
import { createAnthropic } from "./anthropic.ts";
import { type Channel, createChannel } from "./channel.ts";
import { type Clock, systemClock } from "./clock.ts";
import { countTokens } from "./count.ts";
import { createOpenai } from "./openai.ts";
import type { Provider } from "./provider.ts";
import { RetryBudget } from "./retry-budget.ts";
import { Router } from "./router.ts";
import { createSimulated } from "./simulated/simulated.ts";

/** One request to a provider. */
export type UpstreamAsk = {
  /** After all rules: `model` is the catalogue id, `maxTokens` what was granted. Read-only. */
  readonly request: GenerateRequest;
  /** Same text for the same key and conversation, so that it meets the same provider's prompt cache again. */
  readonly affinity: string;
  /** Aborts the provider call at once. */
  readonly signal: AbortSignal;
  /** Every call to a provider is added here: one that failed as it ends, the delivered one with its first event, as the last. */
  readonly attempts: Attempt[];
  /**
   * Called with true when a provider has the whole request and has not answered with an error status, and with false when it then
   * failed without an event, so that nobody works on the request any more.
   */
  readonly onAccepted: (isAccepted: boolean) => void;
};

/** Input tokens as a provider counts them, with further members of its answer. */
export type UpstreamCount = { readonly inputTokens: number; readonly extensions?: JsonObject };

/** All providers, as the inference service uses them. */
export interface Upstreams {
  /**
   * Streams a model's answer, one array per read from the provider, never empty. Backpressure: the next read happens when the consumer
   * asks for it. Throws `Refusal`, before or amid the events: `overloaded`, `upstream_error`, `upstream_refused`, `timeout`; a
   * provider's own error event is thrown as well, never yielded. The provider call is aborted when the consumer returns early, and
   * when the signal fires: then it throws `cancelled`.
   */
  generate(ask: UpstreamAsk): AsyncIterable<Event[]>;
  /** Undefined where the provider of this model cannot count. Throws as `generate`. */
  countTokens(ask: Pick<UpstreamAsk, "request" | "affinity" | "signal">): Promise<UpstreamCount | undefined>;
  /** False when no model has a provider that may be called at this moment. */
  usable(): boolean;
}

/** Upstreams that follow the configuration file. */
export type ManagedUpstreams = Upstreams & {
  /** Follows another file from the next request on; running requests end as they began. Throws, and changes nothing, as below. */
  reload(file: CatalogFile): void;
  /** Cuts every connection: what still runs then fails. */
  close(): Promise<void>;
};

/** Connects the upstreams of a file. Throws one Error that names every credential missing from the environment. */
export function createUpstreams(parts: {
  file: CatalogFile;
  log: Log;
  env: NodeJS.ProcessEnv;
  /** Absent: this machine's. */
  clock?: Clock;
}): ManagedUpstreams {
  const { log, env, clock = systemClock } = parts;
  const answerParts = { clock, log, budget: new RetryBudget() };
  let router = new Router(parts.file, openChannels(parts.file, new Map(), env, clock));
  return {
    generate: (ask) => ({
      [Symbol.asyncIterator]: () => new Answer(answerParts, ask, () => router.waysTo(ask.request.model, ask.affinity)),
    }),
    countTokens: (ask) => countTokens(ask, router.waysTo(ask.request.model, ask.affinity)),
    usable: () => router.isUsable(),
    reload(file) {
      const before = router.channels;
      router = new Router(file, openChannels(file, before, env, clock));
      for (const channel of before.values()) if (router.channels.get(channel.name) !== channel) closeLater(channel, log);
    },
    async close() {
      await Promise.all([...router.channels.values()].map(({ provider }) => provider.destroy()));
    },
  };
}

// An upstream whose settings stayed keeps its connections, its breaker and its slots.
function openChannels(
  file: CatalogFile,
  before: ReadonlyMap<string, Channel>,
  env: NodeJS.ProcessEnv,
  clock: Clock,
): ReadonlyMap<string, Channel> {
  const problems = findMissingCredentials(file.upstreams, env);
  if (problems.length > 0) throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
  return new Map(
    Object.entries(file.upstreams).map(([name, settings]) => {
      const kept = before.get(name);
      if (kept !== undefined && isDeepStrictEqual(kept.settings, settings)) return [name, kept];
      return [name, createChannel(name, settings, openProvider(settings, env, clock), clock)];
    }),
  );
}

function openProvider(settings: UpstreamSettings, env: NodeJS.ProcessEnv, clock: Clock): Provider {
  switch (settings.kind) {
    case "simulated":
      return createSimulated(settings, clock);
    case "anthropic":
      return createAnthropic(settings, credentialOf(settings, env));
    case "openai":
      return createOpenai(settings, credentialOf(settings, env));
  }
}

function credentialOf({ credentialEnv }: ProviderSettings, env: NodeJS.ProcessEnv): string | undefined {
  return credentialEnv === undefined ? undefined : env[credentialEnv];
}

// Calls that wait for a slot of this upstream shall find it open.
function closeLater({ name, provider, slots }: Channel, log: Log): void {
  const closing = slots.whenIdle().then(() => provider.close());
  closing.catch((error: unknown) => log.warn({ upstream: name, err: error }, "an upstream did not close"));
}
