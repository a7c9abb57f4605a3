// Which provider a call goes to: the first in the conversation's order that may be called and has a
// free slot.

import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { CatalogFile, ProviderSettings, Route } from "../config/catalog.ts";
import { CircuitBreaker, CoolDowns } from "./circuit-breaker.ts";
import { ConcurrencyLimit } from "./concurrency.ts";
import type { Provider } from "./provider.ts";

/** A way to a model that may be called. */
export type ProviderRoute = { readonly target: Route; readonly connection: ProviderConnection };

/** The models of a file and the channels that lead to them. */
export class Router {
  readonly #groupsByModel: ReadonlyMap<string, readonly (readonly Route[])[]>;
  readonly connections: ReadonlyMap<string, ProviderConnection>;

  constructor(file: CatalogFile, connections: ReadonlyMap<string, ProviderConnection>) {
    this.#groupsByModel = new Map(file.models.map((model) => [model.id, model.routes]));
    this.connections = connections;
  }

  /**
   * Every way to a model, in the order in which this conversation tries them. Throws
   * `model_not_found`.
   */
  routesTo(model: string, affinity: string): readonly ProviderRoute[] {
    const groups = this.#groupsByModel.get(model);
    if (groups === undefined) throw new ApiError("model_not_found", { message: `model: ${model}` });
    return orderRoutes(groups, affinity).flatMap((target) => {
      const connection = this.connections.get(target.provider);
      return connection === undefined ? [] : [{ target, connection }];
    });
  }

  /** True when some model has an provider that may be called now. */
  isUsable(): boolean {
    for (const groups of this.#groupsByModel.values()) {
      for (const target of groups.flat()) {
        const connection = this.connections.get(target.provider);
        if (connection !== undefined && waitMsOf({ target, connection }) === 0) return true;
      }
    }
    return false;
  }
}

/** 0 when the way may be taken now, else milliseconds until it may. */
export function waitMsOf({ target, connection }: ProviderRoute): number {
  return Math.max(connection.circuit.waitMs(), connection.coolDowns.waitMs(target.model));
}

/**
 * A way whose slot is taken. `isProbe` is true for the call that decides whether its breaker
 * closes.
 */
export type AcquiredRoute = ProviderRoute & { readonly isProbe: boolean };

/**
 * Takes a slot of the first way that may be called and has one free, or waits for one of the first
 * that may be called. Throws `overloaded` when none may, or too many wait, and `cancelled` on
 * abort. The slot is the caller's to release.
 */
export async function acquireRoute(
  ways: readonly ProviderRoute[],
  signal: AbortSignal,
): Promise<AcquiredRoute> {
  if (signal.aborted) throw new ApiError("cancelled");
  const open = ways.filter((way) => waitMsOf(way) === 0);
  for (const way of open)
    if (way.connection.concurrency.tryAcquire())
      return { ...way, isProbe: way.connection.circuit.begin() };
  const [first] = open;
  if (first === undefined) throw noneAvailable(ways);
  const { concurrency, circuit } = first.connection;
  await concurrency.acquire(signal);
  if (waitMsOf(first) === 0) return { ...first, isProbe: circuit.begin() };
  // It was given a rest while this call waited.
  concurrency.release();
  throw noneAvailable([first]);
}

function noneAvailable(ways: readonly ProviderRoute[]): ApiError {
  return new ApiError("overloaded", { retryAfterMs: Math.min(...ways.map(waitMsOf)) });
}

/**
 * The ways left for a second attempt: other providers, and with `anywhere` the same one after them.
 */
export function routesAfter(
  ways: readonly ProviderRoute[],
  failed: ProviderRoute,
  retry: "elsewhere" | "anywhere",
): readonly ProviderRoute[] {
  const others = ways.filter(({ connection }) => connection !== failed.connection);
  const same = ways.filter(({ connection }) => connection === failed.connection);
  const left = retry === "elsewhere" ? others : [...others, ...same];
  return left.filter((way) => waitMsOf(way) === 0);
}

// Which way a conversation goes. Rendezvous hashing: the same conversation finds the same provider
// on every node without shared state, weights share conversations out, and when one provider leaves
// only its own conversations move.

/** All routes of a model in the order in which a conversation tries them. */
export function orderRoutes(
  groups: readonly (readonly Route[])[],
  affinity: string,
): readonly Route[] {
  return groups.flatMap((group) => (group.length === 1 ? group : orderGroup(group, affinity)));
}

function orderGroup(group: readonly Route[], affinity: string): Route[] {
  return group
    .map((route) => ({ route, score: scoreRoute(route, affinity) }))
    .sort((one, other) => other.score - one.score)
    .map(({ route }) => route);
}

// -weight / ln(u) with u even in (0, 1): the probability of the highest score is proportional to
// the weight.
function scoreRoute({ provider, model, weight }: Route, affinity: string): number {
  const digest = hash("sha1", `${affinity}\0${provider}\0${model}`, "buffer");
  const even = (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48;
  return -weight / Math.log(even);
}

// One provider as the router sees it: its provider, whether it may be called, and how many calls it
// carries.

export type ProviderConnection = {
  readonly name: string;
  readonly settings: ProviderSettings;
  readonly provider: Provider;
  readonly circuit: CircuitBreaker;
  readonly coolDowns: CoolDowns;
  readonly concurrency: ConcurrencyLimit;
};

export function createConnection(
  name: string,
  settings: ProviderSettings,
  provider: Provider,
  clock: Clock,
): ProviderConnection {
  const [circuit, coolDowns] = [new CircuitBreaker(clock), new CoolDowns(clock)];
  return {
    name,
    settings,
    provider,
    circuit,
    coolDowns,
    concurrency: new ConcurrencyLimit(settings, clock),
  };
}
