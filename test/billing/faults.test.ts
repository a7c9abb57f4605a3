// A ledger whose connections break or stop responding, and rows that must not exist.

import { DatabaseError } from "pg";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import { requestKeyOf } from "../../src/billing/admission.ts";
import { BatchConnection, decision, isTransient, sequence } from "../../src/billing/batch-queue.ts";
import { ClusterNode } from "../../src/billing/cluster-node.ts";
import type { HoldKeeper } from "../../src/billing/holds.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import type { Text } from "../../src/postgres/statement.ts";
import { breakableHolds, lockPool, lockWaits } from "../support/breakable-holds.ts";
import { ManualClock, passDuring, runPendingTasks } from "../support/clock.ts";
import {
  endingWith,
  freshLedger,
  heldFor,
  holdRequest,
  log,
  price,
  startNode,
  usage,
} from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeEach(async () => {
  ledger = await freshLedger();
});
afterEach(() => ledger.close());

const never = new AbortController().signal;

/** Inserts a charge of a running request, as if it had been settled twice at the same time. */
async function chargeRunning(requestId: string): Promise<void> {
  await ledger.run(
    `insert into charges (request_id, month, account_id, family, key_id, model, input, output,
       cache_write_5m, cache_write_1h, cache_read, thinking, price_version, hold, amount, overrun,
       output_over, thinking_over, outcome, basis, admitted_at, settled_at, granted_output)
     select request_id, month, account_id, family, key_id, model, 0, 0, 0, 0, 0, 0,
       price_version, 0, 0, 0, 0, 0, 'completed', 'none',
       admitted_at, now(), granted_output from holds where request_id = $1`,
    [requestId],
  );
}

const connectFailures = [
  {
    name: "no free file descriptor",
    error: Object.assign(new Error("connect EMFILE"), { code: "EMFILE" }),
  },
  {
    name: "no free port",
    error: Object.assign(new Error("connect"), { code: "EADDRNOTAVAIL" }),
  },
  {
    name: "an expired certificate of the server",
    error: Object.assign(new Error("expired"), { code: "CERT_HAS_EXPIRED" }),
  },
  {
    name: "a changed password",
    error: Object.assign(new DatabaseError("no", 1, "error"), { code: "28P01" }),
  },
  {
    name: "a proxy that lost the server",
    error: Object.assign(new DatabaseError("no", 1, "error"), { code: "XX000" }),
  },
];
for (const { name, error } of connectFailures) {
  test(`requests are admitted and charged after a failure: ${name}`, async () => {
    const { keeper, clock, refuseConnections, refusals, passing, close } = breakableHolds(ledger);
    const payer = await ledger.payer(heldFor(100));
    /** Tries to connect three times, and then it succeeds. */
    const retried = async <T>(begin: () => Promise<T>) => {
      refuseConnections(error);
      const before = refusals();
      const work = begin();
      const isOver = vi.fn();
      void work.then(isOver, isOver);
      for (let attempts = 1; attempts <= 3; attempts++) {
        await vi.waitFor(() => expect(refusals() - before).toBe(attempts));
        await clock.advance(100);
      }
      expect(isOver).not.toHaveBeenCalled();
      refuseConnections(undefined);
      return passing(work);
    };
    const hold = await retried(() => keeper.place(holdRequest(payer, 100), never));
    const receipt = await retried(() => keeper.settle(hold, endingWith({ output: 7 })));
    expect(receipt.chargedMicrocredits).toBe(350n);
    await close();
  });
}

test("a connection that breaks during a batch is opened again, after any error of the system", async () => {
  const { holds, breakWith, breakAfter, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100));
  breakWith(Object.assign(new Error("write EHOSTDOWN"), { code: "EHOSTDOWN" }));
  breakAfter("billing/commit");
  const hold = await holds.place(holdRequest(payer, 100), never);
  breakAfter("billing/commit");
  expect((await holds.settle(hold, endingWith({ output: 7 }))).chargedMicrocredits).toBe(350n);
  await close();
});

