// The page of the console as files: its addresses, its headers, its size, and the bundle that is
// made ahead.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { loadBundle, readBuilt, writeBundle } from "../../src/console/bundle.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
/** The listener by its name: it sends its IP address elsewhere. */
let origin = "";
beforeAll(async () => {
  gateway = await startTestGateway({ split: false });
  origin = `http://localhost:${new URL(gateway.address).port}`;
});
afterAll(() => gateway.stop());

const read = (url: string, headers: Record<string, string> = {}) =>
  fetch(url, { headers, redirect: "manual" });

test("an IP address of this machine leads to localhost, where passkeys work", async () => {
  for (const path of ["/console/", "/console/welcome", "/console/acct_1/keys?status=paused"]) {
    const answer = await read(gateway.address + path);
    expect([answer.status, answer.headers.get("location")]).toEqual([302, origin + path]);
  }
});

test("every address of the console is the same page, which no cache keeps", async () => {
  const start = await read(`${origin}/console`);
  expect([start.status, start.headers.get("location")]).toEqual([302, "/console/"]);
  const { html } = await loadBundle();
  for (const path of ["/console/", "/console/welcome", "/console/acct_1/keys/key_1?x=%zz"]) {
    const answer = await read(origin + path);
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(await answer.text()).toBe(html);
  }
});

test("the page and its files have the policy of the console, and no code of their own", async () => {
  const { assets } = await loadBundle();
  for (const path of ["/console/", ...assets.keys()]) {
    const { status, headers } = await read(origin + path);
    expect(status).toBe(200);
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'");
    expect(policy).not.toContain("unsafe");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("referrer-policy")).toBe("no-referrer");
    expect(headers.get("cross-origin-opener-policy")).toBe("same-origin");
    expect(headers.get("access-control-allow-origin")).toBeNull();
  }
  const { html } = await loadBundle();
  expect(html).not.toMatch(/ style=| on\w+=|<style/);
});

test("files are named by their content, compressed, and kept for a year", async () => {
  const { assets } = await loadBundle();
  expect(assets.size).toBe(2);
  for (const [path, asset] of assets) {
    expect(path).toMatch(/^\/console\/assets\/\w+-[A-Z0-9]{8}\.(js|css)$/);
    await expect.poll(() => asset.compressed).toBeDefined();
    const plain = await read(origin + path, { "accept-encoding": "identity" });
    expect(plain.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(plain.headers.get("content-encoding")).toBeNull();
    expect(Buffer.from(await plain.arrayBuffer()).equals(asset.content)).toBe(true);
    // `fetch` decodes by itself.
    for (const [encoding, decode] of [
      ["br", brotliDecompressSync],
      ["gzip", gunzipSync],
    ] as const) {
      const answer = await read(origin + path, { "accept-encoding": `${encoding};q=1, x` });
      expect(answer.headers.get("content-encoding")).toBe(encoding);
      expect(answer.headers.get("vary")).toBe("accept-encoding");
      expect(decode(asset.compressed?.[encoding] ?? "").equals(asset.content)).toBe(true);
    }
  }
  expect((await read(`${origin}/console/assets/main-00000000.js`)).status).toBe(404);
});

test("script and style have at most 120 KB, compressed by gzip", async () => {
  const { assets } = await loadBundle();
  const sizes = [...assets.values()].map(({ content }) => gzipSync(content).byteLength);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(120 * 1024);
});

test("a bundle that is made ahead is the one that a start would make", async () => {
  const folder = await writeBundle(await mkdtemp(join(tmpdir(), "gateway-bundle-")));
  try {
    const { html, assets } = await loadBundle();
    const built = await readBuilt(folder);
    expect(built?.html).toBe(html);
    expect([...(built?.assets.keys() ?? [])].sort()).toEqual([...assets.keys()].sort());
  } finally {
    await rm(folder, { recursive: true });
  }
});
