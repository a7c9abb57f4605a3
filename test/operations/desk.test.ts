// What an operator does at the desk, over a whole gateway: notes, credits that move between pools,
// and all orders, whose page, files and documents have the same sums.

import { getOption, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { audited, callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { DepositState, OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import type { SimulatedDepositSchema } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { type ApiError, toApiError } from "../../src/base/errors.ts";
import { parseCredits } from "../../src/base/money.ts";
import { isAdmitted } from "../../src/contract/callers.ts";
import { allServices, type Caller } from "../../src/contract/contract.ts";
import { Authenticator } from "../support/authenticator.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
let client: Client;
beforeAll(async () => {
  gateway = await startTestGateway();
  client = new Client({ connectionString: gateway.databaseUrl });
  await client.connect();
});
afterAll(async () => {
  await client.end();
  await gateway.stop();
});

const call = () => gateway.admin.call;
const core = () => gateway.admin.core;
const soon = { timeout: 25_000, interval: 50 };
const { V1, V2 } = Family;
const million = 1_000_000n;

async function errorOf(asked: Promise<unknown>): Promise<ApiError | undefined> {
  return asked.then(
    () => undefined,
    (thrown: unknown) => toApiError(thrown),
  );
}

async function makeAccount(name: string, credits = 0n): Promise<string> {
  const { account } = await core().billing.createAccount({ settings: { name } }, call());
  const accountId = account?.accountId ?? "";
  if (credits > 0n)
    await core().billing.createTransfer(
      {
        ...{ accountId, family: V1, kind: TransferKind.BONUS, reason: "a test" },
        ...{ amountMicrocredits: credits * million, idempotencyKey: "start" },
      },
      call(),
    );
  return accountId;
}

const freeOf = async (accountId: string) =>
  (await core().billing.getPools({ accountId }, call())).pools.map(
    ({ freeMicrocredits }) => freeMicrocredits / million,
  );

describe("credits that move between pools", () => {
  const moving = (accountId: string, credits: bigint, idempotencyKey: string) => ({
    ...{
      accountId,
      fromFamily: V1,
      toFamily: V2,
      amountMicrocredits: credits * million,
      idempotencyKey,
    },
    reason: "bought for the wrong pool",
  });

  test("leave the one and enter the other, once for each idempotency key", async () => {
    const accountId = await makeAccount("moving", 100n);
    const first = await core().billing.moveCredits(moving(accountId, 30n, "a"), call());
    const again = await core().billing.moveCredits(moving(accountId, 30n, "a"), call());
    expect(again).toEqual(first);
    expect(
      first.transfers.map(({ family, amountMicrocredits }) => [family, amountMicrocredits]),
    ).toEqual([
      [V1, -30n * million],
      [V2, 30n * million],
    ]);
    expect(await freeOf(accountId)).toEqual([70n, 30n]);
    const other = { ...moving(accountId, 31n, "a") };
    expect((await errorOf(core().billing.moveCredits(other, call())))?.reason).toBe(
      "idempotency_key_reused",
    );
    // As the first answer was, whatever became of the account.
    await core().billing.suspendAccount({ accountId, reason: "for a look" }, call());
    expect(await core().billing.moveCredits(moving(accountId, 30n, "a"), call())).toEqual(first);
    await core().billing.resumeAccount({ accountId, reason: "as before" }, call());
    // Back again, under a key that could be taken for one of the first move.
    const back = { ...moving(accountId, 30n, "in:a"), fromFamily: V2, toFamily: V1 };
    await core().billing.moveCredits(back, call());
    expect(await freeOf(accountId)).toEqual([100n, 0n]);
  });

  test("move by an operator while their account is suspended", async () => {
    const accountId = await makeAccount("suspended", 10n);
    await core().billing.suspendAccount({ accountId, reason: "for a look" }, call());
    await core().billing.moveCredits(moving(accountId, 4n, "a"), call());
    expect(await freeOf(accountId)).toEqual([6n, 4n]);
  });

  test("are never more than are free, however many ask at once", async () => {
    const accountId = await makeAccount("racing", 100n);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) =>
        core().billing.moveCredits(moving(accountId, 30n, `race-${n}`), call()),
      ),
    );
    const refused = outcomes.filter(({ status }) => status === "rejected");
    expect(refused).toHaveLength(17);
    for (const one of refused)
      expect("reason" in one && toApiError(one.reason).reason).toBe("insufficient_funds");
    expect(await freeOf(accountId)).toEqual([10n, 90n]);
  });

  test("need two pools, an amount, a key and a reason", async () => {
    const accountId = await makeAccount("wrong", 10n);
    const good = moving(accountId, 1n, "b");
    for (const [bad, field] of [
      [{ ...good, toFamily: V1 }, "to_family"],
      [{ ...good, amountMicrocredits: -1n }, "amount_microcredits"],
      [{ ...good, amountMicrocredits: 2n ** 53n + 1n }, "amount_microcredits"],
      [{ ...good, idempotencyKey: "x".repeat(201) }, "idempotency_key"],
      [{ ...good, reason: " why " }, "reason"],
    ] as const)
      expect((await errorOf(core().billing.moveCredits(bad, call())))?.facts.field).toBe(field);
    const nobody = moving("acc_nobody", 1n, "b");
    expect((await errorOf(core().billing.moveCredits(nobody, call())))?.reason).toBe("not_found");
    expect(await freeOf(accountId)).toEqual([10n, 0n]);
  });

  test("that lack their other half are found by the verifier", async () => {
    const accountId = await makeAccount("damaged", 10n);
    await core().billing.moveCredits(moving(accountId, 5n, "c:d"), call());
    const violations = async () =>
      (await core().billing.verifyLedger({}, call())).violations.map(
        ({ invariant, subject }) => `${invariant} ${subject}`,
      );
    expect(await violations()).toEqual([]);
    const rename = (from: string, to: string) =>
      client.query(
        "update transfers set idempotency_key = $2 where account_id = $3 and idempotency_key = $1",
        [from, to, accountId],
      );
    await client.query("set session_replication_role = replica");
    await rename("move:in:c:d", "lost");
    expect(await violations()).toEqual([
      `moved credits = out of one pool and into the other ${accountId}/c:d`,
    ]);
    await rename("lost", "move:in:c:d");
    expect(await violations()).toEqual([]);
  });
});

