// The prices of a model as the file states them, and what follows for each combination of
// conditions: the length of the prompt, a speed, a geography, a tier. What the operator pays has
// the same form, in another unit.

import * as v from "valibot";
import { decimal } from "../base/money.ts";
import {
  basePriceOf,
  byCategory,
  categoryColumns,
  type TokenCategory,
  tokenCategories,
} from "../base/token-categories.ts";
import { chargedPrices, type PriceReading, paidPrices } from "./price.ts";
import {
  checked,
  choice,
  formed,
  integer,
  list,
  placeOf,
  type Settings,
  section,
  text,
} from "./schema.ts";

/**
 * Nano-credits (1e-9 credit; 1 credit = 0.005 USD) per token, by category. Of a cost: pico-dollars
 * (1e-12 USD).
 */
export type TokenPrices = Readonly<Record<TokenCategory, bigint>>;

/** The prices of a model, and under which conditions others hold. */
export type PriceTerms = TokenPrices & {
  /** Micro-credits of a web search, or pico-dollars. Absent: the file does not say. */
  readonly webSearch?: bigint;
  /** In their order. Absent: the prices hold always. */
  readonly when?: readonly PriceEntry[];
};

/** What is true of a request before its hold. Absent: the plain one. */
export type PriceFacts = {
  readonly speed?: string | undefined;
  readonly geo?: string | undefined;
  readonly tier?: string | undefined;
};

/** An entry of `when`: it holds where all of its conditions do. */
export type PriceEntry = PriceFacts & {
  /** Holds where the prompt has more tokens than this. */
  readonly promptAbove?: number | undefined;
  /** Of the entries with prices that hold, the first has the prices. */
  readonly prices?: TokenPrices;
  /** Ten-thousandths by which the prices are multiplied; every entry that holds does so. */
  readonly multiply?: bigint;
};

const factNames = ["speed", "geo", "tier"] as const satisfies readonly (keyof PriceFacts)[];

/** Steps by the length of a prompt that a price may have. */
const stepsMax = 3;
/** Combinations of conditions that the price of a model may have. */
const combinationsMax = 32;

const multiplyUnit = 10_000n;
const discountUnit = 10_000n;

/** Decimal factors of the prices that a model does not state. */
export const multipliers = section({
  thinking: v.exactOptional(text),
  cache_write_5m: v.exactOptional(text),
  cache_write_1h: v.exactOptional(text),
  cache_read: v.exactOptional(text),
});
export type Multipliers = v.InferOutput<typeof multipliers>;

/** Whose prices they are, and factors of those not stated. Undefined: these are wrong. */
type Reading = { readonly prices: PriceReading; readonly factors: Multipliers | undefined };

/** The factor of a price that is not stated. Undefined: there is none. */
function factorOf({ prices, factors }: Reading, category: DerivedCategory): string | undefined {
  return factors?.[category] ?? prices.otherwise;
}

/** A decimal number of dollars that `read` makes nano- or micro-credits. */
const dollars = (read: (usd: string) => bigint | string) =>
  v.pipe(
    checked((usd) => problemOf(read(usd))),
    v.transform((usd) => BigInt(read(usd))),
  );
const problemOf = (price: bigint | string) => (typeof price === "string" ? price : undefined);

const derived = {
  thinking: v.exactOptional(text),
  cache_write_5m: v.exactOptional(text),
  cache_write_1h: v.exactOptional(text),
  cache_read: v.exactOptional(text),
};
const stated = { input: text, output: text, ...derived } satisfies Readonly<
  Record<(typeof categoryColumns)[TokenCategory], unknown>
>;
const perhapsStated = { input: v.exactOptional(text), output: v.exactOptional(text), ...derived };

type DerivedCategory = keyof typeof basePriceOf;
const isDerived = (category: TokenCategory): category is DerivedCategory => category in basePriceOf;

/** The names of prices and of the texts that state them. */
type Stated = { readonly [K in (typeof categoryColumns)[TokenCategory]]?: string | undefined };

/** What is wrong with the price of a category. Undefined: nothing. */
function problemOfPrice(
  category: TokenCategory,
  usd: string | undefined,
  reading: Reading,
): string | undefined {
  const { prices, factors } = reading;
  if (usd === undefined)
    return factors && isDerived(category) && factorOf(reading, category) === undefined
      ? "is required, because price_multipliers does not state it either"
      : undefined;
  const units = prices.token(usd);
  return units === 0n && !isDerived(category) && !prices.mayBeFree
    ? "must be more than 0"
    : problemOf(units);
}

/** As `problemOfPrice`, of one that is derived from another. */
function problemOfDerived(
  category: DerivedCategory,
  given: Stated,
  reading: Reading,
): string | undefined {
  const { token } = reading.prices;
  const baseUsd = given[categoryColumns[basePriceOf[category]]];
  const factor = factorOf(reading, category);
  if (given[categoryColumns[category]] !== undefined || factor === undefined) return undefined;
  if (baseUsd === undefined || typeof token(baseUsd) === "string") return undefined;
  return problemOf(token(baseUsd, factor));
}

