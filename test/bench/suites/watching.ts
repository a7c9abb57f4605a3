// What it costs to be watched: metrics, and traces of one request in a hundred. As the ratio of two
// processes, which a busy machine spreads wider than the goals, and as the share of the processor
// time that V8's samples find in the code of it.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { compare, figuresOf, ratio, type Target } from "../compare.ts";
import { Lab, urlOf } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import { profileGateway, shareOf } from "../profile.ts";
import { type Result, type Row, single } from "../report.ts";

const rounds = 15;
const warmUp = 6_000;
const requests = 1_500;

/** The settings of each gateway. Nothing listens at the address of the collector. */
const watched = {
  off: {},
  metrics: { METRICS_PORT: "0" },
  "metrics and GenAI names": { METRICS_PORT: "0", METRICS_GENAI: "true" },
  traces: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9" },
};
const goals: Readonly<Record<string, string>> = { metrics: "≤ 1.02", traces: "≤ 1.05" };

/** The code of each setting whose share is measured. */
const codeOf = {
  metrics: /^src\/(metrics\/|base\/stopwatch|[a-z]+\/[a-z]+-metrics)/,
  traces: /^src\/tracing\//,
};

export async function watching(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const targets: Target[] = [];
  for (const [name, env] of Object.entries(watched)) {
    const server = await lab.gateway(provider, { env });
    const headers = nativeHeaders(server);
    const bodies = [nativeBody("native", 1_000, false)];
    targets.push({ name, server, job: { path: "/v1/messages", headers, bodies } });
  }
  const comparison = await compare(lab, targets, { rounds, warmUp, requests, concurrency: 32 });
  const rows = targets.map(
    ({ name }): Row =>
      name === "off"
        ? {
            measure: "CPU per request, off",
            value: spreadOf(figuresOf(comparison, name).cpuMicros),
            unit: "µs",
          }
        : {
            measure: `CPU per request, ${name} ÷ off`,
            value: ratio(comparison, name, "off", (one) => one.cpuMicros),
            must: goals[name] ?? "",
          },
  );
  for (const [name, code] of Object.entries(codeOf)) {
    const env = watched[name === "metrics" ? "metrics" : "traces"];
    const found = await profileGateway(lab, provider, env, (gateway, isWarmUp) =>
      lab.load({
        url: urlOf(gateway),
        path: "/v1/messages",
        headers: nativeHeaders(gateway),
        bodies: [nativeBody("native", 1_000, false)],
        concurrency: 32,
        requests: isWarmUp ? warmUp : 4 * requests,
      }),
    );
    const share = shareOf(found, (path) => code.test(path));
    rows.push({ measure: `time in the code of ${name}`, value: single(100 * share), unit: "%" });
  }
  return { rows, notes: [], faults: await lab.faults(provider) };
}
