import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  CreateAccountRequestSchema,
  GetAccountRequestSchema,
  ListAccountsRequestSchema,
  SuspendAccountRequestSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  CheckpointHoldRequestSchema,
  GetPoolsRequestSchema,
  InputCategory,
  ListTransfersRequestSchema,
  PlaceHoldRequestSchema,
  SettleHoldRequestSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Actor } from "../../gen/gateway/common/v1/actor_pb.ts";
import {
  GetForecastRequestSchema,
  GetReceiptRequestSchema,
  ListChargesRequestSchema,
  QueryRefusalsRequestSchema,
  QueryUsageRequestSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { VerifyLedgerRequestSchema } from "../../gen/gateway/verification/v1/verification_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { errorOf, freshBilling, newNonce } from "../support/billing.ts";
import { callBy } from "../support/calls.ts";
import { endingWith, heldFor, holdRequest, log, microEach } from "../support/ledger.ts";

type Place = Exclude<MessageInitShape<typeof PlaceHoldRequestSchema>, { $typeName: string }>;
type Settle = Exclude<MessageInitShape<typeof SettleHoldRequestSchema>, { $typeName: string }>;

let world: Awaited<ReturnType<typeof freshBilling>>;
beforeAll(async () => {
  world = await freshBilling();
});
afterEach(async () => {
  expect(await world.store.verifyLedger()).toEqual([]);
});
afterAll(() => world.close());

const never = new AbortController().signal;
const tokensMax = 2 ** 31 - 1;

const placing = (payer: Payer, more: Place = {}) =>
  create(PlaceHoldRequestSchema, {
    requestId: newRequestId(),
    keyId: payer.keyId,
    model: "model-test",
    maxInputTokens: 100,
    mostExpensiveInput: InputCategory.PLAIN,
    minOutputTokens: 100,
    maxOutputTokens: 100,
    nonce: newNonce(),
    ...more,
  });
const place = (payer: Payer, more: Place = {}) =>
  world.billing.placeHold(placing(payer, more), world.admin);
const settle = ({ accountId }: Pick<Payer, "accountId">, more: Settle) =>
  world.billing.settleHold(
    create(SettleHoldRequestSchema, {
      accountId,
      usage: { output: 1 },
      outcome: Outcome.COMPLETED,
      basis: Basis.REPORTED,
      ...more,
    }),
    world.admin,
  );
const checkpoint = (
  { accountId }: Pick<Payer, "accountId">,
  requestId: string,
  usage: { output?: number; webSearches?: number },
) =>
  world.billing.checkpointHold(
    create(CheckpointHoldRequestSchema, { accountId, requestId, usage }),
    world.admin,
  );
const receiptOf = async (accountId: string, requestId: string, call = world.admin) =>
  (await world.billing.getReceipt(create(GetReceiptRequestSchema, { accountId, requestId }), call))
    .receipt;

describe("holds of internal services", () => {
  test("web searches are held, metered and charged at their price", async () => {
    const held = heldFor(100) + 3n * microEach.webSearch;
    const payer = await world.payer(held);
    const request = placing(payer, { webSearches: 3 });
    const { requestId } = request;
    const placed = await world.billing.placeHold(request, world.admin);
    expect(placed).toMatchObject({ holdMicrocredits: held, price: { webSearch: 2_000n } });
    await checkpoint(payer, requestId, { webSearches: 2 });
    await checkpoint(payer, requestId, { webSearches: 1, output: 1 });
    expect(await receiptOf(payer.accountId, requestId)).toMatchObject({
      usage: { webSearches: 2, output: 1 },
    });
    const { receipt } = await settle(payer, { requestId, usage: { output: 1, webSearches: 3 } });
    expect(receipt).toMatchObject({
      usage: { webSearches: 3 },
      chargedMicrocredits: microEach.output + 3n * microEach.webSearch,
    });
    expect(await receiptOf(payer.accountId, requestId)).toEqual(receipt);
  });

  test("a hold without searches covers none of them", async () => {
    const payer = await world.payer(heldFor(100));
    const request = placing(payer);
    const { requestId } = request;
    await world.billing.placeHold(request, world.admin);
    const { receipt } = await settle(payer, { requestId, usage: { webSearches: 1_000 } });
    expect(receipt).toMatchObject({
      chargedMicrocredits: heldFor(100),
      overrunMicrocredits: 1_000n * microEach.webSearch - heldFor(100),
    });
    const over = { webSearches: 2 ** 31 };
    expect((await errorOf(settle(payer, { requestId, usage: over }))).reason).toBe(
      "invalid_request",
    );
  });

  test("a hold is placed, metered and settled, and its receipt shows each state", async () => {
    const payer = await world.payer(heldFor(100));
    const request = placing(payer);
    const { requestId } = request;
    const placed = await world.billing.placeHold(request, world.admin);
    expect(placed).toMatchObject({ grantedOutputTokens: 100, holdMicrocredits: heldFor(100) });
    await checkpoint(payer, requestId, { output: 7 });
    await checkpoint(payer, requestId, { output: 3 });
    expect(await receiptOf(payer.accountId, requestId)).toMatchObject({
      outcome: Outcome.RUNNING,
      usage: { output: 7 },
      chargedMicrocredits: 0n,
    });
    const { receipt } = await settle(payer, { requestId, usage: { output: 20 } });
    expect(receipt).toMatchObject({
      chargedMicrocredits: 1_000n,
      holdMicrocredits: heldFor(100),
      outcome: Outcome.COMPLETED,
    });
    expect(await receiptOf(payer.accountId, requestId)).toEqual(receipt);
  });

  test("the charge of a program names it, and lists find the charges of one program", async () => {
    const payer = await world.payer(heldFor(100) * 3n);
    const { accountId } = payer;
    const token = { ...environmentToken, name: "billing-bot", tokenId: "tok_bot" };
    const own = await world.billing.placeHold(placing(payer), callBy(token));
    const request = placing(payer);
    const { requestId } = request;
    await world.billing.placeHold(request, callBy(token));
    const madeBy = toActor("token:billing-bot");
    expect(own.accountId).toBe(accountId);
    expect(await receiptOf(accountId, requestId)).toMatchObject({ madeBy });
    // Who settles it does not change who asked for it.
    expect((await settle(payer, { requestId })).receipt).toMatchObject({ madeBy });
    expect(await receiptOf(accountId, requestId)).toMatchObject({ madeBy });
    // The gateway itself.
    const hold = await world.holds.place(holdRequest(payer, 100), never);
    await world.holds.settle(hold, endingWith({ output: 1 }));
    expect((await receiptOf(accountId, hold.requestId))?.madeBy).toBeUndefined();
    const list = async (filter: { madeBy?: Actor | undefined }) =>
      (
        await world.billing.listCharges(
          create(ListChargesRequestSchema, { accountId, filter }),
          world.admin,
        )
      ).charges.map((charge) => charge.requestId);
    expect(await list({ madeBy })).toEqual([requestId]);
    expect(await list({ madeBy: toActor("token:other") })).toEqual([]);
    expect(await list({})).toEqual([hold.requestId, requestId]);
  });

  test("a repeated call returns the first hold; another call with the same id is rejected", async () => {
    const payer = await world.payer(heldFor(100) * 5n);
    const other = await world.payer(heldFor(100), { accountId: payer.accountId });
    const request = placing(payer);
    const first = await world.billing.placeHold(request, world.admin);
    expect(await world.billing.placeHold(request, world.admin)).toEqual(first);
    for (const more of [
      { nonce: newNonce() },
      { keyId: other.keyId },
      { maxInputTokens: 101 },
      { minOutputTokens: 200, maxOutputTokens: 200 },
      { maxInputTokens: 1_000_000, minOutputTokens: 0 },
    ]) {
      expect(
        await errorOf(world.billing.placeHold({ ...request, ...more }, world.admin)),
      ).toMatchObject({
        reason: "request_id_used",
      });
    }
    await settle(payer, { requestId: request.requestId });
    expect((await errorOf(world.billing.placeHold(request, world.admin))).reason).toBe(
      "request_id_used",
    );
  });

  test("many simultaneous repeats of one call place one hold", async () => {
    const payer = await world.payer(heldFor(100) * 5n);
    const request = placing(payer);
    await Promise.all(
      Array.from({ length: 20 }, () => world.billing.placeHold(request, world.admin)),
    );
    expect(await world.pool(payer)).toEqual({ posted: heldFor(100) * 5n, held: heldFor(100) });
    await Promise.all(
      Array.from({ length: 20 }, () =>
        settle(payer, { requestId: request.requestId, usage: { output: 2 } }),
      ),
    );
    expect(await world.pool(payer)).toEqual({ posted: heldFor(100) * 5n - 100n, held: 0n });
  });

  test("a hold of 0 micro-credits is a hold like any other", async () => {
    const payer = await world.payer(0n);
    const request = placing(payer, { maxInputTokens: 0, minOutputTokens: 0, maxOutputTokens: 100 });
    expect(await world.billing.placeHold(request, world.admin)).toMatchObject({
      grantedOutputTokens: 0,
      holdMicrocredits: 0n,
    });
    const { receipt } = await settle(payer, { requestId: request.requestId, usage: { output: 3 } });
    expect(receipt).toMatchObject({ chargedMicrocredits: 0n, overrunMicrocredits: 150n });
  });

  const bad: { name: string; more: Place; reason: string; field?: string }[] = [
    {
      name: "no request id",
      more: { requestId: "" },
      reason: "invalid_request",
      field: "request_id",
    },
    {
      name: "a malformed request id",
      more: { requestId: "x" },
      reason: "invalid_request",
      field: "request_id",
    },
    { name: "no nonce", more: { nonce: "" }, reason: "invalid_request", field: "nonce" },
    { name: "a short nonce", more: { nonce: "short" }, reason: "invalid_request", field: "nonce" },
    {
      name: "nothing to cover",
      more: { maxInputTokens: 0, minOutputTokens: 0, maxOutputTokens: 0 },
      reason: "invalid_request",
      field: "max_input_tokens",
    },
    {
      name: "a minimum above the maximum",
      more: { minOutputTokens: 101 },
      reason: "invalid_request",
      field: "min_output_tokens",
    },
    {
      name: "too much input",
      more: { maxInputTokens: tokensMax + 1 },
      reason: "invalid_request",
      field: "max_input_tokens",
    },
    {
      name: "too much output",
      more: { maxOutputTokens: tokensMax + 1 },
      reason: "invalid_request",
      field: "max_output_tokens",
    },
    {
      name: "a deadline of half a second",
      more: { deadline: { nanos: 5e8 } },
      reason: "invalid_request",
      field: "deadline",
    },
    {
      name: "a deadline of two days",
      more: { deadline: { seconds: 172_800n } },
      reason: "invalid_request",
      field: "deadline",
    },
    {
      name: "an infinite deadline",
      more: { deadline: { seconds: 2n ** 62n } },
      reason: "invalid_request",
      field: "deadline",
    },
    { name: "an unknown model", more: { model: "model-nobody" }, reason: "model_not_found" },
    { name: "an unknown key", more: { keyId: "key_nobody" }, reason: "not_found" },
    {
      name: "a key id with a NUL",
      more: { keyId: "key\0" },
      reason: "invalid_request",
      field: "key_id",
    },
    {
      name: "an unknown input category",
      more: { mostExpensiveInput: 9 as InputCategory },
      reason: "invalid_request",
    },
  ];
  for (const { name, more, reason, field } of bad) {
    test(`a hold with ${name} is rejected`, async () => {
      const payer = await world.payer(heldFor(100));
      expect(await errorOf(place(payer, more))).toMatchObject({
        reason,
        ...(field !== undefined && { field }),
      });
      expect(await world.pool(payer)).toEqual({ posted: heldFor(100), held: 0n });
    });
  }

  test("a deadline may have a fraction of a millisecond", async () => {
    const payer = await world.payer(heldFor(100));
    const request = placing(payer, { deadline: { seconds: 2n, nanos: 1_234_567 } });
    const held = await world.billing.placeHold(request, world.admin);
    expect(held.holdMicrocredits).toBe(heldFor(100));
    const { receipt } = await settle(payer, { requestId: request.requestId });
    expect(receipt).toMatchObject({ outcome: Outcome.COMPLETED, usage: { output: 1 } });
  });

  test("a request without a hold cannot be metered or settled", async () => {
    const payer = await world.payer(0n);
    for (const requestId of [newRequestId(), "nonsense"]) {
      expect((await errorOf(checkpoint(payer, requestId, { output: 1 }))).reason).toBe("not_found");
      expect((await errorOf(settle(payer, { requestId }))).reason).toBe("not_found");
      expect((await errorOf(receiptOf(payer.accountId, requestId))).reason).toBe("not_found");
    }
    const works = [
      checkpoint(payer, "\0", { output: 1 }),
      settle(payer, { requestId: "\0" }),
      receiptOf(payer.accountId, "\0"),
    ];
    for (const seen of await Promise.all(works.map(errorOf))) {
      expect(seen).toEqual({ reason: "invalid_request", field: "request_id" });
    }
  });

  const badEndings: { name: string; more: Settle; field: string }[] = [
    { name: "no outcome", more: { outcome: Outcome.RUNNING }, field: "outcome" },
    { name: "an unknown outcome", more: { outcome: 99 as Outcome }, field: "outcome" },
    {
      name: "more tokens than a column holds",
      more: { usage: { thinking: tokensMax + 1 } },
      field: "usage.thinking",
    },
    {
      name: "an attempt with a NUL in its name",
      more: { attempts: [{ provider: "a\0" }] },
      field: "attempts",
    },
  ];
  for (const { name, more, field } of badEndings) {
    test(`a settlement with ${name} is rejected, and the request continues`, async () => {
      const payer = await world.payer(heldFor(100));
      const request = placing(payer);
      await world.billing.placeHold(request, world.admin);
      const { reason, field: named } = await errorOf(
        settle(payer, { requestId: request.requestId, ...more }),
      );
      expect(reason).toBe("invalid_request");
      expect(named).toContain(field);
      await settle(payer, { requestId: request.requestId });
    });
  }

  test("output beyond the grant is not charged", async () => {
    const payer = await world.payer(heldFor(100) + 1n);
    const request = placing(payer);
    await world.billing.placeHold(request, world.admin);
    const { receipt } = await settle(payer, {
      requestId: request.requestId,
      usage: { thinking: tokensMax },
    });
    expect(receipt).toMatchObject({
      usage: { thinking: 100 },
      chargedMicrocredits: 6_000n,
      overrunMicrocredits: BigInt(tokensMax - 100) * 60n,
    });
    expect(await world.pool(payer)).toEqual({ posted: heldFor(100) + 1n - 6_000n, held: 0n });
  });

  test("cache writes for an hour are held at their price where they can occur", async () => {
    const payer = await world.payer(100_000n);
    const request = placing(payer, {
      mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
      minOutputTokens: 0,
      maxOutputTokens: 0,
    });
    expect((await world.billing.placeHold(request, world.admin)).holdMicrocredits).toBe(100n * 20n);
    await settle(payer, { requestId: request.requestId });
  });
});

describe("accounts", () => {
  test("a key sees its own account, and another one's ids look absent", async () => {
    const [mine, theirs] = [await world.payer(heldFor(100)), await world.payer(heldFor(100))];
    const hold = await world.holds.place(holdRequest(theirs, 100), never);
    const running = await errorOf(receiptOf("", hold.requestId, world.keyCall(mine)));
    await world.holds.settle(hold, endingWith({ output: 1 }));
    const finished = await errorOf(receiptOf("", hold.requestId, world.keyCall(mine)));
    const absent = await errorOf(receiptOf("", newRequestId(), world.keyCall(mine)));
    expect([running, finished]).toEqual([absent, absent]);
    expect(await receiptOf("", hold.requestId, world.keyCall(theirs))).toMatchObject({
      chargedMicrocredits: 50n,
    });

    const call = world.keyCall(mine);
    for (const accountId of [theirs.accountId, "acc_nobody"]) {
      expect(
        (await errorOf(world.billing.getPools(create(GetPoolsRequestSchema, { accountId }), call)))
          .reason,
      ).toBe("not_found");
      expect(
        (
          await errorOf(
            world.billing.listCharges(create(ListChargesRequestSchema, { accountId }), call),
          )
        ).reason,
      ).toBe("not_found");
      expect(
        (
          await errorOf(
            world.billing.queryUsage(create(QueryUsageRequestSchema, { accountId }), call),
          )
        ).reason,
      ).toBe("not_found");
    }
    for (const accountId of ["", mine.accountId]) {
      const { pools } = await world.billing.getPools(
        create(GetPoolsRequestSchema, { accountId }),
        call,
      );
      expect(pools[0]?.freeMicrocredits).toBe(heldFor(100));
    }
  });

  test("a key may not call the operator's methods", async () => {
    const payer = await world.payer(0n);
    const call = world.keyCall(payer);
    const { accountId } = payer;
    const works = [
      world.billing.createAccount(
        create(CreateAccountRequestSchema, { settings: { name: "x" } }),
        call,
      ),
      world.billing.listAccounts(create(ListAccountsRequestSchema), call),
      world.billing.listTransfers(create(ListTransfersRequestSchema, { accountId }), call),
      world.billing.placeHold(placing(payer), call),
    ];
    for (const { reason: seen } of await Promise.all(works.map(errorOf)))
      expect(seen).toBe("not_permitted");
  });

  test("the operator must name the account", async () => {
    expect(
      await errorOf(world.billing.getPools(create(GetPoolsRequestSchema), world.admin)),
    ).toEqual({
      reason: "invalid_request",
      field: "account_id",
    });
  });

  for (const accountId of ["acc_nobody", "acc\0"]) {
    test(`the account id ${JSON.stringify(accountId)} is rejected by every method`, async () => {
      const reason = accountId.includes("\0") ? "invalid_request" : "not_found";
      const works = [
        world.billing.getAccount(create(GetAccountRequestSchema, { accountId }), world.admin),
        world.billing.getPools(create(GetPoolsRequestSchema, { accountId }), world.admin),
        world.billing.listTransfers(create(ListTransfersRequestSchema, { accountId }), world.admin),
      ];
      for (const { reason: seen } of await Promise.all(works.map(errorOf)))
        expect(seen).toBe(reason);
    });
  }

  const names: [string, string | undefined][] = [
    ["a".repeat(200), undefined],
    ["a".repeat(201), "settings.name"],
    ["", "settings.name"],
    ["a\0b", "settings.name"],
    ["漢字 😀", undefined],
  ];
  for (const [name, field] of names) {
    test(`an account named ${JSON.stringify(name.slice(0, 10))} of ${name.length} characters is ${field ? "rejected" : "created"}`, async () => {
      const made = world.billing.createAccount(
        create(CreateAccountRequestSchema, { settings: { name } }),
        world.admin,
      );
      if (field !== undefined)
        expect(await errorOf(made)).toEqual({ reason: "invalid_request", field });
      else expect((await made).account?.name).toBe(name);
    });
  }
});

describe("lists", () => {
  test("charges are listed newest first, in pages that do not shift when charges are added", async () => {
    const payer = await world.payer(1_000_000n);
    const { accountId } = payer;
    const charge = async () => {
      const hold = await world.holds.place(holdRequest(payer, 1), never);
      await world.holds.settle(hold, endingWith({ output: 1 }));
      return hold.requestId;
    };
    const made: string[] = [];
    for (let index = 0; index < 5; index++) made.unshift(await charge());
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await world.billing.listCharges(
        create(ListChargesRequestSchema, { accountId, pageSize: 2, pageToken }),
        world.admin,
      );
      seen.push(...page.charges.map(({ requestId }) => requestId));
      pageToken = page.nextPageToken;
      if (seen.length === 2) await charge();
    } while (pageToken !== "");
    expect(seen).toEqual(made);
  });

  const tokens = [
    "nonsense!",
    "?",
    "bm9uc2Vuc2U",
    Buffer.from("-200000-01-01T00:00:00.000Z req_x").toString("base64url"),
  ];
  for (const pageToken of [
    ...tokens,
    Buffer.from("2026-01-01T00:00:00.000Z \0").toString("base64url"),
  ]) {
    test(`the page token ${pageToken} is not one of the list of charges`, async () => {
      const { accountId } = await world.payer(0n);
      const listed = world.billing.listCharges(
        create(ListChargesRequestSchema, { accountId, pageToken }),
        world.admin,
      );
      expect(await errorOf(listed)).toEqual({ reason: "invalid_request", field: "page_token" });
    });
  }

  test("a page has at most 1,000 entries, and a page token with a NUL is rejected", async () => {
    const { accountId } = await world.payer(0n);
    const nul = Buffer.from("acc_\0").toString("base64url");
    const works = [
      world.billing.listAccounts(
        create(ListAccountsRequestSchema, { pageSize: 1_001 }),
        world.admin,
      ),
      world.billing.listTransfers(
        create(ListTransfersRequestSchema, { accountId, pageSize: 1_001 }),
        world.admin,
      ),
      world.billing.listCharges(
        create(ListChargesRequestSchema, { accountId, pageSize: 1_001 }),
        world.admin,
      ),
      world.billing.listAccounts(
        create(ListAccountsRequestSchema, { pageToken: nul }),
        world.admin,
      ),
      world.billing.listTransfers(
        create(ListTransfersRequestSchema, { accountId, pageToken: nul }),
        world.admin,
      ),
    ];
    for (const { reason: seen } of await Promise.all(works.map(errorOf)))
      expect(seen).toBe("invalid_request");
  });
});

