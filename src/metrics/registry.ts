// The values of one process. A request adds to plain fields; samples are made when somebody asks.

import { type Definition, definitions, type MetricName } from "./definitions.ts";

type NamesOf<K extends Definition["kind"]> = {
  [N in MetricName]: (typeof definitions)[N]["kind"] extends K ? N : never;
}[MetricName];
type Strings<T extends readonly unknown[]> = { readonly [I in keyof T]: string };
/** One value per label, in the order of the definition. */
type LabelsOf<N extends MetricName> = Strings<(typeof definitions)[N]["labels"]> &
  readonly string[];

/** A count with its labels. Add to it; do not look it up for each request. */
export type Tally = { value: number };

/** The observations of a histogram with its labels. */
export class Distribution {
  readonly #bounds: readonly number[];
  /** Observations by bucket, the last one without a bound. Not cumulative. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = new Array(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let index = 0;
    while (index < bounds.length && value > (bounds[index] ?? 0)) index++;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.sum += value;
  }
}

/** The value of a gauge at one place, in the moment of a scrape. */
export type Reading<N extends MetricName> = {
  readonly labels: LabelsOf<N>;
  readonly value: number;
};

/** The values of one metric: labels, and a number or the buckets and the sum of a histogram. */
export type Sample = readonly [
  labels: readonly string[],
  value: number | { readonly counts: readonly number[]; readonly sum: number },
];

type Reader = {
  readonly name: MetricName;
  read(): readonly { readonly labels: readonly string[]; readonly value: number }[];
};
type Series = Map<
  string,
  { readonly labels: readonly string[]; readonly value: Tally | Distribution }
>;

export class Metrics {
  readonly #series = new Map<MetricName, Series>();
  readonly #readers: Reader[] = [];

  /** The count with these labels, from 0 on. */
  counter<N extends NamesOf<"counter">>(name: N, labels: LabelsOf<N>): Tally {
    const tally = this.#child(name, labels, () => ({ value: 0 }));
    if (tally instanceof Distribution) throw new Error(`${name} is no counter`);
    return tally;
  }

  histogram<N extends NamesOf<"histogram">>(name: N, labels: LabelsOf<N>): Distribution {
    const definition: Definition = definitions[name];
    const { buckets = [] } = definition;
    const child = this.#child(name, labels, () => new Distribution(buckets));
    if (!(child instanceof Distribution)) throw new Error(`${name} is no histogram`);
    return child;
  }

  /** Calls `read` at each scrape. It returns nothing while there is nothing to say. */
  read<N extends NamesOf<"gauge" | "counter">>(name: N, read: () => readonly Reading<N>[]): void {
    this.#readers.push({ name, read });
  }

  /** As `read`, for a metric without labels. Undefined: there is nothing to say. */
  readOne(name: NamesWithoutLabels, read: () => number | undefined): void {
    this.#readers.push({
      name,
      read() {
        const value = read();
        return value === undefined ? [] : [{ labels: [], value }];
      },
    });
  }

  /** The values of now, by metric. */
  samples(): ReadonlyMap<string, readonly Sample[]> {
    const samples = new Map<string, Sample[]>();
    const add = (name: MetricName, sample: Sample) => {
      const all = samples.get(name) ?? [];
      samples.set(name, all);
      all.push(sample);
    };
    for (const [name, series] of this.#series)
      for (const { labels, value } of series.values())
        add(name, [
          labels,
          value instanceof Distribution
            ? { counts: [...value.counts], sum: value.sum }
            : value.value,
        ]);
    for (const { name, read } of this.#readers)
      for (const { labels, value } of read()) add(name, [labels, value]);
    return samples;
  }

  #child<T extends Tally | Distribution>(
    name: MetricName,
    labels: readonly string[],
    create: () => T,
  ): Tally | Distribution {
    const series: Series = this.#series.get(name) ?? new Map();
    this.#series.set(name, series);
    const key = labels.join("\n");
    const known = series.get(key);
    if (known) return known.value;
    const value = create();
    series.set(key, { labels, value });
    return value;
  }
}

type NamesWithoutLabels = {
  [N in NamesOf<"gauge" | "counter">]: (typeof definitions)[N]["labels"] extends readonly []
    ? N
    : never;
}[NamesOf<"gauge" | "counter">];
