// One-time links: for the first operator, for invitations, and for people who lost every way in.
// The token is the cell and 244 random bits in the fragment of the address, which reaches no
// server, log or referrer. The database has its SHA-256.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Invitation } from "../../gen/gateway/people/v1/members_pb.ts";
import type { SessionGrant } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type BeginPasskeyRequest,
  BeginPasskeyResponseSchema,
  LinkSchema,
  type RedeemLinkRequest,
  RedeemLinkResponseSchema,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { cellToken } from "../base/cells.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkOptionalName, shownName } from "../base/names.ts";
import { linkHours } from "../base/shown-figures.ts";
import { clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Membership } from "../contract/contract.ts";
import { spendChallenge } from "./challenges.ts";
import { checkLogin, type Parts } from "./parts.ts";
import type { NewPasskey } from "./passkeys.ts";
import { beginSession, digestToken } from "./sessions.ts";
import {
  type IdentityName,
  type LinkKind,
  type MailFacts,
  type MailKind,
  type NewLink,
  type OpenLink,
  type PeopleTables,
  purposeOf,
} from "./store.ts";

export const dayMs = 24 * 3_600_000;
const confirmationMs = linkHours * 3_600_000;
const lifetimeMsOf = {
  owner: dayMs,
  recovery: confirmationMs,
  sign_up: confirmationMs,
  email: confirmationMs,
  invitation: 7 * dayMs,
} as const satisfies Record<LinkKind, number>;

/** The id of a new link, and the token that its holder opens. */
export type MintedLink = { readonly linkId: string; readonly token: string };

export function mintLink({ cell }: Pick<PeopleTables, "cell">): MintedLink {
  return { linkId: timeOrderedId("lnk_"), token: cellToken(cell) };
}

/** Makes a link. `address` is what its holder opens: nothing else keeps the token in it. */
export async function makeLink(
  tables: PeopleTables,
  publicUrl: URL,
  link: NewLink,
  { linkId, token }: MintedLink = mintLink(tables),
): Promise<{ address: string; link: Invitation }> {
  const made = await insertLink(tables, { linkId, digest: digestToken(token) }, link);
  return { address: linkAddress(publicUrl, token), link: made };
}

/** Stores a link whose token somebody has. */
export function insertLink(
  tables: PeopleTables,
  minted: { readonly linkId: string; readonly digest: Buffer },
  link: NewLink,
): Promise<Invitation> {
  return tables.insertLink(minted, lifetimeMsOf[link.purpose], link);
}

/** What the holder of a link opens. */
export function linkAddress(publicUrl: URL, token: string): string {
  return new URL(`/console/welcome#${token}`, publicUrl).href;
}

/** Hands in a mail with a link that `makeLink` made. Only the mail will have its secret. */
export function mailLink(
  tables: PeopleTables,
  kind: MailKind & LinkKind,
  { invitationId: linkId }: Invitation,
  address: string,
  facts: MailFacts,
): Promise<void> {
  const lifetimeMs = lifetimeMsOf[kind];
  return tables.insertMail({ kind, address, linkId, facts, lifetimeMs });
}

export async function beginPasskey(
  parts: Parts,
  { linkToken, login }: BeginPasskeyRequest,
  { caller }: AuthenticatedCall,
) {
  const { store, passkeys } = parts;
  if (linkToken === "") {
    if (caller.kind !== "person") throw new ApiError("invalid_session");
    const person = await store.findPerson(caller.personId);
    if (!person) throw new ApiError("invalid_session");
    const passkeyOptionsJson = await passkeys.beginRegistration(person);
    return create(BeginPasskeyResponseSchema, { passkeyOptionsJson });
  }
  const link = await store.findLink(digestToken(linkToken));
  if (!link) throw noSuchLink();
  const person = link.purpose === "recovery" ? await store.findPerson(link.personId) : undefined;
  const isFixed = login === "" || isConfirmation(link);
  const proposed = person?.login ?? (isFixed ? link.login : checkLogin("login", login));
  const { personId, purpose, member, endsAt } = link;
  // An address adds no way in: whoever has its mail must not have a key to its person.
  const passkeyOptionsJson =
    purpose === "email"
      ? ""
      : await passkeys.beginRegistration({
          personId,
          login: proposed === "" ? "you" : proposed,
        });
  const account = member && (await store.run(sql.findAccount, { accountId: member.accountId }));
  return create(BeginPasskeyResponseSchema, {
    passkeyOptionsJson,
    link: create(LinkSchema, {
      purpose: purposeOf[purpose],
      ...(account && { accountName: shownName(account.name) }),
      ...(member && { role: member.role }),
      login: proposed,
      expiresAt: timestampFromDate(endsAt),
      needsPasskey: needsPasskey(parts, link, person?.operatorRole),
    }),
  });
}

