// Challenges: what a passkey signs, and what a browser keeps while its person is at a provider of
// OIDC. A challenge is random, names its purpose, expires after minutes, and carries a code by a
// secret that all nodes share. So nothing is stored when somebody begins to sign in; what is stored
// is that a challenge was answered, because one answer is all that it is good for.

import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import * as sql from "../../gen/sql/people.ts";
import type { Runner } from "../postgres/statement.ts";

const lifetimeMsMax = 15 * 60_000;
const randomLength = 16;
const timeLength = 6;
const codeLength = 32;

/** A challenge whose code is right, to be spent with the change that its answer causes. */
export type AnsweredChallenge = { readonly digest: Buffer; readonly endsAtMs: number };

export type Challenges = {
  /** `purpose`: what an answer to it may do. No answer to another purpose is accepted. */
  make(purpose: string, lifetimeMs: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Undefined: it is not ours, has another purpose, or expired. */
  check(purpose: string, challenge: string): Promise<AnsweredChallenge | undefined>;
};

export function createChallenges(store: Runner): Challenges {
  let secret: Promise<Buffer> | undefined;
  const readSecret = () => {
    secret ??= store.run(sql.claimChallengeSecret, { secret: randomBytes(32) }).then(
      ({ challengeSecret }) => challengeSecret,
      (error: unknown) => {
        secret = undefined;
        throw error;
      },
    );
    return secret;
  };
  const codeOf = async (purpose: string, head: Uint8Array) =>
    createHmac("sha256", await readSecret())
      .update(`${purpose}\0`)
      .update(head)
      .digest();

  return {
    async make(purpose, lifetimeMs) {
      const head = Buffer.concat([randomBytes(randomLength), Buffer.alloc(timeLength)]);
      head.writeUIntBE(Date.now() + lifetimeMs, randomLength, timeLength);
      return new Uint8Array(Buffer.concat([head, await codeOf(purpose, head)]));
    },
    async check(purpose, challenge) {
      const bytes = Buffer.from(challenge, "base64url");
      if (bytes.length !== randomLength + timeLength + codeLength) return undefined;
      const head = bytes.subarray(0, randomLength + timeLength);
      const code = bytes.subarray(randomLength + timeLength);
      if (!timingSafeEqual(code, await codeOf(purpose, head))) return undefined;
      const endsAtMs = head.readUIntBE(randomLength, timeLength);
      if (endsAtMs < Date.now()) return undefined;
      return { digest: hash("sha256", bytes, "buffer"), endsAtMs };
    },
  };
}

/** False: the challenge was answered before. */
export async function spendChallenge(
  tables: Runner,
  { digest }: AnsweredChallenge,
): Promise<boolean> {
  // Kept for longer than any node could accept it, even if its clock is slow.
  return (await tables.run(sql.spendChallenge, { digest, lifetimeMs: 2 * lifetimeMsMax })) > 0;
}
