// Accounts: suspending and resuming them, and what they may be called.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  type AccountSettingsSchema,
  CreateAccountRequestSchema,
  GetAccountRequestSchema,
  ListAccountsRequestSchema,
  ResumeAccountRequestSchema,
  SuspendAccountRequestSchema,
  UpdateAccountRequestSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { ListBudgetsRequestSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createAlertFigures } from "../../src/billing/alert-figures.ts";
import { createOverview } from "../../src/billing/overview.ts";
import { errorOf, freshBilling } from "../support/billing.ts";
import { endingWith, holdRequest } from "../support/ledger.ts";

let world: Awaited<ReturnType<typeof freshBilling>>;
beforeAll(async () => {
  world = await freshBilling();
});
afterEach(async () => {
  expect(await world.store.verifyLedger()).toEqual([]);
});
afterAll(() => world.close());

const never = new AbortController().signal;
const suspend = async ({ accountId }: Pick<Payer, "accountId">, reason = "a test") =>
  (
    await world.billing.suspendAccount(
      create(SuspendAccountRequestSchema, { accountId, reason }),
      world.admin,
    )
  ).account;
const resume = async ({ accountId }: Pick<Payer, "accountId">) =>
  (
    await world.billing.resumeAccount(
      create(ResumeAccountRequestSchema, { accountId, reason: "as before" }),
      world.admin,
    )
  ).account;
const read = async ({ accountId }: Pick<Payer, "accountId">) =>
  (await world.billing.getAccount(create(GetAccountRequestSchema, { accountId }), world.admin))
    .account;
const admit = (payer: Payer) => world.holds.place(holdRequest(payer, 10), never);

test("a suspended account admits nothing, its running requests are charged, and it can resume", async () => {
  const payer = await world.payer(1_000_000n);
  const hold = await admit(payer);
  const suspended = await suspend(payer, "unpaid");
  expect(suspended).toMatchObject({ state: AccountState.SUSPENDED, stateReason: "unpaid" });
  expect(suspended?.stateChangedAt).toBeDefined();
  expect(await read(payer)).toEqual(suspended);
  expect((await errorOf(admit(payer))).reason).toBe("account_suspended");
  const receipt = await world.holds.settle(hold, endingWith({ output: 1 }));
  expect(receipt.chargedMicrocredits).toBeGreaterThan(0n);
  expect(await resume(payer)).toMatchObject({ state: AccountState.ACTIVE, stateReason: "" });
  await world.holds.settle(await admit(payer), endingWith({}));
});

test("fifty creations at once with one idempotency key make one account", async () => {
  const request = create(CreateAccountRequestSchema, {
    settings: { name: "once" },
    idempotencyKey: crypto.randomUUID(),
  });
  const make = () => world.billing.createAccount(request, world.admin);
  const made = await Promise.all(Array.from({ length: 50 }, make));
  expect(new Set(made.map(({ account }) => account?.accountId)).size).toBe(1);
  expect(made[0]?.account?.name).toBe("once");
  const { idempotencyKey } = request;
  const other = create(CreateAccountRequestSchema, { settings: { name: "other" }, idempotencyKey });
  expect((await errorOf(world.billing.createAccount(other, world.admin))).reason).toBe(
    "idempotency_key_reused",
  );
});

test("an account has what its creation sets, and a fault is named", async () => {
  const settings = {
    name: "ACME",
    billingDetails: { name: "ACME Ltd", address: "1 Main Street", taxId: "DE1" },
    defaultMemberLimits: { dailyMicrocredits: 5n },
  };
  const make = (given: MessageInitShape<typeof AccountSettingsSchema>) =>
    world.billing.createAccount(
      create(CreateAccountRequestSchema, { settings: given }),
      world.admin,
    );
  const { account } = await make(settings);
  expect(account).toMatchObject({ name: "ACME", billingDetails: settings.billingDetails });
  const { accountId = "" } = account ?? {};
  const { defaultMemberLimits } = await world.billing.listBudgets(
    create(ListBudgetsRequestSchema, { accountId }),
    world.admin,
  );
  expect(defaultMemberLimits?.dailyMicrocredits).toBe(5n);
  expect((await errorOf(make({ name: "" }))).field).toBe("settings.name");
  const details = await errorOf(make({ name: "a", billingDetails: { taxId: "\u0007" } }));
  expect(details.field).toBe("settings.billing_details.tax_id");
});

test("a suspension can be repeated with another reason, and a resumption without effect", async () => {
  const payer = await world.payer(1_000_000n);
  await suspend(payer, "first");
  expect((await suspend(payer, "second"))?.stateReason).toBe("second");
  const resumed = await resume(payer);
  expect(await resume(payer)).toEqual(resumed);
});

test("a suspension waits for no request of another account", async () => {
  const [payer, other] = [await world.payer(1_000n), await world.payer(1_000n)];
  const session = new Client(world.url);
  await session.connect();
  await session.query("begin");
  await session.query("select from pools where account_id = $1 for update", [other.accountId]);
  expect((await suspend(payer))?.state).toBe(AccountState.SUSPENDED);
  await session.end();
});

test("many suspensions and resumptions at once leave the pools as the account is", async () => {
  const payer = await world.payer(1_000_000n);
  const turns = Array.from({ length: 20 }, (_, turn) => (turn % 2 ? suspend : resume)(payer));
  const holds = Array.from({ length: 20 }, () => admit(payer).catch(() => undefined));
  await Promise.all(turns);
  for (const hold of await Promise.all(holds))
    if (hold) await world.holds.settle(hold, endingWith({}));
  const isActive = (await read(payer))?.state === AccountState.ACTIVE;
  const [next] = await Promise.allSettled([admit(payer)]);
  expect(next).toMatchObject(
    isActive
      ? { status: "fulfilled" }
      : { status: "rejected", reason: { reason: "account_suspended" } },
  );
  if (next.status === "fulfilled") await world.holds.settle(next.value, endingWith({}));
  expect((await world.pool(payer)).held).toBe(0n);
});

