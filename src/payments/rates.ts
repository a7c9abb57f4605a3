// What a coin is worth in dollars, from several public sources. A rate counts only while at least
// two of them are fresh, and all that answer agree. Each minute's rate is kept, so that what came
// while the gateway was away has the value of its time.

import * as sql from "../../gen/sql/payments.ts";
import type { Log } from "../base/log.ts";
import type { Outbound } from "../base/outbound.ts";
import type { RateSource, RateSources } from "../config/catalog.ts";
import type { Runner } from "../postgres/statement.ts";
import { type Ask, ask } from "./ask.ts";
import { atomsOf } from "./coins.ts";
import type { MarketRate } from "./processor.ts";

const sourcesMin = 2;
const second = 1_000;
const minute = 60 * second;
/** How old a rate may be. */
const ageMsMax = minute;
/** A rate is used again for so long. */
const reusedMs = 15 * second;
/** How far from a moment of the past the rate that is kept of it may be. */
const nearMsMax = 5 * minute;
const answerMsMax = 5 * second;

type Sample = { readonly atMs: number; readonly rate: bigint };

/** Undefined: no sources are configured. */
export function createMarketRate(
  sources: RateSources | undefined,
  parts: { store: Runner; outbound: Outbound; log: Log; now?: () => number },
): MarketRate | undefined {
  const { store, outbound, log, now = Date.now } = parts;
  if (!sources || Object.keys(sources).length === 0) return undefined;
  const last = new Map<string, Sample>();
  const asking = new Map<string, Promise<bigint | undefined>>();

  async function askSources(asset: string): Promise<bigint | undefined> {
    const known = last.get(asset);
    if (known && now() - known.atMs < reusedMs) return known.rate;
    const rate = await agreedOf(sources?.[asset] ?? [], (source) => readNow(source, outbound), {
      asset,
      log,
    });
    if (rate === undefined) return undefined;
    last.set(asset, { atMs: now(), rate });
    await keep(asset, now(), rate);
    return rate;
  }
  /** One call at a time asks; the others wait for it. */
  function current(asset: string): Promise<bigint | undefined> {
    const running = asking.get(asset) ?? askSources(asset).finally(() => asking.delete(asset));
    asking.set(asset, running);
    return running;
  }

  async function keep(asset: string, atMs: number, rate: bigint): Promise<void> {
    const at = new Date(atMs - (atMs % minute));
    await store.run(sql.putSample, { asset, at, rate });
  }

  async function past(asset: string, at: Date): Promise<bigint | undefined> {
    const [from, to] = [-nearMsMax, nearMsMax].map((ms) => new Date(at.getTime() + ms));
    if (!from || !to) return undefined;
    const sample = await store.run(sql.findSample, { asset, at, from, to });
    if (sample) return sample.rate;
    const histories = (sources?.[asset] ?? []).filter(({ history }) => history);
    if (histories.length === 0) return undefined;
    const rate = await agreedOf(histories, (source) => readThen(source, at, outbound), {
      asset,
      log,
    });
    if (rate !== undefined) await keep(asset, at.getTime(), rate);
    return rate;
  }

  return async ({ asset }, at) => {
    if (!sources[asset]) return undefined;
    if (at === "now") return current(asset);
    if (at === "last") return (await store.run(sql.findLastSample, { asset }))?.rate;
    const isNow = Math.abs(now() - at.getTime()) <= ageMsMax;
    return (isNow ? await current(asset) : undefined) ?? (await past(asset, at));
  };
}

/** The coins of which two sources do not name a history: after an absence, persons are asked. */
export function coinsWithoutHistory(sources: RateSources | undefined): string[] {
  return Object.entries(sources ?? {}).flatMap(([coin, all]) =>
    all.filter(({ history }) => history).length < sourcesMin ? [coin] : [],
  );
}

async function agreedOf(
  sources: readonly RateSource[],
  read: (source: RateSource) => Promise<bigint>,
  { asset, log }: { asset: string; log: Log },
): Promise<bigint | undefined> {
  const answers = await Promise.all(
    sources.map((source) =>
      read(source).catch((err: unknown) => {
        log.warn(
          { code: "rate_source_failed", asset, host: new URL(source.url).host, err },
          "a source of rates failed",
        );
        return undefined;
      }),
    ),
  );
  const rates = answers.filter((rate) => rate !== undefined);
  const agreed = agreedRate(rates);
  if (agreed === undefined)
    log.warn(
      { code: "rate_unknown", asset, answers: rates.map(String) },
      "no rate: too few sources, or they differ",
    );
  return agreed;
}

function readNow({ url, path }: RateSource, outbound: Outbound): Promise<bigint> {
  return readPrice({ url, path, outbound, ageSecondsMax: ageMsMax / second });
}

/** Of the minute of a moment of the past. */
function readThen({ history }: RateSource, at: Date, outbound: Outbound): Promise<bigint> {
  if (!history) throw new Error("a source has no history");
  const fromMs = at.getTime() - (at.getTime() % minute);
  const places: Record<string, string> = {
    start: new Date(fromMs).toISOString(),
    end: new Date(fromMs + minute).toISOString(),
    start_unix: String(fromMs / second),
    end_unix: String((fromMs + minute) / second),
  };
  const url = history.url.replace(/\{(\w+)\}/g, (all, name: string) => places[name] ?? all);
  return readPrice({ url, path: history.path, outbound });
}

type PricePlace = Pick<Ask, "ageSecondsMax" | "outbound" | "url"> & { readonly path: string };

async function readPrice({ path, ...place }: PricePlace): Promise<bigint> {
  const answer = await ask({
    ...place,
    whom: new URL(place.url).host,
    signal: AbortSignal.timeout(answerMsMax),
  });
  const price = path.split(".").reduce((at, member) => at.at(member), answer);
  const rate = atomsOf(price.text(), 6);
  if (!rate) throw price.fault("is no rate");
  return rate;
}

/** The median, if there are two rates at least and the extremes are within 1 % of each other. */
export function agreedRate(rates: readonly bigint[]): bigint | undefined {
  const sorted = rates.toSorted((one, other) => (one < other ? -1 : 1));
  const [least, most] = [sorted.at(0), sorted.at(-1)];
  if (sorted.length < sourcesMin || least === undefined || most === undefined) return undefined;
  if ((most - least) * 100n > least) return undefined;
  const middle = Math.floor((sorted.length - 1) / 2);
  return ((sorted[middle] ?? 0n) + (sorted[sorted.length - 1 - middle] ?? 0n)) / 2n;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * no quote is given unless two sources answer; look at the address and the path of the source
     */
    rate_source_failed: true;
    /**
     * no coin of that kind is quoted, and late payments in it wait for a person; look at the
     * sources of rates, which are too few or differ by more than 1 %
     */
    rate_unknown: true;
  }
}
