// The prices of models: what the file and the price lists of customers say, made versions.

import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  combinationsOf,
  levelsOf,
  noteOf,
  type Offered,
  offeredBy,
  type PriceFacts,
  type PriceTerms,
  searchPriceOf,
} from "../config/catalog.ts";
import { priceVersion } from "./price.ts";

/** A version of a price list, as it is in force. Immutable. */
export type PriceList = {
  readonly priceListId: string;
  readonly name: string;
  readonly n: number;
  /** Hundredths of a percent off every price. */
  readonly discountBp: number;
  /** By model: prices of its own, and another discount. */
  readonly models: ReadonlyMap<
    string,
    { readonly terms?: PriceTerms | undefined; readonly discountBp?: number | undefined }
  >;
};

/** The feed announces changes within a second. While it fails, lists are as old as this at most. */
const oldestMs = 30_000;
/** From this age on they are read beside a request, so that under load none waits for it. */
const readAfterMs = 15_000;

/** A list that is known already, which need not be read again. */
type KnownList = (priceListId: string, n: number) => PriceList | undefined;

/** The price lists in force, which requests of their accounts ask for. */
export class PriceLists {
  #byId: ReadonlyMap<string, PriceList> = new Map();
  #read: (known: KnownList) => Promise<readonly PriceList[]> = async () => [];
  /** The last read that began, and how many changes had been announced by then. */
  #reading: { readonly changes: number; readonly done: Promise<void> } | undefined;
  #changes = 0;
  /** Of the last read that succeeded: the same, and when it began. */
  #known = { changes: 0, atMs: 0 };

  /** Undefined: the public prices. */
  get(priceListId: string | undefined): PriceList | undefined {
    return priceListId === undefined ? undefined : this.#byId.get(priceListId);
  }

  /** Where the newest versions are read from. */
  readBy(read: (known: KnownList) => Promise<readonly PriceList[]>): void {
    this.#read = read;
  }

  /** Takes other lists. Those that are what they were stay the same objects. */
  replace(lists: readonly PriceList[]): void {
    this.#byId = new Map(
      lists.map((one) => [one.priceListId, this.#same(one.priceListId, one.n) ?? one]),
    );
  }

  #same(priceListId: string, n: number): PriceList | undefined {
    const known = this.#byId.get(priceListId);
    return known?.n === n ? known : undefined;
  }

