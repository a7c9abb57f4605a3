// The tables of people. The only file that runs this folder's statements and reads their rows.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type AdminToken,
  AdminTokenSchema,
  type AuditEvent,
  AuditEventSchema,
  type Invitation,
  InvitationSchema,
  LinkPurpose,
  MailState,
  type Member,
  MemberSchema,
  type Passkey,
  PasskeySchema,
  type Person,
  type PersonAccount,
  PersonAccountSchema,
  PersonSchema,
  type Session,
  SessionSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import type { ChangePage } from "../base/change-feed.ts";
import { ApiError } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { TimeCursor } from "../base/paging.ts";
import type { Found } from "../base/secret-cache.ts";
import type { AuditFacts, Membership } from "../contract/contract.ts";
import {
  isUnreachable,
  type Postgres,
  type Statement,
  statement,
  type Tx,
} from "../postgres/postgres.ts";

// A database that does not answer within this time counts as unreachable.
const answerMsMax = 5_000;

const timed = (file: string): Statement => ({
  ...statement(import.meta.url, file),
  timeoutMs: answerMsMax,
});

const statements = {
  findAdminTokens: timed("find-admin-tokens"),
  insertAdminToken: timed("insert-admin-token"),
  listAdminTokens: timed("list-admin-tokens"),
  revokeAdminToken: timed("revoke-admin-token"),
  lockAdminToken: timed("lock-admin-token"),
  insertSession: timed("insert-session"),
  findSessions: timed("find-sessions"),
  findMethod: timed("find-method"),
  endSession: timed("end-session"),
  endSessions: timed("end-sessions"),
  endSessionsOfPasskey: timed("end-sessions-of-passkey"),
  deleteSessions: timed("delete-sessions"),
  listSessions: timed("list-sessions"),
  confirmSession: timed("confirm-session"),
  claimCleaning: timed("claim-cleaning"),
  removeSessions: timed("remove-sessions"),
  removeAddresses: timed("remove-addresses"),
  insertChange: timed("insert-change"),
  readChanges: timed("read-changes"),
  removeChanges: timed("remove-changes"),
  insertPerson: timed("insert-person"),
  lockPerson: timed("lock-person"),
  findPerson: timed("find-person"),
  listPeople: timed("list-people"),
  updatePerson: timed("update-person"),
  setEmail: timed("set-email"),
  deletePerson: timed("delete-person"),
  lockOperators: timed("lock-operators"),
  hasOperator: timed("has-operator"),
  findLogin: timed("find-login"),
  findPassword: timed("find-password"),
  putPassword: timed("put-password"),
  deletePassword: timed("delete-password"),
  insertPasskey: timed("insert-passkey"),
  findPasskey: timed("find-passkey"),
  usePasskey: timed("use-passkey"),
  listPasskeys: timed("list-passkeys"),
  deletePasskey: timed("delete-passkey"),
  deletePasskeys: timed("delete-passkeys"),
  countWaysIn: timed("count-ways-in"),
  insertIdentity: timed("insert-identity"),
  findIdentity: timed("find-identity"),
  useIdentity: timed("use-identity"),
  listIdentities: timed("list-identities"),
  deleteIdentity: timed("delete-identity"),
  deleteIdentities: timed("delete-identities"),
  findAddress: timed("find-address"),
  spendChallenge: timed("spend-challenge"),
  removeChallenges: timed("remove-challenges"),
  readWaits: timed("read-waits"),
  countAttempts: timed("count-attempts"),
  forgiveAttempt: timed("forgive-attempt"),
  removeFailures: timed("remove-failures"),
  insertMail: timed("insert-mail"),
  countMails: timed("count-mails"),
  claimMails: timed("claim-mails"),
  settleMail: timed("settle-mail"),
  removeMails: timed("remove-mails"),
  deleteMails: timed("delete-mails"),
  renewLink: timed("renew-link"),
  insertLink: timed("insert-link"),
  findLink: timed("find-link"),
  useLink: timed("use-link"),
  endLinks: timed("end-links"),
  deleteLinks: timed("delete-links"),
  endLinksOfMaker: timed("end-links-of-maker"),
  endInvitation: timed("end-invitation"),
  listInvitations: timed("list-invitations"),
  countInvitations: timed("count-invitations"),
  findAccount: timed("find-account"),
  lockMembers: timed("lock-members"),
  lockOwner: timed("lock-owner"),
  putMember: timed("put-member"),
  updateMember: timed("update-member"),
  deleteMember: timed("delete-member"),
  listMembers: timed("list-members"),
  listOwners: timed("list-owners"),
  listAccountsOfPerson: timed("list-accounts-of-person"),
  listSignIns: timed("list-sign-ins"),
  listRecipients: timed("list-recipients"),
  insertAuditEvent: timed("insert-audit-event"),
  listAuditEvents: timed("list-audit-events"),
  readInstallation: timed("read-installation"),
  claimAccount: timed("claim-account"),
  claimChallengeSecret: timed("claim-challenge-secret"),
};

/** An admin token, as it authenticates calls. */
export type FoundAdminToken = Found & {
  readonly name: string;
  readonly scope: AdminScope;
  readonly isRevoked: boolean;
};

