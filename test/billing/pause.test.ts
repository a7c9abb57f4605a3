// A node that was paused asks the ledger whether it still owns its requests.

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import { freshLedger, log } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let node: ClusterNode;
let lost = 0;
beforeAll(async () => {
  ledger = await freshLedger();
  node = new ClusterNode({ store: ledger.store, log, onLost: () => lost++ });
  await node.start(ledger.holds);
});
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  await node.stop();
  await ledger.close();
});

let skippedMs = 0;

/** Lets `ms` more pass for the clock of this process, without a tick. */
function skip(ms: number): void {
  skippedMs += ms;
  const nowMs = performance.now() + skippedMs;
  vi.spyOn(performance, "now").mockReturnValue(nowMs);
}

const rows = () =>
  ledger.run<{ heartbeat: bigint }>("select heartbeat from nodes where node_id = $1", [node.id()]);

test("a node that ticks in time needs no confirmation", () => {
  expect(node.confirmAlive()).toBeUndefined();
  skip(4_000);
  expect(node.confirmAlive()).toBeUndefined();
});

test("after a pause it waits for a heartbeat that finds its row", async () => {
  const [before] = await rows();
  skip(7_000);
  const confirmed = node.confirmAlive();
  expect(confirmed).toBeInstanceOf(Promise);
  await confirmed;
  const [after] = await rows();
  expect(after?.heartbeat).toBeGreaterThan(before?.heartbeat ?? 0n);
  expect([lost, node.confirmAlive()]).toEqual([0, undefined]);
});

test("a node whose row is gone loses its requests before it is confirmed", async () => {
  await ledger.run("delete from nodes where node_id = $1", [node.id()]);
  skip(7_000);
  await node.confirmAlive();
  expect(lost).toBe(1);
  expect(await rows()).toHaveLength(1);
});

test("while the ledger is unavailable it waits ten seconds", async () => {
  vi.spyOn(ledger.store, "recordHeartbeat").mockRejectedValue(new Error("no connection"));
  const { setTimeout } = globalThis;
  const waits: number[] = [];
  vi.spyOn(globalThis, "setTimeout").mockImplementation((call, ms = 0, ...more) => {
    waits.push(ms);
    return setTimeout(call, ms === 10_000 ? 0 : ms, ...more);
  });
  skip(7_000);
  await node.confirmAlive();
  expect(waits).toContain(10_000);
});
