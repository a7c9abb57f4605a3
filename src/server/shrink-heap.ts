// V8's young generation grows during the start and keeps its size: an idle gateway takes 160 MB,
// and 120 MB after a collection (measured, Node 24, 40 ms). Under load it grows again. After a
// burst of large requests, V8 keeps most of their memory until something else needs it.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * Collects all garbage and shrinks the heap to what is in use (100 ms for 45 MB in use, on a slow
 * machine), or collects once (40 ms) and keeps a quarter more.
 */
export function shrinkHeap(flavor: "last-resort" | "regular" = "last-resort"): void {
  // Only a context created after the flag has the function.
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  if (typeof collect === "function") collect({ type: "major", flavor });
}

const checkMs = 10_000;
/**
 * Growth of the resident memory that is worth a collection: ordinary load takes 2 to 2.6 times what
 * an idle gateway takes, large requests more. A collection throws away what V8 has learned of the
 * code: bursts of three seconds, one collection between two, cost 1.6 times the processor time.
 */
const largeGrowth = 3;
/** Growth that is worth one when nearly nobody has called for as long as `idleChecksMin`. */
const smallGrowth = 1.3;
const idleChecksMin = 3;
/** Share of the time in which the event loop may be busy: the pause delays calls of that moment. */
const busyMax = 0.3;
/** Below this share nearly nobody calls, and the longer pause delays nearly nobody. */
const idleMax = 0.03;

/** A change of the resident memory below this share is none. */
const changeMin = 0.05;
/** The longest wait for the next collection, in checks. Each one without effect doubles it. */
const waitMax = 32;

/**
 * Shrinks the heap after the start, and after bursts: when the resident memory has grown and the
 * process has little to do, every ten seconds while that helps, and rarely afterwards. The process
 * may end while it is active.
 */
export function shrinkWhenIdle(): void {
  let leastBytes = process.memoryUsage.rss();
  // The start leaves much behind, and its end is a bad moment: the first request comes.
  let isNew = true;
  let idleChecks = 0;
  /** The resident memory before the last collection. */
  let collectedFrom = 0;
  let wait = 1;
  let waited = 0;
  let before = performance.eventLoopUtilization();
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    const bytes = process.memoryUsage.rss();
    leastBytes = Math.min(leastBytes, bytes);
    idleChecks = utilization < idleMax ? idleChecks + 1 : 0;
    waited += 1;
    // Less: the collection helped. More: there is new garbage.
    const hasChanged = Math.abs(bytes - collectedFrom) > changeMin * collectedFrom;
    if (hasChanged) wait = 1;
    const growthMin = isNew ? 0 : idleChecks >= idleChecksMin ? smallGrowth : largeGrowth;
    if (bytes < growthMin * leastBytes || utilization > busyMax || waited < wait) return;
    // V8 returns memory in the background, on a busy machine a while after the collection. So one
    // that seems not to have helped is not the last.
    if (!hasChanged) wait = Math.min(2 * wait, waitMax);
    isNew = false;
    collectedFrom = bytes;
    waited = 0;
    shrinkHeap(idleChecks > 0 ? "last-resort" : "regular");
  }, checkMs).unref();
}
