// Decides which provider a call goes to: the first route in the conversation's order that may be
// called and has a free place. The active calls of a provider are bounded; further calls wait in a
// bounded queue, first in, first out, and fail at once when it is full.

import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";
import type { CatalogFile, ProviderSettings, Route } from "../config/catalog.ts";
import { ModelHealth, type Passed } from "./health.ts";
import type { Provider, ProviderRequest } from "./provider.ts";

/** A configured provider with its state on this node. */
export type ProviderConnection = {
  readonly name: string;
  readonly settings: ProviderSettings;
  readonly provider: Provider;
  readonly concurrency: ConcurrencyLimit;
  /** Of the models of its routes, by their names at the provider. */
  readonly health: Map<string, ModelHealth>;
  readonly newHealth: () => ModelHealth;
};

/** The health of the model of a route. */
export function healthOf({ connection, target }: ProviderRoute): ModelHealth {
  const known = connection.health.get(target.model);
  if (known !== undefined) return known;
  const health = connection.newHealth();
  connection.health.set(target.model, health);
  return health;
}

export function createConnection(
  name: string,
  settings: ProviderSettings,
  provider: Provider,
  clock: Clock,
  random?: () => number,
): ProviderConnection {
  return {
    name,
    settings,
    provider,
    concurrency: new ConcurrencyLimit(settings, clock),
    health: new Map(),
    newHealth: () => new ModelHealth(clock, random),
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
    return orderRoutes(groups, affinity, isWorse);
  }

  /** True when at least one model has a route whose provider did not ask to wait. */
  isUsable(): boolean {
    const isOpen = (route: ProviderRoute) => healthOf(route).pauseMs === 0;
    return [...this.#groupsByModel.values()].some((groups) => groups.flat().some(isOpen));
  }

  /** Each model, and whether it has such a route whose last calls did not all fail. */
  usableModels(): [model: string, isUsable: boolean][] {
    return [...this.#groupsByModel].map(([model, groups]) => [model, groups.flat().some(isUsable)]);
  }
}

/** True if a route may be called and its last calls did not all fail. */
export function isUsable(route: ProviderRoute): boolean {
  const health = healthOf(route);
  return health.pauseMs === 0 && !health.isUnusable;
}

/** True for a route that answers less than half as well as the best of its group. */
function isWorse(route: ProviderRoute, group: readonly ProviderRoute[]): boolean {
  const health = healthOf(route);
  // One call a second finds out whether it is better again.
  if (health.needsProbe) return false;
  const best = Math.max(...group.map((one) => healthOf(one).answeredRatio));
  return health.answeredRatio < best / 2;
}

/** A route whose call passed and counts against its concurrency limit. */
export type AcquiredRoute = ProviderRoute & { readonly passed: Passed };

/**
 * Acquires the first route that lets the call pass and is below its concurrency limit. If all that
 * let it pass are at their limit, returns a promise, which waits for the first of them. Throws
 * `overloaded` when none lets it pass or too many calls wait already, and `cancelled` on abort. The
 * caller releases the concurrency limit.
 */
export function acquireRoute(
  routes: readonly ProviderRoute[],
  accountId: string,
  signal: AbortSignal,
): AcquiredRoute | Promise<AcquiredRoute> {
  if (signal.aborted) throw new ApiError("cancelled");
  let full: AcquiredRoute | undefined;
  for (const { target, connection } of routes) {
    const passed = healthOf({ target, connection }).pass(accountId);
    if (passed === undefined) continue;
    const route = { target, connection, passed };
    if (connection.concurrency.tryAcquire()) return route;
    full ??= route;
  }
  if (full === undefined) throw noneAvailable(routes);
  return waitForRoute(full, signal);
}

async function waitForRoute(route: AcquiredRoute, signal: AbortSignal): Promise<AcquiredRoute> {
  await route.connection.concurrency.acquire(signal);
  return route;
}

function noneAvailable(routes: readonly ProviderRoute[]): ApiError {
  const waitsMs = routes.map((route) => healthOf(route).pauseMs || shedMs);
  return new ApiError("overloaded", { retryAfterMs: Math.min(...waitsMs, pauseMaxMs) });
}

/** After so long a call that did not pass may. */
const shedMs = 1_000;
const pauseMaxMs = 600_000;

/**
 * All routes of a model in the order in which a conversation tries them: group by group, and inside
 * a group by rendezvous hashing. A conversation finds the same provider on every node without
 * shared state, so that it meets that provider's prompt cache. Weights divide the conversations,
 * and removing a provider moves only the conversations that it had. Routes that are worse than the
 * others of their group come last in it.
 */
export function orderRoutes<R extends Pick<ProviderRoute, "target">>(
  groups: readonly (readonly R[])[],
  affinity: () => string,
  isWorse: (route: R, group: readonly R[]) => boolean = () => false,
): readonly R[] {
  const [only] = groups;
  // Most models have one route, which needs no new list.
  if (groups.length === 1 && only?.length === 1) return only;
  return groups.flatMap((group) => {
    if (group.length === 1) return group;
    const ordered = orderGroup(group, affinity());
    const worse = ordered.filter((route) => isWorse(route, group));
    return worse.length === 0
      ? ordered
      : [...ordered.filter((route) => !worse.includes(route)), ...worse];
  });
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

type ConcurrencySettings = Pick<ProviderSettings, "concurrency" | "queue" | "queueMs">;

/** The concurrency limit of one provider. */
export class ConcurrencyLimit {
  readonly #limits: ConcurrencySettings;
  readonly #clock: Clock;
  readonly #calls = new WaitGroup();
  readonly #waiting = new Set<() => void>();

  constructor(limits: ConcurrencySettings, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  get active(): number {
    return this.#calls.count;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Resolves when no call is active or waits. */
  whenIdle(): Promise<void> {
    return this.#calls.wait();
  }

  /** Begins a call if the number of active calls is below the limit. */
  tryAcquire(): boolean {
    if (this.#calls.count >= this.#limits.concurrency) return false;
    this.#calls.add();
    return true;
  }

  /**
   * Begins a call as soon as the limit allows. Rejects with `overloaded` when the queue is full or
   * the wait takes too long, and with `cancelled` on abort.
   */
  acquire(signal: AbortSignal): Promise<void> {
    if (this.tryAcquire()) return Promise.resolve();
    if (this.#waiting.size >= this.#limits.queue)
      return Promise.reject(new ApiError("overloaded", { retryAfterMs: 1_000 }));
    return new Promise((resolve, reject) => {
      const finish = (settle: () => void) => {
        cancelTimer();
        signal.removeEventListener("abort", abort);
        this.#waiting.delete(admit);
        settle();
      };
      const admit = () => finish(resolve);
      const abort = () => finish(() => reject(new ApiError("cancelled")));
      const expire = () =>
        finish(() => reject(new ApiError("overloaded", { retryAfterMs: 1_000 })));
      const cancelTimer = this.#clock.after(this.#limits.queueMs, expire);
      signal.addEventListener("abort", abort, { once: true });
      this.#waiting.add(admit);
    });
  }

  /** Ends a call. The first waiting call takes its place. */
  release(): void {
    const [next] = this.#waiting;
    if (next) next();
    else this.#calls.done();
  }
}
