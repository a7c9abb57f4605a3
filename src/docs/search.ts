// Search over the sections of all pages. By minisearch: it ranks by BM25+ with weights of fields,
// has types and no dependencies, and its index is in memory.

import { setImmediate as turn } from "node:timers/promises";
import MiniSearch, { type SearchOptions, type SearchResult } from "minisearch";
import { escaped } from "./html.ts";

/** A section of a page, as it is searched. */
export type Entry = {
  /** The address of the section. */
  readonly href: string;
  /** The path of its page. */
  readonly page: string;
  readonly title: string;
  /** Its headings below the title, the outer ones first. */
  readonly headings: readonly string[];
  readonly text: string;
  /** Those that its page answers, as an overview says. */
  readonly questions: string;
  /** Its rank is multiplied by this. */
  readonly weight: number;
};

export type Found = Pick<Entry, "href" | "page" | "title" | "headings"> & {
  /** A piece of the text as HTML, with the words that were found marked. */
  readonly excerpt: string;
};

export type Search = (query: string) => readonly Found[];

const foundMax = 20;
/** Sections whose pairs of words are looked for, the best first. */
const candidatesMax = 40;

/** Makes the index, in turns: requests are served in between. */
export async function createSearch(entries: readonly Entry[]): Promise<Search> {
  const index = new MiniSearch<Entry>({
    idField: "href",
    fields: ["title", "heading", "above", "questions", "text"],
    storeFields: [],
    tokenize: wordsOf,
    processTerm: stemOf,
    extractField: (entry, field) => {
      if (field === "heading") return headingOf(entry);
      if (field === "above") return entry.headings.slice(0, -1).join(" ");
      if (field === "title" || field === "text" || field === "questions") return entry[field];
      return entry.href;
    },
  });
  const headingStems = new Map<string, readonly string[]>();
  const byHref = new Map(entries.map((entry) => [entry.href, entry]));
  for (const [at, entry] of entries.entries()) {
    index.add(entry);
    headingStems.set(entry.href, stemsOf(headingOf(entry)));
    if (at % 20 === 19) await turn();
  }
  /** A heading all of whose words were asked for is better than a long one with one of them. */
  const rank = ({ id, match, score }: SearchResult) => {
    const stems = headingStems.get(id) ?? [];
    const found = stems.filter((stem) => Object.hasOwn(match, stem));
    return score * (1 + found.length / Math.max(1, stems.length) / 2);
  };
  const options: SearchOptions = {
    boost: { title: 1, heading: 2, above: 0.7, questions: 0.7, text: 1 },
    boostDocument: (href) => byHref.get(String(href))?.weight ?? 1,
    bm25: { k: 1.2, b: 0.7, d: 0.1 },
    tokenize: (text) => wordsOf(text).flatMap((word) => [word, ...(synonyms.get(word) ?? [])]),
    // The last word may not be typed to its end.
    prefix: (term, at, terms) => at === terms.length - 1 && term.length >= 3,
    weights: { fuzzy: 0.2, prefix: 0.4 },
  };
  const pairsOfEntry = new Map<Entry, ReadonlySet<string>>();
  const shared = (entry: Entry, pairs: ReadonlySet<string>) => {
    if (pairs.size === 0) return 0;
    const there = pairsOfEntry.get(entry) ?? pairsOf(`${headingOf(entry)} ${entry.text}`);
    pairsOfEntry.set(entry, there);
    return [...pairs].filter((pair) => there.has(pair)).length;
  };
  return (query) => {
    const exact = index.search(query, options);
    const results = exact.length > 0 ? exact : index.search(query, { ...options, fuzzy: 0.25 });
    const pairs = pairsOf(query);
    return results
      .map((result) => ({ result, score: rank(result) }))
      .sort((one, other) => other.score - one.score)
      .slice(0, candidatesMax)
      .flatMap(({ result, score }) => {
        const entry = byHref.get(String(result.id));
        if (!entry) return [];
        return [{ entry, result, score: score * (1 + shared(entry, pairs) / 5) }];
      })
      .sort((one, other) => other.score - one.score)
      .slice(0, foundMax)
      .map(({ entry, result }) => toFound(entry, result));
  };
}