/** Who owns an account. */
export type Owners = {
  /** The first three, in the order of their logins. */
  readonly first: readonly {
    readonly personId: string;
    readonly login: string;
    readonly name: string;
  }[];
  /** All of them. */
  readonly count: number;
};

export type NewAdminToken = {
  readonly digest: Buffer;
  readonly name: string;
  readonly scope: AdminScope;
  readonly hint: string;
  readonly createdBy: string;
};

/** How a person proved who he is at a sign-in. */
export type SignInMethod = "passkey" | "password" | "oidc";

/** An open session, as it authenticates calls. */
export type FoundSession = Found & {
  readonly sessionId: string;
  readonly method: SignInMethod;
  readonly operator: OperatorRole;
  readonly memberships: readonly Membership[];
  readonly strongUntil: Date;
};

export type NewSession = {
  readonly digest: Buffer;
  readonly sessionId: string;
  readonly personId: string;
  readonly method: SignInMethod;
  /** The passkey that begins it. */
  readonly passkeyId: string | undefined;
  readonly lifetimeMs: number;
  readonly strongMs: number;
  readonly address: string;
  readonly agent: string;
};

/** A passkey, as it verifies an answer. */
export type StoredPasskey = {
  readonly credentialId: string;
  readonly personId: string;
  readonly publicKey: Uint8Array<ArrayBuffer>;
  readonly counter: number;
};

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

export type StoredIdentity = {
  readonly identityId: string;
  readonly issuer: string;
  readonly createdAt: Date;
  readonly usedAt: Date;
};

export type LinkKind = "owner" | "invitation" | "recovery" | "sign_up" | "email";

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
  readonly digest: Buffer;
  readonly purpose: LinkKind;
  readonly personId: string;
  readonly member: Membership | undefined;
  readonly login: string;
  /** The address to which alone it is sent. */
  readonly email: string | undefined;
  readonly madeBy: string;
  readonly lifetimeMs: number;
};

export type MailKind =
  | "email"
  | "email_changed"
  | "invitation"
  | "recovered"
  | "recovery"
  | "sign_up";
/** What the text of a mail names. Never a secret. */
export type MailFacts = Readonly<Record<string, string>>;

export type NewMail = {
  readonly kind: MailKind;
  readonly address: string;
  /** Undefined: the mail has no link. */
  readonly linkId?: string;
  readonly facts: MailFacts;
  /** How long it is tried. */
  readonly lifetimeMs: number;
};

/** A mail that this process has to send. */
export type DueMail = Pick<NewMail, "kind" | "address" | "linkId" | "facts"> & {
  readonly mailId: string;
  /** This one included. */
  readonly attempts: number;
};

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
  readonly kind: "pair" | "network" | "login";
};

export type CountedAttempt = {
  readonly kind: AttemptSubject["kind"];
  readonly failures: number;
  /** False: the subject has to wait, and was not counted. */
  readonly counted: boolean;
  readonly waitMs: number;
};

export type AuditQuery = {
  /** Undefined: of all accounts and of none. */
  readonly accountId: string | undefined;
  readonly actor: string | undefined;
  readonly method: string | undefined;
  readonly from: Date | undefined;
  readonly to: Date | undefined;
};

/** A session that began, of a person who has had others. */
export type SignIn = {
  readonly sessionId: string;
  readonly personId: string;
  readonly login: string;
  readonly address: string;
  readonly agent: string;
  readonly at: Date;
  /** The addresses of the earlier sessions that are kept. */
  readonly earlier: readonly string[];
  readonly accountIds: readonly string[];
};

/** Who gets mails about an account. */
export type Recipient = {
  /** Empty: the recipient is an operator admin. */
  readonly accountId: string;
  readonly personId: string;
  readonly address: string;
};

export type NewAuditEvent = {
  readonly at: Date;
  readonly actor: string;
  readonly accountId: string;
  readonly method: string;
  readonly outcome: string;
  readonly facts: AuditFacts;
  readonly address: string;
};

/** The functions of the store that run in one transaction, or each in its own. */
export type PeopleTables = ReturnType<typeof tablesOn>;

export type PeopleStore = PeopleTables & {
  /** The same functions in a transaction of another service. */
  on(tx: Tx): PeopleTables;
  /** Runs `work` in one transaction. Repeats it after a conflict. */
  transaction<T>(work: (tables: PeopleTables, tx: Tx) => Promise<T>): Promise<T>;
};

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createPeopleStore(postgres: Postgres): PeopleStore {
  return {
    ...tablesOn(postgres),
    on: tablesOn,
    transaction: (work) =>
      postgres.transaction((tx) => work(tablesOn(tx), tx)).catch((cause: unknown) => fail(cause)),
  };
}

function fail(cause: unknown): never {
  throw isUnreachable(cause)
    ? new ApiError("database_unavailable", { retryAfterMs: 1000, cause })
    : cause;
}

