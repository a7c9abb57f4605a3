// What one person may not do alone, over a whole gateway: gifts above a limit in a day, and what
// would make one person two.

import type { CallOptions } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Approval, ApprovalKind } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import { AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  Attention,
  DepositState,
  OrderState,
  RefundState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import { listBypasses } from "../../src/contract/approvals.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { defaultCatalogWithoutPauses } from "../support/catalog.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { createOperators, type SignedIn } from "../support/operators.ts";
import { query } from "../support/query.ts";

const usd = 200_000_000n;
const limitUsd = 500;

let gateway: TestGateway;
let postgres: Postgres;
let core: TestGateway["admin"]["core"];
let operators: ReturnType<typeof createOperators>;
let ann: SignedIn;
let bob: SignedIn;
let cleo: SignedIn;
beforeAll(async () => {
  gateway = await startTestGateway();
  ({ core } = gateway.admin);
  postgres = connectPostgres(gateway.databaseUrl);
  operators = createOperators(gateway, () =>
    run("age-links", "update links set made_at = made_at - interval '2 days'"),
  );
  ann = await operators.newOwner("ann");
  [bob, cleo] = [await operators.newOperator("bob"), await operators.newOperator("cleo")];
  gateway.reload(withLimit(limitUsd));
});
beforeEach(() => run("forget", "truncate given, approvals"));
afterAll(async () => {
  await postgres.close();
  await gateway.stop();
});

const run = <Row>(name: string, text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: `test/${name}`, text }, values);

function withLimit(secondApprovalAboveUsd: number): CatalogFile {
  const payments = {
    ...{ packsUsd: [5], mostUsd: 1_000, seller: { id: "main", name: "", address: "", taxId: "" } },
    ownersMove: false,
    processors: [{ type: "simulated", name: "simulated" }] as const,
  };
  return { ...fastCatalog(), payments: { ...payments, secondApprovalAboveUsd } };
}

const as = (authorization: string): CallOptions => ({ headers: { authorization } });

let named = 0;
const unique = (what: string) => `${what}-${++named}`;
const reasonOf = (call: Promise<unknown>) =>
  call.then(
    () => "ok",
    (error: unknown) => apiErrorOf(error).reason,
  );

const requestOf = (amountUsd: bigint, more: object = {}) => ({
  accountId: gateway.accountId,
  family: Family.V1,
  kind: TransferKind.BONUS,
  amountMicrocredits: amountUsd * usd,
  idempotencyKey: unique("key"),
  reason: "goodwill",
  ...more,
});
const give = (amountUsd: bigint, call = ann.call, more: object = {}) =>
  core.billing.createTransfer(requestOf(amountUsd, more), call);
const approve = (approval: Approval | undefined, by = bob.call) =>
  core.operations.approve({ approvalId: approval?.approvalId ?? "" }, by);
const reject = (approval: Approval | undefined, by = bob.call) =>
  core.operations.reject({ approvalId: approval?.approvalId ?? "" }, by);
const waiting = async () =>
  (await core.operations.listApprovals({ pageSize: 1000 }, ann.call)).approvals;
const posted = async () => {
  const { pools } = await core.billing.getPools(
    { accountId: gateway.accountId },
    gateway.admin.call,
  );
  return pools.find(({ family }) => family === Family.V1)?.postedMicrocredits ?? 0n;
};
/** Makes an admin token of this scope, before there is a limit. */
async function tokenOf(scope: AdminScope, by = ann): Promise<{ name: string; call: CallOptions }> {
  gateway.reload(fastCatalog());
  const name = unique("token");
  const { secret } = await core.people.createAdminToken({ name, scope }, by.call);
  gateway.reload(withLimit(limitUsd));
  return { name, call: as(`Bearer ${secret}`) };
}