/** True if the link makes or recovers an operator who has to sign in with a passkey. */
function needsPasskey(
  { passkeyOnly }: Parts,
  { purpose }: OpenLink,
  operator: OperatorRole | undefined,
): boolean {
  const isOperator = operator !== undefined && operator !== OperatorRole.UNSPECIFIED;
  return passkeyOnly() && (purpose === "owner" || isOperator);
}

export async function redeemLink(
  parts: Parts,
  request: RedeemLinkRequest,
  call: AuthenticatedCall,
) {
  const { store, publish } = parts;
  const link = await findLink(parts, request.token);
  if (isConfirmation(link)) throw noSuchLink();
  const { caller } = call;
  if (request.password === "" && request.passkeyAnswerJson === "") {
    if (caller.kind !== "person" || link.purpose !== "invitation") throw noWayIn();
    const { personId } = caller;
    await store.transaction((tables) => takeInvitation(tables, personId, link, call));
    publish(personId);
    return create(RedeemLinkResponseSchema, { person: await store.findPerson(personId) });
  }
  const isRecovery = link.purpose === "recovery";
  const login = isRecovery ? "" : checkNewLogin(parts, request.login || link.login, link);
  const name = checkOptionalName("name", request.name);
  if (!isRecovery) await checkFree(store, login, "login");
  const { wayIn, forgive } = await checkWayIn(parts, request, link, call);
  const grant = await redeem(parts, link, { logins: [login], name, wayIn }, call);
  await forgive();
  const person = await store.findPerson(link.personId);
  return create(RedeemLinkResponseSchema, { person, grant });
}

/**
 * The login of a new person. Where everybody may sign up, an address is a login of its holder
 * alone: nobody keeps another one from signing up.
 */
function checkNewLogin({ signUp }: Parts, text: string, { email, purpose }: OpenLink): string {
  const login = checkLogin("login", text);
  const isStranger = purpose === "invitation" && signUp().mode !== "closed";
  if (isStranger && login.includes("@") && login !== email)
    throw invalidField("login", "an address has to be confirmed first: choose a name without @");
  return login;
}

/** An open link, with what uses it up. */
export type GivenLink = OpenLink & { readonly digest: Buffer };

/** True for a link that confirms an address: ConfirmEmail alone takes it. */
export function isConfirmation({ purpose }: OpenLink): boolean {
  return purpose === "sign_up" || purpose === "email";
}

/** Throws `not_found`. */
export async function findLink({ store }: Parts, token: string): Promise<GivenLink> {
  const digest = digestToken(token);
  const link = await store.findLink(digest);
  if (!link) throw noSuchLink();
  return { ...link, digest };
}

/** Who redeems a link. The logins are tried in this order. */
export type Redeemer = {
  readonly logins: readonly string[];
  readonly name: string;
  /** A confirmed address. Absent: that of the link, if any. */
  readonly email?: string | undefined;
  readonly wayIn: WayIn;
  /** Absent: the account of the link, if any. */
  readonly member?: Membership;
};

