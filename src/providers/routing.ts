// Decides which provider a call goes to: the first route in the conversation's order that may be
// called and has a free place under its concurrency limit.

import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { CatalogFile, ProviderSettings, Route } from "../config/catalog.ts";
import { CoolDowns, type Probes, ProviderCircuit } from "./circuit-breaker.ts";
import { ConcurrencyLimit } from "./concurrency.ts";
import { ModelHealth } from "./health.ts";
import type { Provider, ProviderRequest } from "./provider.ts";

/** A configured provider with its state on this node. */
export type ProviderConnection = {
  readonly name: string;
  readonly settings: ProviderSettings;
  readonly provider: Provider;
  readonly circuit: ProviderCircuit;
  readonly coolDowns: CoolDowns;
  readonly concurrency: ConcurrencyLimit;
  /** Of the models that were called, by their names at the provider. */
  readonly health: Map<string, ModelHealth>;
};

/** The health of the model of a route. */
export function healthOf({ connection, target }: ProviderRoute, clock: Clock): ModelHealth {
  const known = connection.health.get(target.model);
  if (known !== undefined) return known;
  const health = new ModelHealth(clock);
  connection.health.set(target.model, health);
  return health;
}

export function createConnection(
  name: string,
  settings: ProviderSettings,
  provider: Provider,
  clock: Clock,
): ProviderConnection {
  return {
    name,
    settings,
    provider,
    circuit: new ProviderCircuit(clock),
    coolDowns: new CoolDowns(clock),
    concurrency: new ConcurrencyLimit(settings, clock),
    health: new Map(),
  };
}

/** A route to a model, with the connection to its provider. */
export type ProviderRoute = { readonly target: Route; readonly connection: ProviderConnection };

/** The models of a configuration file and the connections that serve them. */
export class Router {
  readonly #groupsByModel: ReadonlyMap<string, readonly (readonly ProviderRoute[])[]>;
  readonly connections: ReadonlyMap<string, ProviderConnection>;

