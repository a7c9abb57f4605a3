// Gives memory back that a burst of large requests has left, and keeps the compiled code otherwise.
// V8 compiles code for the shapes of objects. A collection that gives memory back forgets each
// shape of which no object lives, as in a process without a request, and throws its code away: 330
// functions, and the next 20,000 requests cost a third more. So V8's own collections of an idle
// process keep it (`--no-memory-reducer-favors-memory`), the size of the young generation is fixed,
// and only memory that ordinary load does not need is worth a collection.

import { executionAsyncResource } from "node:async_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";

/**
 * An object of those that `process.nextTick` makes. After a collection in which none lives,
 * `nextTick` stays slow for as long as the process runs: 8 µs for each request.
 */
const kept: object[] = [];
process.nextTick(() => kept.push(executionAsyncResource()));

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

const sampleMs = 1_000;
/** Samples from one decision to the next. */
const samplesMin = 10;
/** Ordinary load takes up to 2.4 times the memory of a process that is ready, attacks more. */
const largeGrowth = 3;
/** A process whose memory has grown less has shrunk enough. */
const restGrowth = 1.4;
/** Share of the time in which the event loop may be busy: the pause delays calls of that moment. */
const busyMax = 0.3;
/** Below this share nearly nobody calls, and the longer pause delays nearly nobody. */
const idleMax = 0.03;

/** A change of the resident memory below this share is none. */
const changeMin = 0.05;
/**
 * Each collection without effect doubles the wait for the next one, in decisions. After this wait
 * the memory is taken to be in use.
 */
const waitMax = 4;

/** Resident bytes. Without a descriptor to read them, those of the heap. */
function readMemory(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return getHeapStatistics().total_physical_size;
  }
}

/**
 * Shrinks the heap of a process that is ready: soon, if nobody calls yet, and after its memory had
 * grown threefold, when it has little to do, until most of the growth is gone. The process may end
 * while it is active.
 */
export function shrinkWhenIdle(log: Log): void {
  const readyBytes = readMemory();
  let leastBytes = readyBytes;
  let mostBytes = readyBytes;
  let isNew = true;
  let samples = 0;
  /** The resident memory before the last collection. */
  let collectedFrom = 0;
  let wait = 1;
  let waited = 0;
  let before = performance.eventLoopUtilization();

  function decide(bytes: number): void {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    const isIdle = utilization < idleMax;
    // The start leaves garbage behind, and no compiled code worth keeping.
    const leavesStart = isNew && isIdle;
    isNew = false;
    waited += 1;
    // Less: the collection helped. More: there is new garbage.
    const hasChanged = Math.abs(bytes - collectedFrom) > changeMin * collectedFrom;
    if (hasChanged) wait = 1;
    if (bytes < restGrowth * leastBytes || wait > waitMax) mostBytes = bytes;
    const hasBurst = mostBytes >= largeGrowth * readyBytes && utilization <= busyMax;
    if (!leavesStart && (!hasBurst || waited < wait)) return;
    // V8 returns memory in the background, on a busy machine a while after the collection. So one
    // that seems not to have helped is not the last.
    if (!hasChanged) wait *= 2;
    collectedFrom = bytes;
    waited = 0;
    shrinkHeap(isIdle ? "last-resort" : "regular");
  }

  new Task({
    async run() {
      // Needs a descriptor. Without one, this sample is left out.
      const bytes = process.memoryUsage.rss();
      leastBytes = Math.min(leastBytes, bytes);
      mostBytes = Math.max(mostBytes, bytes);
      samples += 1;
      if (samples % samplesMin === 0) decide(bytes);
    },
    firstMs: sampleMs,
    everyMs: sampleMs,
    report: warnOnce(log, {
      code: "background_task_failed",
      failed: "the memory of this process cannot be read, and may shrink later than it could",
    }),
  }).start();
}
