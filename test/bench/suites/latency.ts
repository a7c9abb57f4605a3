// Added latency at half of the capacity, in an open loop: requests do not wait for answers.

import { nativeBody, nativeHeaders, plainHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 3;

export async function latency(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const gateway = await lab.gateway(provider);
  const bodies = [nativeBody("native", 1_000, true)];
  const direct = { url: urlOf(provider), path: "/v1/messages", headers: plainHeaders, bodies };
  const through = { ...direct, url: urlOf(gateway), headers: nativeHeaders(gateway) };

  // Warm-up: V8 compiles the hot code.
  await lab.load({ ...through, requests: 12_000, concurrency: 32 });
  const full = await lab.load({ ...through, requests: 4_000, concurrency: 32 });
  const perSecond = 4_000 / full.seconds / 2;
  const warmUps = Math.ceil(perSecond * 2);
  const requests = warmUps + Math.ceil(perSecond * 4);
  const added: Record<string, number[]> = {
    firstP50: [],
    firstP99: [],
    totalP50: [],
    totalP99: [],
  };
  for (let round = 0; round < rounds; round++) {
    const without = await lab.load({
      ...direct,
      requests,
      warmUps,
      concurrency: 512,
      perSecond,
    });
    const withGateway = await lab.load({
      ...through,
      requests,
      warmUps,
      concurrency: 512,
      perSecond,
    });
    added.firstP50?.push(quantile(withGateway.firstMs, 0.5) - quantile(without.firstMs, 0.5));
    added.firstP99?.push(quantile(withGateway.firstMs, 0.99) - quantile(without.firstMs, 0.99));
    added.totalP50?.push(quantile(withGateway.totalMs, 0.5) - quantile(without.totalMs, 0.5));
    added.totalP99?.push(quantile(withGateway.totalMs, 0.99) - quantile(without.totalMs, 0.99));
  }
  const row = (measure: string, name: string, must: string): Row => ({
    measure,
    value: spreadOf(added[name] ?? []),
    unit: "ms",
    must,
  });
  return {
    rows: [
      { measure: "load", value: spreadOf([perSecond]), unit: "/s" },
      row("added time to first token, p50", "firstP50", "≤ 1 ms"),
      row("added time to first token, p99", "firstP99", "≤ 5 ms"),
      row("added total, p50", "totalP50", ""),
      row("added total, p99", "totalP99", ""),
    ],
    faults: await lab.faults(provider, rounds * requests),
  };
}
