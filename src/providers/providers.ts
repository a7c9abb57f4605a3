// The face of this folder: all providers of the configuration file, behind their models.

import { isDeepStrictEqual } from "node:util";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { Outbound } from "../base/outbound.ts";
import { createShortageReport } from "../base/shortage.ts";
import { waitFor } from "../base/stopwatch.ts";
import { parseSecret } from "../base/watched-file.ts";
import {
  type BedrockSettings,
  type CatalogFile,
  findMissingCredentials,
  type HttpProviderSettings,
  type HttpSettings,
  type ProviderSettings,
} from "../config/catalog.ts";
import type { Metrics } from "../metrics/metrics.ts";
import { anthropicSurface } from "./anthropic.ts";
import { callProviders } from "./attempts.ts";
import { awsAuthenticator, awsServiceOf } from "./aws.ts";
import { azureSurface } from "./azure.ts";
import { bedrockSurface } from "./bedrock.ts";
import {
  type EndpointParts,
  type Key,
  keyAuthenticator,
  outboundTo,
  watchFile,
} from "./endpoint.ts";
import { entraAuthenticator } from "./entra.ts";
import { googleAuthenticator } from "./google.ts";
import type { CallFailure, ModelHealth } from "./health.ts";
import { createHttpProvider } from "./http-provider.ts";
import { openaiSurface } from "./openai.ts";
import type {
  CountCarried,
  Credential,
  Provider,
  ProviderRequest,
  Providers,
  ProviderTokenCount,
} from "./provider.ts";
import { ProviderMetrics } from "./provider-metrics.ts";
import {
  createConnection,
  healthOf,
  isUsable,
  type ProviderConnection,
  type ProviderRoute,
  Router,
} from "./routing.ts";
import { type ContextTokensOf, createSimulated } from "./simulated/simulated.ts";
import type { Authenticator } from "./surface.ts";
import { type TokenCall, tokenCall } from "./token-call.ts";
import { vertexSurface } from "./vertex.ts";

export type {
  AnswerReader,
  ProviderAnswer,
  ProviderRequest,
  ProviderRun,
  Providers,
} from "./provider.ts";

/** Good: every call passes. Reduced: a part of them. Unusable: its last calls all failed. */
export type ProviderHealth = "good" | "reduced" | "unusable";

/** What this process found out about a provider. */
export type ProviderCondition = {
  /** As the configuration names it. */
  readonly name: string;
  /** The health of the worst of its models. */
  readonly health: ProviderHealth;
  /** Models, as the provider names them, for which it asked to wait. Sorted. */
  readonly waitingModels: readonly string[];
  /** Of all its models. Absent: no call has failed. */
  readonly lastFailure?: CallFailure | undefined;
  /** Absent: none is sent. */
  readonly credential?: Credential | undefined;
};

/** What the last calls of this process to a provider, for one model, came to. */
export type ModelCondition = {
  /** As the configuration names it. */
  readonly provider: string;
  /** As the provider names it. */
  readonly model: string;
  /** True: of the last calls, at least three, none was answered. */
  readonly isUnusable: boolean;
  /** True: one was answered within the last minute. */
  readonly isAnswered: boolean;
  readonly lastFailure: CallFailure | undefined;
};

/** Longer than from one look of the alerts to the next. */
const answeredMs = 60_000;

/** Providers with their life cycle. */
export type ManagedProviders = Providers & {
  /** In the order of the configuration. */
  conditions(): ProviderCondition[];
  /** Each model of the catalogue, and whether a provider for it may be called now. */
  usableModels(): [model: string, isUsable: boolean][];
  /**
   * Applies another file from the next request on. Active requests keep their providers. Throws
   * like `createProviders`, and then changes nothing.
   */
  reload(file: CatalogFile): void;
  /** Of the models that were called since the start. */
  modelConditions(): ModelCondition[];
  /** Closes every connection at once. Active requests fail. */
  close(): Promise<void>;
};

/**
 * Creates the providers of a file. Throws one Error that lists every credential that the
 * environment lacks.
 */
