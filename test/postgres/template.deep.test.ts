// The template from which a first start makes its database. Each test has folders of its own.

import { execFile } from "node:child_process";
import {
  copyFileSync,
  existsSync,
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
import { promisify } from "node:util";
import { Client } from "pg";
import { afterAll, afterEach, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { findBinaries } from "../../src/postgres/embedded/binaries.ts";
import {
  type Embedded,
  startEmbedded,
  templateFolder,
} from "../../src/postgres/embedded/embedded.ts";
import { writeTemplate } from "../../src/postgres/embedded/make-template.ts";
import {
  digestSources,
  findTemplate,
  unpackTemplate,
} from "../../src/postgres/embedded/template.ts";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";

const run = promisify(execFile);
const log = createLog("silent");
const root = join(import.meta.dirname, "../..");
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const binaries = await findBinaries();
const digest = digestSources(binaries.programs);
const templates = mkdtempSync(join(tmpdir(), "gateway-templates-"));
afterAll(() => rmSync(templates, { recursive: true }));
const template = await writeTemplate(templates);

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-template-test-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function start(folder: string, from = templates): Promise<Embedded> {
  const embedded = await startEmbedded(folder, log, { templates: from });
  cleanups.push(() => embedded.stop());
  return embedded;
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: "array" })).rows.flat();
  } finally {
    await client.end();
  }
}

const applied = "select number from migrations where number > 0 order by number";
const numbers = readMigrations().map(({ number }) => number);
/** True: the database was made from a template. False: it is empty. */
const isMigrated = async (url: string) =>
  (await query(url, "select to_regclass('migrations') is not null"))[0] === true;
const months = "select count(*)::int from pg_inherits where inhparent = 'charges'::regclass";

/** What a database consists of, but for its rows. */
const definitions = `
  select format('%s %s %s %s %s', c.relname, c.relkind, c.relpersistence, c.reloptions, c.relacl)
  from pg_class c where c.relnamespace = 'public'::regnamespace
  union all
  select format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where c.relnamespace = 'public'::regnamespace
  union all
  select format('%s: %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  from pg_constraint where connamespace = 'public'::regnamespace
  union all
  select indexdef from pg_indexes where schemaname = 'public'
  union all
  select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
  union all
  select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
  union all
  select format('%s %s %s %s', rolname, rolsuper, rolcanlogin, rolinherit) from pg_roles
  where rolname !~ '^pg_'
  union all
  select format('%s in %s', member::regrole, roleid::regrole) from pg_auth_members
  where member::regrole::text !~ '^pg_'
  order by 1`;

/** The rows of all tables, with `a time` for each time, and the columns that have one. */
async function readRows(url: string): Promise<{ rows: Record<string, unknown>; times: string[] }> {
  const tables = "select tablename::text from pg_tables where schemaname = 'public' order by 1";
  const times = new Set<string>();
  const rows: Record<string, unknown> = {};
  for (const table of await query(url, tables)) {
    const text = `select to_jsonb(t)::text from ${table} t order by t`;
    rows[String(table)] = (await query(url, text)).map((row) =>
      JSON.parse(String(row), (column, value) => {
        if (!/^\d{4}-\d\d-\d\dT/.test(String(value))) return value;
        times.add(`${table}.${column}`);
        return "a time";
      }),
    );
  }
  return { rows, times: [...times].sort() };
}

test("a database from a template has all migrations, and is what they make", async () => {
  const { url } = await start(newFolder());
  expect(await query(url, applied)).toEqual(numbers);
  // Partitions are of the time of a start, not of the template.
  expect(await query(url, months)).toEqual([0]);
  await migrate(url);
  const migrated = await freshDatabase();
  cleanups.push(() => migrated.drop());
  expect(await query(migrated.url, months)).toEqual(await query(url, months));
  expect(await query(url, definitions)).toEqual(await query(migrated.url, definitions));
  const [ours, others] = [await readRows(url), await readRows(migrated.url)];
  expect(ours).toEqual(others);
  // Only these come from a template with their time. Think before one is added: it may be old.
  expect(ours.times).toEqual(["alert_progress.events_at", "migrations.applied_at"]);
});

