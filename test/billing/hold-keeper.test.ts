// The borders of what a process decides about its holds, on a clock that stands still.

import { getEventListeners } from "node:events";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { unlimited } from "../../src/base/budgets.ts";
import { type ApiError, toApiError } from "../../src/base/errors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { type Payer, requestKeyOf } from "../../src/billing/admission.ts";
import { setLimits } from "../../src/billing/budgets.ts";
import type { UsageBounds } from "../../src/billing/hold-size.ts";
import { HoldKeeper, type NewHold } from "../../src/billing/holds.ts";
import { LedgerMetrics } from "../../src/billing/ledger-metrics.ts";
import { Metrics } from "../../src/metrics/registry.ts";
import { lockPool } from "../support/breakable-holds.ts";
import { ManualClock } from "../support/clock.ts";
import { endingWith, freshLedger, heldFor, holdRequest, usage } from "../support/ledger.ts";
import { recordLog } from "../support/log.ts";

type KeeperParts = ConstructorParameters<typeof HoldKeeper>[0];

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeAll(async () => {
  ledger = await freshLedger();
});
afterAll(async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await ledger.close();
});

let clock: ManualClock;
let log: ReturnType<typeof recordLog>;
let metered: string[][];
let registered: string[];
let opened: HoldKeeper[];
beforeEach(() => {
  clock = new ManualClock();
  clock.skip(50_000);
  log = recordLog();
  [metered, registered, opened] = [[], [], []];
});
afterEach(async () => {
  for (const holds of opened) await holds.close();
});

/** The holds of a process on the node of the ledger. */
function open(more: Partial<KeeperParts> = {}): HoldKeeper {
  const { store, postgres, node } = ledger;
  const holds = new HoldKeeper({
    ...{ postgres, clock, log: log.log, nodeId: node.id, onLost: () => node.lose() },
    store: {
      ...store,
      checkpoint(requests) {
        metered.push(requests.map(({ requestId, usage }) => `${requestId} ${usage.output}`));
        return store.checkpoint(requests);
      },
      registerPrice(...price) {
        registered.push(price[1].priceVersion);
        return store.registerPrice(...price);
      },
    },
    ...more,
  });
  opened.push(holds);
  return holds;
}

const never = new AbortController().signal;
async function errorOf(work: Promise<unknown>): Promise<ApiError | undefined> {
  return work.then(
    () => undefined,
    (error: unknown) => toApiError(error),
  );
}
/** A request of up to 100 output tokens, of one at least. */
function flexible(payer: Payer, refine?: NewHold["refine"]): NewHold {
  return { ...holdRequest(payer, 100, { minOutput: 1 }), ...(refine && { refine }) };
}
const closer = (request: NewHold): UsageBounds => ({ ...request.bounds, input: 10 });

test("a call goes ahead of its hold where seventeen such holds are free, and not one less", async () => {
  for (const [micro, nodes, isExpected] of [
    [heldFor(100) * 18n, 1, true],
    [heldFor(100) * 18n - 1n, 1, false],
    // A process that knows no others is one of one.
    [heldFor(100) * 18n, 0, true],
    [heldFor(100) * 35n, 2, true],
    [heldFor(100) * 35n - 1n, 2, false],
  ] as const) {
    const holds = open({ liveNodes: () => nodes });
    const payer = await ledger.payer(micro);
    await holds.place(holdRequest(payer, 100), never);
    const expected = holds.expectFull(holdRequest(payer, 100), false);
    expect(expected?.micro).toBe(isExpected ? heldFor(100) : undefined);
    if (expected) expect(holds.expectFull(holdRequest(payer, 100), false)).toBeUndefined();
  }
});