export function createProviders(parts: {
  file: CatalogFile;
  log: Log;
  env: NodeJS.ProcessEnv;
  /** Default: the system clock. */
  clock?: Clock;
  /** From 0 to 1. Default: `Math.random`. */
  random?: () => number;
  /** Default: the direct way to every address. */
  outbound?: Outbound | undefined;
  /** Absent: nothing is counted. */
  metrics?: Metrics | undefined;
  /** Sends calls for tokens of clouds. Default: on the way of the provider. */
  call?: TokenCall;
}): ManagedProviders {
  const { log, env, clock = systemClock, random = Math.random } = parts;
  const { outbound = new Outbound() } = parts;
  const metrics = parts.metrics && new ProviderMetrics(parts.metrics);
  const reportShortage = createShortageReport(log, clock);
  const answerParts = { clock, log, metrics, reportShortage, random };
  let { models } = parts.file;
  const contextTokensOf = (id: string) => models.find((model) => model.id === id)?.contextTokens;
  const countCarried: CountCarried = (fit, request) => metrics?.countCarried(fit, request);
  const open = (name: string, settings: ProviderSettings, files: DisposableStack) => {
    const report = (message: string) =>
      log.error({ code: "provider_adjusted", provider: name }, message);
    const shared = { name, env, files, clock, log, contextTokensOf, countCarried, report };
    const way =
      settings.kind === "simulated" ? outbound : outboundTo(settings, { ...shared, outbound });
    return openProvider(settings, { ...shared, outbound: way, call: parts.call ?? tokenCall(way) });
  };
  const connect = (file: CatalogFile, before: ReadonlyMap<string, ProviderConnection>) => {
    const opened = new DisposableStack();
    try {
      return openConnections(file, before, env, (name, settings) => {
        const files = opened.use(new DisposableStack());
        const provider = open(name, settings, files);
        return { ...createConnection(name, settings, provider, clock, random), files };
      });
    } catch (error) {
      opened.dispose();
      throw error;
    }
  };
  let router = new Router(parts.file, connect(parts.file, new Map()));
  if (parts.metrics) readProviders(parts.metrics, () => router);
  return {
    generate: (request, reader) =>
      callProviders(answerParts, request, reader, () => router.routesFor(request)),
    countTokens: (request) => countTokens(request, router.routesFor(request)),
    isUsable: () => router.isUsable(),
    conditions: () =>
      [...router.connections.values()].map(({ name, provider, health }) => ({
        name,
        health: worstOf([...health.values()]),
        waitingModels: [...health].flatMap(([model, one]) => (one.pauseMs > 0 ? model : [])).sort(),
        lastFailure: lastFailureOf(health.values()),
        credential: provider.credential?.(),
      })),
    modelConditions: () =>
      [...router.connections.values()].flatMap(({ name, health }) =>
        [...health].map(([model, one]) => ({
          provider: name,
          model,
          isUnusable: one.isUnusable,
          isAnswered: one.wasAnsweredWithin(answeredMs),
          lastFailure: one.lastFailure,
        })),
      ),
    usableModels: () => router.usableModels(),
    reload(file) {
      const before = router.connections;
      router = new Router(file, connect(file, before));
      ({ models } = file);
      for (const connection of before.values())
        if (router.connections.get(connection.name) !== connection) closeWhenIdle(connection, log);
    },
    async close() {
      const connections = [...router.connections.values()];
      for (const { files } of connections) files?.[Symbol.dispose]();
      await Promise.all(connections.map(({ provider }) => provider.destroy()));
    },
  };
}

function worstOf(models: readonly ModelHealth[]): ProviderHealth {
  if (models.some(({ isUnusable }) => isUnusable)) return "unusable";
  return models.some(({ share }) => share < 1) ? "reduced" : "good";
}

function lastFailureOf(all: Iterable<ModelHealth>): CallFailure | undefined {
  const failures = [...all].flatMap(({ lastFailure }) => lastFailure ?? []);
  return failures.sort((one, other) => other.at.getTime() - one.at.getTime())[0];
}

/** What the providers are like in the moment of a scrape. */
function readProviders(metrics: Metrics, router: () => Router): void {
  const connections = () => [...router().connections.values()];
  metrics.read("gateway_provider_state", () =>
    connections().map(({ name, health }) => {
      const called = [...health.values()];
      const isUnusable = called.length > 0 && called.every((one) => one.isUnusable);
      return { labels: [name] as const, value: isUnusable ? 0 : 1 };
    }),
  );
  metrics.read("gateway_provider_share", () =>
    connections().flatMap(({ name, health }) =>
      [...health].map(([model, { share }]) => ({ labels: [name, model] as const, value: share })),
    ),
  );
  metrics.read("gateway_model_usable", () =>
    router()
      .usableModels()
      .map(([model, isUsable]) => ({ labels: [model] as const, value: isUsable ? 1 : 0 })),
  );
  metrics.read("gateway_provider_concurrency", () =>
    connections().flatMap(({ name, concurrency }) => [
      { labels: [name, "busy"] as const, value: concurrency.active },
      { labels: [name, "waiting"] as const, value: concurrency.waiting },
    ]),
  );
}

// A provider with unchanged settings keeps its connection, and so its health and active calls.
function openConnections(
  file: CatalogFile,
  before: ReadonlyMap<string, ProviderConnection>,
  env: NodeJS.ProcessEnv,
  connect: (name: string, settings: ProviderSettings) => ProviderConnection,
): ReadonlyMap<string, ProviderConnection> {
  const problems = findMissingCredentials(file.providers, env);
  if (problems.length > 0) throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
  return new Map(
    Object.entries(file.providers).map(([name, settings]) => {
      const existing = before.get(name);
      if (existing !== undefined && isDeepStrictEqual(existing.settings, settings))
        return [name, existing];
      return [name, connect(name, settings)];
    }),
  );
}

