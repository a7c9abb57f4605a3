// Passkeys: what the browser is asked for, in the JSON of WebAuthn. Safari reads and writes this
// JSON by itself only from 18.4 on, so the page does it for all.

import { SignInService } from "../../../gen/gateway/people/v1/sign_in_pb.ts";
import { CallError, call } from "./api.ts";
import { words } from "./words.ts";

type Known = { readonly id: string };
type CreationJson = Omit<
  PublicKeyCredentialCreationOptions,
  "challenge" | "user" | "excludeCredentials"
> & {
  readonly challenge: string;
  readonly user: Omit<PublicKeyCredentialUserEntity, "id"> & Known;
  readonly excludeCredentials?: readonly Known[];
};
type RequestJson = Omit<PublicKeyCredentialRequestOptions, "challenge" | "allowCredentials"> & {
  readonly challenge: string;
  readonly allowCredentials?: readonly Known[];
};

/** Creates a passkey from the options of BeginPasskey. Resolves with the JSON of the answer. */
export async function createPasskey(optionsJson: string): Promise<string> {
  const options: CreationJson = JSON.parse(optionsJson);
  const { challenge, user, excludeCredentials = [], ...rest } = options;
  return answerOf(() =>
    navigator.credentials.create({
      publicKey: {
        ...rest,
        challenge: bytesOf(challenge),
        user: { ...user, id: bytesOf(user.id) },
        excludeCredentials: excludeCredentials.map(descriptorOf),
      },
    }),
  );
}

/** Uses a passkey, for options of BeginSignIn. Resolves with the JSON of the answer. */
export async function usePasskey(): Promise<string> {
  const { passkeyOptionsJson } = await call(SignInService.method.beginSignIn, {});
  const options: RequestJson = JSON.parse(passkeyOptionsJson);
  const { challenge, allowCredentials = [], ...rest } = options;
  return answerOf(() =>
    navigator.credentials.get({
      publicKey: {
        ...rest,
        challenge: bytesOf(challenge),
        allowCredentials: allowCredentials.map(descriptorOf),
      },
    }),
  );
}

async function answerOf(ask: () => Promise<Credential | null>): Promise<string> {
  try {
    const credential = await ask();
    if (credential instanceof PublicKeyCredential) return JSON.stringify(jsonOf(credential));
  } catch (error) {
    const isMissing = error instanceof DOMException && error.name === "SecurityError";
    const message = isMissing ? words.doors.passkeyMissing : words.doors.passkeyUnused;
    throw new CallError(message, { reason: "sign_in_failed" });
  }
  throw new CallError(words.doors.passkeyUnused, { reason: "sign_in_failed" });
}

function jsonOf(credential: PublicKeyCredential) {
  const { id, rawId, type, authenticatorAttachment, response } = credential;
  return {
    ...{ id, type, rawId: textOf(rawId) },
    ...(authenticatorAttachment && { authenticatorAttachment }),
    clientExtensionResults: credential.getClientExtensionResults(),
    response: {
      clientDataJSON: textOf(response.clientDataJSON),
      ...(response instanceof AuthenticatorAttestationResponse && {
        attestationObject: textOf(response.attestationObject),
        transports: response.getTransports(),
      }),
      ...(response instanceof AuthenticatorAssertionResponse && {
        authenticatorData: textOf(response.authenticatorData),
        signature: textOf(response.signature),
        ...(response.userHandle && { userHandle: textOf(response.userHandle) }),
      }),
    },
  };
}

function descriptorOf({ id }: Known): PublicKeyCredentialDescriptor {
  return { type: "public-key", id: bytesOf(id) };
}

/** Of base64 for addresses, without padding. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

function textOf(bytes: ArrayBuffer): string {
  const binary = String.fromCharCode(...new Uint8Array(bytes));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