test("for a second after the last admission of the pool, to the millisecond", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 100n);
  const first = await holds.place(holdRequest(payer, 100), never);
  const isKnown = () => holds.expectFull(holdRequest(payer, 100), false) !== undefined;
  await clock.advance(1_000);
  expect(isKnown()).toBe(true);
  await clock.advance(0.5);
  expect(isKnown()).toBe(false);
  // A further admission is known anew, with what it leaves.
  await holds.place(holdRequest(payer, 100), never);
  expect(isKnown()).toBe(true);
  await holds.settle(first, endingWith({}));
});

test("as far as the limits of the pool, of the key and of its manager leave it", async () => {
  const limit = heldFor(100) * 18n;
  const cases = {
    pool: { isLimited: false, of: 1 },
    key: { isLimited: true, of: 2 },
    manager: { isLimited: true, of: 3 },
  };
  for (const [who, { isLimited, of }] of Object.entries(cases))
    for (const less of [0n, 1n]) {
      const holds = open();
      const payer = await ledger.payer(heldFor(100) * 1_000n);
      const { accountId, family, keyId } = payer;
      const manager = `person:per_${keyId.slice(4)}`;
      if (who === "manager")
        await ledger.run("update keys set managed_by = $2 where key_id = $1", [keyId, manager]);
      const limits = { ...unlimited, day: limit - less };
      const name = { pool: "", key: keyId, manager }[who] ?? "";
      await ledger.store.transaction((tx) =>
        setLimits(tx, { accountId, family, payer: name }, limits),
      );
      const request = holdRequest(payer, 100);
      await holds.place(request, never);
      expect(holds.expectFull(request, isLimited)?.of.length).toBe(less === 0n ? of : undefined);
      // Without a look at the limits of the key, the pool alone decides.
      if (who !== "pool" && less === 1n) expect(holds.expectFull(request, false)).toBeDefined();
      if (less === 0n) expect(holds.expectFull(request, isLimited)).toBeUndefined();
    }
});

test("what is not known of a pool, of a key or of its limits, is no reason to go ahead", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 1_000n);
  const request = holdRequest(payer, 100);
  expect(holds.expectFull(request, false)).toBeUndefined();
  expect(holds.expectFull(request, true)).toBeUndefined();
  await holds.place(request, never);
  // The key has no limits.
  expect(holds.expectFull(request, true)).toBeUndefined();
  expect(holds.expectFull(request, false)).toBeDefined();
});

test("each manager has the limits of his own", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 1_000n);
  const { accountId, family } = payer;
  const other = await ledger.payer(0n, { accountId });
  for (const [{ keyId }, micro] of [
    [payer, heldFor(100) * 100n],
    [other, heldFor(100) * 2n],
  ] as const) {
    const manager = `person:of_${keyId.slice(4)}`;
    await ledger.run("update keys set managed_by = $2 where key_id = $1", [keyId, manager]);
    await ledger.store.transaction((tx) =>
      setLimits(tx, { accountId, family, payer: manager }, { ...unlimited, day: micro }),
    );
  }
  for (const one of [payer, other]) await holds.place(holdRequest(one, 100), never);
  expect(holds.expectFull(holdRequest(payer, 100), true)).toBeDefined();
  expect(holds.expectFull(holdRequest(other, 100), true)).toBeUndefined();
});

test("an admission leaves what is expected of the credits as it is", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 20n);
  await holds.place(holdRequest(payer, 100), never);
  const expected = () => holds.expectFull(holdRequest(payer, 100), false) !== undefined;
  expect([expected(), expected()]).toEqual([true, true]);
  await holds.place(holdRequest(payer, 100), never);
  // 18 such holds are free, and two of them are expected.
  expect(expected()).toBe(false);
});

