// The cost of durable billing: the gateway against itself with holds in memory.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio } from "../compare.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 5;

export async function billingPrice(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const billed = await lab.gateway(provider);
  const unbilled = await lab.gateway(provider, { main: "./unbilled.ts" });
  const { pid } = await lab.database();
  const rows: Row[] = [];
  let uncounted = 0;
  for (const { name, stream, warmUp, requests } of [
    { name: "plain 1 KB", stream: false, warmUp: 12_000, requests: 3_000 },
    { name: "stream of 100 deltas", stream: true, warmUp: 4_000, requests: 800 },
  ]) {
    const job = {
      path: "/v1/messages",
      headers: nativeHeaders(billed),
      bodies: [nativeBody("native", 1_000, stream)],
    };
    const comparison = await compare(
      lab,
      [
        { name: "on", server: billed, database: pid, job },
        { name: "off", server: unbilled, job },
      ],
      { rounds, warmUp, requests, concurrency: 32 },
    );
    uncounted += warmUp + rounds * requests;
    const isPlain = !stream;
    rows.push(
      {
        measure: `${name}: CPU per request, billing on ÷ off`,
        value: ratio(comparison, "on", "off", (one) => one.cpuMicros),
        must: isPlain ? "≤ 1.25" : "",
      },
      {
        measure: `${name}: CPU per request, off`,
        value: spreadOf(figuresOf(comparison, "off").cpuMicros),
        unit: "µs",
      },
      {
        measure: `${name}: CPU per request, on`,
        value: spreadOf(figuresOf(comparison, "on").cpuMicros),
        unit: "µs",
      },
      {
        measure: `${name}: CPU per request, PostgreSQL beside it`,
        value: spreadOf(figuresOf(comparison, "on").databaseMicros),
        unit: "µs",
      },
    );
  }
  return { rows, faults: await lab.faults(provider, uncounted) };
}
