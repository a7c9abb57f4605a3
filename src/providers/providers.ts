// The providers behind the models.

import { isDeepStrictEqual } from "node:util";
import { type Clock, systemClock } from "../base/clock.ts";
import { Refusal } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { type CatalogFile, findMissingCredentials, type ProviderSettings, type UpstreamSettings } from "../config/catalog.ts";
import { createAnthropic } from "./anthropic.ts";
import { Answer, RetryBudget } from "./attempts.ts";
import { createOpenai } from "./openai.ts";
import type { Provider, UpstreamAsk, UpstreamCount, Upstreams } from "./provider.ts";
import { type Channel, createChannel, Router, type Way, waitMsOf } from "./routing.ts";
import { createSimulated } from "./simulated/simulated.ts";

export type { UpstreamAsk, UpstreamCount, Upstreams } from "./provider.ts";

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

// Counting tokens: free, so it takes no slot and tells the breaker nothing, but it keeps away from upstreams that are given a rest.

/** The count of the first upstream that may be called. Undefined where it cannot count. */
export async function countTokens(
  { request, signal }: Pick<UpstreamAsk, "request" | "signal">,
  ways: readonly Way[],
): Promise<UpstreamCount | undefined> {
  const way = ways.find((one) => waitMsOf(one) === 0);
  if (way === undefined) throw new Refusal("overloaded");
  return way.channel.provider.countTokens({ request, route: way.route }, signal);
}
