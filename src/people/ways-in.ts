// The ways in of a signed-in person: passkeys and a password. The last one cannot be removed.

import { create } from "@bufbuild/protobuf";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type AddPasskeyRequest,
  AddPasskeyResponseSchema,
  type Person,
  type RemoveIdentityRequest,
  RemoveIdentityResponseSchema,
  type RemovePasskeyRequest,
  RemovePasskeyResponseSchema,
  type SetPasswordRequest,
  SetPasswordResponseSchema,
} from "../../gen/gateway/people/v1/people_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError } from "../base/errors.ts";
import { checkName } from "../base/names.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { spendChallenge } from "./challenges.ts";
import { keepWayIn, type Parts, personOf } from "./parts.ts";
import { checkPassword } from "./passwords.ts";
import type { PeopleTables, SignInMethod } from "./store.ts";

export async function addPasskey(
  { store, passkeys, passkeyOnly }: Parts,
  { answerJson, name }: AddPasskeyRequest,
  call: AuthenticatedCall,
) {
  const { personId } = personOf(call);
  const checked = checkName("name", name);
  const { passkey, challenge } = await passkeys.verifyRegistration(
    "answer_json",
    personId,
    answerJson,
  );
  const added = await store.transaction(async (tables) => {
    const { person, method } = await lockOpen(tables, call);
    // Else a password, which gives no operator role here, would lead to one.
    const isOperator = person.operator !== OperatorRole.UNSPECIFIED;
    if (isOperator && passkeyOnly() && method === "password")
      throw new ApiError("not_permitted", {
        message: "Sign in with a passkey first. Without one, ask for a new sign-in link.",
      });
    if (!(await spendChallenge(tables, challenge))) throw new ApiError("sign_in_failed");
    return tables.insertPasskey({ ...passkey, name: checked });
  });
  if (!added) throw new ApiError("sign_in_failed");
  return create(AddPasskeyResponseSchema, { passkey: added });
}

export async function removePasskey(
  parts: Parts,
  { passkeyId }: RemovePasskeyRequest,
  call: AuthenticatedCall,
) {
  const { personId, sessionId } = personOf(call);
  await parts.store.transaction(async (tables) => {
    await lockOpen(tables, call);
    if ((await tables.run(sql.deletePasskey, { personId, passkeyId })) === 0)
      throw new ApiError("not_found", { field: "passkey_id", message: "No such passkey." });
    await keepWayIn(parts, tables, personId);
    // Whoever has the device of the passkey may have a session.
    const ended = { personId, passkeyId, butSessionId: sessionId };
    await tables.run(sql.endSessionsOfPasskey, ended);
    await tables.insertChange(personId);
  });
  parts.publish(personId);
  return create(RemovePasskeyResponseSchema);
}

export async function removeIdentity(
  parts: Parts,
  { identityId }: RemoveIdentityRequest,
  call: AuthenticatedCall,
) {
  const { personId } = personOf(call);
  await parts.store.transaction(async (tables) => {
    await lockOpen(tables, call);
    if ((await tables.run(sql.deleteIdentity, { personId, identityId })) === 0)
      throw new ApiError("not_found", { field: "identity_id", message: "No such identity." });
    await keepWayIn(parts, tables, personId);
  });
  return create(RemoveIdentityResponseSchema);
}

export async function setPassword(
  parts: Parts,
  { password }: SetPasswordRequest,
  call: AuthenticatedCall,
) {
  const { store, hasher, publish } = parts;
  const { personId, sessionId } = personOf(call);
  let hash: string | undefined;
  if (password !== "") {
    checkPassword("password", password);
    hash = await hasher.hash(password);
  }
  await store.transaction(async (tables) => {
    await lockOpen(tables, call);
    if (hash === undefined) await tables.run(sql.deletePassword, { personId });
    else await tables.run(sql.putPassword, { personId, hash });
    await keepWayIn(parts, tables, personId);
    // Whoever knew the old password may have a session.
    await tables.run(sql.endSessions, { personId, butSessionId: sessionId });
    await tables.insertChange(personId);
  });
  publish(personId);
  return create(SetPasswordResponseSchema);
}

/**
 * Locks the person of a session. Throws `invalid_session` if the session has ended, which the node
 * may not know yet: a thief could add a way in after a recovery.
 */
export async function lockOpen(
  tables: PeopleTables,
  call: AuthenticatedCall,
): Promise<{ person: Person; method: SignInMethod }> {
  const { personId, sessionId } = personOf(call);
  const person = await tables.lockPerson(personId);
  const open = await tables.run(sql.findMethod, { sessionId });
  if (!person || person.disabledAt || !open) throw new ApiError("invalid_session");
  return { person, method: open.method };
}
