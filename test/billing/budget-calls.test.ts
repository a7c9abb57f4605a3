// The calls that set, reset and list budgets, as owners, members and keys make them.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { UpdateAccountRequestSchema } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  GetPoolsRequestSchema,
  ListBudgetsRequestSchema,
  ResetBudgetRequestSchema,
  SetBudgetRequestSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Budget,
  type BudgetLimits,
  BudgetLimitsSchema,
  BudgetWindow_Name,
} from "../../gen/gateway/common/v1/budget_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  AccountRole,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  GetForecastRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { ApiError } from "../../src/base/errors.ts";
import { tokenCategories } from "../../src/base/token-categories.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { budgetsOfMembers, createBilling } from "../../src/billing/billing.ts";
import { priceVersion } from "../../src/billing/price.ts";
import type { Caller, Person } from "../../src/contract/contract.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { errorOf } from "../support/billing.ts";
import { errorOf as reasonOf } from "../support/keys.ts";
import { endingWith, freshLedger, heldFor, holdRequest, log, price } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
/** Accounts whose keys were announced as changed. */
const announced: string[] = [];
/** What was said of the credits of accounts. */
const funded: string[] = [];
/** A member at whom the database fails. */
let failsAt = "";
/** Who lost, a moment ago, the rights that the call still has. */
const lessened = new Set<string>();
let members: Record<string, AccountRole> = {};
const roles: Partial<Record<AccountRole, "viewer" | "member" | "owner">> = {
  [AccountRole.VIEWER]: "viewer",
  [AccountRole.MEMBER]: "member",
  [AccountRole.OWNER]: "owner",
};
beforeAll(async () => {
  ledger = await freshLedger();
});
afterAll(() => ledger.close());

const need = heldFor(10);
const never = new AbortController().signal;

function person(personId: string, accountId: string, more: Partial<Person> = {}): Person {
  return {
    kind: "person",
    personId,
    sessionId: "ses_1",
    strongUntil: new Date("2100-01-01T00:00:00Z"),
    memberships: [{ accountId, role: members[personId] ?? AccountRole.UNSPECIFIED }],
    operator: OperatorRole.UNSPECIFIED,
    ...more,
  };
}

/** The service as this caller has it. */
function open(caller: Caller) {
  const { service, onFundsChange } = createBilling({
    postgres: ledger.postgres,
    priceOf: () => price,
    log,
    keys: {
      announce: async (_, accountId) => {
        announced.push(accountId);
        return [];
      },
      checkProgram: async (_, { managementKeyId }) => {
        if (lessened.has(managementKeyId)) throw new ApiError("not_permitted");
      },
      announceChange: async () => [],
      revokeAll: async () => [],
      labels: async () => [],
      publish() {},
    },
    hasManagementKey: async (_, __, id) => id === "mgk_1",
    members: {
      checkOwner: async () => {},
      checkManager: async (_, __, { personId, operator }) =>
        !lessened.has(personId) &&
        (operator === OperatorRole.ADMIN || members[personId] === AccountRole.OWNER)
          ? "owner"
          : "member",
      roleOf: async (_, __, personId) =>
        personId === failsAt
          ? Promise.reject(new Error("the database is away"))
          : roles[members[personId] ?? AccountRole.UNSPECIFIED],
      list: async () =>
        Object.entries(members).flatMap(([personId, one]) => {
          const role = roles[one];
          return role === undefined ? [] : [{ personId, role }];
        }),
    },
  });
  onFundsChange(({ kind, accountId }) => funded.push(`${kind} ${accountId}`));
  const intercepted = intercept(serviceTypes.billing, service, {
    authenticate: async () => caller,
    log,
  });
  const call = { signal: never, requestHeader: new Headers() };
  const usage = (request: MessageInitShape<typeof QueryUsageRequestSchema>) =>
    intercepted.queryUsage(create(QueryUsageRequestSchema, request), call);
  return {
    set: async (request: Parameters<typeof create<typeof SetBudgetRequestSchema>>[1]) =>
      (await intercepted.setBudget(create(SetBudgetRequestSchema, request), call)).budgets ?? [],
    reset: async (request: Parameters<typeof create<typeof ResetBudgetRequestSchema>>[1]) =>
      (await intercepted.resetBudget(create(ResetBudgetRequestSchema, request), call)).budgets ??
      [],
    list: (request: Parameters<typeof create<typeof ListBudgetsRequestSchema>>[1] = {}) =>
      intercepted.listBudgets(create(ListBudgetsRequestSchema, request), call),
    setDefault: (limits?: Partial<BudgetLimits>, accountId = "") =>
      intercepted.updateAccount(
        create(UpdateAccountRequestSchema, {
          accountId,
          settings: limits ? { defaultMemberLimits: limits } : {},
          updateMask: { paths: ["default_member_limits"] },
        }),
        call,
      ),
    forecast: () => intercepted.getForecast(create(GetForecastRequestSchema), call),
    pools: () => intercepted.getPools(create(GetPoolsRequestSchema, {}), call),
    ownBudgets: async (withOwnBudgets = true) =>
      ((await usage({ includeOwnBudgets: withOwnBudgets })).ownBudgets ?? []).map(
        ({ payer, family, limits }) => [payer?.payer.value, family, limits?.dailyMicrocredits],
      ),
    byMember: async () => (await usage({ groupBy: [UsageGroup.MEMBER] })).rows ?? [],
  };
}

