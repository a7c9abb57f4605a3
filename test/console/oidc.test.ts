// Signing in at a provider of OIDC in a browser: the routes of the console, with and without
// separate roles.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { closedPeople } from "../../src/config/catalog.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { idpEnv, idpSettings, RedirectBrowser, startIdp, type TestIdp } from "../support/oidc.ts";
import { pathOf } from "../support/paths.ts";

const publicUrl = "http://localhost:8080";
const start = `${publicUrl}/console/oidc/acme/start`;
const callback = `${publicUrl}/console/oidc/acme/callback`;
const isPage = ({ pathname }: URL) => pathname === "/console/welcome";

describe.for([false, true])("roles apart: %s", (split) => {
  let gateway: TestGateway;
  let idp: TestIdp;
  beforeAll(async () => {
    idp = await startIdp({ redirectUris: [callback], claimsInToken: split });
    const signUp = { mode: "open", domains: [] } as const;
    const oidc = { acme: idpSettings(idp, { signUp, answerMs: 500 }) };
    const people = { ...closedPeople, oidc };
    gateway = await startTestGateway({
      split,
      env: { ...idpEnv, PUBLIC_URL: publicUrl },
      catalog: { ...fastCatalog(), people },
    });
  });
  afterEach(() => idp.reset());
  afterAll(async () => {
    await gateway.stop();
    await idp.stop();
  });

  const newBrowser = () => {
    const address = gateway.address.replace("127.0.0.1", "localhost");
    return new RedirectBrowser((origin) => (origin === publicUrl ? address : origin));
  };

  const call = async (browser: RedirectBrowser, method: string, body: object = {}) => {
    const answer = await browser.fetch(`${publicUrl}${pathOf(method)}`, {
      method: "POST",
      headers: { "content-type": "application/json", "sec-fetch-site": "same-origin" },
      body: JSON.stringify(body),
    });
    return { status: answer.status, body: Object(await answer.json()) };
  };

  test("a browser goes to the provider and comes back with a session", async () => {
    const email = "ada@example.com";
    idp.people.set("ada", { email, email_verified: true, name: "Ada" });
    const browser = newBrowser();
    const begun = await browser.fetch(start);
    expect(begun.status).toBe(302);
    expect(begun.headers.get("cache-control")).toBe("no-store");
    expect(begun.headers.get("referrer-policy")).toBe("no-referrer");
    const [cookie = ""] = begun.headers.getSetCookie();
    expect(cookie).toMatch(
      /^gateway-oidc-8080=\S+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=5\d\d$/,
    );
    // The address at the provider shows nothing that only the browser may know.
    const location = begun.headers.get("location") ?? "";
    expect(location).not.toContain(cookie.split(/[=;]/)[1]);
    expect(location).toContain("code_challenge_method=S256");
    const page = await browser.follow(location, isPage);
    expect(page.href).toBe(`${publicUrl}/console/welcome?oidc=signed-in`);
    // The flow is over, and its cookie with it.
    expect(browser.cookies(publicUrl).map((one) => one.split("=")[0])).toEqual([
      "gateway-session-8080",
    ]);
    const { body } = await call(browser, "GetSession");
    expect(body.person).toMatchObject({ login: email, name: "Ada" });
    expect(body.accounts).toMatchObject([{ name: "Ada", role: "ACCOUNT_ROLE_OWNER" }]);
    const { body: listed } = await call(browser, "ListSessions");
    expect(listed.sessions).toHaveLength(1);
    // Without a client certificate, a core believes no facade.
    if (!split) expect(listed.sessions[0]).toMatchObject({ agent: "node" });
  });

  test("a page begins with a call, and its flow goes into a cookie alone", async () => {
    const browser = newBrowser();
    const { body } = await call(browser, "BeginOidc", { provider: "acme" });
    expect(Object.keys(body)).toEqual(["authorizationUrl"]);
    expect(browser.cookies(publicUrl)[0]).toMatch(/^gateway-oidc-8080=sign-in\./);
    const page = await browser.follow(body.authorizationUrl, isPage);
    expect(page.search).toBe("?oidc=signed-in");
  });

  test("an invitation is taken at the provider", async () => {
    const { admin, accountId } = gateway;
    expect(accountId).not.toBe("");
    const linkToken = new URL(gateway.ownerLink).hash.slice(1);
    idp.person = "olga";
    const browser = newBrowser();
    const { body } = await call(browser, "BeginOidc", { provider: "acme", linkToken });
    await browser.follow(body.authorizationUrl, isPage);
    const session = await call(browser, "GetSession");
    expect(session.body.accounts).toMatchObject([{ accountId, role: "ACCOUNT_ROLE_OWNER" }]);
    const { people } = await admin.core.people.listPeople({}, admin.call);
    expect(people.length).toBeGreaterThan(0);
  });

  test("a confirmation is begun by our own pages only, and confirms the session", async () => {
    idp.people.set("cora", { email: "cora@acme.com", email_verified: true });
    idp.person = "cora";
    const browser = newBrowser();
    await browser.follow(start, isPage);
    const before = await call(browser, "SetPassword", { password: "a long password" });
    expect(before.body.message).toContain("Confirm who you are");
    const confirm = `${start}?purpose=confirm`;
    const foreign = await browser.fetch(confirm, { headers: { "sec-fetch-site": "cross-site" } });
    expect(foreign.headers.get("location")).toBe("/console/welcome?oidc=not_permitted");
    const page = await browser.follow(confirm, isPage);
    expect(page.search).toBe("?oidc=confirmed");
    const after = await call(browser, "SetPassword", { password: "a long password" });
    expect(after.status).toBe(200);
    const added = await browser.follow(`${start}?purpose=add`, isPage);
    expect(added.search).toBe("?oidc=added");
  });

  describe("fails with a word for it", () => {
    const outcomeOf = async (address: string, browser = newBrowser()) =>
      (await browser.follow(address, isPage)).search;

    test("without the cookie of the flow", async () => {
      const there = await newBrowser().follow(start, ({ pathname }) =>
        pathname.endsWith("/callback"),
      );
      expect(await outcomeOf(there.href)).toBe("?oidc=sign_in_failed");
    });

    test("with what came back before", async () => {
      const browser = newBrowser();
      const { headers } = await browser.fetch(start);
      const kept = browser.cookies(publicUrl);
      const there = await browser.follow(headers.get("location") ?? "", ({ pathname }) =>
        pathname.endsWith("/callback"),
      );
      expect(await outcomeOf(there.href, browser)).toBe("?oidc=signed-in");
      const address = gateway.address.replace("127.0.0.1", "localhost");
      const replayed = await fetch(there.href.replace(publicUrl, address), {
        headers: { cookie: kept.join("; ") },
        redirect: "manual",
      });
      expect(replayed.headers.get("location")).toBe("/console/welcome?oidc=sign_in_failed");
      expect(replayed.headers.getSetCookie().join()).not.toContain("gateway-session");
    });

    test("as the provider refuses", async () => {
      const browser = newBrowser();
      const { headers } = await browser.fetch(start);
      const state = new URL(headers.get("location") ?? "").searchParams.get("state") ?? "";
      const query = new URLSearchParams({ state, iss: idp.issuer, error: "access_denied" });
      expect(await outcomeOf(`${callback}?${query}`, browser)).toBe("?oidc=sign_in_failed");
    });

    test("while the provider hangs", async () => {
      const browser = newBrowser();
      const { headers } = await browser.fetch(start);
      idp.hangs = "/token";
      expect(await outcomeOf(headers.get("location") ?? "", browser)).toBe(
        "?oidc=gateway_unavailable",
      );
    });

    test("for a provider, a purpose or a query that is none", async () => {
      expect(await outcomeOf(start.replace("acme", "nobody"))).toBe("?oidc=not_found");
      expect(await outcomeOf(start.replace("acme", "..%2Facme"))).toBe("?oidc=not_found");
      expect(await outcomeOf(`${start}?purpose=steal`)).toBe("?oidc=invalid_request");
      expect(await outcomeOf(`${start}?purpose=confirm`)).toBe("?oidc=invalid_session");
      expect(await outcomeOf(callback)).toBe("?oidc=sign_in_failed");
      const browser = newBrowser();
      await browser.fetch(start);
      expect(await outcomeOf(`${callback}?state=%00%ff&code=%00`, browser)).toBe(
        "?oidc=sign_in_failed",
      );
    });
  });

  test("an IP address of this machine leads to the host that people know", async () => {
    const answer = await fetch(start.replace(publicUrl, gateway.address), { redirect: "manual" });
    expect(answer.headers.get("location")).toBe(start);
    expect(answer.headers.getSetCookie()).toEqual([]);
  });

  test("a look at an address, without its content, uses nothing up", async () => {
    for (const address of [start, callback]) {
      const { status, headers } = await newBrowser().fetch(address, { method: "HEAD" });
      // The head of the page, as of any other address of the console.
      expect([status, headers.getSetCookie()]).toEqual([200, []]);
    }
  });
});
