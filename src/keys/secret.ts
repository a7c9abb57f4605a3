// The secret of a key: `sk-gw2-`, one character for the family, the two characters of the cell, 41
// random characters, and a checksum of 6 characters. That of a management key: `mk-gw2-`, and the
// same without a family. The checksum rejects typing mistakes and noise without a look-up; it
// protects nothing. Only the digest of a secret is stored.

import { hash } from "node:crypto";
import { crc32 } from "node:zlib";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { encodeBase62 } from "../base/base62.ts";
import { cellId, plainCell } from "../base/cells.ts";

/** The families a key can have; `UNSPECIFIED` is never stored. */
export type KeyFamily = typeof Family.V1 | typeof Family.V2;

const prefix = "sk-gw2-";
const managementPrefix = "mk-gw2-";
/** Two of them name the cell: 62^41 is more than 2^244. */
const randomLength = 43;
const checksumLength = 6;
const familyCharacter = { [Family.V1]: "1", [Family.V2]: "2" } as const;

const secretLength = prefix.length + 1 + randomLength + checksumLength;
const secretForm = /^sk-gw2-[12][0-9A-Za-z]{49}$/;
const managementForm = /^mk-gw2-[0-9A-Za-z]{49}$/;

/** A new secret of a cell. */
export function mintSecret(family: KeyFamily, cell = plainCell): string {
  const body = cellId(cell, prefix + familyCharacter[family], randomLength);
  return body + checksum(body);
}

/** A new secret of a management key. */
export function mintManagementSecret(cell = plainCell): string {
  const body = cellId(cell, managementPrefix, randomLength);
  return body + checksum(body);
}

/** True when `text` has the form and checksum of a secret. The secret need not exist. */
export function isSecret(text: string): boolean {
  // The length first, so that a long credential does not cost more.
  return text.length === secretLength && secretForm.test(text) && endsInChecksum(text);
}

/** The same for the secret of a management key. */
export function isManagementSecret(text: string): boolean {
  return text.length === secretLength - 1 && managementForm.test(text) && endsInChecksum(text);
}

function endsInChecksum(text: string): boolean {
  return text.slice(-checksumLength) === checksum(text.slice(0, -checksumLength));
}

/**
 * SHA-256 as a string of 32 characters, one byte each: a compact map key. `digestBytes` converts it
 * to the stored form.
 */
export function digestSecret(secret: string): string {
  return hash("sha256", secret, "binary");
}

export function digestBytes(digest: string): Buffer {
  return Buffer.from(digest, "latin1");
}

/** First and last characters of a secret, to recognise it. Reveals 48 of its 244 random bits. */
export function hintOf(secret: string): string {
  return `${secret.slice(0, prefix.length + 7)}…${secret.slice(-4)}`;
}

/** CRC-32 (IEEE) in base 62: 62^6 is more than 2^32. */
function checksum(body: string): string {
  return encodeBase62(crc32(body), checksumLength);
}
