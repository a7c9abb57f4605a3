// Budgets of keys, persons, management keys and pools: what they may spend. Limits change under the
// lock of the pool, which admissions wait for, so that the next request follows them on every node.

import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import {
  BillingService,
  type ListBudgetsRequest,
  ListBudgetsResponseSchema,
  type ResetBudgetRequest,
  ResetBudgetResponseSchema,
  type SetBudgetRequest,
  SetBudgetResponseSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  BudgetLimitsSchema,
  type Budget as BudgetMessage,
  BudgetSchema,
  type BudgetLimits as LimitsMessage,
  type Payer,
} from "../../gen/gateway/common/v1/budget_pb.ts";
import type { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { actorText } from "../base/actors.ts";
import {
  type BudgetLimits,
  columnsOf,
  limitNames,
  type NamedPayer,
  payerText,
  readBudget,
  readLimits,
  toBudget,
  toPayer,
  unlimited,
} from "../base/budgets.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { type FamilyName, familyName, familyNames, namedFamily } from "../base/families.ts";
import { invalidPageToken, readPage } from "../base/paging.ts";
import { actorOf, checkStrong } from "../contract/callers.ts";
import type {
  AuditFacts,
  AuthenticatedCall,
  Caller,
  ManagementCaller,
} from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import type { KeysOfAccount, MembersOfAccount } from "./accounts.ts";

/** A pool and whose budget of it: a key id, `person:<id>`, `mgmt:<id>`, or all of it, empty. */
type BudgetId = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly payer: string;
};
type KeyOfPool = Omit<BudgetId, "payer"> & { readonly keyId: string };

/** What the ledger does for keys, in the transaction that changes them. */
export const budgetsOfKeys = {
  /** Gives a new key its budget. */
  async open(tx: Runner, { keyId, ...pool }: KeyOfPool, limits: BudgetLimits): Promise<void> {
    const id = { ...pool, payer: keyId };
    await tx.run(sql.openBudget, id);
    // Nobody waits for the pool: no request of the key is there yet.
    await tx.run(sql.setLimits, { ...id, ...columnsOf(limits) });
  },
  /** Admits no request of the pool until the end of the transaction. Before any lock of a key. */
  async lock(tx: Runner, { accountId, family }: Omit<KeyOfPool, "keyId">): Promise<void> {
    await tx.run(sql.lockPool, { accountId, family });
  },
  /** Sets the limits that are present, of keys of one pool, which is locked. */
  async changeLimits(
    tx: Runner,
    keys: Omit<KeyOfPool, "keyId"> & { readonly keyIds: readonly string[] },
    limits: Partial<BudgetLimits>,
  ): Promise<void> {
    await tx.run(sql.changeKeyLimits, {
      ...keys,
      ...columnsOf({ ...unlimited, ...limits }),
      hasDay: limits.day !== undefined,
      hasWeek: limits.week !== undefined,
      hasMonth: limits.month !== undefined,
      hasTotal: limits.total !== undefined,
      hasRunning: limits.requestsAtOnce !== undefined,
    });
  },
  /**
   * What keys were charged on each of the last UTC days up to today, in micro-credits, by key id
   * and then by the place of the day, 0 for the first. Days without a charge are missing.
   */
  async readDays(
    db: Runner,
    accountId: string,
    keyIds: readonly string[],
    days: number,
  ): Promise<ReadonlyMap<string, ReadonlyMap<number, bigint>>> {
    if (keyIds.length === 0) return new Map();
    const charged = new Map<string, Map<number, bigint>>();
    for (const { keyId, place, amount } of await db.run(sql.sumKeyDays, {
      accountId,
      keyIds,
      days,
    }))
      charged.set(keyId, (charged.get(keyId) ?? new Map()).set(place, amount));
    return charged;
  },
};

/** Replaces the limits of a payer. Locks the pool. */
export async function setLimits(tx: Runner, id: BudgetId, limits: BudgetLimits): Promise<void> {
  await tx.run(sql.lockPool, id);
  // A key has counted since it was made.
  if (id.payer.includes(":")) {
    await tx.run(sql.openBudget, id);
    await tx.run(sql.startManager, id);
  }
  const values = { ...id, ...columnsOf(limits) };
  await tx.run(sql.noteLimitChanges, values);
  await tx.run(id.payer === "" ? sql.setPoolLimits : sql.setLimits, values);
}

/** Begins the total of a payer anew. Locks the pool. */
export async function resetTotal(tx: Runner, id: BudgetId): Promise<void> {
  await tx.run(sql.lockPool, id);
  if (id.payer === "") await tx.run(sql.resetPoolTotal, id);
  else await tx.run(sql.resetTotal, id);
}

/** A person in an account. */
type MemberId = { readonly accountId: string; readonly personId: string };

