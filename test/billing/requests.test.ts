// A request is an account and a request id, and an id is used once per account.

import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { FindRequestsRequestSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { isRequestId, newRequestId } from "../../src/base/ids.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import { type Payer, requestKeyOf } from "../../src/billing/admission.ts";
import { anyOrder, ofCategories } from "../support/arbitraries.ts";
import { errorOf, freshBilling } from "../support/billing.ts";
import { endingWith, heldFor, holdRequest, startNode, usage } from "../support/ledger.ts";

const never = new AbortController().signal;

let world: Awaited<ReturnType<typeof freshBilling>>;
beforeAll(async () => {
  world = await freshBilling();
});
afterEach(async () => {
  expect(await world.store.verifyLedger()).toEqual([]);
});
afterAll(() => world.close());

const place = (payer: Payer, requestId: string) =>
  world.holds.place(holdRequest(payer, 100, { requestId }), never);

/** The request id with another time, in days from now. */
function idMade(days: number): string {
  const atMs = Date.now() + days * 86_400_000;
  return `req_${atMs.toString(16).padStart(12, "0")}${newRequestId().slice(16)}`;
}

/** Opens all days again: a request is settled on a day of years ago. */
const openDays = () =>
  world.run("update usage_progress set closed_to = '0001-01-01', hours_from = '0001-01-01'");

/** Moves the request of a hold to another month, counted from the current one. */
async function moveTo(months: number, requestId: string): Promise<void> {
  const month = `(date_trunc('month', now() at time zone 'utc') + interval '${months} months')::date`;
  await world.run(
    `do $$ begin
       execute format('create table if not exists %I partition of charges for values from (%L) to (%L)',
         to_char(${month}, '"charges_"YYYY_MM'), ${month}, (${month} + interval '1 month')::date);
     end $$`,
  );
  await world.run(
    `update holds set month = ${month}, admitted_at = ${month}::timestamp at time zone 'utc'
     where request_id = $1`,
    [requestId],
  );
  await openDays();
}

describe("two accounts that use the same request id", () => {
  test("have holds, meters, charges and receipts of their own, in one batch and in one process", async () => {
    const payers = [await world.payer(heldFor(100)), await world.payer(heldFor(100))] as const;
    const requestId = newRequestId();
    const [first, second] = await Promise.all(payers.map((payer) => place(payer, requestId)));
    if (!first || !second) throw new Error("no holds");
    world.holds.watch(requestKeyOf(first), () => usage({ output: 1 }));
    world.holds.watch(requestKeyOf(second), () => usage({ output: 2 }));
    await world.holds.checkpoint();
    const metered = async () =>
      (await world.store.findHolds([first, second].map(requestKeyOf)))
        .map(({ used }) => used.output)
        .sort();
    expect(await metered()).toEqual([1, 2]);

    await Promise.all([
      world.holds.resize(first, usage({ input: 1 })),
      world.holds.resize(second, usage({ input: 2 })),
    ]);
    const receipts = await Promise.all([
      world.holds.settle(first, endingWith({ output: 7 })),
      world.holds.settle(second, endingWith({ output: 9 })),
    ]);
    expect(receipts.map((one) => one.chargedMicrocredits)).toEqual([350n, 450n]);
    expect(await world.store.findCharge(requestKeyOf(first))).toEqual(receipts[0]);
    expect(await world.store.findCharge(requestKeyOf(second))).toEqual(receipts[1]);
    for (const payer of payers)
      expect((await errorOf(place(payer, requestId))).reason).toBe("request_id_used");
  });

  test("are both listed for the operator, and only for the operator", async () => {
    const [first, second] = [await world.payer(heldFor(100)), await world.payer(heldFor(100))];
    const requestId = newRequestId();
    await world.holds.settle(await place(first, requestId), endingWith({ output: 1 }));
    const running = await place(second, requestId);
    const find = async (id: string, call = world.admin) =>
      (await world.billing.findRequests(create(FindRequestsRequestSchema, { requestId: id }), call))
        .receipts;
    expect(await find(requestId)).toMatchObject([
      { accountId: second.accountId, outcome: Outcome.RUNNING },
      { accountId: first.accountId, outcome: Outcome.COMPLETED, chargedMicrocredits: 50n },
    ]);
    expect(await find(newRequestId())).toEqual([]);
    expect((await errorOf(find(requestId, world.keyCall(first)))).reason).toBe("not_permitted");
    await world.holds.settle(running, endingWith({}));
  });
});

test("of the requests of one process those that run on are checkpointed, whichever end", async () => {
  const property = fc.asyncProperty(anyOrder(4), fc.nat(4), async (order, count) => {
    const payer = await world.payer(heldFor(100) * 4n);
    const ids = order.map(() => newRequestId());
    const holds = await Promise.all(ids.map((requestId) => place(payer, requestId)));
    const ends = holds.map((hold, index) =>
      world.holds.watch(requestKeyOf(hold), () => usage({ output: index + 1 })),
    );
    const ended = order.slice(0, count);
    for (const index of ended) ends[index]?.();
    await world.holds.checkpoint();
    const stored = await world.store.findHolds(holds.map(requestKeyOf));
    const outputs = ids.map((id) => stored.find(({ hold }) => hold.requestId === id)?.used.output);
    expect(outputs).toEqual(ids.map((_, index) => (ended.includes(index) ? 0 : index + 1)));
    for (const index of order.slice(count)) ends[index]?.();
    await Promise.all(holds.map((hold) => world.holds.settle(hold, endingWith({}))));
  });
  await fc.assert(property, { numRuns: 20 });
});

test("a stored count of a running request never falls, and each has its own category", async () => {
  const payer = await world.payer(heldFor(100));
  const hold = await place(payer, newRequestId());
  let reported = usage({});
  const end = world.holds.watch(requestKeyOf(hold), () => reported);
  let most = usage({});
  const used = ofCategories(fc.nat(1_000)).map(usage);
  const property = fc.asyncProperty(used, async (next) => {
    reported = next;
    most = usage(byCategory((category) => Math.max(most[category], next[category])));
    await world.holds.checkpoint();
    const [stored] = await world.store.findHolds([requestKeyOf(hold)]);
    expect(stored?.used).toEqual(most);
  });
  await fc.assert(property, { numRuns: 20 });
  end();
  await world.holds.settle(hold, endingWith({}));
});

test("a charge whose month has no partition waits until there is one", async () => {
  const payer = await world.payer(heldFor(100));
  const hold = await place(payer, newRequestId());
  await world.run(
    "update holds set month = '2019-05-01', admitted_at = '2019-05-01' where request_id = $1",
    [hold.requestId],
  );
  await openDays();
  const settled = vi.fn();
  const settling = world.holds.settle(hold, endingWith({ output: 1 })).finally(settled);
  const other = await place(await world.payer(heldFor(100)), newRequestId());
  await world.holds.settle(other, endingWith({}));
  expect(settled).not.toHaveBeenCalled();
  await world.run(
    "create table charges_2019_05 partition of charges for values from ('2019-05-01') to ('2019-06-01')",
  );
  expect((await settling).chargedMicrocredits).toBe(50n);
});

describe("a used request id", () => {
  const cases = [
    { name: "made a moment ago, charged this month", id: newRequestId(), months: 0 },
    {
      name: "made before midnight, charged in the month that ended",
      id: newRequestId(),
      months: -1,
    },
    { name: "of a caller, charged this month", id: "req_of-a-caller-0", months: 0 },
    { name: "of a caller, charged last month", id: "req_of-a-caller-1", months: -1 },
    // The first month that only the statement for ids of callers reads.
    { name: "of a caller, charged two months ago", id: "req_of-a-caller-4", months: -2 },
    { name: "of a caller, charged three months ago", id: "req_of-a-caller-3", months: -3 },
    { name: "of a caller, charged three years ago", id: "req_of-a-caller-2", months: -36 },
    { name: "made three years ago, charged then", id: idMade(-3 * 365), months: -36 },
  ];
  for (const { name, id, months } of cases) {
    test(`${name}, is refused`, async () => {
      const payer = await world.payer(heldFor(100) * 2n);
      const hold = await place(payer, id);
      await moveTo(months, id);
      await world.holds.settle(hold, endingWith({ output: 1 }));
      expect((await errorOf(place(payer, id))).reason).toBe("request_id_used");
      // The same batch admits another request.
      const [used, unused] = await Promise.allSettled([
        place(payer, id),
        place(payer, newRequestId()),
      ]);
      expect(used).toMatchObject({ status: "rejected", reason: { reason: "request_id_used" } });
      if (unused?.status !== "fulfilled") throw new Error("not admitted");
      await world.holds.settle(unused.value, endingWith({}));
    });
  }

  test("that another process charges over midnight of the first is refused while it is placed", async () => {
    const payer = await world.payer(heldFor(100) * 2n);
    const other = await startNode(world.url);
    const requestId = newRequestId();
    // The other process admits in the old month and settles in the new one.
    const hold = await other.holds.place(holdRequest(payer, 100, { requestId }), never);
    await moveTo(-1, requestId);
    const [settled, placed] = await Promise.allSettled([
      other.holds.settle(hold, endingWith({ output: 1 })),
      place(payer, requestId),
    ]);
    expect(settled.status).toBe("fulfilled");
    expect(placed).toMatchObject({ status: "rejected", reason: { reason: "request_id_used" } });
    await other.stop();
  });

  test("cannot carry the time of another day to come, when it would be taken for a new one", () => {
    expect(isRequestId(idMade(0.9))).toBe(true);
    expect(isRequestId(idMade(2))).toBe(false);
    expect(isRequestId(idMade(-4000))).toBe(true);
  });
});
