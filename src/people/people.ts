// People: who somebody is, how a person signs in, and which accounts a person belongs to.

import { randomBytes } from "node:crypto";
import type { AuditEvent } from "../../gen/gateway/audit/v1/audit_pb.ts";
import type { LocateRequest, ReadOidcRequest } from "../../gen/gateway/cells/v1/cells_pb.ts";
import type { Forecast } from "../../gen/gateway/common/v1/forecast_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Invitation, Member } from "../../gen/gateway/people/v1/members_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { type ChangeHints, createChanges } from "../base/change-feed.ts";
import type { MisplacedUse } from "../base/client-address.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { Outbound } from "../base/outbound.ts";
import { closedPeople, type PeopleSettings } from "../config/catalog.ts";
import { isLocalhost } from "../config/environment.ts";
import type { ApprovalLimit, CarryOut } from "../contract/approvals.ts";
import type {
  Authenticate,
  AuthenticatedCall,
  Call,
  Implementation,
  OnCallerChange,
  Person,
  serviceTypes,
} from "../contract/contract.ts";
import type { AuditSink } from "../contract/interceptor.ts";
import type { Mailer } from "../mail/mail.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import {
  carryOutAdminToken,
  createAdminToken,
  createAdminTokens,
  isAdminToken,
  listAdminTokens,
  revokeAdminToken,
} from "./admin-tokens.ts";
import { listAuditEvents, walkAuditEvents } from "./audit-events.ts";
import { createChallenges } from "./challenges.ts";
import {
  carryOutOperator,
  carryOutSignInLink,
  listPeople,
  makeRecoveryLink,
  makeSignInLink,
  updatePerson,
} from "./directory.ts";
import { setEmail } from "./emails.ts";
import { createFlows } from "./flows.ts";
import { createGuessing } from "./guessing.ts";
import { deletePerson } from "./leaving.ts";
import { beginPasskey, makeLink, redeemLink } from "./links.ts";
import {
  invite,
  listInvitations,
  listMembers,
  removeMember,
  revokeInvitation,
  updateMember,
} from "./members.ts";
import { createOidcProviders } from "./oidc.ts";
import { beginOidc, finishOidc, readOidc } from "./oidc-sign-in.ts";
import { createOutbox } from "./outbox.ts";
import type { ManagedKeys, Parts } from "./parts.ts";
import { createPasskeys } from "./passkeys.ts";
import { PasswordHasher } from "./passwords.ts";
import { isNewPlace } from "./places.ts";
import { createRetention } from "./retention.ts";
import { createSessions, isSession } from "./sessions.ts";
import {
  beginSignIn,
  confirmIdentity,
  getSession,
  listSessions,
  plainLogin,
  revokeSession,
  signInWithPasskey,
  signInWithPassword,
  signOut,
} from "./sign-in.ts";
import { confirmEmail, signUp } from "./sign-up.ts";
import {
  createPeopleStore,
  type IdentityName,
  type MemberBudgets,
  type Owners,
  type PeopleStore,
} from "./store.ts";
import { deleteView, listViews, saveView } from "./views.ts";
import { addPasskey, removeIdentity, removePasskey, setPassword } from "./ways-in.ts";

export { codeGuesses } from "./guessing.ts";

/** True for a credential that only people can know: of a person, or an admin token of theirs. */
export function isOfPeople(authorization: string): boolean {
  return isSession(authorization) || isAdminToken(authorization);
}

export type People = {
  /** Without authentication: the interceptor has authenticated the caller. */
  readonly service: Implementation<typeof serviceTypes.people, AuthenticatedCall>;
  /**
   * Identifies the person of `authorization: Session …`, or the admin token of `Bearer adm-gw2-…`.
   * Throws `invalid_session`, `invalid_key` and `revoked_key`.
   */
  readonly authenticate: Authenticate;
  readonly onCallerChange: OnCallerChange;
  /** Stores administrative acts. */
  readonly audit: AuditSink;
  readonly installation: Installation;
  readonly ofAccount: MembersOfAccount;
  /** Who owns these accounts. One without an owner is left out. */
  ownersOf(accountIds: readonly string[]): Promise<ReadonlyMap<string, Owners>>;
  /** The mails of invitations to an account, newest first: of the last 8 days, 1,000 at most. */
  listInvitationMails(accountId: string): Promise<readonly sql.ListInvitationMailsRow[]>;
  /** Takes other providers of OIDC and rules of signing up. Throws if a secret is missing. */
  reload(settings: PeopleSettings): void;
  readonly forAlerts: PeopleForAlerts;
  readonly forApprovals: PeopleForApprovals;
  readonly forCells: PeopleForCells;
  /**
   * Starts to read the changes that other nodes make, and to send mail. `sellsCredits`: whether
   * there is a way to pay for credits; default: there is none.
   */
  start(peers?: { sellsCredits(): boolean }): void;
  stop(): Promise<void>;
};

