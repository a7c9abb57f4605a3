// A gateway process dies, and the holds that it leaves become free soon: at once where its end can
// be known, after twelve polls elsewhere, and never because the database was away.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";
import { log } from "../support/ledger.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";
import { query } from "../support/query.ts";
import { logged } from "../support/workers.ts";

const content = { text: ["x".repeat(40), "y".repeat(40)], usage: { input: 11, output: 9 } };
const events = nativeEvents(content);
const credits = 1_000_000_000n;

/** A node is dead at this many polls without a heartbeat. The next poll may come before its end. */
const deadPolls = 12;

describe("of a process that is killed", () => {
  let cluster: CrashCluster;
  beforeAll(async () => {
    cluster = await startCrashCluster();
  });
  afterAll(() => cluster.stop());

  /** As if every process ran on another machine than the ones that poll it. */
  const scatter = () => cluster.ledger.run("update nodes set process = ''");
  const nodesOfHolds = async () =>
    (await cluster.ledger.run<{ node_id: string }>("select distinct node_id from holds")).map(
      ({ node_id }) => node_id,
    );
  const silence = async (nodeId: string | undefined) =>
    (
      await cluster.ledger.run<{ silent_polls: number }>(
        "select silent_polls from nodes where node_id = $1",
        [nodeId],
      )
    )[0]?.silent_polls;

  /** Sends a request whose answer does not end. Returns the node that holds its credits. */
  async function startAnswer(gateway: ChildGateway) {
    const { payer, secret } = await cluster.key(credits);
    cluster.provider.always({ ...nativeStream(), writes: [...events.slice(0, 3), new Gate()] });
    const seen = cluster.send(gateway, secret);
    const holder = async () => {
      const text = "select node_id from holds where account_id = $1";
      return (await cluster.ledger.run<{ node_id: string }>(text, [payer.accountId]))[0]?.node_id;
    };
    await expect.poll(holder).toBeDefined();
    return { seen, nodeId: await holder() };
  }

  /** Waits until the holds of the node are free. Returns the most silent polls that it had. */
  async function untilReaped(
    nodeId: string | undefined,
    during: (polls: number) => Promise<void> = async () => {},
  ): Promise<number> {
    let polls = 0;
    while ((await nodesOfHolds()).includes(nodeId ?? "")) {
      polls = Math.max(polls, (await silence(nodeId)) ?? 0);
      await during(polls);
      await delay(20);
    }
    return polls;
  }

  test("another process of the machine settles its requests at its next poll", async () => {
    const other = await cluster.start();
    const gateway = await cluster.start();
    const { nodeId, seen } = await startAnswer(gateway);
    await gateway.end("SIGKILL");
    expect(await untilReaped(nodeId)).toBeLessThan(deadPolls / 2);
    expect((await seen).complete).toBe(false);
    await other.end("SIGTERM");
  });

  test("its successor settles its requests at once", async () => {
    const gateway = await cluster.start();
    const { nodeId } = await startAnswer(gateway);
    await gateway.end("SIGKILL");
    const next = await cluster.start();
    expect(await untilReaped(nodeId)).toBeLessThan(deadPolls / 2);
    await next.end("SIGTERM");
  });

  test("a process of another machine settles its requests after twelve polls", async () => {
    const other = await cluster.start();
    const gateway = await cluster.start();
    const { nodeId } = await startAnswer(gateway);
    await scatter();
    await gateway.end("SIGKILL");
    const polls = await untilReaped(nodeId);
    expect(polls).toBeGreaterThanOrEqual(deadPolls - 1);
    expect(polls).toBeLessThanOrEqual(deadPolls + 1);
    expect(await cluster.ledger.store.verifyLedger()).toEqual([]);
    await other.end("SIGTERM");
  });

  test("processes that crash every few polls settle its requests after twelve polls together", async () => {
    const gateway = await cluster.start();
    const { nodeId } = await startAnswer(gateway);
    await scatter();
    await gateway.end("SIGKILL");
    let crashes = 0;
    let next = await cluster.start();
    let before = (await silence(nodeId)) ?? 0;
    const polls = await untilReaped(nodeId, async (silent) => {
      await scatter();
      if (silent - before < 3) return;
      await next.end("SIGKILL");
      crashes++;
      before = silent;
      next = await cluster.start();
    });
    expect(crashes).toBeGreaterThanOrEqual(2);
    expect(polls).toBeGreaterThanOrEqual(deadPolls - 1);
    expect(polls).toBeLessThanOrEqual(deadPolls + 1);
    await next.end("SIGTERM");
  });
});

