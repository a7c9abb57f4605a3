// A second gateway process on the same database: the throughput that it adds.

import { availableParallelism } from "node:os";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { addAccounts, addKeys, addSecrets, connectLedger } from "../books.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { cpuSeconds, cpuSecondsOfTree, spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const rounds = 3;
const requests = 1_200;
const accounts = 1_000;

export async function processes(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const first = await lab.gateway(provider);
  const second = await lab.gateway(provider);
  const { url, pid } = await lab.database();
  const postgres = connectLedger(url);
  await addAccounts(postgres, accounts);
  await addKeys(postgres, accounts, accounts);
  const secrets = await addSecrets(postgres, accounts, accounts);
  await postgres.close();

  // Two loads in both cases, so that the load is not the limit.
  async function measure(gateways: readonly GatewayProcess[], keys: readonly string[]) {
    const cpu = () => ({
      own: cpuSeconds(first.pid) + cpuSeconds(second.pid),
      database: cpuSecondsOfTree(pid),
    });
    const job = {
      path: "/v1/messages",
      headers: nativeHeaders(first),
      bodies: [nativeBody("native", 1_000, false)],
    };
    const before = cpu();
    const done = await Promise.all(
      gateways.map((gateway) =>
        lab.load({
          ...job,
          url: urlOf(gateway),
          rotatedHeaders: { "x-api-key": keys },
          requests,
          concurrency: 32,
        }),
      ),
    );
    const after = cpu();
    const micros = (seconds: number) => (seconds * 1e6) / (done.length * requests);
    return {
      perSecond: (done.length * requests) / Math.max(...done.map(({ seconds }) => seconds)),
      cpuMicros: micros(after.own - before.own),
      databaseMicros: micros(after.database - before.database),
    };
  }
  type Figures = Awaited<ReturnType<typeof measure>>;

  const rows: Row[] = [];
  for (const { name, keys } of [
    { name: `${accounts} accounts`, keys: secrets },
    { name: "one account", keys: [first.key] },
  ]) {
    const pairs: { one: Figures; two: Figures }[] = [];
    for (let round = 0; round <= rounds; round++) {
      const pair = {
        one: await measure([first, first], keys),
        two: await measure([first, second], keys),
      };
      if (round > 0) pairs.push(pair);
    }
    const ratioOf = (figure: (one: Figures) => number) =>
      spreadOf(pairs.map(({ one, two }) => figure(two) / figure(one)));
    rows.push(
      {
        measure: `${name}: requests/s, two processes ÷ one`,
        value: ratioOf((one) => one.perSecond),
      },
      {
        measure: `${name}: CPU of the gateways per request, two ÷ one`,
        value: ratioOf((one) => one.cpuMicros),
      },
      {
        measure: `${name}: CPU of PostgreSQL per request, two ÷ one`,
        value: ratioOf((one) => one.databaseMicros),
      },
      {
        measure: `${name}: requests/s, one process`,
        value: spreadOf(pairs.map(({ one }) => one.perSecond)),
        unit: "/s",
      },
    );
  }
  return {
    rows,
    notes: [
      `${availableParallelism()} processors are shared by gateways, PostgreSQL, provider and load`,
    ],
    faults: await lab.faults(provider),
  };
}