/** What changes of an account ask about its members. */
type MembersOfAccount = {
  /**
   * Throws `not_permitted` unless the person owns the account at this moment. Until the end of the
   * transaction he goes on to own it.
   */
  checkOwner(tx: Runner, accountId: string, personId: string): Promise<void>;
  /** Undefined: no member. Until the end of the transaction he keeps the role. */
  roleOf(tx: Runner, accountId: string, personId: string): Promise<MemberRole | undefined>;
  list(db: Runner, accountId: string): Promise<readonly sql.ListRolesRow[]>;
  /**
   * As what the person may manage keys of the account at this moment: all of them, as an owner or
   * an operator admin, or his own. Until the end of the transaction he goes on to be that. Throws
   * `not_permitted` for others.
   */
  checkManager(tx: Runner, accountId: string, person: Manager): Promise<"owner" | "member">;
  /** The members and open invitations, then all audit events of the account, newest first. */
  export(accountId: string): AsyncIterable<PeopleOfAccount>;
};

type MemberRole = sql.ListRolesRow["role"];

/** `operator`: the role that the call has, which an operator may give up for it. */
type Manager = Pick<Person, "personId" | "operator">;

/** What alerts ask about people. */
type PeopleForAlerts = {
  /**
   * The sign-ins since ten seconds before a time, from networks from which the person has not
   * signed in as long as sessions are kept. Not the first sign-in of a person.
   */
  listNewPlaces(since: Date, limit: number): Promise<readonly sql.ListSignInsRow[]>;
  /** The logins of these persons in these accounts, where they are members. */
  listLogins(
    accountIds: readonly string[],
    personIds: readonly string[],
  ): Promise<readonly sql.ListLoginsRow[]>;
  /**
   * The confirmed addresses of the owners of accounts and of these other members; of operator
   * admins for the account ''.
   */
  listRecipients(
    accountIds: readonly string[],
    personIds: readonly string[],
  ): Promise<readonly sql.ListRecipientsRow[]>;
};

/** What approvals ask about people. */
type PeopleForApprovals = {
  /** Does what was approved. */
  readonly carryOut: Readonly<Record<"admin_token" | "operator" | "sign_in_link", CarryOut>>;
  /**
   * Throws `not_permitted` unless a person may approve at this moment what somebody requested, and
   * may go on to do so until the end of the transaction: both are operator admins, or who requested
   * it is a token that is not revoked. `requestedBy`: as `actorOf` names callers.
   */
  checkApproval(
    tx: Runner,
    of: { readonly approverId: string; readonly requestedBy: string; readonly personId: string },
  ): Promise<void>;
};

/** What facades ask that look for the cell of a person. */
type PeopleForCells = {
  /** True if somebody has the login, the passkey or the identity. */
  knows(who: LocateRequest["who"]): Promise<boolean>;
  /** Reads what a browser brought back from a provider, for any cell. Throws as FinishOidc. */
  readOidc(
    request: Pick<ReadOidcRequest, "provider" | "flow" | "query">,
    call: Call,
  ): Promise<{ identity: IdentityName; query: string }>;
};

type PeopleOfAccount =
  | { members: Member[]; invitations: Invitation[] }
  | { auditEvents: AuditEvent[] };

/** What only the machine itself may do. */
export type Installation = {
  /**
   * Makes the database that of a cell, at the first start. Returns its id, which no other database
   * has. Throws `WrongCell` if it is the database of another cell.
   */
  claimCell(): Promise<string>;
  /** The account of the first start. Undefined: no start has made one. */
  findFirstAccount(): Promise<string | undefined>;
  /** Makes `accountId` the account of the first start, unless there is one. Returns it. */
  claimFirstAccount(accountId: string): Promise<string>;
  /** True if an operator can sign in. */
  hasOperator(): Promise<boolean>;
  /** How many operator admins may sign in. */
  countAdmins(): Promise<number>;
  /** Notes that the admin token of the environment was used. */
  noteAdminToken(): Promise<void>;
  /** When that was. Null: never. */
  adminTokenUsedAt(): Promise<Date | null>;
  /**
   * The address that makes its holder an operator, who owns the account of the first start. Ends
   * the earlier ones.
   */
  makeOwnerLink(): Promise<string>;
  /** The address by which a person signs in who lost every way in. Throws `not_found`. */
  makeSignInLink(personId: string): Promise<string>;
};