function tablesOn(db: Tx) {
  const query = <Row>(one: Statement, values: readonly unknown[]): Promise<Row[]> =>
    db.query<Row>(one, values).catch((cause: unknown) => fail(cause));
  const first = async <Row>(one: Statement, values: readonly unknown[]) =>
    (await query<Row>(one, values))[0];
  const didChange = async (one: Statement, values: readonly unknown[]) =>
    (await query(one, values)).length > 0;
  const run = async (one: Statement, values: readonly unknown[]) => void (await query(one, values));

  return {
    // Sessions.

    async insertSession(session: NewSession): Promise<Date> {
      const { digest, sessionId, personId, method, lifetimeMs, strongMs } = session;
      const { address, agent, passkeyId = null } = session;
      const values = [
        ...[digest, sessionId, personId, method, lifetimeMs, strongMs],
        ...[address, agent, passkeyId],
      ];
      return only(await query<{ ends_at: Date }>(statements.insertSession, values)).ends_at;
    },
    /** The open sessions with these digests, whose use it records. */
    async findSessions(digests: readonly string[], idleMsMax: number): Promise<FoundSession[]> {
      const bytes = digests.map((digest) => Buffer.from(digest, "base64"));
      const rows = await query<SessionRow>(statements.findSessions, [bytes, idleMsMax]);
      return rows.map(toFoundSession);
    },
    /** Undefined: the session ended. */
    async findMethod(sessionId: string): Promise<SignInMethod | undefined> {
      return (await first<{ method: SignInMethod }>(statements.findMethod, [sessionId]))?.method;
    },
    endSession: (personId: string, sessionId: string) =>
      didChange(statements.endSession, [personId, sessionId]),
    endSessions: (personId: string, butSessionId?: string) =>
      run(statements.endSessions, [personId, butSessionId ?? null]),
    endSessionsOfPasskey: (personId: string, passkeyId: string, butSessionId: string) =>
      run(statements.endSessionsOfPasskey, [personId, passkeyId, butSessionId]),
    deleteSessions: (personId: string) => run(statements.deleteSessions, [personId]),
    async listSessions(personId: string, idleMsMax: number, current: string): Promise<Session[]> {
      const rows = await query<OpenSessionRow>(statements.listSessions, [personId, idleMsMax]);
      return rows.map((row) => toSession(row, current));
    },
    /** Undefined: the session ended. */
    async confirmSession(sessionId: string, strongMs: number): Promise<Date | undefined> {
      const values = [sessionId, strongMs];
      const row = await first<{ strong_until: Date }>(statements.confirmSession, values);
      return row?.strong_until;
    },

    // Changes.

    /** `subjectId`: of a person or an admin token. */
    insertChange: (subjectId: string) =>
      run(statements.insertChange, [timeOrderedId("chg_"), subjectId]),
    async readChanges(since: Date | undefined): Promise<ChangePage> {
      const rows = await query<ChangeRow>(statements.readChanges, [since ?? null]);
      return {
        at: rows[0]?.read_at ?? since ?? new Date(),
        changes: rows.flatMap(({ change_id, subject_id }) =>
          change_id === null || subject_id === null
            ? []
            : [{ changeId: change_id, id: subject_id }],
        ),
      };
    },
    /** Deletes rows that have no effect any more. */
    async clean(): Promise<void> {
      await run(statements.removeChanges, []);
      await run(statements.removeChallenges, []);
      await run(statements.removeFailures, []);
      await run(statements.removeMails, []);
    },

    // Alerts.

    /** The sign-ins since ten seconds before a time, oldest first. */
    async listSignIns(since: Date, limit: number): Promise<SignIn[]> {
      const rows = await query<SignInRow>(statements.listSignIns, [since, limit]);
      return rows.map((row) => ({
        sessionId: row.session_id,
        personId: row.person_id,
        login: row.login ?? "",
        address: row.address,
        agent: row.agent,
        at: row.made_at,
        earlier: row.earlier,
        accountIds: row.account_ids,
      }));
    },
    /** The owners of accounts and these members; operator admins for the account ''. */
    async listRecipients(
      accountIds: readonly string[],
      personIds: readonly string[],
    ): Promise<Recipient[]> {
      const rows = await query<{ account_id: string; person_id: string; email: string }>(
        statements.listRecipients,
        [accountIds, personIds],
      );
      return rows.map((row) => ({
        accountId: row.account_id,
        personId: row.person_id,
        address: row.email,
      }));
    },

    // What is kept for a while only.

    /** False: another process took it on within the last day. */
    claimCleaning: () => didChange(statements.claimCleaning, []),
    /** Returns how many sessions it removed that ended so long ago. `limit`: there may be more. */
    async removeSessions(days: number, idleMsMax: number, limit: number): Promise<number> {
      return (await query(statements.removeSessions, [days, idleMsMax, limit])).length;
    },
    /** Returns of how many audit events it removed the address. */
    async removeAddresses(days: number, limit: number): Promise<number> {
      return (await query(statements.removeAddresses, [days, limit])).length;
    },

    // People.

    /** False: the login is taken. */
    insertPerson: (person: {
      personId: string;
      login: string;
      name: string;
      /** A confirmed address. */
      email: string | undefined;
      isAdmin: boolean;
    }) =>
      didChange(statements.insertPerson, [
        ...[person.personId, person.login, person.name],
        ...[person.isAdmin ? "admin" : "none", person.email ?? null],
      ]),
    /** Locks the person until the end of the transaction. */
    async lockPerson(personId: string): Promise<Person | undefined> {
      const row = await first<PersonRow>(statements.lockPerson, [personId]);
      return row && toPerson(row);
    },
    async findPerson(personId: string): Promise<Person | undefined> {
      const row = await first<PersonRow>(statements.findPerson, [personId]);
      return row && toPerson(row);
    },
    async listPeople(text: string, afterLogin: string, limit: number): Promise<Person[]> {
      const rows = await query<PersonRow>(statements.listPeople, [text, afterLogin, limit]);
      return rows.map(toPerson);
    },
    updatePerson: (personId: string, operator: OperatorRole, isDisabled: boolean) =>
      run(statements.updatePerson, [personId, nameIn(operatorsByName, operator), isDisabled]),
    /** `email` undefined: the person has no address. Otherwise it is confirmed. */
    setEmail: (personId: string, email: string | undefined) =>
      run(statements.setEmail, [personId, email ?? null]),
    /** Leaves only the id. */
    deletePerson: (personId: string) => run(statements.deletePerson, [personId]),
    /** The ids of the operator admins who may sign in, locked. */
    async lockOperators(): Promise<string[]> {
      const rows = await query<{ person_id: string }>(statements.lockOperators, []);
      return rows.map(({ person_id }) => person_id);
    },
    hasOperator: () => didChange(statements.hasOperator, []),

    // Ways in.

    /** The person with this login who may sign in. */
    async findLogin(login: string): Promise<{ personId: string; hash?: string } | undefined> {
      const row = await first<{ person_id: string; hash: string | null }>(statements.findLogin, [
        login,
      ]);
      return row && { personId: row.person_id, ...(row.hash !== null && { hash: row.hash }) };
    },
    async findPasswordHash(personId: string): Promise<string | undefined> {
      return (await first<{ hash: string }>(statements.findPassword, [personId]))?.hash;
    },
    putPassword: (personId: string, hash: string) => run(statements.putPassword, [personId, hash]),
    deletePassword: (personId: string) => didChange(statements.deletePassword, [personId]),
    /** Undefined: the credential exists. */
    async insertPasskey(passkey: StoredPasskey & { name: string }): Promise<Passkey | undefined> {
      const { credentialId, personId, publicKey, counter, name } = passkey;
      const id = timeOrderedId("pky_");
      const values = [credentialId, id, personId, Buffer.from(publicKey), counter, name];
      const row = await first<PasskeyRow>(statements.insertPasskey, values);
      return row && toPasskey(row);
    },
    async findPasskey(credentialId: string): Promise<StoredPasskey | undefined> {
      const row = await first<StoredPasskeyRow>(statements.findPasskey, [credentialId]);
      return (
        row && {
          credentialId: row.credential_id,
          personId: row.person_id,
          publicKey: new Uint8Array(row.public_key),
          counter: Number(row.counter),
        }
      );
    },
    /** The id of the passkey. Undefined: it was removed. */
    async usePasskey(credentialId: string, counter: number): Promise<string | undefined> {
      const values = [credentialId, counter];
      return (await first<{ passkey_id: string }>(statements.usePasskey, values))?.passkey_id;
    },
    async listPasskeys(personId: string): Promise<Passkey[]> {
      return (await query<PasskeyRow>(statements.listPasskeys, [personId])).map(toPasskey);
    },
    async listCredentialIds(personId: string): Promise<string[]> {
      const rows = await query<{ credential_id: string }>(statements.listPasskeys, [personId]);
      return rows.map(({ credential_id }) => credential_id);
    },
    deletePasskey: (personId: string, passkeyId: string) =>
      didChange(statements.deletePasskey, [personId, passkeyId]),
    deletePasskeys: (personId: string) => run(statements.deletePasskeys, [personId]),
    /** `issuers`: of the providers at which people can sign in. */
    async countWaysIn(personId: string, issuers: readonly string[]): Promise<number> {
      const values = [personId, issuers];
      return only(await query<{ ways: number }>(statements.countWaysIn, values)).ways;
    },
    /** False: the identity belongs to somebody. */
    insertIdentity: (personId: string, { issuer, subject }: IdentityName) =>
      didChange(statements.insertIdentity, [issuer, subject, timeOrderedId("idn_"), personId]),
    async findIdentity({ issuer, subject }: IdentityName): Promise<FoundIdentity | undefined> {
      const row = await first<IdentityRow>(statements.findIdentity, [issuer, subject]);
      return (
        row && {
          identityId: row.identity_id,
          personId: row.person_id,
          operator: operatorsByName[row.operator],
          accounts: new Map(
            Object.entries(row.accounts).map(([id, role]) => [id, rolesByName[role]]),
          ),
        }
      );
    },
    /** False: the identity was removed. */
    useIdentity: (
      { identityId, personId }: Pick<FoundIdentity, "identityId" | "personId">,
      { operator, accounts }: GivenRoles,
    ) =>
      didChange(statements.useIdentity, [
        ...[identityId, personId, nameIn(operatorsByName, operator)],
        JSON.stringify(
          Object.fromEntries([...accounts].map(([id, role]) => [id, nameIn(rolesByName, role)])),
        ),
      ]),
    async listIdentities(personId: string): Promise<StoredIdentity[]> {
      const rows = await query<StoredIdentityRow>(statements.listIdentities, [personId]);
      return rows.map((row) => ({
        identityId: row.identity_id,
        issuer: row.issuer,
        createdAt: row.created_at,
        usedAt: row.used_at,
      }));
    },
    deleteIdentity: (personId: string, identityId: string) =>
      didChange(statements.deleteIdentity, [personId, identityId]),
    deleteIdentities: (personId: string) => run(statements.deleteIdentities, [personId]),
    /** True if somebody has this address, or signs in with it. */
    isAddressKnown: (address: string) => didChange(statements.findAddress, [address]),
    /** False: the challenge was answered before. */
    spendChallenge: (digest: Buffer, lifetimeMs: number) =>
      didChange(statements.spendChallenge, [digest, lifetimeMs]),

    // Guessing.

    /** Milliseconds until none of the subjects has to wait. */
    async readWaitMs(digests: readonly Buffer[]): Promise<number> {
      const row = await first<{ wait_ms: number }>(statements.readWaits, [digests]);
      return row?.wait_ms ?? 0;
    },
    async countAttempts(subjects: readonly AttemptSubject[]): Promise<CountedAttempt[]> {
      const ordered = subjects.toSorted((one, other) => Buffer.compare(one.digest, other.digest));
      const rows = await query<AttemptRow>(statements.countAttempts, [
        ordered.map(({ digest }) => digest),
        ordered.map(({ kind }) => kind),
      ]);
      return rows.map(({ wait_ms, ...row }) => ({ ...row, waitMs: wait_ms }));
    },
    forgiveAttempt: (digests: readonly Buffer[]) => run(statements.forgiveAttempt, [digests]),

    // Links.

    async insertLink(link: NewLink): Promise<Invitation> {
      const values = [
        ...[link.digest, timeOrderedId("lnk_"), link.purpose, link.personId],
        ...[
          link.member?.accountId ?? null,
          link.member ? nameIn(rolesByName, link.member.role) : null,
        ],
        ...[link.login, link.madeBy, link.lifetimeMs, link.email ?? null],
      ];
      return toInvitation(only(await query<InvitationRow>(statements.insertLink, values)));
    },
    async findLink(digest: Buffer): Promise<OpenLink | undefined> {
      const row = await first<LinkRow>(statements.findLink, [digest]);
      return row && toLink(row);
    },
    /** Undefined: the link is wrong, used or expired. Only one caller gets it. */
    async useLink(digest: Buffer): Promise<OpenLink | undefined> {
      const row = await first<LinkRow>(statements.useLink, [digest]);
      return row && toLink(row);
    },
    /** `personId` undefined: the links of everybody. */
    endLinks: (purpose: LinkKind, personId?: string) =>
      run(statements.endLinks, [purpose, personId ?? null]),
    /** The links to a person, and those that propose a login. */
    deleteLinks: (personId: string, login: string) =>
      run(statements.deleteLinks, [personId, login]),
    /** The mails to a person, who has this login and this address. Call before `deleteLinks`. */
    deleteMails: (personId: string, login: string, email: string) =>
      run(statements.deleteMails, [personId, [login, email]]),
    /** Of a person who may make no more. `accountId` undefined: the links to everything. */
    endLinksOfMaker: (personId: string, accountId?: string) =>
      run(statements.endLinksOfMaker, [`person:${personId}`, accountId ?? null]),
    endInvitation: (accountId: string, linkId: string) =>
      didChange(statements.endInvitation, [accountId, linkId]),
    async listInvitations(accountId: string): Promise<Invitation[]> {
      const rows = await query<InvitationRow>(statements.listInvitations, [accountId]);
      return rows.map(toInvitation);
    },
    /** The invitations of the last 24 hours, and when the next one becomes free. */
    async countInvitations(accountId: string): Promise<{ made: number; resetsAt: Date | null }> {
      const row = only(
        await query<{ made: number; resets_at: Date | null }>(statements.countInvitations, [
          accountId,
        ]),
      );
      return { made: row.made, resetsAt: row.resets_at };
    },

    /** False: the link was used, or it has ended. */
    renewLink: (linkId: string, digest: Buffer) =>
      didChange(statements.renewLink, [linkId, digest]),

    // Mail.

    insertMail: ({ kind, address, linkId, facts, lifetimeMs }: NewMail) =>
      run(statements.insertMail, [
        ...[timeOrderedId("mal_"), kind, address, linkId ?? null],
        ...[JSON.stringify(facts), lifetimeMs],
      ]),
    /** Of the last 24 hours. */
    async countMails(address: string, kind: MailKind): Promise<number> {
      return only(await query<{ made: number }>(statements.countMails, [address, kind])).made;
    },
    /** Mails that are due, which no other process sends for the next two minutes. */
    async claimMails(limit: number): Promise<DueMail[]> {
      const rows = await query<MailRow>(statements.claimMails, [limit]);
      return rows.map(({ mail_id, link_id, ...row }) => ({
        ...row,
        mailId: mail_id,
        ...(link_id !== null && { linkId: link_id }),
      }));
    },
    /** `waitMs`: until the next attempt, of a mail that waits. */
    settleMail: (mailId: string, state: MailStateName, problem: string, waitMs: number) =>
      run(statements.settleMail, [mailId, state, problem, waitMs]),

    // Members.

    async findAccountName(accountId: string): Promise<string | undefined> {
      return (await first<{ name: string }>(statements.findAccount, [accountId]))?.name;
    },
    /** True for an account that was closed, which is for good. */
    async isAccountClosed(accountId: string): Promise<boolean> {
      const account = await first<{ status: string }>(statements.findAccount, [accountId]);
      return account?.status === "closed";
    },
    /** The name of an account. Throws `not_found`, `account_suspended` and `account_closed`. */
    async findOpenAccount(accountId: string): Promise<string> {
      const account = await first<{ name: string; status: string }>(statements.findAccount, [
        accountId,
      ]);
      if (!account)
        throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
      if (account.status === "suspended") throw new ApiError("account_suspended");
      if (account.status === "closed") throw new ApiError("account_closed");
      return account.name;
    },
    /** False: the person does not own the account. Otherwise he does until the transaction ends. */
    lockOwner: (accountId: string, personId: string) =>
      didChange(statements.lockOwner, [accountId, personId]),
    /** The members of an account, locked. */
    async lockMembers(accountId: string): Promise<LockedMember[]> {
      const rows = await query<LockedMemberRow>(statements.lockMembers, [accountId]);
      return rows.map(({ person_id, role, enabled }) => ({
        ...{ personId: person_id, role: rolesByName[role], enabled },
      }));
    },
    putMember: (personId: string, { accountId, role }: Membership) =>
      run(statements.putMember, [accountId, personId, nameIn(rolesByName, role)]),
    updateMember: (personId: string, { accountId, role }: Membership) =>
      run(statements.updateMember, [accountId, personId, nameIn(rolesByName, role)]),
    deleteMember: (accountId: string, personId: string) =>
      run(statements.deleteMember, [accountId, personId]),
    async listMembers(accountId: string, onlyPersonId?: string): Promise<Member[]> {
      const values = [accountId, onlyPersonId ?? null];
      return (await query<MemberRow>(statements.listMembers, values)).map(toMember);
    },
    /** The owners of accounts, at most three of each. */
    async listOwners(accountIds: readonly string[]): Promise<ReadonlyMap<string, Owners>> {
      const rows = await query<{
        account_id: string;
        person_id: string;
        login: string;
        name: string;
        owners: number;
      }>(statements.listOwners, [accountIds]);
      const byAccount = Map.groupBy(rows, ({ account_id }) => account_id);
      return new Map(
        [...byAccount].map(([accountId, [first, ...others]]) => [
          accountId,
          {
            count: first?.owners ?? 0,
            first: [...(first ? [first] : []), ...others].map(({ person_id, login, name }) => ({
              ...{ personId: person_id, login, name },
            })),
          },
        ]),
      );
    },
    async listAccounts(personId: string): Promise<PersonAccount[]> {
      const rows = await query<AccountRow>(statements.listAccountsOfPerson, [personId]);
      return rows.map((row) =>
        create(PersonAccountSchema, {
          accountId: row.account_id,
          name: row.name,
          role: rolesByName[row.role],
          suspended: row.status === "suspended",
          closed: row.status === "closed",
          statusReason: row.status_reason,
        }),
      );
    },

    // Administrative acts.

    insertAuditEvent: (event: NewAuditEvent) =>
      run(statements.insertAuditEvent, [
        ...[timeOrderedId("aud_"), event.at, event.actor, event.accountId, event.method],
        ...[event.outcome, JSON.stringify(event.facts), event.address],
      ]),
    async listAuditEvents(
      filter: AuditQuery,
      before: TimeCursor | undefined,
      limit: number,
    ): Promise<AuditEvent[]> {
      const rows = await query<AuditRow>(statements.listAuditEvents, [
        ...[filter.accountId ?? null, filter.actor ?? null, filter.method ?? null],
        ...[filter.from ?? null, filter.to ?? null, before?.at ?? null, before?.id ?? null, limit],
      ]);
      return rows.map(toAuditEvent);
    },

    // Admin tokens.

    /** The admin tokens with these digests, whose use it records. */
    async findAdminTokens(digests: readonly string[]): Promise<FoundAdminToken[]> {
      const bytes = digests.map((digest) => Buffer.from(digest, "base64"));
      const rows = await query<FoundTokenRow>(statements.findAdminTokens, [bytes]);
      return rows.map((row) => ({
        digest: row.digest.toString("base64"),
        ownerId: row.token_id,
        expiresInMs: undefined,
        name: row.name,
        scope: scopesByName[row.scope],
        isRevoked: row.is_revoked,
      }));
    },
    /** Undefined: the name is or was in use. */
    async insertAdminToken(token: NewAdminToken): Promise<AdminToken | undefined> {
      const { digest, name, scope, hint, createdBy } = token;
      const scopeName = nameIn(scopesByName, scope);
      const values = [digest, timeOrderedId("tok_"), name, scopeName, hint, createdBy];
      const row = await first<TokenRow>(statements.insertAdminToken, values);
      return row && toAdminToken(row);
    },
    async listAdminTokens(afterId: string, limit: number): Promise<AdminToken[]> {
      const rows = await query<TokenRow>(statements.listAdminTokens, [afterId, limit]);
      return rows.map(toAdminToken);
    },
    async revokeAdminToken(tokenId: string): Promise<AdminToken | undefined> {
      const row = await first<TokenRow>(statements.revokeAdminToken, [tokenId]);
      return row && toAdminToken(row);
    },
    /** False: the token is revoked. Otherwise it stays good until the end of the transaction. */
    lockAdminToken: (tokenId: string) => didChange(statements.lockAdminToken, [tokenId]),

    // This installation.

    /** The account of the first start. Undefined: no start has made one. */
    async findFirstAccount(): Promise<string | undefined> {
      const row = await first<InstallationRow>(statements.readInstallation, []);
      return row?.account_id ?? undefined;
    },
    async claimFirstAccount(accountId: string): Promise<string> {
      return only(await query<{ account_id: string }>(statements.claimAccount, [accountId]))
        .account_id;
    },
    /** The secret that signs challenges: `proposed` becomes it if there is none. */
    async claimChallengeSecret(proposed: Buffer): Promise<Buffer> {
      const rows = await query<{ challenge_secret: Buffer }>(statements.claimChallengeSecret, [
        proposed,
      ]);
      return only(rows).challenge_secret;
    },
  };
}