test("a charge that the database rejects for a time, for any reason, is made as soon as it accepts it", async () => {
  const { holds, sentTo, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100));
  const hold = await holds.place(holdRequest(payer, 100), never);
  await ledger.run("alter table usage_hourly rename to usage_hourly_elsewhere");
  const settling = holds.settle(hold, endingWith({ output: 7 }));
  const isSettled = vi.fn();
  void settling.then(isSettled, isSettled);
  await vi.waitFor(() => expect(sentTo("billing/begin").length).toBeGreaterThan(3));
  expect(isSettled).not.toHaveBeenCalled();
  await ledger.run("alter table usage_hourly_elsewhere rename to usage_hourly");
  expect((await settling).chargedMicrocredits).toBe(350n);
  await close();
});

test("a process sends heartbeats while the holds that it must settle are locked", async () => {
  const payer = await ledger.payer(heldFor(100));
  await ledger.holds.place(holdRequest(payer, 100), never);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  const { unlock } = await lockPool(ledger, payer);
  const clock = new ManualClock();
  const node = new ClusterNode({ store: ledger.store, log, clock, onLost: () => {} });
  await node.start(ledger.holds);
  const heartbeats = vi.spyOn(ledger.store, "recordHeartbeat");
  const polls = vi.spyOn(ledger.store, "pollNodes");
  onTestFinished(() => void [heartbeats, polls].map((one) => one.mockRestore()));
  await vi.waitFor(async () => expect(await ledger.run(lockWaits)).not.toEqual([]));
  for (let beats = 1; beats <= 4; beats++) {
    await clock.advance(1_000);
    expect(heartbeats).toHaveBeenCalledTimes(beats);
    expect(await heartbeats.mock.results.at(-1)?.value).toBe(true);
    // Its last question. Then the tick is over.
    await vi.waitFor(() => expect(polls).toHaveBeenCalledTimes(beats));
    await polls.mock.results.at(-1)?.value;
    await runPendingTasks();
  }
  expect(await ledger.run("select outcome from charges")).toEqual([]);
  await unlock();
  await vi.waitFor(async () =>
    expect(await ledger.run("select outcome from charges")).toEqual([{ outcome: "reaped" }]),
  );
  await node.stop();
});

test("unconfirmed requests are looked up in one query, and requests that were never sent are not", async () => {
  const { holds, sentTo, refuseConnections, breakAfter, close } = breakableHolds(ledger, {
    maxWaitMs: -1,
  });
  const payer = await ledger.payer(heldFor(100) * 3n);
  const refused = { reason: "billing_unavailable" };
  refuseConnections(new Error("no connection"));
  await expect(holds.place(holdRequest(payer, 100), never)).rejects.toMatchObject(refused);
  await holds.releaseUnconfirmed();
  expect(sentTo("billing/find-holds")).toEqual([]);
  refuseConnections(undefined);
  breakAfter("billing/commit");
  const requests = [holdRequest(payer, 100), holdRequest(payer, 100)];
  const placed = await Promise.allSettled(requests.map((request) => holds.place(request, never)));
  expect(placed).toMatchObject([{ reason: refused }, { reason: refused }]);
  await holds.releaseUnconfirmed();
  expect(sentTo("billing/find-holds")).toEqual([
    [requests.map(() => payer.accountId), requests.map(({ requestId }) => requestId)],
  ]);
  expect((await ledger.pool(payer)).held).toBe(0n);
  await close();
});

test("a gateway stops in time while the ledger is unavailable, and leaves its settlements to others", async () => {
  const { clock, keeper, holds, refusals, refuseConnections, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100));
  const hold = await holds.place(holdRequest(payer, 100), never);
  refuseConnections(new Error("no connection"));
  const settling = expect(keeper.settle(hold, endingWith({ output: 7 }))).rejects.toMatchObject({
    reason: "billing_unavailable",
  });
  const closing = keeper.close(100);
  await vi.waitFor(() => expect(refusals()).toBe(1));
  await clock.advance(100);
  expect(await closing).toBe(1);
  await settling;
  await close();
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  await ledger.node.poll(ledger.holds);
  expect(await ledger.store.findCharge(requestKeyOf(hold))).toMatchObject({
    outcome: Outcome.REAPED,
  });
});

