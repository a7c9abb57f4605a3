// A flood of unknown keys: how fast they are refused, and the latency of good requests meanwhile.

import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { mintSecret } from "../../../src/keys/secret.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import { cpuSeconds, quantile, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 3;
const requests = 8_000;
const beside = { perSecond: 200, requests: 600, concurrency: 64 };

export async function flood(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  // The load sends a client address with each request, as a proxy does.
  const gateway = await lab.gateway(provider, { env: { TRUSTED_PROXIES: "127.0.0.1" } });
  const base = {
    url: urlOf(gateway),
    path: "/v1/messages",
    headers: nativeHeaders(gateway),
    bodies: [nativeBody("native", 1_000, false)],
  };
  const good = { ...base, requests, concurrency: 32 };
  const invented = () => ({
    "x-api-key": Array.from({ length: requests }, () => mintSecret(Family.V1)),
    "x-forwarded-for": Array.from(
      { length: requests },
      (_, index) => `10.${index >> 8}.${index & 255}.1`,
    ),
  });

  const many: number[] = [];
  const one: number[] = [];
  const cpu: number[] = [];
  const calm: number[][] = [[], []];
  const flooded: number[][] = [[], []];
  const faults: string[] = [];
  await lab.load(good);
  await lab.load({ ...good, rotatedHeaders: invented() });
  for (let round = 0; round < rounds; round++) {
    const goodBefore = cpuSeconds(gateway.pid);
    const served = await lab.load(good);
    const floodBefore = cpuSeconds(gateway.pid);
    const fromMany = await lab.load({ ...good, rotatedHeaders: invented() });
    const floodAfter = cpuSeconds(gateway.pid);
    const fromOne = await lab.load({
      ...good,
      rotatedHeaders: { "x-api-key": invented()["x-api-key"] },
    });
    if (fromMany.statuses["401"] !== requests)
      faults.push(`invented keys: ${JSON.stringify(fromMany.statuses)}`);
    many.push(served.seconds / fromMany.seconds);
    one.push(served.seconds / fromOne.seconds);
    cpu.push((floodAfter - floodBefore) / (floodBefore - goodBefore));

    const alone = await lab.load({ ...base, ...beside });
    const [during] = await Promise.all([
      lab.load({ ...base, ...beside }),
      lab.load({
        ...good,
        rotatedHeaders: invented(),
        perSecond: 5 * beside.perSecond,
        requests: 5 * beside.requests,
      }),
    ]);
    if (during.statuses["200"] !== beside.requests)
      faults.push(`good requests: ${JSON.stringify(during.statuses)}`);
    for (const [index, share] of [0.5, 0.99].entries()) {
      calm[index]?.push(quantile(alone.totalMs, share));
      flooded[index]?.push(quantile(during.totalMs, share));
    }
  }
  const besideText = `good requests at ${beside.perSecond}/s`;
  return {
    rows: [
      {
        measure: "unknown keys refused/s ÷ good requests/s, many addresses",
        value: spreadOf(many),
        must: "≥ 3",
      },
      { measure: "the same, one address", value: spreadOf(one) },
      { measure: "CPU per refused key ÷ CPU per good request", value: spreadOf(cpu) },
      { measure: `${besideText}, p50`, value: spreadOf(calm[0] ?? []), unit: "ms" },
      { measure: `${besideText}, p99`, value: spreadOf(calm[1] ?? []), unit: "ms" },
      {
        measure: `${besideText} beside ${5 * beside.perSecond} unknown keys/s, p50`,
        value: spreadOf(flooded[0] ?? []),
        unit: "ms",
      },
      {
        measure: `${besideText} beside ${5 * beside.perSecond} unknown keys/s, p99`,
        value: spreadOf(flooded[1] ?? []),
        unit: "ms",
      },
    ],
    faults: [...faults, ...(await lab.faults(provider))],
  };
}
