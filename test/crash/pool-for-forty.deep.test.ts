// Three hundred requests at once, at three processes, on a pool that pays forty of them: a provider
// is called for no more than the pool can pay.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CrashCluster, numbered, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";
import { nativeStream } from "../support/provider-answers.ts";

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

const content = { text: ["12345678"], usage: { input: 11, output: 9 } };
const [nodes, requests, paid] = [3, 300, 40];

test("three hundred requests on a pool for forty lead to forty calls, all of them paid", async () => {
  const gateways = await Promise.all(Array.from({ length: nodes }, () => stage.start()));
  stage.provider.always(nativeStream(content));
  const warmUp = async (secret: string) => {
    const views = await Promise.all(
      gateways.map((gateway) => stage.send(gateway, secret, numbered(1))),
    );
    const receipts = views.map(({ requestId }) => vi.waitUntil(() => stage.chargeOf(requestId)));
    return Promise.all(receipts);
  };
  const other = await stage.key(10n ** 9n);
  const [receipt] = await warmUp(other.secret);
  if (!receipt) throw new Error("no receipt");
  const { holdMicrocredits: hold, chargedMicrocredits: cost } = receipt;
  // Every process knows what is free after its own warm-up, when the pool has forty holds.
  const { secret } = await stage.key(BigInt(paid) * hold + BigInt(nodes) * cost);
  await warmUp(secret);

  const before = stage.provider.requests.length;
  const gate = new Gate();
  stage.provider.always(nativeStream(content, { before: gate }));
  let refused = 0;
  const sent = Array.from({ length: requests }, async (_, index) => {
    const gateway = gateways[index % nodes];
    if (!gateway) throw new Error("no gateway");
    const view = await stage.send(gateway, secret, numbered(1));
    if (view.status !== 200) refused++;
    return view;
  });
  await vi.waitFor(() => expect(refused).toBe(requests - paid), { timeout: 60_000 });
  const called = stage.provider.requests.length - before;
  gate.open();
  const views = await Promise.all(sent);
  expect(views.filter(({ complete }) => complete)).toHaveLength(paid);
  expect(called).toBe(paid);
  expect(await stage.ledger.store.verifyLedger()).toEqual([]);
});