/** The prices of texts that are right. */
function pricesOf(
  usd: Readonly<Partial<Record<TokenCategory, string>>>,
  reading: Reading,
): TokenPrices {
  const { token } = reading.prices;
  const unitsOf = (category: TokenCategory) => {
    const own = usd[category];
    if (own !== undefined) return token(own);
    return isDerived(category)
      ? token(usd[basePriceOf[category]] ?? "", factorOf(reading, category))
      : token("");
  };
  return byCategory((category) => BigInt(unitsOf(category)));
}

/** Tiers that have the plain price. */
const plainTiers = ["auto", "default", "standard", "standard_only"];
const nameForm = /^[a-z][a-z0-9_-]{0,31}$/;

const conditions = {
  prompt_above: v.exactOptional(integer(1, 99_999_999)),
  speed: v.exactOptional(choice(["fast"])),
  geo: v.exactOptional(formed(nameForm, "a geography in small letters, such as us")),
  tier: v.exactOptional(
    checked((tier) => {
      if (plainTiers.includes(tier)) return `never holds: ${tier} has the plain price`;
      return nameForm.test(tier)
        ? undefined
        : `must be a tier in small letters, such as priority, not ${tier}`;
    }),
  ),
};

const factorForm = /^(?!0+(?:\.0+)?$)\d{1,3}(\.\d{1,4})?$/;

const entry = {
  ...conditions,
  ...perhapsStated,
  multiply: v.exactOptional(
    formed(factorForm, "a factor above 0 and below 1000 with at most 4 decimals, such as 1.1"),
  ),
};

/** One entry of `when`. */
function entryBy(reading: Reading) {
  const priceNames = tokenCategories.map((category) => categoryColumns[category]);
  const one = section(entry, (rule, has) => {
    const hasPrices = priceNames.some(has);
    const isMultiplied = has("multiply");
    rule("", [], () => {
      if (!Object.keys(conditions).some(has))
        return `needs a condition: ${Object.keys(conditions).join(", ")}`;
      if (hasPrices && isMultiplied) return "has prices and multiply, which contradict each other";
      return hasPrices || isMultiplied ? undefined : "needs input and output, or multiply";
    });
    if (!hasPrices) return;
    for (const name of ["input", "output"] as const)
      rule(name, [name], ({ [name]: usd }) => (usd === undefined ? "is required" : undefined));
    priceRules(reading, rule);
  });
  return v.pipe(
    one,
    v.transform((settings: Settings<typeof entry>): PriceEntry => {
      const { promptAbove, speed, geo, tier, multiply, ...usd } = settings;
      const holds = { promptAbove, speed, geo, tier };
      return multiply === undefined
        ? { ...holds, prices: pricesOf(usd, reading) }
        : { ...holds, multiply: tenThousandths(multiply) };
    }),
  );
}

/** The rules of each price of a section. */
function priceRules(
  reading: Reading,
  rule: (
    at: string,
    of: readonly (typeof categoryColumns)[TokenCategory][],
    find: (given: Stated) => string | undefined,
  ) => void,
): void {
  for (const category of tokenCategories) {
    const name = categoryColumns[category];
    rule(name, [name], ({ [name]: usd }) => problemOfPrice(category, usd, reading));
  }
  for (const category of tokenCategories.filter(isDerived)) {
    const [name, base] = [categoryColumns[category], categoryColumns[basePriceOf[category]]];
    rule(name, [name, base], (given) => problemOfDerived(category, given, reading));
  }
}

function tenThousandths(decimal: string): bigint {
  const [whole = "", fraction = ""] = decimal.split(".");
  return BigInt(whole + fraction.padEnd(4, "0"));
}

/** The entries of `when`, of which none contradicts or hides another. */
function whenBy(reading: Reading) {
  return v.pipe(
    list(entryBy(reading)),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const entries = dataset.value;
      for (const [index, one] of entries.entries()) {
        const before = entries.slice(0, index).findIndex((other) => isHidden(one, other));
        if (before < 0) continue;
        const message = isSame(one, entries[before])
          ? `contradicts when[${before}]: both have the same conditions`
          : `never applies, because when[${before}] holds wherever it does: put it before`;
        addIssue({
          message,
          path: [{ type: "unknown", origin: "value", input: entries, key: index, value: one }],
        });
      }
    }),
  );
}

/** True if `one` never has an effect after `other`, or repeats it. */
function isHidden(one: PriceEntry, other: PriceEntry): boolean {
  if ((one.prices === undefined) !== (other.prices === undefined)) return false;
  if (one.prices === undefined) return isSame(one, other);
  return (
    factNames.every((name) => other[name] === undefined || other[name] === one[name]) &&
    (other.promptAbove ?? 0) <= (one.promptAbove ?? 0)
  );
}