  constructor(file: CatalogFile, connections: ReadonlyMap<string, ProviderConnection>) {
    const routeTo = (target: Route) => {
      const connection = connections.get(target.provider);
      return connection === undefined ? [] : [{ target, connection }];
    };
    this.#groupsByModel = new Map(
      file.models.map(({ id, routes }) => [id, routes.map((group) => group.flatMap(routeTo))]),
    );
    this.connections = connections;
  }

  /**
   * Every route to the request's model, in the order in which its conversation tries them. Throws
   * `model_not_found`.
   */
  routesFor({
    request: { model },
    affinity,
  }: Pick<ProviderRequest, "request" | "affinity">): readonly ProviderRoute[] {
    const groups = this.#groupsByModel.get(model);
    if (groups === undefined) throw new ApiError("model_not_found", { message: `model: ${model}` });
    return orderRoutes(groups, affinity);
  }

  /** True when at least one model has a route that is not closed to all accounts now. */
  isUsable(): boolean {
    const isOpen = (route: ProviderRoute) => waitMsOf(route) === 0;
    return [...this.#groupsByModel.values()].some((groups) => groups.flat().some(isOpen));
  }

  /** Each model, and whether it has such a route whose last calls did not all fail. */
  usableModels(): [model: string, isUsable: boolean][] {
    return [...this.#groupsByModel].map(([model, groups]) => [model, groups.flat().some(isUsable)]);
  }
}

function isUsable(route: ProviderRoute): boolean {
  const { connection, target } = route;
  return waitMsOf(route) === 0 && connection.health.get(target.model)?.isUnusable !== true;
}

/**
 * 0 when the route may be called for an account now, else the milliseconds until it may. Without an
 * account: until it may for any.
 */
export function waitMsOf({ target, connection }: ProviderRoute, accountId?: string): number {
  const { circuit, coolDowns } = connection;
  return Math.max(circuit.waitMs(accountId), coolDowns.waitMs(target.model, accountId));
}

/**
 * A route that counts against its concurrency limit. `probes`: the half-open circuits that the
 * result of this call opens or closes.
 */
export type AcquiredRoute = ProviderRoute & { readonly probes: Probes };

/**
 * Acquires the first route that may be called and is below its concurrency limit. If all of them
 * are at their limit, returns a promise, which waits for the first one that may be called. Throws
 * `overloaded` when no route may be called or too many calls wait already, and `cancelled` on
 * abort. The caller releases the concurrency limit.
 */
export function acquireRoute(
  routes: readonly ProviderRoute[],
  accountId: string,
  signal: AbortSignal,
): AcquiredRoute | Promise<AcquiredRoute> {
  if (signal.aborted) throw new ApiError("cancelled");
  let full: ProviderRoute | undefined;
  for (const route of routes) {
    if (waitMsOf(route, accountId) > 0) continue;
    if (route.connection.concurrency.tryAcquire()) return withProbes(route, accountId);
    full ??= route;
  }
  if (full === undefined) throw noneAvailable(routes, accountId);
  return waitForRoute(full, accountId, signal);
}

function withProbes({ target, connection }: ProviderRoute, accountId: string): AcquiredRoute {
  return { target, connection, probes: connection.circuit.begin(accountId) };
}

async function waitForRoute(
  route: ProviderRoute,
  accountId: string,
  signal: AbortSignal,
): Promise<AcquiredRoute> {
  const { concurrency } = route.connection;
  await concurrency.acquire(signal);
  if (waitMsOf(route, accountId) === 0) return withProbes(route, accountId);
  // The circuit opened, or a cool-down began, while this call waited.
  concurrency.release();
  throw noneAvailable([route], accountId);
}

function noneAvailable(routes: readonly ProviderRoute[], accountId: string): ApiError {
  const waitsMs = routes.map((route) => waitMsOf(route, accountId));
  return new ApiError("overloaded", { retryAfterMs: Math.min(...waitsMs) });
}

/**
 * The routes for a second attempt: those of other providers, and with `anywhere` those of the
 * failed provider after them.
 */
export function routesAfter(
  routes: readonly ProviderRoute[],
  failed: ProviderRoute,
  retry: "elsewhere" | "anywhere",
  accountId: string,
): readonly ProviderRoute[] {
  const others = routes.filter(({ connection }) => connection !== failed.connection);
  const same = routes.filter(({ connection }) => connection === failed.connection);
  const candidates = retry === "elsewhere" ? others : [...others, ...same];
  return candidates.filter((route) => waitMsOf(route, accountId) === 0);
}

/**
 * All routes of a model in the order in which a conversation tries them: group by group, and inside
 * a group by rendezvous hashing. A conversation finds the same provider on every node without
 * shared state, so that it meets that provider's prompt cache. Weights divide the conversations,
 * and removing a provider moves only the conversations that it had.
 */
export function orderRoutes<R extends Pick<ProviderRoute, "target">>(
  groups: readonly (readonly R[])[],
  affinity: () => string,
): readonly R[] {
  const [only] = groups;
  // Most models have one route, which needs no new list.
  if (groups.length === 1 && only?.length === 1) return only;
  return groups.flatMap((group) => (group.length === 1 ? group : orderGroup(group, affinity())));
}

function orderGroup<R extends Pick<ProviderRoute, "target">>(
  group: readonly R[],
  affinity: string,
): R[] {
  return group
    .map((route) => ({ route, score: scoreRoute(route.target, affinity) }))
    .sort((one, other) => other.score - one.score)
    .map(({ route }) => route);
}

// -weight / ln(u) with u uniform in (0, 1): the probability of the highest score is proportional to
// the weight.
function scoreRoute({ provider, model, weight }: Route, affinity: string): number {
  const digest = hash("sha1", `${affinity}\0${provider}\0${model}`, "buffer");
  const uniform = (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48;
  return -weight / Math.log(uniform);
}
