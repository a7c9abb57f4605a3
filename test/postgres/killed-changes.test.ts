// Changes of budgets, keys, management keys and members that fail behind any of their statements:
// what was begun is taken back, whichever statement was the last.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import {
  AccountRole,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { budgetsOfKeys, budgetsOfMembers, createBilling } from "../../src/billing/billing.ts";
import { type Caller, localClient, serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createKeys } from "../../src/keys/keys.ts";
import { createPeople, membersOfAccount } from "../../src/people/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { endingWith, freshLedger, holdRequest, log, price } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
beforeEach(async () => {
  ledger = await freshLedger();
});
afterEach(async () => {
  expect(await ledger.store.verifyLedger()).toEqual([]);
  await ledger.close();
});

const accountId = "acc_killed";
const role = AccountRole.OWNER;
const owner: Caller = {
  ...{
    kind: "person",
    personId: "per_owner",
    sessionId: "ses_1",
    memberships: [{ accountId, role }],
  },
  ...{ strongUntil: new Date("2100-01-01T00:00:00Z"), operator: OperatorRole.UNSPECIFIED },
};

/** Behind so many statements of its transactions, counted from 0, a call fails. */
let killedAt = Number.POSITIVE_INFINITY;
function killing(postgres: Postgres): Postgres {
  return {
    ...postgres,
    transaction: (work) =>
      postgres.transaction((tx) => {
        const run: Runner["run"] = async (statement, ...parameters) => {
          const result = await tx.run(statement, ...parameters);
          if (killedAt-- === 0) throw new Error("killed");
          return result;
        };
        return work({ run });
      }),
  };
}

function openServices(caller: Caller) {
  const postgres = killing(ledger.postgres);
  const keys = createKeys({
    ...{ postgres, budgets: budgetsOfKeys, adminToken: "", log, ...membersOfAccount },
    resolveModel: (name) => name,
    keysMax: () => 100,
  });
  const people = createPeople({
    ...{ postgres, keys: keys.managed, budgets: budgetsOfMembers, log },
    publicUrl: () => new URL("http://localhost:8080"),
  });
  const billing = createBilling({
    ...{ postgres, priceOf: () => price, log, keys: keys.ofAccount, members: membersOfAccount },
    hasManagementKey: keys.ofAccount.hasManagementKey,
  });
  const interceptor = { authenticate: async () => caller, log };
  return {
    ...localClient(serviceTypes.keys, intercept(serviceTypes.keys, keys.service, interceptor)),
    ...localClient(
      serviceTypes.people,
      intercept(serviceTypes.people, people.service, interceptor),
    ),
    ...localClient(
      serviceTypes.billing,
      intercept(serviceTypes.billing, billing.service, interceptor),
    ),
  };
}

/** Everything that these calls change. */
const tables = {
  accounts: "account_id, status, default_member_limits",
  pools: "account_id, family, spent, held, running, day_limit, total_limit, total_base",
  budgets: "payer, family, spent, held, running, day_limit, total_limit, total_base, day_base",
  holds: "request_id, manager",
  keys: `key_id, name, managed_by, paused, paused_by_owner, paused_by_program, status, expires_at,
    limited_by_owner`,
  key_secrets: "secret_id, expires_at",
  management_keys: "management_key_id, scopes, child_limits, expires_at, revoked_at",
  management_secrets: "management_key_id, shown, made_by, expires_at",
  members: "person_id, role",
  replays: "actor, made_id",
  key_changes: "change_id, key_id",
};

async function snapshot(): Promise<Record<string, unknown[]>> {
  const all = Object.entries(tables).map(async ([table, columns]) => {
    const rows = await ledger.run(`select ${columns} from ${table} order by ${columns}`);
    return [table, rows] as const;
  });
  return Object.fromEntries(await Promise.all(all));
}

/** Runs a call that is killed behind each of its statements in turn. Returns how often it was. */
async function killEach(
  call: () => Promise<unknown>,
  check: (before: Record<string, unknown[]>) => Promise<void>,
): Promise<number> {
  for (let kills = 0; ; kills++) {
    const before = await snapshot();
    killedAt = kills;
    const outcome = await call().then(
      () => "done",
      (error: unknown) => error,
    );
    const isKilled = killedAt < 0;
    killedAt = Number.POSITIVE_INFINITY;
    if (!isKilled) {
      expect(outcome).toBe("done");
      expect(await snapshot()).not.toEqual(before);
      return kills;
    }
    expect(outcome).toMatchObject({ reason: "internal" });
    await check(before);
  }
}

const unchanged = async (before: Record<string, unknown[]>) =>
  expect(await snapshot()).toEqual(before);

