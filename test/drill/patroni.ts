// A drill by hand: failovers of a synchronous pair under Patroni, with two gateways under load.
//
//   apt-get install patroni etcd-server        # and PostgreSQL 15, as Debian has them
//   node test/drill/patroni.ts 10              # as root: ten failovers, then two switchovers
//
// A failover kills the primary and its Patroni with SIGKILL. The output is a Markdown table, which
// docs/operating/high-availability.md shows; after each event every answer is compared with its
// charge.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { Client } from "pg";
import { catalogFor } from "../support/catalog.ts";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import { answerOf, createClients, numbered, usageOf } from "../support/crash-cluster.ts";
import { freePort } from "../support/ports.ts";
import { startFakeProvider } from "../support/provider.ts";

const run = promisify(execFile);
const perSecond = 60;
const binaries = "/usr/lib/postgresql/15/bin";

type Member = { readonly name: string; readonly port: number; process: ChildProcess | undefined };
type Sent = {
  readonly number: number;
  readonly endedAtMs: number;
  readonly seen: Awaited<ReturnType<typeof clients.send>>;
};

const failovers = Number(process.argv[2] ?? 10);
const folder = await mkdtemp(join(tmpdir(), "patroni-drill-"));
await run("chmod", ["755", folder]);
let nextNumber = 1;
const clients = createClients();
const { stdout: postgresUser } = await run("id", ["-u", "postgres"]);
const etcdPort = await freePort();
const members: readonly Member[] = [
  { name: "a", port: await freePort(), process: undefined },
  { name: "b", port: await freePort(), process: undefined },
];
const list = members.map(({ port }) => `127.0.0.1:${port}`).join(",");
const databaseUrl = `postgres://gateway@${list}/gateway?target_session_attrs=read-write`;

const etcd = await startEtcd();
for (const member of members) await createMember(member);
for (const member of members) startMember(member);
await untilSynchronous();
await query(await primary(), "create role gateway login in role pg_monitor", "postgres");
await query(await primary(), "create database gateway owner gateway", "postgres");

const provider = await startFakeProvider();
provider.always(answerOf);
const catalog = join(folder, "catalog.yaml");
await writeFile(catalog, catalogFor({ real: { kind: "anthropic", url: provider.url } }));
const env = {
  DATABASE_URL: databaseUrl,
  ADMIN_TOKEN: "the-admin-token-of-a-drill",
  CONFIG: catalog,
  DATA_DIR: folder,
  SEED: "true",
  REQUIRE_SYNC: "true",
  LOG_LEVEL: "warn",
};
const gateways = [await startChildGateway(env), await startChildGateway(env)];
const keys: unknown = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
const secret = String(Object(keys).v1);

console.log("| event | writes away | requests | failed (503) | other | lost | doubled | ledger |");
console.log("|---|--:|--:|--:|--:|--:|--:|---|");
for (let round = 1; round <= failovers; round++)
  await measure(`primary and Patroni killed, ${round}`, killPrimary);
for (let round = 1; round <= 2; round++) await measure(`planned switchover, ${round}`, switchOver);

for (const gateway of gateways) await gateway.end("SIGTERM");
await provider.stop();
await clients.close();
for (const { process } of members) await end(process, "SIGTERM");
await end(etcd, "SIGTERM");
await rm(folder, { recursive: true, force: true });

/** Ten seconds of load before the event, and ten after the writes are back. */
async function measure(event: string, cause: () => Promise<void>): Promise<void> {
  const load = startLoad(gateways);
  await delay(10_000);
  const beganAtMs = performance.now();
  await cause();
  await until(() =>
    load.ended.some(({ seen, endedAtMs }) => seen.complete && endedAtMs > beganAtMs + 3_000),
  );
  await untilSynchronous();
  await delay(10_000);
  const ended = await load.stop();
  await until(async () => (await holds()) === 0);
  const result = await compare(ended);
  const gapMs = longestGapMs(ended, beganAtMs);
  console.log(
    `| ${event} | ${(gapMs / 1000).toFixed(1)} s | ${ended.length} | ${result.join(" | ")} |`,
  );
}

function startLoad(targets: readonly ChildGateway[]) {
  const ended: Sent[] = [];
  const running = new Set<Promise<void>>();
  const timer = setInterval(() => {
    const number = nextNumber++;
    const address = targets[number % targets.length]?.address ?? "";
    const body = { ...numbered(number), stream: number % 2 === 0 };
    const sending = clients.send({ address, secret, body }).then((seen) => {
      ended.push({ number, endedAtMs: performance.now(), seen });
      running.delete(sending);
    });
    running.add(sending);
  }, 1_000 / perSecond);
  return {
    ended,
    async stop(): Promise<readonly Sent[]> {
      clearInterval(timer);
      await Promise.all(running);
      return ended;
    },
  };
}

/** The longest time without a complete answer. */
function longestGapMs(ended: readonly Sent[], fromMs: number): number {
  const times = ended
    .filter(({ seen, endedAtMs }) => seen.complete && endedAtMs > fromMs - 1_000)
    .map(({ endedAtMs }) => endedAtMs)
    .sort((a, b) => a - b);
  return Math.max(...times.slice(1).map((at, index) => at - (times[index] ?? at)));
}

