// A node that was paused asks the ledger whether it still owns its requests.

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import { ManualClock } from "../support/clock.ts";
import { freshLedger, log } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let node: ClusterNode;
/** Each `skip` is a pause of the process, in which it misses its ticks. */
const clock = new ManualClock();
let lost = 0;
beforeAll(async () => {
  ledger = await freshLedger();
  node = new ClusterNode({ store: ledger.store, log, clock, onLost: () => lost++ });
  await node.start(ledger.holds);
});
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  await node.stop();
  await ledger.close();
});

const rows = () =>
  ledger.run<{ polled_at: Date }>("select polled_at from nodes where node_id = $1", [node.id()]);

test("a node that ticks in time needs no confirmation", () => {
  expect(node.confirmAlive()).toBeUndefined();
  clock.skip(4_000);
  expect(node.confirmAlive()).toBeUndefined();
});

test("after a pause it waits for a heartbeat that finds its row", async () => {
  const [before] = await rows();
  clock.skip(7_000);
  const confirmed = node.confirmAlive();
  expect(confirmed).toBeInstanceOf(Promise);
  await confirmed;
  const [after] = await rows();
  expect(after?.polled_at.getTime()).toBeGreaterThan(before?.polled_at.getTime() ?? 0);
  expect([lost, node.confirmAlive()]).toEqual([0, undefined]);
});

test("a node whose row is gone loses its requests before it is confirmed", async () => {
  await ledger.run("delete from nodes where node_id = $1", [node.id()]);
  clock.skip(7_000);
  await node.confirmAlive();
  expect(lost).toBe(1);
  expect(await rows()).toHaveLength(1);
});

test("a node that stops while it waits for the ledger registers no more", async () => {
  const stopping = new ClusterNode({ store: ledger.store, log, clock, onLost: () => {} });
  await stopping.start(ledger.holds);
  const heartbeats = vi.spyOn(ledger.store, "recordHeartbeat");
  heartbeats.mockRejectedValue(new Error("no connection"));
  clock.skip(7_000);
  const confirmed = stopping.confirmAlive();
  await vi.waitFor(() => expect(heartbeats).toHaveBeenCalled());
  await stopping.stop();
  heartbeats.mockRestore();
  await confirmed;
  // It would retry now.
  await clock.advance(300);
  expect(await ledger.run("select node_id from nodes where node_id = $1", [stopping.id()])).toEqual(
    [],
  );
});

test("while the ledger is unavailable it waits ten seconds, and then tries no more", async () => {
  const waiting = new ClusterNode({ store: ledger.store, log, clock, onLost: () => {} });
  await waiting.start(ledger.holds);
  const heartbeats = vi.spyOn(ledger.store, "recordHeartbeat");
  heartbeats.mockRejectedValue(new Error("no connection"));
  clock.skip(7_000);
  const confirmed = vi.fn();
  const confirming = waiting.confirmAlive()?.then(confirmed);
  await clock.advance(9_900);
  expect(confirmed).not.toHaveBeenCalled();
  await clock.advance(200);
  await confirming;
  expect(confirmed).toHaveBeenCalled();
  // From now on its ticks alone try.
  const tries = () => heartbeats.mock.calls.filter(([id]) => id === waiting.id()).length;
  const before = tries();
  await clock.advance(3_000);
  expect(tries() - before).toBe(3);
  await waiting.stop();
});