/** The parts of the people, and what the configuration says of them. */
type PeopleParts = {
  postgres: Postgres;
  /** Named by new secrets. Default: that of one installation alone. */
  cell?: string;
  /** Sign challenges. Default: a key of this process. */
  contentKeys?: readonly Uint8Array[];
  /** The address under which people reach the console. */
  publicUrl: () => URL;
  /** As `GetSessionResponse.grpc_address`. Default: empty. */
  grpcAddress?: () => string;
  keys: ManagedKeys;
  /** What a person who becomes a member may spend. Absent: as much as the account has. */
  budgets?: MemberBudgets;
  /** Makes other nodes read the change feed at once, not within 0.5 s. */
  hints?: ChangeHints | undefined;
  /** Undefined: links are shown to those who make them. */
  mailer?: Mailer | undefined;
  /** Default: nobody signs up, and there is no OIDC. */
  settings?: PeopleSettings;
  /** Holds the client secrets of the providers of OIDC. */
  env?: NodeJS.ProcessEnv;
  /** The way to them. Default: the direct one. */
  outbound?: Outbound | undefined;
  /** Creates an account with this id, unless it exists. Absent: nobody gets one of his own. */
  ensureAccount?: (accountId: string, name: string) => Promise<void>;
  /** Default: nobody needs another person. */
  approvalLimit?: ApprovalLimit;
  /** False: the environment gives no admin token. */
  hasAdminToken?: boolean;
  /** How long the credits of an account will last. Absent: nobody knows. */
  forecastsOf?: (accountId: string) => Promise<readonly Forecast[]>;
  /** Called for each call from an address that the list of its admin token does not allow. */
  onMisplaced?: (use: MisplacedUse) => void;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
  log: Log;
};

export function createPeople(parts: PeopleParts): People {
  const { publicUrl, hints, mailer, ensureAccount = noAccounts, env = {}, clock, log } = parts;
  const { outbound = new Outbound(), contentKeys = [randomBytes(32)] } = parts;
  const store = createPeopleStore(
    parts.postgres,
    parts.budgets && announced(parts.budgets, parts.keys),
    parts.cell,
  );
  const changes = createChanges({
    source: { name: "people", read: store.readChanges, clean: store.clean },
    hints,
    clock,
    log,
  });
  const passkeyOnly = () => !isLocalhost(publicUrl());
  const sessions = createSessions({ store, changes, passkeyOnly });
  // Registered first: other listeners may authenticate at once.
  changes.onChanged(sessions.forget);
  const tokens = createAdminTokens({ store, changes, onMisplaced: parts.onMisplaced });
  changes.onChanged(tokens.forget);
  const challenges = createChallenges(contentKeys);
  let settings = parts.settings ?? closedPeople;
  const createProviders = ({ oidc }: PeopleSettings) =>
    createOidcProviders({ settings: oidc, env, outbound, publicUrl, log });
  let oidc = createProviders(settings);
  const outbox = mailer && createOutbox({ store, mailer, publicUrl, clock, log });
  const all: Parts = {
    store,
    hasher: new PasswordHasher(),
    guessing: createGuessing({ store, clock }),
    passkeys: createPasskeys({ store, challenges, origin: publicUrl }),
    outbox,
    publicUrl,
    passkeyOnly,
    challenges,
    flows: createFlows(challenges),
    oidc: () => oidc,
    signUp: () => settings.signUp,
    ensureAccount,
    forecastsOf: parts.forecastsOf ?? (async () => []),
    sellsCredits: () => sellsCredits(),
    grpcAddress: parts.grpcAddress ?? (() => ""),
    log,
    publish: changes.publish,
    keys: parts.keys,
    approvalLimit: parts.approvalLimit ?? (() => undefined),
    hasAdminToken: parts.hasAdminToken ?? true,
  };
  const retention = createRetention({ store, clock, log });
  let sellsCredits = () => false;

  return {
    service: serviceOf(all),
    authenticate: (headers, origin) =>
      isAdminToken(headers.get("authorization") ?? "")
        ? tokens.authenticate(headers, origin)
        : sessions.authenticate(headers),
    onCallerChange: (listener) => changes.onChanged((subjectId) => listener({ subjectId })),
    audit: { record: store.recordAct },
    ofAccount: {
      ...membersOfAccount,
      async *export(accountId) {
        const members = await store.listMembers(accountId);
        yield { members, invitations: await store.listInvitations(accountId) };
        for await (const auditEvents of walkAuditEvents(store, accountId)) yield { auditEvents };
      },
    },
    ownersOf: store.listOwners,
    forCells: cellsOf(all, store),
    forApprovals: approvalsOf(all),
    installation: installationOn(store, publicUrl),
    forAlerts: {
      async listNewPlaces(since, rows) {
        const signIns = await store.run(sql.listSignIns, { since, rows });
        return signIns.filter(({ address, earlier }) => isNewPlace(address, earlier));
      },
      listLogins: (accountIds, personIds) => store.run(sql.listLogins, { accountIds, personIds }),
      listRecipients: (accountIds, personIds) =>
        store.run(sql.listRecipients, { accountIds, personIds }),
    },
    listInvitationMails: (accountId) => store.run(sql.listInvitationMails, { accountId }),
    reload(next) {
      oidc = createProviders(next);
      settings = next;
    },
    start(peers) {
      if (peers) sellsCredits = peers.sellsCredits;
      changes.start();
      outbox?.start();
      retention.start();
    },
    async stop() {
      await Promise.all([changes.stop(), outbox?.stop(), retention.stop()]);
    },
  };
}