function isSame(one: PriceEntry, other: PriceEntry | undefined): boolean {
  return (
    one.promptAbove === other?.promptAbove && factNames.every((name) => one[name] === other?.[name])
  );
}

/** The prices that a model states, or derives with these factors. Undefined: they are wrong. */
export function termsBy(factors: Multipliers | undefined) {
  return termsOf({ prices: chargedPrices, factors });
}

/** What the operator pays. A price that is neither stated nor has a factor is that of its base. */
export function costBy(factors: Multipliers | undefined) {
  return termsOf({ prices: paidPrices, factors });
}

function termsOf(reading: Reading) {
  const { prices } = reading;
  const per = section({ web_search: v.exactOptional(dollars(prices.search)) });
  const own = section(
    { ...stated, per: v.optional(per, {}), when: v.exactOptional(whenBy(reading)) },
    (rule) => priceRules(reading, rule),
  );
  return v.pipe(
    own,
    v.transform(({ per, when, ...usd }): PriceTerms => {
      const { webSearch } = per;
      return {
        ...pricesOf(usd, reading),
        ...(webSearch !== undefined && { webSearch }),
        ...(when && { when }),
      };
    }),
    v.check(
      (terms) => problemOfTerms(terms, prices) === undefined,
      ({ input }) => (isTerms(input) ? (problemOfTerms(input, prices) ?? "") : ""),
    ),
  );
}

/** True for what the check of `termsOf` is given. */
function isTerms(input: unknown): input is PriceTerms {
  return typeof input === "object" && input !== null && "cacheRead" in input;
}

/** What is wrong with prices whose members are right. Undefined: nothing. */
function problemOfTerms(
  terms: PriceTerms,
  { max, searchMax, bound }: Pick<PriceReading, "max" | "searchMax" | "bound">,
): string | undefined {
  const { speed, geo, tier } = offeredBy(terms);
  // Before they are made: a file may have any number.
  const facts = (1 + speed.size) * (1 + geo.size) * (1 + tier.size);
  if (facts > combinationsMax) return tooMany(facts);
  const all = combinationsOf({ speed, geo, tier }).map((one) => ({
    facts: one,
    levels: levelsOf(terms, one),
  }));
  if (all.some(({ levels }) => levels.length > stepsMax + 1))
    return `has more than ${stepsMax} steps by the length of the prompt`;
  const count = all.reduce((sum, { levels }) => sum + levels.length, 0);
  if (count > combinationsMax) return tooMany(count);
  for (const { facts, levels } of all)
    for (const { over, prices } of levels)
      if (tokenCategories.some((category) => prices[category] > max))
        return `costs ${bound} with ${noteOf(facts, over) || "no condition"}`;
  return (terms.webSearch ?? 0n) > searchMax ? `costs ${bound} for 1,000 searches` : undefined;
}

/**
 * What the operator pays at a route: a factor of it, with at most four decimals. A string is the
 * message of a problem.
 */
export function timesCost(terms: PriceTerms, factor: string): PriceTerms | string {
  const multiply = tenThousandths(factor);
  const { webSearch, when = [] } = terms;
  const multiplied = {
    ...terms,
    when: [...when, { multiply }],
    ...(webSearch !== undefined && {
      webSearch: (webSearch * multiply + multiplyUnit - 1n) / multiplyUnit,
    }),
  };
  return problemOfTerms(multiplied, paidPrices) ?? multiplied;
}

function tooMany(count: number): string {
  return `has ${count} combinations of conditions, more than ${combinationsMax}`;
}

/** The prices for prompts of more than `over` tokens, up to those of the next level. */
export type PriceLevel = { readonly over: number; readonly prices: TokenPrices };

/**
 * The prices under these facts by the length of the prompt, the shortest first: a level for each
 * step. Conditions come first, then the discount, in hundredths of a percent; then each price is
 * rounded up once.
 */
export function levelsOf(terms: PriceTerms, facts: PriceFacts, discountBp = 0): PriceLevel[] {
  const entries = (terms.when ?? []).filter((one) =>
    factNames.every((name) => one[name] === undefined || one[name] === facts[name]),
  );
  const steps = new Set(entries.flatMap(({ promptAbove }) => promptAbove ?? []));
  const levels: PriceLevel[] = [];
  for (const over of [0, ...[...steps].sort((one, other) => one - other)]) {
    const holding = entries.filter(({ promptAbove = 0 }) => promptAbove <= over);
    const base = holding.find((one) => one.prices !== undefined)?.prices ?? terms;
    let [factor, unit] = [discountUnit - BigInt(discountBp), discountUnit];
    for (const { multiply } of holding)
      if (multiply !== undefined) [factor, unit] = [factor * multiply, unit * multiplyUnit];
    const prices = byCategory((category) => (base[category] * factor + unit - 1n) / unit);
    const last = levels.at(-1)?.prices;
    const isNew = tokenCategories.some((category) => prices[category] !== last?.[category]);
    if (isNew) levels.push({ over, prices });
  }
  return levels;
}