test("a hold that was expected is expected no more once it is placed or refused", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 18n);
  await holds.place(holdRequest(payer, 100), never);
  const request = flexible(payer);
  const expected = holds.expectFull(request, false);
  expect.assert(expected);
  expect(expected.of.map(({ expectedMicro }) => expectedMicro)).toEqual([heldFor(100)]);
  const placed = await holds.placeFull(request, expected);
  expect(placed).toMatchObject({ grantedOutput: 100, amountMicro: heldFor(100) });
  expect(expected.of.map(({ expectedMicro }) => expectedMicro)).toEqual([0n]);
  // All of its output, or nothing: the others took the credits meanwhile.
  await holds.place(holdRequest(payer, 1_850), never);
  expect(await holds.placeFull(flexible(payer), expected)).toBeUndefined();
  expect(expected.of.map(({ expectedMicro }) => expectedMicro)).toEqual([-heldFor(100)]);
  expect((await ledger.pool(payer)).held).toBe(heldFor(100) * 2n + heldFor(1_850));
});

test("the price of a hold is stored once, before the first", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 100n);
  for (let count = 0; count < 2; count++) await holds.place(holdRequest(payer, 100), never);
  expect(registered).toHaveLength(1);
  const other = open();
  const expected = holds.expectFull(holdRequest(payer, 100), false);
  expect.assert(expected);
  await other.placeFull(holdRequest(payer, 100), expected);
  expect(registered).toHaveLength(2);
});

test("closer bounds are asked for once where the grant is reduced, and count", async () => {
  const holds = open();
  for (const [answer, granted] of [
    [closer, 65],
    [() => undefined, 50],
  ] as const) {
    const payer = await ledger.payer(heldFor(50));
    const seen: bigint[] = [];
    const request = flexible(payer);
    const refine = async (freeMicro: bigint) => {
      seen.push(freeMicro);
      return answer(request);
    };
    const hold = await holds.place({ ...request, refine }, never);
    expect([hold.grantedOutput, seen]).toEqual([granted, [heldFor(50)]]);
  }
  // Who cannot say more is not asked.
  const plain = await holds.place(flexible(await ledger.payer(heldFor(50))), never);
  expect(plain.grantedOutput).toBe(50);
});

test("a request that was cancelled while it refined its bounds holds nothing", async () => {
  const holds = open();
  for (const [micro, reason] of [
    [heldFor(50), "cancelled"],
    [heldFor(0), "credits_exhausted"],
  ] as const) {
    const payer = await ledger.payer(micro);
    const abort = new AbortController();
    const request = flexible(payer);
    const refine = async () => {
      abort.abort();
      return closer(request);
    };
    const error = await errorOf(holds.place({ ...request, refine }, abort.signal));
    expect([error?.reason, (await ledger.pool(payer)).held]).toEqual([reason, 0n]);
  }
});

test("closer bounds start a request that the credits did not cover, or it fails at once", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(0));
  const request = flexible(payer);
  const seen: bigint[] = [];
  const refine = async (freeMicro: bigint) => {
    seen.push(freeMicro);
    return undefined;
  };
  const error = await errorOf(holds.place({ ...request, refine }, never));
  expect([error?.reason, seen, clock.pending]).toEqual(["credits_exhausted", [1_000n], 0]);
  const hold = await holds.place({ ...request, refine: async () => closer(request) }, never);
  expect(hold.grantedOutput).toBe(15);
});

test("credits that others hold are waited for during two seconds, with a try each 250 ms", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100));
  const first = await holds.place(holdRequest(payer, 100), never);
  const tries: bigint[] = [];
  const refine = async (freeMicro: bigint) => {
    tries.push(freeMicro);
    return undefined;
  };
  const after = vi.spyOn(clock, "after");
  const waits = () => after.mock.calls.filter(([ms]) => ms === 250).length;
  const failing = errorOf(holds.place(flexible(payer, refine), never));
  for (let count = 1; count <= 8; count++) {
    await vi.waitFor(() => expect(waits()).toBe(count));
    await clock.advance(249);
    expect(waits()).toBe(count);
    await clock.advance(1);
  }
  expect([(await failing)?.reason, waits(), tries.length]).toEqual(["credits_held", 8, 9]);
  expect(new Set(tries)).toEqual(new Set([0n]));
  // One that is refused for another reason waits for nothing.
  const poor = await ledger.payer(1n);
  expect((await errorOf(holds.place(holdRequest(poor, 1), never)))?.reason).toBe(
    "credits_exhausted",
  );
  expect(waits()).toBe(8);
  await holds.settle(first, endingWith({}));
});