describe("a note about an account", () => {
  test("is added once for each idempotency key, and listed newest first", async () => {
    const accountId = await makeAccount("noted");
    const add = (text: string, idempotencyKey: string) =>
      core().operations.createAccountNote({ accountId, text, idempotencyKey }, call());
    const first = await add("Called.\nWants an invoice.", "n1");
    expect(await add("Called.\nWants an invoice.", "n1")).toEqual(first);
    await add("<b>Done</b>", "n2");
    const { notes } = await core().operations.listAccountNotes({ accountId }, call());
    expect(notes).toMatchObject([
      { text: "<b>Done</b>", createdBy: toActor("token:ADMIN_TOKEN"), accountId },
      { text: "Called.\nWants an invoice." },
    ]);
    expect((await errorOf(add("other", "n1")))?.reason).toBe("idempotency_key_reused");
    for (const text of [" \n ", "x".repeat(2_001), "a\u0007b"])
      expect((await errorOf(add(text, "n3")))?.facts.field).toBe("text");
    const nobody = { accountId: "acc_nobody" };
    for (const asked of [
      core().operations.listAccountNotes(nobody, call()),
      core().operations.createAccountNote(
        { ...nobody, text: "a note", idempotencyKey: "n4" },
        call(),
      ),
    ])
      expect((await errorOf(asked))?.reason).toBe("not_found");
  });
});

