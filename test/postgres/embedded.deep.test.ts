// The embedded server. Each test starts and stops a real one in a folder of its own.

import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { afterEach, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { type Embedded, startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";

const log = createLog("silent");
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function newFolder(name = ""): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-embedded-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  const inner = join(folder, name);
  mkdirSync(inner, { recursive: true });
  return inner;
}

async function start(folder: string): Promise<Embedded> {
  const embedded = await startEmbedded(folder, log);
  cleanups.push(() => embedded.stop());
  return embedded;
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: "array" })).rows.flat();
  } finally {
    await client.end();
  }
}

function readPid(folder: string): number {
  return Number.parseInt(readFileSync(join(folder, "postgres/postmaster.pid"), "utf8"), 10);
}

/** Resolves when the process has ended: it is gone, or a zombie. */
async function untilEnded(pid: number): Promise<void> {
  const alive = () => {
    try {
      return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
    } catch {
      return false;
    }
  };
  while (alive()) await new Promise((resolve) => setTimeout(resolve, 10));
}

test("the data survives a stop and a start", async () => {
  const folder = newFolder();
  const first = await start(folder);
  await ask(first.url, "create table kept as select 7 as number");
  await first.stop();
  await expect(ask(first.url, "select 1")).rejects.toThrow();
  const second = await start(folder);
  expect(await ask(second.url, "select number from kept")).toEqual([7]);
});

test("concurrent starts on an empty folder share one server", async () => {
  const folder = newFolder();
  const all = await Promise.all([start(folder), start(folder), start(folder)]);
  expect(new Set(all.map(({ url }) => url)).size).toBe(1);
  expect(readdirSync(folder).filter((name) => name.startsWith("postgres.new-"))).toEqual([]);
});

test("the incomplete folder of a killed first start is removed once it is too old to be in use", async () => {
  const folder = newFolder();
  for (const name of ["postgres.new-old", "postgres.new-young"]) mkdirSync(join(folder, name));
  utimesSync(join(folder, "postgres.new-old"), 0, 0);
  await start(folder);
  expect(readdirSync(folder).filter((name) => name.includes("new"))).toEqual([
    "postgres.new-young",
  ]);
});

test("a server that survived its gateway is found and used", async () => {
  const folder = newFolder();
  await start(folder);
  const pid = readPid(folder);
  const again = await start(folder);
  expect(readPid(folder)).toBe(pid);
  expect(await ask(again.url, "select 1")).toEqual([1]);
});

test("a killed server is started again and has all commits", async () => {
  const folder = newFolder();
  const first = await start(folder);
  await ask(first.url, "create table kept as select 7 as number");
  const pid = readPid(folder);
  process.kill(pid, "SIGKILL");
  await untilEnded(pid);
  const second = await start(folder);
  expect(await ask(second.url, "select number from kept")).toEqual([7]);
});

test("a pid file that names another program's process does not prevent a start", async () => {
  const folder = newFolder();
  const first = await start(folder);
  const pidFile = readFileSync(join(folder, "postgres/postmaster.pid"), "utf8");
  await first.stop();
  const other = spawn("sleep", ["600"]);
  cleanups.push(() => {
    other.kill();
  });
  writeFileSync(
    join(folder, "postgres/postmaster.pid"),
    pidFile.replace(/^\d+/, String(other.pid)),
  );
  const second = await start(folder);
  expect(await ask(second.url, "select 1")).toEqual([1]);
});

test.for(["", "12", "not a number\n/nowhere\n"])(
  "a pid file of %j, as after a crash of the machine, does not prevent a start",
  async (text) => {
    const folder = newFolder();
    await (await start(folder)).stop();
    const path = join(folder, "postgres/postmaster.pid");
    writeFileSync(path, text);
    utimesSync(path, 0, 0);
    const again = await start(folder);
    expect(await ask(again.url, "select 1")).toEqual([1]);
  },
);

