// Where the rates of coins come from: `rates` of the section `payments`.

import { coins } from "./coins.ts";
import type { Section } from "./section.ts";

/** A public price in dollars of one coin. */
export type RateSource = {
  readonly url: string;
  /** The members that lead to it in the JSON, such as `data.amount`. */
  readonly path: string;
  /**
   * The price of a minute of the past, in an address with `{start}` and `{end}` (of ISO 8601), or
   * `{start_unix}` and `{end_unix}` (seconds). Absent: there is none.
   */
  readonly history?: { readonly url: string; readonly path: string };
};

/** By coin. */
export type RateSources = Readonly<Record<string, readonly RateSource[]>>;

const sourcesMin = 2;

export function readRates(section: Section): RateSources {
  const rates: Record<string, readonly RateSource[]> = {};
  const assets = coins.map(({ asset }) => asset);
  for (const coin of section.names()) {
    if (!assets.includes(coin)) {
      section.has(coin);
      section.problem(coin, `must be one of ${assets.join(", ")}`);
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
  const url = readUrl(section, "url");
  const path = section.text("path");
  const hasHistory = section.has("history_url") || section.has("history_path");
  const history = hasHistory && {
    url: readUrl(section, "history_url"),
    path: section.text("history_path"),
  };
  if (history && history.url !== "" && !/\{start(_unix)?\}/.test(history.url))
    section.problem("history_url", "must have {start} or {start_unix}");
  section.rejectUnknown();
  return { url, path, ...(history && { history }) };
}

function readUrl(section: Section, name: string): string {
  const url = section.text(name);
  if (url !== "" && !(URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)))
    section.problem(name, "must be a URL of http or https");
  return url;
}
