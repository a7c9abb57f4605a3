// Plain answers: the processor time that the gateway adds to a request.

import { nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio } from "../compare.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import { findOtherServers } from "../others.ts";
import type { Result, Row } from "../report.ts";

const rounds = 5;

export async function plain(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const forwarder = await lab.forwarder(provider);
  const gateway = await lab.gateway(provider);
  const { pid } = await lab.database();
  const path = "/v1/messages";
  const rows: Row[] = [];
  const notes = new Set<string>();
  let uncounted = 0;
  for (const { name, bytes, warmUp, requests, must } of [
    { name: "1 KB", bytes: 1_000, warmUp: 12_000, requests: 3_000, must: "≤ 1.8" },
    { name: "100 KB", bytes: 100_000, warmUp: 1_000, requests: 400, must: "" },
  ]) {
    const bodies = [nativeBody("native", bytes, false)];
    const others = await findOtherServers(lab, provider, bodies);
    for (const note of others.notes) notes.add(note);
    const targets = [
      { name: "direct", server: provider, job: { path, headers: plainHeaders, bodies } },
      { name: "F0", server: forwarder, job: { path, headers: plainHeaders, bodies } },
      {
        name: "gateway",
        server: gateway,
        database: pid,
        job: { path, headers: nativeHeaders(gateway), bodies },
      },
      ...others.targets,
    ];
    const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency: 32 });
    uncounted += others.uncounted + (targets.length - 1) * (warmUp + rounds * requests);
    const cpu = (target: string) => spreadOf(figuresOf(comparison, target).cpuMicros);
    rows.push(
      {
        measure: `${name}: CPU per request, gateway ÷ F0`,
        value: ratio(comparison, "gateway", "F0", (one) => one.cpuMicros),
        must,
      },
      ...others.targets.map((other) => ({
        measure: `${name}: CPU per request, ${other.name} ÷ F0`,
        value: ratio(comparison, other.name, "F0", (one) => one.cpuMicros),
      })),
      { measure: `${name}: CPU per request, F0`, value: cpu("F0"), unit: "µs" },
      { measure: `${name}: CPU per request, gateway`, value: cpu("gateway"), unit: "µs" },
      {
        measure: `${name}: CPU per request, PostgreSQL beside it`,
        value: spreadOf(figuresOf(comparison, "gateway").databaseMicros),
        unit: "µs",
      },
      {
        measure: `${name}: requests/s, gateway`,
        value: spreadOf(figuresOf(comparison, "gateway").perSecond),
        unit: "/s",
      },
      {
        measure: `${name}: requests/s, gateway ÷ F0`,
        value: ratio(comparison, "gateway", "F0", (one) => one.perSecond),
      },
    );
    for (const { server } of others.targets) await lab.end(server);
  }
  return { rows, notes: [...notes], faults: await lab.faults(provider, uncounted) };
}
