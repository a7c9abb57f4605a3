// The face of this folder: the metrics of one process, of several together, and their listener.
//
// By hand, see docs/decisions/0045-metrics-by-hand.md.

export { type Definition, definitions } from "./definitions.ts";
export { readProcess, version } from "./process.ts";
export { type Distribution, Metrics, type Tally } from "./registry.ts";
export { type MetricsListener, serveMetrics } from "./serve.ts";
export { countsOf, mergeSnapshots, render, type Snapshot, snapshotOf } from "./text.ts";