/** A request of 7 output tokens that its provider answered at half the price of its hold. */
async function answeredCheaper(keeper: Pick<HoldKeeper, "place" | "settle">) {
  const payer = await ledger.payer(heldFor(100));
  const hold = await keeper.place(holdRequest(payer, 100), never);
  const halves = { ...byCategory((category) => price[category] / 2n), webSearch: 0n };
  const appliedPrice = priceVersion("model-test", halves);
  return { payer, hold, ending: { ...endingWith({ output: 7 }), appliedPrice } };
}
const charges = () =>
  ledger.run<{ outcome: string; amount: bigint }>("select outcome, amount from charges");

test("a stop waits for a settlement whose price is not stored yet", async () => {
  const { keeper, holds, breakAfter, sentTo, passing, close } = breakableHolds(ledger);
  const { hold, ending } = await answeredCheaper(holds);
  const before = sentTo("billing/register-price").length;
  breakAfter("billing/register-price");
  const settling = keeper.settle(hold, ending);
  await vi.waitFor(() => expect(sentTo("billing/register-price")).toHaveLength(before + 1));
  expect(keeper.waiting.settle).toBe(1);
  expect(await passing(keeper.close(10_000))).toBe(0);
  expect((await settling).chargedMicrocredits).toBe(175n);
  expect(keeper.waiting.settle).toBe(0);
  expect(await charges()).toEqual([{ outcome: "completed", amount: 175n }]);
  await close();
});

test("a settlement whose price is never stored is left to others at a stop, once", async () => {
  const { clock, keeper, holds, breakAfter, sentTo, close } = breakableHolds(ledger);
  const { payer, hold, ending } = await answeredCheaper(holds);
  const before = sentTo("billing/register-price").length;
  breakAfter("billing/register-price", Number.POSITIVE_INFINITY);
  const settling = expect(keeper.settle(hold, ending)).rejects.toMatchObject({
    reason: "database_unavailable",
  });
  await vi.waitFor(() => expect(sentTo("billing/register-price")).toHaveLength(before + 1));
  const closing = keeper.close(50);
  await clock.advance(50);
  expect(await closing).toBe(1);
  await clock.advance(100);
  await settling;
  await close();
  expect(await charges()).toEqual([]);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  for (let times = 0; times < 2; times++) await ledger.node.poll(ledger.holds);
  expect(await charges()).toEqual([{ outcome: "reaped", amount: 0n }]);
  expect((await ledger.pool(payer)).held).toBe(0n);
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("released credits wake as many waiting requests as they may cover, the oldest first", async () => {
  // Time stands still: nobody tries again but by being woken.
  const { keeper: holds, clock, sentTo, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100) * 2n);
  const [first, second] = [
    await holds.place(holdRequest(payer, 100), never),
    await holds.place(holdRequest(payer, 100), never),
  ];
  const tried = () => sentTo("billing/read-used-requests").map(([, ids]) => ids);
  const requests = Array.from({ length: 10 }, () => holdRequest(payer, 100));
  const waiting = requests.map((request) => holds.place(request, never));
  await vi.waitFor(() => expect(tried()).toHaveLength(3));
  await holds.settle(first, endingWith({}));
  await waiting[0];
  expect(tried()[3]).toEqual([requests[0]?.requestId]);
  const held = [second, await Promise.any(waiting)];
  for (const hold of held) await holds.settle(hold, endingWith({}));
  const rest = await passDuring(() => clock.advance(250), Promise.allSettled(waiting.slice(1)));
  for (const one of rest)
    if (one.status === "fulfilled") await holds.settle(one.value, endingWith({}));
  await close();
});

for (const hasNewId of [true, false]) {
  const title = hasNewId ? "a new id" : "an id that may be used";
  test(`a commit without an answer is neither lost nor repeated: ${title}`, async () => {
    const { holds, breakAfter, close } = breakableHolds(ledger);
    const payer = await ledger.payer(heldFor(100) * 2n);
    breakAfter("billing/commit");
    const hold = await holds.place(holdRequest(payer, 100, { hasNewId }), never);
    expect(hold.grantedOutput).toBe(100);
    expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100) * 2n, held: heldFor(100) });
    breakAfter("billing/commit");
    expect((await holds.settle(hold, endingWith({ output: 7 }))).chargedMicrocredits).toBe(350n);
    expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100) * 2n - 350n, held: 0n });
    expect(await ledger.store.verifyLedger()).toEqual([]);
    await close();
  });
}

