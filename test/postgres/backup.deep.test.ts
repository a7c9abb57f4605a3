// `npm run backup` of a gateway under load, and `npm run restore` into a server, an embedded
// database and another major version; what is refused, and what a kill leaves behind.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { backUp, restore } from "../../src/postgres/backup.ts";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { emptyDatabase } from "../support/database.ts";
import { hasDebian, startDebian } from "../support/debian.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
let home: string;
/** Of the gateway, made while it served requests. */
let backup: string;
/** Ids of the requests that were answered before the backup began. */
const answered: string[] = [];

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "gateway-backup-"));
  gateway = await startTestGateway();
  backup = join(home, "backup");
  for (let number = 0; number < 20; number++) answered.push(await ask(number));
  const load = new AbortController();
  const asking = [1, 2, 3, 4].map(async (lane) => {
    for (let number = 0; !load.signal.aborted; number++) await ask(`${lane}_${number}`);
  });
  const { code, stdout, stderr } = await command(gateway.databaseUrl, "backup", backup);
  load.abort();
  await Promise.all(asking);
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toMatch(/^\S+: \d+ tables, \d+ rows\n$/);
});
afterAll(async () => {
  await gateway.stop();
  await rm(home, { recursive: true, force: true });
});

/** Pays for one answer. Returns the id of the request. */
async function ask(name: number | string, { address, v1 } = gateway): Promise<string> {
  const id = `req_backup_${name}`;
  const response = await fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      ...{ "x-api-key": v1, "anthropic-version": "2023-06-01", "x-request-id": id },
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 50,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  expect(response.status).toBe(200);
  await response.text();
  return id;
}