/** Failed with 503, failed otherwise, lost charges, doubled charges, and what the verifier says. */
async function compare(ended: readonly Sent[]): Promise<(number | string)[]> {
  const ids = ended.flatMap(({ seen }) => seen.requestId ?? []);
  const rows = await query<{ request_id: string; amount: string }>(
    await primary(),
    `select request_id, amount from charges where request_id = any('{${ids.join(",")}}')`,
  );
  const charges = Map.groupBy(rows, ({ request_id }) => request_id);
  let [refused, other, lost, doubled] = [0, 0, 0, 0];
  for (const { number, seen } of ended) {
    const charged = charges.get(seen.requestId ?? "") ?? [];
    const sum = charged.reduce((all, { amount }) => all + BigInt(amount), 0n);
    const expected = seen.complete ? usageOf(number).cost : 0n;
    if (!seen.complete) seen.status === 503 ? refused++ : other++;
    if (sum < expected) lost++;
    if (sum > expected) doubled++;
  }
  const verify = join(import.meta.dirname, "../../src/cli/verify-ledger.ts");
  const verified = await run(process.execPath, [verify], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
  }).then(
    ({ stdout }) => stdout.trim(),
    ({ stdout }) => String(stdout).trim(),
  );
  return [refused, other, lost, doubled, verified];
}

async function killPrimary(): Promise<void> {
  const member = await primary();
  const pid = await readFile(join(folder, member.name, "data/postmaster.pid"), "utf8");
  const backends = await query<{ pid: number }>(member, "select pid from pg_stat_activity");
  await end(member.process, "SIGKILL");
  for (const one of [Number.parseInt(pid, 10), ...backends.map((row) => row.pid)]) {
    try {
      process.kill(one, "SIGKILL");
    } catch {
      // It has exited.
    }
  }
  // The standby is promoted after the leader's key has expired; then the old primary comes back.
  await until(async () => (await primary().catch(() => member)) !== member);
  startMember(member);
}

async function switchOver(): Promise<void> {
  const leader = (await primary()).name;
  const config = join(folder, `${leader}.yml`);
  await run("patronictl", ["-c", config, "switchover", "drill", "--leader", leader, "--force"]);
}

async function primary(): Promise<Member> {
  for (const member of members) {
    const [row] = await query<{ standby: boolean }>(
      member,
      "select pg_is_in_recovery() as standby",
      "postgres",
    ).catch(() => []);
    if (row?.standby === false) return member;
  }
  throw new Error("there is no primary");
}

function untilSynchronous(): Promise<void> {
  const sql = "select 1 from pg_stat_replication where sync_state = 'sync'";
  return until(async () => (await query(await primary(), sql, "postgres")).length === 1);
}

async function holds(): Promise<number> {
  return (await query(await primary(), "select from holds")).length;
}

async function query<Row extends object>(
  { port }: Member,
  sql: string,
  database = "gateway",
): Promise<Row[]> {
  const client = new Client({
    connectionString: `postgres://postgres@127.0.0.1:${port}/${database}`,
    connectionTimeoutMillis: 2_000,
    query_timeout: 10_000,
  });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    void client.end().catch(() => undefined);
  }
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await Promise.resolve(condition()).catch(() => false))) await delay(100);
}

async function startEtcd(): Promise<ChildProcess> {
  const [client, peer] = [`http://127.0.0.1:${etcdPort}`, `http://127.0.0.1:${await freePort()}`];
  const child = spawn(
    "etcd",
    [
      ...["--data-dir", join(folder, "etcd"), "--log-level", "error"],
      ...["--listen-client-urls", client, "--advertise-client-urls", client],
      ...["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer],
      ...["--initial-cluster", `default=${peer}`],
    ],
    { stdio: "ignore" },
  );
  return child;
}

async function createMember({ name, port }: Member): Promise<void> {
  await mkdir(join(folder, name));
  await chown(join(folder, name), Number(postgresUser), -1);
  const rest = `127.0.0.1:${await freePort()}`;
  const settings = {
    scope: "drill",
    name,
    restapi: { listen: rest, connect_address: rest },
    etcd3: { host: `127.0.0.1:${etcdPort}` },
    bootstrap: {
      dcs: {
        ttl: 20,
        loop_wait: 5,
        retry_timeout: 5,
        synchronous_mode: true,
        postgresql: {
          use_pg_rewind: true,
          parameters: { max_connections: 200, wal_log_hints: "on", wal_keep_size: "256MB" },
        },
      },
      initdb: [{ encoding: "UTF8" }, { locale: "C" }],
      pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
    },
    postgresql: {
      listen: `127.0.0.1:${port}`,
      connect_address: `127.0.0.1:${port}`,
      data_dir: join(folder, name, "data"),
      bin_dir: binaries,
      pgpass: join(folder, name, "pgpass"),
      authentication: {
        superuser: { username: "postgres", password: "x" },
        replication: { username: "replicator", password: "x" },
        rewind: { username: "rewinder", password: "x" },
      },
      parameters: { unix_socket_directories: "", shared_buffers: "64MB" },
    },
  };
  await writeFile(join(folder, `${name}.yml`), JSON.stringify(settings));
}

function startMember(member: Member): void {
  member.process = spawn(
    "setpriv",
    [
      "--reuid=postgres",
      "--regid=postgres",
      "--init-groups",
      "patroni",
      join(folder, `${member.name}.yml`),
    ],
    { stdio: "ignore" },
  );
}

async function end(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill(signal);
  await ended;
}
