// The download of all data of an account.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Core } from "../../src/contract/contract.ts";
import { Authenticator } from "../support/authenticator.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { pathOf } from "../support/paths.ts";

let gateway: TestGateway;
let cookie = "";
let operatorCookie = "";
let accountId = "";
let secret = "";
let requestId = "";
let link = "";
let managementSecret = "";
let orderId = "";
beforeAll(async () => {
  gateway = await startTestGateway();
  operatorCookie = await redeem(gateway.ownerLink, "olga");
  const { core, call } = gateway.admin;
  const { account } = await core.billing.createAccount({ settings: { name: "<b>Acme" } }, call);
  accountId = account?.accountId ?? "";
  const credits = { accountId, family: Family.V1, kind: TransferKind.BONUS };
  for (let index = 0; index < 3; index++)
    await core.billing.createTransfer(
      { ...credits, amountMicrocredits: 1_000_000_000n, idempotencyKey: `bonus ${index}` },
      call,
    );
  ({ secret } = await core.keys.createKey(
    { accountId, family: Family.V1, settings: { name: "of ci" } },
    call,
  ));
  const authorization = `Session ${operatorCookie.split("=")[1]}`;
  const as = { headers: { authorization } };
  const invited = await core.people.createInvitation({ accountId, role: 3 }, as);
  cookie = await redeem(invited.link, "acme@example.com");
  const { secret: managing } = await core.keys.createManagementKey(
    { accountId, settings: { name: "deploy", scopes: [ManagementScope.KEYS] } },
    { headers: { authorization: `Session ${cookie.split("=")[1]}` } },
  );
  managementSecret = managing;
  ({ link } = await core.people.createInvitation({ accountId, role: 1 }, as));
  orderId = await buy(core, call);
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      ...{ "x-api-key": secret, "anthropic-version": "2023-06-01" },
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...{ model: "haiku", max_tokens: 16 },
      messages: [{ role: "user", content: "a prompt that nobody stores" }],
    }),
  });
  requestId = answer.headers.get("request-id") ?? "";
  await answer.text();
});
afterAll(() => gateway.stop());

/** Buys 1,000 credits. Returns the order. */
async function buy({ billing, payments }: Core, call: { headers: { authorization: string } }) {
  const { order } = await payments.createOrder(
    {
      ...{ accountId, family: Family.V1, packMicrodollars: 5_000_000n, method: "simulated:usdt" },
      idempotencyKey: "order",
    },
    call,
  );
  const id = order?.orderId ?? "";
  await payments.simulateDeposit(
    { orderId: id, event: { case: "deposit", value: { coins: "5", confirmations: 1 } } },
    call,
  );
  await vi.waitFor(async () => {
    const { transfers } = await billing.listTransfers({ accountId }, call);
    expect(transfers).toHaveLength(4);
  });
  return id;
}

/** Signs in over HTTP as a browser does. Returns the cookie. */
async function redeem(address: string, login: string): Promise<string> {
  const { origin, hash } = new URL(address);
  const token = hash.slice(1);
  const post = (method: string, body: object) =>
    fetch(`${gateway.address}${pathOf(method)}`, {
      method: "POST",
      headers: { "content-type": "application/json", "sec-fetch-site": "same-origin" },
      body: JSON.stringify(body),
    });
  const begun = Object(await (await post("BeginPasskey", { linkToken: token, login })).json());
  const passkeyAnswerJson = new Authenticator(origin).register(begun.passkeyOptionsJson);
  const redeemed = await post("RedeemLink", { token, login, passkeyAnswerJson });
  expect(redeemed.status).toBe(200);
  return redeemed.headers.get("set-cookie")?.split(";")[0] ?? "";
}

const download = (headers: Record<string, string>, account = accountId) =>
  fetch(`${gateway.address}/console/export/account?account=${account}`, { headers });

async function linesOf(answer: Response) {
  const text = await answer.text();
  expect(text.endsWith("\n")).toBe(true);
  return text
    .trimEnd()
    .split("\n")
    .map((line) => Object(JSON.parse(line)));
}