describe("usage", () => {
  test("a key or model with a NUL is rejected", async () => {
    const { accountId } = await world.payer(0n);
    for (const more of [{ keyIds: ["\0"] }, { models: ["\0"] }]) {
      const read = world.billing.queryUsage(
        create(QueryUsageRequestSchema, { accountId, ...more }),
        world.admin,
      );
      expect((await errorOf(read)).reason).toBe("invalid_request");
    }
  });
});

test("every read of a key or an operator runs on connections that admissions and heartbeats do not use", async () => {
  const payer = await world.payer(1_000n);
  const hold = await world.holds.place(holdRequest(payer, 0), never);
  const { requestId } = await world.holds.settle(hold, endingWith({}));
  const elsewhere = () => Promise.reject(new Error("read on a connection that others need"));
  const { service } = createBilling({
    postgres: { ...world.postgres, run: elsewhere, transaction: elsewhere },
    priceOf: () => undefined,
    log,
  });
  const { accountId } = payer;
  const call = callBy(environmentToken, { accountId });
  const reads = [
    service.getAccount(create(GetAccountRequestSchema, { accountId }), call),
    service.listAccounts(create(ListAccountsRequestSchema), call),
    service.getPools(create(GetPoolsRequestSchema, { accountId }), call),
    service.getReceipt(create(GetReceiptRequestSchema, { accountId, requestId }), call),
    service.listCharges(create(ListChargesRequestSchema, { accountId }), call),
    service.listTransfers(create(ListTransfersRequestSchema, { accountId }), call),
    service.queryUsage(create(QueryUsageRequestSchema, { accountId }), call),
    service.queryRefusals(create(QueryRefusalsRequestSchema, { accountId }), call),
    service.getForecast(create(GetForecastRequestSchema, { accountId }), call),
    service.verifyLedger(create(VerifyLedgerRequestSchema), call),
  ];
  const outcomes = await Promise.allSettled(reads);
  expect(outcomes.filter(({ status }) => status === "rejected")).toEqual([]);
  // A write does use them, so such a read would have failed.
  const suspended = service.suspendAccount(
    create(SuspendAccountRequestSchema, { accountId, reason: "a test" }),
    call,
  );
  await expect(suspended).rejects.toThrow("read on a connection that others need");
});
