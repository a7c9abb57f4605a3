// The split roles: a facade and a core in processes of their own, against one process that is both.

import type { AuthenticateJob } from "../authenticate.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio } from "../compare.ts";
import { Lab, urlOf } from "../lab.ts";
import { cpuSeconds, quantile, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 4;
const warmUp = { unpaced: 4_000, paced: 600 };
const requests = { unpaced: 600, paced: 150 };
const calls = 4_000;
/**
 * More rounds, and shorter ones: the time of a hop varies more between moments of the machine than
 * between requests.
 */
const latencyRounds = 7;
/** Streams per second for the time to the first token: a mostly idle machine, and a busy one. */
const rates = [100, 300];

export async function split(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const single = await lab.gateway(provider);
  const core = await lab.gateway(provider, {
    env: { ROLE: "core", PUBLIC_URL: "http://localhost:8080" },
  });
  const facade = await lab.facade(core);
  const headers = nativeHeaders(single);

  const rows: Row[] = [];
  for (const [pace, model, concurrency] of [
    ["unpaced", "native", 32],
    ["paced", "native-paced", 64],
  ] as const) {
    const job = { path: "/v1/messages", headers, bodies: [nativeBody(model, 1_000, true)] };
    const targets = [
      { name: "single", server: single, job },
      { name: "split", server: facade, helpers: [core], job },
    ];
    const comparison = await compare(lab, targets, {
      rounds,
      warmUp: warmUp[pace],
      requests: requests[pace],
      concurrency,
    });
    rows.push(
      {
        measure: `${pace}: CPU of both per stream ÷ single process`,
        value: ratio(comparison, "split", "single", (one) => one.cpuMicros),
        must: "≤ 2",
      },
      {
        measure: `${pace}: CPU of both per stream`,
        value: spreadOf(figuresOf(comparison, "split").cpuMicros),
        unit: "µs",
      },
    );
  }

  const addedMs = new Map<number, number[]>(rates.map((rate) => [rate, []]));
  const perSecond: number[] = [];
  const perCoreSecond: number[] = [];
  for (let round = 0; round < latencyRounds; round++) {
    const job = { path: "/v1/messages", headers, bodies: [nativeBody("native", 1_000, true)] };
    for (const [rate, added] of addedMs) {
      const calm = { ...job, requests: 250, warmUps: 50, concurrency: 64, perSecond: rate };
      const one = await lab.load({ ...calm, url: urlOf(single) });
      const two = await lab.load({ ...calm, url: urlOf(facade) });
      added.push(quantile(two.firstMs, 0.5) - quantile(one.firstMs, 0.5));
    }

    const before = cpuSeconds(core.pid);
    const authentication: AuthenticateJob = {
      address: core.grpcAddress,
      key: single.key,
      calls,
      concurrency: 100,
    };
    const { seconds } = await lab.runProgram<{ seconds: number }>(
      "./authenticate.ts",
      authentication,
    );
    perSecond.push(calls / seconds);
    perCoreSecond.push(calls / (cpuSeconds(core.pid) - before));
  }
  rows.push(
    ...[...addedMs].map(([rate, added]) => ({
      measure: `added time to first token at ${rate}/s, p50`,
      value: spreadOf(added),
      unit: "ms",
      must: "≤ 1 ms",
    })),
    {
      measure: "Authenticate over gRPC, per second of the core's CPU",
      value: spreadOf(perCoreSecond),
      must: "≥ 5000",
    },
    { measure: "Authenticate over gRPC, one client", value: spreadOf(perSecond), unit: "/s" },
  );
  return { rows, faults: await lab.faults(provider) };
}