test("a wait for credits ends with its request, and leaves nothing behind", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100));
  const first = await holds.place(holdRequest(payer, 100), never);
  const abort = new AbortController();
  const after = vi.spyOn(clock, "after");
  const failing = errorOf(holds.place(holdRequest(payer, 100), abort.signal));
  await vi.waitFor(() => expect(after.mock.calls.some(([ms]) => ms === 250)).toBe(true));
  abort.abort();
  expect((await failing)?.reason).toBe("credits_held");
  expect([clock.pending, getEventListeners(abort.signal, "abort").length]).toEqual([0, 0]);
  // Nobody waits: its settlement wakes none.
  await holds.settle(first, endingWith({}));
});

test("released credits wake as many as they may cover, by a settlement and by a smaller hold", async () => {
  const holds = open();
  const others = await ledger.payer(heldFor(100) * 10n);
  // Each of three needs 990 micro-credits. 990 or 1,000 of a hold of 4,960 become free.
  for (const [tries, release] of [
    [3, { input: 67, output: 66 }],
    [4, { input: 66, output: 66 }],
    [3, { input: 1 }],
    [4, {}],
  ] as const) {
    const payer = await ledger.payer(5_000n);
    const first = await holds.place(holdRequest(payer, 66), never);
    const after = vi.spyOn(clock, "after");
    const waits = () => after.mock.calls.filter(([ms]) => ms === 250).length;
    const abort = new AbortController();
    const waiting = Array.from({ length: 3 }, () => {
      const request = holdRequest(payer, 10);
      return holds.place({ ...request, bounds: { ...request.bounds, input: 39 } }, abort.signal);
    });
    await vi.waitFor(() => expect(waits()).toBe(3));
    if ("output" in release) await holds.settle(first, endingWith(release));
    else await holds.resize(first, usage(release));
    const started = await Promise.any(waiting);
    // What was woken before it has been tried before it.
    await holds.place(holdRequest(others, 1), never);
    expect(waits()).toBe(tries);
    abort.abort();
    await Promise.allSettled(waiting);
    await holds.settle(started, endingWith({}));
    await holds.settle(first, endingWith({}));
    after.mockRestore();
  }
});

test("the other pool is named where it has credits free, and for want of credits alone", async () => {
  const holds = open();
  const refusalOf = async (payer: Payer) => errorOf(holds.place(holdRequest(payer, 100), never));
  const [free, held] = [
    await ledger.payer(heldFor(100), { family: "v2" }),
    await ledger.payer(heldFor(100), { family: "v2" }),
  ];
  const placed = await holds.place(holdRequest(held, 100), never);
  const check = async (payer: Payer, reason: string, isNamed: boolean) => {
    const error = await refusalOf(payer);
    expect([error?.reason, error?.message.includes("do not pay")]).toEqual([reason, isNamed]);
  };
  await check(await ledger.payer(6n, { accountId: free.accountId }), "credits_exhausted", true);
  await check(await ledger.payer(6n, { accountId: held.accountId }), "credits_exhausted", false);
  await check(await ledger.payer(6n), "credits_exhausted", false);
  const capped = await ledger.payer(heldFor(100), { accountId: free.accountId, cap: 1n });
  await check(capped, "monthly_cap_reached", false);
  await holds.settle(placed, endingWith({}));
});

