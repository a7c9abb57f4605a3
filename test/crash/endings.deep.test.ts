// The endings of a process, over every format and gRPC, with answers that a provider is asked for
// in one piece and as a stream: a drain past its limit, and a kill.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { type CrashCluster, haiku, startCrashCluster } from "../support/crash-cluster.ts";
import { askAll, type Moment, moments, type Waiting } from "../support/ended.ts";
import { freePort } from "../support/ports.ts";

/** Eleven tokens of input, and two of output. */
const seen = 11n * haiku.input + 2n * haiku.output;

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

/** What a stream with content has cost; all others are free. */
async function expectCharges(requests: readonly Waiting[], moment: Moment, outcome: Outcome) {
  for (const one of requests) {
    const isSeen = one.kind === "streamed" && moment === "during content";
    expect(await stage.chargeOf(one.requestId), one.name).toMatchObject({
      outcome,
      chargedMicrocredits: isSeen ? seen : 0n,
    });
  }
}

async function begin(moment: Moment, env: NodeJS.ProcessEnv = {}) {
  const { secret, payer } = await stage.key(10n ** 12n);
  const port = await freePort();
  const gateway = await stage.start({ ...env, GRPC_PORT: String(port) });
  const core = grpcCore({ addresses: [`127.0.0.1:${port}`] });
  const asker = { address: gateway.address, core, secret };
  const { requests, gate } = await askAll(asker, stage.provider, moment);
  const end = async (signal: "SIGTERM" | "SIGKILL") => {
    await gateway.end(signal);
    await Promise.allSettled(requests.map(({ ended }) => ended));
    gate.open();
    core.close();
  };
  return { requests, payer, end };
}

for (const moment of moments) {
  test(`the drain limit ${moment}: who gets an error status pays nothing`, async () => {
    const { requests, end } = await begin(moment, { DRAIN_LIMIT_SECONDS: "1" });
    await end("SIGTERM");
    await expectCharges(requests, moment, Outcome.TIME_LIMIT);
    for (const { ended, kind } of requests)
      if (kind !== "streamed") expect(await ended).toBeGreaterThan(399);
  });

  test(`a kill ${moment}: a stream costs what was stored, a plain answer nothing`, async () => {
    const { requests, payer, end } = await begin(moment);
    // Every two seconds a process stores what its streams have handed on.
    const stored = "select request_id from holds where key_id = $1 and output = 2";
    const count = moment === "during content" ? 8 : 0;
    await vi.waitFor(
      async () => expect(await stage.ledger.run(stored, [payer.keyId])).toHaveLength(count),
      { timeout: 20_000 },
    );
    await end("SIGKILL");
    await stage.recover();
    await expectCharges(requests, moment, Outcome.REAPED);
  });
}
