// Workers and their parent are killed under load. An answer that a client saw complete was charged
// exactly, and no other one was charged twice or beyond its usage.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type ClientView,
  type CrashCluster,
  numbered,
  startCrashCluster,
  usageOf,
} from "../support/crash-cluster.ts";
import { isAlive, logged, workerPids } from "../support/workers.ts";

const clients = 6;
const parents = 2;
/** Fewer than end a gateway. */
const deathsOfWorkers = 2;

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

async function startWorkers(): Promise<ChildGateway> {
  const gateway = await stage.start({ WORKERS: "2", LOG_LEVEL: "info" });
  await logged(gateway, "worker ready", 2);
  return gateway;
}

test("workers and parents killed under load lose no charge and double none", {
  timeout: 900_000,
}, async () => {
  const { payer, secret } = await stage.key(1_000_000_000_000n);
  // A client waits for its answer most of the time: the starts need the processors.
  stage.provider.always((request) => answerOf(request, 20));
  let gateway = await startWorkers();

  const seen: { number: number; seen: ClientView }[] = [];
  let sent = 0;
  let isRunning = true;
  const load = Array.from({ length: clients }, async () => {
    while (isRunning) {
      const number = sent++;
      const view = await stage.send(gateway, secret, {
        ...numbered(number),
        stream: number % 5 > 0,
      });
      seen.push({ number, seen: view });
      // Nobody listens between a killed parent and the next one.
      if (view.status === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
  // Counted in requests, not in seconds, so that a kill happens under load on any machine.
  const underLoad = () => stage.provider.received(stage.provider.requests.length + 30);

  for (let parent = 0; parent < parents; parent++) {
    for (let death = 1; death <= deathsOfWorkers; death++) {
      await underLoad();
      const alive = workerPids(gateway).filter(isAlive);
      process.kill(alive[death % alive.length] ?? 0, "SIGKILL");
      await logged(gateway, "a worker died", death);
      await logged(gateway, "worker ready", 2 + death);
    }
    await underLoad();
    const killed = gateway;
    killed.process.kill("SIGKILL");
    gateway = await startWorkers();
  }
  await underLoad();
  isRunning = false;
  await Promise.all(load);
  expect((await gateway.end("SIGTERM")).code).toBe(0);
  await stage.recover();

  for (const { number, seen: view } of seen) {
    const charge = await stage.chargeOf(view.requestId);
    const { input, output, cost } = usageOf(number);
    if (view.complete)
      expect(charge).toMatchObject({
        outcome: Outcome.COMPLETED,
        chargedMicrocredits: cost,
        usage: { input, output },
      });
    // Its response head was sent, so it was admitted.
    else if (view.status === 200) expect(charge?.chargedMicrocredits).toBeLessThanOrEqual(cost);
  }
  const complete = seen.filter((one) => one.seen.complete);
  expect(complete.length).toBeGreaterThan(parents * deathsOfWorkers * 30);
  const [charged] = await stage.ledger.run<{ all: bigint; ids: bigint }>(
    "select count(*) as all, count(distinct request_id) as ids from charges where key_id = $1",
    [payer.keyId],
  );
  expect(charged?.all).toBe(charged?.ids);
  expect(charged?.all).toBeLessThanOrEqual(BigInt(sent));
  expect(charged?.all).toBeGreaterThanOrEqual(BigInt(complete.length));
});
