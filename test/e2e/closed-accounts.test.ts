// Accounts as their owners see them: names, billing details, closing; and as operators find them.
// Over a whole gateway, with people who really signed in.

import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AccountSettingsSchema } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, AdminScope, ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { Attention } from "../../gen/gateway/payments/v1/order_pb.ts";
import { Authenticator } from "../support/authenticator.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
let operator: Credential;
type Credential = { headers: { authorization: string } };
beforeAll(async () => {
  gateway = await startTestGateway();
  operator = await redeem(gateway.ownerLink, "olga");
});
// Checks the ledger, too.
afterAll(() => gateway.stop());

const core = () => gateway.admin.core;
const admin = () => gateway.admin.call;

async function redeem(address: string, login: string): Promise<Credential> {
  const link = new URL(address);
  const token = link.hash.slice(1);
  const { people } = core();
  const { passkeyOptionsJson } = await people.beginPasskey({ linkToken: token, login });
  const passkeyAnswerJson = new Authenticator(link.origin).register(passkeyOptionsJson);
  const { grant } = await people.redeemLink({ token, login, passkeyAnswerJson });
  return { headers: { authorization: `Session ${grant?.token}` } };
}

let people = 0;
async function join(accountId: string, role: AccountRole): Promise<Credential> {
  const { link } = await core().people.createInvitation({ accountId, role }, operator);
  return redeem(link, `person-${++people}`);
}

/** A new account with an owner, a key and credits in its v1 pool. */
async function open(name = "Acme", microcredits = 1_000_000_000n) {
  const { account } = await core().billing.createAccount({ settings: { name } }, admin());
  const accountId = account?.accountId ?? "";
  if (microcredits > 0n) await transfer(accountId, TransferKind.BONUS, microcredits);
  const { key, secret } = await core().keys.createKey(
    { accountId, family: Family.V1, settings: { name: "k" } },
    admin(),
  );
  const owner = await join(accountId, AccountRole.OWNER);
  return { accountId, keyId: key?.keyId ?? "", key, secret, owner };
}

type Settings = MessageInitShape<typeof AccountSettingsSchema>;

/** Changes these settings of an account, and no other. */
function named(settings: Settings, accountId: string) {
  const paths = Object.keys(settings).map((name) =>
    name === "billingDetails" ? "billing_details" : name,
  );
  return { accountId, settings, updateMask: { paths } };
}

let transfers = 0;
function transfer(accountId: string, kind: TransferKind, amountMicrocredits: bigint) {
  const idempotencyKey = `transfer-${++transfers}`;
  const request = { accountId, family: Family.V1, kind, amountMicrocredits, idempotencyKey };
  return core().billing.createTransfer(request, admin());
}

function post(secret: string, more: object = {}, headers: Record<string, string> = {}) {
  return fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
      ...headers,
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 64,
      messages: [{ role: "user", content: "Hello" }],
      ...more,
    }),
  });
}

const reasonOf = (call: Promise<unknown>) =>
  call.then(
    () => "ok",
    (error: unknown) => {
      const { reason, facts } = apiErrorOf(error);
      return [reason, facts.field].filter((one) => one !== undefined).join(" ");
    },
  );

const words = (name: string, sum: string) => `close ${name} and give up ${sum} credits`;