type SessionRow = {
  digest: Buffer;
  session_id: string;
  person_id: string;
  method: SignInMethod;
  strong_until: Date;
  operator: OperatorName;
  ends_in_ms: number;
  account_ids: string[];
  roles: RoleName[];
};
type OpenSessionRow = {
  session_id: string;
  made_at: Date;
  used_at: Date;
  ends_at: Date;
  address: string;
  agent: string;
};
type ChangeRow = { read_at: Date; change_id: string | null; subject_id: string | null };
type PersonRow = {
  person_id: string;
  login: string;
  name: string;
  operator: OperatorName;
  email: string | null;
  created_at: Date;
  disabled_at: Date | null;
  last_seen_at?: Date | null;
};
type PasskeyRow = { passkey_id: string; name: string; created_at: Date; used_at: Date | null };
type StoredPasskeyRow = {
  credential_id: string;
  person_id: string;
  public_key: Buffer;
  counter: bigint;
};
type AttemptRow = {
  kind: AttemptSubject["kind"];
  failures: number;
  counted: boolean;
  wait_ms: number;
};
type IdentityRow = {
  identity_id: string;
  person_id: string;
  operator: OperatorName;
  accounts: Record<string, RoleName>;
};
type StoredIdentityRow = {
  identity_id: string;
  issuer: string;
  created_at: Date;
  used_at: Date;
};
type LinkRow = {
  link_id: string;
  purpose: LinkKind;
  person_id: string;
  account_id: string | null;
  role: RoleName | null;
  login: string;
  ends_at: Date;
  email: string | null;
};
type InvitationRow = {
  link_id: string;
  role: RoleName | null;
  login: string;
  made_by: string;
  made_at: Date;
  ends_at: Date;
  email: string | null;
  mail?: MailStateName | null;
  mail_problem?: string | null;
};
type MailRow = {
  mail_id: string;
  kind: MailKind;
  address: string;
  link_id: string | null;
  facts: MailFacts;
  attempts: number;
};
type MemberRow = {
  person_id: string;
  login: string;
  name: string;
  role: RoleName;
  joined_at: Date;
  last_seen_at: Date | null;
};
type LockedMemberRow = { person_id: string; role: RoleName; enabled: boolean };
type AccountRow = {
  account_id: string;
  name: string;
  role: RoleName;
  status: "active" | "suspended" | "closed";
  status_reason: string;
};
type AuditRow = {
  event_id: string;
  at: Date;
  actor: string;
  account_id: string;
  method: string;
  outcome: string;
  facts: Record<string, string>;
  address: string;
};
type FoundTokenRow = {
  digest: Buffer;
  token_id: string;
  name: string;
  scope: ScopeName;
  is_revoked: boolean;
};
type TokenRow = {
  token_id: string;
  name: string;
  scope: ScopeName;
  shown: string;
  created_by: string;
  created_at: Date;
  used_at: Date | null;
  revoked_at: Date | null;
};
type InstallationRow = { account_id: string | null };

