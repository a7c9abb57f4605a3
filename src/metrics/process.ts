// The figures of this process: processor, memory, event loop, garbage collections.

import { readFileSync } from "node:fs";
import {
  constants,
  monitorEventLoopDelay,
  PerformanceObserver,
  performance,
} from "node:perf_hooks";
import type { Metrics } from "./registry.ts";

const gcKinds: ReadonlyMap<number, string> = new Map([
  [constants.NODE_PERFORMANCE_GC_MINOR, "minor"],
  [constants.NODE_PERFORMANCE_GC_MAJOR, "major"],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, "incremental"],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, "weak callbacks"],
]);

const packageFile: unknown = JSON.parse(
  readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
);
/** Of the gateway, such as `0.1.0`. */
export const version = String(Object(packageFile).version);

/** Undefined: no descriptor is left to read it. */
function readMemory(): number | undefined {
  try {
    return process.memoryUsage.rss();
  } catch {
    return undefined;
  }
}

/** Adds the figures of this process. Returns the function that stops watching. */
export function readProcess(metrics: Metrics): () => void {
  metrics.read("gateway_build_info", () => [{ labels: [version, process.version], value: 1 }]);
  metrics.readOne("process_cpu_seconds_total", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  metrics.readOne("process_resident_memory_bytes", readMemory);
  metrics.readOne("process_start_time_seconds", () => performance.timeOrigin / 1000);

  const delays = monitorEventLoopDelay({ resolution: 20 });
  delays.enable();
  metrics.readOne("nodejs_eventloop_lag_p99_seconds", () => {
    const lag = delays.count === 0 ? 0 : delays.percentile(99) / 1e9;
    delays.reset();
    return lag;
  });

  const pauses = new Map([...gcKinds.values()].map((kind) => [kind, 0]));
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      // Of these entries, which Node's types leave out.
      const detail: unknown = Reflect.get(entry, "detail");
      const kind = gcKinds.get(Number(Object(detail).kind)) ?? "major";
      pauses.set(kind, (pauses.get(kind) ?? 0) + entry.duration / 1000);
    }
  });
  observer.observe({ entryTypes: ["gc"] });
  metrics.read("nodejs_gc_seconds_total", () =>
    [...pauses].map(([kind, value]) => ({ labels: [kind] as const, value })),
  );
  return () => {
    delays.disable();
    observer.disconnect();
  };
}
