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
    const [, begun] = await post("people.v1.PeopleService/BeginPasskey", { linkToken });
    const options = String(Reflect.get(begun, "passkeyOptionsJson"));
    const passkeyAnswerJson = new Authenticator(origin).register(options);
    const redeem = { token: linkToken, login: "olga", passkeyAnswerJson };
    expect((await post("people.v1.PeopleService/RedeemLink", redeem))[0]).toBe(200);
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
      const { account } = await admin.core.billing.createAccount({ name: "other" }, admin.call);
      const [, session] = await post("people.v1.PeopleService/GetSession", {});
      expect(session).not.toHaveProperty("operator");
      const [, options] = await post("people.v1.PeopleService/BeginPasskey", {});
      const answerJson = new Authenticator(new URL(gateway.ownerLink).origin).register(
        String(Reflect.get(options, "passkeyOptionsJson")),
      );
      expect((await post("people.v1.PeopleService/AddPasskey", { answerJson }))[0]).toBe(200);
      const list = "keys.v1.KeysService/ListKeys";
      const other = { accountId: account?.accountId ?? "" };
      expect((await post(list, other))[0]).toBe(404);
      expect((await post(list, { accountId }))[0]).toBe(200);
      const invite = { ...other, role: "ACCOUNT_ROLE_OWNER" };
      expect((await post("people.v1.PeopleService/Invite", invite))[0]).toBe(404);
    });
  });
});

test("with HTTP_ADMIN=persons, operators work, and the admin token does not", async () => {
  const env = { HTTP_ADMIN: "persons" };
  await withOperator({ env, split: false }, async (gateway, post) => {
    const { accountId, adminToken, admin } = gateway;
    const token = `Bearer ${adminToken}`;
    expect((await post("people.v1.PeopleService/ListPeople", {}))[0]).toBe(200);
    expect((await post("people.v1.PeopleService/ListPeople", {}, token))[0]).toBe(403);
    expect((await post("keys.v1.KeysService/ListKeys", { accountId }, token))[0]).toBe(403);
    expect((await post("keys.v1.KeysService/Authenticate", {}, token))[0]).toBe(403);
    const headers = { authorization: token };
    expect((await fetch(`${gateway.address}/v1/models`, { headers })).status).toBe(403);
    expect((await admin.core.people.listPeople({}, admin.call)).people).toHaveLength(1);
  });
});