/** An account with a key that ana manages, and its owner. */
async function newAccount() {
  members = {
    per_owner: AccountRole.OWNER,
    per_ana: AccountRole.MEMBER,
    per_ben: AccountRole.MEMBER,
    per_vera: AccountRole.VIEWER,
  };
  const payer = await ledger.payer(1_000n * need);
  const { accountId, keyId } = payer;
  await ledger.run("update keys set managed_by = 'person:per_ana' where key_id = $1", [keyId]);
  return { payer, accountId, owner: open(person("per_owner", accountId)) };
}

async function spend(payer: Payer): Promise<void> {
  const hold = await ledger.holds.place(holdRequest(payer, 10), never);
  await ledger.holds.settle(hold, endingWith({ output: 10 }));
}

const ofAna = { payer: { payer: { case: "personId", value: "per_ana" } } } as const;
const ofPool = { payer: { payer: { case: "pool", value: true } } } as const;
const windowOf = (budget: Budget | undefined, name: BudgetWindow_Name) =>
  budget?.windows.find(({ window }) => window === name);
const refusalOf = (payer: Payer) =>
  ledger.holds.place(holdRequest(payer, 10), AbortSignal.abort()).then(
    (hold) => ledger.holds.settle(hold, endingWith({})).then(() => undefined),
    (error: unknown) => Object(error),
  );

test("an owner limits what a member spends, from what was charged today on, and the next request meets it", async () => {
  const { payer, owner } = await newAccount();
  await spend(payer);
  const budgets = await owner.set({ ...ofAna, limits: { dailyMicrocredits: 500n + need - 1n } });
  expect(budgets.map(({ family, limits }) => [family, limits?.dailyMicrocredits])).toEqual([
    [1, 500n + need - 1n],
    [2, 500n + need - 1n],
  ]);
  expect(windowOf(budgets[0], BudgetWindow_Name.DAY)).toMatchObject({
    spentMicrocredits: 500n,
    freeMicrocredits: need - 1n,
  });
  expect(announced).toContain(payer.accountId);
  const refusal = await refusalOf(payer);
  expect(refusal).toMatchObject({
    reason: "budget_reached",
    facts: {
      limit: { name: "manager_daily_microcredits", limit: need - 1n, remaining: need - 1n },
    },
  });
  // Not what the others spend.
  expect(refusal.facts.limit.used).toBeUndefined();
  expect(refusal.message).toMatch(/^The daily budget of the manager of this key is reached: /);
  await owner.set({ ...ofAna, limits: { dailyMicrocredits: 500n + need } });
  expect(await refusalOf(payer)).toBeUndefined();
  await owner.set(ofAna);
  await spend(payer);
  expect(await ledger.store.verifyLedger()).toEqual([]);
});

