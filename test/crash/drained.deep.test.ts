import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type CrashCluster, numbered, startCrashCluster } from "../support/crash-cluster.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents } from "../support/provider-answers.ts";

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

const sse = { "content-type": "text/event-stream" };

test("a drain past its limit ends and charges running requests, even of a client that stopped reading", async () => {
  const { payer, secret } = await stage.key(10n ** 12n);
  const gateway = await stage.start({ DRAIN_LIMIT_SECONDS: "1" });
  const [start = "", open = "", ...rest] = nativeEvents({ text: ["x"] });
  const delta = (rest[0] ?? "").repeat(1_000);
  // More than fits into the buffers between provider and client, and less text than the grant.
  stage.provider.always({
    headers: sse,
    writes: [start, open, ...Array.from({ length: 130 }, () => delta), new Gate()],
  });

  const { hostname, port } = new URL(gateway.address);
  const stalled = connect(Number(port), hostname);
  const body = JSON.stringify({ model: "haiku", max_tokens: 60_000, stream: true, ...numbered(1) });
  const head = [
    "POST /v1/messages HTTP/1.1",
    "host: gateway",
    `x-api-key: ${secret}`,
    "anthropic-version: 2023-06-01",
    "content-type: application/json",
    `content-length: ${body.length}`,
  ];
  stalled.write(`${head.join("\r\n")}\r\n\r\n${body}`);
  await new Promise((resolve) => stalled.once("data", resolve));
  stalled.pause();
  stalled.on("error", () => {});

  const reading = stage.send(gateway, secret, { ...numbered(2), max_tokens: 60_000 });
  await stage.provider.received(2);
  const { code } = await gateway.end("SIGTERM");
  expect(code).toBe(0);
  expect((await reading).complete).toBe(false);
  stalled.destroy();

  // The process itself has settled them: no other one had to declare it dead.
  expect(await stage.ledger.run("select request_id from holds")).toEqual([]);
  const charges = await stage.ledger.run<{ outcome: string; output: number }>(
    "select outcome, output from charges where key_id = $1",
    [payer.keyId],
  );
  expect(charges.map(({ outcome }) => outcome)).toEqual(["time_limit", "time_limit"]);
  for (const { output } of charges) expect(output).toBeGreaterThan(0);
  expect(await stage.ledger.store.verifyLedger()).toEqual([]);
});
