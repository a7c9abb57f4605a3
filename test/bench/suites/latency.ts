// Added latency in an open loop, where requests do not wait for answers: at half of the capacity,
// and alone. With a provider that answers at once, and with one whose first token takes 20 ms, as
// none takes less: the hold is placed in that time.

import { nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import type { LoadResult } from "../load.ts";
import { quantile, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 5;
const warmUps = 12_000;
const aloneAt = 100;

const providers = [
  // The provider's own name of a model tells it how fast to answer.
  { name: "provider at once", model: "native", own: "bench", must: {} },
  {
    name: "provider at 20 ms",
    model: "native-first",
    own: "bench-first20",
    must: { half: { p50: "≤ 0.7 ms", p99: "≤ 4 ms" }, alone: { p50: "≤ 0.8 ms", p99: "" } },
  },
] as const;

export async function latency(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const gateway = await lab.gateway(provider);
  const forwarder = await lab.forwarder(provider);
  const rows: Row[] = [];
  let uncounted = 0;
  for (const { name, model, own, must } of providers) {
    const path = "/v1/messages";
    const direct = {
      url: urlOf(provider),
      path,
      headers: plainHeaders,
      bodies: [nativeBody(own, 1_000, true)],
    };
    const through = {
      url: urlOf(gateway),
      path,
      headers: nativeHeaders(gateway),
      bodies: [nativeBody(model, 1_000, true)],
    };

    // What a process between the two adds at least.
    const bare = { ...direct, url: urlOf(forwarder) };

    // Warm-up: V8 compiles the hot code.
    await lab.load({ ...bare, requests: warmUps, concurrency: 128 });
    uncounted += warmUps;
    await lab.load({ ...through, requests: warmUps, concurrency: 128 });
    const full = await lab.load({ ...through, requests: 4_000, concurrency: 128 });
    const half = 4_000 / full.seconds / 2;
    rows.push({ measure: `${name}: half load`, value: spreadOf([half]), unit: "/s" });
    for (const [load, perSecond] of Object.entries({ half, alone: aloneAt })) {
      const begun = Math.ceil(perSecond * 2);
      const job = {
        requests: begun + Math.ceil(perSecond * 4),
        warmUps: begun,
        perSecond,
        concurrency: 512,
      };
      const added = {
        firstP50: [] as number[],
        firstP99: [] as number[],
        totalP50: [] as number[],
        bareP50: [] as number[],
        bareP99: [] as number[],
      };
      for (let round = 0; round < rounds; round++) {
        const without = await lab.load({ ...direct, ...job });
        const withGateway = await lab.load({ ...through, ...job });
        const withForwarder = await lab.load({ ...bare, ...job });
        uncounted += 2 * job.requests;
        const more = (to: LoadResult, times: "firstMs" | "totalMs", share: number) =>
          quantile(to[times], share) - quantile(without[times], share);
        added.firstP50.push(more(withGateway, "firstMs", 0.5));
        added.firstP99.push(more(withGateway, "firstMs", 0.99));
        added.totalP50.push(more(withGateway, "totalMs", 0.5));
        added.bareP50.push(more(withForwarder, "firstMs", 0.5));
        added.bareP99.push(more(withForwarder, "firstMs", 0.99));
      }
      const title = `${name}, ${load === "half" ? "half load" : `${aloneAt}/s`}: added`;
      const goals = "half" in must ? must[load === "half" ? "half" : "alone"] : undefined;
      const row = (measure: string, values: number[], goal = ""): Row => ({
        measure: `${title} ${measure}`,
        value: spreadOf(values),
        unit: "ms",
        ...(goal !== "" && { must: goal }),
      });
      rows.push(
        row("to the first token, p50", added.firstP50, goals?.p50),
        row("to the first token, p99", added.firstP99, goals?.p99),
        row("to the end, p50", added.totalP50),
        row("to the first token by F0, p50", added.bareP50),
        row("to the first token by F0, p99", added.bareP99),
      );
    }
  }
  return { rows, faults: await lab.faults(provider, uncounted) };
}
