// The one order in which transactions lock, as docs/internals.md has it: recorded under a random
// load of calls that lock several things. A circle would be a deadlock of two calls at once.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  ResumeAccountRequestSchema,
  SuspendAccountRequestSchema,
  UpdateAccountRequestSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  ApproveRequestSchema,
  ListApprovalsRequestSchema,
} from "../../gen/gateway/approvals/v1/approvals_pb.ts";
import {
  CreateTransferRequestSchema,
  ResetBudgetRequestSchema,
  SetBudgetRequestSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { PayerSchema } from "../../gen/gateway/common/v1/budget_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import {
  AccountRole,
  AdminScope,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  ChangeKeysRequestSchema,
  CreateKeyRequestSchema,
  PauseKeyRequestSchema,
  ResumeKeyRequestSchema,
  RotateKeyRequestSchema,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  CreateManagementKeyRequestSchema,
  RevokeManagementKeyRequestSchema,
  RotateManagementKeyRequestSchema,
  UpdateManagementKeyRequestSchema,
} from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys, budgetsOfMembers, createBilling } from "../../src/billing/billing.ts";
import {
  boundMethod,
  environmentToken,
  implement,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createKeys } from "../../src/keys/keys.ts";
import { approve, listApprovals } from "../../src/operations/approvals.ts";
import { createPeople } from "../../src/people/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { identifyBy } from "../../src/server/accounts.ts";
import { callBy } from "../support/calls.ts";
import { freshDatabase } from "../support/database.ts";
import { endingWith, holdRequest, price } from "../support/ledger.ts";
import { type PeopleClient, type PeopleNode, redeem, type SignedIn } from "../support/people.ts";
import { query } from "../support/query.ts";

/** From first to last. */
const order = [
  ...["accounts", "pools", "members", "people", "management_keys", "replays", "keys"],
  ...["given", "approvals"],
];

/** The tables of which a statement locks rows, or waits for those who do. */
function locksOf(text: string): string[] {
  const bare = text.replace(/--.*$/gm, "");
  const changed = [...bare.matchAll(/\b(?:update|delete from)\s+([a-z_]+)/g)];
  const put = /on conflict/.test(bare) ? [...bare.matchAll(/insert into\s+([a-z_]+)/g)] : [];
  const locked = /\bfor (?:no key )?(?:update|share)\b/.test(bare)
    ? [...bare.matchAll(/\bfrom\s+([a-z_]+)/g)]
    : [];
  const tables = [...changed, ...put, ...locked].map((match) => match[1] ?? "");
  return [...new Set(tables)].filter((table) => order.includes(table));
}

/** The same database. Each transaction leaves the tables that it locks, in their order. */
function recording(postgres: Postgres, transactions: string[][]): Postgres {
  return {
    ...postgres,
    transaction: (work) =>
      postgres.transaction((tx) => {
        const locks: string[] = [];
        transactions.push(locks);
        const run: Runner["run"] = (statement, ...parameters) => {
          locks.push(...locksOf(statement.text));
          return tx.run(statement, ...parameters);
        };
        return work({ run });
      }),
  };
}

