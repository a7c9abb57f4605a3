// Twice the load that can be served, in an open loop: the goodput, and how soon the other requests
// are refused.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import type { LoadResult } from "../load.ts";
import { quantile, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 3;
const seconds = 3;
// The slow model takes 50 ms, so a concurrency of 20 serves 400 requests a second, well below the
// limit of the processor.
const members = "concurrency: 20, queue: 20";

export async function overload(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const narrow = await lab.gateway(provider, { catalog: { members } });
  const wide = await lab.gateway(provider);
  const rows: Row[] = [];
  for (const { name, gateway, model, concurrency } of [
    { name: "concurrency limit", gateway: narrow, model: "native-slow", concurrency: 32 },
    { name: "processor", gateway: wide, model: "native", concurrency: 512 },
  ]) {
    const job = {
      url: urlOf(gateway),
      path: "/v1/messages",
      headers: nativeHeaders(gateway),
      bodies: [nativeBody(model, 1_000, false)],
    };
    const goodput: number[] = [];
    const refusedP50: number[] = [];
    const refusedP99: number[] = [];
    const refusedShare: number[] = [];
    const servedP50: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      const peak = await lab.load({ ...job, requests: round === 0 ? 300 : 1_200, concurrency });
      const perSecond = 2 * goodPerSecond(peak);
      const requests = Math.ceil(perSecond * (round === 0 ? 1 : seconds));
      const over = await lab.load({ ...job, requests, concurrency: 2_000, perSecond });
      if (round === 0) continue;
      goodput.push(goodPerSecond(over) / goodPerSecond(peak));
      refusedShare.push(over.refusedMs.length / requests);
      servedP50.push(quantile(over.totalMs, 0.5));
      if (over.refusedMs.length > 0) {
        refusedP50.push(quantile(over.refusedMs, 0.5));
        refusedP99.push(quantile(over.refusedMs, 0.99));
      }
    }
    rows.push({ measure: `${name}, 2 ×: goodput ÷ peak`, value: spreadOf(goodput), must: "≥ 0.8" });
    if (refusedP50.length > 0) {
      rows.push(
        {
          measure: `${name}, 2 ×: refused after, p50`,
          value: spreadOf(refusedP50),
          unit: "ms",
          must: "≤ 10 ms",
        },
        { measure: `${name}, 2 ×: refused after, p99`, value: spreadOf(refusedP99), unit: "ms" },
      );
    }
    rows.push(
      { measure: `${name}, 2 ×: share refused`, value: spreadOf(refusedShare) },
      { measure: `${name}, 2 ×: served after, p50`, value: spreadOf(servedP50), unit: "ms" },
    );
  }
  return { rows, faults: await lab.faults(provider) };
}

function goodPerSecond({ statuses, seconds: lasted }: LoadResult): number {
  return (statuses["200"] ?? 0) / lasted;
}