describe("closing an account", () => {
  test("gives up the free credits, revokes the keys, and leaves it to be read", async () => {
    const { accountId, keyId, secret, owner } = await open("<b>Acme & Co</b>", 1_234_500_000n);
    await transfer(accountId, TransferKind.ADJUSTMENT, -34_500_000n);
    const member = await join(accountId, AccountRole.MEMBER);
    const confirm = words("<b>Acme & Co</b>", "1200");
    const closed = await core().billing.closeAccount({ accountId, confirm }, owner);
    expect(closed.forfeitedMicrocredits).toBe(1_200_000_000n);
    expect(closed.account).toMatchObject({ accountId, state: AccountState.CLOSED });

    for (const call of [owner, member, operator, admin()]) {
      const { account } = await core().billing.getAccount({ accountId }, call);
      expect(account).toEqual(closed.account);
      const { pools } = await core().billing.getPools({ accountId }, call);
      expect(pools.map(({ freeMicrocredits }) => freeMicrocredits)).toEqual([0n, 0n]);
    }
    const { key } = await core().keys.getKey({ keyId }, owner);
    expect(key?.state).toBe(KeyState.REVOKED);
    expect((await post(secret)).status).toBe(401);
    const {
      transfers: [last],
    } = await core().billing.listTransfers({ accountId }, owner);
    expect(last).toMatchObject({
      kind: TransferKind.ADJUSTMENT,
      amountMicrocredits: -1_200_000_000n,
      createdBy: { kind: { case: "personId", value: expect.stringMatching(/^per_/) } },
    });
    const method = "CloseAccount";
    const { events } = await core().people.listAuditEvents({ accountId, method }, operator);
    expect(events[0]).toMatchObject({
      ...{ succeeded: true, reason: Reason.UNSPECIFIED },
      facts: { forfeitedMicrocredits: "1200000000", revokedKeys: "1" },
    });
  });

  test.for([
    ["no words", "", "invalid_request confirm"],
    ["another sum", words("Acme", "999"), "invalid_request confirm"],
    ["another name", words("acme", "1000"), "invalid_request confirm"],
    ["more words", `${words("Acme", "1000")} now`, "invalid_request confirm"],
    ["10,000 characters", "x".repeat(10_000), "invalid_request confirm"],
  ])("does nothing with %s", async ([, confirm = "", expected]) => {
    const { accountId, secret, owner } = await open();
    expect(await reasonOf(core().billing.closeAccount({ accountId, confirm }, owner))).toBe(
      expected,
    );
    expect((await post(secret)).status).toBe(200);
  });

  test("says which words it takes", async () => {
    const { accountId, owner } = await open("Acme", 0n);
    const call = core().billing.closeAccount({ accountId, confirm: "yes" }, owner);
    const { facts } = apiErrorOf(await call.catch((error: unknown) => error));
    expect(facts.allowed).toEqual([words("Acme", "0")]);
    await core().billing.closeAccount({ accountId, confirm: facts.allowed?.[0] ?? "" }, owner);
  });

  test("is for owners alone", async () => {
    const { accountId } = await open();
    const member = await join(accountId, AccountRole.MEMBER);
    const { owner: stranger } = await open();
    const confirm = words("Acme", "1000");
    const outcomes = [operator, admin(), member, stranger].map((call) =>
      reasonOf(core().billing.closeAccount({ accountId, confirm }, call)),
    );
    expect(await Promise.all(outcomes)).toEqual([
      // Of the operator, whom this account has as no member.
      "not_found account_id",
      ...["not_permitted", "not_permitted", "not_found account_id"],
    ]);
  });

  test("is not for somebody whom this process still takes for an owner", async () => {
    const { accountId, owner } = await open();
    await core().billing.getAccount({ accountId }, owner);
    const client = new Client(gateway.databaseUrl);
    await client.connect();
    await client
      .query("update members set role = 'member' where account_id = $1", [accountId])
      .finally(() => client.end());
    const confirm = words("Acme", "1000");
    expect(await reasonOf(core().billing.closeAccount({ accountId, confirm }, owner))).toBe(
      "not_permitted",
    );
  });

  test("works once, whoever of two owners comes first", async () => {
    const { accountId, owner } = await open();
    const other = await join(accountId, AccountRole.OWNER);
    const confirm = words("Acme", "1000");
    const outcomes = [owner, other, owner, other].map((call) =>
      reasonOf(core().billing.closeAccount({ accountId, confirm }, call)),
    );
    expect((await Promise.all(outcomes)).toSorted()).toEqual([
      ...Array(3).fill("account_closed"),
      "ok",
    ]);
    const { transfers } = await core().billing.listTransfers({ accountId }, admin());
    expect(transfers).toHaveLength(2);
  });

  test("ends a running stream, which is charged for what it produced and no more", async () => {
    const { accountId, secret, owner } = await open();
    const text = "[[simulate tokens=200 token_ms=50]]";
    const answer = await post(secret, {
      stream: true,
      messages: [{ role: "user", content: text }],
    });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let received = (await reader?.read())?.value ?? "";
    const { pools } = await core().billing.getPools({ accountId }, owner);
    const held = pools[0]?.heldMicrocredits ?? 0n;
    const free = pools[0]?.freeMicrocredits ?? 0n;
    expect(held).toBeGreaterThan(0n);
    const sum = String(Number(free) / 1e6);
    await core().billing.closeAccount({ accountId, confirm: words("Acme", sum) }, owner);
    for (let read = await reader?.read(); read && !read.done; read = await reader?.read())
      received += read.value;
    expect(received).toMatch(/event: error\ndata: .*revoked_key/);
    const requestId = answer.headers.get("request-id") ?? "";
    const receiptOf = async () =>
      (await core().billing.getReceipt({ accountId, requestId }, owner)).receipt;
    await expect.poll(async () => (await receiptOf())?.outcome).toBe(Outcome.REVOKED);
    const charged = (await receiptOf())?.chargedMicrocredits ?? 0n;
    expect(charged).toBeGreaterThan(0n);
    expect(charged).toBeLessThanOrEqual(held);
    // What the hold released stays, and pays for nothing.
    const after = await core().billing.getPools({ accountId }, owner);
    expect(after.pools[0]).toMatchObject({
      heldMicrocredits: 0n,
      postedMicrocredits: held - charged,
    });
  });

  test("leaves no working key to those that are made at the same moment", async () => {
    const { accountId, owner } = await open();
    const confirm = words("Acme", "1000");
    const creating = Array.from({ length: 20 }, async (_, index) => {
      await delay(index);
      const request = { accountId, family: Family.V1, settings: { name: "k" } };
      return core()
        .keys.createKey(request, owner)
        .catch(() => undefined);
    });
    await core().billing.closeAccount({ accountId, confirm }, owner);
    const made = await Promise.all(creating);
    for (const key of made) if (key) expect((await post(key.secret)).status).toBe(401);
    const { keys } = await core().keys.listKeys({ accountId }, owner);
    expect(keys.map(({ state: status }) => status)).toEqual(keys.map(() => KeyState.REVOKED));
  });

  test("is for good: nothing of the account can be changed, but what people correct", async () => {
    const { accountId, keyId, owner } = await open();
    const { link } = await core().people.createInvitation({ accountId, role: 1 }, owner);
    const { billing, keys } = core();
    await billing.closeAccount({ accountId, confirm: words("Acme", "1000") }, owner);
    const refused: Readonly<Record<string, () => Promise<unknown>>> = {
      rename: () => billing.updateAccount(named({ name: "again" }, accountId), owner),
      details: () =>
        billing.updateAccount(named({ billingDetails: { name: "x" } }, accountId), owner),
      suspend: () => billing.suspendAccount({ accountId, reason: "a test" }, operator),
      resume: () => billing.resumeAccount({ accountId, reason: "as before" }, operator),
      close: () => billing.closeAccount({ accountId, confirm: words("Acme", "0") }, owner),
      key: () => keys.createKey({ accountId, family: Family.V1, settings: { name: "k" } }, owner),
      invite: () => core().people.createInvitation({ accountId, role: 1 }, owner),
      redeem: () => redeem(link, "too-late"),
      purchase: () => transfer(accountId, TransferKind.PURCHASE, 1_000_000_000n),
      bonus: () => transfer(accountId, TransferKind.BONUS, 5n),
    };
    for (const [name, call] of Object.entries(refused))
      expect([name, await reasonOf(call())]).toEqual([name, "account_closed"]);
    expect(await reasonOf(keys.rotateKey({ keyId }, owner))).toBe("key_not_active key_id");
    expect(await reasonOf(transfer(accountId, TransferKind.ADJUSTMENT, 5n))).toBe("ok");
    expect(await reasonOf(transfer(accountId, TransferKind.CHARGEBACK, 7n))).toBe("ok");
  });
});

