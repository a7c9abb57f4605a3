// Which upstream a call goes to: the first in the conversation's order that may be called and has a free slot.

import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { Refusal } from "../base/errors.ts";
import type { CatalogFile, Route, UpstreamSettings } from "../config/catalog.ts";
import { Breaker, CoolDowns } from "./circuit-breaker.ts";
import { Slots } from "./concurrency.ts";
import type { Provider } from "./provider.ts";

/** A way to a model that may be called. */
export type Way = { readonly route: Route; readonly channel: Channel };

/** The models of a file and the channels that lead to them. */
export class Router {
  readonly #groupsByModel: ReadonlyMap<string, readonly (readonly Route[])[]>;
  readonly channels: ReadonlyMap<string, Channel>;

  constructor(file: CatalogFile, channels: ReadonlyMap<string, Channel>) {
    this.#groupsByModel = new Map(file.models.map((model) => [model.id, model.routes]));
    this.channels = channels;
  }

  /** Every way to a model, in the order in which this conversation tries them. Throws `model_not_found`. */
  waysTo(model: string, affinity: string): readonly Way[] {
    const groups = this.#groupsByModel.get(model);
    if (groups === undefined) throw new Refusal("model_not_found", { message: `model: ${model}` });
    return orderRoutes(groups, affinity).flatMap((route) => {
      const channel = this.channels.get(route.upstream);
      return channel === undefined ? [] : [{ route, channel }];
    });
  }

  /** True when some model has an upstream that may be called now. */
  isUsable(): boolean {
    for (const groups of this.#groupsByModel.values()) {
      for (const route of groups.flat()) {
        const channel = this.channels.get(route.upstream);
        if (channel !== undefined && waitMsOf({ route, channel }) === 0) return true;
      }
    }
    return false;
  }
}

/** 0 when the way may be taken now, else milliseconds until it may. */
export function waitMsOf({ route, channel }: Way): number {
  return Math.max(channel.breaker.waitMs(), channel.coolDowns.waitMs(route.model));
}

/** A way whose slot is taken. `isProbe` is true for the call that decides whether its breaker closes. */
export type TakenWay = Way & { readonly isProbe: boolean };

/**
 * Takes a slot of the first way that may be called and has one free, or waits for one of the first that may be called. Throws
 * `overloaded` when none may, or too many wait, and `cancelled` on abort. The slot is the caller's to release.
 */
export async function takeWay(ways: readonly Way[], signal: AbortSignal): Promise<TakenWay> {
  if (signal.aborted) throw new Refusal("cancelled");
  const open = ways.filter((way) => waitMsOf(way) === 0);
  for (const way of open) if (way.channel.slots.tryTake()) return { ...way, isProbe: way.channel.breaker.begin() };
  const [first] = open;
  if (first === undefined) throw allResting(ways);
  const { slots, breaker } = first.channel;
  await slots.take(signal);
  if (waitMsOf(first) === 0) return { ...first, isProbe: breaker.begin() };
  // It was given a rest while this call waited.
  slots.release();
  throw allResting([first]);
}

function allResting(ways: readonly Way[]): Refusal {
  return new Refusal("overloaded", { retryAfterMs: Math.min(...ways.map(waitMsOf)) });
}

/** The ways left for a second attempt: other upstreams, and with `anywhere` the same one after them. */
export function waysAfter(ways: readonly Way[], failed: Way, retry: "elsewhere" | "anywhere"): readonly Way[] {
  const others = ways.filter(({ channel }) => channel !== failed.channel);
  const same = ways.filter(({ channel }) => channel === failed.channel);
  const left = retry === "elsewhere" ? others : [...others, ...same];
  return left.filter((way) => waitMsOf(way) === 0);
}

// Which way a conversation goes. Rendezvous hashing: the same conversation finds the same upstream on every node without shared
// state, weights share conversations out, and when one upstream leaves only its own conversations move.

/** All routes of a model in the order in which a conversation tries them. */
export function orderRoutes(groups: readonly (readonly Route[])[], affinity: string): readonly Route[] {
  return groups.flatMap((group) => (group.length === 1 ? group : orderGroup(group, affinity)));
}

function orderGroup(group: readonly Route[], affinity: string): Route[] {
  return group
    .map((route) => ({ route, score: scoreRoute(route, affinity) }))
    .sort((one, other) => other.score - one.score)
    .map(({ route }) => route);
}

// -weight / ln(u) with u even in (0, 1): the highest score falls on a route with a probability in proportion to its weight.
function scoreRoute({ upstream, model, weight }: Route, affinity: string): number {
  const digest = hash("sha1", `${affinity}\0${upstream}\0${model}`, "buffer");
  const even = (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48;
  return -weight / Math.log(even);
}

// One upstream as the router sees it: its provider, whether it may be called, and how many calls it carries.

export type Channel = {
  readonly name: string;
  readonly settings: UpstreamSettings;
  readonly provider: Provider;
  readonly breaker: Breaker;
  readonly coolDowns: CoolDowns;
  readonly slots: Slots;
};

export function createChannel(name: string, settings: UpstreamSettings, provider: Provider, clock: Clock): Channel {
  const [breaker, coolDowns] = [new Breaker(clock), new CoolDowns(clock)];
  return { name, settings, provider, breaker, coolDowns, slots: new Slots(settings, clock) };
}
