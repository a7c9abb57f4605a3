// Where the processor time of a plain request and of a stream goes, by part of the gateway: from
// V8's sampling profiler. Runs only when it is named; the profiler itself costs time.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab, urlOf } from "../lab.ts";
import { cpuSeconds } from "../measure.ts";
import { profileGateway, timeByPart } from "../profile.ts";
import { type Result, type Row, single } from "../report.ts";

const warmUps = 1_500;
const requests = 4_000;
/** Parts with less than this share of the time are one row. */
const shareMin = 0.015;

export async function profile(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const rows: Row[] = [];
  for (const { name, model, stream } of [
    { name: "plain 1 KB", model: "native", stream: false },
    { name: "stream, unpaced", model: "native", stream: true },
    { name: "stream, paced", model: "native-paced", stream: true },
  ]) {
    const isPaced = model !== "native";
    const count = isPaced ? requests / 8 : requests;
    let micros = 0;
    const found = await profileGateway(lab, provider, {}, async (gateway, isWarmUp) => {
      const before = cpuSeconds(gateway.pid);
      await lab.load({
        url: urlOf(gateway),
        path: "/v1/messages",
        headers: nativeHeaders(gateway),
        bodies: [nativeBody(model, 1_000, stream)],
        concurrency: 32,
        requests: isWarmUp ? (isPaced ? 1 : warmUps) : count,
      });
      micros = ((cpuSeconds(gateway.pid) - before) * 1e6) / count;
    });
    const parts = timeByPart(found);
    const sum = parts.reduce((all, { time }) => all + time, 0);
    const [large, small] = [
      parts.filter(({ time }) => time >= shareMin * sum),
      parts.filter(({ time }) => time < shareMin * sum),
    ];
    rows.push({ measure: `${name}: CPU of the gateway`, value: single(micros), unit: "µs" });
    for (const { part, time } of [
      ...large,
      { part: "the rest", time: small.reduce((all, one) => all + one.time, 0) },
    ]) {
      rows.push({ measure: `${name}: ${part}`, value: single((100 * time) / sum), unit: "%" });
    }
  }
  return { rows, faults: await lab.faults(provider) };
}