/** The methods of the services. */
function serviceOf(all: Parts): People["service"] {
  return {
    getSession: (request, call) => getSession(all, request, call),
    beginSignIn: (request, call) => beginSignIn(all, request, call),
    signInWithPasskey: (request, call) => signInWithPasskey(all, request, call),
    signInWithPassword: (request, call) => signInWithPassword(all, request, call),
    redeemLink: (request, call) => redeemLink(all, request, call),
    beginOidc: (request, call) => beginOidc(all, request, call),
    finishOidc: (request, call) => finishOidc(all, request, call),
    signUp: (request, call) => signUp(all, request, call),
    confirmEmail: (request, call) => confirmEmail(all, request, call),
    signOut: (request, call) => signOut(all, request, call),
    listSessions: (request, call) => listSessions(all, request, call),
    revokeSession: (request, call) => revokeSession(all, request, call),
    confirmIdentity: (request, call) => confirmIdentity(all, request, call),
    beginPasskey: (request, call) => beginPasskey(all, request, call),
    createPasskey: (request, call) => addPasskey(all, request, call),
    deletePasskey: (request, call) => removePasskey(all, request, call),
    deleteIdentity: (request, call) => removeIdentity(all, request, call),
    setPassword: (request, call) => setPassword(all, request, call),
    setEmail: (request, call) => setEmail(all, request, call),
    listMembers: (request, call) => listMembers(all, request, call),
    listInvitations: (request, call) => listInvitations(all, request, call),
    createInvitation: (request, call) => invite(all, request, call),
    revokeInvitation: (request, call) => revokeInvitation(all, request, call),
    updateMember: (request, call) => updateMember(all, request, call),
    removeMember: (request, call) => removeMember(all, request, call),
    listViews: (request, call) => listViews(all, request, call),
    saveView: (request, call) => saveView(all, request, call),
    deleteView: (request, call) => deleteView(all, request, call),
    listPeople: (request, call) => listPeople(all, request, call),
    updatePerson: (request, call) => updatePerson(all, request, call),
    deletePerson: (request, call) => deletePerson(all, request, call),
    createSignInLink: (request, call) => makeSignInLink(all, request, call),
    createAdminToken: (request, call) => createAdminToken(all, request, call),
    listAdminTokens: (request, call) => listAdminTokens(all, request, call),
    revokeAdminToken: (request, call) => revokeAdminToken(all, request, call),
    listAuditEvents: (request, call) => listAuditEvents(all, request, call),
  };
}

/** What a facade asks each cell of somebody who signs in. */
function cellsOf(all: Parts, store: Parts["store"]): People["forCells"] {
  return {
    async knows(who) {
      switch (who.case) {
        case "login":
          // Also of those who may not sign in: nobody begins anew in another cell.
          return (
            (await store.run(sql.isLoginTaken, { login: plainLogin(who.value) })) !== undefined
          );
        case "credentialId":
          return (await store.run(sql.findPasskey, { credentialId: who.value })) !== undefined;
        case "identity":
          return (await store.findIdentity(who.value)) !== undefined;
        case undefined:
          return false;
      }
    },
    readOidc: (request, call) => readOidc(all, request, call),
  };
}