let orders = 0;
/** Orders 1,000 credits, to be paid with 5 USDT. */
const buy = (accountId: string, call: Credential) =>
  core().payments.createOrder(
    {
      accountId,
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      method: "simulated:usdt",
      idempotencyKey: `order-${++orders}`,
    },
    call,
  );
const pay = (orderId: string, amount = "5") =>
  core().payments.simulateDeposit(
    { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 1 } } },
    admin(),
  );
const orderOf = async (orderId: string, call: Credential) =>
  (await core().payments.getOrder({ orderId }, call)).order;

test("the receipt of a purchase names the account's billing details", async () => {
  const { accountId, owner } = await open("Acme", 0n);
  const billingDetails = { name: "Acme Inc.", address: "1 Road\nTown", taxId: "EU123" };
  await core().billing.updateAccount(named({ billingDetails }, accountId), owner);
  const { order } = await buy(accountId, owner);
  const orderId = order?.orderId ?? "";
  await pay(orderId);
  await expect.poll(async () => (await orderOf(orderId, owner))?.receiptNumber).not.toBe("");
  const { receipt } = await core().payments.getReceiptDocument({ orderId }, owner);
  expect(receipt?.buyer).toMatchObject(billingDetails);
});

describe("money that arrives after the closing", () => {
  test("is credited, waits for a person, and can be returned", async () => {
    const { accountId, owner } = await open("Acme", 0n);
    const { order } = await buy(accountId, owner);
    const orderId = order?.orderId ?? "";
    await core().billing.closeAccount({ accountId, confirm: words("Acme", "0") }, owner);
    await pay(orderId);
    await expect
      .poll(() => orderOf(orderId, owner))
      .toMatchObject({
        attention: Attention.ACCOUNT_CLOSED,
        grantedMicrocredits: 1_000_000_000n,
        notice: "Money arrived after the account was closed. The operator returns it.",
      });
    const { orders: waiting } = await core().payments.listAttention({}, operator);
    expect(waiting.map((one) => one.orderId)).toContain(orderId);
    const posted = async () =>
      (await core().billing.getPools({ accountId }, owner)).pools[0]?.postedMicrocredits;
    await expect.poll(posted).toBe(1_000_000_000n);
    const what = { case: "amountMicrodollars", value: 5_000_000n } as const;
    await core().payments.beginRefund({ orderId, what, reason: "closed" }, operator);
    const done = await core().payments.completeRefund({ orderId, transaction: "0x1" }, operator);
    expect(done.order).toMatchObject({ attention: Attention.NONE });
    expect(await posted()).toBe(0n);
    const { creditNotes } = await core().payments.getReceiptDocument({ orderId }, owner);
    expect(creditNotes).toHaveLength(1);
  });

  test("asks again when more arrives after it was dealt with", async () => {
    const { accountId, owner } = await open("Acme", 0n);
    const { order } = await buy(accountId, owner);
    const orderId = order?.orderId ?? "";
    await core().billing.closeAccount({ accountId, confirm: words("Acme", "0") }, owner);
    const isWaiting = async () =>
      (await orderOf(orderId, operator))?.attention === Attention.ACCOUNT_CLOSED;
    const decide = () =>
      core().payments.decideOrder(
        { orderId, choice: { case: "close", value: {} }, reason: "seen by us" },
        operator,
      );
    await pay(orderId);
    await expect.poll(isWaiting).toBe(true);
    await decide();
    expect(await isWaiting()).toBe(false);
    await pay(orderId, "1");
    await expect.poll(isWaiting).toBe(true);
  });

  test("is nothing new: neither an order nor a promotion", async () => {
    const { accountId, owner } = await open("Acme", 0n);
    const { code } = await core().payments.createPromotion(
      { name: "p", family: Family.V1, bonusMicrocredits: 5n, needsPurchase: false },
      operator,
    );
    await core().billing.closeAccount({ accountId, confirm: words("Acme", "0") }, owner);
    expect(await reasonOf(buy(accountId, owner))).toBe("account_closed");
    const redeem = core().payments.redeemPromotion({ accountId, code }, owner);
    expect(await reasonOf(redeem)).toBe("account_closed");
  });
});

