// Who may call what: whether a method admits a caller, which account a call concerns, and what the
// caller may see in it. Pure functions over the `callers` option of the method.

import type { Actor } from "../../gen/gateway/common/v1/actor_pb.ts";
import type { Callers } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  AccountRole,
  AdminScope,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { actorText } from "../base/actors.ts";
import { type AddressMatcher, plainAddress } from "../base/client-address.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type {
  AuthenticatedCall,
  Call,
  Caller,
  CallHeaders,
  ManagementCaller,
  Person,
} from "./contract.ts";

/**
 * True if the method admits the caller at all. For a person the account decides too: see
 * `decideAccount` and `checkAccess`.
 */
export function isAdmitted(allowed: Callers, caller: Caller): boolean {
  switch (caller.kind) {
    case "key":
      return allowed.key || (allowed.accountReader && caller.key.accountReader) || allowed.anyone;
    case "admin":
      return covers(caller.scope, allowed.admin) || allowed.anyone;
    case "management":
      return isScopeAdmitted(allowed, caller) || allowed.anyone;
    case "person":
      return isPersonAdmitted(allowed, caller) || allowed.anyone;
    case "internal":
      return allowed.admin !== AdminScope.UNSPECIFIED || isOpenTo(allowed, OperatorRole.ADMIN);
    case "anyone":
      return allowed.anyone;
  }
}

/** True if an admin token of this scope may call a method that asks for `needed`. */
function covers(scope: AdminScope, needed: AdminScope): boolean {
  if (needed === AdminScope.UNSPECIFIED || scope === AdminScope.UNSPECIFIED) return false;
  return scope === AdminScope.ALL || needed === AdminScope.READ || needed === scope;
}

function isScopeAdmitted(allowed: Callers, { scopes }: ManagementCaller): boolean {
  const sufficient = scopesFor(allowed);
  return scopes.some((scope) => sufficient.includes(scope));
}

/** The scopes of which a management key needs one. Empty: it may not call the method. */
export function scopesFor({ management, accountReader }: Callers): readonly ManagementScope[] {
  const { READ } = ManagementScope;
  return accountReader && !management.includes(READ) ? [READ, ...management] : management;
}

/** The error for a caller whom the method does not admit. */
export function refusalOf(allowed: Callers, caller: Caller): ApiError {
  const isPayer = allowed.key && caller.kind === "management" && !allowed.accountReader;
  return new ApiError(isPayer ? "management_key_here" : "not_permitted");
}

function isPersonAdmitted(allowed: Callers, { operator, memberships }: Person): boolean {
  if (isOpenTo(allowed, operator)) return true;
  if (allowed.person === AccountRole.UNSPECIFIED) return false;
  // A viewer needs no membership where no account is concerned.
  if (allowed.person === AccountRole.VIEWER) return true;
  return memberships.some(({ role }) => role >= allowed.person);
}

/** True if an operator of this role may call the method, for any account. */
function isOpenTo(allowed: Callers, operator: OperatorRole): boolean {
  return allowed.operatorRole !== OperatorRole.UNSPECIFIED && operator >= allowed.operatorRole;
}

/**
 * The account of a call whose request has a field `account_id`. Empty stands for the account of the
 * key, or for the only account of the person. Throws `invalid_request` if that names no account,
 * `not_found` for an account in which the caller has no part, and `not_permitted` if the role there
 * does not suffice.
 */
export function decideAccount(allowed: Callers, caller: Caller, accountId: string): string {
  const decided = accountId === "" ? ownAccount(caller) : accountId;
  checkAccess({ allowed, caller }, decided, noSuchAccount);
  return decided;
}

/**
 * Checks a call for all accounts at once, which its request asks for with `all_accounts`. Throws
 * `not_permitted` unless the caller sees every account, and `invalid_request` if it also names one.
 */
export function checkAllAccounts(allowed: Callers, caller: Caller, accountId: string): void {
  if (!seesEveryAccount(allowed, caller)) throw new ApiError("not_permitted");
  if (accountId !== "") throw invalidField("account_id", "must be empty with all_accounts");
}

