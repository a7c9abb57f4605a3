// Rows of the ledger that are locked for long: batches wait for the time limits of the server.

import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { requestKeyOf } from "../../src/billing/admission.ts";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import { breakableHolds, lockPool, lockWaits } from "../support/breakable-holds.ts";
import { endingWith, freshLedger, heldFor, holdRequest, log } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeEach(async () => {
  ledger = await freshLedger();
});
afterEach(() => ledger.close());

const never = new AbortController().signal;

test("a pool that is locked for long delays its own requests and no others", async () => {
  const [locked, other] = [
    await ledger.payer(heldFor(100) * 2n),
    await ledger.payer(heldFor(100) * 9n),
  ];
  const [lockedHold, otherHold] = [
    await ledger.holds.place(holdRequest(locked, 100), never),
    await ledger.holds.place(holdRequest(other, 100), never),
  ];
  const { unlock } = await lockPool(ledger, locked);
  const waiting = [
    ledger.holds.place(holdRequest(locked, 100), never),
    ledger.holds.settle(lockedHold, endingWith({ output: 7 })).then(() => undefined),
  ];
  const isDone = vi.fn();
  for (const one of waiting) void one.then(isDone, isDone);
  await Promise.all([
    ledger.holds.place(holdRequest(other, 100), never),
    ledger.holds.settle(otherHold, endingWith({ output: 8 })),
  ]);
  // From now on they do not wait for the lock, as a batch does for a second until it is blocked.
  const warn = vi.spyOn(log, "warn");
  onTestFinished(() => warn.mockRestore());
  for (let round = 0; round < 3; round++) {
    const late = ledger.holds.settle(lockedHold, endingWith({}));
    void late.then(isDone, isDone);
    const hold = await ledger.holds.place(holdRequest(other, 100), never);
    await ledger.holds.settle(hold, endingWith({ output: 9 }));
  }
  expect(warn).not.toHaveBeenCalled();
  expect(isDone).not.toHaveBeenCalled();
  await unlock();
  await Promise.all(waiting);
  expect((await ledger.store.findCharge(requestKeyOf(lockedHold)))?.chargedMicrocredits).toBe(350n);
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("a request id that another node uses and settles between the reads and the writes of a batch is rejected", async () => {
  const first = await ledger.payer(heldFor(100));
  const second = await ledger.payer(heldFor(100), { accountId: first.accountId });
  const requestId = newRequestId();
  const slow = breakableHolds(ledger);
  slow.runBefore("billing/place-holds", async () => {
    const hold = await ledger.holds.place(holdRequest(second, 100, { requestId }), never);
    await ledger.holds.settle(hold, endingWith({ output: 7 }));
  });
  await expect(
    slow.holds.place(holdRequest(first, 100, { requestId }), never),
  ).rejects.toMatchObject({
    reason: "request_id_used",
  });
  expect((await ledger.pool(first)).held).toBe(0n);
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await slow.close();
});

test("an orphan that cannot be settled does not block the next page", async () => {
  const node = new ClusterNode({ store: ledger.store, log, onLost: () => {}, orphansMax: 1 });
  const payers = await Promise.all([ledger.payer(heldFor(100)), ledger.payer(heldFor(100))]);
  const holds = await Promise.all(
    payers.map((payer) => ledger.holds.place(holdRequest(payer, 100), never)),
  );
  const [stuck, next] = holds
    .map(requestKeyOf)
    .sort((one, other) => (one.accountId < other.accountId ? -1 : 1));
  const locked = payers.find(({ accountId }) => accountId === stuck?.accountId);
  if (!locked || !stuck || !next) throw new Error("no holds");
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  const { unlock } = await lockPool(ledger, locked);
  const first = node.poll(ledger.holds);
  await vi.waitFor(async () => expect(await ledger.run(lockWaits)).toHaveLength(1));
  await node.poll(ledger.holds);
  expect(await ledger.store.findCharge(next)).toMatchObject({ outcome: Outcome.REAPED });
  await unlock();
  await first;
  expect(await ledger.store.findCharge(stuck)).toMatchObject({ outcome: Outcome.REAPED });
});
