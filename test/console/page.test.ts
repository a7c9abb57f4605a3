// The page of the console as files: its addresses, its headers, its size, and the bundle that is
// made ahead.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AccountState } from "../../gen/gateway/billing/v1/account_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyOrder } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { RefusalGroup, UsageGroup } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { type Bundle, loadBundle, readBuilt, writeBundle } from "../../src/console/bundle.ts";
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

test("who brings a session sees the frame of the pages before the script runs", async () => {
  const { html, framedHtml } = await loadBundle();
  expect(html).not.toContain('class="frame columns"');
  expect(framedHtml).toContain('<div id="app"><div class="frame columns">');
  // Whether the session is still alive is known to the services alone.
  const cookie = `gateway-session-${new URL(origin).port}=of-somebody`;
  const pageOf = async (path: string, headers: Record<string, string>) =>
    (await read(origin + path, headers)).text();
  for (const path of ["/console/", "/console/acct_1/keys", "/console/operator/health"]) {
    expect(await pageOf(path, { cookie })).toBe(framedHtml);
    expect(await pageOf(path, { cookie: "other=1" })).toBe(html);
  }
  for (const path of [
    "/console/sign-in?next=%2Fconsole%2F",
    "/console/sign-up",
    "/console/welcome",
  ])
    expect(await pageOf(path, { cookie })).toBe(html);
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
  // Of everybody: scripts and style. By need: pages of two kinds, of links, of operators, tools, QR
  // codes, palette, glossary; what these share.
  expect(assets.size).toBeGreaterThan(10);
  for (const [path, asset] of assets) {
    expect(path).toMatch(/^\/console\/assets\/[\w-]+-[A-Z0-9]{8}\.(js|css)$/);
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

test("a session brings what each page of an account shows: figures, and names for owners", async () => {
  const { people, billing } = gateway.admin.core;
  const { accountId } = gateway;
  const token = new URL(gateway.ownerLink).hash.slice(1);
  const person = { login: "olga", name: "Olga", password: "a long password" };
  const { grant } = await people.redeemLink({ token, ...person });
  const call = { headers: { authorization: `Session ${grant?.token}` } };
  const { shownAccount, accounts } = await people.getSession({}, call);
  const { forecasts } = await billing.getForecast({ accountId }, gateway.admin.call);
  expect(shownAccount).toMatchObject({ accountId, forecasts, members: [{ name: "Olga" }] });
  expect(accounts).toMatchObject([{ accountId, state: AccountState.ACTIVE }]);

  const invited = await people.createInvitation({ accountId, role: AccountRole.VIEWER }, call);
  const viewer = await people.redeemLink({
    token: new URL(invited.link).hash.slice(1),
    login: "vic",
    password: "a long password",
  });
  const asViewer = { headers: { authorization: `Session ${viewer.grant?.token}` } };
  const seen = await people.getSession({ shownAccountId: accountId }, asViewer);
  expect(seen.shownAccount).toMatchObject({ accountId, forecasts, members: [] });

  // An account of others looks like one that does not exist.
  const { account } = await billing.createAccount(
    { settings: { name: "other" } },
    gateway.admin.call,
  );
  for (const shownAccountId of [account?.accountId ?? "", "acc_none"])
    expect((await people.getSession({ shownAccountId }, call)).shownAccount).toBeUndefined();

  await billing.suspendAccount({ accountId, reason: "Why not." }, gateway.admin.call);
  const after = await people.getSession({}, call);
  expect(after.accounts).toMatchObject([
    { state: AccountState.SUSPENDED, stateReason: "Why not." },
  ]);
  await billing.resumeAccount({ accountId, reason: "as before" }, gateway.admin.call);
});

test("an answer with ids of keys has their names, and usage has what was refused", async () => {
  const { billing, keys } = gateway.admin.core;
  const { accountId } = gateway;
  const { key, secret } = await keys.createKey(
    { accountId, family: Family.V1, settings: { name: "<b>named</b>", allowedModels: ["haiku"] } },
    gateway.admin.call,
  );
  const statuses = await Promise.all(["haiku", "sonnet"].map((model) => ask(secret, model)));
  expect(statuses).toEqual([200, 403]);
  const { keyId = "", secrets = [] } = key ?? {};
  const label = { keyId, name: "<b>named</b>", hint: secrets[0]?.hint };
  const found = await billing.listCharges({ accountId, filter: { keyId } }, gateway.admin.call);
  expect(found.keys).toMatchObject([label]);
  const { requestId = "" } = found.charges[0] ?? {};
  const receipt = await billing.getReceipt({ accountId, requestId }, gateway.admin.call);
  expect(receipt.key).toMatchObject(label);
  const usage = (withErrors: boolean) =>
    billing.queryUsage(
      { accountId, groupBy: [UsageGroup.KEY], keyIds: [keyId], includeRefusals: withErrors },
      gateway.admin.call,
    );
  expect((await usage(false)).keys).toMatchObject([label]);
  expect((await usage(false)).refusals).toBeUndefined();
  // Refused requests are written every 10 seconds.
  const answer = await usage(true);
  const alone = await billing.queryRefusals(
    { accountId, groupBy: [RefusalGroup.REASON], keyIds: [keyId] },
    gateway.admin.call,
  );
  expect(answer.refusals?.rows).toEqual(alone.rows);
  expect(answer.refusals?.total).toBe(alone.total);
});

test("keys are listed by what they spent in this month, with a filter too", async () => {
  const { keys } = gateway.admin.core;
  const { accountId } = gateway;
  const request = { accountId, order: KeyOrder.MONTH_SPENT };
  const ranked = (await keys.listKeys({ ...request, pageSize: 2 }, gateway.admin.call)).keys;
  expect(ranked.map(({ name }) => name)[0]).toBe("<b>named</b>");
  expect(ranked).toHaveLength(2);
  const named = await keys.listKeys({ ...request, query: "named" }, gateway.admin.call);
  expect(named.keys.map(({ name }) => name)).toEqual(["<b>named</b>"]);
});

async function ask(secret: string, model: string): Promise<number> {
  const headers = { "x-api-key": secret, "anthropic-version": "2023-06-01" };
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ model, max_tokens: 9, messages: [{ role: "user", content: "Hi" }] }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

test("an answer has the id of its call, also one that failed", async () => {
  const path = "/gateway.people.v1.ProfileService/GetSession";
  const send = (headers: Record<string, string>) =>
    fetch(origin + path, {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json", ...headers },
    });
  const { status, headers } = await send({});
  expect(status).toBe(401);
  expect(headers.get("x-request-id")).toMatch(/^req_[\w-]{8,64}$/);
  const named = await send({ "x-request-id": "req_of_the_client" });
  expect(named.headers.get("x-request-id")).toBe("req_of_the_client");
});

test("the first page has at most 80 KB by brotli, the largest one 92 KB, all 170 KB", async () => {
  const { html, assets } = await madeAhead();
  const sizeOf = (isWanted: (path: string) => boolean) =>
    [...assets]
      .filter(([path]) => isWanted(path))
      .reduce((sum, [, { compressed }]) => sum + (compressed?.br.byteLength ?? 0), 0);
  const isForOperators = (path: string) => path.includes("/operator-");
  const isOf = (kind: string) => (path: string) => path.includes(`/of-${kind}-`);
  // The list of tools, which a page loads when it shows a secret.
  const isData = (path: string) => path.includes("/tools-");
  // Pages of documents have a style sheet and a script of their own.
  const isOfDocuments = (path: string) => path.includes("/docs-");
  // What is loaded before anything is seen. The rest comes behind it, a file for pages of a kind.
  const first = sizeOf((path) => html.includes(path));
  expect(first).toBeLessThanOrEqual(80_000);
  const largest = Math.max(
    ...["figures", "models", "keys", "account"].map((kind) => sizeOf(isOf(kind))),
  );
  expect(first + largest).toBeLessThanOrEqual(92_000);
  expect(sizeOf((path) => !isData(path) && !isOfDocuments(path))).toBeLessThanOrEqual(170_000);
  expect(sizeOf(isOfDocuments)).toBeLessThanOrEqual(1_700);
  expect(sizeOf(isData)).toBeLessThanOrEqual(8_000);
  expect(sizeOf(isData)).toBeGreaterThan(1_000);
  expect(sizeOf(isForOperators)).toBeLessThanOrEqual(36_500);
  // A split that puts nothing apart would pass otherwise.
  expect(sizeOf(isForOperators)).toBeGreaterThan(8_000);
});

test("the files of customers hold nothing of the pages of operators", async () => {
  const { html, assets } = await loadBundle();
  const [operators] = [...assets].filter(([path]) => path.includes("/operator-"));
  expect(html).not.toContain("/operator-");
  expect(operators?.[1].content.includes("gateway.operations.v1")).toBe(true);
  for (const [path, { content }] of assets) {
    if (path === operators?.[0]) continue;
    // Names of operators' methods and pages. The palette calls `Search` of their service.
    for (const name of ["FindAccounts", "QuerySales", "Pages of operators"])
      expect(content.includes(name), `${path} has ${name}`).toBe(false);
    if (html.includes(path) || path.includes("/of-"))
      expect(content.includes("gateway.operations.v1"), path).toBe(false);
  }
});

test("a bundle that is made ahead is the one that a start would make", async () => {
  const { html, framedHtml, assets } = await loadBundle();
  const built = await madeAhead();
  expect([built.html, built.framedHtml]).toEqual([html, framedHtml]);
  expect([...built.assets.keys()].sort()).toEqual([...assets.keys()].sort());
  for (const [path, { type, content, compressed }] of built.assets) {
    expect([type, content]).toEqual([assets.get(path)?.type, assets.get(path)?.content]);
    expect(brotliDecompressSync(compressed?.br ?? "").equals(content)).toBe(true);
    expect(gunzipSync(compressed?.gzip ?? "").equals(content)).toBe(true);
  }
});

let ahead: Promise<Bundle> | undefined;

/** What `npm run build` makes, as a gateway reads it. */
function madeAhead(): Promise<Bundle> {
  ahead ??= mkdtemp(join(tmpdir(), "gateway-bundle-")).then(async (folder) => {
    try {
      return (await readBuilt(await writeBundle(folder))) ?? expect.unreachable("it is not read");
    } finally {
      await rm(folder, { recursive: true });
    }
  });
  return ahead;
}
