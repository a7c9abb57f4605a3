// One search over all that people type, over a whole gateway: each row of the table finds exactly
// what it names, no caller sees a secret, and texts that are none of ours find nothing.

import { toJson } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  SearchHitKind,
  SearchResponseSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { DocumentKind } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { toApiError } from "../../src/base/errors.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
let client: Client;
beforeAll(async () => {
  gateway = await startTestGateway();
  client = new Client({ connectionString: gateway.databaseUrl });
  await client.connect();
});
afterAll(async () => {
  // The ledger is checked: it never had the credits of this use.
  await client.query("delete from promotion_uses");
  await client.query("update promotions set used = 0");
  await client.end();
  await gateway.stop();
});

const call = () => gateway.admin.call;
const operations = () => gateway.admin.core.operations;

const nameOf = (kind: SearchHitKind) =>
  Object.entries(SearchHitKind).find(([, value]) => value === kind)?.[0] ?? "";

/** What a text finds, as `KIND id`. */
async function found(query: string): Promise<string[]> {
  const { hits } = await operations().search({ query, allAccounts: true }, call());
  return hits.map(({ kind, id }) => `${nameOf(kind)} ${id}`);
}

const soon = { timeout: 10_000, interval: 50 };

/** As it was before there were cells. */
const oldSecret = `sk-gw2-1${"Kq".repeat(24)}x`;
const evmHash = "9f".repeat(32);
const managementSecret = `mk-gw2-${"z".repeat(49)}`;
const bitcoinHash = "ab".repeat(32);
const evmAddress = "0x52908400098527886e0f7030069857d2e4169ee7";
/** As wallets show it. */
const checksummed = "0x52908400098527886E0F7030069857D2E4169EE7";

/** An account with one of everything, and its ids by name. */
async function makeWorld() {
  const { core } = gateway.admin;
  const { account } = await core.billing.createAccount(
    { settings: { name: "Nordwind Handel" } },
    call(),
  );
  const accountId = account?.accountId ?? "";
  const inAccount = { accountId, family: Family.V1 };
  const made = await core.keys.createKey({ ...inAccount, settings: { name: "build" } }, call());
  await client.query(
    `insert into management_keys
       (management_key_id, account_id, name, scopes, most_keys, created_by)
     values ('mgk_search', $1, 'ci', '{read}', 5, 'person:per_1')`,
    [accountId],
  );
  await client.query(
    "insert into management_secrets (digest, management_key_id, shown) " +
      "values (sha256($1::bytea), 'mgk_search', 'mk-gw2-00zzzzz…wxyz')",
    [managementSecret],
  );
  await client.query(
    `insert into key_secrets (digest, secret_id, key_id, shown, created_at)
     values ('old', 'sec_old', $1, $2, '2020-01-01')`,
    [made.key?.keyId, `${oldSecret.slice(0, 12)}…${oldSecret.slice(-4)}`],
  );
  const { transfer } = await core.billing.createTransfer(
    {
      ...inAccount,
      kind: TransferKind.BONUS,
      amountMicrocredits: 50_000_000n,
      idempotencyKey: "bonus",
      reason: "a welcome",
    },
    call(),
  );
  const { order } = await core.payments.createOrder(
    { ...inAccount, packMicrodollars: 5_000_000n, method: "simulated:usdt", idempotencyKey: "1" },
    call(),
  );
  const { orderId = "", payTo = "", quotedCoins: quotedAmount = "" } = order ?? {};
  await core.payments.simulateDeposit(
    { orderId, event: { case: "deposit", value: { coins: quotedAmount, confirmations: 10 } } },
    call(),
  );
  const receipt = async () =>
    (await core.payments.getOrder({ orderId }, call())).order?.receiptNumber ?? "";
  await vi.waitFor(async () => expect(await receipt()).not.toBe(""), soon);
  await client.query(
    "insert into people (person_id, login, name, email, email_verified_at) values " +
      "('per_search', 'search.vera', 'Vera Östlund', 'Vera.O@example.com', now())",
  );
  const { promotion } = await core.payments.createPromotion(
    { name: "Autumn", family: Family.V1, bonusMicrocredits: 1_000_000n },
    call(),
  );
  const codeId = promotion?.promotionId ?? "";
  await client.query("insert into promotion_uses values ($1, $2, null, null, now(), $3)", [
    ...[codeId, accountId, transfer?.transferId],
  ]);
  await client.query("update promotions set used = 1 where code_id = $1", [codeId]);
  await addChainPayments(accountId);
  const { rows } = await client.query<{ external_id: string; processor: string }>(
    "select external_id, processor from payment_orders where order_id = $1",
    [orderId],
  );
  const deposits = await client.query<{ external_id: string; first_seen_at: Date }>(
    "select external_id, first_seen_at from payment_deposits where order_id = $1",
    [orderId],
  );
  return {
    ...{ accountId, orderId, payTo, codeId, quotedAmount },
    keyId: made.key?.keyId ?? "",
    secret: made.secret,
    hint: made.key?.secrets[0]?.hint ?? "",
    secretId: made.key?.secrets[0]?.secretId ?? "",
    transferId: transfer?.transferId ?? "",
    receipt: await receipt(),
    externalId: rows[0]?.external_id ?? "",
    depositId: deposits.rows[0]?.external_id ?? "",
    day: deposits.rows[0]?.first_seen_at.toISOString().slice(0, 10) ?? "",
  };
}