type RoleName = keyof typeof rolesByName;
const rolesByName = {
  viewer: AccountRole.VIEWER,
  member: AccountRole.MEMBER,
  owner: AccountRole.OWNER,
} as const;
type OperatorName = keyof typeof operatorsByName;
const operatorsByName = {
  none: OperatorRole.UNSPECIFIED,
  support: OperatorRole.SUPPORT,
  admin: OperatorRole.ADMIN,
} as const;

type MailStateName = keyof typeof mailStates;
const mailStates = {
  waiting: MailState.WAITING,
  sent: MailState.SENT,
  failed: MailState.FAILED,
} as const;

type ScopeName = keyof typeof scopesByName;
const scopesByName = {
  read: AdminScope.READ,
  keys: AdminScope.KEYS,
  money: AdminScope.MONEY,
  all: AdminScope.ALL,
} as const;

/** The name under which a table stores `value`. */
function nameIn<T>(names: Readonly<Record<string, T>>, value: T): string {
  const name = Object.entries(names).find(([, one]) => one === value)?.[0];
  if (name === undefined) throw new Error(`no name is stored for ${value}`);
  return name;
}

export const purposeOf = {
  owner: LinkPurpose.OWNER,
  invitation: LinkPurpose.INVITATION,
  recovery: LinkPurpose.RECOVERY,
  sign_up: LinkPurpose.SIGN_UP,
  email: LinkPurpose.EMAIL,
} as const;