describe("a suspended account", () => {
  test("buys and redeems nothing, but gets what is paid for an earlier order", async () => {
    const { accountId, secret, owner } = await open("Acme", 0n);
    const [paid, other] = [await buy(accountId, owner), await buy(accountId, owner)];
    const orderId = paid.order?.orderId ?? "";
    const { code } = await core().payments.createPromotion(
      { name: "p", family: Family.V1, bonusMicrocredits: 5n, needsPurchase: false },
      operator,
    );
    await core().billing.suspendAccount({ accountId, reason: "unpaid" }, operator);
    expect(await reasonOf(buy(accountId, owner))).toBe("account_suspended");
    const redeem = () => core().payments.redeemPromotion({ accountId, code }, owner);
    expect(await reasonOf(redeem())).toBe("account_suspended");
    await pay(orderId);
    await expect
      .poll(() => orderOf(orderId, owner))
      .toMatchObject({ attention: Attention.NONE, grantedMicrocredits: 1_000_000_000n });
    const posted = async () =>
      (await core().billing.getPools({ accountId }, owner)).pools[0]?.postedMicrocredits;
    await expect.poll(posted).toBe(1_000_000_000n);
    expect((await post(secret)).status).toBe(403);
    // What is open can be given up, and what was paid be read.
    const open2 = core().payments.cancelOrder({ orderId: other.order?.orderId ?? "" }, owner);
    expect(await reasonOf(open2)).toBe("ok");
    expect(await reasonOf(core().payments.getReceiptDocument({ orderId }, owner))).toBe("ok");
    await core().billing.resumeAccount({ accountId, reason: "as before" }, operator);
    expect(await reasonOf(redeem())).toBe("ok");
    await expect.poll(async () => (await post(secret)).status).toBe(200);
  });

  test("shuts its programs out, and lets them in again, both at once", async () => {
    const { accountId, owner } = await open();
    const { keys, billing } = core();
    const settings = { name: "p", scopes: [ManagementScope.READ] };
    const { secret } = await keys.createManagementKey({ accountId, settings }, owner);
    // Nodes remember who a program is for a minute, if nothing says that he changed.
    const program = { headers: { authorization: `Bearer ${secret}` } };
    const outcome = () => reasonOf(keys.listKeys({ accountId }, program));
    expect(await outcome()).toBe("ok");
    await billing.suspendAccount({ accountId, reason: "unpaid" }, operator);
    await expect.poll(outcome).toBe("account_suspended");
    await billing.resumeAccount({ accountId, reason: "as before" }, operator);
    await expect.poll(outcome).toBe("ok");
  });

  test("takes credits that were paid for, and no invitation", async () => {
    const { accountId, owner } = await open();
    const { link } = await core().people.createInvitation({ accountId, role: 1 }, owner);
    await core().billing.suspendAccount({ accountId, reason: "unpaid" }, operator);
    expect(await reasonOf(transfer(accountId, TransferKind.PURCHASE, 1_000_000_000n))).toBe("ok");
    const invite = core().people.createInvitation({ accountId, role: 1 }, owner);
    expect(await reasonOf(invite)).toBe("account_suspended");
    expect(await reasonOf(redeem(link, "patient"))).toBe("account_suspended");
    const { account } = await core().billing.getAccount({ accountId }, owner);
    expect(account).toMatchObject({ state: AccountState.SUSPENDED, stateReason: "unpaid" });
    // The link waits.
    await core().billing.resumeAccount({ accountId, reason: "as before" }, operator);
    const patient = await redeem(link, "patient");
    expect(await reasonOf(core().billing.getAccount({ accountId }, patient))).toBe("ok");
  });

  test("can be closed by its owner", async () => {
    const { accountId, owner } = await open();
    await core().billing.suspendAccount({ accountId, reason: "a test" }, operator);
    await core().billing.closeAccount({ accountId, confirm: words("Acme", "1000") }, owner);
    expect(
      await reasonOf(core().billing.resumeAccount({ accountId, reason: "as before" }, operator)),
    ).toBe("account_closed");
  });
});

