// A gateway is killed at any point of a request. Another process settles its running requests by
// their last stored usage. An answer that a client saw complete was charged before.

import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, haiku, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";

const credits = 1_000_000_000n;
const content = { text: ["x".repeat(40), "y".repeat(40)], usage: { input: 11, output: 9 } };
const cost = 11n * haiku.input + 9n * haiku.output;
const sse = { "content-type": "text/event-stream" };

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
  // What Node has compiled is kept when a process ends, and not when it is killed.
  await (await killAt("", 1)).end("SIGTERM");
});
afterAll(() => stage.stop());

/** With several workers, the one that serves the request is killed. */
const killAt = (moment: string, workers: number) =>
  stage.start({
    WORKERS: String(workers),
    KILL_AT: moment,
    NODE_OPTIONS: `--import ${join(import.meta.dirname, "../support/kill-at.ts")}`,
  });

/** The charges of a key, which has one request in each test. */
const chargesOf = async (keyId: string) => {
  const rows = await stage.ledger.run<{ request_id: string }>(
    "select request_id from charges where key_id = $1",
    [keyId],
  );
  return Promise.all(rows.map(({ request_id }) => stage.chargeOf(request_id)));
};

/** Kills the gateway and resolves when it has exited. */
async function kill(gateway: ChildGateway): Promise<void> {
  await gateway.end("SIGKILL");
}

const ofStatements: { moment: string; charges: { outcome: Outcome; amount: bigint }[][] }[] = [
  { moment: "hold written", charges: [[]] },
  // The server may or may not have committed the hold. Nothing was produced, so nothing is charged.
  { moment: "hold sent", charges: [[], [{ outcome: Outcome.REAPED, amount: 0n }]] },
  { moment: "hold committed", charges: [[{ outcome: Outcome.REAPED, amount: 0n }]] },
  // The answer was produced, and the client has not seen its end: the charge stands if it was
  // committed, otherwise the last stored usage is charged.
  { moment: "settle written", charges: [[{ outcome: Outcome.REAPED, amount: 0n }]] },
  {
    moment: "settle sent",
    charges: [
      [{ outcome: Outcome.COMPLETED, amount: cost }],
      [{ outcome: Outcome.REAPED, amount: 0n }],
    ],
  },
  { moment: "settle committed", charges: [[{ outcome: Outcome.COMPLETED, amount: cost }]] },
];
const cases = ofStatements.flatMap((one) => [1, 2].map((workers) => ({ ...one, workers })));
for (const { moment, charges, workers } of cases) {
  const who = workers === 1 ? "killed" : "a worker killed";
  test(`${who} at "${moment}": no end was seen, and the request is charged at most once`, async () => {
    const { payer, secret } = await stage.key(credits);
    const before = stage.provider.requests.length;
    stage.provider.always(nativeStream(content));
    const gateway = await killAt(moment, workers);
    const seen = await stage.send(gateway, secret);
    expect((await gateway.end("SIGKILL")).signal).toBe("SIGKILL");
    expect(seen.complete).toBe(false);
    expect(stage.provider.requests.length - before).toBe(moment.startsWith("hold") ? 0 : 1);
    if (moment.startsWith("hold")) expect(seen).toMatchObject({ status: 0, text: "" });
    await stage.recover();
    const made = (await chargesOf(payer.keyId)).map((one) => ({
      outcome: one?.outcome,
      amount: one?.chargedMicrocredits,
    }));
    expect(charges).toContainEqual(made);
  });
}

test("killed when the provider is called: nothing was produced and nothing is charged", async () => {
  const { payer, secret } = await stage.key(credits);
  const gateway = await stage.start();
  const seen = stage.send(gateway, secret);
  stage.provider.play({ headers: sse, end: "hang" });
  await stage.provider.received();
  await kill(gateway);
  expect(await seen).toMatchObject({ complete: false });
  await stage.recover();
  expect(await chargesOf(payer.keyId)).toMatchObject([
    { outcome: Outcome.REAPED, chargedMicrocredits: 0n, basis: Basis.NONE },
  ]);
});