function only<T>(rows: readonly T[]): T {
  const [row] = rows;
  if (row === undefined) throw new Error("the statement returned no row");
  return row;
}

function toFoundSession(row: SessionRow): FoundSession {
  return {
    digest: row.digest.toString("base64"),
    ownerId: row.person_id,
    expiresInMs: row.ends_in_ms,
    sessionId: row.session_id,
    method: row.method,
    operator: operatorsByName[row.operator],
    memberships: row.account_ids.flatMap((accountId, index) => {
      const role = row.roles[index];
      return role ? [{ accountId, role: rolesByName[role] }] : [];
    }),
    strongUntil: row.strong_until,
  };
}

function toSession(row: OpenSessionRow, current: string): Session {
  return create(SessionSchema, {
    sessionId: row.session_id,
    createdAt: timestampFromDate(row.made_at),
    usedAt: timestampFromDate(row.used_at),
    endsAt: timestampFromDate(row.ends_at),
    address: row.address,
    agent: row.agent,
    current: row.session_id === current,
  });
}

function toPerson(row: PersonRow): Person {
  return create(PersonSchema, {
    personId: row.person_id,
    login: row.login,
    name: row.name,
    operator: operatorsByName[row.operator],
    createdAt: timestampFromDate(row.created_at),
    ...(row.disabled_at && { disabledAt: timestampFromDate(row.disabled_at) }),
    ...(row.last_seen_at && { lastSeenAt: timestampFromDate(row.last_seen_at) }),
    ...(row.email !== null && { email: row.email }),
  });
}

