// Passwords, hashed with Argon2id: 19 MiB, two passes, one lane, as OWASP recommends. Each hash
// takes a thread of Node's pool, which also serves DNS and files, so two run at once and a hundred
// wait.

import { argon2, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { ApiError, invalidField } from "../base/errors.ts";
import { randomSecret } from "../base/ids.ts";

const lengthMin = 12;
// In UTF-16 units. Longer texts only cost time.
const lengthMax = 1_000;
const runningMax = 2;
const waitingMax = 100;
const parameters = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 } as const;

const deriveKey = promisify(argon2);

/** Throws `invalid_request`. Length is the only rule. */
export function checkPassword(field: string, password: string): void {
  if (password.length > 2 * lengthMax || [...password].length < lengthMin)
    throw invalidField(field, `has to have at least ${lengthMin} characters, and at most 1000`);
}

/** Hashes passwords. Throws `gateway_unavailable` if too many wait. */
export class PasswordHasher {
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  /** Compared with if there is no such login, so that the answer takes as long. */
  #nobody: Promise<string> | undefined;

  /** The text to store, with its parameters and salt. */
  async hash(password: string): Promise<string> {
    const salt = Buffer.from(randomSecret(16), "base64url");
    const key = await this.#derive(password, salt);
    const { memory, passes, parallelism } = parameters;
    const head = `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}`;
    return `${head}$${unpadded(salt)}$${unpadded(key)}`;
  }

  /** `stored` undefined: takes as long and is false. */
  async verify(password: string, stored: string | undefined): Promise<boolean> {
    this.#nobody ??= this.hash(randomSecret(16)).catch((error: unknown) => {
      this.#nobody = undefined;
      throw error;
    });
    const [, , , , salt = "", key = ""] = (stored ?? (await this.#nobody)).split("$");
    const derived = await this.#derive(password, Buffer.from(salt, "base64"));
    const expected = Buffer.from(key, "base64");
    return derived.length === expected.length && timingSafeEqual(derived, expected)
      ? stored !== undefined
      : false;
  }

  /** Throws `gateway_unavailable` if too many wait. */
  checkRoom(): void {
    if (this.#waiting.length >= waitingMax)
      throw new ApiError("gateway_unavailable", {
        message: "Too many people sign in with a password at this moment; try again shortly.",
        retryAfterMs: 2_000,
      });
  }

  async #derive(password: string, salt: Buffer): Promise<Buffer> {
    await this.#enter();
    try {
      // The same characters have several encodings, and keyboards differ in which they send.
      const message = password.slice(0, 2 * lengthMax).normalize("NFKC");
      return Buffer.from(await deriveKey("argon2id", { ...parameters, message, nonce: salt }));
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  async #enter(): Promise<void> {
    if (this.#running >= runningMax) {
      this.checkRoom();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#running++;
  }
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}