test("a pool has limits of its own, and so have requests at once", async () => {
  const { payer, owner } = await newAccount();
  await spend(payer);
  // Its total begins now.
  const [budget, ...others] = await owner.set({
    ...ofPool,
    families: [1],
    limits: { totalMicrocredits: need, requestsAtOnce: 1 },
  });
  expect([budget?.payer?.payer.case, others]).toEqual(["pool", []]);
  expect(windowOf(budget, BudgetWindow_Name.TOTAL)).toMatchObject({ spentMicrocredits: 0n });
  const { forecasts: [first, second] = [] } = await owner.forecast();
  expect(first?.budget).toEqual(budget);
  expect(second?.budget).toMatchObject({ family: 2, limits: create(BudgetLimitsSchema) });
  const hold = await ledger.holds.place(holdRequest(payer, 10), never);
  expect(await refusalOf(payer)).toMatchObject({
    reason: "too_many_running",
    facts: { limit: { name: "pool_requests_at_once", limit: 1n, used: 1n } },
  });
  await ledger.holds.settle(hold, endingWith({ output: 10 }));
  expect(await refusalOf(payer)).toMatchObject({
    reason: "budget_reached",
    facts: { limit: { name: "pool_total_microcredits" } },
  });
  const [reset] = await owner.reset({ ...ofPool, families: [1] });
  expect(windowOf(reset, BudgetWindow_Name.TOTAL)).toMatchObject({ freeMicrocredits: need });
  await spend(payer);
  await owner.set(ofPool);
});

test("a key's total is reset too, and its limits are those of UpdateKey", async () => {
  const { payer, owner } = await newAccount();
  await ledger.run("update budgets set total_limit = 500 where payer = $1", [payer.keyId]);
  await ledger.run("update budgets set total_limit = $2 where payer = $1", [payer.keyId, need]);
  await spend(payer);
  expect(await refusalOf(payer)).toMatchObject({
    reason: "budget_reached",
    facts: { limit: { name: "key_total_microcredits", limit: need, used: 500n } },
  });
  const ofKey = { payer: { payer: { case: "keyId", value: payer.keyId } } } as const;
  expect(await owner.reset(ofKey)).toHaveLength(1);
  expect(await refusalOf(payer)).toBeUndefined();
  expect(await errorOf(owner.set(ofKey))).toEqual({ reason: "invalid_request", field: "payer" });
  const other = await newAccount();
  expect(await errorOf(other.owner.reset(ofKey))).toMatchObject({ reason: "not_found" });
});

test("only owners set budgets, who confirm what raises or removes a limit; members see them", async () => {
  const { accountId, owner } = await newAccount();
  for (const caller of [person("per_ana", accountId), person("per_vera", accountId)]) {
    const { set, reset, setDefault, list } = open(caller);
    for (const work of [set(ofAna), reset(ofAna), setDefault()])
      expect(await errorOf(work)).toMatchObject({ reason: "not_permitted" });
    const { budgets } = await list();
    // The pools, and what the key of a member without a limit was charged.
    expect(budgets?.map(({ payer, limits }) => [payer?.payer.value, limits])).toEqual(
      [true, true, "per_ana"].map((value) => [value, create(BudgetLimitsSchema)]),
    );
  }
  await owner.set({ ...ofAna, limits: { weeklyMicrocredits: 5n } });
  const weak = open(person("per_owner", accountId, { strongUntil: undefined }));
  for (const limits of [{ weeklyMicrocredits: 6n }, {}, { dailyMicrocredits: 1n }])
    expect(await errorOf(weak.set({ ...ofAna, limits }))).toMatchObject({
      reason: "confirm_identity",
    });
  await weak.set({ ...ofAna, limits: { weeklyMicrocredits: 4n, dailyMicrocredits: 1n } });
});

test("who was an owner or an operator a moment ago sets no budget", async () => {
  const { accountId, owner } = await newAccount();
  const operator = open(person("per_operator", accountId, { operator: OperatorRole.ADMIN }));
  const payer = { payer: { case: "pool" as const, value: true } };
  const acts = ({ set, reset, setDefault }: ReturnType<typeof open>) => [
    set({ accountId, payer, limits: { dailyMicrocredits: 7n } }),
    reset({ accountId, payer }),
    setDefault({ dailyMicrocredits: 7n }, accountId),
  ];
  for (const caller of [owner, operator]) {
    expect(await Promise.all(acts(caller).map(reasonOf))).toEqual(Array(3).fill("no error"));
    lessened.add("per_owner").add("per_operator");
    expect(await Promise.all(acts(caller).map(reasonOf))).toEqual(Array(3).fill("not_permitted"));
    lessened.clear();
  }
});

