// The small form of the suites of the console: one walk from the first link to a key in use.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  beforeAll(async () => {
    [gateway, browser] = await Promise.all([startTestGateway(), startChromium()]);
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  test("the first link becomes an owner, who makes a key that pays for a request", async () => {
    const { page, problems } = await openPage(browser);
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga@example.com");
    await page.getByLabel("Your name").fill("Olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByText("Waiting for your first request").waitFor();
    const secret = await page.getByLabel("The secret of the key").inputValue();
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "haiku",
        max_tokens: 100,
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    expect(answer.status).toBe(200);
    await page.getByText("Your first request has arrived: model-haiku").waitFor();
    await page.getByRole("link", { name: "Open the console" }).click();
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    expect(problems).toEqual([]);
  });
});
