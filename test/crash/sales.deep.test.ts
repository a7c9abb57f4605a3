// The command that writes the sums of sales anew is killed at every step. Any other process goes
// on, and each charge is in the sums once.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type FreshHistory, freshHistory } from "../support/history.ts";
import { endingWith } from "../support/ledger.ts";
import { addAll } from "../support/sales.ts";

const root = join(import.meta.dirname, "../..");
const killAt = join(import.meta.dirname, "../support/kill-at.ts");

let world: FreshHistory;
beforeAll(async () => {
  world = await freshHistory();
  const payer = await world.payer(1_000_000_000n);
  for (const days of [1, 2, 40])
    await world.chargeAt(payer, world.daysAgo(days), endingWith({ output: days }));
  // As if they had been settled an hour ago: the command waits a minute for others.
  await world.run("alter table charges disable trigger user");
  await world.run("update charges set settled_at = settled_at - interval '1 hour'");
  await world.run("alter table charges enable trigger user");
});
afterAll(() => world.close());

/** Runs the command, killed at a moment if one is named. */
async function rebuild(moment?: string) {
  const child = spawn(
    process.execPath,
    [...(moment ? ["--import", killAt] : []), join(root, "src/cli/rebuild-sales.ts")],
    {
      env: {
        PATH: process.env.PATH,
        NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
        DATABASE_URL: world.url,
        ...(moment !== undefined && { KILL_AT: moment }),
      },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const [code, signal] = await once(child, "close");
  // The lease of a killed process ends by itself, after a minute.
  await world.run("update leases set until = now() - interval '1 second'");
  return { code, signal, output };
}

const sums = () =>
  world.run("select sum(requests)::bigint as n, sum(output)::bigint as output from sales_daily");

const moments = [
  ...["emptying begun", "slice removed", "emptying ended", "page written", "page added"],
  ...["cursor moved", "sums complete"],
];
for (const moment of moments)
  test(`a rebuild that is killed at "${moment}" counts nothing twice`, async () => {
    await addAll(world.ledger.postgres);
    expect(await sums()).toEqual([{ n: 3n, output: 43n }]);
    expect(await rebuild(moment)).toMatchObject({ signal: "SIGKILL" });
    await addAll(world.ledger.postgres);
    expect(await sums()).toEqual([{ n: 3n, output: 43n }]);
    expect(await world.store.verifyLedger()).toEqual([]);
  });

test("the command says how many charges the sums have, and how fast it was", async () => {
  const { code, output } = await rebuild();
  expect(output).toMatch(/^the sums of sales have 3 charges: [\d.]+ s, \d+\/s$/m);
  expect(code).toBe(0);
});