describe("of several accounts", () => {
  const make = async (name: string) => {
    const { account } = await world.billing.createAccount(
      create(CreateAccountRequestSchema, { settings: { name } }),
      world.admin,
    );
    return account?.accountId ?? "";
  };
  const list = async (query: string, pageSize = 1) => {
    const found: string[] = [];
    for (let pageToken = ""; ; ) {
      const request = create(ListAccountsRequestSchema, { query, pageSize, pageToken });
      const page = await world.billing.listAccounts(request, world.admin);
      expect(page.accounts.length).toBeLessThanOrEqual(pageSize);
      found.push(...page.accounts.map(({ accountId }) => accountId));
      if (page.nextPageToken === "") return found;
      pageToken = page.nextPageToken;
    }
  };

  test("a name, billing details and a status change one, and no other", async () => {
    const [accountId, other] = [await make("one"), await make("another")];
    const before = await read({ accountId: other });
    const renamed = create(UpdateAccountRequestSchema, {
      accountId,
      settings: { name: "renamed" },
      updateMask: { paths: ["name"] },
    });
    await world.billing.updateAccount(renamed, world.admin);
    const billingDetails = { name: "Acme Ltd", address: "1 Road", taxId: "X-17" };
    const detailed = create(UpdateAccountRequestSchema, {
      accountId,
      settings: { billingDetails },
      updateMask: { paths: ["billing_details"] },
    });
    await world.billing.updateAccount(detailed, world.admin);
    await suspend({ accountId }, "unpaid");
    expect(await read({ accountId })).toMatchObject({
      ...{ name: "renamed", billingDetails, stateReason: "unpaid" },
      state: AccountState.SUSPENDED,
    });
    expect(await read({ accountId: other })).toEqual(before);
  });

  test("a list has each that matches once, oldest first, whatever the size of its pages", async () => {
    const made = [
      await make("Quux one"),
      await make("quuxes"),
      await make("a QUUX"),
      await make("qu"),
    ];
    expect(await list("quux")).toEqual(made.slice(0, 3));
    expect(await list("QUUX", 2)).toEqual(made.slice(0, 3));
    expect(await list(made[3] ?? "")).toEqual(made.slice(3));
    const all = await list("");
    expect(all).toEqual([...new Set(all)].sort());
    expect(all).toEqual(expect.arrayContaining(made));
  });

  test("alerts and operators read those that they ask for, without the closed ones", async () => {
    const [first = "", second = "", closed = ""] = [
      await make("x"),
      await make("y"),
      await make("z"),
    ];
    await suspend({ accountId: second });
    await world.run(`update accounts set status = 'closed' where account_id = '${closed}'`);
    await world.run(`update pools set account_status = 'closed' where account_id = '${closed}'`);
    const alerts = createAlertFigures(world.postgres);
    const seen: { accountId: string; suspendedAt: Date | null }[] = [];
    for (let after = ""; ; ) {
      const [one, ...others] = await alerts.listAccounts(after, 1);
      expect(others).toEqual([]);
      if (!one) break;
      seen.push(one);
      after = one.accountId;
    }
    const ours = seen.filter(({ accountId }) => [first, second, closed].includes(accountId));
    expect(ours).toEqual([
      { accountId: first, suspendedAt: null },
      { accountId: second, suspendedAt: expect.any(Date) },
    ]);
    expect(await Promise.all([second, closed, "acc_none"].map(alerts.readStatus))).toEqual([
      ...["suspended", "closed"],
      undefined,
    ]);
    const figures = await createOverview(world.store).readAccounts([first, closed], "2026-01-01");
    expect(figures.map(({ account }) => account.name).sort()).toEqual(["x", "z"]);
  });
});

test("an unknown account cannot be suspended or resumed", async () => {
  const expected = { reason: "not_found", field: "account_id" };
  expect(await errorOf(suspend({ accountId: "acc_none" }))).toEqual(expected);
  expect(await errorOf(resume({ accountId: "acc_none" }))).toEqual(expected);
});

describe("the name of an account", () => {
  const createNamed = async (name: string) =>
    (
      await world.billing.createAccount(
        create(CreateAccountRequestSchema, { settings: { name } }),
        world.admin,
      )
    ).account?.name;

  test.for([
    ["is kept as text, whatever it looks like", "<b>&amp;'\"; --", "<b>&amp;'\"; --"],
    ["keeps the blanks inside it", "Acme  Inc", "Acme  Inc"],
    ["counts characters, not bytes", "🜁".repeat(200), "🜁".repeat(200)],
  ])("%s", async ([, name = "", kept]) => {
    expect(await createNamed(name)).toBe(kept);
  });

  test.for([
    ["is required", ""],
    ["is more than blanks", " \t "],
    ["has at most 200 characters", "x".repeat(201)],
    ["is not a text of 10,000 characters", "x".repeat(10_000)],
    ["is one line", "a\nb"],
    ["has no control characters", "a\u0007b"],
    ["is well-formed", "a\ud800b"],
    ["has no blank at its ends", " Acme "],
    ["does not turn the direction of a line", "Acme \u202Ecni"],
    ["has no letters without width", "Ac\u200Bme"],
  ])("%s", async ([, name = ""]) => {
    expect(await errorOf(createNamed(name))).toEqual({
      reason: "invalid_request",
      field: "settings.name",
    });
  });
});