test("budgets are set for who is there, with amounts that can be", async () => {
  const { owner } = await newAccount();
  for (const [request, reason, field] of [
    [{}, "invalid_request", "payer"],
    [{ payer: {} }, "invalid_request", "payer"],
    [{ payer: { payer: { case: "pool", value: false } } }, "invalid_request", "payer.pool"],
    [{ payer: { payer: { case: "personId", value: "per_none" } } }, "not_found", "payer"],
    [{ payer: { payer: { case: "managementKeyId", value: "mk_1" } } }, "not_found", "payer"],
    [
      { ...ofAna, limits: { dailyMicrocredits: -1n } },
      "invalid_request",
      "limits.daily_microcredits",
    ],
    [
      { ...ofAna, limits: { totalMicrocredits: 2n ** 53n + 1n } },
      "invalid_request",
      "limits.total_microcredits",
    ],
    [
      { ...ofAna, limits: { requestsAtOnce: 1_000_001 } },
      "invalid_request",
      "limits.requests_at_once",
    ],
  ] as const)
    expect(await errorOf(owner.set(request))).toEqual({ reason, field });
});

test("members without a limit get the default one, when it is set and when they join; others keep theirs", async () => {
  const { accountId, owner } = await newAccount();
  await owner.set({ ...ofAna, limits: { dailyMicrocredits: 9n } });
  await owner.setDefault({ monthlyMicrocredits: 100n, requestsAtOnce: 3 });
  members.per_new = AccountRole.MEMBER;
  await ledger.store.transaction((tx) =>
    budgetsOfMembers.join(tx, { accountId, personId: "per_new" }),
  );
  const limitsBy = async (request = {}) => {
    const page = await owner.list(request);
    return (page.budgets ?? []).map(({ payer, limits }) => [
      payer?.payer.value,
      limits?.dailyMicrocredits,
      limits?.monthlyMicrocredits,
    ]);
  };
  const both = (one: unknown[]) => [one, one];
  expect(await limitsBy()).toEqual([
    ...both([true, undefined, undefined]),
    ...both(["per_ana", 9n, undefined]),
    ...both(["per_ben", undefined, 100n]),
    ...both(["per_new", undefined, 100n]),
  ]);
  const first = await owner.list({ pageSize: 3 });
  expect(first.defaultMemberLimits).toMatchObject({ monthlyMicrocredits: 100n, requestsAtOnce: 3 });
  const { nextPageToken: pageToken = "" } = first;
  expect(await limitsBy({ pageSize: 100, pageToken })).toHaveLength(5);
  await owner.setDefault();
  expect((await owner.list()).defaultMemberLimits).toBeUndefined();
  expect(await limitsBy()).toHaveLength(8);
  // Who has left is not shown, and has his limits again when he comes back.
  delete members.per_ben;
  expect((await limitsBy()).map(([id]) => id)).not.toContain("per_ben");
  expect(await limitsBy()).toHaveLength(6);
  members.per_ben = AccountRole.MEMBER;
  expect(await limitsBy()).toHaveLength(8);
});

test("default limits come to one member after the other, and a repeat goes on after a failure", async () => {
  const { owner } = await newAccount();
  const limited = async () =>
    (await owner.list()).budgets?.flatMap(({ payer, limits }) =>
      limits?.weeklyMicrocredits === 7n ? [payer?.payer.value] : [],
    );
  failsAt = "per_ben";
  await expect(owner.setDefault({ weeklyMicrocredits: 7n })).rejects.toThrow();
  failsAt = "";
  expect(await limited()).toEqual(["per_ana", "per_ana"]);
  await owner.setDefault({ weeklyMicrocredits: 7n });
  expect(await limited()).toEqual(["per_ana", "per_ana", "per_ben", "per_ben"]);
});