test("a new id is looked up in a repeat only, and beside an id that may be used", async () => {
  const { holds, sentTo, breakAfter, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100) * 9n);
  const lookUps = () =>
    ["billing/read-used-requests", "billing/refuse-charged"].flatMap((name) =>
      sentTo(name).map(([, ids]) => ids),
    );
  const place = (hasNewId: boolean) => {
    const request = holdRequest(payer, 100, { hasNewId });
    return { id: request.requestId, placing: holds.place(request, never) };
  };
  await place(true).placing;
  expect(lookUps()).toEqual([]);
  const [fresh, named] = [place(true), place(false)];
  await Promise.all([fresh.placing, named.placing]);
  expect(lookUps()).toEqual([[named.id], [named.id]]);
  breakAfter("billing/commit");
  const repeated = place(true);
  await repeated.placing;
  // The repeat finds the hold, and so stores nothing.
  expect(lookUps()).toEqual([[named.id], [repeated.id], [named.id]]);
  await close();
});

test("a new id that was held unseen, and then charged by another process, is refused in the repeat", async () => {
  const { holds, breakAfter, runBefore, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100));
  const request = holdRequest(payer, 100, { hasNewId: true });
  const settleElsewhere = async () => {
    const [held] = await ledger.store.findHolds([requestKeyOf(request)]);
    if (held) await ledger.holds.settle(held.hold, endingWith({ output: 7 }));
  };
  breakAfter("billing/commit");
  // Before the first statement of the repeat.
  runBefore("billing/commit", async () => runBefore("billing/node-clock", settleElsewhere));
  await expect(holds.place(request, never)).rejects.toMatchObject({ reason: "request_id_used" });
  expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100) - 350n, held: 0n });
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await close();
});

test("an id that is taken is refused, although its process thinks that it is new", async () => {
  const payer = await ledger.payer(heldFor(100) * 9n);
  const { requestId } = await ledger.holds.place(holdRequest(payer, 100), never);
  const again = holdRequest(payer, 100, { requestId, hasNewId: true });
  await expect(ledger.holds.place(again, never)).rejects.toMatchObject({
    reason: "request_id_used",
  });
  expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100) * 9n, held: heldFor(100) });
});

test("a charge whose commit got no answer is found, although the database is unavailable at first", async () => {
  const { holds, breakAfter, close } = breakableHolds(ledger);
  const payer = await ledger.payer(heldFor(100));
  const hold = await holds.place(holdRequest(payer, 100), never);
  await ledger.holds.settle(hold, endingWith({ output: 7 }));
  breakAfter("billing/find-charge", 2);
  expect((await holds.settle(hold, endingWith({ output: 50 }))).chargedMicrocredits).toBe(350n);
  await close();
});