describe("of notes", () => {
  test("the members of an account learn nothing, neither by its events nor by its export", async () => {
    const { accountId, ownerLink } = gateway;
    const link = new URL(ownerLink);
    const token = link.hash.slice(1);
    const { people, operations, billing } = core();
    const { passkeyOptionsJson } = await people.beginPasskey({ linkToken: token, login: "olga" });
    const passkeyAnswerJson = new Authenticator(link.origin).register(passkeyOptionsJson);
    const { grant } = await people.redeemLink({ token, login: "olga", passkeyAnswerJson });
    const authorization = `Session ${grant?.token}`;
    const asOperator = { headers: { authorization } };
    const asOwner = { headers: { authorization, "x-operator-role": "none" } };
    await billing.updateAccount(
      { accountId, settings: { name: "Noted" }, updateMask: { paths: ["name"] } },
      asOwner,
    );
    await operations.createAccountNote(
      { accountId, text: "owes us", idempotencyKey: "hidden" },
      call(),
    );
    await client.query(
      `insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
       values ('evt_look', now(), 'person:per_other', $1, 'ListAccountNotes', 'ok', '{}', '')`,
      [accountId],
    );
    const methodsFor = async (caller: { headers: { authorization: string } }, method = "") =>
      (await people.listAuditEvents({ accountId, method }, caller)).events.map(
        (event) => event.method,
      );
    for (const operator of [call(), asOperator])
      expect(await methodsFor(operator)).toEqual(
        expect.arrayContaining(["UpdateAccount", "CreateAccountNote", "ListAccountNotes"]),
      );
    const seen = await methodsFor(asOwner);
    expect(seen).toContain("UpdateAccount");
    for (const method of ["CreateAccountNote", "ListAccountNotes"]) {
      expect(seen).not.toContain(method);
      expect(await methodsFor(asOwner, method)).toEqual([]);
    }
    let file = "";
    for await (const part of billing.exportAccount({ accountId }, asOwner))
      file += JSON.stringify(part, (_, value) =>
        typeof value === "bigint" ? String(value) : value,
      );
    expect(file).toContain("UpdateAccount");
    for (const secret of ["CreateAccountNote", "ListAccountNotes", "owes us"])
      expect(file).not.toContain(secret);
    expect((await errorOf(operations.listAccountNotes({ accountId }, asOwner)))?.reason).toBe(
      "not_permitted",
    );
  });
});

/** The cells of a file without line breaks in its cells. */
function parse(text: string): Record<string, string>[] {
  const [head = "", ...lines] = text.split("\r\n").slice(0, -1);
  const names = head.split(",");
  return lines.map((line) =>
    Object.fromEntries(line.split(",").map((cell, index) => [names[index] ?? "", cell])),
  );
}

async function csvOf(pages: AsyncIterable<{ readonly csv: string }>) {
  let text = "";
  for await (const { csv } of pages) text += csv;
  return parse(text);
}

/** The sum of a column in millionths. */
function sumOf(rows: readonly Record<string, string>[], column: string): bigint {
  return rows.reduce((sum, row) => {
    const text = row[column] ?? "none";
    const isNegative = text.startsWith("-");
    const part = parseCredits(isNegative ? text.slice(1) : text) ?? 10n ** 18n;
    return sum + (isNegative ? -part : part);
  }, 0n);
}

