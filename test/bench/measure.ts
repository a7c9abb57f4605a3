// Measurements: processor time as the operating system counts it, and medians with their spread.

import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks of `/proc` per second; 100 on every Linux that Node runs on. */
const ticksPerSecond = 100;

/**
 * Processor seconds that the threads of a process used so far; 0 when it has ended. The scheduler
 * counts nanoseconds; `stat` knows 10 ms only.
 */
export function cpuSeconds(pid: number): number {
  let nanoseconds = 0;
  for (const thread of threadsOf(pid)) {
    nanoseconds += Number(readProc(`${pid}/task/${thread}/schedstat`)?.split(" ")[0] ?? 0);
  }
  return nanoseconds / 1e9;
}

// A process of the database may end between two looks.
function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

/** Processor seconds of a process and everything it started, whether that still runs or not. */
export function cpuSecondsOfTree(pid: number): number {
  const own = statFields(pid);
  const ended = (Number(own[13]) + Number(own[14])) / ticksPerSecond;
  return childrenOf(pid).reduce(
    (sum, child) => sum + cpuSecondsOfTree(child),
    cpuSeconds(pid) + ended,
  );
}

/** Process ids of the running children. */
export function childrenOf(pid: number): number[] {
  const running = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return running.map(Number).filter((one) => Number(statFields(one)[1]) === pid);
}

// The fields after the name in parentheses, which may contain spaces: state, parent, … The 13th and
// 14th after the state are the times of the ended children.
function statFields(pid: number): readonly string[] {
  const stat = readProc(`${pid}/stat`) ?? "";
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** Undefined when the process has ended. */
function readProc(path: string): string | undefined {
  try {
    return readFileSync(`/proc/${path}`, "utf8");
  } catch {
    return undefined;
  }
}

/** Resident bytes of a process. */
export function residentBytes(pid: number): number {
  const kib = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kib ?? 0) * 1024;
}

/** Median, smallest and largest of some figures. */
export type Spread = { readonly median: number; readonly min: number; readonly max: number };

export function spreadOf(figures: readonly number[]): Spread {
  const sorted = figures.toSorted((one, other) => one - other);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  return { median: at(Math.floor(sorted.length / 2)), min: at(0), max: at(sorted.length - 1) };
}

/** The figure below which `share` of the figures lie. */
export function quantile(figures: readonly number[], share: number): number {
  const sorted = figures.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
