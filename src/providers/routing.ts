// Decides which provider a call goes to: the first route in the conversation's order that may be
// called and has a free place under its concurrency limit.

import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { CatalogFile, ProviderSettings, Route } from "../config/catalog.ts";
import { CoolDowns, type Probes, ProviderCircuit } from "./circuit-breaker.ts";
import { ConcurrencyLimit } from "./concurrency.ts";
import type { Provider, ProviderRequest } from "./provider.ts";

/** A configured provider with its state on this node. */
export type ProviderConnection = {
  readonly name: string;
  readonly settings: ProviderSettings;
  readonly provider: Provider;
  readonly circuit: ProviderCircuit;
  readonly coolDowns: CoolDowns;
  readonly concurrency: ConcurrencyLimit;
};

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
  };
}

/** A route to a model for an account, with the connection to its provider. */
export type ProviderRoute = {
  readonly target: Route;
  readonly connection: ProviderConnection;
  readonly accountId: string;
};

/** The models of a configuration file and the connections that serve them. */
export class Router {
  readonly #groupsByModel: ReadonlyMap<string, readonly (readonly Route[])[]>;
  readonly connections: ReadonlyMap<string, ProviderConnection>;

  constructor(file: CatalogFile, connections: ReadonlyMap<string, ProviderConnection>) {
    this.#groupsByModel = new Map(file.models.map((model) => [model.id, model.routes]));
    this.connections = connections;
  }

  /**
   * Every route to the request's model, in the order in which its conversation tries them. Throws
   * `model_not_found`.
   */
  routesFor({
    request: { model },
    affinity,
    accountId,
  }: Pick<ProviderRequest, "request" | "affinity" | "accountId">): readonly ProviderRoute[] {
    const groups = this.#groupsByModel.get(model);
    if (groups === undefined) throw new ApiError("model_not_found", { message: `model: ${model}` });
    return orderRoutes(groups, affinity).flatMap((target) => {
      const connection = this.connections.get(target.provider);
      return connection === undefined ? [] : [{ target, connection, accountId }];
    });
  }

  /** True when at least one model has a route that is not closed to all accounts now. */
  isUsable(): boolean {
    return [...this.#groupsByModel.values()].some((groups) => this.#hasRoute(groups));
  }

  /** Each model, and whether it has such a route. */
  usableModels(): [model: string, isUsable: boolean][] {
    return [...this.#groupsByModel].map(([model, groups]) => [model, this.#hasRoute(groups)]);
  }

  #hasRoute(groups: readonly (readonly Route[])[]): boolean {
    return groups.flat().some((target) => {
      const connection = this.connections.get(target.provider);
      if (connection === undefined) return false;
      const { circuit, coolDowns } = connection;
      return circuit.waitMs() === 0 && coolDowns.waitMs(target.model) === 0;
    });
  }
}

/** 0 when the route may be called now, else the milliseconds until it may. */
export function waitMsOf({ target, connection, accountId }: ProviderRoute): number {
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
  signal: AbortSignal,
): AcquiredRoute | Promise<AcquiredRoute> {
  if (signal.aborted) throw new ApiError("cancelled");
  const callable = routes.filter((route) => waitMsOf(route) === 0);
  for (const route of callable)
    if (route.connection.concurrency.tryAcquire())
      return { ...route, probes: route.connection.circuit.begin(route.accountId) };
  const [first] = callable;
  if (first === undefined) throw noneAvailable(routes);
  return waitForRoute(first, signal);
}

async function waitForRoute(route: ProviderRoute, signal: AbortSignal): Promise<AcquiredRoute> {
  const { concurrency, circuit } = route.connection;
  await concurrency.acquire(signal);
  if (waitMsOf(route) === 0) return { ...route, probes: circuit.begin(route.accountId) };
  // The circuit opened, or a cool-down began, while this call waited.
  concurrency.release();
  throw noneAvailable([route]);
}

function noneAvailable(routes: readonly ProviderRoute[]): ApiError {
  return new ApiError("overloaded", { retryAfterMs: Math.min(...routes.map(waitMsOf)) });
}

/**
 * The routes for a second attempt: those of other providers, and with `anywhere` those of the
 * failed provider after them.
 */
export function routesAfter(
  routes: readonly ProviderRoute[],
  failed: ProviderRoute,
  retry: "elsewhere" | "anywhere",
): readonly ProviderRoute[] {
  const others = routes.filter(({ connection }) => connection !== failed.connection);
  const same = routes.filter(({ connection }) => connection === failed.connection);
  const candidates = retry === "elsewhere" ? others : [...others, ...same];
  return candidates.filter((route) => waitMsOf(route) === 0);
}

/**
 * All routes of a model in the order in which a conversation tries them: group by group, and inside
 * a group by rendezvous hashing. A conversation finds the same provider on every node without
 * shared state, so that it meets that provider's prompt cache. Weights divide the conversations,
 * and removing a provider moves only the conversations that it had.
 */
export function orderRoutes(
  groups: readonly (readonly Route[])[],
  affinity: () => string,
): readonly Route[] {
  return groups.flatMap((group) => (group.length === 1 ? group : orderGroup(group, affinity())));
}

function orderGroup(group: readonly Route[], affinity: string): Route[] {
  return group
    .map((route) => ({ route, score: scoreRoute(route, affinity) }))
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
