// The members of an account, and the invitations to it. An account that has an owner keeps one.

import { create } from "@bufbuild/protobuf";
import {
  AccountRole,
  AccountRoleSchema,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type CreateInvitationRequest,
  CreateInvitationResponseSchema,
  type ListInvitationsRequest,
  ListInvitationsResponseSchema,
  type ListMembersRequest,
  ListMembersResponseSchema,
  type Member,
  MembersService,
  type RemoveMemberRequest,
  RemoveMemberResponseSchema,
  type RevokeInvitationRequest,
  RevokeInvitationResponseSchema,
  type UpdateMemberRequest,
  UpdateMemberResponseSchema,
} from "../../gen/gateway/people/v1/members_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, tooOften } from "../base/errors.ts";
import { readPage, wholeList } from "../base/paging.ts";
import { actorOf, roleIn } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { checkMails } from "./emails.ts";
import { linkAddress, mailLink, makeLink, mintLink } from "./links.ts";
import { checkFate, checkSaid, keyFacts, settleKeys } from "./managed-keys.ts";
import { checkEmail, checkLogin, checkStillAdmin, type Parts } from "./parts.ts";
import type { LockedMember, PeopleTables } from "./store.ts";

const invitationsPerDayMax = 20;
const openInvitationsMax = 100;

export async function listMembers(
  { store }: Parts,
  request: ListMembersRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = call;
  if (!(await store.run(sql.findAccount, { accountId }))) throw noSuchAccount();
  const list = wholeList(await store.listMembers(accountId), ({ personId }) => personId);
  const { listMembers } = MembersService.method;
  const { entries: members, nextPageToken } = await readPage(listMembers, request, call, list);
  return create(ListMembersResponseSchema, { members, nextPageToken });
}

export async function listInvitations(
  { store }: Parts,
  request: ListInvitationsRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = call;
  if (!(await store.run(sql.findAccount, { accountId }))) throw noSuchAccount();
  const all = await store.listInvitations(accountId);
  const list = wholeList(all, ({ invitationId }) => invitationId);
  const { listInvitations } = MembersService.method;
  const { entries, nextPageToken } = await readPage(listInvitations, request, call, list);
  return create(ListInvitationsResponseSchema, { invitations: entries, nextPageToken });
}

export async function invite(
  { store, publicUrl, outbox }: Parts,
  request: CreateInvitationRequest,
  call: AuthenticatedCall,
) {
  const { role, login, email } = request;
  const { accountId, caller } = call;
  const address = email === "" ? undefined : checkEmail("email", email);
  const proposed = login === "" ? (address ?? "") : checkLogin("login", login);
  // Without a mail server the inviter gets the link, and passes it on.
  const mailTo = outbox && address;
  const minted = mintLink(store);
  const inviteOnce = onceFor(MembersService.method.createInvitation, request, call);
  const { id, secret: token } = await store.transaction(async (tables) => {
    const account = await tables.findOpenAccount(accountId);
    // Locks the account's members, so that invitations at the same time are counted one by one.
    const members = await tables.lockMembers(accountId);
    await checkStillOwner(tables, members, caller);
    const shown = { id: minted.linkId, secret: mailTo === undefined ? minted.token : "" };
    return inviteOnce(tables, shown, async () => {
      const { made, resetsAt, open } = await tables.run(sql.countInvitations, { accountId });
      if (made >= invitationsPerDayMax) throw tooManyInvitations(made, resetsAt);
      if (open >= openInvitationsMax)
        throw new ApiError("limit_reached", {
          message: `An account has ${openInvitationsMax} open invitations at most: revoke one.`,
          limit: {
            name: "open_invitations",
            limit: BigInt(openInvitationsMax),
            used: BigInt(open),
          },
        });
      if (mailTo !== undefined) await checkMails(tables, mailTo, "invitation");
      const { link } = await makeLink(
        tables,
        publicUrl(),
        {
          purpose: "invitation",
          member: { accountId, role },
          login: proposed,
          email: mailTo,
          madeBy: actorOf(caller),
        },
        minted,
      );
      if (mailTo === undefined) return;
      const inviter =
        caller.kind === "person" ? await tables.findPerson(caller.personId) : undefined;
      const by = inviter ? inviter.name || inviter.login : "";
      await mailLink(tables, "invitation", link, mailTo, { account, by });
    });
  });
  outbox?.notify();
  const invitation = await store.findInvitation(accountId, id);
  if (!invitation) throw noSuchInvitation();
  const link = token === "" ? "" : linkAddress(publicUrl(), token);
  return create(CreateInvitationResponseSchema, { invitation, link });
}

/**
 * Checks the right of a person to change who belongs to the account, whose members are locked.
 * What a node remembers of the caller may be a second old: time to undo that he lost the right.
 */
async function checkStillOwner(
  tables: PeopleTables,
  members: readonly LockedMember[],
  caller: Caller,
): Promise<void> {
  if (caller.kind !== "person") return;
  const member = members.find((one) => one.personId === caller.personId);
  if (member?.role === AccountRole.OWNER) return;
  if (caller.operator !== OperatorRole.ADMIN) throw new ApiError("not_permitted");
  await checkStillAdmin(tables, caller);
}