/** True if the caller may call the method for every account: operators, and the admin token. */
export function seesEveryAccount(allowed: Callers, caller: Caller): boolean {
  return (
    caller.kind === "admin" ||
    caller.kind === "internal" ||
    (caller.kind === "person" && isOpenTo(allowed, caller.operator))
  );
}

/** True if the caller, who has a part in this account, may call the method for it. */
export function mayCall(allowed: Callers, caller: Caller, accountId: string): boolean {
  if (caller.kind !== "person") return isAdmitted(allowed, caller);
  if (isOpenTo(allowed, caller.operator)) return true;
  return allowed.person !== AccountRole.UNSPECIFIED && roleIn(caller, accountId) >= allowed.person;
}

/**
 * Checks that the caller may use something of this account, by the rules of `decideAccount`. Throws
 * `absent()` if the account has to look absent.
 */
export function checkAccess(
  { allowed, caller }: Pick<AuthenticatedCall, "allowed" | "caller">,
  accountId: string,
  absent: () => ApiError,
): void {
  switch (caller.kind) {
    case "admin":
    case "internal":
      return;
    case "key":
      if (caller.key.accountId !== accountId) throw absent();
      return;
    case "management":
      if (caller.accountId !== accountId) throw absent();
      return;
    case "person": {
      if (isOpenTo(allowed, caller.operator)) return;
      const role = roleIn(caller, accountId);
      if (role === AccountRole.UNSPECIFIED) throw absent();
      if (allowed.person === AccountRole.UNSPECIFIED || role < allowed.person)
        throw new ApiError("not_permitted", {
          message: "Your role in this account does not permit this.",
        });
      return;
    }
    case "anyone":
      throw absent();
  }
}

function ownAccount(caller: Caller): string {
  if (caller.kind === "key") return caller.key.accountId;
  if (caller.kind === "management") return caller.accountId;
  if (caller.kind !== "person") throw invalidField("account_id", "is required");
  const [only, ...others] = caller.memberships;
  if (caller.operator !== OperatorRole.UNSPECIFIED)
    throw invalidField("account_id", "is required for operators");
  if (!only || others.length > 0)
    throw invalidField(
      "account_id",
      only ? "is required, because you are a member of several accounts" : "is required",
    );
  return only.accountId;
}

function noSuchAccount(): ApiError {
  return new ApiError("not_found", { message: "No such account.", field: "account_id" });
}

/** The role of a person in an account. UNSPECIFIED: no member. */
export function roleIn({ memberships }: Person, accountId: string): AccountRole {
  return memberships.find((one) => one.accountId === accountId)?.role ?? AccountRole.UNSPECIFIED;
}

/** True if a person's role in the account, or as an operator, is lower than it was. */
export function isDemoted(before: Caller, now: Caller, accountId: string): boolean {
  if (before.kind !== "person" || now.kind !== "person") return false;
  return now.operator < before.operator || roleIn(now, accountId) < roleIn(before, accountId);
}

/** True if the caller has the account only as an operator: an owner of it should learn of that. */
export function isOutsider(caller: Caller, accountId: string): boolean {
  return caller.kind === "person" && roleIn(caller, accountId) === AccountRole.UNSPECIFIED;
}

/** True for a caller who has no part in the account, not even as an operator. */
export function isStranger(caller: Caller, accountId: string): boolean {
  if (caller.kind === "management") return caller.accountId !== accountId;
  return (
    caller.kind === "person" &&
    caller.operator === OperatorRole.UNSPECIFIED &&
    roleIn(caller, accountId) === AccountRole.UNSPECIFIED
  );
}

/**
 * The id of the key to whose data the caller is confined. Undefined: the caller sees the data of
 * the whole account.
 */
export function confinedTo(caller: Caller): string | undefined {
  return caller.kind === "key" && !caller.key.accountReader ? caller.key.keyId : undefined;
}

/** Throws `confirm_identity` for a person whose last confirmation is too long ago. */
export function checkStrong(caller: Caller): void {
  if (caller.kind !== "person") return;
  if (!caller.strongUntil || caller.strongUntil.getTime() <= Date.now())
    throw new ApiError("confirm_identity");
}

