// Signing in at a provider of OIDC. An identity is an issuer and a subject there, and belongs to
// one person here. An e-mail address alone never joins two people: whoever has one at a provider
// may not be who has it here.

import { hash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import type { SessionGrant } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type BeginOidcRequest,
  BeginOidcResponseSchema,
  type FinishOidcRequest,
  type FinishOidcResponse,
  FinishOidcResponseSchema,
  OidcFlowSchema,
  OidcPurpose,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { randomId, timeOrderedId } from "../base/ids.ts";
import { checkStrong, clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Person as CallingPerson } from "../contract/contract.ts";
import { spendChallenge } from "./challenges.ts";
import type { FlowPurpose, ReturnedFlow } from "./flows.ts";
import { applyRoles, lockRoles, noRoles, type RoleChange, rolesOfGroups } from "./groups.ts";
import {
  addPerson,
  bindIdentity,
  findLink,
  isConfirmation,
  noSuchLink,
  recordAct,
  redeem,
  takeInvitation,
  type WayIn,
} from "./links.ts";
import { keyFacts } from "./managed-keys.ts";
import type { Claims, OidcProvider } from "./oidc.ts";
import type { Parts } from "./parts.ts";
import { beginSession, strongMs } from "./sessions.ts";
import { recordOperator } from "./sign-in.ts";
import { checkSignUp, findAccount } from "./sign-up.ts";
import type { FoundIdentity, IdentityName, PeopleTables } from "./store.ts";
import { checkProof, lockOpen, lockToChange } from "./ways-in.ts";

export async function beginOidc(
  parts: Parts,
  { provider, purpose, linkToken }: BeginOidcRequest,
  call: AuthenticatedCall,
) {
  const one = findProvider(parts, provider);
  const wanted = await checkPurpose(parts, purpose, linkToken, call);
  if (wanted.kind === "add") await checkProof(parts, parts.store, call);
  const { flow, endsAt, ...secrets } = parts.flows.begin(provider, wanted);
  const authorizationUrl = await one.begin(secrets, wanted.kind === "confirm");
  return create(BeginOidcResponseSchema, {
    authorizationUrl: authorizationUrl.href,
    flow: create(OidcFlowSchema, { token: flow, expiresAt: timestampFromDate(endsAt) }),
  });
}

async function checkPurpose(
  parts: Parts,
  purpose: OidcPurpose,
  linkToken: string,
  { caller }: AuthenticatedCall,
): Promise<FlowPurpose> {
  if (purpose === OidcPurpose.UNSPECIFIED || purpose === OidcPurpose.SIGN_IN) {
    if (linkToken === "") return { kind: "sign-in" };
    if (isConfirmation(await findLink(parts, linkToken))) throw noSuchLink();
    return { kind: "link", linkToken };
  }
  if (linkToken !== "") throw invalidField("link_token", "must be empty with a purpose");
  if (caller.kind !== "person") throw new ApiError("invalid_session");
  const { sessionId } = caller;
  if (purpose === OidcPurpose.CONFIRM) return { kind: "confirm", sessionId };
  checkStrong(caller);
  return { kind: "add", sessionId };
}

export async function finishOidc(
  parts: Parts,
  { provider, flow, query }: FinishOidcRequest,
  call: AuthenticatedCall,
): Promise<FinishOidcResponse> {
  const { flows } = parts;
  const one = findProvider(parts, provider);
  const person = call.caller.kind === "person" ? call.caller : undefined;
  const returned = flows.read(provider, flow, person?.sessionId);
  if (!returned) throw failed();
  const read = await readElsewhere(parts, flow, query);
  const claims = read ?? (await readClaims(parts, one, returned, query, call));
  logGroups(parts, one, claims);
  const { purpose } = returned;
  switch (purpose.kind) {
    case "sign-in":
      return finished(parts, await signIn(parts, one, claims, call));
    case "link":
      return finished(parts, await takeLink(parts, one, claims, purpose.linkToken, call));
    case "confirm":
      return confirm(parts, claims, returned, callerOf(person), call);
    case "add":
      return add(parts, claims, callerOf(person), call);
  }
}

/** What the provider says of who came back. It says so once. */
async function readClaims(
  { store, guessing }: Parts,
  one: OidcProvider,
  returned: ReturnedFlow,
  query: string,
  call: Parameters<typeof clientOf>[0],
): Promise<Claims> {
  // Nobody makes us ask the provider who was not sent there by us.
  if (new URLSearchParams(query).get("state") !== returned.state) throw failed();
  const forgive = await guessing.count("oidc", clientOf(call).address);
  if (!(await spendChallenge(store, returned.challenge))) throw failed();
  const claims = await one.finish(returned, query).catch(async (error: unknown) => {
    if (error instanceof ApiError && error.reason === "gateway_unavailable") await forgive();
    throw error;
  });
  await forgive();
  return claims;
}

const readPrefix = "read-elsewhere=";
const readMsMax = 60_000;

/** `CellsService.ReadOidc`: of a sign-in, whose person may be known in another cell. */
export async function readOidc(
  parts: Parts,
  { provider, flow, query }: { provider: string; flow: string; query: string },
  call: Parameters<typeof clientOf>[0],
): Promise<{ identity: IdentityName; query: string }> {
  const one = findProvider(parts, provider);
  const returned = parts.flows.read(provider, flow, undefined);
  if (returned?.purpose.kind !== "sign-in") throw failed();
  const claims = await readClaims(parts, one, returned, query, call);
  const { issuer, subject, email, name, groups, authenticatedAt } = claims;
  const authenticatedMs = authenticatedAt?.getTime();
  const said = { issuer, subject, email, name, groups, authenticatedMs };
  const text = JSON.stringify({ ...said, endsAtMs: Date.now() + readMsMax });
  const sealed = parts.challenges.seal(readPurpose(flow), text);
  return { identity: { issuer, subject }, query: `${readPrefix}${sealed}` };
}

/** What `readOidc` of another cell has read, once. Undefined: the query is of a provider. */
async function readElsewhere(
  { challenges, store }: Parts,
  flow: string,
  query: string,
): Promise<Claims | undefined> {
  if (!query.startsWith(readPrefix)) return undefined;
  const text = challenges.open(readPurpose(flow), query.slice(readPrefix.length));
  if (text === undefined) throw failed();
  // Our own code made it.
  const { authenticatedMs, endsAtMs, ...claims } = JSON.parse(text);
  const digest = hash("sha256", text, "buffer");
  if (endsAtMs < Date.now() || !(await spendChallenge(store, { digest, endsAtMs }))) throw failed();
  const authenticatedAt = authenticatedMs === undefined ? undefined : new Date(authenticatedMs);
  return { ...claims, authenticatedAt };
}

/** It is good for the browser of this flow alone. */
function readPurpose(flow: string): string {
  return `oidc read ${flow}`;
}

/** Says how many groups came back: a claim that is absent gives and takes roles in silence. */
function logGroups({ log }: Parts, { name, settings }: OidcProvider, { groups }: Claims): void {
  const { groupsClaim } = settings;
  const found = groups === undefined ? `the claim ${groupsClaim} is absent` : groups.length;
  log.info(
    { oidc: name, ...(settings.groups.length > 0 && { groups: found }) },
    "a person came back from the provider",
  );
}

type SignedIn = { readonly personId: string; readonly grant: SessionGrant };

async function finished({ store }: Parts, { personId, grant }: SignedIn) {
  const person = await store.findPerson(personId);
  return create(FinishOidcResponseSchema, { grant, person });
}

async function signIn(
  parts: Parts,
  one: OidcProvider,
  claims: Claims,
  call: AuthenticatedCall,
): Promise<SignedIn> {
  const known = await parts.store.findIdentity(claims);
  if (known) return signInAs(parts, one, claims, known, call);
  return addNewPerson(parts, one, claims, call).catch(async (error: unknown) => {
    // The same person was faster, in another window.
    const found = await parts.store.findIdentity(claims);
    if (!found) throw error;
    return signInAs(parts, one, claims, found, call);
  });
}

/** `also` runs in the transaction, when the person is locked. */
async function signInAs(
  parts: Parts,
  one: OidcProvider,
  claims: Claims,
  identity: FoundIdentity,
  call: AuthenticatedCall,
  also?: (tables: PeopleTables) => Promise<void>,
): Promise<SignedIn> {
  const { personId } = identity;
  const { grant, stoppedKeys } = await parts.store.transaction(async (tables) => {
    const stoppedKeys = await useIdentity(parts, tables, one, claims, identity, call);
    await also?.(tables);
    const confirmed = { confirmedMs: confirmedMs(claims) };
    const grant = await beginSession(tables, personId, "oidc", clientOf(call), confirmed);
    const person = await tables.findPerson(personId);
    if (person) await recordOperator(tables, person, "FinishOidc", call);
    return { grant, stoppedKeys };
  });
  parts.publish(personId);
  parts.keys.publish(stoppedKeys);
  return { personId, grant };
}

/**
 * Gives the roles of the groups, and takes back what they give no more. Returns the keys that this
 * stopped, for `publish`. Throws `sign_in_failed` if the person may not sign in.
 */
async function useIdentity(
  { keys }: Parts,
  tables: PeopleTables,
  { settings }: OidcProvider,
  { groups }: Claims,
  identity: FoundIdentity,
  call: AuthenticatedCall,
): Promise<readonly string[]> {
  const { personId, identityId } = identity;
  const roles = { before: identity, given: rolesOfGroups(settings, groups) };
  const locked = await lockRoles(tables, roles.before, roles.given);
  const person = await tables.lockPerson(personId);
  if (!person || person.disabledAt) throw failed();
  if (!(await tables.useIdentity(identity, roles.given))) throw failed();
  const changes = await applyRoles(tables, keys, person, locked, roles);
  if (changes.length > 0) await tables.insertChange(personId);
  for (const change of changes) await recordRole(tables, identityId, personId, change, call);
  return changes.flatMap(({ stoppedKeys }) => stoppedKeys);
}

function recordRole(
  tables: PeopleTables,
  identityId: string,
  personId: string,
  { accountId, oldRole, role, stoppedKeys }: RoleChange,
  call: AuthenticatedCall,
): Promise<void> {
  const keys = keyFacts(KeyAction.PAUSE, stoppedKeys.length, stoppedKeys);
  const facts = { identityId, oldRole, role, ...keys };
  return recordAct(tables, { personId, accountId, method: "FinishOidc", facts }, call);
}

/** Makes a person of an identity that nobody has. Throws `sign_up_closed`. */
async function addNewPerson(
  parts: Parts,
  one: OidcProvider,
  claims: Claims,
  call: AuthenticatedCall,
): Promise<SignedIn> {
  const { settings } = one;
  checkSignUp(settings.signUp, claims.email);
  const personId = timeOrderedId("per_");
  const logins = loginsOf(one, claims);
  const { email, name } = claims;
  const ownName = name || email || settings.title;
  const owner = { personId, name: ownName, email };
  const member = await findAccount(parts, settings.signUp, owner, call);
  const { accountId } = member;
  const grant = await parts.store.transaction(async (tables) => {
    // First of all, as for everybody who changes them.
    const given = rolesOfGroups(settings, claims.groups);
    await lockRoles(tables, noRoles, given);
    await addPerson(tables, { personId, logins, name, email, isAdmin: false });
    await bindIdentity(tables, personId, claims);
    await tables.putMember(personId, member);
    await tables.insertChange(personId);
    const facts = { purpose: "sign_up" };
    await recordAct(tables, { personId, accountId, method: "FinishOidc", facts }, call);
    const identity = await tables.findIdentity(claims);
    if (identity) await useIdentity(parts, tables, one, claims, identity, call);
    const confirmed = { confirmedMs: confirmedMs(claims) };
    return beginSession(tables, personId, "oidc", clientOf(call), confirmed);
  });
  parts.publish(personId);
  return { personId, grant };
}

/**
 * What a new person is called here: his confirmed address, unless somebody has it as a login. He
 * signs in by his identity, whatever the login.
 */
function loginsOf({ name }: OidcProvider, { email, subject }: Claims): string[] {
  const plain =
    subject
      .toLowerCase()
      .replace(/[^\w.-]/g, "")
      .slice(0, 60) || "person";
  const base = email ?? plain;
  const further = [`${base}#${name}`, `${base}#${name}-${randomId("", 8).toLowerCase()}`];
  return email === undefined ? further : [email, ...further];
}

async function takeLink(
  parts: Parts,
  one: OidcProvider,
  claims: Claims,
  linkToken: string,
  call: AuthenticatedCall,
): Promise<SignedIn> {
  const link = await findLink(parts, linkToken);
  if (isConfirmation(link)) throw noSuchLink();
  const known = await parts.store.findIdentity(claims);
  if (known && link.purpose === "invitation")
    return signInAs(parts, one, claims, known, call, (tables) =>
      takeInvitation(tables, known.personId, link, call),
    );
  if (known && known.personId !== link.personId)
    throw new ApiError("login_taken", { message: "This identity belongs to another person here." });
  const { email, name } = claims;
  const wayIn: WayIn = { method: "oidc", identity: claims, confirmedMs: confirmedMs(claims) };
  const proposed = link.email === undefined ? [] : [link.email];
  const logins = [...proposed, ...loginsOf(one, claims)];
  const giveRoles = async (tables: PeopleTables) => {
    const identity = await tables.findIdentity(claims);
    // The feed announces the keys that this pauses.
    if (identity) await useIdentity(parts, tables, one, claims, identity, call);
  };
  const grant = await redeem(parts, link, { logins, name, email, wayIn }, call, giveRoles);
  return { personId: link.personId, grant };
}

async function confirm(
  { store, publish }: Parts,
  claims: Claims,
  { begunAt }: ReturnedFlow,
  { personId, sessionId }: CallingPerson,
  call: AuthenticatedCall,
): Promise<FinishOidcResponse> {
  // Whoever is signed in at the provider need not be at the keyboard: he has to prove it anew.
  const { authenticatedAt } = claims;
  if (!authenticatedAt || authenticatedAt < begunAt) throw failed();
  const identity = await store.findIdentity(claims);
  if (identity?.personId !== personId) throw failed();
  const confirmed = await store.transaction(async (tables) => {
    await lockOpen(tables, call);
    if (!(await tables.useIdentity(identity, identity))) throw failed();
    // Other nodes know this session without the confirmation.
    await tables.insertChange(personId);
    return tables.run(sql.confirmSession, { sessionId, confirmedBy: "oidc", strongMs });
  });
  if (!confirmed) throw new ApiError("invalid_session");
  publish(personId);
  return create(FinishOidcResponseSchema, {
    person: await store.findPerson(personId),
    purpose: OidcPurpose.CONFIRM,
    strongUntil: timestampFromDate(confirmed.strongUntil),
  });
}

async function add(
  parts: Parts,
  claims: Claims,
  caller: CallingPerson,
  call: AuthenticatedCall,
): Promise<FinishOidcResponse> {
  const { personId } = caller;
  const { store } = parts;
  await store.transaction(async (tables) => {
    await lockToChange(parts, tables, call);
    await bindIdentity(tables, personId, claims);
    const identityId = (await tables.findIdentity(claims))?.identityId ?? "";
    const facts = { purpose: "add", identityId };
    await recordAct(tables, { personId, accountId: "", method: "FinishOidc", facts }, call);
  });
  const person = await store.findPerson(personId);
  return create(FinishOidcResponseSchema, { person, purpose: OidcPurpose.ADD });
}

/** How long a sign-in needs no confirmation: a session at the provider may be weeks old. */
function confirmedMs({ authenticatedAt }: Claims): number {
  if (!authenticatedAt) return 0;
  return Math.max(0, Math.min(strongMs, authenticatedAt.getTime() + strongMs - Date.now()));
}

function findProvider({ oidc }: Parts, name: string): OidcProvider {
  const one = oidc().get(name);
  if (!one) throw new ApiError("not_found", { field: "provider", message: "No such provider." });
  return one;
}

function callerOf(person: CallingPerson | undefined): CallingPerson {
  if (!person) throw new ApiError("invalid_session");
  return person;
}

// Whatever is wrong with what came back looks alike.
function failed(): ApiError {
  return new ApiError("sign_in_failed", {
    message:
      "This sign-in is not valid: it was used, took too long, or began elsewhere. Try again.",
  });
}
