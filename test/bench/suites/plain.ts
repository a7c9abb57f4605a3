// Plain answers: what the gateway adds to a request in processor time.

import { nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { compare, found, ratio } from "../compare.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

export async function plain(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const forwarder = await lab.forwarder(provider);
  const gateway = await lab.gateway(provider);
  const { pid } = await lab.database();
  const rows: Row[] = [];
  let uncounted = 0;
  for (const [name, bytes, requests] of [
    ["1 KB", 1_000, 4_000],
    ["100 KB", 100_000, 1_000],
  ] as const) {
    const bodies = [nativeBody("native", bytes, false)];
    const rounds = 5;
    const comparison = await compare(
      lab,
      [
        { name: "direct", part: provider, job: { path: "/v1/messages", headers: plainHeaders, bodies } },
        { name: "F0", part: forwarder, job: { path: "/v1/messages", headers: plainHeaders, bodies } },
        {
          name: "gateway",
          part: gateway,
          database: pid,
          job: { path: "/v1/messages", headers: nativeHeaders(gateway), bodies },
        },
      ],
      { rounds, requests, concurrency: 32 },
    );
    uncounted += 2 * (rounds + 1) * requests;
    rows.push(
      {
        measure: `${name}: CPU per request ÷ F0`,
        value: ratio(comparison, "gateway", "F0", (one) => one.cpuMicros),
        must: bytes === 1_000 ? "≤ 1.8" : "",
      },
      { measure: `${name}: CPU per request, F0`, value: spreadOf(found(comparison, "F0").cpuMicros), unit: "µs" },
      { measure: `${name}: CPU per request, gateway`, value: spreadOf(found(comparison, "gateway").cpuMicros), unit: "µs" },
      {
        measure: `${name}: CPU per request, PostgreSQL`,
        value: spreadOf(found(comparison, "gateway").databaseMicros),
        unit: "µs",
      },
      { measure: `${name}: requests per second, gateway`, value: spreadOf(found(comparison, "gateway").perSecond), unit: "/s" },
    );
  }
  return { rows, faults: await lab.faults(provider, uncounted) };
}