/** Two payments on chains that wait at a permanent address. */
async function addChainPayments(accountId: string): Promise<void> {
  await client.query("insert into deposit_keys values ('key_of_wallet', 1)");
  await client.query(
    `insert into deposit_addresses (key_id, index, address, account_id, "family")
     values ('key_of_wallet', 0, $1, $2, 'v1')`,
    [evmAddress, accountId],
  );
  for (const [chain, tx, externalId] of [
    ["ethereum", `0x${evmHash}`, "ethereum:waits"],
    ["bitcoin", bitcoinHash, `${bitcoinHash}:waits`],
  ]) {
    await client.query(
      `insert into chain_payments (processor, external_id, chain, address, asset, decimals, atoms,
         state, first_seen_at)
       values ('onchain', $1, $2, $3, 'USDT', 6, 1000000, 'seen', now())`,
      [externalId, chain, evmAddress],
    );
    await client.query("insert into payment_transactions values ('onchain', $1, $2, $3)", [
      ...[chain, tx, externalId],
    ]);
  }
}

let world: Awaited<ReturnType<typeof makeWorld>>;
beforeAll(async () => {
  world = await makeWorld();
});

type World = typeof world;

describe("a search finds exactly one by", () => {
  test.for<[string, (of: World) => string, (of: World) => string]>([
    ["the id of an account", (of) => of.accountId, (of) => `ACCOUNT ${of.accountId}`],
    ["the beginning of its name", () => "nordw", (of) => `ACCOUNT ${of.accountId}`],
    ["the beginning of a word of it", () => "HANDEL", (of) => `ACCOUNT ${of.accountId}`],
    ["beginnings of several words", () => "hand nord", (of) => `ACCOUNT ${of.accountId}`],
    ["the id of an order", (of) => of.orderId, (of) => `ORDER ${of.orderId}`],
    ["the id of an order at its processor", (of) => of.externalId, (of) => `ORDER ${of.orderId}`],
    ["the address of an order", (of) => of.payTo, (of) => `ORDER ${of.orderId}`],
    ["the id of a payment", (of) => of.depositId, (of) => `ORDER ${of.orderId}`],
    [
      "an amount, its coin and its day",
      (of) => `${of.quotedAmount} usdt ${of.day}`,
      (of) => `ORDER ${of.orderId}`,
    ],
    ["the number of a receipt", (of) => of.receipt, (of) => `DOCUMENT ${of.orderId}`],
    [
      "the number in small letters",
      (of) => of.receipt.toLowerCase(),
      (of) => `DOCUMENT ${of.orderId}`,
    ],
    ["the id of a transfer", (of) => of.transferId, (of) => `TRANSFER ${of.transferId}`],
    ["the id of a promotion that was used", (of) => of.codeId, (of) => `PROMOTION ${of.codeId}`],
    ["a hash as Ethereum writes it", () => `0x${evmHash}`, () => "PAYMENT ethereum:waits"],
    ["the same in capitals", () => evmHash.toUpperCase(), () => "PAYMENT ethereum:waits"],
    ["a hash of Bitcoin", () => bitcoinHash, () => `PAYMENT ${bitcoinHash}:waits`],
    ["an address as wallets show it", () => checksummed, () => `ADDRESS ${evmAddress}`],
    ["the id of a key", (of) => of.keyId, (of) => `KEY ${of.keyId}`],
    ["a whole secret", (of) => of.secret, (of) => `KEY ${of.keyId}`],
    ["the id of a secret", (of) => of.secretId, (of) => `KEY ${of.keyId}`],
    ["a hint", (of) => of.hint, (of) => `KEY ${of.keyId}`],
    ["a hint with three dots", (of) => of.hint.replace("…", "..."), (of) => `KEY ${of.keyId}`],
    ["the beginning of a secret", (of) => of.secret.slice(0, 14), (of) => `KEY ${of.keyId}`],
    ["an old hint", () => "sk-gw2-1KqKq…qKqx", (of) => `KEY ${of.keyId}`],
    ["the beginning of an old secret", () => oldSecret.slice(0, 14), (of) => `KEY ${of.keyId}`],
    ["the id of a management key", () => "mgk_search", () => "MANAGEMENT_KEY mgk_search"],
    ["a secret of a management key", () => managementSecret, () => "MANAGEMENT_KEY mgk_search"],
    ["the id of a person", () => "per_search", () => "PERSON per_search"],
    ["a login", () => "search.v", () => "PERSON per_search"],
    ["a mail address", () => "vera.o@EXAMPLE.com", () => "PERSON per_search"],
    ["the name of a person", () => "östlund", () => "PERSON per_search"],
  ])("%s", async ([, query, expected]) => {
    expect(await found(query(world))).toEqual([expected(world)]);
  });

  test("the id of a request, whether it was charged or refused", async () => {
    const send = (key: string, model: string) =>
      fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": key,
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          ...{ model, max_tokens: 20 },
          messages: [{ role: "user", content: "words that nobody may keep" }],
        }),
      });
    const charged = await send(gateway.v1, "haiku");
    const refused = await send(world.secret, "model-that-nobody-has");
    await charged.text();
    expect([charged.status, refused.status]).toEqual([200, 404]);
    const { request_id: shown } = Object(await refused.json());
    expect(await found(charged.headers.get("request-id") ?? "")).toEqual([
      `REQUEST ${charged.headers.get("request-id")}`,
    ]);
    await expect.poll(() => found(shown), soon).toEqual([`REFUSAL ${shown}`]);
    const { refusals } = await gateway.admin.core.billing.findRequests(
      { requestId: shown },
      call(),
    );
    expect(refusals).toMatchObject([
      {
        ...{ requestId: shown, accountId: world.accountId, keyId: world.keyId },
        ...{ reason: Reason.MODEL_NOT_FOUND, model: "model-that-nobody-has" },
        facts: { field: "model" },
      },
    ]);
    const { core } = gateway.admin;
    const { account } = await core.billing.createAccount(
      { settings: { name: "Without credits" } },
      call(),
    );
    const { secret } = await core.keys.createKey(
      { accountId: account?.accountId ?? "", family: Family.V1, settings: { name: "poor" } },
      call(),
    );
    const poor = await send(secret, "haiku");
    const { request_id: poorId } = Object(await poor.json());
    expect(poor.status).toBe(402);
    await expect.poll(() => found(poorId), soon).toEqual([`REFUSAL ${poorId}`]);
    const answer = await gateway.admin.core.billing.findRequests({ requestId: poorId }, call());
    expect(answer.refusals[0]?.facts).toMatchObject({
      ...{ limit_name: "pool_microcredits", free_microcredits: "0" },
      needed_microcredits: expect.stringMatching(/^[1-9]\d*$/),
    });
    const { rows } = await client.query("select to_jsonb(r)::text as row from refusals r");
    expect(JSON.stringify(rows)).not.toContain("nobody may keep");
  });
});

