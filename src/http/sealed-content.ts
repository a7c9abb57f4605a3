// Seals the thinking that clients of the Responses format return with their next request: only this
// gateway can read it, and only for the same account and model.

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { ApiError, invalidField } from "../base/errors.ts";

/** What a sealed content belongs to. */
export type SealScope = { readonly accountId: string; readonly model: string };

/** Bytes of a key from the environment. */
export const contentKeyBytes = 32;

const version = 1;
const [nonceBytes, tagBytes] = [12, 16];
/** Version, time in seconds (6 bytes), nonce. */
const headBytes = 1 + 6 + nonceBytes;
/** A conversation that pauses longer starts its thinking anew. */
const ageMaxSeconds = 30 * 24 * 3600;

export class SealedContent {
  readonly #keys: readonly Buffer[];
  readonly #nowMs: () => number;

  /** The first key seals. All of them open, so that a key can be replaced by another. */
  constructor(keys: readonly Uint8Array[], nowMs: () => number = Date.now) {
    // A new key for each purpose of the configured one.
    this.#keys = keys.map((key) =>
      Buffer.from(hkdfSync("sha256", key, "", "gateway responses encrypted_content", 32)),
    );
    this.#nowMs = nowMs;
  }

  seal(text: string, scope: SealScope): string {
    const head = Buffer.alloc(headBytes);
    head.writeUInt8(version, 0);
    head.writeUIntBE(Math.floor(this.#nowMs() / 1000), 1, 6);
    randomBytes(nonceBytes).copy(head, headBytes - nonceBytes);
    const [key] = this.#keys;
    if (!key) throw new ApiError("internal");
    const cipher = createCipheriv("aes-256-gcm", key, head.subarray(-nonceBytes));
    cipher.setAAD(Buffer.concat([head, associated(scope)]));
    const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
    return Buffer.concat([head, body, cipher.getAuthTag()]).toString("base64url");
  }

  /** The sealed text. Throws `invalid_request` for the member at `at`. */
  open(sealed: string, scope: SealScope, at: string): string {
    const bytes = Buffer.from(sealed, "base64url");
    const text = bytes.length < headBytes + tagBytes ? undefined : this.#decrypt(bytes, scope);
    if (text === undefined)
      throw invalidField(at, "was not made by this gateway for this account and model, or changed");
    const ageSeconds = this.#nowMs() / 1000 - bytes.readUIntBE(1, 6);
    if (ageSeconds > ageMaxSeconds)
      throw invalidField(at, "is too old: send the conversation without this item");
    return text;
  }

  #decrypt(bytes: Buffer, scope: SealScope): string | undefined {
    const head = bytes.subarray(0, headBytes);
    for (const key of this.#keys) {
      const cipher = createDecipheriv("aes-256-gcm", key, head.subarray(-nonceBytes), {
        authTagLength: tagBytes,
      });
      cipher.setAAD(Buffer.concat([head, associated(scope)]));
      cipher.setAuthTag(bytes.subarray(-tagBytes));
      try {
        const text = cipher.update(bytes.subarray(headBytes, -tagBytes));
        return Buffer.concat([text, cipher.final()]).toString("utf8");
      } catch {
        // Of another key.
      }
    }
    return undefined;
  }
}

function associated({ accountId, model }: SealScope): Buffer {
  return Buffer.from(JSON.stringify([accountId, model]));
}
