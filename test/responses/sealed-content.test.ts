// What clients return sealed: who can open it, and for how long.

import { createCipheriv, hkdfSync, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readConfig } from "../../src/config/environment.ts";
import { SealedContent } from "../../src/http/sealed-content.ts";
import { findContentKeys } from "../../src/server/content-key.ts";

const [older, newer] = [randomBytes(32), randomBytes(32)];
const dayMs = 24 * 3600 * 1000;
const account = "acc_1";

test("what one key sealed is opened by it, for the same account only", () => {
  const sealing = new SealedContent([older]).sealingOf(account);
  const sealed = sealing.seal("a thought");
  expect(sealing.open(sealed)).toEqual({ text: "a thought" });
  expect(Buffer.from(sealed, "base64url").includes("thought")).toBe(false);
  expect(sealing.seal("a thought")).not.toBe(sealed);
  const other = new SealedContent([older]).sealingOf("acc_2");
  expect(other.open(sealed)).toEqual({ why: "changed" });
});

test("during a rotation both keys open, and the first one seals", () => {
  const before = new SealedContent([older]).sealingOf(account);
  const during = new SealedContent([newer, older]).sealingOf(account);
  const after = new SealedContent([newer]).sealingOf(account);
  const sealed = before.seal("a thought");
  expect(during.open(sealed)).toEqual({ text: "a thought" });
  expect(after.open(sealed)).toEqual({ why: "changed" });
  expect(after.open(during.seal("another"))).toEqual({ text: "another" });
});

test("it is good for 30 days", () => {
  let nowMs = Date.UTC(2026, 10, 22);
  const sealing = new SealedContent([older], () => nowMs).sealingOf(account);
  const sealed = sealing.seal("a thought");
  nowMs += 29 * dayMs;
  expect(sealing.open(sealed)).toEqual({ text: "a thought" });
  nowMs += 2 * dayMs;
  expect(sealing.open(sealed)).toEqual({ why: "age" });
});

test("no changed byte goes unnoticed", () => {
  const sealing = new SealedContent([older]).sealingOf(account);
  const sealed = Buffer.from(sealing.seal("a thought"), "base64url");
  for (let index = 0; index < sealed.length; index++) {
    const changed = Buffer.from(sealed);
    changed.writeUInt8(sealed.readUInt8(index) ^ 1, index);
    expect(sealing.open(changed.toString("base64url"))).toEqual({ why: "changed" });
  }
});

test("the overhead is 35 bytes and a third", () => {
  const sealing = new SealedContent([older]).sealingOf(account);
  expect(Buffer.from(sealing.seal("x".repeat(100)), "base64url")).toHaveLength(135);
});

/** As the gateway sealed until packs came: for an account and a model, with version 1. */
function sealOld(text: string, scope: readonly [accountId: string, model: string]): string {
  const key = Buffer.from(hkdfSync("sha256", older, "", "gateway responses encrypted_content", 32));
  const head = Buffer.alloc(19);
  head.writeUInt8(1, 0);
  head.writeUIntBE(Math.floor(Date.now() / 1000), 1, 6);
  randomBytes(12).copy(head, 7);
  const cipher = createCipheriv("aes-256-gcm", key, head.subarray(-12));
  cipher.setAAD(Buffer.concat([head, Buffer.from(JSON.stringify(scope))]));
  const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([head, body, cipher.getAuthTag()]).toString("base64url");
}

test("content of the old form opens for its account and model; what is of neither form is foreign", () => {
  const content = new SealedContent([newer, older]);
  const old = sealOld("a thought", [account, "model-a"]);
  expect(content.sealingOf(account, "model-a").openOld(old)).toEqual({ text: "a thought" });
  for (const other of [
    content.sealingOf(account, "model-b"),
    content.sealingOf("acc_2", "model-a"),
  ])
    expect(other.openOld(old)).toEqual({ why: "changed" });
  const foreign = ["", "gAAAAABo", Buffer.from("of the vendor's own".repeat(9)).toString("base64")];
  for (const one of foreign)
    expect(content.sealingOf(account, "model-a").openOld(one)).toEqual({ why: "foreign" });
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