  /** Reads the newest versions. Calls at once share a read that began after each of them. */
  async read(): Promise<void> {
    const earlier = this.#reading;
    if (earlier) await earlier.done.catch(() => undefined);
    if (this.#reading === undefined || this.#reading === earlier) {
      const reading = { changes: this.#changes, done: this.#readOnce() };
      this.#reading = reading;
      const end = () => {
        if (this.#reading === reading) this.#reading = undefined;
      };
      reading.done.then(end, end);
    }
    await this.#reading?.done;
  }

  /** Something of this id changed: if it is a list, requests wait for the lists to be read. */
  change(id: string): void {
    if (!id.startsWith("plist_")) return;
    this.#changes += 1;
    // The next request tries again, and fails as long as the database is away.
    this.read().catch(() => undefined);
  }

  /**
   * Call before the price of a request: resolves once the lists have every announced change, and
   * were read within 30 seconds. Undefined: they are. Throws while they cannot be read.
   */
  ensure(priceListId: string | undefined): Promise<void> | undefined {
    if (priceListId === undefined) return undefined;
    if (!this.#byId.has(priceListId)) return this.read();
    const ageMs = Date.now() - this.#known.atMs;
    const reading = this.#reading;
    if (this.#known.changes !== this.#changes || ageMs > oldestMs)
      return reading?.changes === this.#changes ? reading.done : this.read();
    if (ageMs > readAfterMs && !reading) this.read().catch(() => undefined);
    return undefined;
  }

  async #readOnce(): Promise<void> {
    const known = { changes: this.#changes, atMs: Date.now() };
    this.replace(await this.#read((id, n) => this.#same(id, n)));
    this.#known = known;
  }
}

const noFacts: PriceFacts = {};

/**
 * Gives the prices of models under the conditions of requests. What it gave, it remembers as long
 * as the list is in force, and itself as long as the file.
 */
export class PriceBook {
  readonly #termsOf: (model: string) => PriceTerms | undefined;
  readonly #lists: PriceLists;
  readonly #public: object = {};
  readonly #known = new WeakMap<object, Map<string, Price>>();
  readonly #offered = new WeakMap<PriceTerms, Offered>();

  constructor(
    termsOf: (model: string) => PriceTerms | undefined,
    lists: PriceLists = new PriceLists(),
  ) {
    this.#termsOf = termsOf;
    this.#lists = lists;
  }

  /** The version in force for a request. Undefined: no such model. Conditions come first. */
  priceOf(model: string, facts: PriceFacts = noFacts, priceListId?: string): Price | undefined {
    return this.#priceBy(this.#lists.get(priceListId), model, facts);
  }

  /**
   * As `priceOf`, by the version of the list that is in force now: a request keeps it to its end,
   * also for what a provider applied in another way.
   */
  pricesOf(model: string, priceListId?: string): (facts: PriceFacts) => Price | undefined {
    const listed = this.#lists.get(priceListId);
    return (facts) => this.#priceBy(listed, model, facts);
  }

  #priceBy(listed: PriceList | undefined, model: string, facts: PriceFacts): Price | undefined {
    const own = listed?.models.get(model);
    const terms = own?.terms ?? this.#termsOf(model);
    if (!terms) return undefined;
    const discountBp = own?.discountBp ?? listed?.discountBp ?? 0;
    // A list that changes nothing of the model leaves it its public version.
    const list = own?.terms || discountBp > 0 ? listed : undefined;
    const known = this.#knownOf(list ?? this.#public);
    const { speed, geo, tier } = facts;
    const isPlain = speed === undefined && geo === undefined && tier === undefined;
    const name = isPlain ? model : `${model} ${speed ?? ""} ${geo ?? ""} ${tier ?? ""}`;
    let price = known.get(name);
    if (!price) {
      price = versionOf(model, terms, facts, discountBp, list);
      known.set(name, price);
    }
    return price;
  }

  /** The values of each condition that have a price there. Undefined: no such model. */
  offered(model: string, priceListId?: string): Offered | undefined {
    const terms = this.#lists.get(priceListId)?.models.get(model)?.terms ?? this.#termsOf(model);
    if (!terms) return undefined;
    let offered = this.#offered.get(terms);
    if (!offered) {
      offered = offeredBy(terms);
      this.#offered.set(terms, offered);
    }
    return offered;
  }

  /** The versions under each other condition that has a price there. Empty: no such model. */
  conditional(model: string, priceListId?: string): { facts: PriceFacts; price: Price }[] {
    const offered = this.offered(model, priceListId);
    return (offered ? combinationsOf(offered) : []).flatMap((facts) => {
      const isPlain = !facts.speed && !facts.geo && !facts.tier;
      const price = isPlain ? undefined : this.priceOf(model, facts, priceListId);
      return price ? [{ facts, price }] : [];
    });
  }

  #knownOf(list: object): Map<string, Price> {
    let known = this.#known.get(list);
    if (!known) {
      known = new Map();
      this.#known.set(list, known);
    }
    return known;
  }
}

const listNotes = new WeakMap<PriceList, string>();

function noteOfList(list: PriceList): string {
  let note = listNotes.get(list);
  if (note === undefined) {
    note = `list ${list.name} ${list.n}`;
    listNotes.set(list, note);
  }
  return note;
}

function versionOf(
  model: string,
  terms: PriceTerms,
  facts: PriceFacts,
  discountBp: number,
  list: PriceList | undefined,
): Price {
  const webSearch = searchPriceOf(terms, discountBp);
  let abovePrice: Price | undefined;
  for (const { over, prices } of levelsOf(terms, facts, discountBp).reverse()) {
    const words = [noteOf(facts, over), list ? noteOfList(list) : ""].filter((one) => one !== "");
    abovePrice = priceVersion(
      model,
      { ...prices, webSearch },
      {
        // The text of a list alone is shared by its versions.
        note: words.length > 1 ? words.join("; ") : (words[0] ?? ""),
        ...(over > 0 && { promptOver: over }),
        abovePrice,
      },
    );
  }
  if (!abovePrice) throw new Error("a price has at least one level");
  return abovePrice;
}
