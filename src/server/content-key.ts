// The key that seals what clients return unread.

import { randomBytes } from "node:crypto";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config/environment.ts";

const keyBytes = 32;

/**
 * The configured keys, or the one in the data directory, which is made if it is missing: only a
 * gateway with a database of its own may start without configured keys.
 */
export async function findContentKeys({
  contentKeys,
  dataDir,
}: Pick<Config, "contentKeys" | "dataDir">): Promise<readonly Uint8Array[]> {
  return contentKeys ?? [await findKey(dataDir)];
}

async function findKey(dataDir: string): Promise<Buffer> {
  const path = join(dataDir, "content-key");
  const existing = await readKey(path);
  if (existing) return existing;
  await mkdir(dataDir, { recursive: true });
  const staged = `${path}.${randomBytes(6).toString("hex")}`;
  await writeFile(staged, `${randomBytes(keyBytes).toString("base64")}\n`, {
    mode: 0o600,
    flush: true,
  });
  try {
    // Unlike a rename, this never replaces the key of another process.
    await link(staged, path);
  } catch (error) {
    if (!isCode(error, "EEXIST")) throw error;
  } finally {
    await rm(staged, { force: true });
  }
  const made = await readKey(path);
  if (!made) throw new Error(`${path} disappeared`);
  return made;
}

async function readKey(path: string): Promise<Buffer | undefined> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (isCode(error, "ENOENT")) return undefined;
    throw error;
  }
  const key = Buffer.from(text, "base64");
  if (key.length !== keyBytes)
    throw new Error(`${path} is not a key of ${keyBytes} bytes; correct it, or move it away`);
  return key;
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
