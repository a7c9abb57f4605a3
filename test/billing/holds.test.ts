import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { unlimited } from "../../src/base/budgets.ts";
import { toApiError } from "../../src/base/errors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { requestKeyOf } from "../../src/billing/admission.ts";
import { setLimits } from "../../src/billing/budgets.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import {
  endingWith,
  freshLedger,
  heldFor,
  holdRequest,
  microEach,
  price,
  usage,
} from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
/** It stands still: nobody who waits for credits gives up. */
const clock = new ManualClock();
beforeAll(async () => {
  ledger = await freshLedger({ clock });
});
afterEach(async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
});
afterAll(() => ledger.close());

const never = new AbortController().signal;
const place = (request: Parameters<typeof ledger.holds.place>[0]) =>
  ledger.holds.place(request, never);

test("a settled request costs its tokens at their prices, and the rest of its hold is free again", async () => {
  const payer = await ledger.payer(1_000_000n);
  const hold = await place(holdRequest(payer, 100));
  expect(await ledger.pool(payer)).toEqual({ posted: 1_000_000n, held: heldFor(100) });
  const receipt = await ledger.holds.settle(
    hold,
    endingWith({ input: 80, output: 20, thinking: 5, cacheRead: 10 }),
  );
  const cost = 80n * 10n + 20n * 50n + 5n * 60n + 10n;
  expect(receipt.chargedMicrocredits).toBe(cost);
  expect(receipt.overrunMicrocredits).toBe(0n);
  expect(await ledger.pool(payer)).toEqual({ posted: 1_000_000n - cost, held: 0n });
});

test("settling twice charges once and returns the first receipt", async () => {
  const payer = await ledger.payer(1_000_000n);
  const hold = await place(holdRequest(payer, 100));
  const [first, second] = await Promise.all([
    ledger.holds.settle(hold, endingWith({ output: 10 })),
    ledger.holds.settle(hold, endingWith({ output: 99 })),
  ]);
  const third = await ledger.holds.settle(hold, endingWith({ output: 50 }));
  expect([
    first.chargedMicrocredits,
    second.chargedMicrocredits,
    third.chargedMicrocredits,
  ]).toEqual([500n, 500n, 500n]);
});

test("a cost beyond the hold is recorded and not charged", async () => {
  const payer = await ledger.payer(1_000_000n);
  const hold = await place(holdRequest(payer, 10));
  const receipt = await ledger.holds.settle(hold, endingWith({ input: 1_000 }));
  expect(receipt.chargedMicrocredits).toBe(heldFor(10));
  expect(receipt.overrunMicrocredits).toBe(10_000n - heldFor(10));
});

test("a hold that was shrunk grows again when a later report needs it, even while it shrinks", async () => {
  const payer = await ledger.payer(10_000n);
  for (const isWaiting of [false, true]) {
    const hold = await place(holdRequest(payer, 10));
    const shrunk = await ledger.holds.resize(hold, usage({ input: 1 }));
    expect(shrunk.amountMicro).toBe(10n + 10n * 60n);
    if (isWaiting) await vi.waitFor(async () => expect((await ledger.pool(payer)).held).toBe(610n));
    const grown = await ledger.holds.resize(shrunk, usage({ input: 90 }));
    expect(grown.amountMicro).toBe(900n + 10n * 60n);
    expect((await ledger.pool(payer)).held).toBe(1_500n);
    const receipt = await ledger.holds.settle(grown, endingWith({ input: 90, output: 10 }));
    expect(receipt).toMatchObject({ chargedMicrocredits: 1_400n, overrunMicrocredits: 0n });
  }
});

