// A started gateway with few descriptors under load, while its database is killed, its Redis goes
// and comes back, its disk is full and it has no descriptor left: everybody who got a whole answer
// is charged exactly, everybody else at most once, and nothing ends that should stand.
//
// MIXED_LOAD_MINUTES makes it last longer, with the faults of a round every five minutes.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, expect, test } from "vitest";
import { createLedgerStore } from "../../src/billing/store.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { catalogFor } from "../support/catalog.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type ClientView,
  createClients,
  numbered,
  usageOf,
} from "../support/crash-cluster.ts";
import { log } from "../support/ledger.ts";
import { redisBinary } from "../support/programs.ts";
import { startFakeProvider } from "../support/provider.ts";
import { query } from "../support/query.ts";
import { startRedis } from "../support/redis.ts";
import { logged, logLines } from "../support/workers.ts";

const minutes = Number(process.env.MIXED_LOAD_MINUTES ?? 0);
const rounds = Math.max(2, Math.ceil(minutes / 5));
const roundMs = (minutes * 60_000) / rounds;
const clientsAtOnce = 6;
/** How long the disk stays full once the gateway has noticed. */
const fullMs = 3_000;
/** A provider with pauses in its answers: the processors are for the gateway. */
const pauseMs = 20;

const folder = mkdtempSync(join(tmpdir(), "gateway-mixed-"));
const clients = createClients();
const cleanups: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** A disk of its own, which can be full. Undefined: this machine lets nobody mount one. */
function mountDisk() {
  const path = join(folder, "disk");
  mkdirSync(path);
  const mount = (...options: string[]) =>
    execFileSync("mount", [...options, path], { stdio: "ignore" });
  try {
    mount("-t", "tmpfs", "-o", "size=4g", "tmpfs");
  } catch {
    console.warn("skipped: the disk is never full, since nobody may mount one here");
    return undefined;
  }
  cleanups.push(() => execFileSync("umount", ["--lazy", path]));
  return {
    path,
    /** Takes all that is free. */
    fill() {
      for (;;) {
        const { blocks, bfree, bsize } = statfsSync(path);
        try {
          mount("-o", `remount,size=${(blocks - bfree) * bsize}`);
          return;
        } catch {
          // It has grown meanwhile.
        }
      }
    },
    free: () => void mount("-o", "remount,size=4g"),
  };
}

/** Clients that send one request after another, until they are stopped. */
function startLoad(address: string, secret: string) {
  const seen: { number: number; view: ClientView; atMs: number }[] = [];
  let isOn = true;
  let sent = 0;
  const client = async () => {
    while (isOn) {
      const number = sent++;
      const body = { ...numbered(number), stream: number % 5 > 0 };
      const view = await clients.send({ address, secret, body });
      seen.push({ number, view, atMs: performance.now() });
      // As SDKs do: a client that was refused waits.
      if (!view.complete) await delay(50);
    }
  };
  const running = Promise.all(Array.from({ length: clientsAtOnce }, client));
  const complete = () => seen.filter(({ view }) => view.complete).length;
  return {
    seen,
    /** Resolves after so many more whole answers. */
    async served(answers: number) {
      const wanted = complete() + answers;
      await expect.poll(complete, { timeout: 120_000 }).toBeGreaterThanOrEqual(wanted);
    },
    async stop() {
      isOn = false;
      await running;
    },
  };
}

async function readCharges(dataDir: string) {
  const embedded = await startEmbedded(dataDir, log);
  const postgres = connectPostgres(embedded.url);
  try {
    const text = `select request_id as id, amount as micro from charges`;
    const rows = await query<{ id: string; micro: bigint }>(postgres, { name: "", text }, []);
    const holds = await query(postgres, { name: "", text: "select request_id from holds" }, []);
    const violations = await createLedgerStore(postgres).verifyLedger();
    return { charges: new Map(rows.map(({ id, micro }) => [id, micro])), holds, violations };
  } finally {
    await postgres.close();
    await embedded.stop();
  }
}

