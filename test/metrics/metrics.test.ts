import fc from "fast-check";
import { expect, test } from "vitest";
import {
  countsOf,
  Metrics,
  mergeSnapshots,
  render,
  snapshotOf,
} from "../../src/metrics/metrics.ts";
import { readScrape } from "../support/metrics.ts";

function filled(): Metrics {
  const metrics = new Metrics();
  metrics.counter("gateway_tokens_total", ["haiku", "input"]).value += 5;
  metrics.counter("gateway_reaped_total", []).value += 2;
  const batches = metrics.histogram("gateway_ledger_batch_items", ["admit"]);
  for (const items of [1, 3, 300]) batches.observe(items);
  metrics.readOne("gateway_ledger_up", () => 1);
  metrics.readOne("gateway_nodes", () => 2);
  metrics.readOne("gateway_ledger_sync_standbys", () => undefined);
  metrics.readOne("process_resident_memory_bytes", () => 1_000);
  return metrics;
}

test("a scrape has help, type and every sample, buckets cumulative", () => {
  const text = render(snapshotOf(filled()));
  expect(text).toContain("# TYPE gateway_tokens_total counter\n");
  expect(text).toContain('gateway_tokens_total{model="haiku",category="input"} 5\n');
  expect(text).toContain("gateway_reaped_total 2\n");
  expect(text).toContain(
    [
      'gateway_ledger_batch_items_bucket{queue="admit",le="1"} 1',
      'gateway_ledger_batch_items_bucket{queue="admit",le="2"} 1',
      'gateway_ledger_batch_items_bucket{queue="admit",le="4"} 2',
    ].join("\n"),
  );
  expect(text).toContain('le="256"} 2\n');
  expect(text).toContain('le="+Inf"} 3\n');
  expect(text).toContain('gateway_ledger_batch_items_sum{queue="admit"} 304\n');
  expect(text).toContain('gateway_ledger_batch_items_count{queue="admit"} 3\n');
  expect(text).not.toContain("sync_standbys");
});

test("a value of a label keeps its quotes, backslashes and line breaks apart", () => {
  const metrics = new Metrics();
  metrics.counter("gateway_errors_total", ['a"b\\c\nd']).value += 1;
  expect(render(snapshotOf(metrics))).toContain('{reason="a\\"b\\\\c\\nd"} 1\n');
});

test("of several workers, counts add up, states keep the worst, processes stay apart", () => {
  const ill = filled();
  ill.readOne("gateway_ledger_up", () => 0);
  const merged = readScrape(
    render(
      mergeSnapshots([
        { snapshot: snapshotOf(filled()), worker: "1" },
        { snapshot: snapshotOf(ill), worker: "2" },
      ]),
    ),
  );
  expect(merged.sum("gateway_tokens_total")).toBe(10);
  expect(merged.sum("gateway_ledger_batch_items_count")).toBe(6);
  expect(merged.sum("gateway_ledger_batch_items_bucket", { le: "4" })).toBe(4);
  expect(merged.sum("gateway_ledger_up")).toBe(0);
  expect(merged.sum("gateway_nodes")).toBe(2);
  expect(merged.valuesOf("process_resident_memory_bytes", "worker")).toEqual(["1", "2"]);
});

test("of a worker that has exited, counts stay and states go", () => {
  const left = readScrape(render(countsOf(snapshotOf(filled()))));
  expect(left.names).toEqual([
    "gateway_tokens_total",
    "gateway_ledger_batch_items",
    "gateway_reaped_total",
  ]);
});

test("no observation is lost, whatever its value", () => {
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 1e4, noNaN: true })), (values) => {
      const metrics = new Metrics();
      const seconds = metrics.histogram("gateway_ledger_batch_seconds", ["admit"]);
      for (const value of values) seconds.observe(value);
      const text = readScrape(render(snapshotOf(metrics)));
      expect(text.sum("gateway_ledger_batch_seconds_count")).toBe(values.length);
      for (const le of [0.001, 0.05, 10])
        expect(text.sum("gateway_ledger_batch_seconds_bucket", { le: `${le}` })).toBe(
          values.filter((value) => value <= le).length,
        );
    }),
  );
});
