// People who leave for good. Only the id stays, which keys and audit events name.

import { create } from "@bufbuild/protobuf";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type DeletePersonRequest,
  DeletePersonResponseSchema,
  type PersonAccount,
} from "../../gen/gateway/people/v1/people_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError } from "../base/errors.ts";
import { actorOf, clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { noSuchPerson } from "./directory.ts";
import { checkChange } from "./members.ts";
import { checkStillAdmin, type Parts } from "./parts.ts";
import type { PeopleTables } from "./store.ts";
import { lockOpen } from "./ways-in.ts";

export async function deletePerson(
  { store, keys, publish }: Parts,
  { personId }: DeletePersonRequest,
  call: AuthenticatedCall,
) {
  const { caller } = call;
  const isSelf = caller.kind === "person" && caller.personId === personId;
  if (caller.kind === "person" && !isSelf && caller.operator !== OperatorRole.ADMIN)
    throw new ApiError("not_permitted", { message: "You can delete only yourself." });
  await store.transaction(async (tables, tx) => {
    // Members, operators, people: in this order, as everybody who locks several of them.
    for (const { accountId } of await accountsOf(tables, personId))
      await tables.lockMembers(accountId);
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
    for (const { accountId, name } of await accountsOf(tables, personId)) {
      const account = await tables.run(sql.findAccount, { accountId });
      const members = await tables.lockMembers(accountId);
      const isClosed = account?.status === "closed";
      checkChange(members, personId, undefined, { accountName: name, isClosed });
      await keys.handOver(tx, { accountId, personId }, undefined);
      await tables.run(sql.deleteMember, { accountId, personId });
      await recordLeaving(tables, personId, accountId, call);
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
  });
  publish(personId);
  return create(DeletePersonResponseSchema);
}

/** The accounts of a person, in the order of their ids. */
async function accountsOf(tables: PeopleTables, personId: string): Promise<PersonAccount[]> {
  const accounts = await tables.listAccounts(personId);
  return accounts.sort((one, other) => (one.accountId < other.accountId ? -1 : 1));
}

/** The owners of his accounts should know. */
async function recordLeaving(
  tables: PeopleTables,
  personId: string,
  accountId: string,
  call: AuthenticatedCall,
): Promise<void> {
  await tables.insertAuditEvent({
    at: new Date(),
    actor: actorOf(call.caller),
    accountId,
    method: "DeletePerson",
    outcome: "ok",
    facts: { personId },
    address: clientOf(call).address,
  });
}
