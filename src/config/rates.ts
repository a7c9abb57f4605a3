// Where the rates of coins come from: `rates` of the section `payments`.

import type { Section } from "./section.ts";

/** A public price in dollars of one coin. */
export type RateSource = {
  readonly url: string;
  /** The members that lead to it in the JSON, such as `data.amount`. */
  readonly path: string;
};

/** By coin. */
export type RateSources = Readonly<Record<string, readonly RateSource[]>>;

const coins = ["BTC", "ETH", "USDT", "USDC"];
const sourcesMin = 2;

export function readRates(section: Section): RateSources {
  const rates: Record<string, readonly RateSource[]> = {};
  for (const coin of section.names()) {
    if (!coins.includes(coin)) {
      section.has(coin);
      section.problem(coin, `must be one of ${coins.join(", ")}`);
      continue;
    }
    const sources = section.sections(coin).map(readSource);
    const hosts = new Set(sources.map(({ url }) => (URL.canParse(url) ? new URL(url).host : url)));
    if (hosts.size < sourcesMin)
      section.problem(coin, `must have ${sourcesMin} sources at least, of different hosts`);
    rates[coin] = sources;
  }
  return rates;
}

function readSource(section: Section): RateSource {
  const url = section.text("url");
  if (url !== "" && !(URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)))
    section.problem("url", "must be a URL of http or https");
  const path = section.text("path");
  section.rejectUnknown();
  return { url, path };
}