test("a copied data folder gets a server of its own while that of the original runs", async () => {
  const [original, copy] = [newFolder(), newFolder()];
  const first = await start(original);
  const pidFile = readFileSync(join(original, "postgres/postmaster.pid"), "utf8");
  await first.stop();
  execFileSync("cp", ["-a", join(original, "postgres"), copy]);
  const again = await start(original);
  const pid = String(readPid(original));
  writeFileSync(join(copy, "postgres/postmaster.pid"), pidFile.replace(/^\d+/, pid));
  utimesSync(join(copy, "postgres/postmaster.pid"), 0, 0);
  const second = await start(copy);
  expect(await ask(second.url, "show data_directory")).toEqual([join(copy, "postgres")]);
  expect(await ask(again.url, "show data_directory")).toEqual([join(original, "postgres")]);
});

test("the error for a data folder that became read-only names the log file of the server", async () => {
  const folder = newFolder();
  await (await start(folder)).stop();
  const data = join(folder, "postgres");
  chmodSync(data, 0o500);
  await expect(startEmbedded(folder, log)).rejects.toThrow(/did not start; see .*postgres\.log/);
  chmodSync(data, 0o700);
  expect(readFileSync(join(folder, "postgres.log"), "utf8")).toMatch(/postmaster.pid.*denied/);
  expect(await ask((await start(folder)).url, "select 1")).toEqual([1]);
});

test("a server with a long path is watched, and comes back at the address that clients know", async () => {
  const folder = newFolder("a-long-name-".repeat(12));
  let isLost = false;
  const onLost = () => {
    isLost = true;
  };
  const embedded = await startEmbedded(folder, log, { onLost });
  cleanups.push(() => embedded.stop());
  const pid = readPid(folder);
  process.kill(pid, "SIGKILL");
  await untilEnded(pid);
  await expect.poll(() => ask(embedded.url, "select 1").catch(() => [])).toEqual([1]);
  await embedded.stop();
  await expect(ask(embedded.url, "select 1")).rejects.toThrow();
  expect(isLost).toBe(false);
});

test("a stop leaves the server running if another gateway uses it", async () => {
  const folder = newFolder();
  const embedded = await start(folder);
  const neighbour = connectPostgres(embedded.url);
  const statement = { name: "test/one", text: "select 1 as one" };
  await query(neighbour, statement, []);
  await embedded.stop();
  expect(await query(neighbour, statement, [])).toEqual([{ one: 1 }]);
  await neighbour.close();
  await embedded.stop();
  await expect(ask(embedded.url, "select 1")).rejects.toThrow();
});

test("the server listens on no network address, checks the password, and commits durably", async () => {
  const folder = newFolder();
  const { url } = await start(folder);
  expect(await ask(url, "show listen_addresses")).toEqual([""]);
  expect(await ask(url, "show fsync")).toEqual(["on"]);
  expect(await ask(url, "show synchronous_commit")).toEqual(["on"]);
  expect(statSync(join(folder, "postgres/gateway.password")).mode & 0o777).toBe(0o600);
  expect(statSync(join(folder, "postgres")).mode & 0o777).toBe(0o700);
  const wrong = new URL(url);
  wrong.password = "guessed";
  await expect(ask(wrong.href, "select 1")).rejects.toThrow(/password authentication failed/);
});

test("a folder whose path is too long for a socket works too", async () => {
  const folder = newFolder("a-long-name-".repeat(12));
  const { url } = await start(folder);
  expect(await ask(url, "select 1")).toEqual([1]);
});

test("the error for a server that cannot start names its log file", async () => {
  const folder = newFolder();
  await (await start(folder)).stop();
  writeFileSync(join(folder, "postgres/postgresql.auto.conf"), "no_such_setting = 1\n");
  await expect(startEmbedded(folder, log)).rejects.toThrow(/did not start; see .*postgres\.log/);
});