test("a default that is raised or taken away needs a confirmation, as a member's limit does", async () => {
  const { accountId, owner } = await newAccount();
  const unconfirmed = open({ ...person("per_owner", accountId), strongUntil: undefined });
  expect(await reasonOf(unconfirmed.setDefault({ dailyMicrocredits: 7n }))).toBe("no error");
  expect(await reasonOf(unconfirmed.setDefault({ dailyMicrocredits: 6n }))).toBe("no error");
  for (const limits of [{ dailyMicrocredits: 7n }, { weeklyMicrocredits: 1n }, undefined])
    expect(await reasonOf(unconfirmed.setDefault(limits))).toBe("confirm_identity");
  expect((await owner.list()).defaultMemberLimits).toMatchObject({ dailyMicrocredits: 6n });
  expect(await reasonOf(owner.setDefault())).toBe("no error");
});

test("a change of a pool's limits is announced as new credits are, to what knows of its end", async () => {
  const { accountId, owner } = await newAccount();
  funded.length = 0;
  await owner.set({ ...ofPool, limits: { totalMicrocredits: 7n } });
  await owner.reset(ofPool);
  expect(funded).toEqual([`transfer ${accountId}`, `transfer ${accountId}`]);
  // Those of others are changes of keys.
  await owner.set({ ...ofAna, limits: { totalMicrocredits: 7n } });
  expect(funded).toHaveLength(2);
});

test("a limit of 0 leaves room for what costs nothing, and for nothing else", async () => {
  const { payer, owner } = await newAccount();
  await owner.set({ ...ofAna, limits: { dailyMicrocredits: 0n } });
  expect(await refusalOf(payer)).toMatchObject({ reason: "budget_reached" });
  const none = Object.fromEntries(tokenCategories.map((category) => [category, 0n] as const));
  const free = priceVersion("model-free", { ...price, ...none, webSearch: 0n });
  const hold = await ledger.holds.place({ ...holdRequest(payer, 10), price: free }, never);
  expect(hold).toMatchObject({ amountMicro: 0n, grantedOutput: 10 });
  await ledger.holds.settle(hold, endingWith({ output: 10 }));
});

test("usage comes with the budgets of the person who asks, if they are asked for", async () => {
  const { payer, accountId, owner } = await newAccount();
  const ofBen = { payer: { payer: { case: "personId", value: "per_ben" } } } as const;
  await owner.set({ ...ofAna, limits: { dailyMicrocredits: 9n } });
  await owner.set({ ...ofBen, families: [Family.V2], limits: { dailyMicrocredits: 8n } });
  await owner.set({ ...ofPool, limits: { dailyMicrocredits: 7n } });
  const [ana, ben] = ["per_ana", "per_ben"].map((one) => open(person(one, accountId)));
  expect(await ana?.ownBudgets()).toEqual([
    ["per_ana", Family.V1, 9n],
    ["per_ana", Family.V2, 9n],
  ]);
  expect(await ben?.ownBudgets()).toEqual([["per_ben", Family.V2, 8n]]);
  expect(await ana?.ownBudgets(false)).toEqual([]);
  expect(await owner.ownBudgets()).toEqual([]);
  const key = {
    keyId: payer.keyId,
    accountId,
    family: Family.V1,
    managedBy: toActor("person:per_ana"),
  };
  const asKey = { key: create(KeySchema, key), secret: create(SecretSchema) };
  expect(await open({ kind: "key", ...asKey }).ownBudgets()).toEqual([]);
  // The limits are gone, and their rows stay.
  await owner.set(ofAna);
  expect(await ana?.ownBudgets()).toEqual([]);
});

test("a key sees what its manager and its pool have free, and an account reader all of it", async () => {
  const { payer, accountId, owner } = await newAccount();
  await spend(payer);
  await owner.set({ ...ofAna, limits: { weeklyMicrocredits: 2_000n } });
  await owner.set({ ...ofPool, limits: { monthlyMicrocredits: 3_000n } });
  const asKey = (accountReader: boolean) =>
    open({
      kind: "key",
      key: create(KeySchema, {
        ...{ keyId: payer.keyId, accountId, family: 1, accountReader },
        managedBy: toActor("person:per_ana"),
      }),
      secret: create(SecretSchema),
    });
  const { budgets: seen = [] } = await asKey(false).pools();
  expect(seen).toMatchObject([
    { windows: [{ window: BudgetWindow_Name.WEEK, freeMicrocredits: 1_500n }] },
    { windows: [{ window: BudgetWindow_Name.MONTH, freeMicrocredits: 2_500n }] },
  ]);
  for (const { limits, heldMicrocredits, windows } of seen)
    expect([limits, heldMicrocredits, windows[0]?.spentMicrocredits]).toEqual([
      undefined,
      0n,
      undefined,
    ]);
  const { budgets: all = [] } = await asKey(true).pools();
  expect(windowOf(all[0], BudgetWindow_Name.WEEK)).toMatchObject({
    spentMicrocredits: 500n,
    limitMicrocredits: 2_000n,
  });
});

