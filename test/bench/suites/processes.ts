// A second gateway process on the same database: what it adds.

import { availableParallelism } from "node:os";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { Lab, type Part } from "../lab.ts";
import { cpuSeconds, cpuSecondsOfTree, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 4;
const requests = 2_000;

export async function processes(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const first = await lab.gateway(provider);
  const second = await lab.gateway(provider);
  const { pid } = await lab.database();
  const headers = nativeHeaders(first);
  const bodies = [nativeBody("native", 1_000, false)];

  // Two loads in either case, so that theirs is not the limit.
  async function measure(gateways: readonly [Part, Part]) {
    const cpu = () => ({ own: cpuSeconds(first.pid) + cpuSeconds(second.pid), database: cpuSecondsOfTree(pid) });
    const before = cpu();
    const done = await Promise.all(
      gateways.map(({ port }) =>
        lab.load({ url: `http://127.0.0.1:${port}`, path: "/v1/messages", headers, bodies, requests, concurrency: 32 }),
      ),
    );
    const after = cpu();
    const micros = (seconds: number) => (seconds * 1e6) / (2 * requests);
    return {
      perSecond: (2 * requests) / Math.max(...done.map(({ seconds }) => seconds)),
      cpuMicros: micros(after.own - before.own),
      databaseMicros: micros(after.database - before.database),
    };
  }
  type Figures = Awaited<ReturnType<typeof measure>>;

  const pairs: { one: Figures; two: Figures }[] = [];
  for (let round = 0; round <= rounds; round++) {
    const pair = { one: await measure([first, first]), two: await measure([first, second]) };
    if (round > 0) pairs.push(pair);
  }
  const ratioOf = (figure: (one: Figures) => number) => spreadOf(pairs.map(({ one, two }) => figure(two) / figure(one)));
  return {
    rows: [
      { measure: "requests/s, two processes ÷ one", value: ratioOf((one) => one.perSecond) },
      { measure: "CPU of the gateways per request, two ÷ one", value: ratioOf((one) => one.cpuMicros) },
      { measure: "CPU of PostgreSQL per request, two ÷ one", value: ratioOf((one) => one.databaseMicros) },
      { measure: "requests/s, one process", value: spreadOf(pairs.map(({ one }) => one.perSecond)), unit: "/s" },
    ],
    notes: [`${availableParallelism()} processors are shared by gateways, PostgreSQL, provider and load`],
    faults: await lab.faults(provider),
  };
}