/** Acts on people that a second person approves. */
function approvalsOf(all: Parts): People["forApprovals"] {
  return {
    carryOut: {
      admin_token: carryOutAdminToken(all),
      operator: carryOutOperator(all),
      sign_in_link: carryOutSignInLink(all),
    },
    async checkApproval(tx, { approverId, requestedBy, personId }) {
      const isPerson = requestedBy.startsWith("person:");
      const personIds = isPerson ? [approverId, personId] : [approverId];
      const operators = await tx.run(sql.shareOperators, { personIds });
      const name = requestedBy.replace("token:", "");
      const token = isPerson ? undefined : await tx.run(sql.shareTokenByName, { name });
      if (operators.length < personIds.length || !(isPerson || token))
        throw new ApiError("not_permitted");
    },
  };
}

/** The same budgets. Nodes learn which keys they limit by the feed of these. */
function announced(budgets: MemberBudgets, keys: ManagedKeys): MemberBudgets {
  return {
    ...budgets,
    async join(tx, member) {
      const isLimited = await budgets.join(tx, member);
      if (isLimited) await keys.announce(tx, member);
      return isLimited;
    },
  };
}

/** What transactions of other services check of members, without a service of people. */
export const membersOfAccount = {
  async checkOwner(tx: Runner, accountId: string, personId: string) {
    if (!(await tx.run(sql.lockOwner, { accountId, personId })))
      throw new ApiError("not_permitted");
  },
  roleOf: async (tx: Runner, accountId: string, personId: string) =>
    (await tx.run(sql.shareMember, { accountId, personId }))?.role,
  list: (db: Runner, accountId: string) => db.run(sql.listRoles, { accountId }),
  async checkManager(tx: Runner, accountId: string, { personId, operator }: Manager) {
    const member = await tx.run(sql.shareMember, { accountId, personId });
    const person = await tx.run(sql.sharePerson, { personId });
    if (person?.operator === "admin" && operator === OperatorRole.ADMIN) return "owner";
    if (!person || !member || member.role === "viewer") throw new ApiError("not_permitted");
    return member.role;
  },
};

/** A database of another cell than the configured one. */
class WrongCell extends Error {
  constructor(cell: string, configured: string) {
    super(
      `this is the database of cell ${cell}, and CELL is ${configured}; ` +
        "check DATABASE_URL and CELL",
    );
  }
}

/** What only the machine itself may do, for a process that serves nobody. */
export function createInstallation(parts: {
  postgres: Postgres;
  /** As for `createPeople`. */
  cell?: string;
  /** The address under which people reach the console. */
  publicUrl: () => URL;
}): Installation {
  return installationOn(createPeopleStore(parts.postgres, undefined, parts.cell), parts.publicUrl);
}

function installationOn(store: PeopleStore, publicUrl: () => URL): Installation {
  return {
    async claimCell() {
      const { cell, installationId } = await store.run(sql.claimCell, {
        cell: store.cell,
        installationId: timeOrderedId("ins_"),
      });
      if (cell !== store.cell) throw new WrongCell(cell, store.cell);
      return installationId;
    },
    findFirstAccount: () => findFirstAccount(store),
    claimFirstAccount: async (accountId) =>
      (await store.run(sql.claimAccount, { accountId })).accountId,
    hasOperator: async () => (await store.run(sql.hasOperator)) !== undefined,
    countAdmins: async () => (await store.run(sql.countAdmins)).admins,
    async noteAdminToken() {
      await store.run(sql.touchAdminToken);
    },
    adminTokenUsedAt: async () => (await store.run(sql.readAdminTokenUse)).usedAt,
    async makeOwnerLink() {
      const { address } = await store.transaction(async (tables) => {
        const accountId = await findFirstAccount(tables);
        await tables.run(sql.endLinks, { purpose: "owner", personId: null });
        return makeLink(tables, publicUrl(), {
          purpose: "owner",
          member: accountId === undefined ? undefined : { accountId, role: AccountRole.OWNER },
          madeBy: "installation",
        });
      });
      return address;
    },
    async makeSignInLink(personId) {
      const { address } = await store.transaction((tables) =>
        makeRecoveryLink(tables, publicUrl(), personId, "installation"),
      );
      return address;
    },
  };
}

async function findFirstAccount(tables: Runner): Promise<string | undefined> {
  return (await tables.run(sql.readInstallation)).accountId ?? undefined;
}

function noAccounts(): Promise<void> {
  return Promise.reject(new ApiError("unimplemented", { message: "No accounts are made here." }));
}
