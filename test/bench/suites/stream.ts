// Streams of 100 deltas, for each pair of client format and provider format.

import {
  chatBody,
  chatHeaders,
  nativeBody,
  nativeHeaders,
  plainHeaders,
  responsesBody,
} from "../bodies.ts";
import { compare, figuresOf, ratio, type Target } from "../compare.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import { findOtherServers } from "../others.ts";
import type { Result, Row } from "../report.ts";

/** The provider writes ten deltas at a time without a pause, or each alone, as a model does. */
const paces = [
  { pace: "unpaced", suffix: "", rounds: 5, warmUp: 4_000, requests: 800, concurrency: 32 },
  { pace: "paced", suffix: "-paced", rounds: 5, warmUp: 600, requests: 200, concurrency: 64 },
] as const;
const pairs = [
  { name: "native → native", from: "native", to: "native", base: "F0", must: "≤ 1.3" },
  { name: "chat → chat", from: "chat", to: "chat", base: "F0", must: "≤ 1.4" },
  { name: "chat → native", from: "chat", to: "native", base: "F0", must: "≤ 1.8" },
  { name: "native → chat", from: "native", to: "chat", base: "F0", must: "≤ 1.8" },
  // The third format costs a client hardly more than chat.
  {
    name: "responses → native",
    from: "responses",
    to: "native",
    base: "chat → native",
    must: "≤ 1.2",
  },
  { name: "responses → chat", from: "responses", to: "chat", base: "chat → chat", must: "≤ 1.2" },
  {
    name: "responses → responses",
    from: "responses",
    to: "responses",
    base: "chat → chat",
    must: "≤ 1.2",
  },
] as const;

export async function stream(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const forwarder = await lab.forwarder(provider);
  const gateway = await lab.gateway(provider);
  const { pid } = await lab.database();
  const endpoints = {
    native: { path: "/v1/messages", headers: nativeHeaders(gateway), body: nativeBody },
    chat: { path: "/v1/chat/completions", headers: chatHeaders(gateway), body: chatBody },
    responses: { path: "/v1/responses", headers: chatHeaders(gateway), body: responsesBody },
  };

  const rows: Row[] = [];
  const notes = new Set<string>();
  let uncounted = 0;
  for (const { pace, suffix, rounds, warmUp, requests, concurrency } of paces) {
    const bare = {
      path: "/v1/messages",
      headers: plainHeaders,
      bodies: [nativeBody(`bench${suffix && "-2"}`, 1_000, true)],
    };
    const others = await findOtherServers(lab, provider, bare.bodies);
    for (const note of others.notes) notes.add(note);
    const targets: Target[] = [
      { name: "F0", server: forwarder, job: bare },
      ...pairs.map(({ name, from, to }) => {
        const { path, headers, body } = endpoints[from];
        return {
          name,
          server: gateway,
          database: pid,
          job: { path, headers, bodies: [body(`${to}${suffix}`, 1_000, true)] },
        };
      }),
      ...others.targets,
    ];
    const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency });
    uncounted += others.uncounted + (1 + others.targets.length) * (warmUp + rounds * requests);
    for (const { name, base, must } of pairs) {
      const title = `${pace}, ${name}`;
      rows.push(
        {
          measure: `${title}: CPU per stream ÷ ${base}`,
          value: ratio(comparison, name, base, (one) => one.cpuMicros),
          must,
        },
        {
          measure: `${title}: CPU per stream`,
          value: spreadOf(figuresOf(comparison, name).cpuMicros),
          unit: "µs",
        },
      );
    }
    for (const { name, server } of others.targets) {
      const value = ratio(comparison, name, "F0", (one) => one.cpuMicros);
      rows.push({ measure: `${pace}, ${name}: CPU per stream ÷ F0`, value });
      await lab.end(server);
    }
    rows.push({
      measure: `${pace}, F0: CPU per stream`,
      value: spreadOf(figuresOf(comparison, "F0").cpuMicros),
      unit: "µs",
    });
  }
  return { rows, notes: [...notes], faults: await lab.faults(provider, uncounted) };
}