test("each data folder has a password of its own, and the template has none", async () => {
  const [one, other] = [newFolder(), newFolder()];
  const urls = [(await start(one)).url, (await start(other)).url];
  const passwords = [one, other].map((folder) =>
    readFileSync(join(folder, "postgres/gateway.password"), "utf8"),
  );
  expect(new Set(passwords).size).toBe(2);
  for (const url of urls) expect(await query(url, "select 1")).toEqual([1]);
  const swapped = new URL(urls[0] ?? "");
  swapped.password = passwords[1] ?? "";
  await expect(query(swapped.href, "select 1")).rejects.toThrow(/password authentication failed/);

  const data = join(newFolder(), "data");
  mkdirSync(data, { mode: 0o700 });
  unpackTemplate(template, data);
  if (binaries.ownerId !== process.getuid?.())
    await run("chown", ["-R", String(binaries.ownerId), data]);
  expect(existsSync(join(data, "gateway.password"))).toBe(false);
  const [file, args] = binaries.command("postgres", ["--single", "-D", data, "postgres"]);
  const running = run(file, args);
  running.child.stdin?.end("select rolpassword from pg_authid where rolname = 'gateway'\n");
  // A value would be shown as `rolpassword = "…"`.
  const { stdout } = await running;
  expect(stdout).toContain("rolpassword");
  expect(stdout).not.toContain("rolpassword =");
});

test("data from a template is for its owner only, and of no other server's process", async () => {
  const folder = newFolder();
  await (await start(folder)).stop();
  const cluster = join(folder, "postgres");
  const names = readdirSync(cluster, { recursive: true, encoding: "utf8" });
  expect(statSync(cluster).mode & 0o777).toBe(0o700);
  for (const name of names) expect(statSync(join(cluster, name)).mode & 0o077).toBe(0);
  expect(names).toContain("pg_notify");
  expect(readdirSync(folder).filter((name) => name.includes(".new-"))).toEqual([]);
  expect(statSync(template).size).toBeLessThan(3e6);
});

test.each([
  ["cut off", (whole: Buffer) => whole.subarray(0, whole.length >> 1)],
  ["empty", () => Buffer.alloc(0)],
  [
    "wrong in one bit",
    (whole: Buffer) => {
      const wrong = Buffer.from(whole);
      const place = whole.length >> 1;
      wrong[place] = (wrong[place] ?? 0) ^ 1;
      return wrong;
    },
  ],
])("with a template that is %s, a first start makes an empty database", async (_, damage) => {
  const [folder, from] = [newFolder(), newFolder()];
  writeFileSync(join(from, `${digest}.zst`), damage(readFileSync(template)));
  const { url } = await start(folder, from);
  expect(await isMigrated(url)).toBe(false);
  expect(readdirSync(folder).filter((name) => name.includes(".new-"))).toEqual([]);
});

test("a template of other sources, or from the future, is not used", async () => {
  const from = newFolder();
  copyFileSync(template, join(from, `${"0".repeat(64)}.zst`));
  expect(findTemplate(from, digest)).toBeUndefined();
  expect(await isMigrated((await start(newFolder(), from)).url)).toBe(false);
  const path = join(from, `${digest}.zst`);
  copyFileSync(template, path);
  expect(findTemplate(from, digest)).toBe(path);
  const later = Date.now() / 1000 + 86_400;
  utimesSync(path, later, later);
  expect(findTemplate(from, digest)).toBeUndefined();
});

test("the digest changes with each migration, and not with a time", () => {
  const from = newFolder();
  const folder = join(from, "src/postgres/migrations");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "0001_first.sql");
  writeFileSync(file, "select 1;");
  const before = digestSources("18.4", from);
  utimesSync(file, 1, 1);
  expect(digestSources("18.4", from)).toBe(before);
  const digests = [before, digestSources("18.5", from)];
  writeFileSync(join(folder, "0002_second.sql"), "");
  digests.push(digestSources("18.4", from));
  writeFileSync(file, "select 2;");
  digests.push(digestSources("18.4", from));
  expect(new Set(digests).size).toBe(4);
});