function tooManyInvitations(made: number, resetsAt: Date | null): ApiError {
  return tooOften(
    "rate_limited",
    `An account can make ${invitationsPerDayMax} invitations a day.`,
    { name: "invitations_per_day", most: invitationsPerDayMax, made, resetsAt },
  );
}

export async function revokeInvitation(
  { store }: Parts,
  { invitationId }: RevokeInvitationRequest,
  { accountId }: AuthenticatedCall,
) {
  if ((await store.run(sql.endInvitation, { accountId, linkId: invitationId })) === 0)
    throw noSuchInvitation();
  return create(RevokeInvitationResponseSchema);
}

function noSuchInvitation(): ApiError {
  return new ApiError("not_found", {
    field: "invitation_id",
    message: "No such open invitation.",
  });
}

export async function updateMember(
  { store, keys, publish }: Parts,
  { personId, role }: UpdateMemberRequest,
  { accountId, caller, note }: AuthenticatedCall,
) {
  const { member, ended } = await store.transaction(async (tables) => {
    const members = await tables.lockMembers(accountId);
    await checkStillOwner(tables, members, caller);
    const earlier = checkChange(members, personId, role);
    note?.({ oldRole: AccountRoleSchema.value[earlier]?.localName ?? "" });
    const isOwner = role === AccountRole.OWNER;
    const ended = isOwner ? [] : await keys.endSecrets(tables, { accountId, personId });
    await tables.updateMember(personId, { accountId, role });
    if (!isOwner) await tables.endLinksOfMaker(personId, accountId);
    if (ended.length > 0) note?.({ endedKeys: ended.join(" ") });
    await tables.insertChange(personId);
    return { member: onlyMember(await tables.listMembers(accountId, personId)), ended };
  });
  publish(personId);
  keys.publish(ended);
  return create(UpdateMemberResponseSchema, { member });
}

export async function removeMember(
  parts: Parts,
  request: RemoveMemberRequest,
  { accountId, caller, note }: AuthenticatedCall,
) {
  const { store, publish } = parts;
  const { personId } = request;
  if (
    caller.kind === "person" &&
    caller.personId !== personId &&
    caller.operator !== OperatorRole.ADMIN &&
    roleIn(caller, accountId) !== AccountRole.OWNER
  )
    throw new ApiError("not_permitted", {
      message: "Only an owner of the account can remove others.",
    });
  checkFate(request);
  const { count, stopped } = await store.transaction(async (tables) => {
    const members = await tables.lockMembers(accountId);
    const isOwn = caller.kind === "person" && caller.personId === personId;
    if (!isOwn) await checkStillOwner(tables, members, caller);
    const account = await tables.run(sql.findAccount, { accountId });
    const isClosed = account?.status === "closed";
    const earlier = checkChange(members, personId, undefined, { isClosed });
    note?.({ oldRole: AccountRoleSchema.value[earlier]?.localName ?? "" });
    const managed = (await parts.keys.list(tables, personId)).filter(
      (key) => key.accountId === accountId,
    );
    checkSaid(request, managed);
    const left = { accountId, members, caller, leaves: true };
    const stopped = await settleKeys(parts.keys, tables, request, left);
    await tables.run(sql.deleteMember, { accountId, personId });
    // He could come back through an invitation of his own.
    await tables.endLinksOfMaker(personId, accountId);
    await tables.insertChange(personId);
    return { count: managed.length, stopped };
  });
  publish(personId);
  parts.keys.publish(stopped);
  note?.(keyFacts(request.keys, count, stopped));
  return create(RemoveMemberResponseSchema, { keys: count });
}

/**
 * The present role of a person, whose role is to become `role`; undefined: no member. Throws
 * `not_found`, and `last_one` if the account would have no owner who may sign in. A closed one
 * needs none: operators can read it.
 */
export function checkChange(
  members: readonly LockedMember[],
  personId: string,
  role: AccountRole | undefined,
  { accountName, isClosed = false }: { accountName?: string; isClosed?: boolean } = {},
): AccountRole {
  const member = members.find((one) => one.personId === personId);
  if (!member) throw new ApiError("not_found", { field: "person_id", message: "No such member." });
  const isOtherOwner = (one: LockedMember) =>
    one.personId !== personId && one.role === AccountRole.OWNER && one.enabled;
  const staysOwner = member.role !== AccountRole.OWNER || role === AccountRole.OWNER;
  if (!isClosed && !staysOwner && !members.some(isOtherOwner))
    throw new ApiError("last_one", {
      message:
        `This is the last owner of the account${accountName ? ` “${accountName}”` : ""}` +
        " who may sign in. Make somebody else an owner first.",
    });
  return member.role;
}

function onlyMember([member]: readonly Member[]): Member {
  if (!member) throw new Error("the member is locked, and gone");
  return member;
}

function noSuchAccount(): ApiError {
  return new ApiError("not_found", { message: "No such account.", field: "account_id" });
}