/** Opens more connections than a process with 256 descriptors can take. Returns how to end them. */
function floodWithConnections(address: string): () => void {
  const { hostname, port } = new URL(address);
  const sockets = Array.from({ length: 400 }, (): Socket => {
    const socket = connect(Number(port), hostname);
    return socket.on("error", () => {});
  });
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

test.skipIf(!redisBinary)(
  "a gateway under a mixed load stands, and charges exactly",
  {
    timeout: 600_000 + minutes * 60_000,
  },
  async () => {
    const disk = mountDisk();
    const dataDir = join(disk?.path ?? folder, "data");
    mkdirSync(dataDir);
    const redis = await startRedis();
    cleanups.push(() => redis.stop());
    const provider = await startFakeProvider({ record: false });
    cleanups.push(() => provider.stop());
    provider.always((request) => answerOf(request, pauseMs));
    const catalogPath = join(folder, "catalog.yaml");
    writeFileSync(catalogPath, catalogFor({ real: { kind: "anthropic", url: provider.url } }));
    const gateway = await startChildGateway({
      DATA_DIR: dataDir,
      CONFIG: catalogPath,
      REDIS_URL: redis.url,
      SEED: "true",
      LOG_LEVEL: "info",
    });
    // So that its database ends, too.
    cleanups.push(() => gateway.end("SIGTERM"));
    const keys = Object(JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8")));
    const { address } = gateway;
    const granted = await fetch(`${address}/gateway.billing.v1.BillingService/CreateTransfer`, {
      method: "POST",
      headers: { authorization: `Bearer ${keys.adminToken}`, "content-type": "application/json" },
      body: JSON.stringify({
        accountId: keys.accountId,
        family: "FAMILY_V1",
        kind: "TRANSFER_KIND_PURCHASE",
        amountMicrocredits: "1000000000000",
        idempotencyKey: "mixed-load",
        reason: "a mixed load",
      }),
    });
    expect(granted.status).toBe(200);
    execFileSync("prlimit", [`--pid=${gateway.process.pid}`, "--nofile=256:256"]);

    const load = startLoad(address, String(keys.v1));
    await load.served(20);
    for (let round = 0; round < rounds; round++) {
      const endAtMs = performance.now() + roundMs;
      const pidFile = readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8");
      process.kill(Number.parseInt(pidFile, 10), "SIGKILL");
      await logged(gateway, "accepts connections again", round + 1);
      await load.served(50);

      await redis.kill();
      await load.served(50);
      await redis.restart();
      await load.served(50);

      if (disk) {
        const troubles = () => logLines(gateway).filter(({ level }) => Number(level) >= 40).length;
        const before = troubles();
        disk.fill();
        await expect.poll(troubles, { timeout: 120_000 }).toBeGreaterThan(before);
        await delay(fullMs);
        disk.free();
        await load.served(50);
      }

      const end = floodWithConnections(address);
      await load.served(20);
      end();
      await load.served(50);
      // A charge that was refused while a part was away is made by now, or is on its way.
      await delay(Math.max(0, endAtMs - performance.now()));
    }
    await load.stop();
    const { code } = await gateway.end("SIGTERM");

    const complete = load.seen.filter(({ view }) => view.complete);
    const gaps = complete.map(({ atMs }, index) => atMs - (complete[index - 1]?.atMs ?? atMs));
    const lines = logLines(gateway);
    const alarms = lines.filter(
      ({ code }) => code === "uncaught_exception" || code === "internal_error",
    );
    console.log(
      `${load.seen.length} requests, ${complete.length} whole answers, ` +
        `longest gap ${Math.round(Math.max(...gaps))} ms`,
      Map.groupBy(
        lines.flatMap(({ code }) => (typeof code === "string" ? [code] : [])),
        (code) => code,
      )
        .entries()
        .map(([code, all]) => `${code} ${all.length}`)
        .toArray()
        .join(", "),
    );
    expect(alarms).toEqual([]);
    expect(code).toBe(0);

    const { charges, holds, violations } = await readCharges(dataDir);
    expect(violations).toEqual([]);
    expect(holds).toEqual([]);
    const wrong = load.seen.filter(({ number, view }) => {
      const micro = charges.get(view.requestId ?? "");
      const { cost } = usageOf(number);
      return view.complete ? micro !== cost : micro !== undefined && micro > cost;
    });
    expect(wrong).toEqual([]);
    expect(charges.size).toBeGreaterThanOrEqual(complete.length);
    expect(charges.size).toBeLessThanOrEqual(load.seen.length);
  },
);
