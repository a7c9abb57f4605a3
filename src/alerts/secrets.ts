// The signing secrets of webhooks, sealed in the database under a key that is derived from
// CONTENT_KEY: who reads the database alone signs nothing.

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";

export const secretBytes = 32;
const cipher = "aes-256-gcm";
const version = 1;
const [nonceBytes, tagBytes] = [12, 16];

/** A secret of the table. `isCurrent` false: it is to be sealed anew. */
export type Opened = { readonly secret: Buffer; readonly isCurrent: boolean };

export class WebhookSecrets {
  readonly #keys: readonly Buffer[];

  /** The first key seals, all of them open. */
  constructor(contentKeys: readonly Uint8Array[]) {
    this.#keys = contentKeys.map((key) =>
      Buffer.from(hkdfSync("sha256", key, "", "gateway webhook signing secrets", 32)),
    );
  }

  /** For one account alone. */
  seal(secret: Buffer, accountId: string): Buffer {
    const [key] = this.#keys;
    if (!key) throw new Error("there is no content key");
    const head = Buffer.concat([Buffer.of(version), randomBytes(nonceBytes)]);
    const sealing = createCipheriv(cipher, key, head.subarray(1));
    sealing.setAAD(Buffer.concat([head, Buffer.from(accountId)]));
    const sealed = Buffer.concat([sealing.update(secret), sealing.final()]);
    return Buffer.concat([head, sealed, sealing.getAuthTag()]);
  }

  /** Undefined: it was sealed with a key that is gone. */
  open(stored: Buffer, accountId: string): Opened | undefined {
    // As it was before secrets were sealed.
    if (stored.length === secretBytes) return { secret: stored, isCurrent: false };
    if (stored.length <= 1 + nonceBytes + tagBytes || stored.readUInt8(0) !== version)
      return undefined;
    const head = stored.subarray(0, 1 + nonceBytes);
    for (const [index, key] of this.#keys.entries()) {
      const opening = createDecipheriv(cipher, key, head.subarray(1), { authTagLength: tagBytes });
      opening.setAAD(Buffer.concat([head, Buffer.from(accountId)]));
      opening.setAuthTag(stored.subarray(-tagBytes));
      try {
        const secret = opening.update(stored.subarray(head.length, -tagBytes));
        // Checks the tag; GCM keeps nothing back.
        opening.final();
        return { secret, isCurrent: index === 0 };
      } catch {
        // Of another key.
      }
    }
    return undefined;
  }
}
