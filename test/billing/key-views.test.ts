// What a key sees of its account: its own data, or everything if it is an account reader.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GetPoolsRequestSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  GetReceiptRequestSchema,
  ListChargesRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import type { Call } from "../../src/contract/contract.ts";
import { errorOf, freshBilling } from "../support/billing.ts";
import { endingWith, heldFor, holdRequest } from "../support/ledger.ts";

let world: Awaited<ReturnType<typeof freshBilling>>;
let mine: Payer;
let others: Payer;
/** The request ids of three charges each, oldest first. */
let charged: { mine: string[]; others: string[] };
const never = new AbortController().signal;
const credits = heldFor(1_000);

beforeAll(async () => {
  world = await freshBilling();
  mine = await world.payer(credits);
  others = await world.payer(0n, { accountId: mine.accountId });
  charged = { mine: [], others: [] };
  for (let round = 0; round < 3; round++) {
    charged.mine.push(await charge(mine));
    charged.others.push(await charge(others));
  }
});
afterAll(() => world.close());

async function charge(payer: Payer): Promise<string> {
  const hold = await world.holds.place(holdRequest(payer, 10), never);
  await world.holds.settle(hold, endingWith({ output: 1 }));
  return hold.requestId;
}

const plain = () => world.keyCall(mine);
const reader = () => world.readerCall(mine);

async function listed(call: Call, pageSize = 100): Promise<string[]> {
  const ids: string[] = [];
  let pageToken = "";
  do {
    const request = create(ListChargesRequestSchema, { pageSize, pageToken });
    const page = await world.billing.listCharges(request, call);
    ids.push(...page.charges.map(({ requestId }) => requestId));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return ids;
}

async function usedBy(call: Call, keyId = ""): Promise<string[]> {
  const from = timestampFromDate(new Date(Date.now() - 3_600_000 * 2));
  const to = timestampFromDate(new Date(Date.now() + 3_600_000));
  const keyIds = keyId === "" ? [] : [keyId];
  const question = { keyIds, startAt: from, endAt: to, groupBy: [UsageGroup.KEY] };
  const request = create(QueryUsageRequestSchema, question);
  const { rows } = await world.billing.queryUsage(request, call);
  return rows.map((row) => row.keyId);
}

describe("a plain key", () => {
  test.for([100, 1])("lists its own charges, newest first, in pages of %i", async (pageSize) => {
    expect(await listed(plain(), pageSize)).toEqual(charged.mine.toReversed());
  });

  test("reads its own usage, and another key looks unused, as one that does not exist", async () => {
    expect(await usedBy(plain())).toEqual([mine.keyId]);
    expect(await usedBy(plain(), mine.keyId)).toEqual([mine.keyId]);
    expect(await usedBy(plain(), others.keyId)).toEqual([]);
    expect(await usedBy(plain(), "key_none")).toEqual([]);
  });

  test("reads its own receipts, and no receipt of another key", async () => {
    const receiptOf = (requestId: string) =>
      world.billing.getReceipt(create(GetReceiptRequestSchema, { requestId }), plain());
    expect((await receiptOf(charged.mine[0] ?? "")).receipt?.keyId).toBe(mine.keyId);
    for (const requestId of [charged.others[0] ?? "", "req_of_nobody"])
      expect(await errorOf(receiptOf(requestId))).toEqual({
        reason: "not_found",
        field: undefined,
      });
  });

  test("reads no receipt of a request of another key that still runs", async () => {
    const hold = await world.holds.place(holdRequest(others, 10), never);
    const request = create(GetReceiptRequestSchema, { requestId: hold.requestId });
    expect((await errorOf(world.billing.getReceipt(request, plain()))).reason).toBe("not_found");
    expect((await world.billing.getReceipt(request, reader())).receipt?.keyId).toBe(others.keyId);
    await world.holds.settle(hold, endingWith({}));
  });

  test("sees what its pool has free, and neither what was bought nor what others hold", async () => {
    const hold = await world.holds.place(holdRequest(others, 10), never);
    const { pools } = await world.billing.getPools(create(GetPoolsRequestSchema), plain());
    const [all] = (await world.billing.getPools(create(GetPoolsRequestSchema), reader())).pools;
    expect(pools).toMatchObject([{ family: Family.V1, freeMicrocredits: all?.freeMicrocredits }]);
    expect([pools[0]?.postedMicrocredits, pools[0]?.heldMicrocredits]).toEqual([
      undefined,
      undefined,
    ]);
    await world.holds.settle(hold, endingWith({}));
  });
});

describe("an account reader", () => {
  test("sees the charges, usage, receipts and pools of the whole account", async () => {
    const both = charged.mine.flatMap((id, index) => [id, charged.others[index] ?? ""]);
    expect((await listed(reader())).filter((id) => both.includes(id))).toEqual(both.toReversed());
    expect(await usedBy(reader())).toEqual([mine.keyId, others.keyId].sort());
    expect(await usedBy(reader(), others.keyId)).toEqual([others.keyId]);
    const request = create(GetReceiptRequestSchema, { requestId: charged.others[0] ?? "" });
    expect((await world.billing.getReceipt(request, reader())).receipt?.keyId).toBe(others.keyId);
    const { pools } = await world.billing.getPools(create(GetPoolsRequestSchema), reader());
    expect(pools.map(({ family }) => family)).toEqual([Family.V1, Family.V2]);
    expect(pools.every(({ postedMicrocredits }) => postedMicrocredits !== undefined)).toBe(true);
  });

  test("sees no other account", async () => {
    const foreign = await world.payer(credits);
    const requestId = await charge(foreign);
    const { accountId } = foreign;
    const works = [
      world.billing.getReceipt(create(GetReceiptRequestSchema, { requestId }), reader()),
      world.billing.getPools(create(GetPoolsRequestSchema, { accountId }), reader()),
      world.billing.listCharges(create(ListChargesRequestSchema, { accountId }), reader()),
    ];
    for (const { reason } of await Promise.all(works.map(errorOf)))
      expect(reason).toBe("not_found");
  });
});
