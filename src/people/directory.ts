// All people, for operators.

import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { OperatorRole, OperatorRoleSchema } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type CreateSignInLinkRequest,
  CreateSignInLinkResponseSchema,
  LinkDelivery,
  type ListPeopleRequest,
  ListPeopleResponseSchema,
  PeopleService,
  PersonSettingsSchema,
  type UpdatePersonRequest,
  UpdatePersonResponseSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { readPage } from "../base/paging.ts";
import {
  askForApproval,
  type CarryOut,
  findWaiting,
  memberOf,
  needsApproval,
} from "../contract/approvals.ts";
import { actorOf, clientOf } from "../contract/callers.ts";
import type { AuditFacts, AuthenticatedCall } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { type Creation, onceFor } from "../contract/replays.ts";
import { readMask } from "../contract/update-mask.ts";
import { insertLink, linkAddress, type MintedLink, mailLink, makeLink, mintLink } from "./links.ts";
import { checkFate, checkSaid, keyFacts, settleKeys, toLabels } from "./managed-keys.ts";
import { checkStillAdmin, type ManagedKey, type Parts } from "./parts.ts";
import { digestToken } from "./sessions.ts";
import { type LockedMember, type PeopleTables, tablesOn } from "./store.ts";
import { checkProof } from "./ways-in.ts";

export async function listPeople(
  { store }: Parts,
  request: ListPeopleRequest,
  call: AuthenticatedCall,
) {
  const { listPeople } = PeopleService.method;
  const { entries: people, nextPageToken } = await readPage(listPeople, request, call, {
    read: (after, limit) => store.listPeople(request.query, after ?? "", limit),
    cursorOf: ({ login }) => login,
  });
  return create(ListPeopleResponseSchema, { people, nextPageToken });
}

const maskRule = {
  type: PersonSettingsSchema,
  changeable: ["disabled", "operator_role"],
  values: "settings.",
};

export async function updatePerson(
  parts: Parts,
  request: UpdatePersonRequest,
  call: AuthenticatedCall,
) {
  const { store, keys, publish } = parts;
  const { personId, settings, updateMask } = request;
  const { caller, note } = call;
  const paths = readMask(maskRule, settings, updateMask);
  const disabled = paths.includes("disabled") ? (settings?.disabled ?? false) : undefined;
  const operator = paths.includes("operator_role")
    ? (settings?.operatorRole ?? OperatorRole.UNSPECIFIED)
    : undefined;
  // A setting that is cleared is none of the request's fields.
  note?.({
    ...(disabled !== undefined && { disabled: String(disabled) }),
    ...(operator !== undefined && {
      operatorRole: OperatorRoleSchema.value[operator]?.localName ?? "",
    }),
  });
  checkFate(request);
  const waits = operator === OperatorRole.ADMIN && needsApproval(caller, parts.approvalLimit());
  if (waits && disabled !== undefined)
    throw invalidField(
      "settings.disabled",
      "change it by itself: the operator role needs another person",
    );
  if (waits) return create(UpdatePersonResponseSchema, await askForRole(parts, personId, call));
  const change = async (tables: PeopleTables) => {
    // Members, operators, people: in this order, as everybody who locks several of them.
    const members = new Map<string, readonly LockedMember[]>();
    await lockMembersOf(tables, accountsOf(await keys.list(tables, personId)), members);
    const operators = await tables.run(sql.lockOperators);
    await checkStillAdmin(tables, caller);
    const person = await tables.lockPerson(personId);
    if (!person) throw noSuchPerson();
    const isDisabled = disabled ?? person.disabledAt !== undefined;
    const role = operator ?? person.operatorRole;
    const staysOperator = role === OperatorRole.ADMIN && !isDisabled;
    if (!staysOperator && operators.length === 1 && operators[0]?.personId === personId)
      throw new ApiError("last_one", {
        message: "This is the last operator. Make somebody else an operator first.",
      });
    note?.({
      oldOperator: OperatorRoleSchema.value[person.operatorRole]?.localName ?? "",
      oldDisabled: String(person.disabledAt !== undefined),
    });
    await tables.updatePerson(personId, role, isDisabled);
    const losesAdmin = person.operatorRole === OperatorRole.ADMIN && role !== OperatorRole.ADMIN;
    // By a link of his own he could come back, as himself or as somebody else.
    if (isDisabled || losesAdmin) await tables.endLinksOfMaker(personId);
    // A person who gains or loses rights over every account signs in anew.
    await tables.run(sql.endSessions, { personId, butSessionId: null });
    await tables.insertChange(personId);
    const found = await keys.list(tables, personId);
    const wasDisabled = person.disabledAt !== undefined;
    if (isDisabled === wasDisabled) return { managed: [], stopped: [] };
    if (!isDisabled) return { managed: found.filter(({ paused }) => paused), stopped: [] };
    checkSaid(request, found);
    checkLocked(accountsOf(found), members);
    return { managed: found, stopped: await stopKeys(parts, tables, request, { members, call }) };
  };
  const { managed, stopped } = await againIfLate(() => store.transaction(change));
  publish(personId);
  keys.publish(stopped);
  if (disabled) note?.(keyFacts(request.keys, managed.length, stopped));
  return create(UpdatePersonResponseSchema, {
    person: await store.findPerson(personId),
    keys: toLabels(managed),
  });
}

