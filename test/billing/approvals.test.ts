// Transfers of persons that need another person, over a fresh ledger.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  ApproveTransferRequestSchema,
  BillingService,
  CreateTransferRequestSchema,
  ListPendingTransfersRequestSchema,
  RejectTransferRequestSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { type Caller, environmentToken } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { errorOf } from "../support/keys.ts";
import { freshLedger, log } from "../support/ledger.ts";

const limit = 1_000n;
let above: bigint | undefined = limit;

const stack = new AsyncDisposableStack();
let ledger: Awaited<ReturnType<typeof freshLedger>>;
let service: ReturnType<typeof intercept<typeof BillingService>>;
const audited: unknown[] = [];
beforeAll(async () => {
  ledger = stack.adopt(await freshLedger({ ticks: true }), (one) => one.close());
  const { postgres } = ledger;
  const priceOf = () => undefined;
  const approvalAboveMicro = () => above;
  const billing = createBilling({ postgres, priceOf, log, approvalAboveMicro, onLost: () => {} });
  await billing.start();
  stack.defer(() => billing.stop());
  const authenticate = async () => environmentToken;
  const audit = { record: async (event: unknown) => void audited.push(event) };
  service = intercept(BillingService, billing.service, { authenticate, audit, log });
});
afterEach(async () => {
  above = limit;
  expect(await ledger.store.verifyLedger()).toEqual([]);
});
afterAll(() => stack.disposeAsync());

function person(personId: string, operator: OperatorRole = OperatorRole.ADMIN): Caller {
  return {
    kind: "person",
    personId,
    sessionId: "ses_1",
    memberships: [],
    operator,
    strongUntil: new Date(Date.now() + 3_600_000),
  };
}
const [ann, bob] = [person("per_ann"), person("per_bob")];
const callAs = (caller: Caller) => ({
  caller,
  signal: new AbortController().signal,
  requestHeader: new Headers(),
});

let keys = 0;
type Request = MessageInitShape<typeof CreateTransferRequestSchema>;
const requestOf = (accountId: string, more: Request = {}) =>
  create(CreateTransferRequestSchema, {
    accountId,
    family: Family.V1,
    kind: TransferKind.BONUS,
    amountMicrocredits: 5_000n,
    idempotencyKey: `key-${++keys}`,
    reason: "goodwill",
    ...more,
  });
const request = (caller: Caller, one: ReturnType<typeof requestOf>) =>
  service.createTransfer(one, callAs(caller));
const approve = (caller: Caller, pendingTransferId: string) =>
  service.approveTransfer(
    create(ApproveTransferRequestSchema, { pendingTransferId }),
    callAs(caller),
  );
const reject = (caller: Caller, pendingTransferId: string) =>
  service.rejectTransfer(
    create(RejectTransferRequestSchema, { pendingTransferId }),
    callAs(caller),
  );
const pendingOf = async (accountId: string) => {
  const all = create(ListPendingTransfersRequestSchema, { pageSize: 1000 });
  const { pendingTransfers } = await service.listPendingTransfers(all, callAs(ann));
  return pendingTransfers.filter((one) => one.accountId === accountId);
};
const postedOf = async (accountId: string) =>
  (await ledger.store.readPools(accountId)).map(({ postedMicrocredits }) => postedMicrocredits);
async function newAccount() {
  return (await ledger.payer(0n)).accountId;
}