function headingOf({ headings, title }: Entry): string {
  return headings.at(-1) ?? title;
}

/** Words that people use where the documents have others. */
const synonyms: ReadonlyMap<string, readonly string[]> = new Map([
  ["archive", ["export"]],
  ["balance", ["credits"]],
  ["billed", ["charged"]],
  ["cores", ["workers"]],
  ["delete", ["remove"]],
  ["docker", ["image"]],
  ["env", ["environment", "variables"]],
  ["idempotency", ["repeat"]],
  ["idempotent", ["repeat"]],
  ["k8s", ["kubernetes", "chart"]],
  ["kubernetes", ["chart"]],
  ["monitor", ["watching", "metrics"]],
  ["restore", ["backup"]],
  ["retry", ["repeat"]],
  ["sso", ["oidc"]],
  ["url", ["address"]],
]);

/** Words of sentences, which say nothing of a subject. */
const stopWords = new Set(
  (
    "a about all am an and any are as at be been but by can cannot could do does doing for from " +
    "get got had has have how i if in into is it its me my no not of on one or our so some than " +
    "that the their them then there these they this to up us use used using want was we were " +
    "what when where which who whose why will with would you your"
  ).split(" "),
);

/** Lower-case words. `camelCase` has the whole and its parts. */
function wordsOf(text: string): string[] {
  return [...text.matchAll(/[\p{L}\p{N}]+/gu)].flatMap(([word]) => {
    const parts = word.match(/\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{N}+/gu) ?? [];
    const lower = word.toLowerCase();
    return parts.length > 1 ? [lower, ...parts.map((part) => part.toLowerCase())] : [lower];
  });
}

/** One form of `charge`, `charges`, `charged` and `charging`. Null: the word is left out. */
function stemOf(word: string): string | null {
  if (stopWords.has(word)) return null;
  if (word.length < 4) return word;
  const one = word
    .replace(/ies$/, "y")
    .replace(/(?<=s|x|ch|sh)es$/, "")
    .replace(/(?<!s|u|i)s$/, "");
  const root = one.replace(/(?<=[aeiouy].*[^aeiou])(?:ing|ed)$|(?<=[aeiouy]{2}.*)(?:ing|ed)$/, "");
  return root.replace(/([bdgmnprt])\1$/, "$1").replace(/(?<=..)e$/, "");
}

function stemsOf(text: string): string[] {
  return [...new Set(wordsOf(text).flatMap((word) => stemOf(word) ?? []))];
}

/** Words that follow each other, but for stop words: `rate limit` is more than its two words. */
function pairsOf(text: string): Set<string> {
  const stems = [...text.matchAll(/[\p{L}\p{N}]+/gu)].flatMap(
    ([word]) => stemOf(word.toLowerCase()) ?? [],
  );
  return new Set(stems.slice(1).map((stem, at) => `${stems[at]} ${stem}`));
}

const excerptCharacters = 220;

function toFound(entry: Entry, { match }: SearchResult): Found {
  const { href, page, title, headings, text } = entry;
  const isFound = (word: string) => {
    const stem = stemOf(word.toLowerCase());
    return stem !== null && Object.hasOwn(match, stem);
  };
  const words = [...text.matchAll(/[\p{L}\p{N}]+/gu)];
  const first = words.find(([word]) => isFound(word))?.index ?? 0;
  const begin = first < excerptCharacters / 2 ? 0 : text.lastIndexOf(" ", first - 60) + 1;
  const rest = text.slice(begin, begin + excerptCharacters);
  const piece = begin + rest.length < text.length ? rest.replace(/\s\S*$/, " …") : rest;
  const excerpt = piece
    .split(/([\p{L}\p{N}]+)/u)
    .map((part) => (isFound(part) ? `<mark>${escaped(part)}</mark>` : escaped(part)))
    .join("");
  return { href, page, title, headings, excerpt: begin > 0 ? `… ${excerpt}` : excerpt };
}
