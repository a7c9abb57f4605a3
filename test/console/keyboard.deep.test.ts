// What a customer does, in Chromium and without a mouse: each step is reached by the Tab key, the
// place of the focus is seen, and it comes back to where it was. And how pages behave when a call
// fails.

import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const login = "olga@example.com";
const password = "a long password";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let page: Page;
  let problems: string[] = [];
  let origin = "";
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    const link = new URL(gateway.ownerLink);
    ({ origin } = link);
    await fetch(`${origin}/gateway.people.v1.SignInService/RedeemLink`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: link.hash.slice(1), login, name: "Olga", password }),
    });
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    page.setDefaultTimeout(60_000);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin });
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  const isFocused = (place: Locator) =>
    place.evaluate((one) => one === one.ownerDocument.activeElement);
  const expectFocus = (place: Locator) => expect.poll(() => isFocused(place)).toBe(true);
  const press = (key: string) => page.keyboard.press(key);

  /** Presses Tab until the focus is there, and sees it at every stop. */
  async function tabTo(place: Locator, key: "Tab" | "Shift+Tab" = "Tab"): Promise<void> {
    await place.waitFor();
    for (let stops = 0; stops < 80; stops++) {
      await press(key);
      expect(await page.evaluate(findHiddenFocus)).toBe("");
      if (await isFocused(place)) return;
    }
    throw new Error(`the Tab key does not reach ${place}`);
  }

  async function pressOn(place: Locator, key = "Enter"): Promise<void> {
    await tabTo(place);
    await press(key);
  }

  const button = (name: string | RegExp) =>
    page.getByRole("button", { name, exact: typeof name === "string" });
  const link = (name: string | RegExp) =>
    page.getByRole("link", { name, exact: typeof name === "string" });
  // Of a page: parts of it, such as the list of the bell, may have the same one.
  const heading = (name: string) => page.getByRole("heading", { name, level: 1 }).waitFor();

  test("the whole way of a customer needs no mouse", async () => {
    await page.goto(`${origin}/console/`);
    await pressOn(button("Use a password"));
    await expectFocus(page.getByLabel("Login"));
    await page.keyboard.type(login);
    await tabTo(page.getByLabel("Password", { exact: true }));
    await page.keyboard.type(password);
    await press("Enter");
    await heading("Overview");

    // Past the column, at once.
    await pressOn(link("Skip to the content"));
    await expectFocus(page.locator("#content"));

    // A key.
    await pressOn(link("Create a key"));
    await expectFocus(page.getByLabel("Name", { exact: true }));
    await page.keyboard.type("by hand");
    await press("Enter");
    const secretField = page.getByLabel("The secret of the key");
    await expectFocus(secretField);
    const secret = await secretField.inputValue();
    await pressOn(button("Copy").first());
    await expect.poll(() => page.evaluate("navigator.clipboard.readText()")).toBe(secret);
    await pressOn(button("I have stored it"));
    await expectFocus(page.locator("#content"));
    // The focus returns to what opened a dialog.
    await pressOn(button("Create a key"));
    await expectFocus(page.getByLabel("Name", { exact: true }));
    await press("Escape");
    await expectFocus(button("Create a key"));

    // A new secret.
    await pressOn(link("by hand"));
    await heading("by hand");
    await expectFocus(page.locator("#content"));
    await pressOn(button("Rotate"));
    await pressOn(button("now"), "Space");
    await pressOn(button("Make a new secret"));
    await expectFocus(secretField);
    await expect.poll(() => secretField.inputValue()).not.toBe(secret);
    // Copied as people do it.
    await press("Control+C");
    await press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    await expectFocus(button("Rotate"));

    // Its end.
    await tabTo(button("Revoke"), "Shift+Tab");
    await press("Enter");
    await expectFocus(page.getByLabel("Type by hand to confirm"));
    await page.keyboard.type("by hand");
    await press("Enter");
    await page.getByText("by hand is revoked.").waitFor();

    // A filter, which is in the address.
    await pressOn(link("Usage").first());
    await heading("Usage");
    const model = page.getByRole("combobox", { name: /^Model/ });
    await tabTo(model);
    await expect.poll(() => model.locator("option").count()).toBeGreaterThan(1);
    await press("ArrowDown");
    await press("Enter");
    await expect.poll(() => new URL(page.url()).searchParams.get("model")).toBeTruthy();
    await expectFocus(model);

    // Credits.
    await pressOn(link("Credits").first());
    await heading("Credits");
    await pressOn(link("Buy credits").last());
    await page.getByText("Which keys should they pay for?").waitFor();
    await tabTo(page.getByRole("radio").first());
    await pressOn(button("Continue"));
    await page.getByText("How many credits?").waitFor();
    await expectFocus(page.locator("#content"));
    await tabTo(page.getByRole("radio").first());
    await press("ArrowDown");
    await press("ArrowUp");
    await pressOn(button("Continue"));
    await page.getByText("Which coin, on which network?").waitFor();
    await tabTo(page.getByRole("radio").first());
    await press("ArrowDown");
    await press("Enter");
    await page.getByText("Nothing has arrived yet.").waitFor();
    const orderId = new URL(page.url()).pathname.split("/").at(-1) ?? "";
    const amount = (await page.locator(".pay-amount b").textContent()) ?? "";
    const { payments } = gateway.admin.core;
    const value = { coins: amount.replaceAll(/[^\d.]/g, ""), confirmations: 9 };
    const event = { case: "deposit", value } as const;
    await payments.simulateDeposit({ orderId, event }, gateway.admin.call);
    await page.getByText("Paid. 1,000.00 credits were added").waitFor();

    // What the bell told of it.
    await pressOn(button(/^Alerts, /));
    await pressOn(link("All alerts"));
    await heading("Alerts");
    await expectFocus(page.locator("#content"));
    const left = button("Dismiss");
    await expect.poll(() => left.count()).toBeGreaterThan(0);
    const alerts = await left.count();
    await pressOn(left.first());
    await expect.poll(() => left.count()).toBeLessThan(alerts);

    // One message to a model.
    await pressOn(link("Try it"));
    await heading("Try it");
    await tabTo(page.getByLabel("Message", { exact: true }));
    await page.keyboard.type("Hello");
    await press("Control+Enter");
    await page.getByText("The answer is whole.").waitFor();
    await pressOn(link("The whole receipt"));
    await heading("Receipt of a request");

    // And out.
    await pressOn(page.locator("button.me"));
    await pressOn(button("Sign out"));
    await heading("Sign in");
    expect(problems).toEqual([]);
  });

  test("a failed call shows an id by which the operator finds it", async () => {
    const { page: other } = await openPage(browser);
    await signIn(other);
    await other.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin });
    // No request has such a tag, so that the service refuses.
    await other.goto(`${origin}/console/${gateway.accountId}/requests?tag=%24=1`);
    await other.getByRole("heading", { name: "This did not work" }).waitFor();
    await other.getByRole("button", { name: "Copy request id" }).click();
    await expect
      .poll(() => other.evaluate("navigator.clipboard.readText()"))
      .toMatch(/^req_[\w-]{8,64}$/);
    await other.context().close();
  });

  test("what a busy gateway refused is asked again when the time has come", async () => {
    const { page: other } = await openPage(browser);
    await signIn(other);
    const asked: number[] = [];
    await other.route("**/ListKeys", async (route) => {
      asked.push(performance.now());
      if (asked.length > 1) return route.continue();
      await route.fulfill({ status: 503, contentType: "application/json", body: busy("1.5s") });
    });
    await other.goto(`${origin}/console/${gateway.accountId}/keys`);
    await other.getByText("The gateway is busy or restarting.").waitFor();
    await other.getByRole("heading", { name: "This did not work" }).waitFor();
    await other.getByRole("table", { name: /keys/i }).waitFor();
    await other.getByText("The gateway is busy or restarting.").waitFor({ state: "hidden" });
    const [first = 0, second = 0] = asked;
    expect(second - first).toBeGreaterThanOrEqual(1_500);
    await other.context().close();
  });

  test("a key that another tab revoked cannot be used on this page", async () => {
    const { page: other } = await openPage(browser);
    await signIn(other);
    const { key } = await gateway.admin.core.keys.createKey(
      { accountId: gateway.accountId, family: 1, settings: { name: "two tabs" } },
      gateway.admin.call,
    );
    const keyId = key?.keyId ?? "";
    await other.goto(`${origin}/console/${gateway.accountId}/keys/${keyId}`);
    await other.getByRole("button", { name: "Rotate" }).click();
    await gateway.admin.core.keys.revokeKey({ keyId }, gateway.admin.call);
    await other.getByRole("button", { name: "Make a new secret" }).click();
    await other
      .getByRole("alert")
      .filter({ hasText: /revoked/ })
      .waitFor();
    const { key: revoked } = await gateway.admin.core.keys.getKey({ keyId }, gateway.admin.call);
    expect(revoked?.secrets).toHaveLength(1);
    await other.keyboard.press("Escape");
    await other.context().close();
  });

  async function signIn(other: Page): Promise<void> {
    await other.goto(`${origin}/console/`);
    await other.getByRole("button", { name: "Use a password" }).click();
    await other.getByLabel("Login").fill(login);
    await other.getByLabel("Password", { exact: true }).fill(password);
    await other.getByRole("button", { name: "Sign in", exact: true }).click();
    await other.getByRole("heading", { name: "Overview" }).waitFor();
  }
});

/** Runs in the page. Names the element with the focus if nothing shows that it has it. */
const findHiddenFocus = `(() => {
  const focused = document.activeElement;
  // Behind the last element the focus leaves the page.
  if (!focused || focused === document.body) return "";
  const isShown = (one) => {
    const { outlineStyle, outlineWidth, stroke, strokeWidth } = getComputedStyle(one);
    const isStroked = one.matches(".bars-hit") && stroke !== "none" && strokeWidth === "2px";
    return isStroked || (outlineStyle !== "none" && Number.parseFloat(outlineWidth) > 0);
  };
  // Some show it around themselves: a search with its icon, a bar with its column.
  const around = [focused, focused.parentElement, focused.firstElementChild];
  return around.some((one) => one && isShown(one)) ? "" : focused.outerHTML.slice(0, 200);
})()`;

/** An error of Connect that says when to come back. */
function busy(retryDelay: string): string {
  const domain = "model-gateway";
  return JSON.stringify({
    code: "unavailable",
    message: "Too much at once.",
    details: [
      { type: "google.rpc.ErrorInfo", debug: { reason: "OVERLOADED", domain } },
      { type: "google.rpc.RetryInfo", debug: { retryDelay } },
    ],
  });
}
