// Challenges: what a passkey signs, and what a browser keeps while its person is at a provider of
// OIDC. A challenge is random, names its purpose, expires after minutes, and carries a code by a
// secret that all nodes share, those of other cells too: who begins to sign in is not known yet. So
// nothing is stored when somebody begins; what is stored is that a challenge was answered, because
// one answer is all that it is good for.

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
  make(purpose: string, lifetimeMs: number): Uint8Array<ArrayBuffer>;
  /** Undefined: it is not ours, has another purpose, or expired. */
  check(purpose: string, challenge: string): AnsweredChallenge | undefined;
  /** A text with a code, which only holders of a content key can make. */
  seal(purpose: string, text: string): string;
  /** The text of `seal`. Undefined: its code is wrong. */
  open(purpose: string, sealed: string): string | undefined;
};

/** `keys`: the content keys. The first one signs, and each of them is accepted. */
export function createChallenges(keys: readonly Uint8Array[]): Challenges {
  const secrets = keys.map((key) => createHmac("sha256", key).update("challenges").digest());
  const codesOf = (purpose: string, head: Uint8Array) =>
    secrets.map((secret) =>
      createHmac("sha256", secret).update(`${purpose}\0`).update(head).digest(),
    );

  return {
    seal(purpose, text) {
      const content = Buffer.from(text);
      const [code] = codesOf(purpose, content);
      if (!code) throw new Error("no content key was given");
      return Buffer.concat([code, content]).toString("base64url");
    },
    open(purpose, sealed) {
      const bytes = Buffer.from(sealed, "base64url");
      const code = bytes.subarray(0, codeLength);
      const content = bytes.subarray(codeLength);
      const isRight =
        code.length === codeLength &&
        codesOf(purpose, content).some((right) => timingSafeEqual(code, right));
      return isRight ? content.toString() : undefined;
    },
    make(purpose, lifetimeMs) {
      const head = Buffer.concat([randomBytes(randomLength), Buffer.alloc(timeLength)]);
      head.writeUIntBE(Date.now() + lifetimeMs, randomLength, timeLength);
      const [code] = codesOf(purpose, head);
      if (!code) throw new Error("no content key was given");
      return new Uint8Array(Buffer.concat([head, code]));
    },
    check(purpose, challenge) {
      const bytes = Buffer.from(challenge, "base64url");
      if (bytes.length !== randomLength + timeLength + codeLength) return undefined;
      const head = bytes.subarray(0, randomLength + timeLength);
      const code = bytes.subarray(randomLength + timeLength);
      if (!codesOf(purpose, head).some((right) => timingSafeEqual(code, right))) return undefined;
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
