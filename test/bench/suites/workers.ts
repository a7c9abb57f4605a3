// Two workers behind one port, beside one process and two processes of their own: the throughput
// that the second worker adds, what a worker costs more than a process, and what it costs to ask
// the parent for a place under a rate limit.

import { availableParallelism } from "node:os";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { childrenOf, cpuSeconds, type Spread, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 6;
const warmUp = 4_000;
const requests = 1_500;
/** Requests at once of each of the two loads. */
const concurrency = 32;
// Never reached: the suite measures the question alone.
const perMinute = 1_000_000;

type Target = {
  /** Where each of the two loads goes. */
  readonly servers: readonly GatewayProcess[];
  readonly key: string;
};

type Figures = {
  readonly perSecond: number;
  readonly cpuMicros: number;
  /** The share of the busiest worker in the processor time. */
  readonly busiest: number;
};

export async function workers(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const one = await lab.gateway(provider);
  const two = await lab.gateway(provider);
  const parent = await lab.gateway(provider, { env: { WORKERS: "2" } });
  const limited = await lab.createKey(one, { requestsPerMinute: perMinute });
  const targets = {
    one: { servers: [one, one], key: one.key },
    two: { servers: [one, two], key: one.key },
    workers: { servers: [parent, parent], key: one.key },
    "one, limited": { servers: [one, one], key: limited },
    "workers, limited": { servers: [parent, parent], key: limited },
  } satisfies Record<string, Target>;
  type Name = keyof typeof targets;

  async function measure({ servers, key }: Target, count: number): Promise<Figures> {
    const pids = [...new Set(servers)].flatMap(({ pid }) => [pid, ...childrenOf(pid)]);
    const before = pids.map(cpuSeconds);
    const done = await Promise.all(
      servers.map((server) =>
        lab.load({
          url: urlOf(server),
          path: "/v1/messages",
          headers: { ...nativeHeaders(one), "x-api-key": key },
          bodies: [nativeBody("native", 1_000, false)],
          requests: count,
          concurrency,
        }),
      ),
    );
    const used = pids.map((pid, index) => cpuSeconds(pid) - (before[index] ?? 0));
    const total = used.reduce((sum, seconds) => sum + seconds, 0);
    const all = count * servers.length;
    return {
      perSecond: all / Math.max(...done.map(({ seconds }) => seconds)),
      cpuMicros: (total * 1e6) / all,
      busiest: Math.max(...used) / total,
    };
  }

  const measured: Record<Name, Figures>[] = [];
  for (let round = 0; round <= rounds; round++) {
    const count = round === 0 ? warmUp : requests;
    const figures = {
      one: await measure(targets.one, count),
      two: await measure(targets.two, count),
      workers: await measure(targets.workers, count),
      "one, limited": await measure(targets["one, limited"], count),
      "workers, limited": await measure(targets["workers, limited"], count),
    };
    if (round > 0) measured.push(figures);
  }
  const compare = (figure: (round: Record<Name, Figures>) => number): Spread =>
    spreadOf(measured.map(figure));
  return {
    rows: [
      {
        measure: "requests/s, workers ÷ one process",
        value: compare((round) => round.workers.perSecond / round.one.perSecond),
      },
      {
        measure: "requests/s, two processes ÷ one",
        value: compare((round) => round.two.perSecond / round.one.perSecond),
      },
      {
        measure: "CPU per request, workers and parent ÷ two processes",
        value: compare((round) => round.workers.cpuMicros / round.two.cpuMicros),
      },
      {
        measure: "CPU per request, workers and parent ÷ one process",
        value: compare((round) => round.workers.cpuMicros / round.one.cpuMicros),
      },
      {
        measure: "a limit, one process: added CPU per request",
        value: compare((round) => round["one, limited"].cpuMicros - round.one.cpuMicros),
        unit: "µs",
      },
      {
        measure: "a limit, workers: added CPU per request, parent included",
        value: compare((round) => round["workers, limited"].cpuMicros - round.workers.cpuMicros),
        unit: "µs",
      },
      {
        measure: "share of the busier worker",
        value: compare((round) => round.workers.busiest),
      },
    ],
    notes: [
      `${availableParallelism()} processors are shared by workers, PostgreSQL, provider and load`,
    ],
    faults: await lab.faults(provider),
  };
}