/**
 * The caller as transfers, keys and audit events name it: `person:`, `key:` or `mgmt:` and an id,
 * `token:` and the name of an admin token, or the name of a part of the gateway.
 */
export function actorOf(caller: Caller): string {
  switch (caller.kind) {
    case "key":
      return `key:${caller.key.keyId}`;
    case "admin":
      return `token:${caller.name}`;
    case "management":
      return `mgmt:${caller.managementKeyId}`;
    case "person":
      return `person:${caller.personId}`;
    case "internal":
      return caller.service;
    case "anyone":
      return "anyone";
  }
}

/**
 * The text of an actor to filter by, as `actorOf` names callers. Empty: of all. Throws
 * `invalid_request` if it names nobody.
 */
export function actorToFind(field: string, actor: Actor | undefined): string {
  if (actor === undefined) return "";
  if (!actor.kind.value)
    throw invalidField(
      field,
      "must name a person, a token, a management key, a part or a processor",
    );
  return actorText(actor);
}

/** Under what changes of the caller are announced. Undefined: it has no changes. */
export function subjectOf(caller: Caller): string | undefined {
  if (caller.kind === "person") return caller.personId;
  return caller.kind === "admin" ? caller.tokenId : undefined;
}

/** The program and the machine from which a person calls. Each is empty if it is unknown. */
export type Client = { readonly address: string; readonly agent: string };

const agentHeader = "x-client-agent";
const agentLengthMax = 300;

/**
 * The client of a call: as the listener in front names it, if that is one of ours, otherwise the
 * peer of the connection.
 */
export function clientOf({
  requestHeader,
  namesClient,
  peer,
}: Pick<Call, "requestHeader" | "namesClient" | "peer">): Client {
  const agent = requestHeader.get(namesClient ? agentHeader : "user-agent") ?? "";
  const named = namesClient ? requestHeader.get(addressHeader) : null;
  return { address: named ?? peer ?? "", agent: agent.slice(0, agentLengthMax) };
}

const operatorHeader = "x-operator-role";

/**
 * Gives up the operator role for one call. A header that only lowers rights may come from anybody.
 */
export function dropOperatorRole(headers: Headers): void {
  headers.set(operatorHeader, "none");
}

/** True if the call gave up the operator role. */
export function dropsOperatorRole(headers: CallHeaders): boolean {
  return headers.get(operatorHeader) === "none";
}

/**
 * Throws `address_not_allowed` for a call from an address that the list of its credential does not
 * allow. `onRefused` gets the address. `credential`: as the error calls it.
 */
export function checkAddress(
  isAllowedAt: AddressMatcher,
  from: Pick<Call, "requestHeader" | "namesClient" | "peer">,
  onRefused?: (address: string) => void,
  credential = "key",
): void {
  const { address } = clientOf(from);
  // A facade that is not believed stands for any client: its own address allows none of them.
  const isUnbelieved = !from.namesClient && from.requestHeader.has(addressHeader);
  if (!isUnbelieved && isAllowedAt(address)) return;
  // What is no address may be any text.
  const plain = plainAddress(address) ?? "an unknown address";
  onRefused?.(plain);
  throw new ApiError("address_not_allowed", {
    message: `This ${credential} may not be used from ${plain}.`,
  });
}

/**
 * The sessions that a browser has in other cells than that of the call, with spaces between. A
 * listener writes it for the methods that concern all cells.
 */
export const otherSessionsHeader = "x-other-sessions";

/** The headers of a call that a listener hands on. Others stay there, cookies among them. */
export const forwardedHeaders = [
  "authorization",
  "x-request-id",
  "traceparent",
  "tracestate",
  "idempotency-key",
  "x-stainless-retry-count",
  operatorHeader,
  otherSessionsHeader,
] as const;

/** The header by which a listener names its client. */
export const addressHeader = "x-client-address";

/** Sets the headers that `clientOf` reads. A listener does so for its own calls. */
export function nameClient(headers: Headers, { address, agent }: Client): void {
  headers.set(addressHeader, address);
  if (agent !== "") headers.set(agentHeader, agent.slice(0, agentLengthMax));
}