/** The price of a web search after a discount, in micro-credits. 0: there is none. */
export function searchPriceOf({ webSearch = 0n }: PriceTerms, discountBp = 0): bigint {
  return (webSearch * (discountUnit - BigInt(discountBp)) + discountUnit - 1n) / discountUnit;
}

/** Of what is true of a request, that for which there are prices of their own. */
export function pricedFacts(facts: PriceFacts, { speed, geo, tier }: Offered): PriceFacts {
  return {
    ...(facts.speed !== undefined && speed.has(facts.speed) && { speed: facts.speed }),
    ...(facts.geo !== undefined && geo.has(facts.geo) && { geo: facts.geo }),
    ...(facts.tier !== undefined && tier.has(facts.tier) && { tier: facts.tier }),
  };
}

export function isSameFacts(one: PriceFacts, other: PriceFacts): boolean {
  return factNames.every((name) => one[name] === other[name]);
}

/** The values of each condition that have a price, beside the plain one. */
export function offeredBy({ when = [] }: PriceTerms) {
  const valuesOf = (name: (typeof factNames)[number]) =>
    new Set(when.flatMap(({ [name]: value }) => value ?? []));
  return { speed: valuesOf("speed"), geo: valuesOf("geo"), tier: valuesOf("tier") };
}
export type Offered = ReturnType<typeof offeredBy>;

/** Every combination of these conditions, the plain one first. */
export function combinationsOf({ speed, geo, tier }: Offered): PriceFacts[] {
  const all: PriceFacts[] = [];
  for (const oneSpeed of [undefined, ...speed])
    for (const oneGeo of [undefined, ...geo])
      for (const oneTier of [undefined, ...tier])
        all.push({ speed: oneSpeed, geo: oneGeo, tier: oneTier });
  return all;
}

/** The conditions in words: "fast; geography us; above 200,000 tokens of prompt". */
export function noteOf({ speed, geo, tier }: PriceFacts, over: number): string {
  return [
    ...(speed === undefined ? [] : [speed]),
    ...(geo === undefined ? [] : [`geography ${geo}`]),
    ...(tier === undefined ? [] : [`tier ${tier}`]),
    ...(over > 0 ? [`above ${over.toLocaleString("en-US")} tokens of prompt`] : []),
  ].join("; ");
}

/** The problem of a step that no prompt of the model reaches. Undefined: there is none. */
export function problemOfStep({ when = [] }: PriceTerms, contextTokens: number) {
  const index = when.findIndex(({ promptAbove = 0 }) => promptAbove >= contextTokens);
  return index < 0
    ? undefined
    : `when[${index}].prompt_above: never holds: the model takes ${contextTokens} tokens`;
}

// Making a schema takes as long as reading a price by it.
const schemas = new WeakMap<Multipliers, ReturnType<typeof termsBy>>();

/**
 * The prices of a price list, given as a file has them. Strings are its problems, each with its
 * place.
 */
export function readTerms(given: unknown, factors: Multipliers): PriceTerms | string[] {
  let schema = schemas.get(factors);
  if (!schema) {
    schema = termsBy(factors);
    schemas.set(factors, schema);
  }
  const { success, output, issues } = v.safeParse(schema, given);
  return success ? output : issues.map((one) => `${placeOf(one, "price")}: ${one.message}`);
}

/** The same prices as a file has them, with every one stated: no factor changes them any more. */
export function writeTerms(terms: PriceTerms): Readonly<Record<string, unknown>> {
  const { webSearch, when } = terms;
  return {
    ...writePrices(terms),
    ...(webSearch !== undefined && { per: { web_search: decimal(webSearch * 5n, 6, 0) } }),
    ...(when && {
      when: when.map(({ promptAbove, speed, geo, tier, prices, multiply }) => ({
        ...(promptAbove !== undefined && { prompt_above: String(promptAbove) }),
        ...{ ...(speed && { speed }), ...(geo && { geo }), ...(tier && { tier }) },
        ...(prices && writePrices(prices)),
        ...(multiply !== undefined && { multiply: decimal(multiply, 4, 0) }),
      })),
    }),
  };
}

// A nano-credit a token is 0.000005 USD a million, as a micro-credit a search is per 1,000.
function writePrices(prices: TokenPrices) {
  return Object.fromEntries(
    tokenCategories.map((category) => [
      categoryColumns[category],
      decimal(prices[category] * 5n, 6, 0),
    ]),
  );
}
