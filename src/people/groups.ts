// Roles that the groups of a person at a provider of OIDC give him here, by configuration only. At
// each sign-in they are given anew. What groups gave before and give no more is taken back, unless
// somebody has changed it here since.

import {
  AccountRole,
  AccountRoleSchema,
  OperatorRole,
  OperatorRoleSchema,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import type { OidcSettings } from "../config/catalog.ts";
import type { ManagedKeys } from "./parts.ts";
import {
  type GivenRoles,
  type LockedMember,
  operatorsByName,
  type PeopleTables,
  rolesByName,
} from "./store.ts";

export const noRoles: GivenRoles = { operator: OperatorRole.UNSPECIFIED, accounts: new Map() };

/** What these groups give. The highest role counts. */
export function rolesOfGroups(
  { groups }: Pick<OidcSettings, "groups">,
  memberOf: readonly string[] = [],
): GivenRoles {
  let { operator } = noRoles;
  const accounts = new Map<string, AccountRole>();
  for (const entry of groups.filter(({ group }) => memberOf.includes(group))) {
    if (entry.operator) operator = higher(operator, operatorsByName[entry.operator]);
    if (!entry.member) continue;
    const { accountId, role } = entry.member;
    const known = accounts.get(accountId) ?? AccountRole.UNSPECIFIED;
    accounts.set(accountId, higher(known, rolesByName[role]));
  }
  return { operator, accounts };
}

function higher<T extends AccountRole | OperatorRole>(one: T, other: T): T {
  return one > other ? one : other;
}

/**
 * The role after a sign-in. `given`, `before`: what the groups give now, and gave the last time.
 * UNSPECIFIED is no role.
 */
function nextRole<T extends AccountRole | OperatorRole>(present: T, before: T, given: T): T {
  if (given > present) return given;
  return before === present && given < before ? given : present;
}

/** What a sign-in changed. */
export type RoleChange = {
  /** Empty: the operator role. */
  readonly accountId: string;
  /** Names of the roles. */
  readonly oldRole: string;
  readonly role: string;
  /**
   * The keys that he managed in an account that he lost: they are paused. And the management keys
   * of one that he owns no more: the secrets that he has seen ended.
   */
  readonly stoppedKeys: readonly string[];
};

/**
 * Locks what `applyRoles` changes. Call before the person is locked: everybody locks members,
 * operators and people in this order.
 */
export async function lockRoles(
  tables: PeopleTables,
  before: GivenRoles,
  given: GivenRoles,
): Promise<LockedRoles> {
  const members: LockedRoles["members"] = new Map();
  const ids = new Set([...before.accounts.keys(), ...given.accounts.keys()]);
  for (const accountId of [...ids].sort()) {
    // An account that does not exist gives nothing.
    if (await tables.run(sql.findAccount, { accountId }))
      members.set(accountId, await tables.lockMembers(accountId));
  }
  const isOperators = before.operator !== given.operator || given.operator !== noRoles.operator;
  return { members, operators: isOperators ? await tables.run(sql.lockOperators) : [] };
}

type LockedRoles = {
  readonly members: Map<string, readonly LockedMember[]>;
  /** The operator admins. */
  readonly operators: readonly sql.LockOperatorsRow[];
};

/**
 * Gives and takes back roles of a person, who is locked. The last owner of an account and the last
 * operator admin stay what they are.
 */
export async function applyRoles(
  tables: PeopleTables,
  keys: ManagedKeys,
  person: RankedPerson,
  locked: LockedRoles,
  roles: Given,
): Promise<RoleChange[]> {
  return [
    ...(await applyAccountRoles(tables, keys, person, locked, roles)),
    ...(await applyOperatorRole(tables, person, locked, roles)),
  ];
}

type RankedPerson = { readonly personId: string; readonly operatorRole: OperatorRole };
/** What groups gave until now, and what they give. */
type Given = { readonly before: GivenRoles; readonly given: GivenRoles };

async function applyAccountRoles(
  tables: PeopleTables,
  keys: ManagedKeys,
  { personId }: RankedPerson,
  { members }: LockedRoles,
  { before, given }: Given,
): Promise<RoleChange[]> {
  const none = AccountRole.UNSPECIFIED;
  const changes: RoleChange[] = [];
  for (const [accountId, present] of members) {
    const oldRole = present.find((one) => one.personId === personId)?.role ?? none;
    const role = nextRole(
      oldRole,
      before.accounts.get(accountId) ?? none,
      given.accounts.get(accountId) ?? none,
    );
    const wouldLeaveNone = role < oldRole && isLastOwner(present, personId);
    if (role === oldRole || wouldLeaveNone) continue;
    const isOwner = role === AccountRole.OWNER;
    // Before keys, as a program does that changes some.
    const endedKeys = isOwner ? [] : await keys.endSecrets(tables, { accountId, personId });
    const pausedKeys = role === none ? await leave(tables, keys, { accountId, personId }) : [];
    if (role === none) await tables.run(sql.deleteMember, { accountId, personId });
    else if (oldRole === none) await tables.putMember(personId, { accountId, role });
    else await tables.updateMember(personId, { accountId, role });
    if (!isOwner) await tables.endLinksOfMaker(personId, accountId);
    const { value: names } = AccountRoleSchema;
    changes.push({
      accountId,
      oldRole: names[oldRole]?.localName ?? "",
      role: names[role]?.localName ?? "",
      stoppedKeys: [...pausedKeys, ...endedKeys],
    });
  }
  return changes;
}

function isLastOwner(members: readonly LockedMember[], personId: string): boolean {
  const owners = members.filter(({ role }) => role === AccountRole.OWNER);
  const isOwner = owners.some((one) => one.personId === personId);
  return isOwner && !owners.some((one) => one.personId !== personId && one.enabled);
}

async function applyOperatorRole(
  tables: PeopleTables,
  { personId, operatorRole: operator }: RankedPerson,
  { operators }: LockedRoles,
  { before, given }: Given,
): Promise<RoleChange[]> {
  const next = nextRole(operator, before.operator, given.operator);
  const isLastAdmin = operators.length === 1 && operators[0]?.personId === personId;
  if (next === operator || (isLastAdmin && next < operator)) return [];
  await tables.updatePerson(personId, next, false);
  if (operator === OperatorRole.ADMIN && next !== OperatorRole.ADMIN)
    await tables.endLinksOfMaker(personId);
  // A person who gains or loses rights over every account signs in anew.
  await tables.run(sql.endSessions, { personId, butSessionId: null });
  const { value: names } = OperatorRoleSchema;
  const [oldRole = "", role = ""] = [names[operator]?.localName, names[next]?.localName];
  return [{ accountId: "", oldRole, role, stoppedKeys: [] }];
}

/** Pauses the keys that a person manages in an account, and leaves them to its owners. */
async function leave(
  tables: PeopleTables,
  keys: ManagedKeys,
  manager: { accountId: string; personId: string },
): Promise<readonly string[]> {
  const paused = await keys.pause(tables, manager);
  await keys.handOver(tables, manager, undefined);
  return paused;
}
