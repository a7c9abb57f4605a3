// What a facade costs that looks for the cell of each call, against one that has one cell.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio } from "../compare.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 8;
const warmUp = 2_000;
const requests = 1_000;
const publicUrl = "http://localhost:8080";

export async function cells(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const core = (cell: string) =>
    lab.gateway(provider, { env: { ROLE: "core", CELL: cell, PUBLIC_URL: publicUrl } });
  const [zero, seven] = [await core("00"), await core("07")];
  const plain = await lab.facade(zero);
  const routing = await lab.facade(zero, `00=${zero.grpcAddress},07=${seven.grpcAddress}`);
  const rows: Row[] = [];
  for (const [name, isStreamed] of [
    ["streamed", true],
    ["whole", false],
  ] as const) {
    const job = {
      path: "/v1/messages",
      headers: nativeHeaders(zero),
      bodies: [nativeBody("native", 1_000, isStreamed)],
    };
    const targets = [
      { name: "one cell", server: plain, job },
      { name: "two cells", server: routing, job },
    ];
    const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency: 32 });
    rows.push(
      {
        measure: `${name}: CPU of a facade of two cells ÷ of one`,
        value: ratio(comparison, "two cells", "one cell", (one) => one.cpuMicros),
        must: "≤ 1.03",
      },
      {
        measure: `${name}: CPU of a facade of two cells per request`,
        value: spreadOf(figuresOf(comparison, "two cells").cpuMicros),
        unit: "µs",
      },
    );
  }
  return { rows, faults: await lab.faults(provider) };
}
