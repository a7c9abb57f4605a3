// What HTTP_ADMIN leaves to operators and to the admin token on the HTTP port.

import { describe, expect, test } from "vitest";
import { Authenticator } from "../support/authenticator.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

type Post = (path: string, body: object, authorization?: string) => Promise<[number, object]>;

/** Runs `work` with a gateway, and the cookie of its first operator. */
async function withOperator(
  options: Parameters<typeof startTestGateway>[0],
  work: (gateway: TestGateway, post: Post) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway(options);
  try {
    const { origin, hash } = new URL(gateway.ownerLink);
    const linkToken = hash.slice(1);
    let cookie = "";
    const post: Post = async (path, body, authorization) => {
      const answer = await fetch(`${gateway.address}/gateway.${path}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "sec-fetch-site": "same-origin",
          ...(authorization === undefined ? { cookie } : { authorization }),
        },
        body: JSON.stringify(body),
      });
      cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? cookie;
      return [answer.status, Object(await answer.json())];
    };
    const [, begun] = await post("people.v1.SignInService/BeginPasskey", { linkToken });
    const options = String(Reflect.get(begun, "passkeyOptionsJson"));
    const passkeyAnswerJson = new Authenticator(origin).register(options);
    const redeem = { token: linkToken, login: "olga", passkeyAnswerJson };
    expect((await post("people.v1.SignInService/RedeemLink", redeem))[0]).toBe(200);
    await work(gateway, post);
  } finally {
    await gateway.stop();
  }
}

describe.for([false, true])("with HTTP_ADMIN=false, roles apart: %s", (split) => {
  test("an operator is what he is in his accounts, and nothing else", async () => {
    const env = { HTTP_ADMIN: "false" };
    await withOperator({ env, split }, async (gateway, post) => {
      const { accountId, admin } = gateway;
      const { account } = await admin.core.billing.createAccount(
        { settings: { name: "other" } },
        admin.call,
      );
      const [, session] = await post("people.v1.ProfileService/GetSession", {});
      expect(session).not.toHaveProperty("operator");
      const [, options] = await post("people.v1.SignInService/BeginPasskey", {});
      const answerJson = new Authenticator(new URL(gateway.ownerLink).origin).register(
        String(Reflect.get(options, "passkeyOptionsJson")),
      );
      expect(
        (await post("people.v1.ProfileService/CreatePasskey", { answerJson, name: "a" }))[0],
      ).toBe(200);
      const list = "keys.v1.KeysService/ListKeys";
      const other = { accountId: account?.accountId ?? "" };
      expect((await post(list, other))[0]).toBe(404);
      expect((await post(list, { accountId }))[0]).toBe(200);
      const invite = { ...other, role: "ACCOUNT_ROLE_OWNER" };
      expect((await post("people.v1.MembersService/CreateInvitation", invite))[0]).toBe(404);
    });
  });
});

/** One method of each kind of caller: for operators, customers, every credential, and everybody. */
const calls = [
  ["people.v1.PeopleService/ListPeople", {}],
  ["people.v1.AdminTokensService/ListAdminTokens", {}],
  ["keys.v1.KeysService/ListKeys", { accountId: "acc_x" }],
  ["billing.v1.BillingService/GetPools", { accountId: "acc_x" }],
  ["keys.v1.KeysService/Authenticate", {}],
  ["people.v1.SignInService/BeginSignIn", {}],
] as const;

describe.for(["persons", "false"])("with HTTP_ADMIN=%s", (value) => {
  test.for([false, true])("no admin token calls anything, roles apart: %s", async (split) => {
    await withOperator({ env: { HTTP_ADMIN: value }, split }, async (gateway, post) => {
      const { accountId, admin, adminToken } = gateway;
      const made = await admin.core.people.createAdminToken({ name: "ci", scope: 4 }, admin.call);
      for (const token of [adminToken, made.secret]) {
        const authorization = `Bearer ${token}`;
        for (const [path, body] of calls) {
          const request = "accountId" in body ? { accountId } : body;
          const [status] = await post(path, request, authorization);
          const isHidden = value === "false" && /ListPeople|ListAdminTokens/.test(path);
          expect([path, status]).toEqual([path, isHidden ? 501 : 403]);
        }
        for (const path of ["/v1/models", "/v1/credits", "/v1/receipts/req_12345678"]) {
          const answer = await fetch(gateway.address + path, { headers: { authorization } });
          expect([path, answer.status]).toEqual([path, 403]);
        }
      }
      // What needs no credential is open to all others, also with a wrong one.
      const begin = "people.v1.SignInService/BeginSignIn";
      expect((await post(begin, {}, "Bearer wrong"))[0]).toBe(200);
      expect((await post(begin, {}))[0]).toBe(200);
      // The gRPC port serves them.
      const call = { headers: { authorization: `Bearer ${made.secret}` } };
      expect((await admin.core.people.listPeople({}, call)).people).toHaveLength(1);
    });
  });
});

test("with HTTP_ADMIN=persons, operators work", async () => {
  const env = { HTTP_ADMIN: "persons" };
  await withOperator({ env, split: false }, async ({ accountId }, post) => {
    expect((await post("people.v1.PeopleService/ListPeople", {}))[0]).toBe(200);
    expect((await post("keys.v1.KeysService/ListKeys", { accountId }))[0]).toBe(200);
  });
});

test("with HTTP_ADMIN=true, admin tokens work", async () => {
  await withOperator({ env: { HTTP_ADMIN: "true" }, split: false }, async (gateway, post) => {
    const { accountId, admin, adminToken } = gateway;
    const made = await admin.core.people.createAdminToken({ name: "ci", scope: 1 }, admin.call);
    for (const token of [adminToken, made.secret])
      for (const [path, body] of calls) {
        const request = "accountId" in body ? { accountId } : body;
        expect([path, (await post(path, request, `Bearer ${token}`))[0]]).toEqual([path, 200]);
      }
  });
});
