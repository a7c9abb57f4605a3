// A first upstream that refuses the connection: what the second attempt adds to a request.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import { freePort } from "../ports.ts";
import type { Result } from "../report.ts";

const rounds = 6;
// A second attempt is allowed for ten calls, and a few at once.
const soundCalls = 200;
const failovers = 15;

export async function failover(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const catalog = { failovers: { count: rounds * failovers, deadPort: await freePort() } };
  const gateway = await lab.gateway(provider, { catalog });
  const base = { url: `http://127.0.0.1:${gateway.port}`, path: "/v1/messages", headers: nativeHeaders(gateway) };
  const one = { ...base, concurrency: 1 };

  const addedMs: number[] = [];
  const worstMs: number[] = [];
  const faults: string[] = [];
  for (let round = 0; round < rounds; round++) {
    const sound = await lab.load({ ...one, requests: soundCalls, bodies: [nativeBody("native", 1_000, false)] });
    const bodies = Array.from({ length: failovers }, (_, index) =>
      nativeBody(`failover-${round * failovers + index}`, 1_000, false),
    );
    // The load's own first calls are slow, in whatever they ask for; these are left out.
    const warmUp = Array.from({ length: failovers }, () => nativeBody("native", 1_000, false));
    const mixed = await lab.load({ ...one, requests: 2 * failovers, bodies: [...warmUp, ...bodies] });
    if (mixed.statuses["200"] !== 2 * failovers) faults.push(`round ${round}: ${JSON.stringify(mixed.statuses)} ${mixed.odd}`);
    // One at a time, so they end in order.
    const over = mixed.totalMs.slice(failovers);
    addedMs.push(quantile(over, 0.5) - quantile(sound.totalMs, 0.5));
    worstMs.push(quantile(over, 1) - quantile(sound.totalMs, 0.99));
  }
  return {
    rows: [
      { measure: "added by a refused connection, p50", value: spreadOf(addedMs), unit: "ms", must: "≤ 5 ms" },
      { measure: `added by a refused connection, worst of ${failovers} − p99`, value: spreadOf(worstMs), unit: "ms" },
    ],
    faults: [...faults, ...(await lab.faults(provider))],
  };
}