describe("all orders", () => {
  const accounts: string[] = [];
  const payers: string[] = [];
  beforeAll(async () => {
    for (const name of ["first", "second"]) accounts.push(await makeAccount(name));
    for (const [index, paid] of ["exact", "half", "exact", "none", "exact"].entries()) {
      const accountId = accounts[index % 2] ?? "";
      const { order } = await core().payments.createOrder(
        {
          ...{
            accountId,
            family: V1,
            packMicrodollars: 5_000_000n * BigInt(index + 1),
            idempotencyKey: `o${index}`,
          },
          method: "simulated:usdt",
        },
        call(),
      );
      const { orderId = "", quotedCoins: quotedAmount = "" } = order ?? {};
      payers.push(orderId);
      const amount = paid === "half" ? "5" : quotedAmount;
      if (paid !== "none")
        await core().payments.simulateDeposit(
          { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 10 } } },
          call(),
        );
    }
    const read = async (index: number) =>
      (await core().payments.getOrder({ orderId: payers[index] ?? "" }, call())).order;
    await vi.waitFor(async () => {
      for (const index of [0, 2, 4]) expect((await read(index))?.receiptNumber).not.toBe("");
      expect((await read(1))?.state).toBe(OrderState.PARTLY_PAID);
    }, soon);
    const refunded = payers[0] ?? "";
    await core().payments.beginRefund(
      {
        orderId: refunded,
        what: { case: "amountMicrodollars", value: 2_000_000n },
        reason: "a test",
      },
      call(),
    );
    await vi.waitFor(
      () => core().payments.completeRefund({ orderId: refunded, transaction: "tx" }, call()),
      soon,
    );
  }, 60_000);
  const idsOf = (orders: readonly { orderId: string }[]) => orders.map(({ orderId }) => orderId);
  const byIndex = (...indexes: number[]) => indexes.map((index) => payers[index] ?? "");

  test("are listed by account, state, processor, coin, time and price", async () => {
    const list = async (filter: object, accountId?: string) => {
      const whose = accountId === undefined ? { allAccounts: true } : { accountId };
      return idsOf((await core().payments.listOrders({ ...whose, filter }, call())).orders);
    };
    expect(await list({})).toEqual(byIndex(4, 3, 2, 1, 0));
    expect(await list({}, accounts[1])).toEqual(byIndex(3, 1));
    expect(await list({ states: [OrderState.PAID] })).toEqual(byIndex(4, 2, 0));
    expect(await list({ states: [OrderState.OPEN, OrderState.PARTLY_PAID] })).toEqual(
      byIndex(3, 1),
    );
    expect(await list({ processor: "other" })).toEqual([]);
    expect(await list({ asset: "USDT", minMicrodollars: 15_000_000n })).toEqual(byIndex(4, 3, 2));
    expect(await list({ needsAttention: true })).toEqual([]);
    const hour = (n: number) => timestampFromDate(new Date(Date.now() + n * 3_600_000));
    expect(await list({ startAt: hour(-1), endAt: hour(1) })).toEqual(byIndex(4, 3, 2, 1, 0));
    expect(await list({ endAt: hour(-1) })).toEqual([]);
    const bad = { allAccounts: true, filter: { minMicrodollars: -1n } };
    expect((await errorOf(core().payments.listOrders(bad, call())))?.facts.field).toBe(
      "filter.min_microdollars",
    );
  });

  test("come page by page, and a page goes on with its own filter only", async () => {
    const filter = { asset: "USDT" };
    const seen: string[] = [];
    let pageToken = "";
    do {
      const asked = { allAccounts: true, filter, pageSize: 2, pageToken };
      const page = await core().payments.listOrders(asked, call());
      seen.push(...idsOf(page.orders));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(seen).toEqual(byIndex(4, 3, 2, 1, 0));
    const first = await core().payments.listOrders(
      { allAccounts: true, filter, pageSize: 2 },
      call(),
    );
    const other = { allAccounts: true, filter: { asset: "BTC" }, pageToken: first.nextPageToken };
    expect((await errorOf(core().payments.listOrders(other, call())))?.facts.field).toBe(
      "page_token",
    );
  });

  test("have the same sums on their page, in their file and in the documents", async () => {
    const { payments, billing } = core();
    const all = { allAccounts: true };
    const { orders, sums } = await payments.listOrders({ ...all, includeSums: true }, call());
    const rows = await csvOf(payments.exportOrders(all, call()));
    const documents = await csvOf(payments.exportDocuments(all, call()));
    const transfers = await csvOf(billing.exportTransfers(all, call()));
    const granted = orders.reduce((sum, one) => sum + one.grantedMicrocredits, 0n);
    expect(granted).toBeGreaterThan(0n);
    expect(sums).toMatchObject({
      orders: 5n,
      orderedMicrodollars: 75_000_000n,
      grantedMicrocredits: granted,
      refundedMicrodollars: 2_000_000n,
    });
    expect(rows.map(({ order_id }) => order_id)).toEqual(idsOf(orders));
    expect(sumOf(rows, "granted_credits")).toBe(granted);
    expect(sumOf(rows, "granted_usd")).toBe(granted / 200n);
    expect(sumOf(rows, "usd")).toBe(75_000_000n);
    expect(sumOf(rows, "refunded_usd")).toBe(2_000_000n);
    expect(documents.map(({ kind }) => kind).sort()).toEqual([
      "credit_note",
      ...Array(3).fill("receipt"),
    ]);
    expect(sumOf(documents, "credits")).toBe(granted);
    expect(sumOf(documents, "usd")).toBe(granted / 200n);
    const ofPayments = transfers.filter(({ kind }) => kind === "deposit" || kind === "refund");
    expect(sumOf(ofPayments, "credits")).toBe(granted);
    expect(rows.find(({ order_id }) => order_id === payers[1])).toMatchObject({
      ...{ state: "partly_paid", received_amount: "5", usd: "10.00" },
      ...{ asset: "USDT", buyer_name: "second" },
    });
    const refunded = rows.find(({ order_id }) => order_id === payers[0]);
    expect(refunded?.receipt_number).toMatch(/^R\d{4}-\d{6}$/);
  });

  test("have received in their file what has settled in their own coin", async () => {
    const { payments } = core();
    const accountId = await makeAccount("third");
    const { order } = await payments.createOrder(
      {
        ...{ accountId, family: V1, packMicrodollars: 10_000_000n, idempotencyKey: "o-received" },
        method: "simulated:usdt",
      },
      call(),
    );
    const { orderId = "" } = order ?? {};
    const pay = (value: MessageInitShape<typeof SimulatedDepositSchema>) =>
      payments.simulateDeposit({ orderId, event: { case: "deposit", value } }, call());
    await pay({ coins: "3", confirmations: 10 });
    await pay({ coins: "2", confirmations: 0 });
    await pay({ coins: "1", confirmations: 0, lost: true });
    await pay({ coins: "0.5", confirmations: 10, asset: "BTC" });
    const states = async () => {
      const { order: now } = await payments.getOrder({ orderId }, call());
      return (now?.deposits ?? []).map(({ state }) => state).sort();
    };
    const { SEEN, SETTLED, LOST } = DepositState;
    await expect.poll(states).toEqual([SEEN, SETTLED, SETTLED, LOST]);
    expect(await csvOf(payments.exportOrders({ accountId }, call()))).toMatchObject([
      { order_id: orderId, received_amount: "3", asset: "USDT" },
    ]);
  });
});

