// Signing in at the console in Chromium, with a virtual authenticator and a provider of OIDC: from
// a link to a session, and back in.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { closedPeople } from "../../src/config/catalog.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { idpEnv, idpSettings, startIdp } from "../support/oidc.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let smtp: TestSmtpServer;
  let secondInvitation = "";
  beforeAll(async () => {
    smtp = await startSmtpServer();
    gateway = await startTestGateway({ split: false, env: { ...idpEnv, SMTP_URL: smtp.url } });
    browser = await startChromium();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
    await smtp.stop();
  });

  test("a page at another name says which settings make it right, and uses up nothing", async () => {
    const elsewhere = await startChromium(["machine.test"]);
    const { page } = await openPage(elsewhere);
    const link = new URL(gateway.ownerLink);
    link.hostname = "machine.test";
    await page.goto(link.href);
    await page.getByText("Nobody can sign in at").waitFor();
    const text = await page.locator("main").textContent();
    expect(text).toContain("Nothing was used up.");
    expect(text).toContain("PUBLIC_URL=https://machine.test");
    expect(text).toContain("TRUSTED_PROXIES=127.0.0.1");
    // Nobody can type a password here, and a passkey is not tried.
    expect(await page.getByRole("button", { name: /passkey/ }).count()).toBe(0);
    await elsewhere.close();
  });

  test("nothing is refused before somebody signs in", async () => {
    const { page } = await openPage(browser);
    const messages: string[] = [];
    page.on("console", (message) => messages.push(message.text()));
    await page.goto(new URL("/console/", gateway.ownerLink).href);
    await page.getByRole("button", { name: "Sign in with a passkey" }).waitFor();
    expect(messages).toEqual([]);
    await page.close();
  });

  test("a link becomes a passkey, the passkey a session, and it signs in again", async () => {
    const { page, problems } = await openPage(browser);
    await page.goto(gateway.ownerLink);
    await page.getByRole("heading", { name: "Set up this gateway" }).waitFor();
    // The secret is in no address that the browser keeps.
    expect(page.url()).not.toContain("#");
    await page.getByLabel("Login").fill("Olga@example.com");
    await page.getByLabel("Your name").fill("Olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("heading", { name: "Make a key" }).waitFor();
    await page.getByText("You are olga@example.com.").waitFor();
    await page.getByRole("link", { name: "Skip to the console" }).click();
    await signedIn(page, { account: "default", role: "Owner", name: "Olga" });

    const [cookie, ...others] = await page.context().cookies();
    expect(others).toEqual([]);
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Lax", path: "/" });

    await signOut(page);
    expect(await page.context().cookies()).toEqual([]);
    await page.getByRole("button", { name: "Sign in with a passkey" }).click();
    await signedIn(page, { account: "default", role: "Owner", name: "Olga" });
    expect(problems).toEqual([]);

    // The link was used.
    const second = await openPage(browser);
    await second.page.goto(gateway.ownerLink);
    await second.page.getByRole("heading", { name: "This link does not work" }).waitFor();
    expect(second.problems).toEqual([]);

    // An invitation is taken with a password.
    const invited = await page.evaluate(inviteViewer, gateway.accountId);
    secondInvitation = await page.evaluate(inviteViewer, gateway.accountId);
    const third = await openPage(browser);
    await third.page.goto(invited);
    await third.page.getByRole("heading", { name: "Join default" }).waitFor();
    await third.page.getByLabel("Login").fill("viewer");
    await third.page.getByRole("button", { name: "Use a password instead" }).click();
    await third.page.getByLabel("Password", { exact: true }).fill("short");
    await third.page.getByRole("button", { name: "Continue with this password" }).click();
    // The error stands at its field, and what was typed stays.
    await third.page.getByText("12 characters", { exact: false }).nth(1).waitFor();
    expect(await third.page.getByLabel("Login").inputValue()).toBe("viewer");
    await third.page.getByLabel("Password", { exact: true }).fill("a long password");
    await third.page.getByRole("button", { name: "Continue with this password" }).click();
    await signedIn(third.page, { account: "default", role: "Viewer", name: "viewer" });
    expect(third.problems).toEqual([]);
  });

  test("a company signs people in, with an invitation, again, and for a confirmation", async () => {
    const { origin } = new URL(gateway.ownerLink);
    const idp = await startIdp({ redirectUris: [`${origin}/console/oidc/acme/callback`] });
    try {
      const signUp = { mode: "closed", domains: [] } as const;
      const people = { ...closedPeople, signUp, oidc: { acme: idpSettings(idp) } };
      gateway.reload({ ...fastCatalog(), people });

      // A stranger is told that he has no account.
      const stranger = await openPage(browser);
      await stranger.page.goto(`${origin}/console/`);
      await stranger.page.getByRole("button", { name: "Continue with ACME" }).click();
      await stranger.page.getByRole("alert").filter({ hasText: "Ask for an invitation" }).waitFor();
      expect(new URL(stranger.page.url()).search).toBe("");
      expect(await cookiesOf(stranger.page)).toEqual([]);

      idp.people.set("ada", { email: "ada@acme.com", email_verified: true, name: "Ada" });
      const { admin, accountId } = gateway;
      const { page, problems } = await openPage(browser);
      await page.goto(secondInvitation);
      await page.getByRole("heading", { name: "Join default" }).waitFor();
      await page.getByRole("button", { name: "Continue with ACME" }).click();
      await signedIn(page, { account: "default", role: "Viewer", name: "Ada" });
      expect(page.url()).toBe(`${origin}/console/${gateway.accountId}`);
      expect(await cookiesOf(page)).toEqual([expect.stringMatching(/^gateway-session-\d+$/)]);

      // A link to our own page, which a person follows, begins a confirmation.
      await page.goto(`${origin}/console/oidc/acme/start?purpose=confirm`);
      await page.getByRole("heading", { name: "Done" }).waitFor();
      expect(await page.evaluate(setPassword)).toBe(200);

      await page.goto(`${origin}/console/`);
      await signOut(page);
      await page.getByRole("button", { name: "Continue with ACME" }).click();
      await signedIn(page, { account: "default", role: "Viewer", name: "Ada" });
      expect(problems).toEqual([]);
      const { members } = await admin.core.people.listMembers({ accountId }, admin.call);
      expect(members.map(({ login }) => login)).toContain("ada@acme.com");
    } finally {
      await idp.stop();
    }
  });

  test("the link of a mail confirms an address", async () => {
    const signUp = { mode: "open", domains: [] } as const;
    gateway.reload({ ...fastCatalog(), people: { ...closedPeople, signUp } });
    const email = "new@example.com";
    const { page, problems } = await openPage(browser);
    await page.goto(`${new URL(gateway.ownerLink).origin}/console/`);
    await page.getByRole("link", { name: "Sign up" }).click();
    await page.getByLabel("E-mail address").fill(email);
    await page.getByRole("button", { name: "Send the link" }).click();
    await page.getByRole("heading", { name: "Look into your mail" }).waitFor();
    await expect.poll(() => smtp.mails).toHaveLength(1);
    const confirming = await openPage(browser);
    await confirming.page.goto(smtp.mails[0]?.links[0] ?? "");
    await confirming.page.getByRole("heading", { name: "Your address is confirmed" }).waitFor();
    expect(await confirming.page.getByLabel("Login").inputValue()).toBe(email);
    await confirming.page.getByRole("button", { name: "Create a passkey" }).click();
    await confirming.page.getByText(`You are ${email}.`).waitFor();
    expect([...problems, ...confirming.problems]).toEqual([]);

    // Another address counts once its own link is opened and confirmed.
    const { page: own } = confirming;
    await own.getByRole("link", { name: "Skip to the console" }).click();
    await own.getByRole("link", { name: "Settings" }).first().click();
    await own.getByRole("button", { name: "Change", exact: true }).last().click();
    await own.getByRole("textbox", { name: "E-mail" }).fill("other@example.com");
    await own.getByRole("button", { name: "Send the link" }).click();
    await own.getByText("A link is on its way to other@example.com.").waitFor();
    const you = own.locator("section", {
      has: own.getByRole("heading", { name: "You", exact: true }),
    });
    expect(await you.textContent()).toContain(`E-mail${email}`);
    await expect.poll(() => smtp.mails).toHaveLength(2);
    await own.goto(smtp.mails[1]?.links[0] ?? "");
    await own.getByRole("button", { name: /^Confirm/ }).click();
    await own.getByRole("link", { name: "To the sign-in" }).click();
    await own.getByRole("link", { name: "Settings" }).first().click();
    await you.getByText("other@example.com").waitFor();
    expect(confirming.problems).toEqual([]);
  });
});

type Shown = { readonly account: string; readonly role: string; readonly name: string };

/** Waits until the console shows who is signed in, and where. */
async function signedIn(page: Page, { account, role, name }: Shown): Promise<void> {
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  expect(await page.locator(".account").first().textContent()).toBe(account + role);
  expect(await page.getByRole("button", { name }).textContent()).toContain(name);
}

async function signOut(page: Page): Promise<void> {
  await page.locator("button.me").click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
}

/** The names of our cookies. The provider has its own. */
async function cookiesOf(page: Page): Promise<string[]> {
  const cookies = await page.context().cookies();
  return cookies.map(({ name }) => name).filter((name) => name.startsWith("gateway-"));
}

/** Runs in the page. Resolves with the status of a call that needs a confirmation. */
async function setPassword(): Promise<number> {
  const response = await fetch("/gateway.people.v1.ProfileService/SetPassword", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ password: "a long password" }),
  });
  return response.status;
}

/** Runs in the page. Resolves with the link. */
async function inviteViewer(accountId: string): Promise<string> {
  const response = await fetch("/gateway.people.v1.MembersService/CreateInvitation", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ accountId, role: "ACCOUNT_ROLE_VIEWER" }),
  });
  return Object(await response.json()).link;
}
