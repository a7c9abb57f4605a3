// Passkeys: what the browser is asked for, in the JSON of WebAuthn.

import { PeopleService } from "../../../gen/gateway/people/v1/people_pb.ts";
import { CallError, call } from "./api.ts";
import { words } from "./words.ts";

/** Creates a passkey from the options of BeginPasskey. Resolves with the JSON of the answer. */
export async function createPasskey(optionsJson: string): Promise<string> {
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(JSON.parse(optionsJson));
  return answerOf(() => navigator.credentials.create({ publicKey }));
}

/** Uses a passkey, for options of BeginSignIn. Resolves with the JSON of the answer. */
export async function usePasskey(): Promise<string> {
  const { passkeyOptionsJson } = await call(PeopleService.method.beginSignIn, {});
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(JSON.parse(passkeyOptionsJson));
  return answerOf(() => navigator.credentials.get({ publicKey }));
}

async function answerOf(ask: () => Promise<Credential | null>): Promise<string> {
  try {
    const credential = await ask();
    if (credential instanceof PublicKeyCredential) return JSON.stringify(credential.toJSON());
  } catch (error) {
    const isMissing = error instanceof DOMException && error.name === "SecurityError";
    const message = isMissing ? words.doors.passkeyMissing : words.doors.passkeyUnused;
    throw new CallError(message, { reason: "sign_in_failed" });
  }
  throw new CallError(words.doors.passkeyUnused, { reason: "sign_in_failed" });
}
