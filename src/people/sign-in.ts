// Signing in and out, and the open sessions of a person.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type OidcProvider,
  OidcProviderSchema,
  type Person,
} from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type GetSessionRequest,
  GetSessionResponseSchema,
  IdentitySchema,
  type ListSessionsRequest,
  ListSessionsResponseSchema,
  MemberNameSchema,
  type PersonAccount,
  ProfileService,
  type RevokeSessionRequest,
  RevokeSessionResponseSchema,
  type ShownAccount,
  ShownAccountSchema,
  type SignOutRequest,
  SignOutResponseSchema,
} from "../../gen/gateway/people/v1/profile_pb.ts";
import {
  type BeginSignInRequest,
  BeginSignInResponseSchema,
  type ConfirmIdentityRequest,
  ConfirmIdentityResponseSchema,
  type SignInWithPasskeyRequest,
  SignInWithPasskeyResponseSchema,
  type SignInWithPasswordRequest,
  SignInWithPasswordResponseSchema,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { networkOf, plainAddress } from "../base/client-address.ts";
import { withTimeout } from "../base/clock.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { readPage, wholeList } from "../base/paging.ts";
import { clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { spendChallenge } from "./challenges.ts";
import { recordAct } from "./links.ts";
import { type Parts, personOf } from "./parts.ts";
import type { PasskeyProof } from "./passkeys.ts";
import { beginSession, idleMsMax, strongMs } from "./sessions.ts";
import type { PeopleTables } from "./store.ts";

export async function getSession(
  parts: Parts,
  { shownAccountId }: GetSessionRequest,
  call: AuthenticatedCall,
) {
  const { store, oidc } = parts;
  const { personId, sessionId, strongUntil, operator } = personOf(call);
  const [person, accounts, passkeys, password, identities] = await Promise.all([
    store.findPerson(personId),
    store.listAccounts(personId),
    store.listPasskeys(personId),
    store.run(sql.findPassword, { personId }),
    store.run(sql.listIdentities, { personId }),
  ]);
  const [only, ...others] = accounts;
  const shown =
    shownAccountId === "" && others.length === 0
      ? only
      : accounts.find(({ accountId }) => accountId === shownAccountId);
  const shownAccount = shown && (await describeAccount(parts, shown));
  const providerOf = (issuer: string) =>
    [...oidc().values()].find(({ settings }) => settings.issuer.href === issuer)?.name ?? "";
  return create(GetSessionResponseSchema, {
    person,
    accounts,
    sessionId,
    passkeys,
    hasPassword: password !== undefined,
    operatorRole: operator,
    identities: identities.map(({ identityId, issuer, createdAt, usedAt }) =>
      create(IdentitySchema, {
        identityId,
        provider: providerOf(issuer),
        createdAt: timestampFromDate(createdAt),
        lastUsedAt: timestampFromDate(usedAt),
      }),
    ),
    ...(strongUntil && { strongUntil: timestampFromDate(strongUntil) }),
    providers: listProviders(parts),
    sellsCredits: parts.sellsCredits(),
    grpcAddress: parts.grpcAddress(),
    address: plainAddress(clientOf(call).address) ?? "",
    ...(shownAccount && { shownAccount }),
  });
}

/** How long a session waits for the figures of its account. */
const figuresMsMax = 2_000;

async function describeAccount(
  { store, forecastsOf, log }: Parts,
  { accountId, role }: PersonAccount,
): Promise<ShownAccount> {
  const [forecasts, members] = await Promise.all([
    // Whoever cannot read figures now must still be able to sign in, and soon.
    withTimeout(forecastsOf(accountId), figuresMsMax, () => []).catch((error: unknown) => {
      log.info({ err: error, accountId }, "a session is shown without its figures");
      return [];
    }),
    role === AccountRole.OWNER ? store.listMembers(accountId) : [],
  ]);
  return create(ShownAccountSchema, {
    accountId,
    forecasts: [...forecasts],
    members: members.map(({ personId, name, login }) =>
      create(MemberNameSchema, { personId, name: name || login }),
    ),
  });
}

function listProviders({ oidc }: Parts): OidcProvider[] {
  return [...oidc().values()].map(({ name, settings }) =>
    create(OidcProviderSchema, { name, title: settings.title }),
  );
}

export async function beginSignIn(
  parts: Parts,
  _: BeginSignInRequest,
  { caller }: AuthenticatedCall,
) {
  const { passkeys, outbox, signUp } = parts;
  const personId = caller.kind === "person" ? caller.personId : undefined;
  const passkeyOptionsJson = await passkeys.beginSignIn(personId);
  return create(BeginSignInResponseSchema, {
    passkeyOptionsJson,
    providers: listProviders(parts),
    signUp: outbox !== undefined && signUp().mode !== "closed",
  });
}

export async function signInWithPasskey(
  { store, passkeys }: Parts,
  { answerJson }: SignInWithPasskeyRequest,
  call: AuthenticatedCall,
) {
  const proof = await passkeys.verifyAnswer("answer_json", answerJson);
  const grant = await store.transaction(async (tables) => {
    const person = await checkEnabled(tables, proof.personId);
    const passkeyId = await useProof(tables, proof);
    await recordOperator(tables, person, "SignInWithPasskey", call);
    return beginSession(tables, proof.personId, "passkey", clientOf(call), { passkeyId });
  });
  const person = await store.findPerson(proof.personId);
  return create(SignInWithPasskeyResponseSchema, { grant, person });
}

export async function signInWithPassword(
  parts: Parts,
  { login, password }: SignInWithPasswordRequest,
  call: AuthenticatedCall,
) {
  const { personId, hash } = await checkGuess(parts, login, password, call);
  const grant = await parts.store.transaction(async (tables) => {
    const person = await checkEnabled(tables, personId);
    // Who changes a password ends the sessions that it began, and this one must not come after.
    const current = await tables.run(sql.findPassword, { personId });
    if (current?.hash !== hash) throw new ApiError("sign_in_failed");
    await recordOperator(tables, person, "SignInWithPassword", call);
    return beginSession(tables, personId, "password", clientOf(call));
  });
  const person = await parts.store.findPerson(personId);
  return create(SignInWithPasswordResponseSchema, { grant, person });
}

export async function confirmIdentity(
  parts: Parts,
  { passkeyAnswerJson, password }: ConfirmIdentityRequest,
  call: AuthenticatedCall,
) {
  const { store, passkeys, publish } = parts;
  const { personId, sessionId } = personOf(call);
  if ((passkeyAnswerJson === "") === (password === ""))
    throw invalidField("password", "give either a password or a passkey_answer_json");
  let proof: PasskeyProof | undefined;
  if (password === "") {
    proof = await passkeys.verifyAnswer("passkey_answer_json", passkeyAnswerJson);
    if (proof.personId !== personId) throw new ApiError("sign_in_failed");
  } else {
    const { login } = await existing(store.findPerson(personId));
    await checkGuess(parts, login, password, call);
  }
  const confirmed = await store.transaction(async (tables) => {
    if (proof) await useProof(tables, proof);
    // Other nodes know this session without the confirmation.
    await tables.insertChange(personId);
    const person = personOf(call);
    const confirmedBy = proof ? "passkey" : "password";
    await recordOperator(tables, actingAs(person), "ConfirmIdentity", call);
    return tables.run(sql.confirmSession, { sessionId, confirmedBy, strongMs });
  });
  if (!confirmed) throw new ApiError("invalid_session");
  publish(personId);
  const strongUntil = timestampFromDate(confirmed.strongUntil);
  return create(ConfirmIdentityResponseSchema, { strongUntil });
}

/** The person with this login and password. Throws `sign_in_failed` for any other. */
async function checkGuess(
  { store, hasher, guessing }: Parts,
  login: string,
  password: string,
  call: AuthenticatedCall,
): Promise<{ personId: string; hash: string }> {
  const known = plainLogin(login);
  const { address } = clientOf(call);
  const owner = `sign-in ${networkOf(address)} ${known}`;
  const job = { lane: "sign_in", owner, address } as const;
  hasher.checkRoom(job);
  const succeed = await guessing.begin(known, address, call.signal);
  const found = await store.run(sql.findLogin, { login: known });
  const hash = found?.hash ?? undefined;
  const isRight = await hasher.verify(password, hash, job);
  if (!found || hash === undefined || !isRight) throw new ApiError("sign_in_failed");
  await succeed();
  return { personId: found.personId, hash };
}

/** A login as it is stored, of what a person types. */
export function plainLogin(text: string): string {
  return text.trim().normalize("NFKC").toLowerCase();
}

/** Locks the person. Throws `sign_in_failed` if he may not sign in any more. */
async function checkEnabled(tables: PeopleTables, personId: string): Promise<Person> {
  const person = await tables.lockPerson(personId);
  if (!person || person.disabledAt) throw new ApiError("sign_in_failed");
  return person;
}

/** A caller as the person that `recordOperator` reads. */
function actingAs({
  personId,
  operator,
}: ReturnType<typeof personOf>): Pick<Person, "personId" | "operatorRole"> {
  return { personId, operatorRole: operator };
}

/** Records what operators do with their sessions. That of others is in the list of sessions. */
export async function recordOperator(
  tables: PeopleTables,
  { personId, operatorRole: operator }: Pick<Person, "personId" | "operatorRole">,
  method: string,
  call: AuthenticatedCall,
): Promise<void> {
  if (operator === OperatorRole.UNSPECIFIED) return;
  await recordAct(tables, { personId, accountId: "", method, facts: {} }, call);
}

/** The id of the passkey. Throws `sign_in_failed` for an answer that was used before. */
async function useProof(tables: PeopleTables, proof: PasskeyProof): Promise<string> {
  const { credentialId, counter, challenge } = proof;
  if (!(await spendChallenge(tables, challenge))) throw new ApiError("sign_in_failed");
  const used = await tables.run(sql.usePasskey, { credentialId, counter });
  if (!used) throw new ApiError("sign_in_failed");
  return used.passkeyId;
}

async function existing(found: Promise<Person | undefined>): Promise<Person> {
  const person = await found;
  if (!person) throw new ApiError("invalid_session");
  return person;
}

export async function signOut(parts: Parts, _: SignOutRequest, call: AuthenticatedCall) {
  const person = personOf(call);
  if (await endSession(parts, person.personId, person.sessionId))
    await recordOperator(parts.store, actingAs(person), "SignOut", call);
  return create(SignOutResponseSchema);
}

export async function listSessions(
  { store }: Parts,
  request: ListSessionsRequest,
  call: AuthenticatedCall,
) {
  const { personId, sessionId } = personOf(call);
  const rows = await store.run(sql.listSessions, { personId, idleMsMax });
  const list = wholeList(rows, (row) => row.sessionId);
  const page = await readPage(ProfileService.method.listSessions, request, call, list);
  const sessions = page.entries.map((row) => ({
    ...row,
    createdAt: timestampFromDate(row.createdAt),
    lastUsedAt: timestampFromDate(row.usedAt),
    expiresAt: timestampFromDate(row.endsAt),
    current: row.sessionId === sessionId,
  }));
  return create(ListSessionsResponseSchema, { sessions, nextPageToken: page.nextPageToken });
}

export async function revokeSession(
  parts: Parts,
  { sessionId }: RevokeSessionRequest,
  call: AuthenticatedCall,
) {
  if (!(await endSession(parts, personOf(call).personId, sessionId)))
    throw new ApiError("not_found", { field: "session_id", message: "No such open session." });
  return create(RevokeSessionResponseSchema);
}

async function endSession(
  { store, publish }: Parts,
  personId: string,
  sessionId: string,
): Promise<boolean> {
  const wasOpen = await store.transaction(async (tables) => {
    const ended = await tables.run(sql.endSession, { personId, sessionId });
    if (ended > 0) await tables.insertChange(personId);
    return ended > 0;
  });
  if (wasOpen) publish(personId);
  return wasOpen;
}