test("under a random load no transaction locks against the order, and none deadlocks", async () => {
  await using stack = new AsyncDisposableStack();
  const database = stack.adopt(await freshDatabase(), (one) => one.drop());
  const transactions: string[][] = [];
  const postgres = recording(database.postgres, transactions);
  const log = createLog("silent");
  const approvalLimit = () => limit;
  let limit: bigint | undefined;
  const keys = createKeys({
    budgets: budgetsOfKeys,
    postgres,
    adminToken: "",
    resolveModel: (name) => name,
    checkManager: (...of) => people.ofAccount.checkManager(...of),
    checkOwner: (...of) => people.ofAccount.checkOwner(...of),
    log,
  });
  const publicUrl = () => new URL("http://localhost:8080");
  const people = createPeople({
    ...{ postgres, publicUrl, keys: keys.managed, budgets: budgetsOfMembers, approvalLimit, log },
  });
  const billing = createBilling({
    ...{ postgres, priceOf: () => price, log, approvalLimit },
    ...{ keys: keys.ofAccount, members: people.ofAccount },
    hasManagementKey: keys.ofAccount.hasManagementKey,
  });
  await billing.start();
  stack.defer(() => billing.stop());
  for (const name of ["a", "b"]) await billing.ensureAccount(`acc_${name}`, name);
  const authenticate = identifyBy(keys.authenticate, people.authenticate);
  const interceptor = { authenticate, log, audit: people.audit };
  const services = {
    people: intercept(serviceTypes.people, people.service, interceptor),
    keys: intercept(serviceTypes.keys, keys.service, interceptor),
    billing: intercept(serviceTypes.billing, billing.service, interceptor),
  };
  const callOf = (token: string | undefined, secret = "") => ({
    signal: new AbortController().signal,
    requestHeader: new Headers(
      token === undefined
        ? secret === ""
          ? {}
          : { authorization: `Bearer ${secret}` }
        : { authorization: `Session ${token}` },
    ),
  });
  const as = (token: string | undefined) =>
    implement<PeopleClient>(serviceTypes.people, (desc) => {
      const { run } = boundMethod(services.people, desc);
      return (request: MessageInitShape<DescMessage>) =>
        run(create(desc.input, request), callOf(token));
    });
  const node: PeopleNode = { ...people, as };
  const sql = (text: string, values: unknown[] = []) =>
    query<{ id: string }>(database.postgres, { name: "", text }, values);

  await people.installation.claimFirstAccount("acc_a");
  const owner = await redeem(node, await people.installation.makeOwnerLink(), "owner");
  const persons: SignedIn[] = [];
  for (const accountId of ["acc_a", "acc_b", "acc_a", "acc_b"]) {
    const invitation = { accountId, role: AccountRole.OWNER };
    const { link } = await as(owner.token).createInvitation(invitation);
    persons.push(await redeem(node, link, `person-${persons.length}`));
  }
  const partner = persons[0] ?? owner;
  const personId = partner.person.personId;
  await as(owner.token).updatePerson({
    personId,
    settings: { operatorRole: OperatorRole.ADMIN },
    updateMask: { paths: ["operator_role"] },
  });
  const { passkeyOptionsJson } = await as(undefined).beginSignIn({});
  const answerJson = partner.device.sign(passkeyOptionsJson);
  const { grant } = await as(undefined).signInWithPasskey({ answerJson });
  const other = grant?.token;
  limit = 5_000_000n;
  const programs = new Map<string, string>();
  for (const [accountId, by] of [
    ["acc_a", owner],
    ["acc_b", persons[1]],
  ] as const) {
    const { secret } = await services.keys.createManagementKey(
      create(CreateManagementKeyRequestSchema, {
        accountId,
        settings: { name: "deploy", scopes: [ManagementScope.KEYS, ManagementScope.ALL_KEYS] },
      }),
      callOf(by?.token),
    );
    programs.set(accountId, secret);
  }
  // They go on when these owners are gone.
  await sql("update management_secrets set made_by = 'test'");
  let joined = 0;

  const oneOf = <T>(all: readonly T[], at: number): T | undefined => all[at % all.length];
  const accountOf = (at: number) => (at % 2 === 0 ? "acc_a" : "acc_b");
  const keyOf = async (at: number) => {
    const rows = await sql("select key_id as id from keys where status = 'active' order by key_id");
    return oneOf(rows, at)?.id ?? "key_none";
  };
  const key = crypto.randomUUID();
  const managementKeyOf = async (accountId: string, at: number) => {
    const text = `select management_key_id as id from management_keys
      where account_id = $1 and revoked_at is null order by management_key_id`;
    return oneOf(await sql(text, [accountId]), at)?.id ?? "mgk_none";
  };
  const personAt = (at: number) => oneOf(persons, at)?.person.personId ?? "";
  /** Anybody who changes keys: an owner, or a program of the account with a limit for its keys. */
  const changerOf = (at: number) =>
    at % 3 === 0 ? callOf(owner.token) : callOf(undefined, programs.get(accountOf(at)));
  const limits = (at: number) => (at % 3 === 0 ? {} : { totalMicrocredits: 1_000_000_000n });
  const payerOf = async (at: number): Promise<MessageInitShape<typeof PayerSchema>> => {
    const accountId = accountOf(at);
    if (at % 5 < 2) return { payer: { case: "personId", value: personAt(at) } };
    if (at % 5 < 4) return { payer: { case: "pool", value: true } };
    return { payer: { case: "managementKeyId", value: await managementKeyOf(accountId, at) } };
  };
  const operations: Readonly<Record<string, (at: number) => Promise<unknown>>> = {
    createKey: (at) =>
      services.keys.createKey(
        create(CreateKeyRequestSchema, {
          accountId: accountOf(at),
          family: Family.V1,
          settings: { name: "k" },
          idempotencyKey: at % 3 === 0 ? key : "",
        }),
        callOf(oneOf([...persons, owner], at)?.token),
      ),
    pauseKey: async (at) =>
      services.keys.pauseKey(
        create(PauseKeyRequestSchema, { keyId: await keyOf(at) }),
        callOf(owner.token),
      ),
    resumeKey: async (at) =>
      services.keys.resumeKey(
        create(ResumeKeyRequestSchema, { keyId: await keyOf(at) }),
        callOf(owner.token),
      ),
    changeKeys: async (at) => {
      const rows = await sql(
        "select key_id as id from keys where account_id = $1 order by random() limit 9",
        [accountOf(at)],
      );
      const keys = rows.map(({ id }) => ({ keyId: id }));
      const limited = {
        limits: { dailyCapMicrocredits: 1_000_000n },
        updateMask: { paths: ["daily_cap_microcredits", ...(at % 4 < 2 ? ["expires_at"] : [])] },
      };
      const changes = [
        { case: "pause", value: true },
        { case: "limits", value: limited },
        { case: "tags", value: { set: { team: `t${at}` } } },
        { case: "resume", value: true },
      ] as const;
      return services.keys.changeKeys(
        create(ChangeKeysRequestSchema, {
          accountId: accountOf(at),
          keys: keys.length > 0 ? keys : [{ keyId: "key_none" }],
          change: oneOf<(typeof changes)[number]>(changes, at >> 1) ?? changes[0],
        }),
        changerOf(at),
      );
    },
    rotateKey: async (at) =>
      services.keys.rotateKey(
        create(RotateKeyRequestSchema, { keyId: await keyOf(at), idempotencyKey: key }),
        callOf(owner.token),
      ),
    limitKey: async (at) =>
      services.keys.updateKey(
        create(UpdateKeyRequestSchema, {
          keyId: await keyOf(at),
          settings: { ...(at % 2 === 0 && { dailyCapMicrocredits: 1_000_000n }) },
          updateMask: { paths: ["daily_cap_microcredits", ...(at % 4 < 2 ? ["expires_at"] : [])] },
        }),
        changerOf(at),
      ),
    createByProgram: (at) =>
      services.keys.createKey(
        create(CreateKeyRequestSchema, {
          accountId: accountOf(at),
          family: Family.V1,
          settings: { name: "child", requestsAtOnce: 9 },
          idempotencyKey: at % 3 === 0 ? key : "",
        }),
        callOf(undefined, programs.get(accountOf(at))),
      ),
    pauseByProgram: async (at) =>
      services.keys.pauseKey(
        create(PauseKeyRequestSchema, { keyId: await keyOf(at) }),
        callOf(undefined, programs.get(accountOf(at))),
      ),
    createManagementKey: (at) =>
      services.keys.createManagementKey(
        create(CreateManagementKeyRequestSchema, {
          accountId: accountOf(at),
          settings: { name: "deploy", scopes: [ManagementScope.KEYS] },
          idempotencyKey: at % 3 === 0 ? key : "",
        }),
        callOf(oneOf([...persons, owner], at)?.token),
      ),
    rotateManagementKey: async (at) =>
      services.keys.rotateManagementKey(
        create(RotateManagementKeyRequestSchema, {
          managementKeyId: await managementKeyOf(accountOf(at), at),
        }),
        callOf(oneOf([...persons, owner], at)?.token),
      ),
    boundChildren: async (at) =>
      services.keys.updateManagementKey(
        create(UpdateManagementKeyRequestSchema, {
          managementKeyId: await managementKeyOf(accountOf(at), at),
          settings: { childLimits: { dailyCapMicrocredits: 5_000_000n } },
          updateMask: { paths: ["child_limits"] },
        }),
        callOf(owner.token),
      ),
    revokeManagementKey: async (at) =>
      services.keys.revokeManagementKey(
        create(RevokeManagementKeyRequestSchema, {
          // The first is the one that others use.
          managementKeyId: await managementKeyOf(accountOf(at), 1 + (at % 5)),
          children: KeyAction.PAUSE,
        }),
        callOf(owner.token),
      ),
    setBudget: async (at) =>
      services.billing.setBudget(
        create(SetBudgetRequestSchema, {
          ...{ accountId: accountOf(at), payer: await payerOf(at), limits: limits(at) },
        }),
        callOf(owner.token),
      ),
    resetBudget: async (at) =>
      services.billing.resetBudget(
        create(ResetBudgetRequestSchema, {
          ...{
            accountId: accountOf(at),
            payer: { payer: { case: "keyId", value: await keyOf(at) } },
          },
        }),
        changerOf(at),
      ),
    setDefault: (at) =>
      services.billing.updateAccount(
        create(UpdateAccountRequestSchema, {
          accountId: accountOf(at),
          settings: { defaultMemberLimits: limits(at) },
          updateMask: { paths: ["default_member_limits"] },
        }),
        callOf(owner.token),
      ),
    suspend: async (at) => {
      const accountId = accountOf(at);
      const reason = "for a moment";
      const call = callOf(other);
      await services.billing.suspendAccount(
        create(SuspendAccountRequestSchema, { accountId, reason }),
        call,
      );
      await services.billing.resumeAccount(
        create(ResumeAccountRequestSchema, { accountId, reason: "as before" }),
        call,
      );
    },
    spend: async (at) => {
      const keyId = await keyOf(at);
      const [row] = await sql("select account_id as id from keys where key_id = $1", [keyId]);
      const payer = { accountId: row?.id ?? "", family: "v1" as const, keyId };
      const hold = await billing.holds.place(holdRequest(payer, 10), AbortSignal.timeout(1_000));
      await billing.holds.settle(hold, endingWith({ output: 1 }));
    },
    join: async (at) => {
      const invitation = { accountId: accountOf(at), role: AccountRole.MEMBER };
      const { link } = await as(owner.token).createInvitation(invitation);
      await redeem(node, link, `joins-${++joined}`);
    },
    handOver: (at) =>
      as(owner.token).updatePerson({
        personId: personAt(1),
        settings: { disabled: at % 2 === 0 },
        updateMask: { paths: ["disabled"] },
        ...(at % 2 === 0 && { keys: KeyAction.KEEP }),
      }),
    transfer: (at) =>
      services.billing.createTransfer(
        create(CreateTransferRequestSchema, {
          ...{ accountId: accountOf(at), family: at % 4 < 2 ? Family.V1 : Family.V2 },
          ...{ kind: TransferKind.BONUS, amountMicrocredits: 200_000_000n },
          idempotencyKey: `key-${at % 40}`,
          reason: "a present",
        }),
        callOf(at % 2 === 0 ? owner.token : other),
      ),
    approve: async () => {
      const parts = { postgres, ...people.forApprovals, carryOut };
      const caller = await people.authenticate(callOf(other).requestHeader);
      const call = { ...callOf(other), caller, accountId: "", allowed: Object(null) };
      const { approvals } = await listApprovals(parts, create(ListApprovalsRequestSchema), call);
      const approvalId = approvals[0]?.approvalId ?? "";
      return approve(parts, create(ApproveRequestSchema, { approvalId }), call);
    },
    askForToken: (at) =>
      as(owner.token).createAdminToken({ name: `bot-${at % 5}`, scope: AdminScope.MONEY }),
    askForLink: () => as(owner.token).createSignInLink({ personId, reason: "locked out" }),
    askForRole: (at) =>
      as(owner.token).updatePerson({
        personId: oneOf(persons, at)?.person.personId ?? "",
        settings: { operatorRole: OperatorRole.ADMIN },
        updateMask: { paths: ["operator_role"] },
      }),
    invite: (at) =>
      as(owner.token).createInvitation({ accountId: accountOf(at), role: AccountRole.VIEWER }),
    changeRole: (at) =>
      as(owner.token).updateMember({
        accountId: accountOf(at),
        personId: oneOf(persons, at)?.person.personId ?? "",
        role: at % 2 === 0 ? AccountRole.OWNER : AccountRole.MEMBER,
      }),
    disable: (at) =>
      as(owner.token).updatePerson({
        personId: persons[2]?.person.personId ?? "",
        settings: { disabled: at % 2 === 0 },
        updateMask: { paths: ["disabled"] },
        ...(at % 2 === 0 && { keys: KeyAction.PAUSE }),
      }),
    remove: (at) =>
      as(owner.token).removeMember({
        accountId: accountOf(at),
        personId: persons[3]?.person.personId ?? "",
        keys: KeyAction.PAUSE,
      }),
  };
  const never = () => Promise.reject(new Error("nothing of payments waits here"));
  const carryOut = {
    ...{
      decision: never,
      refund: never,
      promotion: never,
      sweep_payment: never,
      price_list: never,
      account_price_list: never,
    },
    ...people.forApprovals.carryOut,
    ...billing.carryOut,
  };

  const calls = fc.sample(
    fc.tuple(fc.constantFrom(...Object.keys(operations)), fc.nat(1_000)),
    400,
  );
  const failures: string[] = [];
  await Promise.all(
    Array.from({ length: 12 }, async () => {
      for (let next = calls.pop(); next; next = calls.pop()) {
        const [name, at] = next;
        await operations[name]?.(at).catch((error: unknown) => {
          // What is refused has locked all the same.
          if (!(error instanceof ApiError)) failures.push(`${name}: ${error}`);
        });
      }
    }),
  );
  expect(failures).toEqual([]);
  // What is locked again is held already, such as the pool of a transfer.
  const firstLocks = transactions.map((locks) => [...new Set(locks)]);
  const against = firstLocks.flatMap((locks) =>
    locks.flatMap((table, index) =>
      locks
        .slice(0, index)
        .filter((before) => order.indexOf(before) > order.indexOf(table))
        .map((before) => `${table} after ${before}: ${locks.join(", ")}`),
    ),
  );
  expect([...new Set(against)]).toEqual([]);
  const several = firstLocks.filter(({ length }) => length > 1).flat();
  expect(new Set(several)).toEqual(new Set(order));
  const [state] = await query<{ deadlocks: string }>(database.postgres, {
    name: "test/deadlocks",
    text: "select deadlocks::text from pg_stat_database where datname = current_database()",
  });
  expect(state?.deadlocks).toBe("0");
});