test("what a person adds above the limit waits, and is booked by another person's approval", async () => {
  const accountId = await newAccount();
  const one = requestOf(accountId);
  const { transfer, pendingTransfer: pending } = await request(ann, one);
  expect(transfer).toBeUndefined();
  expect(pending).toMatchObject({
    accountId,
    family: Family.V1,
    kind: TransferKind.BONUS,
    amountMicrocredits: 5_000n,
    idempotencyKey: one.idempotencyKey,
    reason: "goodwill",
    requestedBy: "person:per_ann",
  });
  expect(await postedOf(accountId)).toEqual([0n, 0n]);
  expect(await pendingOf(accountId)).toEqual([pending]);
  const pendingTransferId = pending?.pendingTransferId ?? "";
  expect(await errorOf(approve(ann, pendingTransferId))).toBe("not_permitted");
  expect(await postedOf(accountId)).toEqual([0n, 0n]);

  const approved = await approve(bob, pendingTransferId);
  expect(approved.transfer).toMatchObject({ amountMicrocredits: 5_000n, actor: "person:per_ann" });
  expect(await postedOf(accountId)).toEqual([5_000n, 0n]);
  expect(await pendingOf(accountId)).toEqual([]);
  // Repeats of all of them change nothing.
  expect(await approve(bob, pendingTransferId)).toEqual(approved);
  expect((await request(ann, one)).transfer).toEqual(approved.transfer);
  expect(await errorOf(approve(environmentToken, pendingTransferId))).toBe("wrong_state");
  expect(await postedOf(accountId)).toEqual([5_000n, 0n]);
  expect(audited).toContainEqual(
    expect.objectContaining({
      method: "ApproveTransfer",
      actor: "person:per_bob",
      outcome: "ok",
      accountId,
      facts: expect.objectContaining({ pendingTransferId, requestedBy: "person:per_ann" }),
    }),
  );
});

test.for<[string, Caller, Request]>([
  ["at the limit", ann, { amountMicrocredits: limit }],
  ["that takes credits out", ann, { kind: TransferKind.ADJUSTMENT, amountMicrocredits: -1_001n }],
  ["that is a refund", ann, { kind: TransferKind.REFUND, amountMicrocredits: 1_001n }],
  ["by a token", environmentToken, {}],
])("a transfer %s waits for nobody", async ([, caller, more]) => {
  const { accountId } = await ledger.payer(10_000n);
  const { transfer } = await request(caller, requestOf(accountId, more));
  expect(transfer?.accountId).toBe(accountId);
});

test("without a limit no transfer waits, and a limit of 0 lets each of a person wait", async () => {
  const accountId = await newAccount();
  above = undefined;
  expect((await request(ann, requestOf(accountId))).transfer).toBeDefined();
  above = 0n;
  const least = requestOf(accountId, { amountMicrocredits: 1n });
  expect((await request(ann, least)).pendingTransfer).toBeDefined();
});