describe("of a worker, where no process can look up another", () => {
  let cluster: CrashCluster;
  beforeAll(async () => {
    cluster = await startCrashCluster();
  });
  afterAll(() => cluster.stop());

  type Worker = { nodeId: string; pid: number };

  /** Two workers, each with an answer that does not end, and with one that has ended. */
  async function startWorkers() {
    const gateway = await cluster.start({ WORKERS: "2", LOG_LEVEL: "info" });
    await logged(gateway, "worker ready", 2);
    const { secret } = await cluster.key(credits);
    cluster.provider.always(nativeStream(content));
    const ended = [];
    for (let answer = 0; answer < 4; answer++) ended.push(await cluster.send(gateway, secret));
    cluster.provider.always({ ...nativeStream(), writes: [...events.slice(0, 3), new Gate()] });
    const running = [];
    while ((await workersWithHolds()).length < 2) {
      running.push(cluster.send(gateway, secret));
      await delay(50);
    }
    const workers = await workersWithHolds();
    await cluster.ledger.run("update nodes set process = ''");
    return { gateway, workers, ended, running };
  }

  async function workersWithHolds(): Promise<Worker[]> {
    const rows = await cluster.ledger.run<{ node_id: string; process: string }>(
      "select node_id, process from nodes where node_id in (select node_id from holds)",
    );
    // `<machine>/<pid>/<start>`
    return rows.map(({ node_id, process }) => ({
      nodeId: node_id,
      pid: Number(process.split("/").at(-2)),
    }));
  }

  async function untilFree(worker: Worker): Promise<void> {
    const held = "select from holds where node_id = $1";
    while ((await cluster.ledger.run(held, [worker.nodeId])).length > 0) {
      const [row] = await cluster.ledger.run<{ silent_polls: number }>(
        "select silent_polls from nodes where node_id = $1",
        [worker.nodeId],
      );
      expect(row?.silent_polls ?? 0).toBeLessThan(deadPolls / 2);
      await delay(20);
    }
  }

  /** Every answer that was seen complete has its charge, and no request has two. */
  async function checkCharges(ended: readonly { requestId: string | undefined }[]): Promise<void> {
    for (const { requestId } of ended)
      expect(await cluster.chargeOf(requestId)).toMatchObject({ outcome: Outcome.COMPLETED });
    expect(
      await cluster.ledger.run("select request_id from charges group by 1 having count(*) > 1"),
    ).toEqual([]);
    expect(await cluster.ledger.store.verifyLedger()).toEqual([]);
  }

  test("the other worker settles its requests at once, by the word of their parent", async () => {
    const { gateway, workers, ended } = await startWorkers();
    const [killed, other] = workers;
    if (!killed || !other) throw new Error("no workers");
    process.kill(killed.pid, "SIGKILL");
    await untilFree(killed);
    // The word is about one process only.
    expect(
      await cluster.ledger.run("select from holds where node_id = $1", [other.nodeId]),
    ).not.toEqual([]);
    await checkCharges(ended);
    await gateway.end("SIGKILL");
    await cluster.recover();
  });

  test("the workers that replace all of them settle their requests at once", async () => {
    const { gateway, workers, ended } = await startWorkers();
    for (const { pid } of workers) process.kill(pid, "SIGKILL");
    for (const worker of workers) await untilFree(worker);
    await checkCharges(ended);
    await gateway.end("SIGKILL");
    await cluster.recover();
  });

  test("a worker that hangs keeps its requests", async () => {
    const { gateway, workers } = await startWorkers();
    const [hung] = workers;
    if (!hung) throw new Error("no worker");
    process.kill(hung.pid, "SIGSTOP");
    const silent = async () =>
      (
        await cluster.ledger.run<{ silent_polls: number }>(
          "select silent_polls from nodes where node_id = $1",
          [hung.nodeId],
        )
      )[0]?.silent_polls ?? 0;
    await expect.poll(silent).toBeGreaterThanOrEqual(3);
    process.kill(hung.pid, "SIGCONT");
    await expect.poll(silent).toBeLessThan(3);
    expect(
      await cluster.ledger.run("select from holds where node_id = $1", [hung.nodeId]),
    ).not.toEqual([]);
    await gateway.end("SIGKILL");
    await cluster.recover();
  });
});

// The time for which a process would long be dead, if it were counted by the clock.
const awayMs = 20_000;

describe("while the database is away for 20 s, no process is dead", () => {
  for (const [how, signal] of [
    ["killed", "SIGKILL"],
    ["hung", "SIGSTOP"],
  ] as const) {
    test(`because it was ${how}`, async () => {
      const cluster = await startCrashCluster();
      const folder = join(cluster.catalogPath, "../database");
      const embedded = await startEmbedded(folder, log);
      const postgres = connectPostgres(embedded.url);
      const run = <Row>(text: string) => query<Row>(postgres, { name: "", text }, []);
      await run("alter system set fsync = off");
      await run("select pg_reload_conf()");
      const env = { DATABASE_URL: embedded.url, SEED: "true" };
      const gateways = [await cluster.start(env), await cluster.start(env)];
      const keys: unknown = JSON.parse(await readFile(join(folder, "../first-keys.json"), "utf8"));
      const secret = String(Object(keys).v1);
      const gate = new Gate();
      cluster.provider.always({
        ...nativeStream(),
        writes: [...events.slice(0, 3), gate, ...events.slice(3)],
      });
      const answers = gateways.map((gateway) => cluster.send(gateway, secret));
      const holds = "select node_id, request_id from holds order by 1";
      await expect.poll(() => run(holds)).toHaveLength(2);
      await run("update nodes set process = ''");
      const nodes = "select node_id from nodes order by node_id";
      const before = await run(nodes);

      const server = (await run<{ pid: number }>("select pid from pg_stat_activity")).map(
        ({ pid }) => pid,
      );
      const pidFile = await readFile(join(folder, "postgres/postmaster.pid"), "utf8");
      const all = [Number(pidFile.split("\n")[0]), ...server];
      for (const pid of all) sendSignal(pid, signal);
      await delay(awayMs);
      if (signal === "SIGSTOP") for (const pid of all) sendSignal(pid, "SIGCONT");
      else await startEmbedded(folder, log);

      // Each process has found its row again: it counts the polls since then.
      const silent = "select node_id from nodes where silent_polls >= 2";
      await expect.poll(() => run(silent).catch(() => "away")).toEqual([]);
      gate.open();
      for (const seen of await Promise.all(answers)) expect(seen.complete).toBe(true);
      expect(await run(nodes)).toEqual(before);
      const outcomes = await run<{ outcome: string }>("select outcome from charges");
      expect(outcomes).toEqual([{ outcome: "completed" }, { outcome: "completed" }]);
      for (const gateway of gateways) await gateway.end("SIGTERM");
      await postgres.close();
      await embedded.stop();
      await cluster.stop();
    });
  }
});

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has exited.
  }
}
