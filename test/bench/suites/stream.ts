// Streams of 100 deltas, for each pair of client format and provider format.

import { chatBody, chatHeaders, nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { compare, found, ratio, type Target } from "../compare.ts";
import { benchPrice, Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import type { Row } from "../report.ts";

export async function stream(): Promise<{ rows: Row[]; faults: string[] }> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const forwarder = await lab.forwarder(provider);
  const gateway = await lab.gateway(provider);
  const { pid } = await lab.database();
  const rounds = 5;
  const requests = 1_500;

  const native = { path: "/v1/messages", headers: nativeHeaders(gateway) };
  const chat = { path: "/v1/chat/completions", headers: chatHeaders(gateway) };
  const through = (name: string, job: Target["job"]): Target => ({ name, part: gateway, database: pid, job });
  const targets: Target[] = [
    {
      name: "F0",
      part: forwarder,
      job: { path: "/v1/messages", headers: plainHeaders, bodies: [nativeBody("native", 1_000, true)] },
    },
    through("native → native", { ...native, bodies: [nativeBody("native", 1_000, true)] }),
    through("chat → chat", { ...chat, bodies: [chatBody("chat", 1_000, true)] }),
    through("chat → native", { ...chat, bodies: [chatBody("native", 1_000, true)] }),
    through("native → chat", { ...native, bodies: [nativeBody("chat", 1_000, true)] }),
  ];
  const comparison = await compare(lab, targets, { rounds, requests, concurrency: 32 });
  const musts: Record<string, string> = {
    "native → native": "≤ 1.3",
    "chat → chat": "≤ 1.4",
    "chat → native": "≤ 1.8",
    "native → chat": "≤ 1.8",
  };
  const rows: Row[] = targets.slice(1).flatMap(({ name }) => [
    {
      measure: `${name}: CPU per stream ÷ F0`,
      value: ratio(comparison, name, "F0", (one) => one.cpuMicros),
      must: musts[name] ?? "",
    },
    { measure: `${name}: CPU per stream, gateway`, value: spreadOf(found(comparison, name).cpuMicros), unit: "µs" },
  ]);
  rows.push({ measure: "CPU per stream, F0", value: spreadOf(found(comparison, "F0").cpuMicros), unit: "µs" });
  return { rows, faults: await lab.faults(provider, benchPrice, (rounds + 1) * requests) };
}
