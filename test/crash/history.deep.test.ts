// The commands that close and export a month are killed at every step. What is there then is right,
// nothing looks whole that is not, and the same command completes it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { keepRetention } from "../../src/history/retention.ts";
import { type FreshHistory, freshHistory } from "../support/history.ts";
import { addAll } from "../support/sales.ts";

const root = join(import.meta.dirname, "../..");
const killAt = join(import.meta.dirname, "../support/kill-at.ts");

let world: FreshHistory;
let folder: string;
let name: string;
beforeAll(async () => {
  world = await freshHistory();
  folder = await mkdtemp(join(tmpdir(), "gateway-killed-export-"));
  name = world.month(3).slice(0, 7);
  for (const payer of [await world.payer(1_000_000_000n), await world.payer(1_000_000_000n)])
    for (const output of [1, 2, 3]) await world.chargeAgo(payer, 3, output);
  await world.days.run();
});
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

/** Runs a command, killed at a moment if one is named. */
async function run(command: string, args: readonly string[], moment?: string) {
  const child = spawn(
    process.execPath,
    [...(moment ? ["--import", killAt] : []), join(root, `src/cli/${command}.ts`), ...args],
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

const close = (moment?: string) => run("close-month", ["--month", name], moment);
const exportTo = (moment?: string) => run("export", ["--month", name, "--to", folder], moment);
/** Folders that look like an export. */
const exportsIn = async () => (await readdir(folder)).filter((one) => !one.startsWith("."));
const closings = () => world.run("select charges from month_closings");

test("wrong arguments are refused, with how to give them", async () => {
  for (const args of [[], ["--month", "2026-13"], ["--month", name, "--month", name], ["--x", "1"]])
    expect(await run("close-month", args)).toMatchObject({
      code: 64,
      output: expect.stringContaining("usage: npm run close-month"),
    });
  expect(await run("export", ["--month", name])).toMatchObject({ code: 64 });
  expect(await exportTo()).toMatchObject({
    code: 1,
    output: expect.stringMatching(/^\d{4}-\d\d is open; npm run close-month/),
  });
});

const moments = [
  ...["month sealed", "block digested", "sums added", "month read"],
  ...["sums stored", "closing stored"],
];
for (const moment of moments)
  test(`a closing that is killed at "${moment}" leaves the month open`, async () => {
    expect(await close(moment)).toMatchObject({ signal: "SIGKILL" });
    expect(await closings()).toEqual([]);
    expect(await world.store.verifyLedger()).toEqual([]);
  });

test("the same command closes the month", async () => {
  expect(await close()).toMatchObject({
    code: 0,
    output: expect.stringMatching(/is closed: 6 charges, 780 micro-credits, SHA-256 [0-9a-f]{64}/),
  });
  expect(await closings()).toEqual([{ charges: 6n }]);
  expect(await world.run("select 1 from closing_blocks")).toEqual([]);
  expect(await world.run("select 1 from closing_sums")).toEqual([]);
  expect(await world.store.verifyLedger()).toEqual([]);
  expect((await close()).code).toBe(0);
});

test("an export that is killed leaves nothing that looks whole", async () => {
  expect(await exportTo("lines read")).toMatchObject({ signal: "SIGKILL" });
  expect(await exportsIn()).toEqual([]);
  expect(await world.run("select 1 from month_archives")).toEqual([]);
});

test("an export that is killed before it is recorded keeps its charges, and is recorded then", async () => {
  expect(await exportTo("export whole")).toMatchObject({ signal: "SIGKILL" });
  expect(await exportsIn()).toEqual([name]);
  await addAll(world.ledger.postgres);
  await keepRetention(world.ledger, { months: 1, sink: undefined });
  expect(await world.run("select 1 from charges")).toHaveLength(6);
  expect(await exportTo("export recorded")).toMatchObject({ signal: "SIGKILL" });
  expect(await exportTo()).toMatchObject({
    code: 0,
    output: expect.stringContaining("verified, 6 charges"),
  });
});

test("a removal that dies in its transaction keeps the charges and their record", async () => {
  const dying: typeof world.ledger.asOwner = (work) =>
    world.ledger.asOwner((owner) =>
      work({
        ...owner,
        async dropMonth(month) {
          await owner.dropMonth(month);
          throw new Error("killed");
        },
      }),
    );
  const keep = (asOwner: typeof dying) =>
    keepRetention({ asOwner }, { months: 1, sink: undefined });
  await expect(keep(dying)).rejects.toThrow("killed");
  expect(await world.run("select 1 from charges")).toHaveLength(6);
  expect(await world.run("select dropped_at from month_archives")).toEqual([{ dropped_at: null }]);
  expect(await world.store.verifyLedger()).toEqual([]);
  await keep(world.ledger.asOwner);
  expect(await world.run("select 1 from charges")).toEqual([]);
  expect(await world.store.verifyLedger()).toEqual([]);
});