test("a hold fits while it is not too small, and frees neither 10 credits nor a twentieth", async () => {
  const holds = open();
  const hold = await holds.place(holdRequest(await ledger.payer(heldFor(100) * 20n), 100), never);
  const input = usage({ input: 40 });
  const needed = 400n + 6_000n;
  const [much, little] = [10n ** 12n, 2_000n];
  for (const [amountMicro, freeMicro, fits] of [
    [needed, much, true],
    [needed - 1n, much, false],
    [needed + 10_000_000n, much, true],
    [needed + 10_000_001n, much, false],
    [needed + 100n, little, true],
    [needed + 101n, little, false],
    [needed, 0n, true],
  ] as const) {
    const one = { ...hold, amountMicro, freeMicro };
    expect(holds.fits(one, input)).toBe(fits);
    if (fits) expect(await holds.resize(one, input)).toBe(one);
  }
  await holds.settle(hold, endingWith({}));
});

test("a hold is resized to what its request needs, while it is there", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100));
  const hold = await holds.place(holdRequest(payer, 100), never);
  const smaller = await holds.resize(hold, usage({ input: 1 }));
  expect(smaller).toEqual({ ...hold, amountMicro: 10n + 6_000n });
  const grown = await holds.resize(smaller, usage({ input: 50 }));
  expect(grown).toEqual({ ...hold, amountMicro: 500n + 6_000n });
  expect((await ledger.pool(payer)).held).toBe(6_500n);
  await holds.settle(hold, endingWith({}));
  const error = await errorOf(holds.resize(grown, usage({ input: 100 })));
  expect(error?.message).toBe("The hold of this request no longer exists.");
  expect(log.lines()).toEqual([]);
});

test("a hold that cannot be shrunk is named in the log, and grows only once it is", async () => {
  const holds = open({ maxWaitMs: 20 });
  const payer = await ledger.payer(heldFor(100));
  const hold = await holds.place(holdRequest(payer, 100), never);
  const { unlock } = await lockPool(ledger, payer);
  const shrunk = await holds.resize(hold, usage({ input: 1 }));
  const error = await errorOf(holds.resize(shrunk, usage({ input: 90 })));
  expect([error?.reason, error?.facts.retryAfterMs]).toEqual(["billing_unavailable", 1000]);
  await unlock();
  await holds.settle(hold, endingWith({}));
  await holds.close();
  await holds.resize(hold, usage({ input: 1 }));
  await vi.waitFor(() =>
    expect(log.lines()).toMatchObject([
      { level: 40, code: "hold_not_shrunk", requestId: hold.requestId, err: {} },
    ]),
  );
});

test("a settlement reports its charge once, and each end of a hold", async () => {
  const metrics = new Metrics();
  const settled: unknown[] = [];
  const charges: unknown[] = [];
  const holds = open({
    metrics: new LedgerMetrics(metrics),
    onSettled: (...it) => settled.push(it),
    onCharge: (charge) => charges.push(charge),
  });
  const payer = await ledger.payer(heldFor(100) * 3n);
  const hold = await holds.place(holdRequest(payer, 100), never);
  const receipt = await holds.settle(hold, endingWith({ output: 3 }));
  const ended = [payer.accountId, hold.admittedAt];
  expect([settled, charges]).toEqual([[ended], [receipt]]);
  const again = await holds.settle(hold, endingWith({ output: 9 }));
  expect([again, settled, charges]).toEqual([receipt, [ended, ended], [receipt, receipt]]);
  const unknown = { ...hold, requestId: newRequestId() };
  const error = await errorOf(holds.settle(unknown, endingWith({ output: 9 })));
  expect([error?.reason, error?.message]).toEqual(["not_found", "No such hold."]);
  expect([settled.length, charges.length]).toEqual([3, 2]);
  const counted = [...(metrics.samples().get("gateway_charged_microcredits_total") ?? [])];
  expect(counted.map(([, value]) => value)).toEqual([150]);
});

