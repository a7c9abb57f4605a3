// Seals what clients return unread with their next request: only this gateway can read it, and only
// for the same account.

import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  type DecipherGCM,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { ApiError } from "../base/errors.ts";
import type { OpenFailure, Sealing } from "../formats/packs.ts";

/** Bytes of a key from the environment. */
export const contentKeyBytes = 32;

const version = 2;
/** Until packs came, the model was a part of what sealed content was bound to. */
const oldVersion = 1;
const [nonceBytes, tagBytes] = [12, 16];
/** Version, time in seconds (6 bytes), nonce. */
const headBytes = 1 + 6 + nonceBytes;
/** A conversation that pauses longer starts its thinking anew. */
const ageMaxSeconds = 30 * 24 * 3600;

export class SealedContent {
  readonly #keys: readonly KeyObject[];
  readonly #nowMs: () => number;

  /** The first key seals. All of them open, so that a key can be replaced by another. */
  constructor(keys: readonly Uint8Array[], nowMs: () => number = Date.now) {
    // A new key for each purpose of the configured one. As an object, because a cipher of plain
    // bytes takes 11 µs to make, and one of an object 1 µs (Node 24).
    this.#keys = keys.map((key) =>
      createSecretKey(
        Buffer.from(hkdfSync("sha256", key, "", "gateway responses encrypted_content", 32)),
      ),
    );
    this.#nowMs = nowMs;
  }

  /**
   * Seals and opens for an account. `oldModel`: the catalogue id that content of the old form must
   * be of.
   */
  sealingOf(accountId: string, oldModel = ""): Sealing {
    return {
      seal: (text) => this.#seal(text, accountId),
      open: (sealed) => this.#open(sealed, version, accountId),
      openOld: (sealed) =>
        this.#open(sealed, oldVersion, JSON.stringify([accountId, oldModel]), "foreign"),
    };
  }

  #seal(text: string, scope: string): string {
    const head = Buffer.alloc(headBytes);
    head.writeUInt8(version, 0);
    head.writeUIntBE(Math.floor(this.#nowMs() / 1000), 1, 6);
    randomBytes(nonceBytes).copy(head, headBytes - nonceBytes);
    const [key] = this.#keys;
    if (!key) throw new ApiError("internal");
    const cipher = createCipheriv("aes-256-gcm", key, head.subarray(-nonceBytes));
    cipher.setAAD(Buffer.concat([head, Buffer.from(scope)]));
    const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
    return Buffer.concat([head, body, cipher.getAuthTag()]).toString("base64url");
  }

  /** `unknown`: why content of another version does not open. */
  #open(
    sealed: string,
    expected: number,
    scope: string,
    unknown: OpenFailure = "changed",
  ): ReturnType<Sealing["open"]> {
    const bytes = Buffer.from(sealed, "base64url");
    if (bytes.length < headBytes + tagBytes || bytes.readUInt8(0) !== expected)
      return { why: unknown };
    const text = this.#decrypt(bytes, scope);
    if (text === undefined) return { why: "changed" };
    const ageSeconds = this.#nowMs() / 1000 - bytes.readUIntBE(1, 6);
    return ageSeconds > ageMaxSeconds ? { why: "age" } : { text };
  }

  #decrypt(bytes: Buffer, scope: string): string | undefined {
    const head = bytes.subarray(0, headBytes);
    const associated = Buffer.concat([head, Buffer.from(scope)]);
    for (const key of this.#keys) {
      const cipher: DecipherGCM = createDecipheriv("aes-256-gcm", key, head.subarray(-nonceBytes), {
        authTagLength: tagBytes,
      });
      cipher.setAAD(associated);
      cipher.setAuthTag(bytes.subarray(-tagBytes));
      try {
        const text = cipher.update(bytes.subarray(headBytes, -tagBytes));
        // Checks the tag; GCM keeps nothing back.
        cipher.final();
        return text.toString("utf8");
      } catch {
        // Of another key.
      }
    }
    return undefined;
  }
}