test("files of many orders, documents and transfers come page by page, each line once", async () => {
  const accountId = await makeAccount("many");
  await client.query("begin");
  await client.query(
    `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
       processor, method, asset, network, decimals, external_id, quoted_atoms, rate, state,
       created_by, buyer_name, quoted_until, watched_until)
     select 'ord_' || lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '70008'
         || lpad(n::text, 15, '0'), $1, 'v1', 'many-' || n, 5000000, 'many', 'many:btc', 'BTC',
       'bitcoin', 8, 'many-' || n, 5000, 100000000000, 'open', 'token:many', '=1+1,"x"',
       now(), now()
     from generate_series(1, 1250) n`,
    [accountId],
  );
  await client.query(
    `insert into payment_documents (seller, kind, year, n, number, order_id)
     select 'many', 'receipt', 2026, row_number() over (order by order_id),
       'M2026-' || row_number() over (order by order_id), order_id
     from payment_orders where account_id = $1`,
    [accountId],
  );
  const { payments, billing } = core();
  const before = await csvOf(billing.exportTransfers({ allAccounts: true }, call()));
  let pages = 0;
  const ids = new Set<string>();
  await client.query("commit");
  for await (const { csv } of payments.exportOrders({ accountId }, call())) {
    pages++;
    // No page is larger than the rows of one statement.
    const lines = csv.split("\r\n").slice(0, -1);
    expect(lines.length).toBeLessThanOrEqual(500);
    for (const line of lines) ids.add(line.split(",")[0] ?? "");
    // A text that a spreadsheet would run is none in the file.
    if (pages === 2) expect(csv).toContain(`"'=1+1,""x"""`);
  }
  expect(pages).toBe(4);
  expect(ids.size).toBe(1 + 1_250);
  const documents = await csvOf(payments.exportDocuments({ accountId }, call()));
  expect(new Set(documents.map(({ number }) => number)).size).toBe(1_250);
  expect(before.length).toBeGreaterThan(0);
  await client.query("delete from payment_documents where seller = 'many'");
  await client.query("delete from payment_orders where processor = 'many'");
});

