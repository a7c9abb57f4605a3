// Accounts: their names, and whether they are open. AccountsService, with their statements.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type CloseAccountRequest,
  CloseAccountResponseSchema,
  type ExportAccountResponse,
  ExportAccountResponseSchema,
  type ResumeAccountRequest,
  ResumeAccountResponseSchema,
  type SuspendAccountRequest,
  SuspendAccountResponseSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import type { Account } from "../../gen/gateway/billing/v1/account_pb.ts";
import type { KeyLabel } from "../../gen/gateway/common/v1/key_label_pb.ts";
import { ListChargesRequestSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { hintHeadOf } from "../base/cells.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { isRequestId, timeOrderedId } from "../base/ids.ts";
import { credits } from "../base/money.ts";
import { checkText, shownName } from "../base/names.ts";
import { walkPages } from "../base/paging.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall, ManagementCaller, Person } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import type { AccountStatusName } from "./admission.ts";
import { listCharges } from "./charges.ts";
import { toAccount } from "./rows.ts";
import type { LedgerStore } from "./store.ts";

/** The keys of accounts, which another service has. */
export type KeysOfAccount = {
  /**
   * Announces, in the transaction that changes the status of an account, that its keys changed.
   * Returns the ids for `publish`.
   */
  announce(tx: Runner, accountId: string): Promise<readonly string[]>;
  /** Announces in the same way that something else changed, on which requests depend. */
  announceChange(tx: Runner, id: string): Promise<readonly string[]>;
  /** Revokes all of them in the same way, for good. */
  revokeAll(tx: Runner, accountId: string): Promise<readonly string[]>;
  /**
   * Throws `not_permitted` and `revoked_key` unless the management key may change the keys that it
   * made at this moment. Until the end of the transaction it may.
   */
  checkProgram(tx: Runner, caller: ManagementCaller): Promise<void>;
  /** What people know these keys of an account by, in the order of their ids. */
  labels(db: Runner, accountId: string, keyIds: readonly string[]): Promise<KeyLabel[]>;
  /** Called after the commit. */
  publish(keyIds: readonly string[]): void;
};

/** The members of accounts, whom another service has. */
export type MembersOfAccount = {
  /**
   * Throws `not_permitted` unless the person owns the account at this moment. Until the end of the
   * transaction he goes on to own it.
   */
  checkOwner(tx: Runner, accountId: string, personId: string): Promise<void>;
  /**
   * As what the person may manage the account at this moment: operator admins do so as an owner,
   * unless they gave up that role for the call. Until the end of the transaction he stays that.
   * Throws `not_permitted` for a viewer, and who is no member.
   */
  checkManager(
    tx: Runner,
    accountId: string,
    person: Pick<Person, "personId" | "operator">,
  ): Promise<"owner" | "member">;
  /** Undefined: no member. Until the end of the transaction he keeps the role. */
  roleOf(tx: Runner, accountId: string, personId: string): Promise<MemberRole | undefined>;
  list(
    db: Runner,
    accountId: string,
  ): Promise<readonly { readonly personId: string; readonly role: MemberRole }[]>;
};

export type MemberRole = "viewer" | "member" | "owner";

/** The data of accounts that other services have. */
export type AccountExport = (
  accountId: string,
) => AsyncIterable<MessageInitShape<typeof ExportAccountResponseSchema>>;

export type AccountParts = {
  readonly transaction: Postgres["transaction"];
  readonly keys: KeysOfAccount;
  readonly members: MembersOfAccount;
  readonly exports: () => readonly AccountExport[];
  /** Reads on connections that admissions do not use. */
  readonly reports: LedgerStore;
  /** Called after credits of an account were given up. */
  readonly onTransfer: (accountId: string) => void;
};

export async function closeAccount(
  { transaction, keys, members, onTransfer }: AccountParts,
  { confirm }: CloseAccountRequest,
  { accountId, caller, note }: AuthenticatedCall,
) {
  if (caller.kind !== "person") throw new ApiError("not_permitted");
  const { account, keyIds, givenUp } = await transaction(async (tx) => {
    const { account: before, pools } = await lockOpenAccount(tx, accountId);
    await members.checkOwner(tx, accountId, caller.personId);
    // What running requests hold is theirs until they end.
    const free = pools.filter(({ posted, held }) => posted > held);
    const total = free.reduce((sum, { posted, held }) => sum + posted - held, 0n);
    checkConfirmed(confirm, before.name, total);
    for (const pool of free) await giveUp(tx, accountId, pool, actorOf(caller));
    const after = await storeStatus(tx, accountId, "closed", "");
    return { account: after, keyIds: await keys.revokeAll(tx, accountId), givenUp: total };
  });
  keys.publish(keyIds);
  onTransfer(accountId);
  note?.({ revokedKeys: String(keyIds.length) });
  return create(CloseAccountResponseSchema, {
    account: toAccount(account),
    forfeitedMicrocredits: givenUp,
  });
}

function checkConfirmed(confirm: string, name: string, total: bigint): void {
  const wordsOf = (one: string) => `close ${one} and give up ${credits(total)} credits`;
  const words = wordsOf(shownName(name));
  if (![words, wordsOf(name)].includes(confirm.trim()))
    throw invalidField("confirm", `has to be, word for word: ${words}`, [words]);
}

async function giveUp(
  tx: Runner,
  accountId: string,
  { family, posted, held }: sql.LockAccountPoolsRow,
  actor: string,
): Promise<void> {
  const amount = held - posted;
  await tx.run(sql.postToPool, { accountId, family, amount });
  const transferId = timeOrderedId("tra_");
  await tx.run(sql.insertTransfer, {
    transferId,
    accountId,
    family,
    kind: "adjustment",
    amount,
    // Of its own: no caller can have used it before.
    idempotencyKey: transferId,
    reason: "given up: the account was closed",
    actor,
    postedAfter: held,
  });
}

export async function suspendAccount(
  parts: AccountParts,
  request: SuspendAccountRequest,
  call: AuthenticatedCall,
) {
  const reason = readReason(request.reason, call);
  const account = await setStatus(parts, request.accountId, "suspended", reason);
  return create(SuspendAccountResponseSchema, { account });
}

export async function resumeAccount(
  parts: AccountParts,
  { accountId, reason }: ResumeAccountRequest,
  call: AuthenticatedCall,
) {
  readReason(reason, call);
  return create(ResumeAccountResponseSchema, {
    account: await setStatus(parts, accountId, "active", ""),
  });
}

async function setStatus(
  { transaction, keys }: AccountParts,
  accountId: string,
  status: AccountStatusName,
  reason: string,
): Promise<Account> {
  const { account, keyIds } = await transaction(async (tx) => {
    const { account: before } = await lockOpenAccount(tx, accountId);
    // Suspending once more changes the reason; to resume an active account changes nothing.
    if (before.status === status && status === "active") return { account: before, keyIds: [] };
    const account = await storeStatus(tx, accountId, status, reason);
    const isSame = before.status === status;
    return { account, keyIds: isSame ? [] : await keys.announce(tx, accountId) };
  });
  keys.publish(keyIds);
  return toAccount(account);
}

/** Stores the status of a locked account, and copies it to its pools. */
async function storeStatus(
  tx: Runner,
  accountId: string,
  status: AccountStatusName,
  reason: string,
): Promise<sql.SetAccountStatusRow> {
  const account = await tx.run(sql.setAccountStatus, { accountId, status, reason });
  await tx.run(sql.setPoolsStatus, { accountId, status });
  return account;
}

/**
 * Locks an account and then its pools, so that nothing of it is admitted, charged or moved
 * meanwhile. Throws `not_found` and `account_closed`.
 */
export async function lockOpenAccount(
  tx: Runner,
  accountId: string,
): Promise<{ account: sql.LockAccountRow; pools: sql.LockAccountPoolsRow[] }> {
  const account = await lockAccount(tx, accountId);
  if (account.status === "closed") throw new ApiError("account_closed");
  return { account, pools: await tx.run(sql.lockAccountPools, { accountId }) };
}

/** Throws `not_found`. */
export async function lockAccount(tx: Runner, accountId: string): Promise<sql.LockAccountRow> {
  const account = await tx.run(sql.lockAccount, { accountId });
  if (account) return account;
  throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
}

export async function* exportAccount(
  { reports, exports }: AccountParts,
  { accountId }: AuthenticatedCall,
): AsyncGenerator<ExportAccountResponse, void> {
  const account = await reports.findAccount(accountId);
  if (!account) throw new ApiError("not_found", { message: "No such account." });
  const page = (init: MessageInitShape<typeof ExportAccountResponseSchema>) =>
    create(ExportAccountResponseSchema, init);
  yield page({ account, pools: await reports.readPools(accountId) });
  const transfers = walkPages({
    read: (after, limit) => reports.listTransfers(accountId, after ?? null, limit),
    cursorOf: ({ transferId }) => transferId,
  });
  for await (const some of transfers) yield page({ transfers: some });
  for (const other of exports()) for await (const some of other(accountId)) yield page(some);
  let pageToken = "";
  do {
    const request = create(ListChargesRequestSchema, { pageSize: exportedCharges, pageToken });
    const { charges, nextPageToken, archivedBefore } = await listCharges(reports, request, {
      accountId,
      onlyKey: undefined,
    });
    if (charges.length > 0 || archivedBefore)
      yield page({ charges, ...(archivedBefore && { archivedBefore }) });
    pageToken = nextPageToken;
  } while (pageToken !== "");
}

/** Charges of one message: about a megabyte. */
const exportedCharges = 500;

/** What a query of ListAccounts looks for. */
export type AccountQuery = {
  /** Part of a name, in small letters. Empty: all accounts. */
  readonly name: string;
  /** Accounts that match in another way. */
  readonly accountIds: readonly string[];
};

/** Finds what a query may mean. Throws `invalid_request`. */
export async function accountQuery(
  reports: Pick<LedgerStore, "run" | "findPayer" | "findRunning" | "findCharges">,
  text: string,
): Promise<AccountQuery> {
  const query = checkText("query", text).trim();
  const found = [query];
  const hint = hintIn(query);
  if (hint)
    for (const { accountId } of await reports.run(sql.findHint, hint)) found.push(accountId);
  if (query.startsWith("key_")) found.push((await reports.findPayer(query))?.payer.accountId ?? "");
  if (isRequestId(query)) {
    const [running, charged] = await Promise.all([
      reports.findRunning(query),
      reports.findCharges(query),
    ]);
    for (const { hold } of running) found.push(hold.payer.accountId);
    for (const { accountId } of charged) found.push(accountId);
  }
  return { name: query.toLowerCase(), accountIds: found };
}

/** The first and last characters of a secret. */
export type Hint = { readonly first: string; readonly last: string };

// The parts of a hint, as `keys/secret.ts` makes it.
const firstLength = 14;
const lastLength = 4;

/** The hint that a query may be, also as the whole secret. Undefined: it is none. */
function hintIn(query: string): Hint | undefined {
  const [first = "", last] = query.replace("...", "…").split("…");
  if (last !== undefined) {
    const hint = { first: hintHeadOf(first), last: last.slice(-lastLength) };
    return hint.first + hint.last === "" ? undefined : hint;
  }
  if (!query.startsWith("sk-gw2-")) return undefined;
  const isWhole = query.length > firstLength + lastLength;
  return { first: hintHeadOf(query), last: isWhole ? query.slice(-lastLength) : "" };
}
