// A gateway process stands still for so long that another one settles its requests. When it runs
// again, it delivers nothing that was not charged.

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type CrashCluster, haiku, startCrashCluster } from "../support/crash-cluster.ts";
import { startNode } from "../support/ledger.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";

let cluster: CrashCluster;
beforeAll(async () => {
  cluster = await startCrashCluster();
});
afterAll(() => cluster.stop());

/** A process notices a pause that makes its ticks, one a second, late by five seconds. */
const pauseMs = 6_500;

test("output that was buffered during the pause is not delivered, and the request stays charged as it was", async () => {
  const { secret } = await cluster.key(1_000_000_000n);
  const gate = new Gate();
  const events = nativeEvents({ text: ["x".repeat(40), "y".repeat(40)], usage: { input: 11 } });
  const after = events.findIndex((event) => event.includes("xxxx")) + 1;
  cluster.provider.always({
    ...nativeStream(),
    writes: [...events.slice(0, after), gate, ...events.slice(after)],
  });
  const gateway = await cluster.start();
  const received = Promise.withResolvers<void>();
  const sent = cluster.send(gateway, secret, {}, (text) => {
    if (text.includes("xxxx")) received.resolve();
  });
  await received.promise;
  await gate.reached;
  // Its usage so far is stored every two seconds.
  await expect.poll(() => cluster.ledger.run("select output from holds")).toEqual([{ output: 10 }]);

  gateway.process.kill("SIGSTOP");
  gate.open();
  const other = await startNode(cluster.ledger.url, { silentPollsMax: 1, pollIntervalMs: 0 });
  await Promise.all([
    delay(pauseMs),
    (async () => {
      for (let poll = 0; poll < 4; poll++) await other.node.poll(other.holds);
    })(),
  ]);
  await other.stop();
  gateway.process.kill("SIGCONT");

  const seen = await sent;
  expect(seen.text).toContain("xxxx");
  expect(seen.text).not.toContain("yyyy");
  expect(seen.complete).toBe(false);
  expect(await cluster.chargeOf(seen.requestId)).toMatchObject({
    outcome: Outcome.REAPED,
    chargedMicrocredits: 11n * haiku.input + 10n * haiku.output,
  });
  expect(await cluster.ledger.store.verifyLedger()).toEqual([]);
});
