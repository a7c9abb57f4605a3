// The cost of a limit of requests per minute, kept in memory or in Redis.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio, type Target } from "../compare.ts";
import { Lab } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 4;
const warmUp = 4_000;
const requests = 2_000;
// Never reached: the suite measures the check alone.
const perMinute = 1_000_000;

export async function limits(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const redis = await lab.redis();
  const gateway = await lab.gateway(provider);
  const limited = await lab.createKey(gateway, { requestsPerMinute: perMinute });
  const job = (key: string) => ({
    path: "/v1/messages",
    headers: { ...nativeHeaders(gateway), "x-api-key": key },
    bodies: [nativeBody("native", 1_000, false)],
  });
  const targets: Target[] = [
    { name: "none", server: gateway, job: job(gateway.key) },
    { name: "in memory", server: gateway, job: job(limited) },
  ];
  if (redis) {
    const server = await lab.gateway(provider, {
      env: { REDIS_URL: `redis://127.0.0.1:${redis.port}` },
    });
    targets.push({ name: "in Redis", server, database: redis.pid, job: job(limited) });
  }
  const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency: 32 });
  const rows = targets.slice(1).flatMap(({ name, database }): Row[] => [
    {
      measure: `limit ${name} ÷ none: CPU per request`,
      value: ratio(comparison, name, "none", (one) => one.cpuMicros),
    },
    {
      measure: `limit ${name} ÷ none: requests/s`,
      value: ratio(comparison, name, "none", (one) => one.perSecond),
    },
    ...(database === undefined
      ? []
      : [
          {
            measure: "CPU of Redis per request",
            value: spreadOf(figuresOf(comparison, name).databaseMicros),
            unit: "µs",
          },
        ]),
  ]);
  const median = (name: string) => quantile(figuresOf(comparison, name).last.totalMs, 0.5);
  rows.push(
    ...targets.slice(1).map(({ name }) => ({
      measure: `limit ${name}: added to the median time of the last round`,
      value: spreadOf([median(name) - median("none")]),
      unit: "ms",
    })),
  );
  return {
    rows,
    notes: redis ? [] : ["Redis is left out: no redis-server on the PATH"],
    faults: await lab.faults(provider),
  };
}
