// Reads a scrape of GET /metrics.

export type Scrape = {
  readonly text: string;
  /** The names of all metrics, without the suffixes of histograms. */
  readonly names: readonly string[];
  /** The sum of a metric over all samples with these labels. 0 without one. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
  /** The values of one label of a metric, sorted, each once. */
  valuesOf(name: string, label: string): string[];
};

type Sample = {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
};

export async function scrape(address: string | undefined): Promise<Scrape> {
  const response = await fetch(`${address}/metrics`);
  if (response.status !== 200) throw new Error(`metrics: ${response.status}`);
  return readScrape(await response.text());
}

/** Throws for a line that is no sample. */
export function readScrape(text: string): Scrape {
  const lines = text.split("\n").filter((line) => line !== "");
  const samples = lines.filter((line) => !line.startsWith("#")).map(readSample);
  const named = (name: string) => samples.filter((sample) => sample.name === name);
  return {
    text,
    names: lines.flatMap((line) => /^# TYPE (\S+)/.exec(line)?.[1] ?? []),
    sum: (name, labels = {}) =>
      named(name)
        .filter((sample) =>
          Object.entries(labels).every(([label, value]) => sample.labels.get(label) === value),
        )
        .reduce((sum, { value }) => sum + value, 0),
    valuesOf: (name, label) =>
      [...new Set(named(name).map(({ labels }) => labels.get(label) ?? ""))].sort(),
  };
}

function readSample(line: string): Sample {
  const [, name, , inside = "", value] =
    /^([a-zA-Z_:]\w*)(\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)$/.exec(line) ?? [];
  if (name === undefined) throw new Error(`no sample: ${line}`);
  const labels = [...inside.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(
    ([, label = "", text = ""]): [string, string] => [label, text],
  );
  return { name, labels: new Map(labels), value: Number(value) };
}
