// Two workers behind one port: the throughput that the second adds, what a worker costs more than a
// process of its own, and what it costs to ask the parent for a place under a rate limit.

import { availableParallelism } from "node:os";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio, type Target } from "../compare.ts";
import { type GatewayProcess, Lab } from "../lab.ts";
import { childrenOf, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 6;
const warmUp = 6_000;
const requests = 3_000;
/** Requests at once for each process that serves. */
const concurrency = 32;
// Never reached: the suite measures the question alone.
const perMinute = 1_000_000;

export async function workers(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const one = await lab.gateway(provider);
  const two = await lab.gateway(provider, { env: { WORKERS: "2" } });
  const limited = await lab.createKey(one, { requestsPerMinute: perMinute });
  const target = (name: string, server: GatewayProcess, key: string, serving: number): Target => ({
    name,
    server,
    helpers: childrenOf(server.pid).map((pid) => ({ pid, port: server.port })),
    concurrency: serving * concurrency,
    job: {
      path: "/v1/messages",
      headers: { ...nativeHeaders(one), "x-api-key": key },
      bodies: [nativeBody("native", 1_000, false)],
    },
  });
  const targets = [
    target("one", one, one.key, 1),
    target("two", two, one.key, 2),
    target("one, limited", one, limited, 1),
    target("two, limited", two, limited, 2),
  ];
  const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency });
  const cpu = (name: string) => figuresOf(comparison, name).cpuMicros;
  const added = (name: string, to: string) =>
    spreadOf(cpu(name).map((micros, round) => micros - (cpu(to)[round] ?? Number.NaN)));
  return {
    rows: [
      {
        measure: "requests/s, two workers ÷ one process",
        value: ratio(comparison, "two", "one", (figures) => figures.perSecond),
      },
      {
        measure: "CPU per request, workers and parent ÷ one process",
        value: ratio(comparison, "two", "one", (figures) => figures.cpuMicros),
      },
      {
        measure: "a limit, one process: added CPU per request",
        value: added("one, limited", "one"),
        unit: "µs",
      },
      {
        measure: "a limit, two workers: added CPU per request, parent included",
        value: added("two, limited", "two"),
        unit: "µs",
      },
    ],
    notes: [
      `${availableParallelism()} processors are shared by workers, PostgreSQL, provider and load`,
    ],
    faults: await lab.faults(provider),
  };
}
