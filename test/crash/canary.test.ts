// The small form of the suites in which gateways are killed: one kill, in the middle of an answer,
// beside one that was seen whole.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type CrashCluster, haiku, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";

const content = { text: ["x".repeat(40), "y".repeat(40)], usage: { input: 11, output: 9 } };

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

test("a killed gateway has charged what was seen whole, and leaves one charge of what was not", async () => {
  const { secret } = await stage.key(1_000_000_000n);
  const gateway = await stage.start();
  stage.provider.play(nativeStream(content));
  const whole = await stage.send(gateway, secret);
  expect(whole.complete).toBe(true);

  const gate = new Gate();
  stage.provider.play({
    headers: { "content-type": "text/event-stream" },
    writes: [...nativeEvents(content).slice(0, 3), gate],
  });
  const begun = Promise.withResolvers<void>();
  const broken = stage.send(gateway, secret, {}, () => begun.resolve());
  await begun.promise;
  await gateway.end("SIGKILL");
  const { requestId, complete } = await broken;
  expect(complete).toBe(false);

  await stage.recover();
  expect(await stage.chargeOf(whole.requestId)).toMatchObject({
    outcome: Outcome.COMPLETED,
    chargedMicrocredits: 11n * haiku.input + 9n * haiku.output,
  });
  expect(await stage.chargeOf(requestId)).toMatchObject({ outcome: Outcome.REAPED });
  expect(await stage.ledger.run("select request_id from charges")).toHaveLength(2);
});
