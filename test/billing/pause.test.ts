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
  ledger.run<{ polled_at: Date }>("select polled_at from nodes where node_id = $1", [node.id()]);

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
  expect(after?.polled_at.getTime()).toBeGreaterThan(before?.polled_at.getTime() ?? 0);
  expect([lost, node.confirmAlive()]).toEqual([0, undefined]);
});

test("a node whose row is gone loses its requests before it is confirmed", async () => {
  await ledger.run("delete from nodes where node_id = $1", [node.id()]);
  skip(7_000);
  await node.confirmAlive();
  expect(lost).toBe(1);
  expect(await rows()).toHaveLength(1);
});

test("a node that stops while it waits for the ledger registers no more", async () => {
  const stopping = new ClusterNode({ store: ledger.store, log, onLost: () => {} });
  await stopping.start(ledger.holds);
  const heartbeats = vi.spyOn(ledger.store, "recordHeartbeat");
  heartbeats.mockRejectedValue(new Error("no connection"));
  skip(7_000);
  const confirmed = stopping.confirmAlive();
  await vi.waitFor(() => expect(heartbeats).toHaveBeenCalled());
  await stopping.stop();
  heartbeats.mockRestore();
  await confirmed;
  // It would retry now.
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(await ledger.run("select node_id from nodes where node_id = $1", [stopping.id()])).toEqual(
    [],
  );
});

test("while the ledger is unavailable it waits ten seconds, and then tries no more", async () => {
  const heartbeats = vi.spyOn(ledger.store, "recordHeartbeat");
  heartbeats.mockRejectedValue(new Error("no connection"));
  const { setTimeout } = globalThis;
  const waits: number[] = [];
  vi.spyOn(globalThis, "setTimeout").mockImplementation((call, ms = 0, ...more) => {
    waits.push(ms);
    return setTimeout(call, ms === 10_000 ? 0 : ms, ...more);
  });
  skip(7_000);
  await node.confirmAlive();
  expect(waits).toContain(10_000);
  const nextTick = 1_000;
  const tried = heartbeats.mock.calls.length;
  await new Promise((resolve) => setTimeout(resolve, 0.6 * nextTick));
  expect(heartbeats.mock.calls.length - tried).toBeLessThanOrEqual(1);
});