describe("the name and the billing details", () => {
  test("are set by an owner, and seen by its members", async () => {
    const { accountId, owner } = await open();
    const viewer = await join(accountId, AccountRole.VIEWER);
    for (const name of [" name", "\u{202E}eman", "a\u{200B}b", " ", "", "two\nlines"])
      await expect(core().billing.updateAccount(named({ name }, accountId), owner)).rejects.toThrow(
        "name",
      );
    await core().billing.updateAccount(named({ name: "<i>New</i> name" }, accountId), owner);
    const billingDetails = { name: "Acme Inc.", address: "1 Road\nTown", taxId: "EU123" };
    await core().billing.updateAccount(named({ billingDetails }, accountId), owner);
    const { account } = await core().billing.getAccount({ accountId }, viewer);
    expect(account).toMatchObject({ name: "<i>New</i> name", billingDetails });
    const cleared = await core().billing.updateAccount(
      named({ billingDetails: {} }, accountId),
      owner,
    );
    expect(cleared.account?.billingDetails).toBeUndefined();
    const filter = { accountId, method: "UpdateAccount" };
    const { events } = await core().people.listAuditEvents(filter, operator);
    const done = events.filter(({ succeeded }) => succeeded);
    expect(done.map(({ facts }) => facts.settings)).toEqual([
      "billing_details",
      "billing_details",
      "name",
    ]);
  });

  test.for([
    ["a name of blanks", { name: "  " }, "invalid_request settings.name"],
    ["a name of 10,000 characters", { name: "x".repeat(10_000) }, "invalid_request settings.name"],
    ["a name of two lines", { name: "a\nb" }, "invalid_request settings.name"],
  ] as const)("refuse %s", async ([, { name }, expected]) => {
    const { accountId, owner } = await open();
    expect(await reasonOf(core().billing.updateAccount(named({ name }, accountId), owner))).toBe(
      expected,
    );
  });

  test.for([
    ["a long name", { name: "x".repeat(201) }, "settings.billing_details.name"],
    ["a long address", { address: "x".repeat(10_000) }, "settings.billing_details.address"],
    ["a long tax id", { taxId: "x".repeat(51) }, "settings.billing_details.tax_id"],
    ["control characters", { address: "a\u0000b" }, "settings.billing_details.address"],
  ] as const)("refuse %s", async ([, billingDetails, field]) => {
    const { accountId, owner } = await open();
    const call = core().billing.updateAccount(named({ billingDetails }, accountId), owner);
    expect(await reasonOf(call)).toBe(`invalid_request ${field}`);
  });

  test.for([
    ["name", { name: "x" }],
    ["billing_details", { billingDetails: { name: "x" } }],
    ["default_member_limits", { defaultMemberLimits: { dailyMicrocredits: 1n } }],
  ] as const)("are for owners and tokens that may do everything: %s", async ([path, settings]) => {
    const { accountId, owner } = await open();
    const change = { accountId, settings, updateMask: { paths: [path] } };
    const as = (caller: Credential) => reasonOf(core().billing.updateAccount(change, caller));
    for (const role of [AccountRole.VIEWER, AccountRole.MEMBER])
      expect(await as(await join(accountId, role))).toBe("not_permitted");
    for (const scope of [AdminScope.READ, AdminScope.KEYS, AdminScope.MONEY]) {
      const name = `${path} ${scope}`;
      const { secret } = await core().people.createAdminToken({ name, scope }, operator);
      const tokenCall = { headers: { authorization: `Bearer ${secret}` } };
      expect(await as(tokenCall)).toBe("not_permitted");
    }
    for (const caller of [owner, operator]) expect(await as(caller)).toBe("ok");
    expect(await reasonOf(core().billing.updateAccount(change, admin()))).toBe("ok");
  });

  test.for([
    ["an empty mask", {}, [], "update_mask"],
    ["a mask of everything", { name: "x" }, ["*"], "update_mask"],
    ["a mask of what is no setting", { name: "x" }, ["name", "account_id"], "update_mask"],
    ["a setting that the mask does not name", { name: "x" }, ["billing_details"], "settings.name"],
    ["a name that is cleared", {}, ["name"], "settings.name"],
  ] as const)("refuse %s", async ([, settings, paths, field]) => {
    const { accountId, owner } = await open();
    const change = { accountId, settings, updateMask: { paths: [...paths] } };
    expect(await reasonOf(core().billing.updateAccount(change, owner))).toBe(
      `invalid_request ${field}`,
    );
    const { account } = await core().billing.getAccount({ accountId }, owner);
    expect(account?.name).toBe("Acme");
  });

  test("change together, and none of them when one is refused", async () => {
    const { accountId, owner } = await open();
    const billingDetails = { name: "Acme Inc." };
    const settings = { name: "Both", billingDetails };
    const { account } = await core().billing.updateAccount(named(settings, accountId), owner);
    expect(account).toMatchObject({ name: "Both", billingDetails });
    const wrong = named({ name: "Third", billingDetails: { name: " " } }, accountId);
    expect(await reasonOf(core().billing.updateAccount(wrong, owner))).toBe(
      "invalid_request settings.billing_details.name",
    );
    expect((await core().billing.getAccount({ accountId }, owner)).account?.name).toBe("Both");
  });
});

