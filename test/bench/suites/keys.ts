// A million keys in the database against a thousand: the cost of a request, the time to start and
// the memory.

import { nativeBody, nativeHeaders } from "../bodies.ts";
import { addAccounts, addKeys, addSecrets, connectLedger, runSql } from "../books.ts";
import { compare, ratio } from "../compare.ts";
import { type GatewayProcess, Lab } from "../lab.ts";
import { residentBytes, spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const sizes = [
  { name: "1k", keys: 1_000, used: 1_000 },
  { name: "1M", keys: 1_000_000, used: 5_000 },
] as const;
const keysPerAccount = 10;
const rounds = 5;
const requests = 1_500;
const starts = 3;

export async function keys(): Promise<Result> {
  await using lab = new Lab();
  const provider = await lab.provider();
  const sites = [];
  for (const size of sizes) {
    const databaseUrl = await lab.emptyDatabase(`keys_${size.name.toLowerCase()}`);
    sites.push({ ...size, databaseUrl, secrets: await fill(databaseUrl, size) });
  }

  const startMs = new Map<string, number[]>(sizes.map(({ name }) => [name, []]));
  const startBytes = new Map<string, number[]>(sizes.map(({ name }) => [name, []]));
  const gateways = new Map<string, GatewayProcess>();
  for (let round = 0; round < starts; round++) {
    for (const { name, databaseUrl } of sites) {
      const earlier = gateways.get(name);
      if (earlier) await lab.end(earlier);
      const started = performance.now();
      const gateway = await lab.gateway(provider, { databaseUrl, seed: false });
      startMs.get(name)?.push(performance.now() - started);
      startBytes.get(name)?.push(residentBytes(gateway.pid));
      gateways.set(name, gateway);
    }
  }

  const targets = sites.flatMap(({ name, secrets }) => {
    const server = gateways.get(name);
    if (!server) return [];
    const rotatedHeaders = { "x-api-key": drawByZipf(secrets, requests) };
    const job = {
      path: "/v1/messages",
      headers: nativeHeaders(server),
      rotatedHeaders,
      bodies: [nativeBody("native", 1_000, false)],
    };
    return [{ name, server, job }];
  });
  const comparison = await compare(lab, targets, {
    rounds,
    warmUp: 3 * requests,
    requests,
    concurrency: 32,
  });
  const grown = ([small, large]: readonly (readonly number[])[]) =>
    spreadOf((large ?? []).map((one, round) => one / (small?.[round] ?? Number.NaN)));
  const loadedBytes = targets.map(({ server }) => [residentBytes(server.pid)]);
  return {
    rows: [
      {
        measure: "CPU per request, 1M keys ÷ 1k keys",
        value: ratio(comparison, "1M", "1k", (one) => one.cpuMicros),
        must: "≤ 1.10",
      },
      {
        measure: "requests/s, 1M keys ÷ 1k keys",
        value: ratio(comparison, "1M", "1k", (one) => one.perSecond),
      },
      { measure: "time to start, 1M keys ÷ 1k keys", value: grown([...startMs.values()]) },
      { measure: "time to start, 1M keys", value: spreadOf(startMs.get("1M") ?? []), unit: "ms" },
      {
        measure: "memory after the start, 1M keys ÷ 1k keys",
        value: grown([...startBytes.values()]),
      },
      { measure: "memory after the load, 1M keys ÷ 1k keys", value: grown(loadedBytes) },
    ],
    notes: [
      `used by Zipf's law: ${sizes.map(({ name, used }) => `${used} keys of ${name}`).join(", ")}`,
    ],
    faults: await lab.faults(
      provider,
      0,
      sites.map(({ databaseUrl }) => databaseUrl),
    ),
  };
}

/** Fills a database with keys; returns the secrets of those that are used. */
async function fill(url: string, size: { keys: number; used: number }): Promise<string[]> {
  const postgres = connectLedger(url);
  const accounts = size.keys / keysPerAccount;
  await addAccounts(postgres, accounts);
  await addKeys(postgres, size.keys, accounts);
  const secrets = await addSecrets(postgres, size.keys, size.used);
  await runSql(postgres, "analyze");
  await postgres.close();
  return secrets;
}

/**
 * Values by Zipf's law: the n-th is drawn with a weight of 1/n. The draws are spread evenly, so
 * every run has the same.
 */
function drawByZipf(values: readonly string[], count: number): string[] {
  let sum = 0;
  const sums = values.map((_, index) => {
    sum += 1 / (index + 1);
    return sum;
  });
  const golden = 0.618_033_988_749_895;
  return Array.from({ length: count }, (_, draw) => {
    const at = ((draw * golden) % 1) * sum;
    return values[sums.findIndex((one) => one > at)] ?? "";
  });
}
