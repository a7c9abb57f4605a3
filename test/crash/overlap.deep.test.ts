// Workers, and their parent, are killed while a provider works for a request whose hold is not
// durable yet. Nothing was shown, so nothing is charged, whatever becomes of the hold.

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CommitLock, lockCommits } from "../support/commit-lock.ts";
import { type ClientView, type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate, type ReceivedRequest, type Script } from "../support/provider.ts";
import { nativeStream } from "../support/provider-answers.ts";
import { isAlive, logged, workerPids } from "../support/workers.ts";

const content = { text: ["x".repeat(40), "y".repeat(40)], usage: { input: 11, output: 9 } };

let stage: CrashCluster;
let lock: CommitLock;
beforeAll(async () => {
  stage = await startCrashCluster();
  lock = await lockCommits(stage.ledger.url);
});
afterAll(async () => {
  await lock.stop();
  await stage.stop();
});
beforeEach(() => stage.provider.always(nativeStream(content)));

type Early = { early: ReceivedRequest; seen: Promise<ClientView> };

/**
 * Sends a request whose hold waits for the lock while its provider works. The provider is called
 * early only within a second of the warm-up, so a slow machine begins anew.
 */
async function sendEarly(gateway: ChildGateway, secret: string, script: Script): Promise<Early> {
  for (;;) {
    expect((await stage.send(gateway, secret)).complete).toBe(true);
    await lock.stall();
    const called = stage.provider.requests.length;
    stage.provider.play(script);
    const seen = stage.send(gateway, secret);
    await lock.stalled();
    const strict = delay(1_000);
    const early = await Promise.race([stage.provider.received(called + 1), strict]);
    if (early) return { early, seen };
    await lock.release();
    await seen;
  }
}

const states: { state: string; script: () => Script; isOver: boolean }[] = [
  {
    state: "the provider has begun",
    script: () => nativeStream(content, { before: new Gate() }),
    isOver: false,
  },
  {
    state: "the provider has finished",
    script: () => nativeStream(content),
    isOver: true,
  },
  {
    state: "the provider's first event and its end came in one read",
    script: () => {
      const { writes = [], ...script } = nativeStream(content);
      return { ...script, writes: [writes.join("")] };
    },
    isOver: true,
  },
];
const victims: Record<string, (gateway: ChildGateway) => unknown> = {
  "its worker": (gateway) => {
    for (const pid of workerPids(gateway).filter(isAlive)) process.kill(pid, "SIGKILL");
  },
  "the parent": (gateway) => gateway.end("SIGKILL"),
};

for (const { state, script, isOver } of states)
  for (const [victim, kill] of Object.entries(victims))
    test(`${state} when ${victim} is killed: nothing is shown, and nothing charged`, async () => {
      const { payer, secret } = await stage.key(1_000_000_000n);
      const gateway = await stage.start({ WORKERS: "2", LOG_LEVEL: "info" });
      await logged(gateway, "worker ready", 2);
      const { early, seen } = await sendEarly(gateway, secret, script());
      if (isOver) expect((await early.over).by).toBe("provider");
      const warmUps = "select 1 from charges where key_id = $1 and amount > 0";
      const paid = (await stage.ledger.run(warmUps, [payer.keyId])).length;
      await kill(gateway);
      expect(await seen).toMatchObject({ status: 0, text: "", complete: false });
      await lock.release();
      await stage.recover();
      expect(await stage.ledger.run(warmUps, [payer.keyId])).toHaveLength(paid);
    });