/** What providers are made of. */
type OpenParts = EndpointParts & {
  readonly contextTokensOf: ContextTokensOf;
  readonly countCarried: CountCarried;
  /** Sends calls for tokens. */
  readonly call: TokenCall;
  /** Hears of what the operator should know. */
  readonly report: (message: string) => void;
};

function openProvider(settings: ProviderSettings, parts: OpenParts): Provider {
  const { clock, contextTokensOf, countCarried } = parts;
  switch (settings.kind) {
    case "simulated":
      return createSimulated(settings, clock, contextTokensOf, countCarried);
    case "anthropic":
    case "openai": {
      const { kind } = settings;
      const surface = kind === "openai" ? openaiSurface(settings) : anthropicSurface(settings);
      const authenticator = authenticatorOf(settings, parts);
      return createHttpProvider(settings, { surface, authenticator }, parts);
    }
    case "bedrock": {
      const surface = bedrockSurface(settings, parts);
      const authenticator = bedrockAuthenticator(settings, parts);
      return createHttpProvider(settings, { surface, authenticator }, parts);
    }
    case "vertex": {
      const surface = vertexSurface(settings, parts);
      const token = keyIn(settings.credentialEnv, parts.env);
      const authenticator =
        token === undefined
          ? googleAuthenticator(settings, parts)
          : keyAuthenticator(token, settings.credentialHeader);
      return createHttpProvider(settings, { surface, authenticator }, parts);
    }
    case "azure": {
      const { auth, credentialHeader } = settings;
      const surface = azureSurface(settings, parts);
      const secret = credentialOf(settings, parts);
      const authenticator =
        auth === "entra"
          ? entraAuthenticator({ ...settings, secret }, parts)
          : keyAuthenticator(secret, credentialHeader);
      return createHttpProvider(settings, { surface, authenticator }, parts);
    }
  }
}

/** Of a provider with an address of the operator's choice. */
function authenticatorOf(settings: HttpProviderSettings, parts: OpenParts): Authenticator {
  const { auth = "key", region = "", baseUrl, credentialHeader } = settings;
  switch (auth) {
    case "key":
      return keyAuthenticator(credentialOf(settings, parts), credentialHeader);
    case "aws":
      return awsAuthenticator({ ...settings, region, service: awsServiceOf(baseUrl) }, parts);
    case "google":
      return googleAuthenticator(settings, parts);
    case "entra":
      return entraAuthenticator({ ...settings, secret: credentialOf(settings, parts) }, parts);
  }
}

// An API key of Bedrock, or a signature with the credentials of AWS.
function bedrockAuthenticator(settings: BedrockSettings, parts: OpenParts): Authenticator {
  const { endpoint, assumeRole } = settings;
  const usual = assumeRole === undefined ? "AWS_BEARER_TOKEN_BEDROCK" : undefined;
  const key = credentialOf(settings, parts) ?? keyIn(usual, parts.env);
  if (key !== undefined) return keyAuthenticator(key, "authorization");
  const service = endpoint === "mantle" ? "bedrock-mantle" : "bedrock";
  return awsAuthenticator({ ...settings, service }, parts);
}

function credentialOf(
  {
    credentialEnv,
    credentialFile,
  }: Pick<HttpSettings, "credentialEnv"> & { readonly credentialFile?: string | undefined },
  parts: EndpointParts,
): Key | undefined {
  if (credentialFile !== undefined)
    return watchFile("credential_file", credentialFile, parseSecret, parts);
  return keyIn(credentialEnv, parts.env);
}

function keyIn(variable: string | undefined, env: NodeJS.ProcessEnv): Key | undefined {
  const value = variable === undefined ? undefined : env[variable];
  return value ? { value, source: `variable ${variable}` } : undefined;
}

// Calls that wait for this provider's concurrency limit are still served.
function closeWhenIdle(connection: ProviderConnection, log: Log): void {
  const { name, provider, concurrency, files } = connection;
  const closing = concurrency.whenIdle().then(() => {
    files?.[Symbol.dispose]();
    return provider.close();
  });
  closing.catch((error: unknown) =>
    log.warn(
      { code: "provider_not_closed", provider: name, err: error },
      "closing a provider failed",
    ),
  );
}

// Counts at the first usable provider that can. Counting is free: it is outside the concurrency
// limit, and its outcome tells nothing of the health.
async function countTokens(
  counted: Pick<ProviderRequest, "request" | "signal" | "waits">,
  routes: readonly ProviderRoute[],
): Promise<ProviderTokenCount | undefined> {
  const { request, signal, waits } = counted;
  const usable = routes.filter(isUsable);
  const open = usable.length > 0 ? usable : routes.filter((one) => healthOf(one).pauseMs === 0);
  if (open.length === 0) throw new ApiError("overloaded");
  for (const { connection, target } of open) {
    const counting = connection.provider.countTokens({ request, route: target }, signal);
    const count = await waitFor(counting, waits);
    if (count) return count;
  }
  return undefined;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** see the message: a cloud refuses something, which is left out or changed from now on */
    provider_adjusted: true;
    /** nothing: connections of a removed provider ended with an error */
    provider_not_closed: true;
  }
}
