// The first provider refuses the connection: the time that the second attempt adds.

import { freePort } from "../../support/ports.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 6;
// The retry budget allows one second attempt for ten calls, and a few more at once.
const soundCalls = 150;
const warmUps = 50;
const failovers = 15;

export async function failover(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const catalog = { failovers: { count: rounds * failovers, deadPort: await freePort() } };
  const gateway = await lab.gateway(provider, { catalog });
  const base = { url: urlOf(gateway), path: "/v1/messages", headers: nativeHeaders(gateway) };
  const one = { ...base, concurrency: 1 };

  const addedMs: number[] = [];
  const addedP90Ms: number[] = [];
  const faults: string[] = [];
  for (let round = 0; round < rounds; round++) {
    await lab.load({ ...one, requests: soundCalls, bodies: [nativeBody("native", 1_000, false)] });
    // Sound calls and failovers alternate, after a warm-up: the first calls of a load are slow.
    const models = Array.from({ length: failovers }, (_, index) => [
      "native",
      `failover-${round * failovers + index}`,
    ]).flat();
    const bodies = [...Array.from({ length: warmUps }, () => "native"), ...models].map((model) =>
      nativeBody(model, 1_000, false),
    );
    const { totalMs, statuses, firstError } = await lab.load({
      ...one,
      requests: bodies.length,
      bodies,
    });
    if (statuses["200"] !== bodies.length)
      faults.push(`round ${round}: ${JSON.stringify(statuses)} ${firstError}`);
    // With one call at a time the results stand in the order of the calls.
    const sound = totalMs.filter((_, index) => index >= warmUps && (index - warmUps) % 2 === 0);
    const over = totalMs.filter((_, index) => index >= warmUps && (index - warmUps) % 2 === 1);
    addedMs.push(quantile(over, 0.5) - quantile(sound, 0.5));
    addedP90Ms.push(quantile(over, 0.9) - quantile(sound, 0.9));
  }
  return {
    rows: [
      {
        measure: "added by a refused connection, p50",
        value: spreadOf(addedMs),
        unit: "ms",
        must: "≤ 5 ms",
      },
      { measure: "added by a refused connection, p90", value: spreadOf(addedP90Ms), unit: "ms" },
    ],
    faults: [...faults, ...(await lab.faults(provider))],
  };
}