test("an account shows the promotions that it used and its documents, and no other's", async () => {
  const { accountId, codeId, orderId, receipt, transferId } = world;
  const { uses } = await operations().listPromotionUses({ accountId }, call());
  expect(uses).toMatchObject([
    {
      ...{ promotionId: codeId, name: "Autumn", family: Family.V1, bonusMicrocredits: 1_000_000n },
      ...{ orderId: "", takenBack: false, transferId },
    },
  ]);
  const { documents, nextPageToken } = await operations().listDocuments({ accountId }, call());
  expect(documents).toMatchObject([{ number: receipt, kind: DocumentKind.RECEIPT, orderId }]);
  expect(nextPageToken).toBe("");
  const other = { accountId: gateway.accountId };
  expect((await operations().listPromotionUses(other, call())).uses).toEqual([]);
  expect((await operations().listDocuments(other, call())).documents).toEqual([]);
  const nobody = { accountId: "acc_nobody" };
  for (const asked of [
    operations().listPromotionUses(nobody, call()),
    operations().listDocuments(nobody, call()),
  ]) {
    const reason = await asked.then(
      () => undefined,
      (thrown: unknown) => toApiError(thrown).reason,
    );
    expect(reason).toBe("not_found");
  }
});

test("the list of accounts takes the same texts", async () => {
  const { receipt, secret, transferId, accountId } = world;
  for (const query of [receipt, secret, transferId, evmHash, "wind"]) {
    const { accounts } = await operations().findAccounts({ query }, call());
    expect(accounts.map(({ account }) => account?.accountId)).toEqual([accountId]);
  }
});