test("an ending is amended for its request alone, and not for a hold that shrinks", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 3n);
  const [one, other] = [
    await holds.place(holdRequest(payer, 100), never),
    await holds.place(holdRequest(payer, 100), never),
  ];
  holds.amend(requestKeyOf(one), endingWith({ output: 5 }));
  const shrunk = await holds.resize(one, usage({ input: 1 }));
  const charged = await Promise.all([
    holds.settle(shrunk, endingWith({ output: 9 })),
    holds.settle(other, endingWith({ output: 7 })),
  ]);
  expect(charged.map(({ chargedMicrocredits }) => chargedMicrocredits)).toEqual([250n, 350n]);
});

test("watched requests that go on are stored with their last usage, whichever others end", async () => {
  const names = ["a", "b", "c", "d"] as const;
  // Each order of the ends.
  for (const ends of [
    [0, 1, 2],
    [1, 3, 0],
    [3, 2, 1],
    [2, 0, 3],
    [0, 3, 1],
  ]) {
    const holds = open();
    const payer = await ledger.payer(heldFor(100) * 4n);
    const placed = await Promise.all(
      names.map((name) =>
        holds.place({ ...holdRequest(payer, 100), requestId: `${newRequestId()}${name}` }, never),
      ),
    );
    const stops = placed.map((hold, index) =>
      holds.watch(requestKeyOf(hold), () => usage({ output: index + 1 })),
    );
    const left = new Set([0, 1, 2, 3]);
    for (const index of ends) {
      stops[index]?.();
      left.delete(index);
      metered = [];
      await holds.checkpoint();
      const expected = [...left].map((at) => `${placed[at]?.requestId} ${at + 1}`);
      expect(metered.flat().sort()).toEqual(expected.sort());
    }
    for (const hold of placed) await holds.settle(hold, endingWith({}));
  }
});

test("a checkpoint stores what has changed, at once with no other, and nothing that is settled", async () => {
  const holds = open();
  const payer = await ledger.payer(heldFor(100) * 2n);
  const hold = await holds.place(holdRequest(payer, 100), never);
  await holds.checkpoint();
  expect(metered).toEqual([]);
  let output: number | undefined = 1;
  const stop = holds.watch(requestKeyOf(hold), () =>
    output === undefined ? undefined : usage({ output }),
  );
  expect(holds.checkpoint()).toBe(holds.checkpoint());
  await holds.checkpoint();
  output = undefined;
  await holds.checkpoint();
  expect(metered).toEqual([[`${hold.requestId} 1`]]);
  output = 2;
  const storing = holds.checkpoint();
  output = undefined;
  await storing;
  await holds.checkpoint();
  expect(metered).toHaveLength(2);
  const [stored] = await ledger.store.findHolds([requestKeyOf(hold)]);
  expect(stored?.used?.output).toBe(2);
  stop();
  await holds.settle(hold, endingWith({}));
  await holds.checkpoint();
  expect(metered).toHaveLength(2);
});

test("usage that could not be stored is stored later, unless its request has ended", async () => {
  const { store } = ledger;
  let isBroken = true;
  const stored: string[][] = [];
  const holds = open({
    store: {
      ...store,
      async checkpoint(requests) {
        if (isBroken) throw new Error("the database is away");
        stored.push(requests.map(({ requestId }) => requestId));
        return store.checkpoint(requests);
      },
    },
  });
  const payer = await ledger.payer(heldFor(100) * 2n);
  const [one, other] = [
    await holds.place(holdRequest(payer, 100), never),
    await holds.place(holdRequest(payer, 100), never),
  ];
  for (const hold of [one, other]) {
    let reads = 0;
    holds.watch(requestKeyOf(hold), () => (reads++ === 0 ? usage({ output: 1 }) : undefined));
  }
  await expect(holds.checkpoint()).rejects.toThrow("away");
  await holds.settle(one, endingWith({}));
  isBroken = false;
  await holds.checkpoint();
  expect(stored).toEqual([[other.requestId]]);
  await holds.settle(other, endingWith({}));
});
