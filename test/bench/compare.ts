// Compares targets inside one run. Every round measures each target once, so that a drift in the
// speed of the machine concerns all of them alike.

import { type BenchProcess, type Lab, urlOf } from "./lab.ts";
import type { LoadJob, LoadResult } from "./load.ts";
import { cpuSeconds, cpuSecondsOfTree, type Spread, spreadOf } from "./measure.ts";

export type Target = {
  readonly name: string;
  readonly server: BenchProcess;
  /** Further processes that do a share of the target's work. */
  readonly helpers?: readonly BenchProcess[];
  /** Process id of the postmaster; the processor time of its database is counted apart. */
  readonly database?: number;
  readonly job: Omit<LoadJob, "url" | "requests" | "concurrency">;
};

export type Figures = {
  /** Processor time per request of the target itself, in microseconds. */
  readonly cpuMicros: readonly number[];
  readonly databaseMicros: readonly number[];
  readonly perSecond: readonly number[];
  readonly last: LoadResult;
};

export type Comparison = ReadonlyMap<string, Figures>;

/**
 * Measures every target `rounds` times, after a round of `warmUp` requests that does not count.
 * Throws when an answer was not 200.
 */
export async function compare(
  lab: Lab,
  targets: readonly Target[],
  parts: { rounds: number; warmUp: number; requests: number; concurrency: number },
): Promise<Comparison> {
  const { rounds, warmUp, concurrency } = parts;
  const all = new Map<
    string,
    { cpuMicros: number[]; databaseMicros: number[]; perSecond: number[]; last: LoadResult }
  >();
  for (let round = 0; round <= rounds; round++) {
    const requests = round === 0 ? warmUp : parts.requests;
    for (const { name, server, helpers = [], database, job } of targets) {
      const own = () => [server, ...helpers].reduce((sum, { pid }) => sum + cpuSeconds(pid), 0);
      const cpu = () => ({
        own: own(),
        database: database === undefined ? 0 : cpuSecondsOfTree(database),
      });
      const before = cpu();
      const done = await lab.load({ ...job, url: urlOf(server), requests, concurrency });
      const after = cpu();
      if (done.statuses["200"] !== requests)
        throw new Error(`${name}: ${JSON.stringify(done.statuses)} ${done.firstError ?? ""}`);
      if (round === 0) continue;
      const figures = all.get(name) ?? {
        cpuMicros: [],
        databaseMicros: [],
        perSecond: [],
        last: done,
      };
      figures.cpuMicros.push(((after.own - before.own) * 1e6) / requests);
      figures.databaseMicros.push(((after.database - before.database) * 1e6) / requests);
      figures.perSecond.push(requests / done.seconds);
      figures.last = done;
      all.set(name, figures);
    }
  }
  return all;
}

/** The ratio of two targets' figures, round by round. */
export function ratio(
  comparison: Comparison,
  name: string,
  to: string,
  figure: (figures: Figures) => readonly number[],
): Spread {
  const above = figure(figuresOf(comparison, name));
  const below = figure(figuresOf(comparison, to));
  return spreadOf(above.map((one, round) => one / (below[round] ?? Number.NaN)));
}

export function figuresOf(comparison: Comparison, name: string): Figures {
  const figures = comparison.get(name);
  if (!figures) throw new Error(`${name} was not measured`);
  return figures;
}
