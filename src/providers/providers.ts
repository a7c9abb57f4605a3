// The providers behind the models.

import { isDeepStrictEqual } from "node:util";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  type CatalogFile,
  findMissingCredentials,
  type HttpProviderSettings,
  type ProviderSettings,
} from "../config/catalog.ts";
import { createAnthropic } from "./anthropic.ts";
import { Answer, RetryBudget } from "./attempts.ts";
import { createOpenai } from "./openai.ts";
import type { Provider, ProviderRequest, Providers, ProviderTokenCount } from "./provider.ts";
import {
  createConnection,
  type ProviderConnection,
  type ProviderRoute,
  Router,
  waitMsOf,
} from "./routing.ts";
import { createSimulated } from "./simulated/simulated.ts";

export type { ProviderRequest, Providers, ProviderTokenCount } from "./provider.ts";

/** Providers that follow the configuration file. */
export type ManagedProviders = Providers & {
  /**
   * Follows another file from the next request on; running requests end as they began. Throws, and
   * changes nothing, as below.
   */
  reload(file: CatalogFile): void;
  /** Cuts every connection: what still runs then fails. */
  close(): Promise<void>;
};

/**
 * Connects the providers of a file. Throws one Error that names every credential missing from the
 * environment.
 */
export function createProviders(parts: {
  file: CatalogFile;
  log: Log;
  env: NodeJS.ProcessEnv;
  /** Absent: this machine's. */
  clock?: Clock;
}): ManagedProviders {
  const { log, env, clock = systemClock } = parts;
  const answerParts = { clock, log, budget: new RetryBudget() };
  let router = new Router(parts.file, openConnections(parts.file, new Map(), env, clock));
  return {
    generate: (ask) => ({
      [Symbol.asyncIterator]: () =>
        new Answer(answerParts, ask, () => router.routesTo(ask.request.model, ask.affinity)),
    }),
    countTokens: (ask) => countTokens(ask, router.routesTo(ask.request.model, ask.affinity)),
    usable: () => router.isUsable(),
    reload(file) {
      const before = router.connections;
      router = new Router(file, openConnections(file, before, env, clock));
      for (const channel of before.values())
        if (router.connections.get(channel.name) !== channel) closeWhenIdle(channel, log);
    },
    async close() {
      await Promise.all([...router.connections.values()].map(({ provider }) => provider.destroy()));
    },
  };
}

// An provider whose settings stayed keeps its connections, its breaker and its slots.
function openConnections(
  file: CatalogFile,
  before: ReadonlyMap<string, ProviderConnection>,
  env: NodeJS.ProcessEnv,
  clock: Clock,
): ReadonlyMap<string, ProviderConnection> {
  const problems = findMissingCredentials(file.providers, env);
  if (problems.length > 0) throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
  return new Map(
    Object.entries(file.providers).map(([name, settings]) => {
      const kept = before.get(name);
      if (kept !== undefined && isDeepStrictEqual(kept.settings, settings)) return [name, kept];
      return [name, createConnection(name, settings, openProvider(settings, env, clock), clock)];
    }),
  );
}

function openProvider(settings: ProviderSettings, env: NodeJS.ProcessEnv, clock: Clock): Provider {
  switch (settings.kind) {
    case "simulated":
      return createSimulated(settings, clock);
    case "anthropic":
      return createAnthropic(settings, credentialOf(settings, env));
    case "openai":
      return createOpenai(settings, credentialOf(settings, env));
  }
}

function credentialOf(
  { credentialEnv }: HttpProviderSettings,
  env: NodeJS.ProcessEnv,
): string | undefined {
  return credentialEnv === undefined ? undefined : env[credentialEnv];
}

// Calls that wait for a slot of this provider shall find it open.
function closeWhenIdle({ name, provider, concurrency }: ProviderConnection, log: Log): void {
  const closing = concurrency.whenIdle().then(() => provider.close());
  closing.catch((error: unknown) =>
    log.warn({ provider: name, err: error }, "an provider did not close"),
  );
}

// Counting tokens: free, so it takes no slot and tells the breaker nothing, but it keeps away from
// providers that are given a rest.

/** The count of the first provider that may be called. Undefined where it cannot count. */
export async function countTokens(
  { request, signal }: Pick<ProviderRequest, "request" | "signal">,
  ways: readonly ProviderRoute[],
): Promise<ProviderTokenCount | undefined> {
  const way = ways.find((one) => waitMsOf(one) === 0);
  if (way === undefined) throw new ApiError("overloaded");
  return way.connection.provider.countTokens({ request, route: way.target }, signal);
}