/** Redeems a link with a new way in, and begins a session. `also` runs in the transaction. */
export async function redeem(
  parts: Parts,
  { digest, personId, purpose }: GivenLink,
  { wayIn, ...redeemer }: Redeemer,
  call: AuthenticatedCall,
  also?: (tables: PeopleTables) => Promise<void>,
): Promise<SessionGrant> {
  const grant = await parts.store.transaction(async (tables) => {
    const used = await useLink(tables, digest);
    const link = { ...used, member: redeemer.member ?? used.member };
    if (purpose === "recovery") await recover(parts, tables, link, call);
    else
      await addPerson(tables, {
        ...redeemer,
        personId,
        email: link.email ?? redeemer.email,
        isAdmin: purpose === "owner",
      });
    const passkeyId = await addWayIn(tables, personId, wayIn);
    await joinAccount(tables, personId, link, call);
    await also?.(tables);
    const { method, confirmedMs } = wayIn;
    return beginSession(tables, personId, method, clientOf(call), { passkeyId, confirmedMs });
  });
  parts.publish(personId);
  parts.outbox?.notify();
  return grant;
}

/** Lets a person who exists join the account of an invitation. */
export async function takeInvitation(
  tables: PeopleTables,
  personId: string,
  { digest }: GivenLink,
  call: AuthenticatedCall,
): Promise<void> {
  await joinAccount(tables, personId, await useLink(tables, digest), call);
}

export type WayIn = { /** As for `beginSession`. */ readonly confirmedMs?: number } & (
  | { readonly method: "passkey"; readonly created: NewPasskey }
  | { readonly method: "password"; readonly hash: string }
  | { readonly method: "oidc"; readonly identity: IdentityName }
);

/**
 * The way in that the request adds. Check everything else first: it hashes a password, and counts
 * that. Call `forgive` when the link is used.
 */
export async function checkWayIn(
  parts: Parts,
  { password, passkeyAnswerJson }: Pick<RedeemLinkRequest, "password" | "passkeyAnswerJson">,
  link: OpenLink,
  call: AuthenticatedCall,
): Promise<{ wayIn: WayIn; forgive: () => Promise<void> }> {
  const { store, hasher, guessing, passkeys } = parts;
  if ((password === "") === (passkeyAnswerJson === "")) throw noWayIn();
  if (passkeyAnswerJson !== "") {
    const { personId } = link;
    const field = "passkey_answer_json";
    const created = await passkeys.verifyRegistration(field, personId, passkeyAnswerJson);
    return { wayIn: { method: "passkey", created }, forgive: async () => {} };
  }
  const person = link.purpose === "recovery" ? await store.findPerson(link.personId) : undefined;
  if (needsPasskey(parts, link, person?.operatorRole))
    throw invalidField("password", "operators sign in with a passkey here");
  const job = { lane: "change", owner: link.linkId, address: clientOf(call).address } as const;
  hasher.checkRoom(job);
  const forgive = await guessing.count("link", job.address);
  return { wayIn: { method: "password", hash: await hasher.hash(password, job) }, forgive };
}

function noWayIn(): ApiError {
  return invalidField("password", "give either a password or a passkey_answer_json");
}

/** Throws `login_taken`, before anything costly is done. */
export async function checkFree(store: PeopleTables, login: string, field: string): Promise<void> {
  if (await store.run(sql.isLoginTaken, { login })) throw new ApiError("login_taken", { field });
}

export async function useLink(tables: PeopleTables, digest: Buffer): Promise<OpenLink> {
  const link = await tables.useLink(digest);
  if (!link) throw noSuchLink();
  // Members before people, as everybody who locks both.
  if (link.member) await tables.lockMembers(link.member.accountId);
  return link;
}

/** Adds a person with the first of the logins that is free. Throws `login_taken`. */
export async function addPerson(
  tables: PeopleTables,
  person: {
    personId: string;
    logins: readonly string[];
    name: string;
    email: string | undefined;
    isAdmin: boolean;
  },
): Promise<void> {
  const { logins, isAdmin, email = null, ...named } = person;
  const added = { ...named, email, operator: isAdmin ? "admin" : "none" } as const;
  for (const login of logins)
    if ((await tables.run(sql.insertPerson, { ...added, login })) > 0) return;
  throw new ApiError("login_taken", { field: "login" });
}