/** What the ledger does for members, in the transaction in which a person becomes one. */
export const budgetsOfMembers = {
  lock: (tx: Runner, accountId: string) => tx.run(sql.lockAccountPools, { accountId }),
  /**
   * Gives a member who has no limit those of the account, if it has some. Resolves with true if he
   * got them: keys that he manages have to be announced.
   */
  async join(tx: Runner, { accountId, personId }: MemberId): Promise<boolean> {
    const account = await tx.run(sql.readDefaultLimits, { accountId });
    const limits = readStored(account?.defaultMemberLimits ?? null);
    return limits !== undefined && applyDefault(tx, { accountId, personId }, limits);
  },
  isLimited: async (tx: Runner, member: MemberId) => (await budgetsOfPerson(tx, member)).length > 0,
};

async function applyDefault(
  tx: Runner,
  { accountId, personId }: MemberId,
  limits: BudgetLimits,
): Promise<boolean> {
  const payer = `person:${personId}`;
  const rows = await tx.run(sql.readBudgetsOf, { accountId, payer });
  if (rows.some((row) => hasLimit(limitsIn(row)))) return false;
  for (const family of familyNames) await setLimits(tx, { accountId, family, payer }, limits);
  return true;
}

function hasLimit(limits: BudgetLimits): boolean {
  return limitNames.some((name) => limits[name] !== null);
}

/** The limits of a row, as it has them now. */
function limitsIn({ budget, at }: { readonly budget: readonly bigint[]; readonly at: Date }) {
  const { windows, requestsAtOnce } = readBudget(budget, at);
  const limits = Object.fromEntries(windows.map(({ name, limit }) => [name, limit]));
  return { ...unlimited, ...limits, requestsAtOnce };
}

function readStored(json: Json): BudgetLimits | undefined {
  if (json === null) return undefined;
  // Only we write it.
  return readLimits(fromJson(BudgetLimitsSchema, Object(json) as JsonValue));
}

export type BudgetParts = {
  readonly transaction: Postgres["transaction"];
  readonly reports: Runner;
  readonly keys: KeysOfAccount;
  readonly members: MembersOfAccount;
  /** Called after the limits of a pool changed: what was known of its credits may be over. */
  readonly onTransfer: (accountId: string) => void;
  /** True if the account has this management key. Absent: there are none. */
  readonly hasManagementKey?:
    | ((tx: Runner, accountId: string, managementKeyId: string) => Promise<boolean>)
    | undefined;
};

export async function setBudget(
  parts: BudgetParts,
  { payer, families, limits }: SetBudgetRequest,
  call: AuthenticatedCall,
) {
  const { caller, note } = call;
  const named = checkPayer(payer);
  if (named.case === "keyId") throw invalidField("payer", "is a key: UpdateKey sets its limits");
  const next = limitsAsked(limits);
  const rows = await changeBudgets(parts, call, { named, families }, async (tx, id) => {
    const before = await tx.run(sql.readBudgetsOf, id);
    const old = before.find(({ family }) => family === id.family);
    if (isRaise(next, old ? limitsIn(old) : unlimited)) checkStrong(caller);
    await setLimits(tx, id, next);
  });
  note?.({ ...factsOf(named), ...limitFacts(next) });
  return create(SetBudgetResponseSchema, { budgets: rows, accountId: call.accountId });
}

export async function resetBudget(
  parts: BudgetParts,
  { payer, families }: ResetBudgetRequest,
  call: AuthenticatedCall,
) {
  const { caller, note } = call;
  const named = checkPayer(payer);
  if (caller.kind === "management" && named.case !== "keyId") throw new ApiError("not_permitted");
  const rows = await changeBudgets(parts, call, { named, families }, async (tx, id) => {
    if (caller.kind === "management") await checkOwnKey(tx, caller, id.payer);
    await resetTotal(tx, id);
  });
  note?.(factsOf(named));
  return create(ResetBudgetResponseSchema, { budgets: rows, accountId: call.accountId });
}

/**
 * Throws `not_permitted` for a key that the management key has not made, and for one whose limits
 * are an owner's.
 */
async function checkOwnKey(tx: Runner, caller: ManagementCaller, keyId: string): Promise<void> {
  const key = await tx.run(sql.shareManager, { keyId });
  if (key?.managedBy !== actorOf(caller)) throw new ApiError("not_permitted");
  if (key.isOwners)
    throw new ApiError("not_permitted", {
      message: "An owner has set the limits of this key. A management key may not reset them.",
    });
}

