// Signing up at a whole gateway, with and without separate roles: from an address, through a mail,
// to an account with nothing in it.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { closedPeople } from "../../src/config/catalog.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

describe.for([false, true])("roles apart: %s", (split) => {
  let gateway: TestGateway;
  let smtp: TestSmtpServer;
  beforeAll(async () => {
    smtp = await startSmtpServer();
    const signUp = { mode: "open", domains: [] } as const;
    gateway = await startTestGateway({
      split,
      env: { SMTP_URL: smtp.url, PUBLIC_URL: "https://gateway.example.com" },
      catalog: { ...fastCatalog(), people: { ...closedPeople, signUp } },
    });
  });
  afterAll(async () => {
    await gateway.stop();
    await smtp.stop();
  });

  const call = async (path: string, body: object, cookie = "") => {
    const answer = await fetch(`${gateway.address}/gateway.${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "sec-fetch-site": "same-origin", cookie },
      body: JSON.stringify(body),
    });
    const setCookie = answer.headers.get("set-cookie")?.split(";")[0] ?? "";
    return { status: answer.status, body: Object(await answer.json()), cookie: setCookie };
  };

  test("a new person has an account of his own, in which there is nothing", async () => {
    const email = "ada@example.com";
    const { status } = await call("people.v1.SignInService/SignUp", { email });
    expect(status).toBe(200);
    await expect.poll(() => smtp.mails).toHaveLength(1);
    const [mail] = smtp.mails;
    expect(mail).toMatchObject({ from: "no-reply@gateway.example.com", to: [email] });
    const link = new URL(mail?.links[0] ?? "");
    expect(link.href).toMatch(/^https:\/\/gateway\.example\.com\/console\/welcome#/);
    const token = link.hash.slice(1);
    const password = "correct horse battery";
    const confirmed = await call("people.v1.SignInService/ConfirmEmail", {
      token,
      password,
      name: "Ada",
    });
    expect(confirmed.body.person).toMatchObject({ login: email, email });
    expect(confirmed.body).not.toHaveProperty("grant");
    expect(confirmed.cookie).toMatch(/^__Host-session=/);

    const { body } = await call("people.v1.ProfileService/GetSession", {}, confirmed.cookie);
    expect(body.accounts).toMatchObject([{ name: "Ada", role: "ACCOUNT_ROLE_OWNER" }]);
    const pools = await call("billing.v1.BillingService/GetPools", {}, confirmed.cookie);
    expect(pools.body.pools).toHaveLength(2);
    for (const pool of pools.body.pools) expect(pool).toMatchObject({ postedMicrocredits: "0" });
  });

  test("nobody signs up twice, and the answer does not tell", async () => {
    const again = await call("people.v1.SignInService/SignUp", { email: "ADA@example.com" });
    expect(again).toMatchObject({ status: 200, body: {} });
    await expect.poll(() => smtp.mails).toHaveLength(2);
    expect(smtp.mails[1]?.links).toEqual([]);
  });
});