test("the largest usage that can be reported is charged up to the grant, and the ledger stays sound", async () => {
  const payer = await ledger.payer(1_000_000n);
  const hold = await place(holdRequest(payer, 10));
  const most = 2 ** 31 - 1;
  const receipt = await ledger.holds.settle(hold, endingWith({ output: most, thinking: most }));
  expect(receipt).toMatchObject({
    usage: { output: 0, thinking: 10 },
    reportedUsage: { output: most, thinking: most },
    chargedMicrocredits: 600n,
  });
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("output beyond the grant is recorded and not charged, even where the hold would cover it", async () => {
  const payer = await ledger.payer(1_000_000n);
  const hold = await place(holdRequest(payer, 10));
  const receipt = await ledger.holds.settle(hold, endingWith({ output: 12, thinking: 4 }));
  expect(receipt).toMatchObject({
    usage: { output: 6, thinking: 4 },
    reportedUsage: { output: 12, thinking: 4 },
    grantedOutputTokens: 10,
    chargedMicrocredits: 6n * 50n + 4n * 60n,
    overrunMicrocredits: 6n * 50n,
  });
  expect(await ledger.store.findCharge(requestKeyOf(hold))).toEqual(receipt);
});

test("fifty requests racing for ten holds' worth of credits admit exactly ten", async () => {
  const payer = await ledger.payer(heldFor(100) * 10n);
  const placed = await passDuring(
    () => clock.endPause(),
    Promise.allSettled(Array.from({ length: 50 }, () => place(holdRequest(payer, 100)))),
  );
  const held = placed.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const reasons = placed.flatMap((one) => (one.status === "rejected" ? [one.reason.reason] : []));
  expect(held).toHaveLength(10);
  expect(new Set(reasons)).toEqual(new Set(["credits_held"]));
  await Promise.all(held.map((hold) => ledger.holds.settle(hold, endingWith({}))));
});

test("a request that waits for held credits starts as soon as another one releases them", async () => {
  const payer = await ledger.payer(heldFor(100));
  const first = await place(holdRequest(payer, 100));
  const after = vi.spyOn(clock, "after");
  const second = place(holdRequest(payer, 100));
  // It was refused, and would try again at that time.
  await vi.waitFor(() => expect(after).toHaveBeenCalledWith(250, expect.anything()));
  await ledger.holds.settle(first, endingWith({}));
  const started = await second;
  expect(started.amountMicro).toBe(heldFor(100));
  expect(await ledger.pool(payer)).toEqual({ posted: heldFor(100), held: heldFor(100) });
  await ledger.holds.settle(started, endingWith({}));
});

test("the error of a request beyond the credits names the free and the needed credits", async () => {
  const payer = await ledger.payer(heldFor(100) - 1n);
  await expect(place(holdRequest(payer, 100))).rejects.toMatchObject({
    reason: "credits_exhausted",
    message: expect.stringContaining(
      "has 0.006999 credits free, and this request needs 0.007 set aside",
    ),
  });
});

test("and says that the credits of the other pool do not pay, without how many there are", async () => {
  const { accountId } = await ledger.payer(heldFor(500), { family: "v2" });
  const payer = await ledger.payer(0n, { accountId });
  const refused = place(holdRequest(payer, 100));
  await expect(refused).rejects.toMatchObject({
    reason: "credits_exhausted",
    message:
      "The v1 pool of this account has 0 credits free, and this request needs 0.007 set aside. " +
      "Add credits to continue. This is a v1 key; credits of v2 do not pay for it.",
    facts: { limit: { remaining: 0n, exhausted: true } },
  });
});

test("a key never holds and spends more than its monthly cap", async () => {
  const payer = await ledger.payer(100_000_000n, { cap: heldFor(100) });
  const hold = await place(holdRequest(payer, 100));
  await ledger.holds.settle(hold, endingWith({ output: 1 }));
  await expect(place(holdRequest(payer, 100))).rejects.toMatchObject({
    reason: "monthly_cap_reached",
  });
});

test.for([-3, -2, -1, 0, 1])(
  "a cap counts what was spent in its month alone: %i months away",
  async (away) => {
    const payer = await ledger.payer(heldFor(100), { cap: heldFor(100) });
    const { keyId } = payer;
    const day = `(date_trunc('month', now() at time zone 'utc') + interval '${away} months')::date`;
    // It was spent in the month of that day.
    await ledger.run(`update budgets set spent = 1, day = ${day} where payer = $1`, [keyId]);
    const placed = place(holdRequest(payer, 100));
    // Of a clock that goes back by a month, the later one stands.
    if (away >= 0) await expect(placed).rejects.toMatchObject({ reason: "monthly_cap_reached" });
    else expect((await placed).left.ofKey).toBe(0n);
    await placed.then((hold) => ledger.holds.settle(hold, endingWith({}))).catch(() => undefined);
    await ledger.run("update budgets set spent = 0 where payer = $1", [keyId]);
  },
);

test("a cap that covers the least worth of a request starts it, and does not make it cheaper", async () => {
  const dear = 100n * microEach.cacheWrite1h + 50n * microEach.output;
  const least = 40n * microEach.input + 50n * microEach.thinking;
  const payer = await ledger.payer(100_000_000n, { cap: least });
  const request = holdRequest(payer, 50);
  const bounds = {
    ...request.bounds,
    minInput: 40,
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
  };
  const hold = await place({ ...request, bounds });
  const { chargedMicrocredits: amountMicrocredits, overrunMicrocredits } =
    await ledger.holds.settle(hold, endingWith({ cacheWrite1h: 100, output: 50 }));
  expect([amountMicrocredits, overrunMicrocredits]).toEqual([dear, 0n]);
  expect(dear > least).toBe(true);
  await expect(place(holdRequest(payer, 1))).rejects.toMatchObject({
    reason: "monthly_cap_reached",
    facts: { limit: { remaining: 0n, used: dear, exhausted: true } },
  });
});

test("a used request id is accepted for a repeat of its request only", async () => {
  const payer = await ledger.payer(100_000_000n);
  const requestId = newRequestId();
  const request = holdRequest(payer, 100, { requestId, nonce: "nonce-of-the-first" });
  const hold = await place(request);
  expect(await place(request)).toMatchObject({ amountMicro: hold.amountMicro, grantedOutput: 100 });
  await expect(
    place({ ...request, nonce: "another-nonce" } as typeof request),
  ).rejects.toMatchObject({
    reason: "request_id_used",
  });
  await ledger.holds.settle(hold, endingWith({}));
  await expect(place(request)).rejects.toMatchObject({ reason: "request_id_used" });
});

test("a repeated request keeps the price of its admission after the model's price changed", async () => {
  const payer = await ledger.payer(100_000_000n);
  const request = holdRequest(payer, 100, { nonce: "nonce-of-the-first" });
  const hold = await place(request);
  for (const output of [25n, 70n]) {
    const again = await place({
      ...request,
      price: priceVersion("model-test", { ...price, output, thinking: output }),
    });
    expect(again).toEqual({ ...hold, freeMicro: 0n });
  }
  expect((await ledger.holds.settle(hold, endingWith({ output: 7 }))).chargedMicrocredits).toBe(
    350n,
  );
});

test("a small balance grants less output than requested, at least the minimum", async () => {
  const payer = await ledger.payer(heldFor(2_000));
  const hold = await place(holdRequest(payer, 128_000, { minOutput: 1_024 }));
  expect(hold.grantedOutput).toBe(2_000);
  await ledger.holds.settle(hold, endingWith({}));
});

test("a hold grows to the input that the provider reports, as far as the pool lasts", async () => {
  const payer = await ledger.payer(heldFor(100) + 5_000n);
  const hold = await place(holdRequest(payer, 100));
  const grown = await ledger.holds.resize(hold, usage({ input: 600 }));
  expect(grown.amountMicro).toBe(heldFor(100) + 5_000n);
  expect((await ledger.holds.resize(grown, usage({ input: 601 }))).amountMicro).toBe(
    grown.amountMicro,
  );
  await ledger.holds.settle(grown, endingWith({ input: 600, thinking: 100 }));
  expect(await ledger.pool(payer)).toEqual({ posted: 0n, held: 0n });
});

test("the batch itself rejects a secret that was revoked or has expired, and no other", async () => {
  const payer = await ledger.payer(100_000_000n);
  const states = {
    live: "null, null",
    ending: "now() + interval '1 hour', null",
    expired: "now(), null",
    revoked: "null, now()",
    both: "now() + interval '1 hour', now()",
  };
  for (const [name, dates] of Object.entries(states))
    await ledger.run(
      `insert into key_secrets (digest, secret_id, key_id, shown, expires_at, revoked_at)
       values (sha256($1::bytea), $2, $3, '', ${dates})`,
      [`${payer.keyId} ${name}`, `${name} ${payer.keyId}`, payer.keyId],
    );
  const outcomes = await Promise.all(
    Object.keys(states).map(async (name) => {
      const secretId = `${name} ${payer.keyId}`;
      const placed = place(holdRequest({ ...payer, secretId }, 100));
      const error = await placed.then(() => undefined, toApiError);
      if (!error) await ledger.holds.settle(await placed, endingWith({}));
      return error?.reason;
    }),
  );
  expect(outcomes).toEqual([
    ...[undefined, undefined, "invalid_key", "revoked_key", "revoked_key"],
  ]);
});

test("the batch itself rejects a revoked key and a model outside the list", async () => {
  const payer = await ledger.payer(100_000_000n, { allowedModels: ["model-other"] });
  await expect(place(holdRequest(payer, 100))).rejects.toMatchObject({
    reason: "model_not_allowed",
  });
  await ledger.run("update keys set status = 'revoked' where key_id = $1", [payer.keyId]);
  await expect(place(holdRequest(payer, 100))).rejects.toMatchObject({ reason: "revoked_key" });
});

test.for<[string, string, string]>([
  ["paused", "paused = true", "key_paused"],
  ["expired", "expires_at = now()", "key_expired"],
  ["paused and expired", "paused = true, expires_at = now()", "key_expired"],
  ["revoked and paused", "paused = true, status = 'revoked'", "revoked_key"],
])("the batch itself rejects a key that is %s; its running request may grow", async (one) => {
  const [, change, reason] = one;
  const payer = await ledger.payer(100_000_000n);
  const hold = await place(holdRequest(payer, 100));
  await ledger.run(`update keys set ${change} where key_id = $1`, [payer.keyId]);
  await expect(place(holdRequest(payer, 100))).rejects.toMatchObject({ reason });
  const grown = await ledger.holds.resize(hold, usage({ input: 300 }));
  expect(grown.amountMicro).toBeGreaterThan(hold.amountMicro);
  await ledger.holds.settle(grown, endingWith({ input: 300, output: 1 }));
});

test("the holds of a dead process are settled by their last metered usage", async () => {
  const payer = await ledger.payer(100_000_000n);
  const hold = await place(holdRequest(payer, 100));
  ledger.holds.watch(requestKeyOf(hold), () => usage({ input: 7, output: 3 }));
  await ledger.holds.checkpoint();
  await ledger.run(
    "update holds set deadline = now() - interval '1 second' where request_id = $1",
    [hold.requestId],
  );
  await ledger.node.poll(ledger.holds);
  const charge = await ledger.store.findCharge(requestKeyOf(hold));
  expect(charge).toMatchObject({
    chargedMicrocredits: 7n * 10n + 3n * 50n,
    outcome: Outcome.REAPED,
  });
});

test("calls before their holds of all keys of a manager never exceed his budget", async () => {
  const payer = await ledger.payer(heldFor(100) * 10_000n);
  const { accountId, family } = payer;
  const others = [await ledger.payer(0n, { accountId }), await ledger.payer(0n, { accountId })];
  const keyIds = [payer, ...others].map(({ keyId }) => keyId);
  const person = "person:per_many";
  await ledger.run("update keys set managed_by = $2 where key_id = any($1)", [keyIds, person]);
  await ledger.store.transaction((tx) =>
    setLimits(tx, { accountId, family, payer: person }, { ...unlimited, day: heldFor(100) * 43n }),
  );
  const requests = keyIds.map((keyId) => ({
    ...holdRequest({ ...payer, keyId }, 100),
    hasNewId: true,
  }));
  for (const request of requests) await place(request);
  // 40 such holds are free. Each call leaves room for 16 more, whichever key makes it.
  const begun = Array.from({ length: 300 }, (_, index) => {
    const request = requests[index % requests.length];
    expect.assert(request);
    return ledger.holds.expectFull(request, true) ?? [];
  }).flat();
  expect(begun).toHaveLength(24);
});

test("calls before their holds never exceed what the pool can pay", async () => {
  const request = { ...holdRequest(await ledger.payer(heldFor(100) * 41n), 100), hasNewId: true };
  expect(ledger.holds.expectFull(request, false)).toBeUndefined();
  await place(request);
  // 40 such holds are free. Each call leaves room for 16 more.
  const expected = Array.from({ length: 300 }, () => ledger.holds.expectFull(request, false));
  const begun = expected.flatMap((one) => one ?? []);
  expect(begun).toHaveLength(24);
  // No month of the key is known.
  expect(ledger.holds.expectFull(request, true)).toBeUndefined();
  const placed = await Promise.all(
    begun.map((one, index) =>
      ledger.holds.placeFull(
        // None is that of the first hold, whose id may end with any two digits.
        { ...request, requestId: `${request.requestId.slice(0, -2)}x${index}` },
        one,
      ),
    ),
  );
  expect(placed.every((hold) => hold?.amountMicro === heldFor(100))).toBe(true);
  // The answers of the ledger took the place of what was expected: 16 are left.
  expect(ledger.holds.expectFull(request, false)).toBeUndefined();
});