describe("what a person gives away", () => {
  test("waits above the limit, and is booked once, for who asked, by another person", async () => {
    const before = await posted();
    const { transfer, approval } = await give(501n);
    expect(transfer).toBeUndefined();
    expect(approval).toMatchObject({
      kind: ApprovalKind.TRANSFER,
      accountId: gateway.accountId,
      reason: "goodwill",
      amountMicrodollars: 501_000_000n,
      requestedBy: toActor(`person:${ann.personId}`),
      personId: ann.personId,
      givenMicrodollars: 0n,
    });
    expect(approval?.what).toContain("100200 credits");
    expect((await waiting()).map(({ approvalId }) => approvalId)).toEqual([approval?.approvalId]);
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    expect(await posted()).toBe(before);
    await approve(approval);
    // A repeat changes nothing.
    await approve(approval);
    expect(await reasonOf(approve(approval, cleo.call))).toBe("wrong_state");
    expect(await posted()).toBe(before + 501n * usd);
    expect(await waiting()).toEqual([]);
    const { transfers } = await core.billing.listTransfers(
      { accountId: gateway.accountId },
      gateway.admin.call,
    );
    expect(transfers[0]).toMatchObject({
      createdBy: toActor(`person:${ann.personId}`),
      reason: "goodwill",
    });
    const { events } = await core.people.listAuditEvents(
      { accountId: gateway.accountId, method: "Approve" },
      ann.call,
    );
    expect(
      events.find(({ succeeded, actor }) => succeeded && actor?.kind.value === bob.personId),
    ).toMatchObject({ facts: { approvalId: approval?.approvalId, approved: "transfer" } });
  });

  test("is counted in whole micro-dollars, rounded up: a micro-credit above the limit waits", async () => {
    await run("yesterday", "update given set day = day - 1");
    const amountMicrocredits = 500n * usd + 1n;
    const { approval } = await give(500n, ann.call, { amountMicrocredits });
    expect(approval?.amountMicrodollars).toBe(500_000_001n);
    await reject(approval);
    expect((await give(500n)).transfer?.amountMicrocredits).toBe(500n * usd);
    await run("yesterday", "update given set day = day - 1");
  });

  test("is summed over the day: of ten halves at once two are booked", async () => {
    const before = await posted();
    const all = await Promise.all(Array.from({ length: 10 }, () => give(250n)));
    expect(all.filter(({ transfer }) => transfer !== undefined)).toHaveLength(2);
    expect(await posted()).toBe(before + 500n * usd);
    expect((await waiting())[0]?.givenMicrodollars).toBe(500_000_000n);
    // Another person has a sum of his own, and the next day begins anew.
    expect((await give(250n, cleo.call)).transfer).toBeDefined();
    await run("yesterday", "update given set day = day - 1");
    expect((await give(250n)).transfer).toBeDefined();
  });

  test("counts what his tokens give, also two of them", async () => {
    const [one, other] = [await tokenOf(AdminScope.MONEY), await tokenOf(AdminScope.MONEY)];
    expect((await give(200n, one.call)).transfer).toBeDefined();
    expect((await give(200n, other.call)).transfer).toBeDefined();
    const { transfer, approval } = await give(200n, one.call);
    expect(transfer).toBeUndefined();
    expect(approval).toMatchObject({
      personId: ann.personId,
      requestedBy: toActor(`token:${one.name}`),
    });
    expect((await give(200n)).transfer).toBeUndefined();
    // It is one's own, and no token approves.
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    for (const by of [other.call, gateway.admin.call])
      expect(await reasonOf(approve(approval, by))).toBe("not_permitted");
    await approve(approval);
  });

  test("is not counted for the machine, or where credits are taken out", async () => {
    expect((await give(900n, gateway.admin.call)).transfer).toBeDefined();
    const out = { kind: TransferKind.ADJUSTMENT, amountMicrocredits: -600n * usd };
    expect((await give(0n, ann.call, out)).transfer).toBeDefined();
    expect((await give(500n)).transfer).toBeDefined();
  });

  test("is noted once for the alert of operators, where the machine gives more", async () => {
    const request = requestOf(501n);
    for (let repeat = 0; repeat < 2; repeat++)
      await core.billing.createTransfer(request, gateway.admin.call);
    await give(500n, gateway.admin.call);
    const bypasses = await listBypasses(postgres, new Date(Date.now() - 60_000), 10);
    expect(bypasses).toEqual([
      {
        approvalId: expect.any(String),
        accountId: gateway.accountId,
        what: expect.stringContaining("Adds 100200 credits"),
        requestedBy: "token:ADMIN_TOKEN",
        requestedAt: expect.any(Date),
      },
    ]);
    const { approvalId } = bypasses[0] ?? { approvalId: "" };
    expect(await reasonOf(core.operations.approve({ approvalId }, bob.call))).toBe("wrong_state");
    expect(await waiting()).toEqual([]);
  });

  test("is the same for a repeat, and starts anew with a changed request or person", async () => {
    const request = requestOf(600n);
    const ask = (more: object, by = ann.call) =>
      core.billing.createTransfer({ ...request, ...more }, by).then(({ approval }) => approval);
    const first = await ask({});
    expect((await ask({}))?.approvalId).toBe(first?.approvalId);
    const second = await ask({ amountMicrocredits: 700n * usd });
    expect(await reasonOf(approve(first))).toBe("wrong_state");
    const third = await ask({ amountMicrocredits: 700n * usd }, bob.call);
    expect(await reasonOf(approve(second, cleo.call))).toBe("wrong_state");
    expect(await reasonOf(approve(third, bob.call))).toBe("not_permitted");
    const before = await posted();
    await approve(third, ann.call);
    expect(await posted()).toBe(before + 700n * usd);
    expect(await reasonOf(ask({}))).toBe("idempotency_key_reused");
  });

  test("is booked once by two persons at once, or rejected", async () => {
    for (let round = 0; round < 5; round++) {
      const before = await posted();
      const { approval } = await give(600n);
      const outcomes = await Promise.all(
        [approve(approval, bob.call), approve(approval, cleo.call)].map(reasonOf),
      );
      expect(outcomes.toSorted()).toEqual(["ok", "wrong_state"]);
      expect(await posted()).toBe(before + 600n * usd);
    }
    const before = await posted();
    const { approval } = await give(600n);
    const outcomes = await Promise.all(
      [approve(approval), reject(approval, ann.call)].map(reasonOf),
    );
    expect(outcomes.toSorted()).toEqual(["ok", "wrong_state"]);
    expect(await posted()).toBe(before + (outcomes[0] === "ok" ? 600n * usd : 0n));
  });

  test("is asked for again after it was rejected, and is over after seven days", async () => {
    const { approval } = await give(600n);
    await reject(approval, ann.call);
    expect(await reasonOf(reject(approval))).toBe("wrong_state");
    expect(await reasonOf(approve(approval))).toBe("wrong_state");
    const request = requestOf(600n);
    const { approval: old } = await core.billing.createTransfer(request, ann.call);
    await run("age", "update approvals set ends_at = now() where state = 'pending'");
    expect(await reasonOf(approve(old))).toBe("wrong_state");
    expect(await waiting()).toEqual([]);
    const { approval: next } = await core.billing.createTransfer(request, ann.call);
    expect(next?.approvalId).not.toBe(old?.approvalId);
    await approve(next);
  });

  test("is not booked for, or by, somebody who lost the role meanwhile", async () => {
    const dave = await withoutLimit(() => operators.newOperator(unique("dave")));
    const { approval: his } = await give(600n, dave.call);
    const { approval: anns } = await give(600n);
    const demoted = { personId: dave.personId, updateMask: { paths: ["operator_role"] } };
    await core.people.updatePerson(demoted, ann.call);
    const before = await posted();
    expect(await reasonOf(approve(his))).toBe("not_permitted");
    expect(await reasonOf(approve(anns, dave.call))).not.toBe("ok");
    const token = await tokenOf(AdminScope.MONEY);
    const { approval: tokens } = await give(600n, token.call);
    const { tokens: all } = await core.people.listAdminTokens({ pageSize: 1000 }, ann.call);
    const tokenId = all.find(({ name }) => name === token.name)?.tokenId ?? "";
    await core.people.revokeAdminToken({ tokenId }, ann.call);
    expect(await reasonOf(approve(tokens))).toBe("not_permitted");
    expect(await posted()).toBe(before);
  });

  test("waits whatever it is with a limit of 0, and comes in pages, newest first", async () => {
    gateway.reload(withLimit(0));
    for (let index = 0; index < 5; index++) expect((await give(1n)).approval).toBeDefined();
    const ids: string[] = [];
    let pageToken = "";
    do {
      const page = await core.operations.listApprovals({ pageSize: 2, pageToken }, ann.call);
      ids.push(...page.approvals.map(({ approvalId }) => approvalId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(ids).toHaveLength(5);
    expect(ids).toEqual(ids.toSorted().reverse());
    gateway.reload(withLimit(limitUsd));
  });
});

async function withoutLimit<T>(work: () => Promise<T>): Promise<T> {
  gateway.reload(fastCatalog());
  try {
    return await work();
  } finally {
    gateway.reload(withLimit(limitUsd));
  }
}

describe("a promotion", () => {
  const promote = (bonusUsd: bigint, most: number, by = ann.call) =>
    core.payments.createPromotion(
      {
        ...{ name: "spring", family: Family.V1, needsPurchase: false },
        ...{ bonusMicrocredits: bonusUsd * usd, maxUses: most },
      },
      by,
    );
  const owner = async () => {
    const person = await operators.newPerson(unique("owner"));
    const { account } = await core.billing.createAccount(
      { settings: { name: "x" } },
      gateway.admin.call,
    );
    const accountId = account?.accountId ?? "";
    await run("own", "insert into members (account_id, person_id, role) values ($1, $2, 'owner')", [
      accountId,
      person.personId,
    ]);
    await operators.signIn(person);
    return { ...person, accountId };
  };

  test("that could give a micro-credit more than the limit waits", async () => {
    await run("yesterday", "update given set day = day - 1");
    const { approval } = await core.payments.createPromotion(
      {
        ...{ name: "border", family: Family.V1, needsPurchase: false },
        ...{ bonusMicrocredits: 500n * usd + 1n, maxUses: 1 },
      },
      ann.call,
    );
    expect(approval?.amountMicrodollars).toBe(500_000_001n);
    await reject(approval);
  });

  test("that could give more than the limit is of no use before another person agrees", async () => {
    // One person makes it, and another account of his would redeem it.
    const other = await owner();
    const { promotion, code, approval } = await promote(300n, 2);
    expect(promotion).toBeUndefined();
    const redeemIt = () =>
      core.payments.redeemPromotion({ accountId: other.accountId, code }, other.call);
    expect(await reasonOf(redeemIt())).toBe("not_found");
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    expect(await reasonOf(redeemIt())).toBe("ok");
  });

  test("counts as what it can give, and one without a bound always waits", async () => {
    expect((await promote(1n, 0)).approval?.amountMicrodollars).toBe(0n);
    expect((await promote(100n, 4)).promotion).toBeDefined();
    expect((await give(200n)).transfer).toBeUndefined();
    expect((await promote(1n, 0, gateway.admin.call)).promotion).toBeDefined();
  });
});

describe("of an order", () => {
  const soon = { timeout: 20_000 };
  const find = async (orderId: string) =>
    (await core.payments.getOrder({ orderId }, ann.call)).order;
  /** An order of so many dollars, for which others arrived. */
  const paid = async (usdCents: number, amount: string) => {
    const { order } = await core.payments.createOrder(
      {
        ...{ accountId: gateway.accountId, family: Family.V1 },
        packMicrodollars: BigInt(usdCents) * 10_000n,
        ...{ method: "simulated:usdc", idempotencyKey: unique("order") },
      },
      gateway.admin.call,
    );
    const orderId = order?.orderId ?? "";
    const event = { case: "deposit", value: { coins: amount, confirmations: 1 } } as const;
    await core.payments.simulateDeposit({ orderId, event }, gateway.admin.call);
    await expect
      .poll(async () => (await find(orderId))?.deposits[0]?.state, soon)
      .toBe(DepositState.SETTLED);
    return orderId;
  };
  const reason = "the customer asked";

  test("a refund above the limit waits, and is begun once", async () => {
    const orderId = await paid(60_000, "600");
    await expect.poll(async () => (await find(orderId))?.state, soon).toBe(OrderState.PAID);
    const what = { case: "amountMicrodollars", value: 600_000_000n } as const;
    const { approval, order } = await core.payments.beginRefund(
      { orderId, what, reason },
      ann.call,
    );
    expect(order?.refunds).toEqual([]);
    expect(approval).toMatchObject({ kind: ApprovalKind.REFUND, subject: orderId });
    expect(approval?.what).toBe("Returns 600.00 of an order.");
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    const outcomes = [approve(approval, bob.call), approve(approval, cleo.call)].map(reasonOf);
    expect((await Promise.all(outcomes)).toSorted()).toEqual(["ok", "wrong_state"]);
    await expect
      .poll(async () => (await find(orderId))?.refunds.map(({ state }) => state), soon)
      .toEqual([RefundState.REFUNDING]);
    expect(actorText((await find(orderId))?.refunds[0]?.createdBy)).toBe(`person:${ann.personId}`);
  });

  test("what came during a sweep waits above the limit, and is granted once", async () => {
    const address = `0x${"9".repeat(40)}`;
    await run(
      "address",
      `insert into deposit_addresses (key_id, index, address, account_id, "family")
       values ('k', 0, $1, $2, 'v1')`,
      [address, gateway.accountId],
    );
    await run(
      "sweep",
      `insert into sweeps (sweep_id, processor, network, addresses, until, created_by)
       values ('swp_1', 'simulated', 'base', array[$1], now(), 'test')`,
      [address],
    );
    await run(
      "payments",
      `insert into sweep_payments
         (processor, external_id, sweep_id, address, asset, decimals, atoms, height, hash, at)
       values ('simulated', 'large', 'swp_1', $1, 'ETH', 18, 1e18, 1, 'h', now()),
         ('simulated', 'small', 'swp_1', $1, 'ETH', 18, 1e16, 1, 'h', now())`,
      [address],
    );
    const grant = (paymentId: string) =>
      core.payments.grantSweepPayment({ sweepId: "swp_1", paymentId }, ann.call);
    const granted = () =>
      run("granted", "select external_id from chain_payments where address = $1", [address]);
    expect((await grant("small")).approval).toBeUndefined();
    const { approval, payment } = await grant("large");
    expect(approval).toMatchObject({
      kind: ApprovalKind.SWEEP_PAYMENT,
      subject: "large",
      accountId: gateway.accountId,
      what: "Grants 1 ETH, which came during a sweep, to the account of its address.",
      amountMicrodollars: 2_500_000_000n,
    });
    expect(payment?.grantedBy).toBeUndefined();
    expect(await granted()).toEqual([{ external_id: "small" }]);
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    expect(await granted()).toHaveLength(2);
    const { sweeps } = await core.payments.listSweeps({}, ann.call);
    expect(sweeps[0]?.payments.map(({ grantedBy }) => actorText(grantedBy))).toEqual([
      `person:${ann.personId}`,
      `person:${ann.personId}`,
    ]);
    expect(await reasonOf(grant("large"))).toBe("wrong_state");
  });

  test("a large grant waits, a changed one takes its place, and new facts end it", async () => {
    const orderId = await paid(500, "700");
    await expect.poll(async () => (await find(orderId))?.attention, soon).toBe(Attention.OVERPAID);
    const decide = async (grantedMicrodollars: bigint) => {
      const choice = {
        case: "grant",
        value: { what: { case: "grantedMicrodollars", value: grantedMicrodollars } },
      } as const;
      return core.payments.decideOrder({ orderId, choice, reason }, ann.call);
    };
    const first = await decide(600_000_000n);
    expect(first.decision).toBeUndefined();
    expect(first.order?.attention).toBe(Attention.OVERPAID);
    expect((await decide(600_000_000n)).approval?.approvalId).toBe(first.approval?.approvalId);
    const { approval } = await decide(550_000_000n);
    expect(await reasonOf(approve(first.approval))).toBe("wrong_state");
    const before = await posted();
    await approve(approval);
    await expect.poll(posted, soon).toBe(before + 550n * usd);
    expect((await find(orderId))?.attention).toBe(Attention.NONE);

    const other = await paid(500, "700");
    const choice = {
      case: "grant",
      value: { what: { case: "grantedMicrodollars", value: 600_000_000n } },
    } as const;
    const stale = await core.payments.decideOrder({ orderId: other, choice, reason }, cleo.call);
    const value = { asset: "ETH", coins: "1", confirmations: 1 };
    const more = { case: "deposit", value } as const;
    await core.payments.simulateDeposit({ orderId: other, event: more }, gateway.admin.call);
    await expect.poll(async () => (await find(other))?.deposits.length, soon).toBe(2);
    expect(await reasonOf(approve(stale.approval))).toBe("wrong_state");
  });
});

describe("a price list", () => {
  const reason = "agreed with Acme";
  const haiku = (listed: object) => ({ models: { "model-haiku-4.5": listed } });
  const make = (terms: object, by = ann.call, name = unique("list")) =>
    core.billing.createPriceList({ name, reason, ...terms }, by);
  const made = async (terms: object) =>
    (await make(terms, gateway.admin.call)).priceList?.priceListId ?? "";
  const find = async (id: string) =>
    (await core.billing.listPriceLists({}, ann.call)).priceLists.find(
      ({ priceListId }) => priceListId === id,
    );
  const add = (priceListId: string, terms: object, by = ann.call) =>
    core.billing.createPriceListVersion({ priceListId, after: 1, reason, ...terms }, by);
  const giveTo = (priceListId: string, by = ann.call) =>
    core.billing.setAccountPriceList({ accountId: gateway.accountId, priceListId, reason }, by);
  const listOf = async () =>
    (await core.billing.getAccount({ accountId: gateway.accountId }, ann.call)).account
      ?.priceListId;

  // Public: 0.70 and 3.50 USD a million, 1.40 and 7.00 above 1,000 tokens, 4.20 and 21.00 fast.
  const when = "[{ prompt_above: 1000, multiply: 2 }, { speed: fast, multiply: 6 }]";
  const conditional = () =>
    readCatalogFile(
      defaultCatalogWithoutPauses().replace(
        "price: { input: 0.70, output: 3.50 }",
        `price: { input: 0.70, output: 3.50, per: { web_search: 10 }, when: ${when} }`,
      ),
    );
  const steps = [
    { promptAbove: 1_000, multiply: "2" },
    { speed: "fast", multiply: "6" },
  ];
  const own = (input: string, output: string, more: object = {}) =>
    haiku({ price: { input, output, webSearch: "10", when: steps, ...more } });
  for (const [name, terms, waits] of [
    ["a half off", { discountBp: 5_000 }, false],
    ["more than a half off", { discountBp: 5_001 }, true],
    ["more than a half off one model", haiku({ discountBp: 5_001 }), true],
    ["prices of its own of a half", own("0.35", "1.75"), false],
    ["an input below a half", own("0.3492", "3.50"), true],
    ["an output below a half", own("0.70", "1.749995"), true],
    ["cache reads below a half", own("0.70", "3.50", { cacheRead: "0.034995" }), true],
    ["web searches below a half", own("0.70", "3.50", { webSearch: "4.99" }), true],
    ["long prompts below a half", own("0.70", "3.50", { when: [steps[1]] }), false],
    ["long prompts far below", own("0.40", "3.50", { when: [steps[1]] }), true],
    ["fast below a half", own("0.70", "3.50", { when: [steps[0]] }), true],
    [
      "own prices and a discount together",
      haiku({
        price: { input: "0.60", output: "3.00", webSearch: "10", when: steps },
        discountBp: 5_000,
      }),
      true,
    ],
    [
      "a discount over a half that no model of now has",
      {
        discountBp: 6_000,
        models: Object.fromEntries(fastCatalog().models.map(({ id }) => [id, { discountBp: 0 }])),
      },
      true,
    ],
  ] as const)
    test(`with ${name} ${waits ? "waits" : "is made by one person"}`, async () => {
      const { payments } = withLimit(limitUsd);
      gateway.reload({ ...conditional(), ...(payments && { payments }) });
      const { priceList, approval } = await make(terms);
      expect([priceList === undefined, approval !== undefined]).toEqual([waits, waits]);
      const before = (await core.billing.previewPrices({ ...terms }, ann.call)).belowHalf;
      if (!("discountBp" in terms && terms.discountBp === 6_000))
        expect(before.length > 0).toBe(waits);
      // Without a limit, one person makes any.
      gateway.reload(conditional());
      expect((await make(terms)).approval).toBeUndefined();
      gateway.reload(withLimit(limitUsd));
    });

  test("is made once, for who asked, by another person", async () => {
    const name = unique("list");
    const { priceList, approval, belowCost } = await make({ discountBp: 6_000 }, ann.call, name);
    expect([priceList, belowCost]).toEqual([undefined, []]);
    expect(approval).toMatchObject({
      ...{ kind: ApprovalKind.PRICE_LIST, subject: name, accountId: "", reason },
      ...{ requestedBy: toActor(`person:${ann.personId}`), amountMicrodollars: 0n },
      what: `Makes the price list ${name}: 60 % off, and less than half of the public price for model-opus-4.6, model-sonnet-4.6, model-haiku-4.5.`,
    });
    expect((await make({ discountBp: 6_000 }, ann.call, name)).approval?.approvalId).toBe(
      approval?.approvalId,
    );
    for (const by of [ann.call, gateway.admin.call])
      expect(await reasonOf(approve(approval, by))).toBe("not_permitted");
    const outcomes = [approve(approval, bob.call), approve(approval, cleo.call)].map(reasonOf);
    expect((await Promise.all(outcomes)).toSorted()).toEqual(["ok", "wrong_state"]);
    const { priceLists } = await core.billing.listPriceLists({}, ann.call);
    expect(priceLists.filter((one) => one.name === name)).toMatchObject([
      {
        version: {
          number: 1,
          discountBp: 6_000,
          reason,
          createdBy: toActor(`person:${ann.personId}`),
        },
      },
    ]);
    // Its name may be taken meanwhile.
    const other = unique("list");
    const late = await make({ discountBp: 6_000 }, ann.call, other);
    await make({}, gateway.admin.call, other);
    expect(await reasonOf(approve(late.approval))).toBe("invalid_request");
    expect(await reasonOf(make({ discountBp: 6_000 }, ann.call, other))).toBe("invalid_request");
  });

  test("gets a cheap version once, unless it has another one by now, also by a token", async () => {
    const id = await made({ discountBp: 100 });
    const models = haiku({ price: { input: "0.1", output: "3.50" } });
    const token = await tokenOf(AdminScope.MONEY);
    const { priceList, approval } = await add(id, models, token.call);
    expect(priceList).toBeUndefined();
    expect(approval).toMatchObject({
      personId: ann.personId,
      requestedBy: toActor(`token:${token.name}`),
    });
    expect(approval?.what).toMatch(/^Adds version 2 to the price list .*, which 0 accounts have: /);
    expect((await find(id))?.version?.number).toBe(1);
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    await approve(approval);
    expect((await find(id))?.version).toMatchObject({
      ...{ number: 2, discountBp: 0, createdBy: toActor(`token:${token.name}`) },
      models: { "model-haiku-4.5": { price: { input: "0.1", output: "3.5" } } },
    });
    const stale = await make({ discountBp: 100 });
    const staleId = stale.priceList?.priceListId ?? "";
    const { approval: late } = await add(staleId, { discountBp: 9_000 });
    await add(staleId, { discountBp: 200 });
    expect(await reasonOf(approve(late))).toBe("wrong_state");
    expect((await find(staleId))?.version).toMatchObject({ number: 2, discountBp: 200 });
    await reject(late);
    // The machine needs nobody.
    const { priceList: bypassed } = await add(
      await made({}),
      { discountBp: 9_000 },
      gateway.admin.call,
    );
    expect(bypassed?.version?.discountBp).toBe(9_000);
  });

  test("gets a cheap version for the accounts that have it, and for no other", async () => {
    const id = await made({ discountBp: 100 });
    const { approval } = await add(id, { discountBp: 9_000 });
    await giveTo(id);
    expect(await reasonOf(approve(approval))).toBe("wrong_state");
    expect((await find(id))?.version?.number).toBe(1);
    await reject(approval);
    const asked = await add(id, { discountBp: 9_000 });
    expect(asked.approval?.what).toContain(", which 1 account has: ");
    await approve(asked.approval);
    expect((await find(id))?.version).toMatchObject({ number: 2, discountBp: 9_000 });
    await giveTo("");
  });

  test("of cheap prices is given to each account by two persons, whoever approved the list", async () => {
    const cheap = await made({ discountBp: 10_000 });
    const { account, approval } = await giveTo(cheap);
    expect(account).toMatchObject({ accountId: gateway.accountId, priceListId: "" });
    expect(approval).toMatchObject({
      ...{ kind: ApprovalKind.ACCOUNT_PRICE_LIST, subject: gateway.accountId },
      ...{ accountId: gateway.accountId, reason },
    });
    expect(approval?.what).toContain("Gives the account version 1 of the price list");
    expect(await listOf()).toBe("");
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    expect(await listOf()).toBe(cheap);
    // The public prices, and a list that is not cheap, need nobody.
    expect((await giveTo("")).approval).toBeUndefined();
    const fair = await made({ discountBp: 5_000 });
    expect((await giveTo(fair)).approval).toBeUndefined();
    expect(await listOf()).toBe(fair);
    // Another version is another gift.
    const { approval: old } = await giveTo(cheap);
    await add(cheap, { discountBp: 9_000 }, gateway.admin.call);
    expect(await reasonOf(approve(old))).toBe("wrong_state");
    await giveTo("");
    expect(await listOf()).toBe("");
  });
});

describe("one person does not become two by", () => {
  test("making somebody an operator admin", async () => {
    const second = await operators.newPerson(unique("second"));
    const { personId } = second;
    const ask = () =>
      core.people.updatePerson(
        {
          personId,
          settings: { operatorRole: OperatorRole.ADMIN },
          updateMask: { paths: ["operator_role"] },
        },
        ann.call,
      );
    const { person, approval } = await ask();
    expect(person?.operatorRole).toBe(OperatorRole.UNSPECIFIED);
    expect(approval).toMatchObject({ kind: ApprovalKind.OPERATOR, subject: personId });
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    await operators.signIn(second);
    expect((await waiting()).length).toBe(0);
    expect(await reasonOf(core.people.listAdminTokens({}, second.call))).toBe("ok");
    // Taking it back needs nobody, nor does SUPPORT.
    for (const operator of [OperatorRole.SUPPORT, OperatorRole.UNSPECIFIED])
      expect(
        (
          await core.people.updatePerson(
            {
              personId,
              settings: { operatorRole: operator },
              updateMask: { paths: ["operator_role"] },
            },
            ann.call,
          )
        ).person?.operatorRole,
      ).toBe(operator);
    const both = {
      personId,
      settings: { operatorRole: OperatorRole.ADMIN, disabled: true },
      updateMask: { paths: ["operator_role", "disabled"] },
      keys: KeyAction.PAUSE,
    };
    expect(await reasonOf(core.people.updatePerson(both, ann.call))).toBe("invalid_request");
  });

  test.for([AdminScope.MONEY, AdminScope.ALL])("an admin token of scope %i", async (scope) => {
    const name = unique("bot");
    const { token, secret, approval } = await core.people.createAdminToken(
      { name, scope },
      ann.call,
    );
    expect(token).toBeUndefined();
    const use = () => core.billing.listAccounts({}, as(`Bearer ${secret}`));
    expect(await reasonOf(use())).toBe("invalid_key");
    expect(await reasonOf(approve(approval, ann.call))).toBe("not_permitted");
    await approve(approval);
    expect(await reasonOf(use())).toBe("ok");
    // What it gives counts for its maker, not for who approved.
    expect((await give(600n, as(`Bearer ${secret}`))).approval?.personId).toBe(ann.personId);
    const { secret: reads } = await core.people.createAdminToken(
      { name: unique("reader"), scope: AdminScope.READ },
      ann.call,
    );
    expect(await reasonOf(core.billing.listAccounts({}, as(`Bearer ${reads}`)))).toBe("ok");
  });

  test("a token that is made twice with one idempotency key", async () => {
    const request = {
      ...{ name: unique("twice"), scope: AdminScope.ALL },
      idempotencyKey: crypto.randomUUID(),
    };
    const first = await core.people.createAdminToken(request, ann.call);
    const repeat = await core.people.createAdminToken(request, ann.call);
    expect(repeat.secret).toBe(first.secret);
    expect(await waiting()).toHaveLength(1);
    await approve(first.approval);
    const { token } = await core.people.createAdminToken(request, ann.call);
    expect(token?.name).toBe(request.name);
  });

  test("a sign-in link for an operator", async () => {
    const { personId } = bob;
    const made = await core.people.createSignInLink({ personId, reason: "locked out" }, ann.call);
    expect(made.approval).toMatchObject({ kind: ApprovalKind.SIGN_IN_LINK, subject: personId });
    const open = () => core.people.beginPasskey({ linkToken: new URL(made.link).hash.slice(1) });
    expect(await reasonOf(open())).toBe("not_found");
    expect(await reasonOf(approve(made.approval, ann.call))).toBe("not_permitted");
    await approve(made.approval, cleo.call);
    expect(await reasonOf(open())).toBe("ok");
    // For others it needs nobody.
    const plain = await operators.newPerson(unique("plain"));
    const { approval } = await core.people.createSignInLink(
      { personId: plain.personId, reason: "locked out" },
      ann.call,
    );
    expect(approval).toBeUndefined();
  });
});
