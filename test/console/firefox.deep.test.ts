// The console in Firefox: from the first start to a receipt, at the width of a phone and of a desk.

import type { Browser } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type FirefoxPage, hasFirefox, openFirefoxPage, startFirefox } from "../support/firefox.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { scrollThrough } from "./states/server.ts";

const password = "a long password";
const secretOnScreen = `document.querySelector('[aria-label="The secret of the key"]').value`;
const heading = "document.querySelector('h1').textContent";
const isWide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
// Where it is absent: `apt-get install firefox-esr`.
describe.skipIf(!hasFirefox)("in Firefox", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let firefox: FirefoxPage;
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    browser = await startFirefox();
    firefox = await openFirefoxPage(browser);
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  /** Sends one paid request. Resolves with its id. */
  async function ask(secret: string): Promise<string> {
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        ...{ model: "haiku", max_tokens: 100 },
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    await answer.arrayBuffer();
    expect(answer.status).toBe(200);
    return answer.headers.get("request-id") ?? "";
  }

  test("a first start becomes a person, a key, and a first request that is seen", async () => {
    await firefox.resize(360);
    await firefox.page.goto(gateway.ownerLink);
    await firefox.fill("Login", "olga@example.com");
    await firefox.press("Use a password instead");
    await firefox.fill("Password", password);
    await firefox.press("Continue with this password");
    await firefox.fill("Name", "ci");
    await firefox.press("Create key");
    await firefox.see("Waiting for your first request");
    await ask(String(await firefox.page.evaluate(secretOnScreen)));
    await firefox.see("Your first request has arrived");
    expect(firefox.problems).toEqual([]);
  });

  test("a second key is made in a dialog, and the list follows its request live", async () => {
    const { page } = firefox;
    await firefox.resize(1440);
    await page.goto(`${new URL(gateway.ownerLink).origin}/console/${gateway.accountId}/keys`);
    await firefox.press("Create a key");
    await firefox.fill("Name", "editor");
    await firefox.press("Create key");
    await firefox.see("You will not see it again.");
    const secret = String(await page.evaluate(secretOnScreen));
    await firefox.press("I have stored it");
    await firefox.press("Requests");
    await expect.poll(() => page.evaluate(heading)).toBe("Requests");
    await expect.poll(() => page.$$("tbody tr").then((rows) => rows.length)).toBe(1);
    const requestId = await ask(secret);
    await expect.poll(() => page.$$("tbody tr").then((rows) => rows.length)).toBe(2);
    await page.locator("tbody tr a").click();
    await firefox.see(requestId);
    await firefox.see("What it cost");
    expect(firefox.problems).toEqual([]);
  });

  test("no page is wider than a phone or a desk", async () => {
    const { page } = firefox;
    const wide: string[] = [];
    for (const path of ["", "/keys", "/usage", "/requests", "/credits", "/members", "/settings"]) {
      await page.goto(`${new URL(gateway.ownerLink).origin}/console/${gateway.accountId}${path}`);
      await page.locator("main h1").wait();
      // What is further down is asked for when somebody scrolls to it.
      await page.evaluate(scrollThrough);
      await expect.poll(() => page.$$(".skeleton").then((all) => all.length)).toBe(0);
      for (const width of [360, 1440]) {
        await firefox.resize(width);
        if (await page.evaluate(isWide)) wide.push(`${path} at ${width}`);
      }
    }
    expect(wide).toEqual([]);
    expect(firefox.problems).toEqual([]);
  });

  test("somebody signs out, and in again with the password", async () => {
    const { page } = firefox;
    await page.locator("button.me").click();
    await firefox.press("Sign out");
    await firefox.press("Use a password");
    await firefox.fill("Login", "olga@example.com");
    await firefox.fill("Password", password);
    await firefox.press("Sign in");
    await expect.poll(() => page.evaluate(heading)).toBe("Overview");
    expect(firefox.problems).toEqual([]);
  });
});