function toPasskey(row: PasskeyRow): Passkey {
  return create(PasskeySchema, {
    passkeyId: row.passkey_id,
    name: row.name,
    createdAt: timestampFromDate(row.created_at),
    ...(row.used_at && { usedAt: timestampFromDate(row.used_at) }),
  });
}

function toLink(row: LinkRow): OpenLink {
  const { account_id, role } = row;
  return {
    linkId: row.link_id,
    purpose: row.purpose,
    personId: row.person_id,
    member:
      account_id !== null && role !== null
        ? { accountId: account_id, role: rolesByName[role] }
        : undefined,
    login: row.login,
    email: row.email ?? undefined,
    endsAt: row.ends_at,
  };
}

function toInvitation(row: InvitationRow): Invitation {
  return create(InvitationSchema, {
    invitationId: row.link_id,
    role: row.role === null ? AccountRole.UNSPECIFIED : rolesByName[row.role],
    login: row.login,
    createdAt: timestampFromDate(row.made_at),
    endsAt: timestampFromDate(row.ends_at),
    createdBy: row.made_by,
    ...(row.email !== null && { email: row.email }),
    ...(row.mail && { mail: mailStates[row.mail] }),
    ...(row.mail_problem && { mailProblem: row.mail_problem }),
  });
}

function toMember(row: MemberRow): Member {
  return create(MemberSchema, {
    personId: row.person_id,
    login: row.login,
    name: row.name,
    role: rolesByName[row.role],
    joinedAt: timestampFromDate(row.joined_at),
    ...(row.last_seen_at && { lastSeenAt: timestampFromDate(row.last_seen_at) }),
  });
}

function toAdminToken(row: TokenRow): AdminToken {
  return create(AdminTokenSchema, {
    tokenId: row.token_id,
    name: row.name,
    scope: scopesByName[row.scope],
    hint: row.shown,
    createdBy: row.created_by,
    createdAt: timestampFromDate(row.created_at),
    ...(row.used_at && { lastUsedAt: timestampFromDate(row.used_at) }),
    ...(row.revoked_at && { revokedAt: timestampFromDate(row.revoked_at) }),
  });
}

function toAuditEvent(row: AuditRow): AuditEvent {
  return create(AuditEventSchema, {
    eventId: row.event_id,
    at: timestampFromDate(row.at),
    actor: row.actor,
    accountId: row.account_id,
    method: row.method,
    outcome: row.outcome,
    facts: row.facts,
    address: row.address,
  });
}

type SignInRow = {
  session_id: string;
  person_id: string;
  login: string | null;
  address: string;
  agent: string;
  made_at: Date;
  earlier: string[];
  account_ids: string[];
};
