// The proof by which a core knows a facade of its own: a code of this moment by CONTENT_KEY, which
// facades and cores share.

import { createHmac, timingSafeEqual } from "node:crypto";

/** Clocks of machines differ, and a call may wait. */
const msMax = 60_000;
const form = /^Facade (\d{1,16})\.([0-9a-f]{64})$/;

const codeOf = (key: Uint8Array, ms: string) =>
  createHmac("sha256", key).update(`facade ${ms}`).digest();

/** A header `authorization`. `keys`: the content keys, of which the first one signs. */
export function proveFacade(keys: readonly Uint8Array[], nowMs = Date.now()): string {
  const [key] = keys;
  if (!key) throw new Error("no content key was given");
  const ms = String(nowMs);
  return `Facade ${ms}.${codeOf(key, ms).toString("hex")}`;
}

/** True for a header that `proveFacade` made with one of these keys, within a minute. */
export function isFacade(
  keys: readonly Uint8Array[],
  authorization: string,
  nowMs = Date.now(),
): boolean {
  const [, ms = "", code = ""] = form.exec(authorization) ?? [];
  if (code === "" || Math.abs(nowMs - Number(ms)) > msMax) return false;
  const given = Buffer.from(code, "hex");
  return keys.some((key) => timingSafeEqual(codeOf(key, ms), given));
}
