// The ways in of a signed-in person: passkeys and a password. The last one cannot be removed.

import { create } from "@bufbuild/protobuf";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Person } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type CreatePasskeyRequest,
  CreatePasskeyResponseSchema,
  type DeleteIdentityRequest,
  DeleteIdentityResponseSchema,
  type DeletePasskeyRequest,
  DeletePasskeyResponseSchema,
  type SetPasswordRequest,
  SetPasswordResponseSchema,
} from "../../gen/gateway/people/v1/profile_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError } from "../base/errors.ts";
import { checkName } from "../base/names.ts";
import { clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { spendChallenge } from "./challenges.ts";
import { keepWayIn, type Parts, personOf } from "./parts.ts";
import type { PeopleTables } from "./store.ts";

export async function addPasskey(
  parts: Parts,
  { answerJson, name }: CreatePasskeyRequest,
  call: AuthenticatedCall,
) {
  const { personId } = personOf(call);
  const checked = checkName("name", name);
  const { passkey, challenge } = await parts.passkeys.verifyRegistration(
    "answer_json",
    personId,
    answerJson,
  );
  const added = await parts.store.transaction(async (tables) => {
    await lockToChange(parts, tables, call);
    if (!(await spendChallenge(tables, challenge))) throw new ApiError("sign_in_failed");
    return tables.insertPasskey({ ...passkey, name: checked });
  });
  if (!added) throw new ApiError("sign_in_failed");
  return create(CreatePasskeyResponseSchema, { passkey: added });
}

export async function removePasskey(
  parts: Parts,
  { passkeyId }: DeletePasskeyRequest,
  call: AuthenticatedCall,
) {
  const { personId, sessionId } = personOf(call);
  await parts.store.transaction(async (tables) => {
    await lockToChange(parts, tables, call);
    if ((await tables.run(sql.deletePasskey, { personId, passkeyId })) === 0)
      throw new ApiError("not_found", { field: "passkey_id", message: "No such passkey." });
    await keepWayIn(parts, tables, personId);
    // Whoever has the device of the passkey may have a session.
    const ended = { personId, passkeyId, butSessionId: sessionId };
    await tables.run(sql.endSessionsOfPasskey, ended);
    await tables.insertChange(personId);
  });
  parts.publish(personId);
  return create(DeletePasskeyResponseSchema);
}

export async function removeIdentity(
  parts: Parts,
  { identityId }: DeleteIdentityRequest,
  call: AuthenticatedCall,
) {
  const { personId } = personOf(call);
  await parts.store.transaction(async (tables) => {
    await lockToChange(parts, tables, call);
    if ((await tables.run(sql.deleteIdentity, { personId, identityId })) === 0)
      throw new ApiError("not_found", { field: "identity_id", message: "No such identity." });
    await keepWayIn(parts, tables, personId);
  });
  return create(DeleteIdentityResponseSchema);
}

export async function setPassword(
  parts: Parts,
  { password }: SetPasswordRequest,
  call: AuthenticatedCall,
) {
  const { store, hasher, guessing, publish } = parts;
  const { personId, sessionId } = personOf(call);
  let hash: string | undefined;
  if (password !== "") {
    const job = { lane: "change", owner: personId, address: clientOf(call).address } as const;
    hasher.checkRoom(job);
    await guessing.count("set-password", job.address);
    hash = await hasher.hash(password, job);
  }
  await store.transaction(async (tables) => {
    await lockToChange(parts, tables, call);
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
export async function lockOpen(tables: PeopleTables, call: AuthenticatedCall): Promise<Person> {
  const { personId, sessionId } = personOf(call);
  const person = await tables.lockPerson(personId);
  const open = await tables.run(sql.findProof, { sessionId });
  if (!person || person.disabledAt || !open) throw new ApiError("invalid_session");
  return person;
}

/** The same before a way in or the address is changed. Throws `confirm_identity`. */
export async function lockToChange(
  parts: Pick<Parts, "passkeyOnly">,
  tables: PeopleTables,
  call: AuthenticatedCall,
): Promise<Person> {
  const person = await lockOpen(tables, call);
  await checkProof(parts, tables, call);
  return person;
}

/**
 * Throws `confirm_identity` if an operator has to sign in with a passkey, and the person of this
 * session proved last by a password who he is. Else a password would lead to the whole operator.
 */
export async function checkProof(
  { passkeyOnly }: Pick<Parts, "passkeyOnly">,
  tables: PeopleTables,
  call: AuthenticatedCall,
): Promise<void> {
  const { personId, sessionId } = personOf(call);
  if (!passkeyOnly()) return;
  const person = await tables.findPerson(personId);
  if (person?.operatorRole === OperatorRole.UNSPECIFIED) return;
  const found = await tables.run(sql.findProof, { sessionId });
  if (found?.proof !== "password") return;
  throw new ApiError("confirm_identity", {
    message:
      "Confirm who you are with a passkey or at your company, not with a password. If you have " +
      "neither, ask for a new sign-in link.",
  });
}