test("documents and used promotions of one moment come on some page, each once", async () => {
  const accountId = await makeAccount("at once");
  await client.query(
    `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
       processor, method, asset, network, decimals, external_id, quoted_atoms, rate, state,
       created_by, quoted_until, watched_until)
     select 'ord_once_' || n, $1, 'v1', 'once-' || n, 5000000, 'once', 'once:btc', 'BTC',
       'bitcoin', 8, 'once-' || n, 5000, 100000000000, 'open', 'token:once', now(), now()
     from generate_series(1, 5) n`,
    [accountId],
  );
  await client.query(
    `insert into payment_documents (seller, kind, year, n, number, order_id)
     select 'once', 'receipt', 2026, right(order_id, 1)::integer, 'O2026-' || right(order_id, 1),
       order_id
     from payment_orders where account_id = $1`,
    [accountId],
  );
  await client.query(
    `insert into promotions (code_id, code_sha256, name, "family", bonus_micro, created_by)
     select 'pro_once_' || n, sha256(n::text::bytea), 'once', 'v1', 1, 'token:once'
     from generate_series(1, 5) n`,
  );
  await client.query(
    `insert into promotion_uses (code_id, account_id, used_at, transfer_id)
     select code_id, $1, now(), 'tra_once' from promotions where name = 'once'`,
    [accountId],
  );
  const { operations } = core();
  const numbers: string[] = [];
  const codes: string[] = [];
  for (let pageToken = "", page = 0; page === 0 || pageToken !== ""; page++) {
    const asked = { accountId, pageSize: 2, pageToken };
    const { documents, nextPageToken } = await operations.listDocuments(asked, call());
    numbers.push(...documents.map(({ number }) => number));
    pageToken = nextPageToken;
  }
  for (let pageToken = "", page = 0; page === 0 || pageToken !== ""; page++) {
    const asked = { accountId, pageSize: 2, pageToken };
    const { uses, nextPageToken } = await operations.listPromotionUses(asked, call());
    codes.push(...uses.map(({ promotionId }) => promotionId));
    pageToken = nextPageToken;
  }
  const newestFirst = [5, 4, 3, 2, 1];
  expect(numbers).toEqual(newestFirst.map((n) => `O2026-${n}`));
  expect(codes).toEqual(newestFirst.map((n) => `pro_once_${n}`));
  await client.query("delete from promotion_uses where account_id = $1", [accountId]);
  await client.query("delete from payment_documents where seller = 'once'");
  await client.query("delete from payment_orders where processor = 'once'");
});

describe("a person of support", () => {
  const support: Caller = {
    ...{ kind: "person", personId: "per_sue", sessionId: "ses_sue", memberships: [] },
    ...{ operator: OperatorRole.SUPPORT, strongUntil: new Date(Date.now() + 3_600_000) },
  };
  const methods = allServices.flatMap((service) => service.methods);
  const mayCall = (name: string) => {
    const found = methods.find((desc) => desc.name === name);
    return found !== undefined && isAdmitted(getOption(found, callers), support);
  };

  test("may search, look, note and download", () => {
    const all = [
      "Search",
      "FindAccounts",
      "FindRequests",
      "ListAccountNotes",
      "CreateAccountNote",
      "ListOrders",
    ];
    const files = ["ExportOrders", "ExportDocuments", "ExportTransfers", "ExportCharges"];
    for (const name of [...all, ...files]) expect([name, mayCall(name)]).toEqual([name, true]);
  });

  test("writes notes and sends mails again, and changes nothing else", () => {
    const acts = ["MoveCredits", "CreateTransfer", "DecideOrder", "BeginRefund", "CancelOrder"];
    const others = ["SuspendAccount", "LookUpPayment", "CreateSignInLink", "Approve"];
    for (const name of [...acts, ...others]) {
      const found = methods.find((desc) => desc.name === name);
      const allowed = found && getOption(found, callers);
      expect([name, allowed?.operatorRole]).toEqual([name, OperatorRole.ADMIN]);
    }
    const written = methods.filter(
      (desc) =>
        getOption(desc, audited) && getOption(desc, callers).operatorRole === OperatorRole.SUPPORT,
    );
    const names = written.map(({ name }) => name);
    expect(names).toEqual(["CreateAccountNote", "ResendDocument", "ResendNotice"]);
  });
});
