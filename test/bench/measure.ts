// Figures: processor time as the operating system counts it, and medians with their spread.

import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks of `/proc` per second; 100 on every Linux that Node runs on. */
const ticksPerSecond = 100;

/** Processor seconds that a process used so far, and its children that have ended. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name in parentheses may hold spaces; utime, stime, cutime and cstime are the 12th to 15th fields after it.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0) / ticksPerSecond;
}

/** Processor seconds of a process and everything it started that still runs. */
export function cpuSecondsOfTree(pid: number): number {
  let sum = cpuSeconds(pid);
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      if (Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid) sum += cpuSecondsOfTree(Number(name));
    } catch {
      // It ended between the two reads.
    }
  }
  return sum;
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

/** The figure below which `share` of the sorted figures lie. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
