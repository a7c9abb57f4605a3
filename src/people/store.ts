// The tables of people: what maps rows to messages, or takes more than one statement. The other
// statements are run by their callers.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { type AdminToken, AdminTokenSchema } from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import {
  type Invitation,
  InvitationSchema,
  MailState,
  type Member,
  MemberSchema,
} from "../../gen/gateway/people/v1/members_pb.ts";
import { type Person, PersonSchema } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type Passkey,
  PasskeySchema,
  type PersonAccount,
  PersonAccountSchema,
} from "../../gen/gateway/people/v1/profile_pb.ts";
import { LinkPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { toActor } from "../base/actors.ts";
import { plainCell } from "../base/cells.ts";
import type { ChangePage } from "../base/change-feed.ts";
import { type AddressMatcher, matcherOf } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { shownName } from "../base/names.ts";
import type { Found } from "../base/secret-cache.ts";
import type { Membership } from "../contract/contract.ts";
import type { AuditEvent } from "../contract/interceptor.ts";
import { removeReplays } from "../contract/replays.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";

/** An admin token, as it authenticates calls. */
export type FoundAdminToken = Found & {
  readonly name: string;
  readonly scope: AdminScope;
  readonly hint: string;
  readonly isRevoked: boolean;
  /** Where it may be used. Undefined: everywhere. */
  readonly isAllowedAt: AddressMatcher | undefined;
  /** Who made it. Null: the machine. */
  readonly personId: string | null;
};

/** Who owns an account: the first three, in the order of their logins, and how many there are. */
export type Owners = { readonly first: readonly sql.ListOwnersRow[]; readonly count: number };

/** How a person proved who he is at a sign-in. */
export type SignInMethod = sql.FindProofRow["proof"];

/** An open session, as it authenticates calls. */
export type FoundSession = Found & {
  readonly sessionId: string;
  readonly method: SignInMethod;
  readonly operator: OperatorRole;
  readonly memberships: readonly Membership[];
  readonly strongUntil: Date;
};

/** What verifies the answers of a passkey. */
export type StoredPasskey = Omit<sql.FindPasskeyRow, "counter"> & { readonly counter: number };

/** Who somebody is at a provider of OIDC. */
export type IdentityName = { readonly issuer: string; readonly subject: string };

/** Roles that the groups of a person at a provider give him here. */
export type GivenRoles = {
  readonly operator: OperatorRole;
  /** By account id. */
  readonly accounts: ReadonlyMap<string, AccountRole>;
};

export type FoundIdentity = GivenRoles & {
  readonly identityId: string;
  readonly personId: string;
};

export type LinkKind = sql.FindLinkRow["purpose"];

/** A link that can be used. */
export type OpenLink = {
  readonly linkId: string;
  readonly purpose: LinkKind;
  /** Of a recovery or an address: the person. Otherwise the id that a new person gets. */
  readonly personId: string;
  /** Absent: it joins no account. */
  readonly member: Membership | undefined;
  readonly login: string;
  /** Who has the link has this address. Undefined: the link was shown. */
  readonly email: string | undefined;
  readonly endsAt: Date;
};

export type NewLink = {
  readonly purpose: LinkKind;
  /** Absent: a new person. */
  readonly personId?: string;
  readonly member?: Membership | undefined;
  readonly login?: string;
  /** The address to which alone the link is sent. */
  readonly email?: string | undefined;
  readonly madeBy: string;
};

export type MailKind = sql.ClaimMailsRow["kind"];
/** What the text of a mail names. Never a secret. */
export type MailFacts = Readonly<Record<string, string>>;

/** A member of an account whose members are locked. */
export type LockedMember = {
  readonly personId: string;
  readonly role: AccountRole;
  /** True if he may sign in. */
  readonly enabled: boolean;
};

/** A subject of password attempts. */
export type AttemptSubject = {
  readonly digest: Buffer;
  readonly kind: sql.CountAttemptsRow["kind"];
};

/** What the ledger does where members change. */
export type MemberBudgets = {
  /** Locks the pools of the account, which everybody locks before its members. */
  lock(tx: Runner, accountId: string): Promise<unknown>;
  /**
   * Called in the transaction in which a person becomes neither owner nor viewer. True: his keys
   * have limits that they had not.
   */
  join(
    tx: Runner,
    member: { readonly accountId: string; readonly personId: string },
  ): Promise<boolean>;
  /** True if an owner limits what the keys of this member spend. */
  isLimited(
    tx: Runner,
    member: { readonly accountId: string; readonly personId: string },
  ): Promise<boolean>;
};

const noBudgets: MemberBudgets = {
  lock: async () => {},
  join: async () => false,
  isLimited: async () => false,
};

/** The functions of the store that run in one transaction, or each in its own. */
export type PeopleTables = ReturnType<typeof tablesOn>;
export type PeopleStore = ReturnType<typeof createPeopleStore>;

/** Refused calls of a caller that leave an event each, an hour. */
const refusedKept = 60;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createPeopleStore(
  postgres: Postgres,
  budgets: MemberBudgets = noBudgets,
  cell = plainCell,
) {
  return {
    ...tablesOn(postgres, budgets, cell),
    /** Runs `work` in one transaction. Repeats it after a conflict. */
    transaction: <T>(work: (tables: PeopleTables, tx: Runner) => Promise<T>): Promise<T> =>
      postgres.transaction((tx) => work(tablesOn(tx, budgets, cell), tx)),
    /**
     * Stores an act. Of the refused calls of an hour, those beyond `refusedKept` share one event:
     * nobody fills the table with them.
     */
    async recordAct(event: AuditEvent): Promise<void> {
      if (event.outcome === "ok") return tablesOn(postgres).insertAuditEvent(event);
      await postgres.transaction(async (tx) => {
        const eventId = timeOrderedId("aud_");
        const { actor } = event;
        const counted = await tx.run(sql.countRefusal, { actor, eventId, kept: refusedKept });
        const more = counted.refused - refusedKept;
        if (more > 1) await tx.run(sql.countMore, { eventId: counted.eventId, more: String(more) });
        else if (more < 1) await tablesOn(tx).insertAuditEvent(event);
        else {
          const facts = JSON.stringify({ more: "1" });
          await tx.run(sql.insertAuditEvent, { ...event, accountId: "", eventId, facts });
        }
      });
    },
  };
}

export function tablesOn(db: Runner, budgets: MemberBudgets = noBudgets, cell = plainCell) {
  return {
    run: db.run,

    /** The cell of these tables, which new secrets name. */
    cell,

    /** The open sessions with these digests, whose use it records. */
    async findSessions(digests: readonly string[], idleMsMax: number): Promise<FoundSession[]> {
      const rows = await db.run(sql.findSessions, { digests: digests.map(toBytes), idleMsMax });
      return rows.map(({ accountIds, roles, ...row }) => ({
        ...row,
        digest: row.digest.toString("base64"),
        ownerId: row.personId,
        expiresInMs: row.endsInMs,
        operator: operatorsByName[row.operator],
        memberships: accountIds.flatMap((accountId, index) => {
          const role = roles[index];
          return role ? [{ accountId, role: rolesByName[role] }] : [];
        }),
      }));
    },

    // Changes.

    /** `subjectId`: of a person or an admin token. */
    insertChange: (subjectId: string) =>
      db.run(sql.insertChange, { changeId: timeOrderedId("chg_"), subjectId }),
    async readChanges(since: Date | undefined): Promise<ChangePage> {
      const rows = await db.run(sql.readChanges, { since: since ?? null });
      return {
        at: rows[0]?.readAt ?? since ?? new Date(),
        changes: rows.flatMap(({ changeId, subjectId: id }) =>
          changeId === null || id === null ? [] : [{ changeId, id }],
        ),
      };
    },
    /** Deletes rows that have no effect any more. */
    async clean(): Promise<void> {
      await db.run(sql.removeChanges);
      await db.run(sql.removeChallenges);
      await db.run(sql.removeFailures);
      await db.run(sql.removeMails);
      await db.run(sql.removeRefusals);
      await db.run(sql.removeSignUps);
      await db.run(removeReplays);
    },

    // People.

    /** Locks the person until the end of the transaction. */
    async lockPerson(personId: string): Promise<Person | undefined> {
      const row = await db.run(sql.lockPerson, { personId });
      return row && toPerson(row);
    },
    async findPerson(personId: string): Promise<Person | undefined> {
      const row = await db.run(sql.findPerson, { personId });
      return row && toPerson(row);
    },
    async listPeople(text: string, afterLogin: string, rows: number): Promise<Person[]> {
      return (await db.run(sql.listPeople, { text, afterLogin, rows })).map(toPerson);
    },
    updatePerson: (personId: string, operator: OperatorRole, isDisabled: boolean) =>
      db.run(sql.updatePerson, {
        personId,
        isDisabled,
        operator: nameIn(operatorsByName, operator),
      }),

    // Ways in.

    /** Undefined: the credential exists. */
    async insertPasskey(passkey: StoredPasskey & { name: string }): Promise<Passkey | undefined> {
      const passkeyId = timeOrderedId("pky_");
      const row = await db.run(sql.insertPasskey, { ...passkey, passkeyId });
      return row && toPasskey(row);
    },
    async listPasskeys(personId: string): Promise<Passkey[]> {
      return (await db.run(sql.listPasskeys, { personId })).map(toPasskey);
    },
    async findIdentity({ issuer, subject }: IdentityName): Promise<FoundIdentity | undefined> {
      const row = await db.run(sql.findIdentity, { issuer, subject });
      return (
        row && {
          ...row,
          operator: operatorsByName[row.operator],
          accounts: readRoles(row.accounts),
        }
      );
    },
    /** False: the identity was removed. */
    async useIdentity(
      { identityId, personId }: Pick<FoundIdentity, "identityId" | "personId">,
      { operator, accounts }: GivenRoles,
    ): Promise<boolean> {
      const names = [...accounts].map(([id, role]) => [id, nameIn(rolesByName, role)]);
      const changed = await db.run(sql.useIdentity, {
        ...{ identityId, personId },
        operator: nameIn(operatorsByName, operator),
        accounts: JSON.stringify(Object.fromEntries(names)),
      });
      return changed > 0;
    },

    countAttempts: (subjects: readonly AttemptSubject[]) => countAttempts(db, subjects),

    // Links and mail.

    async insertLink(
      minted: { readonly linkId: string; readonly digest: Buffer },
      lifetimeMs: number,
      link: NewLink,
    ): Promise<Invitation> {
      const { purpose, personId, member, login, email, madeBy } = link;
      const row = await db.run(sql.insertLink, {
        ...{ ...minted, purpose, madeBy, lifetimeMs },
        personId: personId ?? timeOrderedId("per_"),
        accountId: member?.accountId ?? null,
        role: member ? nameIn(rolesByName, member.role) : null,
        login: login ?? "",
        email: email ?? null,
      });
      return toInvitation(row);
    },
    async findLink(digest: Buffer): Promise<OpenLink | undefined> {
      const row = await db.run(sql.findLink, { digest });
      return row && toLink(row);
    },
    /** Undefined: the link is wrong, used or expired. Only one caller gets it. */
    async useLink(digest: Buffer): Promise<OpenLink | undefined> {
      const row = await db.run(sql.useLink, { digest });
      return row && toLink(row);
    },
    /** Of a person who may make no more. `accountId` undefined: the links to everything. */
    endLinksOfMaker: (personId: string, accountId?: string) =>
      db.run(sql.endLinksOfMaker, { madeBy: `person:${personId}`, accountId: accountId ?? null }),
    /** Undefined: there is none, or its person was deleted. */
    async findInvitation(accountId: string, linkId: string): Promise<Invitation | undefined> {
      const row = await db.run(sql.findInvitation, { accountId, linkId });
      return row && toInvitation(row);
    },
    async listInvitations(accountId: string): Promise<Invitation[]> {
      return (await db.run(sql.listInvitations, { accountId })).map(toInvitation);
    },
    /** `linkId` absent: the mail has no link. `lifetimeMs`: how long it is tried. */
    async insertMail(mail: {
      readonly kind: MailKind;
      readonly address: string;
      readonly linkId?: string;
      readonly facts: MailFacts;
      readonly lifetimeMs: number;
    }): Promise<void> {
      await db.run(sql.insertMail, {
        ...mail,
        mailId: timeOrderedId("mal_"),
        linkId: mail.linkId ?? null,
        facts: JSON.stringify(mail.facts),
      });
    },

    // Members.

    /** The name of an account. Throws `not_found`, `account_suspended` and `account_closed`. */
    async findOpenAccount(accountId: string): Promise<string> {
      const account = await db.run(sql.findAccount, { accountId });
      if (!account)
        throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
      if (account.status === "suspended") throw new ApiError("account_suspended");
      if (account.status === "closed") throw new ApiError("account_closed");
      return account.name;
    },
    /** The members of an account, locked. */
    async lockMembers(accountId: string): Promise<LockedMember[]> {
      await budgets.lock(db, accountId);
      const rows = await db.run(sql.lockMembers, { accountId });
      return rows.map((row) => ({ ...row, role: rolesByName[row.role] }));
    },
    isLimited: (accountId: string, personId: string) =>
      budgets.isLimited(db, { accountId, personId }),
    async putMember(personId: string, { accountId, role }: Membership): Promise<void> {
      const named = { accountId, personId, role: nameIn(rolesByName, role) };
      const stored = await db.run(sql.putMember, named);
      if (stored.role === "member") await budgets.join(db, { accountId, personId });
    },
    async updateMember(personId: string, { accountId, role }: Membership): Promise<void> {
      await db.run(sql.updateMember, { accountId, personId, role: nameIn(rolesByName, role) });
      if (role === AccountRole.MEMBER) await budgets.join(db, { accountId, personId });
    },
    async listMembers(accountId: string, onlyPersonId?: string): Promise<Member[]> {
      const rows = await db.run(sql.listMembers, { accountId, personId: onlyPersonId ?? null });
      return rows.map((row) =>
        create(MemberSchema, {
          ...row,
          name: shownName(row.name),
          role: rolesByName[row.role],
          joinedAt: timestampFromDate(row.joinedAt),
          lastSeenAt: toTimestamp(row.lastSeenAt),
        }),
      );
    },
    /** The owners of accounts. An account without an owner is left out. */
    async listOwners(accountIds: readonly string[]): Promise<ReadonlyMap<string, Owners>> {
      const rows = await db.run(sql.listOwners, { accountIds });
      const shown = rows.map((row) => ({ ...row, name: shownName(row.name) }));
      const byAccount = Map.groupBy(shown, ({ accountId }) => accountId);
      return new Map(
        [...byAccount].map(([id, first]) => [id, { first, count: first[0]?.owners ?? 0 }]),
      );
    },
    async listAccounts(personId: string): Promise<PersonAccount[]> {
      const rows = await db.run(sql.listAccountsOfPerson, { personId });
      return rows.map((row) =>
        create(PersonAccountSchema, {
          ...row,
          name: shownName(row.name),
          role: rolesByName[row.role],
          stateReason: row.statusReason,
          state: accountStates[row.status],
          createdAt: timestampFromDate(row.createdAt),
        }),
      );
    },

    /** Stores an administrative act. */
    async insertAuditEvent(event: AuditEvent): Promise<void> {
      const facts = JSON.stringify(event.facts);
      await db.run(sql.insertAuditEvent, { ...event, eventId: timeOrderedId("aud_"), facts });
    },

    // Admin tokens.

    /** The admin tokens with these digests, whose use it records. */
    async findAdminTokens(digests: readonly string[]): Promise<FoundAdminToken[]> {
      const rows = await db.run(sql.findAdminTokens, { digests: digests.map(toBytes) });
      return rows.map((row) => ({
        ...row,
        digest: row.digest.toString("base64"),
        ownerId: row.tokenId,
        expiresInMs: undefined,
        scope: scopesByName[row.scope],
        isAllowedAt: matcherOf(row.allowedAddresses),
      }));
    },
    /** Throws `name_taken`. */
    async insertAdminToken(token: {
      readonly tokenId: string;
      readonly digest: Buffer;
      readonly name: string;
      readonly scope: AdminScope;
      readonly hint: string;
      readonly createdBy: string;
      /** Who made it. Null: the machine. */
      readonly personId: string | null;
      readonly allowedAddresses: readonly string[];
    }): Promise<void> {
      const scope = nameIn(scopesByName, token.scope);
      if ((await db.run(sql.insertAdminToken, { ...token, scope })) === 0)
        throw new ApiError("name_taken", { field: "name" });
    },
    /** Undefined: it waits for an approval. */
    async findAdminToken(tokenId: string): Promise<AdminToken | undefined> {
      const row = await db.run(sql.findAdminToken, { tokenId });
      return row && toAdminToken(row);
    },
    async listAdminTokens(afterId: string, rows: number): Promise<AdminToken[]> {
      return (await db.run(sql.listAdminTokens, { afterId, rows })).map(toAdminToken);
    },
    async revokeAdminToken(tokenId: string): Promise<AdminToken | undefined> {
      const row = await db.run(sql.revokeAdminToken, { tokenId });
      return row && toAdminToken(row);
    },
  };
}

export function countAttempts(
  db: Runner,
  subjects: readonly AttemptSubject[],
): Promise<sql.CountAttemptsRow[]> {
  const ordered = subjects.toSorted((one, other) => Buffer.compare(one.digest, other.digest));
  return db.run(sql.countAttempts, {
    subjects: ordered.map(({ digest }) => digest),
    kinds: ordered.map(({ kind }) => kind),
  });
}

type RoleName = sql.LockMembersRow["role"];
export const rolesByName: Readonly<Record<RoleName, AccountRole>> = {
  viewer: AccountRole.VIEWER,
  member: AccountRole.MEMBER,
  owner: AccountRole.OWNER,
};

export const operatorsByName: Readonly<Record<sql.LockPersonRow["operator"], OperatorRole>> = {
  none: OperatorRole.UNSPECIFIED,
  support: OperatorRole.SUPPORT,
  admin: OperatorRole.ADMIN,
};

const mailStates: Readonly<Record<NonNullable<sql.ListInvitationsRow["mail"]>, MailState>> = {
  waiting: MailState.WAITING,
  sent: MailState.SENT,
  failed: MailState.FAILED,
};

const accountStates = {
  active: AccountState.ACTIVE,
  suspended: AccountState.SUSPENDED,
  closed: AccountState.CLOSED,
} as const;

const scopesByName: Readonly<Record<sql.FindAdminTokensRow["scope"], AdminScope>> = {
  read: AdminScope.READ,
  keys: AdminScope.KEYS,
  money: AdminScope.MONEY,
  all: AdminScope.ALL,
};

export const purposeOf: Readonly<Record<LinkKind, LinkPurpose>> = {
  owner: LinkPurpose.OWNER,
  invitation: LinkPurpose.INVITATION,
  recovery: LinkPurpose.RECOVERY,
  sign_up: LinkPurpose.SIGN_UP,
  email: LinkPurpose.EMAIL,
};

/** The name under which a table stores `value`. */
function nameIn<Name extends string, T>(names: Readonly<Record<Name, T>>, value: T): Name {
  for (const name in names) if (names[name] === value) return name;
  throw new Error(`no name is stored for ${value}`);
}

/** The roles of a person by account. One that only a newer program knows is left out. */
function readRoles(json: Json): GivenRoles["accounts"] {
  const names = new Map<unknown, AccountRole>(Object.entries(rolesByName));
  return new Map(
    Object.entries(Object(json)).flatMap(([accountId, name]) => {
      const role = names.get(name);
      return role === undefined ? [] : [[accountId, role] as const];
    }),
  );
}

/** The facts of a mail or an audit event, by name. */
export function readFacts(json: Json): Record<string, string> {
  const facts = Object.entries(Object(json)).map(([name, fact]) => [name, String(fact)] as const);
  return Object.fromEntries(facts);
}

const toBytes = (digest: string) => Buffer.from(digest, "base64");

const toTimestamp = (date: Date | null | undefined) => (date ? timestampFromDate(date) : undefined);

function toPerson(row: sql.LockPersonRow & Partial<sql.FindPersonRow>): Person {
  return create(PersonSchema, {
    ...row,
    name: shownName(row.name),
    operatorRole: operatorsByName[row.operator],
    createdAt: timestampFromDate(row.createdAt),
    disabledAt: toTimestamp(row.disabledAt),
    lastSeenAt: toTimestamp(row.lastSeenAt),
    email: row.email ?? "",
  });
}

function toPasskey(row: sql.InsertPasskeyRow): Passkey {
  return create(PasskeySchema, {
    ...row,
    name: shownName(row.name),
    createdAt: timestampFromDate(row.createdAt),
    lastUsedAt: toTimestamp(row.usedAt),
  });
}

function toLink({ accountId, role, email, ...row }: sql.FindLinkRow): OpenLink {
  const isOfAccount = accountId !== null && role !== null;
  return {
    ...row,
    member: isOfAccount ? { accountId, role: rolesByName[role] } : undefined,
    email: email ?? undefined,
  };
}

function toInvitation(row: sql.InsertLinkRow & Partial<sql.ListInvitationsRow>): Invitation {
  return create(InvitationSchema, {
    ...row,
    createdBy: toActor(row.createdBy),
    role: row.role ? rolesByName[row.role] : AccountRole.UNSPECIFIED,
    createdAt: timestampFromDate(row.createdAt),
    expiresAt: timestampFromDate(row.endsAt),
    email: row.email ?? "",
    mailState: row.mail ? mailStates[row.mail] : MailState.NONE,
    mailProblem: row.mailProblem ?? "",
  });
}

function toAdminToken(row: sql.ListAdminTokensRow): AdminToken {
  return create(AdminTokenSchema, {
    ...row,
    createdBy: toActor(row.createdBy),
    scope: scopesByName[row.scope],
    createdAt: timestampFromDate(row.createdAt),
    lastUsedAt: toTimestamp(row.lastUsedAt),
    revokedAt: toTimestamp(row.revokedAt),
  });
}