test("a change that is killed behind any of its statements leaves nothing, and a repeat all of it", async () => {
  const { services, program, keyId, childId, managementKeyId } = await setUp();
  const account = { accountId };
  const limits = { dailyMicrocredits: 900_000n, totalMicrocredits: 5_000_000n };
  const ofAna = { payer: { payer: { case: "personId", value: "per_ana" } } } as const;
  const ofPool = { payer: { payer: { case: "pool", value: true } } } as const;
  const ofProgram = {
    payer: { payer: { case: "managementKeyId", value: managementKeyId } },
  } as const;
  const update = (id: string, paths: string[]) => ({
    keyId: id,
    settings: {
      dailyCapMicrocredits: 700_000n,
      ...(paths.includes("expires_at") && {
        expiresAt: timestampFromDate(new Date("2100-01-01T00:00:00Z")),
      }),
    },
    updateMask: { paths },
  });
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    "ResetBudget of a pool": () => services.resetBudget({ ...account, ...ofPool }),
    "SetBudget of a person": () => services.setBudget({ ...account, ...ofAna, limits }),
    "SetBudget of a management key": () => services.setBudget({ ...account, ...ofProgram, limits }),
    "SetBudget of a pool": () => services.setBudget({ ...account, ...ofPool, limits }),
    "UpdateKey by an owner": () =>
      services.updateKey(update(keyId, ["daily_cap_microcredits", "expires_at"])),
    "UpdateKey by a program": () => program.updateKey(update(childId, ["daily_cap_microcredits"])),
    "CreateKey by a program": () =>
      program.createKey({
        ...account,
        family: Family.V2,
        settings: { name: "child", requestsAtOnce: 3 },
        idempotencyKey: "of a child, which nobody guesses",
      }),
    CreateManagementKey: () =>
      services.createManagementKey({
        ...account,
        settings: { name: "deploy", scopes: [ManagementScope.READ] },
        idempotencyKey: "of a program, which nobody guesses",
      }),
    UpdateManagementKey: () =>
      services.updateManagementKey({
        managementKeyId,
        settings: { childLimits: { requestsPerMinute: 4 } },
        updateMask: { paths: ["child_limits"] },
      }),
    RotateManagementKey: () => services.rotateManagementKey({ managementKeyId }),
    "the end of an owner's role": () =>
      services.updateMember({ ...account, personId: "per_other", role: AccountRole.MEMBER }),
    "hand-over of a member's keys": () =>
      services.removeMember({ ...account, personId: "per_ana", keys: KeyAction.KEEP }),
    RevokeManagementKey: () =>
      services.revokeManagementKey({ managementKeyId, children: KeyAction.PAUSE }),
  };
  const kills: Record<string, number> = {};
  for (const [name, call] of Object.entries(calls)) kills[name] = await killEach(call, unchanged);
  // Each has several statements.
  expect(Object.entries(kills).filter(([, times]) => times < 3)).toEqual([]);
});

test("default limits that are killed behind any statement leave each member with all of them or none", async () => {
  const { services } = await setUp();
  const limits = { dailyMicrocredits: 900_000n, totalMicrocredits: 5_000_000n };
  const kills = await killEach(
    () =>
      services.updateAccount({
        accountId,
        settings: { defaultMemberLimits: limits },
        updateMask: { paths: ["default_member_limits"] },
      }),
    async () => {
      const limited = await ledger.run<{ payer: string; families: bigint }>(
        `select payer, count(*) as families from budgets b
         where account_id = $1 and payer like 'person:%' and b.is_limited group by payer`,
        [accountId],
      );
      expect(limited.filter(({ families }) => families !== 2n)).toEqual([]);
      const [row] = await ledger.run<{ stored: boolean }>(
        `select default_member_limits is not null as stored from accounts where account_id = $1`,
        [accountId],
      );
      expect(limited.length === 0 || row?.stored).toBe(true);
    },
  );
  expect(kills).toBeGreaterThan(10);
  expect(
    await ledger.run("select distinct payer from budgets b where b.is_limited order by payer"),
  ).toEqual([{ payer: "person:per_ana" }, { payer: "person:per_ben" }]);
});

/** An account with an owner, two members, keys of one and of a program, and what is running. */
async function setUp() {
  await ledger.store.insertAccount("killed", accountId);
  const payer = await ledger.payer(1_000_000_000n, { accountId });
  const people = [
    ["per_owner", "owner"],
    ["per_other", "owner"],
    ["per_ana", "member"],
    ["per_ben", "member"],
  ];
  for (const [personId, as] of people) {
    await ledger.run("insert into people (person_id, login) values ($1, $1)", [personId]);
    await ledger.run("insert into members (account_id, person_id, role) values ($1, $2, $3)", [
      ...[accountId, personId, as],
    ]);
  }
  await ledger.run("update keys set managed_by = 'person:per_ana'");
  const services = openServices(owner);
  const { managementKey } = await services.createManagementKey({
    accountId,
    settings: { name: "deploy", scopes: [ManagementScope.KEYS] },
  });
  const managementKeyId = managementKey?.managementKeyId ?? "";
  const scopes = [ManagementScope.KEYS];
  const program = openServices({
    ...{ kind: "management", managementKeyId, accountId, name: "deploy", scopes },
  });
  const { key } = await program.createKey({
    accountId,
    settings: { name: "child" },
    family: Family.V1,
  });
  await ledger.run("update management_secrets set made_by = 'person:per_other'");
  const never = new AbortController().signal;
  const place = (keyId: string) => ledger.holds.place(holdRequest({ ...payer, keyId }, 10), never);
  await ledger.holds.settle(await place(payer.keyId), endingWith({ output: 10 }));
  for (const keyId of [payer.keyId, key?.keyId ?? ""]) await place(keyId);
  return { services, program, keyId: payer.keyId, childId: key?.keyId ?? "", managementKeyId };
}