test("usage by member is that of the keys that each manages now", async () => {
  const { payer, accountId, owner } = await newAccount();
  const other = await ledger.payer(0n, { accountId });
  await spend(payer);
  await spend(other);
  await spend(other);
  const sums = async () =>
    (await owner.byMember()).map(({ member, sums }) => [
      actorText(member),
      sums?.chargedMicrocredits,
    ]);
  expect(await sums()).toEqual([
    ["", 1_000n],
    ["person:per_ana", 500n],
  ]);
  await ledger.run("update keys set managed_by = 'person:per_ana' where key_id = $1", [
    other.keyId,
  ]);
  expect(await sums()).toEqual([["person:per_ana", 1_500n]]);
});

test("an owner limits all keys of a management key together, which resets those of its own keys", async () => {
  const { accountId, payer: own, owner } = await newAccount();
  const { keyId } = own;
  const payer = (managementKeyId: string) => ({
    payer: { case: "managementKeyId" as const, value: managementKeyId },
  });
  const limits = { dailyMicrocredits: 7n };
  const set = await owner.set({ accountId, payer: payer("mgk_1"), limits });
  expect(set.map((one) => one.limits?.dailyMicrocredits)).toEqual([7n, 7n]);
  expect(await reasonOf(owner.set({ accountId, payer: payer("mgk_2"), limits }))).toBe(
    "not_found payer",
  );
  const manager = (managementKeyId: string, scope: ManagementScope): Caller => ({
    ...{ kind: "management", managementKeyId, accountId, name: "deploy", scopes: [scope] },
  });
  const ofKey = { payer: { case: "keyId" as const, value: keyId } };
  const reset = (caller: Caller, named: Parameters<ReturnType<typeof open>["reset"]>[0]) =>
    reasonOf(open(caller).reset({ ...named, accountId }));
  const { KEYS, ALL_KEYS, READ } = ManagementScope;
  await ledger.run("update keys set managed_by = 'mgmt:mgk_1' where key_id = $1", [keyId]);
  expect(await reset(manager("mgk_1", KEYS), { payer: ofKey })).toBe("no error");
  // A reset would undo an owner's limit.
  await ledger.run("update keys set limited_by_owner = true where key_id = $1", [keyId]);
  expect(await reset(manager("mgk_1", KEYS), { payer: ofKey })).toBe("not_permitted");
  await ledger.run("update keys set limited_by_program = true where key_id = $1", [keyId]);
  expect(await reset(manager("mgk_1", KEYS), { payer: ofKey })).toBe("no error");
  // Its scope was taken away a moment ago.
  lessened.add("mgk_1");
  expect(await reset(manager("mgk_1", KEYS), { payer: ofKey })).toBe("not_permitted");
  lessened.clear();
  expect(await reset(manager("mgk_2", KEYS), { payer: ofKey })).toBe("not_permitted");
  expect(await reset(manager("mgk_2", ALL_KEYS), { payer: ofKey })).toBe("not_permitted");
  expect(await reset(manager("mgk_1", READ), { payer: ofKey })).toBe("not_permitted");
  const none = { payer: { case: "keyId" as const, value: "key_none" } };
  expect(await reset(manager("mgk_1", KEYS), { payer: none })).toBe("not_found payer");
  for (const named of [payer("mgk_1"), { payer: { case: "pool" as const, value: true } }])
    expect(await reset(manager("mgk_1", ALL_KEYS), { payer: named })).toBe("not_permitted");
  expect(await reasonOf(open(manager("mgk_1", ALL_KEYS)).set({ accountId, limits }))).toBe(
    "not_permitted",
  );
});
