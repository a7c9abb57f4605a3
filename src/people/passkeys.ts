// Passkeys: WebAuthn credentials that verify their user, so that one touch is two factors. They are
// discoverable: nobody types a login. `@simplewebauthn/server` reads the formats and verifies the
// signatures.

import type { AuthenticationResponseJSON, RegistrationResponseJSON } from "@simplewebauthn/server";
import * as sql from "../../gen/sql/people.ts";
import { ApiError } from "../base/errors.ts";
import type { Runner } from "../postgres/statement.ts";
import type { AnsweredChallenge, Challenges } from "./challenges.ts";
import type { StoredPasskey } from "./store.ts";

/** By need: its 340 modules are a sixth of a start, and many gateways have no console. */
const library = () => import("@simplewebauthn/server");

/** EdDSA, ES256 and RS256. Named, because asking the library makes Node print a warning. */
const algorithms = [-8, -7, -257];
const answerLengthMax = 64 * 1024;
const timeoutMs = 5 * 60_000;
const signIn = "sign-in";

/** A new passkey, and the challenge that its answer has to spend. */
export type NewPasskey = { readonly passkey: StoredPasskey; readonly challenge: AnsweredChallenge };

/** A proof that a person has a passkey. */
export type PasskeyProof = {
  readonly personId: string;
  readonly credentialId: string;
  readonly counter: number;
  readonly challenge: AnsweredChallenge;
};

export type Passkeys = {
  /** Options for a new passkey of a person, as JSON. */
  beginRegistration(person: { personId: string; login: string }): Promise<string>;
  /** Throws `sign_in_failed`, and `invalid_request` with `field` for what is no JSON. */
  verifyRegistration(field: string, personId: string, answer: string): Promise<NewPasskey>;
  /** Options for a sign-in, as JSON. `personId`: only the passkeys of this person. */
  beginSignIn(personId: string | undefined): Promise<string>;
  /** Throws `sign_in_failed`, and `invalid_request` with `field` for what is no JSON. */
  verifyAnswer(field: string, answer: string): Promise<PasskeyProof>;
};

/** `origin`: of the pages that may use the passkeys. */
export function createPasskeys(parts: {
  store: Runner;
  challenges: Challenges;
  origin: () => URL;
}): Passkeys {
  const { store, challenges } = parts;
  const origin = () => parts.origin().origin;
  const site = () => parts.origin().hostname;

  /** Runs the library with the challenge of the answer. Its errors only say that it was wrong. */
  async function verified<T>(
    purpose: string,
    verify: (expectedChallenge: (challenge: string) => Promise<boolean>) => Promise<T>,
  ): Promise<{ result: T; challenge: AnsweredChallenge }> {
    let challenge: AnsweredChallenge | undefined;
    const result = await verify(async (text) => {
      challenge = challenges.check(purpose, text);
      return challenge !== undefined;
    }).catch((cause: unknown) => {
      throw cause instanceof ApiError ? cause : failed(cause);
    });
    if (!challenge) throw failed();
    return { result, challenge };
  }

  return {
    async beginRegistration({ personId, login }) {
      const known = await store.run(sql.listPasskeys, { personId });
      const { generateRegistrationOptions } = await library();
      const options = await generateRegistrationOptions({
        rpName: "Model Gateway",
        rpID: site(),
        userName: login,
        userDisplayName: login,
        userID: new TextEncoder().encode(personId),
        challenge: challenges.make(registrationOf(personId), timeoutMs),
        excludeCredentials: known.map(({ credentialId: id }) => ({ id })),
        authenticatorSelection: { residentKey: "required", userVerification: "required" },
        supportedAlgorithmIDs: algorithms,
        timeout: timeoutMs,
      });
      return JSON.stringify(options);
    },

    async verifyRegistration(field, personId, answer) {
      const response = parseAnswer(field, answer, isRegistration);
      const { verifyRegistrationResponse } = await library();
      const { result, challenge } = await verified(registrationOf(personId), (expectedChallenge) =>
        verifyRegistrationResponse({
          response,
          expectedChallenge,
          expectedOrigin: origin(),
          expectedRPID: site(),
          requireUserVerification: true,
          supportedAlgorithmIDs: algorithms,
        }),
      );
      if (!result.verified) throw failed();
      const { id, publicKey, counter } = result.registrationInfo.credential;
      const passkey = { credentialId: id, personId, publicKey: Buffer.from(publicKey), counter };
      return { passkey, challenge };
    },

    async beginSignIn(personId) {
      const known = personId === undefined ? [] : await store.run(sql.listPasskeys, { personId });
      const { generateAuthenticationOptions } = await library();
      const options = await generateAuthenticationOptions({
        rpID: site(),
        challenge: challenges.make(signIn, timeoutMs),
        allowCredentials: known.map(({ credentialId: id }) => ({ id })),
        userVerification: "required",
        timeout: timeoutMs,
      });
      return JSON.stringify(options);
    },

    async verifyAnswer(field, answer) {
      const response = parseAnswer(field, answer, isAuthentication);
      const passkey = await store.run(sql.findPasskey, { credentialId: response.id });
      if (!passkey) throw failed();
      const { credentialId, personId } = passkey;
      const publicKey = new Uint8Array(passkey.publicKey);
      const counter = Number(passkey.counter);
      const { verifyAuthenticationResponse } = await library();
      const { result, challenge } = await verified(signIn, (expectedChallenge) =>
        verifyAuthenticationResponse({
          response,
          expectedChallenge,
          expectedOrigin: origin(),
          expectedRPID: site(),
          requireUserVerification: true,
          credential: { id: credentialId, publicKey, counter },
        }),
      );
      if (!result.verified) throw failed();
      const { newCounter } = result.authenticationInfo;
      return { personId, credentialId, counter: newCounter, challenge };
    },
  };
}

// An answer that registers a passkey for one person must not register it for another.
function registrationOf(personId: string): string {
  return `register ${personId}`;
}

function failed(cause?: unknown): ApiError {
  return new ApiError("sign_in_failed", {
    message: "This passkey did not work here. Try again.",
    ...(cause !== undefined && { cause }),
  });
}

function parseAnswer<T>(
  field: string,
  answer: string,
  isAnswer: (value: unknown) => value is T,
): T {
  if (answer.length > answerLengthMax) throw failed();
  let value: unknown;
  try {
    value = JSON.parse(answer);
  } catch {
    throw new ApiError("invalid_request", { field, message: `${field}: is not JSON` });
  }
  if (!isAnswer(value)) throw failed();
  return value;
}

function isRegistration(value: unknown): value is RegistrationResponseJSON {
  return (
    hasTexts(value, ["id", "rawId", "type"]) &&
    hasTexts(responseOf(value), ["clientDataJSON", "attestationObject"])
  );
}

function isAuthentication(value: unknown): value is AuthenticationResponseJSON {
  return (
    hasTexts(value, ["id", "rawId", "type"]) &&
    isBase64Url(Reflect.get(value, "id")) &&
    hasTexts(responseOf(value), ["clientDataJSON", "authenticatorData", "signature"])
  );
}

// The database takes no text with U+0000, for example.
function isBase64Url(value: unknown): boolean {
  return typeof value === "string" && /^[\w-]+$/.test(value);
}

function responseOf(value: object): unknown {
  return Reflect.get(value, "response");
}

function hasTexts(value: unknown, names: readonly string[]): value is object {
  return (
    typeof value === "object" &&
    value !== null &&
    names.every((name) => typeof Reflect.get(value, name) === "string")
  );
}