describe("operators find an account by", () => {
  let one: Awaited<ReturnType<typeof open>>;
  let requestId = "";
  beforeAll(async () => {
    one = await open("Findable 100%_\\ Ltd");
    const answer = await post(one.secret);
    requestId = answer.headers.get("request-id") ?? "";
    await open("Other");
  });
  const find = async (query: string) => {
    const { accounts } = await core().billing.listAccounts({ query }, operator);
    return accounts.map(({ accountId }) => accountId);
  };
  const hintOf = () => one.key?.secrets[0]?.hint ?? "";

  test.for<[string, () => string]>([
    ["a part of its name, in any case", () => "FINDABLE"],
    ["signs of patterns, which are text", () => "100%_\\"],
    ["its id", () => one.accountId],
    ["the id of a key", () => one.keyId],
    ["the hint of a key", hintOf],
    ["a hint with three dots", () => hintOf().replace("…", "...")],
    ["the beginning of a hint", () => hintOf().split("…")[0] ?? ""],
    ["the end of a hint", () => `…${hintOf().split("…")[1]}`],
    ["a whole secret", () => one.secret],
    ["the id of a request", () => requestId],
    ["a query between blanks", () => "  findable "],
  ])("%s", async ([, query]) => {
    expect(await find(query())).toEqual([one.accountId]);
  });

  test.for(["no such account", "req_0123456789", "key_none", "sk-gw2-1zzzz…zzzz", "…"])(
    "and not by %j",
    async (query) => expect(await find(query)).not.toContain(one.accountId),
  );

  test("nothing longer than 200 characters", async () => {
    const call = core().billing.listAccounts({ query: "x".repeat(10_000) }, operator);
    expect(await reasonOf(call)).toBe("invalid_request query");
  });

  test("all of them without a query, page by page", async () => {
    const ids: string[] = [];
    let pageToken = "";
    do {
      const page = await core().billing.listAccounts({ pageSize: 3, pageToken }, operator);
      ids.push(...page.accounts.map(({ accountId }) => accountId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(ids).toContain(one.accountId);
    expect(new Set(ids).size).toBe(ids.length);
  });
});
