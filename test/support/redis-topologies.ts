// A Redis Cluster of three servers, and a primary with a replica that sentinels watch.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis as Connection } from "ioredis";
import type { Pair } from "./certificates.ts";
import { freePort } from "./ports.ts";
import { redisBinary } from "./programs.ts";

/** A certificate of the servers, and who signed it. */
type Tls = Pair & { readonly authority: Buffer };
export type TopologyOptions = {
  /** The servers, and sentinels, speak TLS only. */
  readonly tls?: Tls;
  /** More lines for the file of each server that keeps data. */
  readonly lines?: readonly string[];
};
type Server = { readonly port: number; readonly process: ChildProcess; call: Call };
type Call = (name: string, ...args: (string | number)[]) => Promise<unknown>;

export type Topology = {
  readonly url: string;
  /** Runs a command at the server of this number. */
  call(server: number, name: string, ...args: (string | number)[]): Promise<unknown>;
  /** Kills the server of this number, as a crash does. */
  kill(server: number): void;
  stop(): Promise<void>;
};

const slots = 16_384;

export async function startRedisServer(options: TopologyOptions = {}): Promise<Topology> {
  const stage = await openStage(options);
  const { port } = await stage.start([]);
  return { url: `${stage.scheme}://localhost:${port}`, ...stage.topology };
}

/** Three servers, each with a third of the slots. */
export async function startRedisCluster(options: TopologyOptions = {}): Promise<Topology> {
  const stage = await openStage(options);
  for (let index = 0; index < 3; index++)
    await stage.start(["--cluster-enabled", "yes", "--cluster-port", String(await freePort())]);
  const third = Math.ceil(slots / 3);
  for (const [index, { call }] of stage.servers.entries()) {
    await call("cluster", "addslotsrange", index * third, Math.min(slots, (index + 1) * third) - 1);
    await call("cluster", "set-config-epoch", index + 1);
  }
  const [first, ...others] = stage.servers;
  if (first)
    for (const { call } of others)
      await call("cluster", "meet", "127.0.0.1", first.port, await busPortOf(first));
  for (const { call } of stage.servers)
    while (!String(await call("cluster", "info")).includes("cluster_state:ok")) await delay(50);
  return {
    url: `${stage.scheme}+cluster://${addressesOf(stage.servers)}`,
    ...stage.topology,
  };
}

async function busPortOf({ call }: Server): Promise<number> {
  const [, port] = (await call("config", "get", "cluster-port")) as [string, string];
  return Number(port);
}

const addressesOf = (servers: readonly Server[]) =>
  servers.map(({ port }) => `127.0.0.1:${port}`).join(",");

/**
 * A primary (0), its replica (1) and three sentinels, which promote it `downMs` after a crash.
 * Default: 1 s.
 */
export async function startSentinels({
  downMs = 1_000,
  ...options
}: TopologyOptions & { readonly downMs?: number } = {}): Promise<Topology> {
  const stage = await openStage(options);
  const primary = await stage.start([]);
  await stage.start(["--replicaof", "127.0.0.1", String(primary.port)]);
  const sentinels: Server[] = [];
  for (let index = 0; index < 3; index++) {
    const sentinel = await stage.start(
      [],
      [
        `sentinel monitor main 127.0.0.1 ${primary.port} 2`,
        `sentinel down-after-milliseconds main ${downMs}`,
        "sentinel failover-timeout main 5000",
      ],
    );
    sentinels.push(sentinel);
  }
  const known = async ({ call }: Server) => {
    const [fields] = (await call("sentinel", "replicas", "main")) as string[][];
    const others = (await call("sentinel", "sentinels", "main")) as unknown[];
    return fields !== undefined && others.length === 2;
  };
  for (const sentinel of sentinels) while (!(await known(sentinel))) await delay(100);
  return {
    url: `${stage.scheme}+sentinel://${addressesOf(sentinels)}/main`,
    ...stage.topology,
  };
}

async function openStage({ tls, lines = [] }: TopologyOptions) {
  const folder = await mkdtemp(join(tmpdir(), "gateway-redis-"));
  const servers: Server[] = [];
  const connections: Connection[] = [];

  /** With `sentinel`, a sentinel that has these lines in its file. */
  async function start(args: readonly string[], sentinel?: readonly string[]): Promise<Server> {
    if (!redisBinary) throw new Error("no redis-server is installed");
    const port = await freePort();
    const home = join(folder, String(port));
    await mkdir(home);
    const file = join(home, "redis.conf");
    if (tls) {
      await writeFile(join(home, "certificate.pem"), tls.certificate);
      await writeFile(join(home, "key.pem"), tls.privateKey);
      await writeFile(join(home, "authority.pem"), tls.authority);
    }
    const ports = tls
      ? [
          ...["port 0", `tls-port ${port}`, "tls-cluster yes", "tls-replication yes"],
          "tls-auth-clients no",
          ...[`tls-cert-file ${home}/certificate.pem`, `tls-key-file ${home}/key.pem`],
          `tls-ca-cert-file ${home}/authority.pem`,
        ]
      : [`port ${port}`];
    await writeFile(
      file,
      [...ports, "bind 127.0.0.1", `dir ${home}`, ...(sentinel ?? ["save ''", ...lines])].join(
        "\n",
      ),
    );
    const mode = sentinel ? ["--sentinel"] : [];
    const child = spawn(redisBinary, [file, ...args, ...mode], { stdio: "ignore" });
    const connection = new Connection(port, "127.0.0.1", {
      maxRetriesPerRequest: null,
      ...(tls && { tls: { rejectUnauthorized: false } }),
    });
    connection.on("error", () => {});
    connections.push(connection);
    const call: Call = (name, ...more) => connection.call(name, ...more.map(String));
    await call("ping");
    const server = { port, process: child, call };
    servers.push(server);
    return server;
  }

  const topology = {
    call: (index: number, name: string, ...args: (string | number)[]) => {
      const server = servers[index];
      if (!server) throw new Error(`no server ${index}`);
      return server.call(name, ...args);
    },
    kill: (index: number) => void servers[index]?.process.kill("SIGKILL"),
    async stop() {
      for (const connection of connections) connection.disconnect();
      for (const { process } of servers) process.kill("SIGKILL");
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return { servers, start, topology, scheme: tls ? "rediss" : "redis" };
}