test("a change of many keys and the end of their manager wait for each other", async () => {
  await using stack = new AsyncDisposableStack();
  const { postgres } = stack.adopt(await freshDatabase(), (one) => one.drop());
  const log = createLog("silent");
  const keys = createKeys({
    ...{ budgets: budgetsOfKeys, postgres, adminToken: "", resolveModel: (name) => name, log },
  });
  const sql = (text: string, values: unknown[] = []) =>
    query<{ id: string }>(postgres, { name: "", text }, values);
  await sql("insert into accounts (account_id, name) values ('acc_a', 'a')");
  await sql("insert into pools (account_id, family) values ('acc_a', 'v1'), ('acc_a', 'v2')");
  const manager = { accountId: "acc_a", personId: "per_a" };
  // As after many changes: the rows stand in another order than the ids.
  const made = await sql(
    `with made as (
       insert into keys (key_id, account_id, family, name, managed_by)
       select 'key_' || md5(n::text), 'acc_a', 'v1', 'k', 'person:per_a'
         from generate_series(1, 600) n
       returning key_id
     )
     insert into budgets (account_id, family, payer)
     select 'acc_a', 'v1', key_id from made
     returning payer as id`,
  );
  const tagAll = (value: string) =>
    keys.service.changeKeys(
      create(ChangeKeysRequestSchema, {
        accountId: "acc_a",
        keys: made.map(({ id }) => ({ keyId: id })),
        change: { case: "tags", value: { set: { round: value } } },
      }),
      { ...callBy(environmentToken), accountId: "acc_a" },
    );
  const ends: Readonly<Record<string, (tx: Runner) => Promise<unknown>>> = {
    pause: (tx) => keys.managed.pause(tx, manager),
    handOver: (tx) => keys.managed.handOver(tx, manager, "per_b"),
    revoke: (tx) => keys.managed.revoke(tx, manager),
  };
  for (const [name, end] of Object.entries(ends))
    for (let round = 0; round < 5; round += 1) {
      await sql(
        `update keys set managed_by = 'person:per_a', paused = false, paused_by_owner = false,
           status = 'active', revoked_at = null`,
      );
      await Promise.all([tagAll(`${name} ${round}`), postgres.transaction((tx) => end(tx))]);
    }
  // Each is tried again, so that no caller sees it.
  const [state] = await sql(
    "select deadlocks::text as id from pg_stat_database where datname = current_database()",
  );
  expect(state?.id).toBe("0");
});