test("an owner downloads everything, a line for each thing, and no secret", async () => {
  const answer = await download({ cookie, "sec-fetch-site": "same-origin" });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe("application/x-ndjson; charset=utf-8");
  expect(answer.headers.get("content-disposition")).toBe(
    `attachment; filename="account-${accountId}.ndjson"`,
  );
  expect(answer.headers.get("cache-control")).toBe("no-store");
  const lines = await linesOf(answer);
  const all = (name: string) => lines.flatMap((line) => (name in line ? [line[name]] : []));
  expect(all("account")).toMatchObject([{ accountId, name: "<b>Acme" }]);
  expect(all("pool")).toHaveLength(2);
  expect(all("transfer").map(({ idempotencyKey }) => idempotencyKey)).toEqual([
    ...[`pay:${orderId}#1`, "bonus 2", "bonus 1", "bonus 0"],
  ]);
  expect(all("order")).toMatchObject([{ orderId, deposits: [{ coins: "5" }] }]);
  expect(all("document")).toMatchObject([{ orderId, kind: "DOCUMENT_KIND_RECEIPT" }]);
  expect(all("key")).toMatchObject([{ name: "of ci", secrets: [{ hint: expect.any(String) }] }]);
  expect(all("managementKey")).toMatchObject([
    { name: "deploy", scopes: ["MANAGEMENT_SCOPE_KEYS"], secrets: [{ hint: expect.any(String) }] },
  ]);
  expect(all("member")).toMatchObject([{ login: "acme@example.com" }]);
  expect(all("invitation")).toHaveLength(1);
  expect(all("charge")).toMatchObject([{ requestId }]);
  expect(all("auditEvent").map(({ method }) => method)).toContain("CreateKey");
  expect(lines.at(-1)).toEqual({ end: { lines: lines.length - 1 } });
  const text = JSON.stringify(lines);
  const token = new URL(link).hash.slice(1);
  const secrets = [secret, managementSecret].map((one) => one.slice(12, -4));
  for (const one of [...secrets, token, cookie.split("=")[1] ?? "", "a prompt that"])
    expect(text).not.toContain(one);
});

test("the download leaves an audit event of who had it", async () => {
  await (await download({ cookie, "sec-fetch-site": "none" })).text();
  const { core, call } = gateway.admin;
  const find = async () => {
    const { events } = await core.people.listAuditEvents(
      { accountId, method: "ExportAccount" },
      call,
    );
    return events[0];
  };
  await expect.poll(find).toMatchObject({
    actor: { kind: { case: "personId", value: expect.stringMatching(/^per_/) } },
    address: "127.0.0.1",
  });
});

test.for<[string, () => Record<string, string>, number]>([
  ["without a session", () => ({}), 401],
  ["with an ended session", () => ({ authorization: `Session ${"x".repeat(43)}` }), 401],
  ["of another page", () => ({ cookie, "sec-fetch-site": "cross-site" }), 403],
  ["of a sibling origin", () => ({ cookie, "sec-fetch-site": "same-site" }), 403],
  ["of nobody knows which page", () => ({ cookie }), 403],
  ["by a key", () => ({ authorization: `Bearer ${secret}` }), 403],
  ["by an operator", () => ({ cookie: operatorCookie, "sec-fetch-site": "none" }), 200],
])("a download %s is answered %s", async ([, headers, status]) => {
  const answer = await download(headers());
  await answer.text();
  expect(answer.status).toBe(status);
});

test.for(["acc_none", "", "../../etc/passwd", "%00", "x".repeat(10_000)])(
  "an account that the person does not have looks absent: %j",
  async (account) => {
    const answer = await download(
      { cookie, "sec-fetch-site": "none" },
      encodeURIComponent(account),
    );
    // Empty: the person's only account.
    expect(answer.status).toBe(account === "" ? 200 : 404);
    await answer.text();
  },
);

test("a reader that leaves ends the export", async () => {
  const { core, call } = gateway.admin;
  // An account of its own: the events of the downloads before may still be on their way.
  const { account } = await core.billing.createAccount({ settings: { name: "large" } }, call);
  const large = account?.accountId ?? "";
  const outcomes = async () => {
    const request = { accountId: large, method: "ExportAccount" };
    const { events } = await core.people.listAuditEvents(request, call);
    return events.map(({ reason }) => reason);
  };
  // 80 MB: more than the buffers of a connection hold.
  const database = new Client({ connectionString: gateway.databaseUrl });
  await database.connect();
  await database.query(
    `insert into audit_events
     select 'evt_' || n, now(), 'tests', $1, 'Test', 'ok', to_jsonb(repeat('x', 4000)), ''
       from generate_series(1, 20000) n`,
    [large],
  );
  await database.end();
  const controller = new AbortController();
  const answer = await fetch(`${gateway.address}/console/export/account?account=${large}`, {
    headers: { cookie: operatorCookie, "sec-fetch-site": "none" },
    signal: controller.signal,
  });
  expect(await outcomes()).toEqual([]);
  controller.abort();
  await expect(answer.text()).rejects.toThrow();
  await expect.poll(outcomes).toEqual([Reason.CANCELLED]);
});