/** Lets it wait that somebody becomes an operator admin, unless he is one. */
async function askForRole({ store }: Parts, personId: string, { caller }: AuthenticatedCall) {
  return store.transaction(async (tables) => {
    await checkStillAdmin(tables, caller);
    const person = await tables.findPerson(personId);
    if (!person) throw noSuchPerson();
    if (person.operatorRole === OperatorRole.ADMIN) return { person };
    const approval = await askForApproval(tables, caller, {
      kind: "operator",
      subject: personId,
      accountId: "",
      what: `Makes ${person.login} an operator admin.`,
      reason: "",
      usdMicro: 0n,
      request: { personId },
    });
    return { person, approval };
  });
}

/** Makes somebody an operator admin, as approved. */
export function carryOutOperator({ publish }: Pick<Parts, "publish">): CarryOut {
  return async (tx, approved) => {
    const tables = tablesOn(tx);
    const personId = memberOf(approved, "personId");
    await tables.run(sql.lockOperators);
    const person = await tables.lockPerson(personId);
    if (!person) throw noSuchPerson();
    await tables.updatePerson(personId, OperatorRole.ADMIN, person.disabledAt !== undefined);
    // A person who gains or loses rights over every account signs in anew.
    await tables.run(sql.endSessions, { personId, butSessionId: null });
    await tables.insertChange(personId);
    return () => publish(personId);
  };
}

/**
 * Locks the members of these accounts, which are in order. Call it before operators and people are
 * locked, and `checkLocked` afterwards, in a transaction that `againIfLate` runs.
 */
export async function lockMembersOf(
  tables: PeopleTables,
  accountIds: readonly string[],
  locked: Map<string, readonly LockedMember[]>,
): Promise<void> {
  for (const accountId of accountIds) locked.set(accountId, await tables.lockMembers(accountId));
}

/** An account that was to be locked first came in between. */
class LateAccount extends Error {}

export function checkLocked(
  accountIds: readonly string[],
  locked: ReadonlyMap<string, readonly LockedMember[]>,
): void {
  if (accountIds.some((accountId) => !locked.has(accountId))) throw new LateAccount();
}

/** Runs a transaction, and once more for each account that came in between. */
export async function againIfLate<T>(transaction: () => Promise<T>): Promise<T> {
  for (;;)
    try {
      return await transaction();
    } catch (error) {
      if (!(error instanceof LateAccount)) throw error;
    }
}

const accountsOf = (managed: readonly ManagedKey[]) => [
  ...new Set(managed.map(({ accountId }) => accountId)),
];

/** Stops or hands over the keys of a person who is disabled. Their owners should know. */
async function stopKeys(
  { keys }: Parts,
  tables: PeopleTables,
  request: UpdatePersonRequest,
  {
    members,
    call,
  }: { members: ReadonlyMap<string, readonly LockedMember[]>; call: AuthenticatedCall },
): Promise<readonly string[]> {
  const { caller } = call;
  const { personId } = request;
  const byAccount = Map.groupBy(await keys.list(tables, personId), ({ accountId }) => accountId);
  const all: string[] = [];
  for (const [accountId, managed] of byAccount) {
    const account = { accountId, members: members.get(accountId) ?? [], caller, leaves: false };
    const stopped = await settleKeys(keys, tables, request, account);
    await recordOfAccount(tables, accountId, call, {
      method: "UpdatePerson",
      facts: { personId, ...keyFacts(request.keys, managed.length, stopped) },
    });
    all.push(...stopped);
  }
  return all;
}

/** Records what was done to a person in an account that the call does not name. */
export async function recordOfAccount(
  tables: PeopleTables,
  accountId: string,
  call: AuthenticatedCall,
  act: { readonly method: string; readonly facts: AuditFacts },
): Promise<void> {
  await tables.insertAuditEvent({
    at: new Date(),
    actor: actorOf(call.caller),
    accountId,
    outcome: "ok",
    address: clientOf(call).address,
    ...act,
  });
}