/** Changes the budgets of a payer in one transaction. Returns them as they are then. */
async function changeBudgets(
  { transaction, keys, members, hasManagementKey, onTransfer }: BudgetParts,
  { accountId, caller }: Pick<AuthenticatedCall, "accountId" | "caller">,
  asked: {
    readonly named: NamedPayer;
    readonly families: readonly Family[];
  },
  change: (tx: Runner, id: BudgetId) => Promise<void>,
): Promise<BudgetMessage[]> {
  const { named } = asked;
  const families = familiesOf(asked.families);
  const payer = payerText(named);
  const { rows, keyIds } = await transaction(async (tx) => {
    if ((await tx.run(sql.lockAccountPools, { accountId })).length === 0)
      throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
    await checkStillOwner(tx, members, accountId, caller);
    if (caller.kind === "management") await keys.checkProgram(tx, caller);
    await checkPresent(tx, accountId, named, { members, hasManagementKey });
    const own = named.case === "keyId" ? await tx.run(sql.findPayer, { keyId: named.value }) : null;
    if (named.case === "keyId" && own?.accountId !== accountId) throw noSuchPayer();
    for (const family of families)
      if (!own || own.family === family) await change(tx, { accountId, family, payer });
    const found = await tx.run(sql.readBudgetsOf, { accountId, payer });
    return {
      rows: found.filter(({ family }) => families.includes(family)),
      keyIds: named.case === "pool" ? [] : await keys.announce(tx, accountId),
    };
  });
  keys.publish(keyIds);
  if (named.case === "pool") onTransfer(accountId);
  return rows.map(({ family, budget, at }) => toBudget(named, family, readBudget(budget, at)));
}

/** Throws `not_permitted` for a person who was an owner, or an operator, a moment ago. */
async function checkStillOwner(
  tx: Runner,
  members: MembersOfAccount,
  accountId: string,
  caller: Caller,
): Promise<void> {
  if (caller.kind !== "person") return;
  if ((await members.checkManager(tx, accountId, caller)) !== "owner")
    throw new ApiError("not_permitted");
}

async function checkPresent(
  tx: Runner,
  accountId: string,
  named: NamedPayer,
  { members, hasManagementKey }: Pick<BudgetParts, "members" | "hasManagementKey">,
): Promise<void> {
  const { value } = named;
  const isThere =
    named.case === "personId"
      ? (await members.roleOf(tx, accountId, named.value)) !== undefined
      : named.case !== "managementKeyId" || (await hasManagementKey?.(tx, accountId, named.value));
  if (isThere !== true || value === "") throw noSuchPayer();
}

function noSuchPayer(): ApiError {
  return new ApiError("not_found", { field: "payer" });
}

export async function listBudgets(
  { reports, members }: BudgetParts,
  request: ListBudgetsRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = call;
  const { entries, nextPageToken } = await readPage(
    BillingService.method.listBudgets,
    request,
    call,
    {
      read(after = " ", rows) {
        const [afterPayer, afterFamily, ...others] = after.split(" ");
        if (afterPayer === undefined || afterFamily === undefined || others.length > 0)
          throw invalidPageToken();
        return reports.run(sql.readBudgets, { accountId, afterPayer, afterFamily, rows });
      },
      cursorOf: ({ payer, family }) => `${payer} ${family}`,
    },
  );
  const account = await reports.run(sql.readDefaultLimits, { accountId });
  if (!account) throw new ApiError("not_found", { field: "account_id" });
  const { defaultMemberLimits: stored } = account;
  // Who has left keeps his row, which counts again if he comes back.
  const present = new Set((await members.list(reports, accountId)).map(({ personId }) => personId));
  const shown = entries.filter(({ payer }) => {
    const named = toPayer(payer);
    return named.case !== "personId" || present.has(named.value);
  });
  return create(ListBudgetsResponseSchema, {
    budgets: shown.map(({ payer, family, budget, at }) =>
      toBudget(toPayer(payer), family, readBudget(budget, at)),
    ),
    nextPageToken,
    ...(request.pageToken === "" &&
      stored !== null && {
        defaultMemberLimits: fromJson(BudgetLimitsSchema, Object(stored) as JsonValue),
      }),
  });
}

/**
 * What bounds a key besides its own budget: who manages it, and its pool, where they have a limit.
 * A key that is no account reader may not learn what others spend.
 */
export async function budgetsFor(
  reports: Runner,
  { accountId, family: ofKey, managedBy, accountReader }: Key,
): Promise<BudgetMessage[]> {
  const payers = managedBy ? [actorText(managedBy), ""] : [""];
  const all = await Promise.all(
    payers.map(async (payer) => {
      const rows = await reports.run(sql.readBudgetsOf, { accountId, payer });
      const row = rows.find(({ family }) => family === familyName(ofKey));
      if (!row || !hasLimit(limitsIn(row))) return [];
      const budget = toBudget(toPayer(payer), row.family, readBudget(row.budget, row.at));
      return [accountReader ? budget : freeOf(budget)];
    }),
  );
  return all.flat();
}