test("a hit says whose it is and shows no secret", async () => {
  const answer = await operations().search({ query: world.secret, allAccounts: true }, call());
  expect(answer.hits).toMatchObject([
    { accountId: world.accountId, accountName: "Nordwind Handel", title: "build" },
  ]);
  expect(JSON.stringify(toJson(SearchResponseSchema, answer))).not.toContain(world.secret);
});

test("what begins with a text comes first, and of more than 20 an answer says so", async () => {
  await client.query(
    `insert into accounts (account_id, name)
     select 'acc_rank_' || n, 'Hill and Rankine ' || n from generate_series(1, 30) n`,
  );
  await client.query("insert into accounts (account_id, name) values ('acc_first', 'Rankine')");
  const { hits, incomplete: isIncomplete } = await operations().search(
    { query: "rankine", allAccounts: true },
    call(),
  );
  expect(hits[0]?.id).toBe("acc_first");
  expect(hits).toHaveLength(20);
  expect(isIncomplete).toBe(true);
});

test("texts that are nothing of ours find nothing", async () => {
  for (const query of [
    "x",
    "%",
    "_",
    "'",
    "\\",
    "' & 'x':*",
    "<script>alert(1)</script>",
    "'; drop table accounts; --",
    "ord_0192f0c1a2b37000800000000000dead",
    "acc_0192f0c1a2b37000800000000000dead",
    "req_0192f0c1a2b37000800000000000dead",
    "R2019-000001",
    `0x${"00".repeat(32)}`,
    "sk-gw2-1zzzz",
    `sk-gw2-1${"z".repeat(49)}`,
    "0.5 BTC 2026-02-30",
    "99999999999999999999.123456789012345678901234567890 BTC 2026-11-20",
    "\u{1f600}",
  ])
    expect([query, await found(query)]).toEqual([query, []]);
});

