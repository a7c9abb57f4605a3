// What a coin is worth in dollars, from several public sources. A rate counts only while at least
// two of them are fresh, and all that answer agree.

import type { Log } from "../base/log.ts";
import type { RateSource, RateSources } from "../config/catalog.ts";
import { ask } from "./ask.ts";
import { atomsOf } from "./coins.ts";
import type { MarketRate } from "./processor.ts";

const sourcesMin = 2;
const second = 1_000;
/** How old a rate may be, also from the moment that it is asked for. */
const ageMsMax = 60 * second;
/** A rate is used again for so long. */
const reusedMs = 15 * second;
/** Rates of the past are known for so long, for what is found after the moment of its payment. */
const keptMs = 3_600 * second;
const answerMsMax = 5 * second;

type Sample = { readonly atMs: number; readonly rate: bigint };

/** Undefined: no sources are configured. */
export function createMarketRate(
  sources: RateSources | undefined,
  log: Log,
  now: () => number = Date.now,
): MarketRate | undefined {
  if (!sources || Object.keys(sources).length === 0) return undefined;
  const samples = new Map<string, Sample[]>();
  const asking = new Map<string, Promise<Sample | undefined>>();

  async function sample(asset: string): Promise<Sample | undefined> {
    const kept = samples.get(asset) ?? [];
    const last = kept.at(-1);
    if (last && now() - last.atMs < reusedMs) return last;
    const rate = await readRate(sources?.[asset] ?? [], asset, log);
    if (rate === undefined) return undefined;
    const found = { atMs: now(), rate };
    const young = kept.filter(({ atMs }) => atMs > found.atMs - keptMs);
    samples.set(asset, [...young, found]);
    return found;
  }
  /** One call at a time asks; the others wait for it. */
  function current(asset: string): Promise<Sample | undefined> {
    const running = asking.get(asset) ?? sample(asset).finally(() => asking.delete(asset));
    asking.set(asset, running);
    return running;
  }

  return async ({ asset }, at) => {
    if (!sources[asset]) return undefined;
    if (Math.abs(now() - at.getTime()) <= ageMsMax) return (await current(asset))?.rate;
    const distance = ({ atMs }: Sample) => Math.abs(atMs - at.getTime());
    const [nearest] = (samples.get(asset) ?? []).toSorted(
      (one, other) => distance(one) - distance(other),
    );
    return nearest && distance(nearest) <= ageMsMax ? nearest.rate : undefined;
  };
}

async function readRate(
  sources: readonly RateSource[],
  asset: string,
  log: Log,
): Promise<bigint | undefined> {
  const answers = await Promise.all(
    sources.map((source) =>
      readSource(source).catch((err: unknown) => {
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

async function readSource({ url, path }: RateSource): Promise<bigint> {
  const answer = await ask({
    whom: new URL(url).host,
    url,
    ageSecondsMax: ageMsMax / second,
    signal: AbortSignal.timeout(answerMsMax),
  });
  const place = path.split(".").reduce((at, member) => at.at(member), answer);
  const rate = atomsOf(place.text(), 6);
  if (!rate) throw place.fault("is no rate");
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
