// Snapshots of metrics, their sums over several processes, and the text format of Prometheus 0.0.4.

import { type Definition, definitions } from "./definitions.ts";
import type { Metrics, Sample } from "./registry.ts";

/**
 * The values of one process, or of several. It names its definitions: after an upgrade in place the
 * parent may be older than its workers.
 */
export type Snapshot = readonly {
  readonly name: string;
  readonly definition: Definition;
  readonly samples: readonly Sample[];
}[];

/** The values of now, in the order of the definitions. Metrics without a value are left out. */
export function snapshotOf(metrics: Metrics): Snapshot {
  const samples = metrics.samples();
  return Object.entries(definitions).flatMap(([name, definition]) => {
    const own = samples.get(name);
    return own ? [{ name, definition, samples: own }] : [];
  });
}

type Value = Sample[1];

/**
 * Adds up the values of several processes, as each metric says. `process`: what the label `worker`
 * says of the metrics that are not added up. Absent: they have no such label.
 */
export function mergeSnapshots(
  parts: readonly { readonly snapshot: Snapshot; readonly worker?: string }[],
): Snapshot {
  const merged = new Map<
    string,
    { definition: Definition; samples: Map<string, { labels: readonly string[]; value: Value }> }
  >();
  for (const { snapshot, worker } of parts) {
    for (const { name, definition, samples } of snapshot) {
      const isEach = definition.merge === "each" && worker !== undefined;
      const entry = merged.get(name) ?? {
        definition: isEach
          ? { ...definition, labels: [...definition.labels, "worker"] }
          : definition,
        samples: new Map(),
      };
      merged.set(name, entry);
      for (const [own, value] of samples) {
        const labels = isEach ? [...own, worker] : own;
        const key = labels.join("\n");
        const before = entry.samples.get(key);
        const sum = before ? combine(definition, before.value, value) : value;
        entry.samples.set(key, { labels, value: sum });
      }
    }
  }
  return [...merged].map(([name, { definition, samples }]) => ({
    name,
    definition,
    samples: [...samples.values()].map(({ labels, value }) => [labels, value] as const),
  }));
}

/** What stays of a process that has ended: its counts, which must not go back. */
export function countsOf(snapshot: Snapshot): Snapshot {
  return snapshot.filter(({ definition: { kind, merge } }) => kind !== "gauge" && merge !== "each");
}

function combine({ merge = "sum" }: Definition, one: Value, other: Value): Value {
  if (typeof one === "number" && typeof other === "number") {
    if (merge === "max") return Math.max(one, other);
    return merge === "min" ? Math.min(one, other) : one + other;
  }
  if (typeof one === "number" || typeof other === "number") return other;
  return {
    counts: one.counts.map((count, index) => count + (other.counts[index] ?? 0)),
    sum: one.sum + other.sum,
  };
}

/** The text of a scrape. `cell`: a label of each value. Absent: there are no cells. */
export function render(snapshot: Snapshot, cell?: string): string {
  const ofCell = cell === undefined ? [] : [`cell="${escaped(cell)}"`];
  const lines: string[] = [];
  for (const { name, definition, samples } of snapshot) {
    const { kind, help, labels, buckets = [] } = definition;
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`);
    for (const [values, value] of samples) {
      const own = labels.map((label, index) => `${label}="${escaped(values[index] ?? "")}"`);
      own.push(...ofCell);
      const line = (suffix: string, number: number, ...more: string[]) => {
        const all = [...own, ...more];
        lines.push(`${name}${suffix}${all.length > 0 ? `{${all.join(",")}}` : ""} ${number}`);
      };
      if (typeof value === "number") {
        line("", value);
        continue;
      }
      let count = 0;
      value.counts.forEach((inBucket, index) => {
        count += inBucket;
        line("_bucket", count, `le="${buckets[index] ?? "+Inf"}"`);
      });
      line("_sum", value.sum);
      line("_count", count);
    }
  }
  return `${lines.join("\n")}\n`;
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
