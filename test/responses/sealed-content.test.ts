// The sealed thinking of the Responses format: who can open it, and for how long.

import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readConfig } from "../../src/config/environment.ts";
import { SealedContent } from "../../src/http/sealed-content.ts";
import { findContentKeys } from "../../src/server/content-key.ts";

const scope = { accountId: "acc_1", model: "model-a" };
const [older, newer] = [randomBytes(32), randomBytes(32)];
const at = "input[1].encrypted_content";
const dayMs = 24 * 3600 * 1000;

test("what one key sealed is opened by it, for the same account and model only", () => {
  const content = new SealedContent([older]);
  const sealed = content.seal("a thought", scope);
  expect(content.open(sealed, scope, at)).toBe("a thought");
  expect(Buffer.from(sealed, "base64url").includes("thought")).toBe(false);
  expect(content.seal("a thought", scope)).not.toBe(sealed);
  for (const other of [
    { ...scope, accountId: "acc_2" },
    { ...scope, model: "model-b" },
  ])
    expect(() => content.open(sealed, other, at)).toThrow(at);
});

test("during a rotation both keys open, and the first one seals", () => {
  const before = new SealedContent([older]);
  const during = new SealedContent([newer, older]);
  const after = new SealedContent([newer]);
  const sealed = before.seal("a thought", scope);
  expect(during.open(sealed, scope, at)).toBe("a thought");
  expect(() => after.open(sealed, scope, at)).toThrow(at);
  expect(after.open(during.seal("another", scope), scope, at)).toBe("another");
});

test("it is good for 30 days", () => {
  let nowMs = Date.UTC(2026, 10, 22);
  const content = new SealedContent([older], () => nowMs);
  const sealed = content.seal("a thought", scope);
  nowMs += 29 * dayMs;
  expect(content.open(sealed, scope, at)).toBe("a thought");
  nowMs += 2 * dayMs;
  expect(() => content.open(sealed, scope, at)).toThrow("too old");
});

test("no changed byte goes unnoticed", () => {
  const content = new SealedContent([older]);
  const sealed = Buffer.from(content.seal("a thought", scope), "base64url");
  for (let index = 0; index < sealed.length; index++) {
    const changed = Buffer.from(sealed);
    changed.writeUInt8(sealed.readUInt8(index) ^ 1, index);
    expect(() => content.open(changed.toString("base64url"), scope, at)).toThrow(at);
  }
});

test("CONTENT_KEY is one key or two of 32 bytes, and no problem repeats it", () => {
  const key = older.toString("base64");
  expect(readConfig({ CONTENT_KEY: key }).contentKeys).toEqual([older]);
  const both = `${newer.toString("base64")}, ${key}`;
  expect(readConfig({ CONTENT_KEY: both }).contentKeys).toEqual([newer, older]);
  for (const wrong of ["short", `${key},`, `${key},${key},${key}`]) {
    expect(() => readConfig({ CONTENT_KEY: wrong })).toThrow("CONTENT_KEY: must be");
    expect(() => readConfig({ CONTENT_KEY: wrong })).not.toThrow(key);
  }
});

test("the first start makes a key, and processes that start together share it", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "content-key-"));
  try {
    const config = readConfig({ DATA_DIR: dataDir });
    const found = await Promise.all([1, 2, 3].map(() => findContentKeys(config)));
    const path = join(dataDir, "content-key");
    const stored = Buffer.from(await readFile(path, "utf8"), "base64");
    expect(found).toEqual([[stored], [stored], [stored]]);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  } finally {
    await rm(dataDir, { recursive: true });
  }
});