/** Starts the database in a process of its own. Resolves with its URL. */
async function startElsewhere(folder: string, killAt?: string): Promise<string> {
  const embedded = JSON.stringify(join(root, "src/postgres/embedded/embedded.ts"));
  const program = `
    const { startEmbedded } = await import(${embedded});
    const { createLog } = await import(${JSON.stringify(join(root, "src/base/log.ts"))});
    const { url } = await startEmbedded(process.argv[1], createLog("silent"),
      { templates: process.argv[2] });
    console.log(url);`;
  const preload = join(root, "test/support/kill-at-file.ts");
  const args = ["--import", preload, "--input-type=module", "-e", program, folder, templates];
  const env = { ...process.env, KILL_AT: killAt };
  return (await run(process.execPath, args, { env })).stdout.trim();
}

test.each(["writeFileSync 1", "writeFileSync 700", "writeFile 1", "rename 1"])(
  "a first start that was killed before %s leaves nothing that the next one takes for whole",
  async (moment) => {
    const folder = newFolder();
    await expect(startElsewhere(folder, moment)).rejects.toMatchObject({ signal: "SIGKILL" });
    const left = readdirSync(folder);
    expect(left.filter((name) => !name.startsWith("postgres.new-"))).toEqual([]);
    expect(left).toHaveLength(1);
    const { url } = await start(folder);
    expect(await query(url, applied)).toEqual(numbers);
  },
);

test("processes that start at once on an empty folder share one database", async () => {
  const folder = newFolder();
  const urls = await Promise.all([
    startElsewhere(folder),
    startElsewhere(folder),
    start(folder).then(({ url }) => url),
  ]);
  expect(new Set(urls).size).toBe(1);
  expect(await query(urls[0] ?? "", applied)).toEqual(numbers);
  expect(readdirSync(folder).filter((name) => name.includes(".new-"))).toEqual([]);
});

/** Sends a paid request, and resolves with what the verifier says of the ledger. */
async function payAndVerify(address: string, dataDir: string): Promise<string> {
  const { v1 } = JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
  const answer = await fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": String(v1),
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 10,
      messages: [{ role: "user", content: "[[simulate first_token_ms=0 token_ms=0]]" }],
    }),
  });
  expect(answer.status).toBe(200);
  await answer.text();
  const env = { ...process.env, DATA_DIR: dataDir, LOG_LEVEL: "silent" };
  return (await run(process.execPath, [join(root, "src/cli/verify-ledger.ts")], { env })).stdout;
}

test("a first start from the template of `npm run build` makes keys that pay", async () => {
  if (!findTemplate(templateFolder, digest)) await writeTemplate();
  const dataDir = newFolder();
  const gateway = await startChildGateway({ DATA_DIR: dataDir, LOG_LEVEL: "debug" });
  cleanups.push(() => gateway.end("SIGTERM"));
  expect(gateway.stderr()).toContain("the database is made from a template");
  expect(gateway.stdout()).toContain(join(dataDir, "first-keys.json"));
  expect(await payAndVerify(gateway.address, dataDir)).toBe("the ledger is consistent\n");
});

test("a first start from a template that is years old serves and charges", async () => {
  const dataDir = newFolder();
  const embedded = await start(dataDir);
  await query(
    embedded.url,
    `with m as (update migrations set applied_at = applied_at - interval '10 years')
     update alert_progress
     set events_at = events_at - interval '10 years'`,
  );
  await embedded.stop();
  const gateway = await startChildGateway({ DATA_DIR: dataDir });
  cleanups.push(() => gateway.end("SIGTERM"));
  expect(await payAndVerify(gateway.address, dataDir)).toBe("the ledger is consistent\n");
});