describe("a pending transfer", () => {
  test("is the same for a repeat, and starts anew with a changed request or person", async () => {
    const accountId = await newAccount();
    const one = requestOf(accountId);
    const first = (await request(ann, one)).pendingTransfer?.pendingTransferId ?? "";
    expect((await request(ann, one)).pendingTransfer?.pendingTransferId).toBe(first);
    const more = { ...one, amountMicrocredits: 6_000n };
    const second = (await request(ann, more)).pendingTransfer?.pendingTransferId ?? "";
    expect(second).not.toBe(first);
    expect(await errorOf(approve(bob, first))).toBe("wrong_state");
    // A request is no approval.
    const third = (await request(bob, more)).pendingTransfer?.pendingTransferId ?? "";
    expect(await errorOf(approve(bob, third))).toBe("not_permitted");
    await approve(ann, third);
    expect(await postedOf(accountId)).toEqual([6_000n, 0n]);
    expect(await errorOf(request(ann, one))).toBe("idempotency_key_reused idempotency_key");
  });

  test("is booked once by fifty approvals at once", async () => {
    const accountId = await newAccount();
    const { pendingTransfer } = await request(ann, requestOf(accountId));
    const id = pendingTransfer?.pendingTransferId ?? "";
    const others = Array.from({ length: 50 }, (_, index) => person(`per_${index % 5}`));
    const outcomes = await Promise.all(others.map((one) => errorOf(approve(one, id))));
    expect(new Set(outcomes)).toEqual(new Set(["no error", "wrong_state"]));
    // Those of the one person who came first.
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(10);
    expect(await postedOf(accountId)).toEqual([5_000n, 0n]);
  });

  test("of fifty requests at once with one key, in both pools, is one", async () => {
    const accountId = await newAccount();
    const one = requestOf(accountId);
    await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        request(ann, { ...one, family: index % 2 === 0 ? Family.V1 : Family.V2 }),
      ),
    );
    expect(await pendingOf(accountId)).toHaveLength(1);
  });

  test("is approved or rejected when both happen at once", async () => {
    const accountId = await newAccount();
    for (let round = 0; round < 10; round++) {
      const { pendingTransfer } = await request(ann, requestOf(accountId));
      const id = pendingTransfer?.pendingTransferId ?? "";
      const before = (await postedOf(accountId))[0] ?? 0n;
      const outcomes = await Promise.all([errorOf(approve(bob, id)), errorOf(reject(ann, id))]);
      const isApproved = outcomes[0] === "no error";
      expect(outcomes[1]).toBe(isApproved ? "wrong_state" : "no error");
      expect(await postedOf(accountId)).toEqual([isApproved ? before + 5_000n : before, 0n]);
    }
  });

  test("is rejected by its maker or another operator, and can be requested again", async () => {
    const accountId = await newAccount();
    for (const by of [ann, bob]) {
      const one = requestOf(accountId);
      const { pendingTransfer } = await request(ann, one);
      const id = pendingTransfer?.pendingTransferId ?? "";
      await reject(by, id);
      expect(await errorOf(reject(by, id))).toBe("wrong_state");
      expect(await errorOf(approve(bob, id))).toBe("wrong_state");
      expect((await request(ann, one)).pendingTransfer).toBeDefined();
    }
    expect(await postedOf(accountId)).toEqual([0n, 0n]);
  });

  test("is not made for what could not be booked", async () => {
    const accountId = await newAccount();
    expect(await errorOf(request(ann, requestOf("acc_none")))).toBe("not_found account_id");
    const reserved = requestOf(accountId, { idempotencyKey: "pay:ord_1#1" });
    expect(await errorOf(request(ann, reserved))).toBe("not_permitted idempotency_key");
    const deposit = requestOf(accountId, { kind: TransferKind.DEPOSIT });
    expect(await errorOf(request(ann, deposit))).toBe("not_permitted kind");
    const small = requestOf(accountId, { kind: TransferKind.PURCHASE });
    expect(await errorOf(request(ann, small))).toBe("invalid_request amount_microcredits");
    for (const column of ["accounts set status", "pools set account_status"])
      await ledger.run(`update ${column} = 'closed' where account_id = $1`, [accountId]);
    expect(await errorOf(request(ann, requestOf(accountId)))).toBe("account_closed");
    expect(await pendingOf(accountId)).toEqual([]);
  });

  test("is not booked in an account that was closed meanwhile", async () => {
    const accountId = await newAccount();
    const { pendingTransfer } = await request(ann, requestOf(accountId));
    for (const column of ["accounts set status", "pools set account_status"])
      await ledger.run(`update ${column} = 'closed' where account_id = $1`, [accountId]);
    const id = pendingTransfer?.pendingTransferId ?? "";
    expect(await errorOf(approve(bob, id))).toBe("account_closed");
    expect(await postedOf(accountId)).toEqual([0n, 0n]);
  });

  test("is approved by operators who may book, and seen by support", async () => {
    const accountId = await newAccount();
    const { pendingTransfer } = await request(ann, requestOf(accountId));
    const id = pendingTransfer?.pendingTransferId ?? "";
    const support = person("per_support", OperatorRole.SUPPORT);
    expect(await errorOf(approve(support, id))).toBe("not_permitted");
    expect(await errorOf(reject(support, id))).toBe("not_permitted");
    const all = create(ListPendingTransfersRequestSchema);
    expect(await errorOf(service.listPendingTransfers(all, callAs(support)))).toBe("no error");
    const late = { ...bob, strongUntil: new Date(0) };
    expect(await errorOf(approve(late, id))).toBe("confirm_identity");
    expect(await errorOf(approve(bob, "ptr_none"))).toBe("not_found pending_transfer_id");
  });
});

test("pending transfers come in pages, newest first", async () => {
  const accountId = await newAccount();
  for (let index = 0; index < 5; index++) await request(ann, requestOf(accountId));
  const ids: string[] = [];
  let pageToken = "";
  do {
    const page = create(ListPendingTransfersRequestSchema, { pageSize: 2, pageToken });
    const { pendingTransfers, nextPageToken } = await service.listPendingTransfers(
      page,
      callAs(ann),
    );
    ids.push(...pendingTransfers.map(({ pendingTransferId }) => pendingTransferId));
    pageToken = nextPageToken;
  } while (pageToken !== "");
  expect(ids).toEqual(ids.toSorted().reverse());
  expect(ids).toEqual(
    expect.arrayContaining((await pendingOf(accountId)).map((one) => one.pendingTransferId)),
  );
});
