// People who leave for good. Only the id stays, which keys and audit events name.

import { create } from "@bufbuild/protobuf";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type DeletePersonRequest,
  DeletePersonResponseSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError } from "../base/errors.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import {
  againIfLate,
  checkLocked,
  lockMembersOf,
  noSuchPerson,
  recordOfAccount,
} from "./directory.ts";
import { checkFate, checkSaid, keyFacts, settleKeys } from "./managed-keys.ts";
import { checkChange } from "./members.ts";
import { checkStillAdmin, type ManagedKeys, type Parts } from "./parts.ts";
import type { LockedMember, PeopleTables } from "./store.ts";
import { lockOpen } from "./ways-in.ts";

export async function deletePerson(
  { store, keys, publish }: Parts,
  request: DeletePersonRequest,
  call: AuthenticatedCall,
) {
  const { caller, note } = call;
  const { personId } = request;
  const isSelf = caller.kind === "person" && caller.personId === personId;
  if (caller.kind === "person" && !isSelf && caller.operator !== OperatorRole.ADMIN)
    throw new ApiError("not_permitted", { message: "You can delete only yourself." });
  checkFate(request);
  const leave = async (tables: PeopleTables) => {
    // Members, operators, people: in this order, as everybody who locks several of them.
    const members = new Map<string, readonly LockedMember[]>();
    await lockMembersOf(tables, await accountsOf(tables, keys, personId), members);
    const operators = await tables.run(sql.lockOperators);
    if (isSelf) await lockOpen(tables, call);
    else await checkStillAdmin(tables, caller);
    // While the person is locked, nobody makes him a member of another account.
    const person = await tables.lockPerson(personId);
    if (!person) throw noSuchPerson();
    if (operators.length === 1 && operators[0]?.personId === personId)
      throw new ApiError("last_one", {
        message: "This is the last operator. Make somebody else an operator first.",
      });
    const managed = await keys.list(tables, personId);
    checkSaid(request, managed);
    const all: string[] = [];
    const memberships = await tables.listAccounts(personId);
    const accountIds = await accountsOf(tables, keys, personId);
    checkLocked(accountIds, members);
    for (const accountId of accountIds) {
      const locked = members.get(accountId) ?? [];
      const own = memberships.find((one) => one.accountId === accountId);
      if (own)
        checkChange(locked, personId, undefined, {
          accountName: own.name,
          isClosed: own.state === AccountState.CLOSED,
        });
      const ofAccount = managed.filter((key) => key.accountId === accountId);
      const left = { accountId, members: locked, caller, leaves: true };
      const paused = await settleKeys(keys, tables, request, left);
      await tables.run(sql.deleteMember, { accountId, personId });
      const facts = { personId, ...keyFacts(request.keys, ofAccount.length, paused) };
      await recordOfAccount(tables, accountId, call, { method: "DeletePerson", facts });
      all.push(...paused);
    }
    await tables.endLinksOfMaker(personId);
    const { login, email } = person;
    await tables.run(sql.deleteMails, { personId, addresses: [login, email] });
    await tables.run(sql.deleteLinks, { personId, login });
    await tables.run(sql.deletePasskeys, { personId });
    await tables.run(sql.deletePassword, { personId });
    await tables.run(sql.deleteIdentities, { personId });
    await tables.run(sql.deleteSessions, { personId });
    await tables.run(sql.deletePerson, { personId });
    await tables.insertChange(personId);
    return { count: managed.length, stopped: all };
  };
  const { count, stopped } = await againIfLate(() => store.transaction(leave));
  publish(personId);
  keys.publish(stopped);
  note?.(keyFacts(request.keys, count, stopped));
  return create(DeletePersonResponseSchema, { keys: count });
}

/** The accounts of which a person is a member, or manages keys, in the order of their ids. */
async function accountsOf(
  tables: PeopleTables,
  keys: ManagedKeys,
  personId: string,
): Promise<string[]> {
  const memberships = await tables.listAccounts(personId);
  const managed = await keys.list(tables, personId);
  return [...new Set([...memberships, ...managed].map(({ accountId }) => accountId))].sort();
}