test("admission and settlement continue after a migration changes columns", async () => {
  const payer = await ledger.payer(heldFor(100) * 2n);
  const first = await ledger.holds.place(holdRequest(payer, 100), never);
  const second = await ledger.holds.place(holdRequest(payer, 100), never);
  await ledger.holds.settle(first, endingWith({ output: 7 }));
  // The server reports that a cached plan is no longer valid.
  await ledger.run(`alter table holds alter column request_id type varchar collate "C"`);
  expect((await ledger.holds.settle(second, endingWith({ output: 8 }))).chargedMicrocredits).toBe(
    400n,
  );
  const third = await ledger.holds.place(holdRequest(payer, 100), never);
  expect((await ledger.holds.settle(third, endingWith({ output: 9 }))).chargedMicrocredits).toBe(
    450n,
  );
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("a ledger that was restored without a price gets it with the next request", async () => {
  const payer = await ledger.payer(heldFor(100) * 2n);
  const first = await ledger.holds.place(holdRequest(payer, 100), never);
  await ledger.holds.settle(first, endingWith({ output: 7 }));
  await ledger.run("alter table price_versions disable trigger user");
  await ledger.run("delete from price_versions");
  await ledger.run("alter table price_versions enable trigger user");
  await ledger.run(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  const second = await ledger.holds.place(holdRequest(payer, 100), never);
  expect(await ledger.store.findHold(requestKeyOf(second))).toBeDefined();
  await ledger.holds.settle(second, endingWith({ output: 8 }));
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("the hold of a request that failed unconfirmed is released", async () => {
  const { holds, breakAfter, close } = breakableHolds(ledger, { maxWaitMs: -1 });
  const payer = await ledger.payer(heldFor(100));
  breakAfter("billing/commit");
  await expect(holds.place(holdRequest(payer, 100), never)).rejects.toMatchObject({
    reason: "billing_unavailable",
  });
  expect((await ledger.pool(payer)).held).toBe(heldFor(100));
  await holds.releaseUnconfirmed();
  expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100), held: 0n });
  expect(await ledger.run("select outcome from charges")).toEqual([{ outcome: "gateway_failed" }]);
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await close();
});

test("an unconfirmed hold with the caller's own nonce is kept for the caller's repeat", async () => {
  const { holds, breakAfter, close } = breakableHolds(ledger, { maxWaitMs: -1 });
  const payer = await ledger.payer(heldFor(100));
  const request = holdRequest(payer, 100, { nonce: "nonce-of-a-caller" });
  breakAfter("billing/commit");
  await expect(holds.place(request, never)).rejects.toMatchObject({
    reason: "billing_unavailable",
  });
  const hold = await holds.place(request, never);
  await holds.releaseUnconfirmed();
  const receipt = await holds.settle(hold, endingWith({ output: 7 }));
  expect(receipt).toMatchObject({ outcome: Outcome.COMPLETED, chargedMicrocredits: 350n });
  await close();
});

test("a caller's hold outlives the process that placed it, and can be repeated at another process", async () => {
  const payer = await ledger.payer(heldFor(100) * 2n);
  const other = await startNode(ledger.url);
  const request = holdRequest(payer, 100, { nonce: "nonce-of-a-caller" });
  await other.holds.place(request, never);
  const own = await other.holds.place(holdRequest(payer, 100), never);
  await ledger.run("delete from nodes where node_id = $1", [other.node.id()]);
  await ledger.node.poll(ledger.holds);
  expect(await ledger.store.findCharge(requestKeyOf(own))).toMatchObject({
    outcome: Outcome.REAPED,
  });
  expect(await ledger.store.findCharge(requestKeyOf(request))).toBeUndefined();

  const hold = await ledger.holds.place(request, never);
  expect((await ledger.pool(payer)).held).toBe(heldFor(100));
  expect((await ledger.holds.settle(hold, endingWith({ output: 7 }))).chargedMicrocredits).toBe(
    350n,
  );
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await other.stop();
});

test("a caller's forgotten hold is settled after its deadline", async () => {
  const payer = await ledger.payer(heldFor(100));
  const request = holdRequest(payer, 100, { nonce: "nonce-of-a-caller" });
  await ledger.holds.place(request, never);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  await ledger.node.poll(ledger.holds);
  expect(await ledger.store.findCharge(requestKeyOf(request))).toMatchObject({
    outcome: Outcome.REAPED,
  });
});

const pidQuery: Text<{ pid: number }> = {
  name: "pid",
  text: "select pg_backend_pid() as pid",
  row: ([pid]) => ({ pid: Number(pid) }),
};

test("a batch whose server stops responding fails in time, and succeeds on another connection", async () => {
  const postgres = connectPostgres(ledger.url);
  const clock = new ManualClock();
  const connection = new BatchConnection(postgres, { clock });
  const pidOf = decision([[pidQuery, []]], ([[row]]) => ({ writes: [], outcome: row?.pid ?? 0 }));
  const pid = await connection.run(() => pidOf);
  process.kill(pid, "SIGSTOP");
  try {
    const stopped = connection.run(() => pidOf).catch((failure: unknown) => failure);
    await clock.advance(5_000);
    expect(isTransient(await stopped)).toBe(true);
    expect(await connection.run(() => pidOf)).not.toBe(pid);
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await connection.close();
  await postgres.close();
});

test("a connection to a server that stopped responding can be closed", async () => {
  const postgres = connectPostgres(ledger.url);
  const clock = new ManualClock();
  const connection = new BatchConnection(postgres, { clock });
  const pid = await connection.run(() => sequence([[pidQuery, []]], ([[row]]) => row?.pid ?? 0));
  process.kill(pid, "SIGSTOP");
  try {
    const closing = connection.close();
    await clock.advance(1_000);
    await expect(closing).resolves.toBeUndefined();
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await postgres.close();
});

test("a request that cannot be settled delays neither the rest of its batch nor the reaper", async () => {
  const payer = await ledger.payer(heldFor(100) * 3n);
  const other = await ledger.payer(heldFor(100) * 3n);
  const [bad, good] = [
    await ledger.holds.place(holdRequest(payer, 100), never),
    await ledger.holds.place(holdRequest(other, 100), never),
  ];
  await chargeRunning(bad.requestId);
  const both = await Promise.allSettled(
    [bad, good].map((hold) => ledger.holds.settle(hold, endingWith({ output: 1 }))),
  );
  expect(both).toMatchObject([
    { status: "rejected" },
    { status: "fulfilled", value: { chargedMicrocredits: 50n } },
  ]);

  const late = await ledger.holds.place(holdRequest(other, 100), never);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  await ledger.node.poll(ledger.holds);
  expect(await ledger.store.findCharge(requestKeyOf(late))).toMatchObject({
    outcome: Outcome.REAPED,
  });
});

test("a request id that two nodes use at once is admitted by one of them", async () => {
  const first = await ledger.payer(heldFor(100));
  const payers = [first, await ledger.payer(heldFor(100), { accountId: first.accountId })];
  const second = breakableHolds(ledger);
  for (let round = 0; round < 10; round++) {
    const requestId = newRequestId();
    const placed = await Promise.allSettled(
      [ledger.holds, second.holds].map((holds, index) => {
        const payer = payers[index];
        if (!payer) throw new Error("no payer");
        return holds.place(holdRequest(payer, 100, { requestId }), never);
      }),
    );
    const held = placed.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    expect(held).toHaveLength(1);
    expect(placed.find((one) => one.status === "rejected")?.reason).toMatchObject({
      reason: "request_id_used",
    });
    for (const hold of held) await ledger.holds.settle(hold, endingWith({}));
  }
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await second.close();
});

test("the reaper releases a hold whose request was charged already", async () => {
  const payer = await ledger.payer(heldFor(100));
  const hold = await ledger.holds.place(holdRequest(payer, 100), never);
  await chargeRunning(hold.requestId);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  await ledger.node.poll(ledger.holds);
  expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100), held: 0n });
  expect(
    await ledger.run("select spent, held, running from budgets where payer = $1", [payer.keyId]),
  ).toEqual([{ spent: 0n, held: 0n, running: 0 }]);
  expect(await ledger.run("select request_id from holds")).toEqual([]);
});

test("a caller's hold is no orphan, even when no process is left", async () => {
  const payer = await ledger.payer(heldFor(100));
  await ledger.holds.place(holdRequest(payer, 100, { nonce: "nonce-of-a-caller" }), never);
  await ledger.run("update holds set admitted_at = now() - interval '2 minutes'");
  await ledger.run("delete from nodes");
  expect(await ledger.store.verifyLedger()).toEqual([]);
  expect(await ledger.store.findOrphans([], undefined, 10)).toEqual([]);
});

test("orphans are found in pages, even when those of the first page remain", async () => {
  const payer = await ledger.payer(heldFor(100) * 3n);
  for (const request of [holdRequest(payer, 100), holdRequest(payer, 100), holdRequest(payer, 100)])
    await ledger.holds.place(request, never);
  await ledger.run("update holds set deadline = now() - interval '1 second'");
  const { accountId } = payer;
  const idsOf = async (requestId: string) =>
    (await ledger.store.findOrphans([], { accountId, requestId }, 2)).map(
      ({ hold }) => hold.requestId,
    );
  const all = (
    await ledger.run<{ request_id: string }>("select request_id from holds order by 1")
  ).map((row) => row.request_id);
  expect(await idsOf("")).toEqual(all.slice(0, 2));
  expect(await idsOf(all[1] ?? "")).toEqual(all.slice(2));
  await ledger.node.poll(ledger.holds);
});

test("a hold of last month grows beyond the cap of its key", async () => {
  const payer = await ledger.payer(heldFor(100) * 10n, { cap: heldFor(100) * 2n });
  const [first, second] = [
    await ledger.holds.place(holdRequest(payer, 100), never),
    await ledger.holds.place(holdRequest(payer, 100), never),
  ];
  const month = "2020-01-01";
  await ledger.run(
    "create table charges_2020_01 partition of charges for values from ('2020-01-01') to ('2020-02-01')",
  );
  await ledger.run("update holds set month = $1, admitted_at = $1::date", [month]);
  const old = [first, second].map((hold) => ({ ...hold, month }));
  const [one, another] = old;
  if (!one || !another) throw new Error("no holds");
  await ledger.holds.settle(one, endingWith({ output: 1 }));
  const grown = await ledger.holds.resize(another, usage({ input: 200 }));
  expect(grown.amountMicro).toBe(heldFor(100) + 1_000n);
  await ledger.holds.settle(grown, endingWith({ input: 200, output: 100 }));
  expect(
    await ledger.run("select spent, held, running from budgets where payer = $1", [payer.keyId]),
  ).toEqual([{ spent: 50n + 2_000n + 5_000n, held: 0n, running: 0 }]);
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("a process that was declared dead registers once, also when two of its heartbeats find out", async () => {
  const { url, run } = ledger;
  const other = await startNode(url);
  const before = await run<{ n: bigint }>("select count(*) as n from nodes");
  await run("delete from nodes where node_id = $1", [other.node.id()]);
  await Promise.all([other.node.poll(other.holds), other.node.poll(other.holds)]);
  expect(other.lostTimes()).toBe(1);
  expect(await run("select count(*) as n from nodes")).toEqual(before);
  await other.stop();
});

test("a process that was declared dead admits nothing until it has registered again", async () => {
  const payer = await ledger.payer(heldFor(100) * 3n);
  const running = await ledger.holds.place(holdRequest(payer, 100), never);
  const before = ledger.node.id();
  await ledger.run("delete from nodes");
  await expect(ledger.holds.place(holdRequest(payer, 100), never)).rejects.toMatchObject({
    reason: "gateway_unavailable",
  });
  expect(ledger.lostTimes()).toBeGreaterThan(0);
  await ledger.node.poll(ledger.holds);
  expect(ledger.node.id()).not.toBe(before);
  // In a cluster another process settles its holds; here it does so itself.
  await vi.waitFor(async () =>
    expect(await ledger.store.findCharge(requestKeyOf(running))).toMatchObject({
      outcome: Outcome.REAPED,
    }),
  );
  await ledger.holds.settle(
    await ledger.holds.place(holdRequest(payer, 100), never),
    endingWith({}),
  );
  expect(await ledger.store.verifyLedger()).toEqual([]);
});