test("a text that is too long, blank or not well formed is refused", async () => {
  for (const query of ["x".repeat(10_240), "x".repeat(201), "  ", "a\nb"]) {
    const error = await operations()
      .search({ query, allAccounts: true }, call())
      .then(
        () => undefined,
        (thrown: unknown) => toApiError(thrown),
      );
    expect([error?.reason, error?.facts.field]).toEqual(["invalid_request", "query"]);
  }
});

describe("in an account a search", () => {
  /** The session of somebody who joins the account, or another one. */
  async function joins(login: string, role: AccountRole, accountId = world.accountId) {
    const { people } = gateway.admin.core;
    const invited = await people.createInvitation({ accountId, role }, operator);
    const token = new URL(invited.link).hash.slice(1);
    const password = "a long password";
    const { grant } = await people.redeemLink({ token, login, name: `Name ${login}`, password });
    return { headers: { authorization: `Session ${grant?.token}` } };
  }
  type As = Awaited<ReturnType<typeof joins>>;
  let operator: As;
  let viewer: As;
  let owner: As;
  beforeAll(async () => {
    const token = new URL(gateway.ownerLink).hash.slice(1);
    const first = { token, login: "olga", password: "a long password" };
    const { grant } = await gateway.admin.core.people.redeemLink(first);
    operator = { headers: { authorization: `Session ${grant?.token}` } };
    viewer = await joins("view.only", AccountRole.VIEWER);
    owner = await joins("own.er", AccountRole.OWNER);
  });

  async function finds(query: string, as: As, accountId = world.accountId): Promise<string[]> {
    const { hits } = await operations().search({ query, accountId }, as);
    return hits.map(({ kind, id }) => `${nameOf(kind)} ${id}`);
  }
  const reasonOf = (asked: Promise<unknown>) =>
    asked.then(
      () => undefined,
      (thrown: unknown) => toApiError(thrown).reason,
    );

  test("shows a viewer what the account has, and its models", async () => {
    const { keyId, hint, secret, orderId, receipt } = world;
    for (const query of [
      "uil",
      "BUILD",
      hint,
      secret,
      keyId,
      secret.slice(0, 14),
      "sk-gw2-1KqKq…qKqx",
    ])
      expect([query, await finds(query, viewer)]).toEqual([query, [`KEY ${keyId}`]]);
    expect(await finds(orderId, viewer)).toEqual([`ORDER ${orderId}`]);
    expect(await finds(receipt.toLowerCase(), viewer)).toEqual([`DOCUMENT ${orderId}`]);
    expect(await finds("haiku", viewer)).toEqual([expect.stringMatching(/^MODEL /)]);
    const { hits } = await operations().search({ query: "build" }, viewer);
    expect(hits).toMatchObject([{ title: "build", hint, accountName: "Nordwind Handel" }]);
  });

  test("shows members to owners alone", async () => {
    expect(await finds("view.only", viewer)).toEqual([]);
    expect(await finds("view", owner)).toEqual([expect.stringMatching(/^PERSON per_/)]);
    expect(await finds("Östlund", owner)).toEqual([]);
  });

  test("shows no members to support, who may not list them", async () => {
    const login = "sup.port";
    await joins(login, AccountRole.VIEWER, gateway.accountId);
    await client.query("update people set operator = 'support' where login = $1", [login]);
    const { grant } = await gateway.admin.core.people.signInWithPassword({
      ...{ login, password: "a long password" },
    });
    const as = { headers: { authorization: `Session ${grant?.token}` } };
    // A part inside of a login is found among the members of an account alone.
    expect(await finds("iew.onl", as)).toEqual([]);
    expect(await finds("iew.onl", operator)).toEqual([expect.stringMatching(/^PERSON per_/)]);
    expect(await finds(world.orderId, as)).toEqual([`ORDER ${world.orderId}`]);
  });

  test("knows no account that an operator has invented", async () => {
    for (const as of [operator, call()]) {
      const asked = operations().search({ query: "build", accountId: "acc_invented" }, as);
      expect(await reasonOf(asked)).toBe("not_found");
    }
  });

  test("finds its own among very many of others", async () => {
    const { accountId, orderId, payTo, quotedAmount, day } = world;
    // Newer ones of another account, with the same address and amount.
    await client.query(
      `insert into payment_orders
       select (jsonb_populate_record(o, jsonb_build_object('order_id', 'ord_many_' || n,
         'account_id', $2::text, 'external_id', 'ext_many_' || n, 'idempotency_key', 'many ' || n,
         'created_at', now() + interval '1 second'))).*
       from payment_orders o, generate_series(1, 120) n
       where o.order_id = $1`,
      [orderId, gateway.accountId],
    );
    await client.query(
      `insert into payment_deposits
       select (jsonb_populate_record(d, jsonb_build_object('order_id', null,
         'account_id', $2::text, 'external_id', 'dep_many_' || n,
         'first_seen_at', d.first_seen_at + interval '1 millisecond'))).*
       from payment_deposits d, generate_series(1, 30) n
       where d.order_id = $1`,
      [orderId, gateway.accountId],
    );
    try {
      for (const query of [payTo, `${quotedAmount} USDT ${day}`])
        expect([query, await finds(query, owner, accountId)]).toEqual([
          query,
          [`ORDER ${orderId}`],
        ]);
    } finally {
      await client.query("delete from payment_deposits where external_id like 'dep_many_%'");
      await client.query("delete from payment_orders where order_id like 'ord_many_%'");
    }
  });

  test("shows nothing of others, nor what only operators have pages of", async () => {
    const { core } = gateway.admin;
    const { account } = await core.billing.createAccount({ settings: { name: "Südwind" } }, call());
    const accountId = account?.accountId ?? "";
    const stranger = await joins("stran.ger", AccountRole.OWNER, accountId);
    const { keyId, secret, orderId, transferId, codeId } = world;
    for (const query of [keyId, secret, orderId, "build", transferId, codeId, "nordwind"])
      expect([query, await finds(query, stranger, accountId)]).toEqual([query, []]);
    for (const query of [transferId, codeId, evmHash, "per_search", "nordwind"])
      expect([query, await finds(query, owner)]).toEqual([query, []]);
    const other = operations().search({ query: "build", accountId: world.accountId }, stranger);
    expect(await reasonOf(other)).toBe("not_found");
    const all = operations().search({ query: "build", allAccounts: true }, owner);
    expect(await reasonOf(all)).toBe("not_permitted");
  });

  test("has for operators all that is elsewhere behind it", async () => {
    const { billing } = gateway.admin.core;
    const { account } = await billing.createAccount(
      { settings: { name: "Build and Sons" } },
      call(),
    );
    const { accountId, keyId } = world;
    const { hits } = await operations().search({ query: "build", accountId }, call());
    expect(hits.map(({ id }) => id)).toEqual([keyId, account?.accountId]);
  });

  test("takes the text of a viewer as text, and refuses one that is too long", async () => {
    for (const query of ["%", "_", "' & 'x':*", "<b>build</b>", "'; drop table keys; --", "\\"])
      expect([query, await finds(query, viewer)]).toEqual([query, []]);
    for (const query of ["x".repeat(10_240), "<p>".repeat(67), "a\u0000b"])
      expect(await reasonOf(finds(query, viewer))).toBe("invalid_request");
  });

  test("is open to keys that read the account, and to no others", async () => {
    const { keys } = gateway.admin.core;
    const inAccount = { accountId: world.accountId, family: Family.V1 };
    const reader = await keys.createKey(
      { ...inAccount, settings: { name: "reader", accountReader: true } },
      call(),
    );
    const as = (secret: string) => ({ headers: { authorization: `Bearer ${secret}` } });
    const { hits } = await operations().search({ query: "build" }, as(reader.secret));
    expect(hits.map(({ id }) => id)).toEqual([world.keyId]);
    for (const query of [world.orderId, world.receipt, world.payTo])
      expect((await operations().search({ query }, as(reader.secret))).hits).toEqual([]);
    const plain = operations().search({ query: "build" }, as(world.secret));
    expect(await reasonOf(plain)).toBe("not_permitted");
  });
});