const events = nativeEvents(content);

test("killed before any content: nothing is charged, although the provider reported its input", async () => {
  const { payer, secret } = await stage.key(credits);
  const gateway = await stage.start();
  stage.provider.play({ headers: sse, writes: [...events.slice(0, 1), new Gate()] });
  const shown = Promise.withResolvers<void>();
  const see = (text: string) => text.includes("message_start") && shown.resolve();
  const seen = stage.send(gateway, secret, {}, see);
  await shown.promise;
  await kill(gateway);
  expect(await seen).toMatchObject({ status: 200, complete: false });
  await stage.recover();
  const charges = await chargesOf(payer.keyId);
  expect(charges).toMatchObject([{ outcome: Outcome.REAPED, chargedMicrocredits: 0n }]);
  // The client can look it up by its request id.
  expect(charges[0]?.requestId).toBe((await seen).requestId);
});

test("killed during the stream: the last stored usage is charged", async () => {
  const { payer, secret } = await stage.key(credits);
  const gateway = await stage.start();
  stage.provider.play({ headers: sse, writes: [...events.slice(0, 3), new Gate()] });
  const shown = Promise.withResolvers<void>();
  const see = (text: string) => text.includes("content_block_delta") && shown.resolve();
  const seen = stage.send(gateway, secret, {}, see);
  await shown.promise;
  await metered(payer.keyId, 10);
  await kill(gateway);
  expect(await seen).toMatchObject({ status: 200, complete: false });
  await stage.recover();
  const charges = await chargesOf(payer.keyId);
  expect(charges).toMatchObject([{ outcome: Outcome.REAPED, usage: { input: 11, output: 10 } }]);
  expect(charges[0]?.chargedMicrocredits).toBe(11n * haiku.input + 10n * haiku.output);
  expect(charges[0]?.requestId).toBe((await seen).requestId);
});

test("killed when the final usage was seen and not settled: it is charged, and no end was sent", async () => {
  const { payer, secret } = await stage.key(credits);
  const gateway = await stage.start();
  // Without message_stop the answer is not complete, so nothing is settled yet.
  const long = { ...content, usage: { input: 11, output: 90 } };
  stage.provider.play({ headers: sse, writes: [...nativeEvents(long).slice(0, -1), new Gate()] });
  const seen = stage.send(gateway, secret);
  await metered(payer.keyId, 90);
  await kill(gateway);
  expect(await seen).toMatchObject({ status: 200, complete: false });
  expect((await seen).text).not.toContain("message_delta");
  await stage.recover();
  const [charge] = await chargesOf(payer.keyId);
  expect(charge?.chargedMicrocredits).toBe(11n * haiku.input + 90n * haiku.output);
});

test("an answer that was seen complete is charged exactly, although the gateway died right after it", async () => {
  const { payer, secret } = await stage.key(credits);
  const gateway = await stage.start();
  for (const stream of [true, false]) {
    stage.provider.play(nativeStream(content));
    const seen = await stage.send(gateway, secret, { stream });
    expect(seen.complete).toBe(true);
    expect((await stage.chargeOf(seen.requestId))?.chargedMicrocredits).toBe(cost);
  }
  await kill(gateway);
  await stage.recover();
  expect((await chargesOf(payer.keyId)).map((one) => one?.outcome)).toEqual([
    Outcome.COMPLETED,
    Outcome.COMPLETED,
  ]);
});

/** Resolves when the usage of the key's running request has been stored. */
async function metered(keyId: string, output: number): Promise<void> {
  for (;;) {
    const rows = await stage.ledger.run<{ output: number }>(
      "select output from holds where key_id = $1",
      [keyId],
    );
    if (rows.some((row) => row.output >= output)) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