export async function makeSignInLink(
  parts: Parts,
  request: CreateSignInLinkRequest,
  call: AuthenticatedCall,
) {
  const { store, publicUrl, outbox } = parts;
  const { personId } = request;
  const mail = request.delivery === LinkDelivery.MAILED;
  const { caller } = call;
  const reason = readReason(request.reason, call);
  if (mail && !outbox)
    throw invalidField("delivery", "needs a mail server, and SMTP_URL is not set");
  const minted = mintLink(store);
  const once = onceFor(PeopleService.method.createSignInLink, request, call);
  const answer = await store.transaction(async (tables) => {
    // Before one of them: several are locked in the order of their ids.
    await tables.run(sql.lockOperators);
    await checkStillAdmin(tables, caller);
    await checkProof(parts, tables, call);
    const person = await tables.findPerson(personId);
    if (!person) throw noSuchPerson();
    if (mail && person.email === "")
      throw invalidField("delivery", "this person has no confirmed address");
    const isOperator = person.operatorRole !== OperatorRole.UNSPECIFIED;
    const waits = isOperator && needsApproval(caller, parts.approvalLimit());
    let outcome: MadeLink | undefined;
    const makeNow = async (): Promise<MadeLink> => {
      if (waits)
        return {
          approval: await askForApproval(tables, caller, {
            ...{ kind: "sign_in_link", subject: personId, accountId: "", reason, usdMicro: 0n },
            what: `Makes a sign-in link for the operator ${person.login}.`,
            request: {
              ...{ personId, mail, linkId: minted.linkId },
              digest: digestToken(minted.token).toString("base64"),
            },
          }),
        };
      const made = await makeRecoveryLink(tables, publicUrl(), personId, actorOf(caller), minted);
      if (mail) await mailLink(tables, "recovery", made.link, person.email, {});
      return { endsAt: made.link.expiresAt };
    };
    // The secret of a mailed link is in the mail alone.
    const made = { id: minted.linkId, secret: mail ? "" : minted.token };
    const { id, secret } = await once(tables, made, async (nameIt) => {
      outcome = await makeNow();
      if (outcome.approval) await nameIt(outcome.approval.approvalId);
    });
    const { approval, endsAt } = outcome ?? (await findMade(tables, personId, { id, secret }));
    return {
      link: secret === "" ? "" : linkAddress(publicUrl(), secret),
      ...(approval && { approval }),
      ...(endsAt && { expiresAt: endsAt }),
    };
  });
  outbox?.notify();
  return create(CreateSignInLinkResponseSchema, answer);
}

type MadeLink = {
  readonly endsAt?: Timestamp | undefined;
  readonly approval?: Approval | undefined;
};

/** What became of a link that was asked for before. Empty: it was used, or is replaced. */
async function findMade(
  tables: PeopleTables,
  personId: string,
  { id, secret }: Creation,
): Promise<MadeLink> {
  const link = secret === "" ? undefined : await tables.findLink(digestToken(secret));
  const about = { kind: "sign_in_link", subject: personId, accountId: "" } as const;
  return {
    endsAt: link && timestampFromDate(link.endsAt),
    approval: await findWaiting(tables, about, id),
  };
}

/** Makes an approved link: the one that its maker has, or that is mailed now. */
export function carryOutSignInLink({ outbox }: Pick<Parts, "outbox">): CarryOut {
  return async (tx, approved) => {
    const tables = tablesOn(tx);
    const personId = memberOf(approved, "personId");
    // All of them, because several persons are locked in the order of their ids.
    await tables.run(sql.lockOperators);
    const person = await tables.lockPerson(personId);
    if (!person) throw noSuchPerson();
    await tables.run(sql.endLinks, { purpose: "recovery", personId });
    const digest = Buffer.from(memberOf(approved, "digest"), "base64");
    const made = { purpose: "recovery", personId, madeBy: approved.requestedBy } as const;
    const link = await insertLink(tables, { linkId: memberOf(approved, "linkId"), digest }, made);
    if (approved.request.mail === true) await mailLink(tables, "recovery", link, person.email, {});
    return () => outbox?.notify();
  };
}

/** Makes a recovery link, and ends the earlier ones of this person. Throws `not_found`. */
export async function makeRecoveryLink(
  tables: PeopleTables,
  publicUrl: URL,
  personId: string,
  madeBy: string,
  minted?: MintedLink,
): ReturnType<typeof makeLink> {
  if (!(await tables.lockPerson(personId))) throw noSuchPerson();
  await tables.run(sql.endLinks, { purpose: "recovery", personId });
  return makeLink(tables, publicUrl, { purpose: "recovery", personId, madeBy }, minted);
}

export function noSuchPerson(): ApiError {
  return new ApiError("not_found", { field: "person_id", message: "No such person." });
}