/** A budget with nothing but what it has free. */
function freeOf({ payer, family, windows }: BudgetMessage): BudgetMessage {
  return create(BudgetSchema, {
    ...(payer?.payer.case === "pool" ? { payer } : {}),
    family,
    windows: windows.flatMap(({ window, freeMicrocredits, resetsAt }) =>
      freeMicrocredits === undefined
        ? []
        : [{ window, freeMicrocredits, ...(resetsAt && { resetsAt }) }],
    ),
  });
}

/** The budgets of a person that have a limit. */
export async function budgetsOfPerson(
  reports: Runner,
  { accountId, personId }: MemberId,
): Promise<BudgetMessage[]> {
  const payer = `person:${personId}`;
  const rows = await reports.run(sql.readBudgetsOf, { accountId, payer });
  return rows
    .filter((row) => hasLimit(limitsIn(row)))
    .map(({ family, budget, at }) => toBudget(toPayer(payer), family, readBudget(budget, at)));
}

/** Limits of the members of an account who have none of their own. */
export type DefaultLimits = {
  readonly limits: BudgetLimits;
  /** As JSON. Null: there are none. */
  readonly stored: string | null;
};

/** Throws `invalid_request`. */
export function readDefaultLimits(message: LimitsMessage | undefined): DefaultLimits {
  const limits = limitsAsked(message);
  const isLimited = message !== undefined && hasLimit(limits);
  return { limits, stored: isLimited ? JSON.stringify(toJson(BudgetLimitsSchema, message)) : null };
}

/**
 * Sets the limits of members who have none, in a transaction that has locked the account and its
 * pools: nobody becomes a member meanwhile, and those who do later get the new ones. Returns those
 * to whom `limitMembers` gives them.
 */
export async function setDefaultLimits(
  tx: Runner,
  { members }: BudgetParts,
  { accountId, caller }: AuthenticatedCall,
  { limits, stored }: DefaultLimits,
): Promise<readonly string[]> {
  await checkStillOwner(tx, members, accountId, caller);
  const account = await tx.run(sql.readDefaultLimits, { accountId });
  const before = readStored(account?.defaultMemberLimits ?? null) ?? unlimited;
  if (isRaise(limits, before)) checkStrong(caller);
  await tx.run(sql.setDefaultLimits, { accountId, limits: stored });
  if (stored === null) return [];
  const all = await members.list(tx, accountId);
  return all.filter(({ role }) => role === "member").map(({ personId }) => personId);
}

/**
 * Gives members the default limits one after the other, so that no request of the account waits for
 * all; a failure in between leaves the rest to a repeat of the call.
 */
export async function limitMembers(
  { transaction, keys, members }: BudgetParts,
  accountId: string,
  personIds: readonly string[],
): Promise<void> {
  for (const personId of personIds)
    await transaction(async (tx) => {
      await budgetsOfMembers.lock(tx, accountId);
      if ((await members.roleOf(tx, accountId, personId)) === "member")
        await budgetsOfMembers.join(tx, { accountId, personId });
    });
  keys.publish(await transaction((tx) => keys.announce(tx, accountId)));
}

function checkPayer(payer: Payer | undefined): NamedPayer {
  const named = payer?.payer;
  if (!named?.case) throw invalidField("payer", "is required");
  if (named.case === "pool") {
    if (!named.value) throw invalidField("payer.pool", "has to be true");
    return named;
  }
  if (!/^[0-9A-Za-z_-]{1,100}$/.test(named.value)) throw noSuchPayer();
  return named;
}

function familiesOf(families: readonly Family[]): readonly FamilyName[] {
  return families.length === 0 ? familyNames : families.map(namedFamily);
}

function limitsAsked(message: LimitsMessage | undefined): BudgetLimits {
  return message ? readLimits(message) : unlimited;
}

function isRaise(next: BudgetLimits, before: BudgetLimits): boolean {
  return limitNames.some((name) => {
    const [old, limit] = [before[name], next[name]];
    return old !== null && (limit === null || limit > old);
  });
}

function factsOf(named: NamedPayer): AuditFacts {
  return { payer: named.case === "pool" ? "pool" : payerText(named) };
}

const messageFields: Readonly<Record<keyof BudgetLimits, string>> = {
  day: "daily_microcredits",
  week: "weekly_microcredits",
  month: "monthly_microcredits",
  total: "total_microcredits",
  requestsAtOnce: "requests_at_once",
};

/** Limits, for the audit. */
export function limitFacts(limits: BudgetLimits): AuditFacts {
  const facts: Record<string, string> = {};
  for (const name of limitNames)
    facts[messageFields[name].replace(/_(.)/g, (_, letter) => letter.toUpperCase())] =
      limits[name]?.toString() ?? "unlimited";
  return facts;
}