/** Runs a command of the gateway. Without a URL, on the embedded database of `home`. */
function launch(url: string | undefined, name: string, folder: string): ChildProcess {
  const path = join(import.meta.dirname, `../../src/cli/${name}.ts`);
  const { DATABASE_URL: _, ...env } = process.env;
  return spawn(process.execPath, [path, folder], {
    env: { ...env, DATA_DIR: join(home, "data"), ...(url !== undefined && { DATABASE_URL: url }) },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function command(url: string | undefined, name: string, folder: string) {
  const child = launch(url, name, folder);
  const texts = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const)
    child[stream]?.setEncoding("utf8").on("data", (text: string) => {
      texts[stream] += text;
    });
  const [code] = await once(child, "close");
  return { code, ...texts };
}

async function rowsOf<Row extends object>(url: string, text: string): Promise<Row[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

async function idsIn(url: string): Promise<string[]> {
  const rows = await rowsOf<{ id: string }>(url, "select request_id as id from charges");
  return rows.map(({ id }) => id);
}

async function empty() {
  const database = await emptyDatabase();
  onTestFinished(() => database.drop());
  return database.url;
}

test("a backup under load is of one moment, and a server takes it", async () => {
  const url = await empty();
  const { code, stdout, stderr } = await command(url, "restore", backup);
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toContain("restored as of 20");
  expect(stdout).toContain("the ledger is consistent");
  expect(await idsIn(url)).toEqual(expect.arrayContaining(answered));
  const { tables } = JSON.parse(await readFile(join(backup, "manifest.json"), "utf8"));
  for (const { name, rows } of tables)
    if (name !== "ledger_verifications" && name !== "verifications") {
      const [row] = await rowsOf<{ count: number }>(url, `select count(*)::int from ${name}`);
      expect([name, row?.count]).toEqual([name, rows]);
    }
});

test("an embedded database takes it, and its gateway serves the keys of before", async () => {
  const { code, stdout } = await command(undefined, "restore", backup);
  expect([code, stdout.includes("the ledger is consistent")]).toEqual([0, true]);
  const started = await startChildGateway({
    DATA_DIR: join(home, "data"),
    CONTENT_KEY: contentKey,
  });
  await ask("after", { ...gateway, address: started.address });
  const headers = { "x-api-key": gateway.v1 };
  const receipt = await fetch(`${started.address}/v1/receipts/${answered[0]}`, { headers });
  expect(receipt.status).toBe(200);
  expect((await started.end("SIGTERM")).code).toBe(0);

  // And a backup of that one finds its way to a server.
  const second = join(home, "second");
  expect((await command(undefined, "backup", second)).code).toBe(0);
  const url = await empty();
  expect((await command(url, "restore", second)).code).toBe(0);
  expect(await idsIn(url)).toContain("req_backup_after");
});

test.skipIf(!hasDebian)("another major version of PostgreSQL takes it", async () => {
  const debian = await startDebian();
  onTestFinished(() => debian.stop());
  const { stdout } = await command(debian.url, "restore", backup);
  expect(stdout).toContain("the ledger is consistent");
  expect(await idsIn(debian.url)).toEqual(expect.arrayContaining(answered));
});

test("a backup of an older schema is migrated forward", async () => {
  const [older, newer] = [await empty(), await empty()];
  await migrate(older, { migrations: readMigrations().slice(0, 4) });
  await rowsOf(older, "insert into accounts (account_id, name) values ('acc_old', 'Old')");
  const folder = join(home, "older");
  expect((await backUp(older, folder)).migrations).toHaveLength(4);
  expect((await command(newer, "restore", folder)).stdout).toContain("the ledger is consistent");
  expect(await rowsOf(newer, "select name from accounts")).toEqual([{ name: "Old" }]);
  const applied = await rowsOf(newer, "select from migrations where number > 0");
  expect(applied).toHaveLength(readMigrations().length);
});

test("a month that takes no charges takes none after a restore", async () => {
  const [before, after] = [await empty(), await empty()];
  await migrate(before);
  const [month] = await rowsOf<{ name: string }>(
    before,
    "select min(inhrelid::regclass::text) as name from pg_inherits where inhparent = 'charges'::regclass",
  );
  await rowsOf(
    before,
    `create trigger closed before insert on ${month?.name}
       for each row execute function refuse_charge()`,
  );
  await backUp(before, join(home, "sealed"));
  await restore(after, join(home, "sealed"));
  const sealed = "select tgrelid::regclass::text as name from pg_trigger where tgname = 'closed'";
  expect(await rowsOf(after, sealed)).toEqual([month]);
});

test("what is no whole backup, or not of this program, is refused and fills nothing", async () => {
  const url = await empty();
  const copy = join(home, "copy");
  const changed = async (change: () => Promise<void>): Promise<string> => {
    await rm(copy, { recursive: true, force: true });
    const { cp } = await import("node:fs/promises");
    await cp(backup, copy, { recursive: true });
    await change();
    const { code, stderr } = await command(url, "restore", copy);
    expect(code).toBe(1);
    return stderr.replaceAll(copy, "FOLDER").trim();
  };
  const manifest = join(copy, "manifest.json");
  const charges = join(copy, "charges");
  expect(await changed(() => rm(manifest))).toBe("FOLDER has no whole manifest.json");
  expect(await changed(() => truncate(manifest, 500))).toBe("FOLDER has no whole manifest.json");
  expect(await changed(() => truncate(charges, 50))).toMatch(/^FOLDER: charges has 50 bytes of/);
  expect(await changed(() => appendFile(charges, "x"))).toMatch(/^FOLDER: charges has \d+ bytes/);
  expect(await changed(() => rm(charges))).toBe("FOLDER: charges cannot be read");
  const flip = async () => {
    const bytes = await readFile(charges);
    bytes[bytes.length - 40] = (bytes[bytes.length - 40] ?? 0) ^ 1;
    await writeFile(charges, bytes);
  };
  expect(await changed(flip)).toBe("FOLDER: charges was changed");
  const edit = (from: RegExp, to: string) => async () =>
    writeFile(manifest, (await readFile(manifest, "utf8")).replace(from, to));
  expect(await changed(edit(/"rows": \d+/, '"rows": 7'))).toBe("FOLDER: manifest.json was changed");
  expect(await rowsOf(url, "select relname from pg_class where relname = 'charges'")).toEqual([]);

  const newer = await empty();
  await migrate(newer);
  const next = readMigrations().length + 1;
  await rowsOf(newer, `insert into migrations (number, name) values (${next}, '9999_future')`);
  await backUp(newer, join(home, "newer"));
  const { stderr } = await command(url, "restore", join(home, "newer"));
  expect(stderr).toContain("the backup is newer than this program: it has migration 9999_future");
});

test("a database that is not empty, a folder that is there and one without a name are refused", async () => {
  const full = await command(gateway.databaseUrl, "restore", backup);
  expect([full.code, full.stderr]).toEqual([1, expect.stringContaining("is not empty: it has ")]);
  const there = await command(gateway.databaseUrl, "backup", backup);
  expect([there.code, there.stderr]).toEqual([
    1,
    `${backup} exists: name a folder that does not\n`,
  ]);
  const none = await command(await empty(), "backup", join(home, "none"));
  expect([none.code, none.stderr]).toEqual([1, "the database has no ledger\n"]);
  expect((await command(undefined, "backup", "--help")).code).toBe(64);
});

test("a backup that is killed leaves no folder of its name", async () => {
  const blocker = new Client({ connectionString: gateway.databaseUrl });
  await blocker.connect();
  await blocker.query("begin; lock table audit_events in access exclusive mode");
  const killed = join(home, "killed");
  const child = launch(gateway.databaseUrl, "backup", killed);
  const waits = "select from pg_stat_activity where query like 'lock table%' and state = 'active'";
  while ((await rowsOf(gateway.databaseUrl, waits)).length === 0) await delay(10);
  child.kill("SIGKILL");
  await once(child, "close");
  await blocker.end();
  const left = (await readdir(home)).filter((name) => name.includes("killed"));
  expect(left).toEqual([expect.stringMatching(/^\.killed\.part-/)]);
  expect((await command(gateway.databaseUrl, "backup", killed)).code).toBe(0);
});

test("a restore that is killed leaves the database empty, and another one fills it", async () => {
  const url = await empty();
  const child = launch(url, "restore", backup);
  const database = new URL(url).pathname.slice(1);
  const writing = `select from pg_stat_activity
    where datname = '${database}' and backend_xid is not null`;
  while ((await rowsOf(gateway.databaseUrl, writing)).length === 0) await delay(2);
  child.kill("SIGKILL");
  await once(child, "close");
  while ((await rowsOf(gateway.databaseUrl, writing)).length > 0) await delay(10);
  expect(await rowsOf(url, "select relname from pg_class where relname = 'charges'")).toEqual([]);
  expect((await command(url, "restore", backup)).stdout).toContain("the ledger is consistent");
});