/** Ends what the person had: whoever has found or stolen a passkey may use it. */
async function recover(
  { outbox }: Parts,
  tables: PeopleTables,
  { personId, linkId }: OpenLink,
  call: AuthenticatedCall,
): Promise<void> {
  const person = await tables.lockPerson(personId);
  if (!person || person.disabledAt) throw noSuchLink();
  await tables.run(sql.deletePasskeys, { personId });
  await tables.run(sql.deletePassword, { personId });
  await tables.run(sql.deleteIdentities, { personId });
  await tables.run(sql.endSessions, { personId, butSessionId: null });
  // Whoever had a session may have asked for an address of his own.
  await tables.run(sql.endLinks, { purpose: "email", personId });
  await tables.insertChange(personId);
  const accounts = await tables.listAccounts(personId);
  const accountIds = accounts.map(({ accountId }) => accountId);
  // The owners of his accounts should know.
  for (const accountId of accountIds.length > 0 ? accountIds : [""])
    await recordRedemption(tables, personId, accountId, { purpose: "recovery", linkId }, call);
  if (outbox && person.email !== "")
    await tables.insertMail({
      kind: "recovered",
      address: person.email,
      facts: { at: new Date().toISOString().slice(0, 16), address: clientOf(call).address },
      lifetimeMs: 7 * dayMs,
    });
}

/** Returns the id of a new passkey. */
async function addWayIn(
  tables: PeopleTables,
  personId: string,
  wayIn: WayIn,
): Promise<string | undefined> {
  if (wayIn.method === "password") {
    await tables.run(sql.putPassword, { personId, hash: wayIn.hash });
    return undefined;
  }
  if (wayIn.method === "oidc") {
    await bindIdentity(tables, personId, wayIn.identity);
    return undefined;
  }
  const { passkey, challenge } = wayIn.created;
  const isFirst = await spendChallenge(tables, challenge);
  const added = isFirst ? await tables.insertPasskey({ ...passkey, name: "" }) : undefined;
  if (!added) throw new ApiError("sign_in_failed");
  return added.passkeyId;
}

/** Throws `login_taken` if the identity belongs to somebody else. */
export async function bindIdentity(
  tables: PeopleTables,
  personId: string,
  identity: IdentityName,
): Promise<void> {
  const { issuer, subject } = identity;
  const added = { issuer, subject, identityId: timeOrderedId("idn_"), personId };
  if ((await tables.run(sql.insertIdentity, added)) > 0) return;
  if ((await tables.findIdentity(identity))?.personId === personId) return;
  throw new ApiError("login_taken", { message: "This identity belongs to another person here." });
}

async function joinAccount(
  tables: PeopleTables,
  personId: string,
  { purpose, linkId, member }: OpenLink,
  call: AuthenticatedCall,
): Promise<void> {
  if (purpose === "recovery") return;
  // He may have been deleted, or disabled, which the node does not know yet.
  const person = await tables.lockPerson(personId);
  if (!person || person.disabledAt) throw new ApiError("invalid_session");
  // An account that is suspended for now can be joined later, with the same link.
  if (purpose === "invitation" && member) await tables.findOpenAccount(member.accountId);
  if (member) await tables.putMember(personId, member);
  await tables.insertChange(personId);
  const facts = { purpose, linkId };
  await recordRedemption(tables, personId, member?.accountId ?? "", facts, call);
}

function recordRedemption(
  tables: PeopleTables,
  personId: string,
  accountId: string,
  facts: Record<string, string>,
  call: AuthenticatedCall,
): Promise<void> {
  const method = facts.purpose === "sign_up" ? "ConfirmEmail" : "RedeemLink";
  return recordAct(tables, { personId, accountId, method, facts }, call);
}

/** Records what a person did who was nobody, or nobody we knew, when he called. */
export async function recordAct(
  tables: PeopleTables,
  act: { personId: string; accountId: string; method: string; facts: Record<string, string> },
  call: AuthenticatedCall,
): Promise<void> {
  const { personId, accountId, method, facts } = act;
  const { address } = clientOf(call);
  await tables.insertAuditEvent({
    at: new Date(),
    actor: `person:${personId}`,
    accountId,
    method,
    outcome: "ok",
    facts: { ...facts, personId },
    address,
  });
}

// A wrong, a used and an expired link look alike.
export function noSuchLink(): ApiError {
  return new ApiError("not_found", {
    field: "token",
    message: "This link is not valid: it was used, it has expired, or a part of it is missing.",
  });
}
