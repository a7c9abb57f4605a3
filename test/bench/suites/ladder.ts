// The ladder: what each part of a paid request costs at least, as straight-line code on the same
// libraries, and how far the gateway is from it.

import assert from "node:assert/strict";
import { chatBody, chatHeaders, nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { addAccounts, addKeys, connectLedger } from "../books.ts";
import { type Comparison, compare, figuresOf, ratio, type Target } from "../compare.ts";
import { type BenchProcess, Lab } from "../lab.ts";
import { ladderSteps, stepNames } from "../ladder.ts";
import { type Spread, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

/** The step that does all that a paid request needs; `cross` is its variant for two formats. */
const last = stepNames.ledger;
const rounds = 9;

type Pace = { title: string; stream: boolean; warmUp: number; requests: number };
const paces: readonly Pace[] = [
  { title: "plain 1 KB", stream: false, warmUp: 8_000, requests: 1_500 },
  { title: "100 deltas in ten writes", stream: true, warmUp: 4_000, requests: 800 },
];

export async function ladder(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const forwarder = await lab.forwarder(provider);
  const gateway = await lab.gateway(provider);
  const { url, pid } = await lab.database();
  const steps = new Map<string, BenchProcess>();
  const urls = [url];
  for (const step of ladderSteps) {
    const usesLedger = step === "ledger" || step === "codecs" || step === "cross";
    const databaseUrl = usesLedger ? await lab.emptyDatabase(`ladder_${step}`) : "";
    if (usesLedger) {
      urls.push(databaseUrl);
      const postgres = connectLedger(databaseUrl);
      await addAccounts(postgres, 1);
      await addKeys(postgres, 1, 1);
      await postgres.close();
    }
    steps.set(step, await lab.ladderStep(step, provider, databaseUrl));
  }

  const native = { path: "/v1/messages", headers: nativeHeaders(gateway) };
  const chat = { path: "/v1/chat/completions", headers: chatHeaders(gateway) };
  const rows: Row[] = [];
  let uncounted = 0;
  for (const { title, stream, warmUp, requests } of paces) {
    const bodies = [nativeBody("native", 1_000, stream)];
    const bare = { path: "/v1/messages", headers: plainHeaders, bodies };
    const chatJob = { ...chat, bodies: [chatBody("chat", 1_000, stream)] };
    const crossJob = { ...chat, bodies: [chatBody("native", 1_000, stream)] };
    const served = (name: string, server: BenchProcess, job: Target["job"]): Target => ({
      name,
      server,
      database: pid,
      job,
    });
    const targets: Target[] = [{ name: "F0", server: forwarder, job: bare }];
    for (const [step, server] of steps) {
      const name = stepNames[step as keyof typeof stepNames];
      if (step !== "cross") targets.push(served(name, server, { ...native, bodies }));
      else if (stream) targets.push(served(name, server, crossJob));
      if (step === "ledger" && stream) targets.push(served("the same, chat", server, chatJob));
    }
    targets.push(served("gateway, native", gateway, { ...native, bodies }));
    if (stream)
      targets.push(
        served("gateway, chat", gateway, chatJob),
        served("gateway, chat to native", gateway, crossJob),
      );
    const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency: 32 });
    // F0 and the first four steps have no ledger.
    uncounted += 5 * (warmUp + rounds * requests);
    rows.push(forwarderRow(title, comparison));
    for (const { name } of targets.slice(1))
      rows.push({ measure: `${title}: ${name} ÷ F0`, value: cpu(comparison, name, "F0") });
    // By themselves: what else runs in between empties the processor's caches, of which the gateway
    // needs more than a step. Many short rounds, because the speed of a machine changes within one.
    const judged = [
      { to: last, of: "native", must: stream ? "≤ 1.5" : "≤ 1.4" },
      { to: "the same, chat", of: "chat", must: "≤ 1.5" },
      { to: stepNames.cross, of: "chat to native", must: "≤ 2.0" },
    ];
    for (const { to, of, must } of stream ? judged : judged.slice(0, 1)) {
      const name = `gateway, ${of}`;
      const pair = targets.filter((target) => target.name === name || target.name === to);
      const alone = await compare(lab, pair, {
        rounds: 3 * rounds,
        warmUp: warmUp / 4,
        requests,
        concurrency: 32,
      });
      rows.push({
        measure: `${title}: gateway ÷ ladder, ${of}`,
        value: cpu(alone, name, to),
        must,
      });
    }
  }

  // As models send them: each delta is a read of its own.
  const paced = { rounds: 3 * rounds, warmUp: 2_000, requests: 150, concurrency: 32 };
  const step = steps.get("ledger");
  assert(step, "the last step runs");
  const bodies = [nativeBody("native-paced", 1_000, true)];
  const bareBodies = [nativeBody("bench-2", 1_000, true)];
  const bare = { path: "/v1/messages", headers: plainHeaders, bodies: bareBodies };
  const comparison = await compare(
    lab,
    [
      { name: "F0", server: forwarder, job: bare },
      { name: last, server: step, job: { ...native, bodies } },
      { name: "gateway", server: gateway, job: { ...native, bodies } },
    ],
    paced,
  );
  uncounted += paced.warmUp + paced.rounds * paced.requests;
  const title = "100 deltas, each a read of its own";
  rows.push(
    forwarderRow(title, comparison),
    { measure: `${title}: ${last} ÷ F0`, value: cpu(comparison, last, "F0") },
    { measure: `${title}: gateway ÷ F0`, value: cpu(comparison, "gateway", "F0"), must: "≤ 1.2" },
    { measure: `${title}: gateway ÷ ladder`, value: cpu(comparison, "gateway", last) },
  );
  return { rows, faults: await lab.faults(provider, uncounted, urls) };
}

function cpu(comparison: Comparison, name: string, to: string): Spread {
  return ratio(comparison, name, to, (one) => one.cpuMicros);
}

function forwarderRow(title: string, comparison: Comparison): Row {
  return {
    measure: `${title}: CPU per request, F0`,
    value: spreadOf(figuresOf(comparison, "F0").cpuMicros),
    unit: "µs",
  };
}
