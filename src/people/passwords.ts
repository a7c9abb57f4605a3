// Passwords, hashed with Argon2id: 19 MiB, two passes, one lane, as OWASP recommends.

import { argon2, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { randomSecret } from "../base/ids.ts";
import { type HashJob, HashLanes } from "./hash-lanes.ts";

// In UTF-16 units. Longer texts only cost time.
const lengthMax = 1_000;
const parameters = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 } as const;

const deriveKey = promisify(argon2);

/** Hashes passwords, each for a job of its lanes. Throws as `HashLanes.run`. */
export class PasswordHasher {
  readonly #lanes = new HashLanes();
  /** Compared with if there is no such login, so that the answer takes as long. */
  #nobody: Promise<string> | undefined;

  /** The text to store, with its parameters and salt. */
  hash(password: string, job: HashJob): Promise<string> {
    return this.#lanes.run(job, () => hashPassword(password));
  }

  /** `stored` undefined: takes as long and is false. */
  async verify(password: string, stored: string | undefined, job: HashJob): Promise<boolean> {
    this.#nobody ??= hashPassword(randomSecret(16));
    const [, , , , salt = "", key = ""] = (stored ?? (await this.#nobody)).split("$");
    const expected = Buffer.from(key, "base64");
    const derived = await this.#lanes.run(job, () => derive(password, Buffer.from(salt, "base64")));
    return derived.length === expected.length && timingSafeEqual(derived, expected)
      ? stored !== undefined
      : false;
  }

  /** Throws what `hash` and `verify` would throw at this moment. */
  checkRoom(job: HashJob): void {
    this.#lanes.checkRoom(job);
  }
}

async function hashPassword(password: string): Promise<string> {
  const salt = Buffer.from(randomSecret(16), "base64url");
  const key = await derive(password, salt);
  const { memory, passes, parallelism } = parameters;
  const head = `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}`;
  return `${head}$${unpadded(salt)}$${unpadded(key)}`;
}

async function derive(password: string, salt: Buffer): Promise<Buffer> {
  // The same characters have several encodings, and keyboards differ in which they send.
  const message = password.slice(0, 2 * lengthMax).normalize("NFKC");
  return Buffer.from(await deriveKey("argon2id", { ...parameters, message, nonce: salt }));
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}
