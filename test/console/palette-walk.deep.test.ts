// The palette and the glossary, by hand: what is found, what the keyboard does, and what a page
// shows where the service answers nothing.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let page: Page;
  let problems: string[] = [];
  let origin = "";
  let keyId = "";
  const longName = "Größter Schlüssel Ключ производства 生产环境密钥 des Hauses Nr 1".slice(0, 60);
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    const { keys } = gateway.admin.core;
    const made = await keys.createKey(
      { accountId: gateway.accountId, family: Family.V1, settings: { name: longName } },
      gateway.admin.call,
    );
    keyId = made.key?.keyId ?? "";
    await keys.createKey(
      {
        accountId: gateway.accountId,
        family: Family.V1,
        settings: { name: "<img src=x onerror=alert(1)>" },
      },
      gateway.admin.call,
    );
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    page.setDefaultTimeout(20_000);
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).waitFor();
    await page.goto(`${origin}/console/${gateway.accountId}`);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  /** Where pictures go that a person wants to look at. Undefined: nowhere. */
  const shots = process.env.SCREENS;
  const take = async (name: string) => {
    if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
  };
  const field = () => page.getByRole("combobox", { name: /^Find / });
  const option = (name: string | RegExp) => page.getByRole("option", { name });
  const chosen = () => page.locator("[role=option][aria-selected=true]").textContent();

  for (const width of [360, 1440])
    test(`the keyboard alone leads to a key, a page and a look at ${width} px`, async () => {
      await page.setViewportSize({ width, height: 800 });
      await page.keyboard.press("Control+k");
      await field().waitFor();
      await expect.poll(chosen).toContain("Overview");
      await take(`palette-${width}`);
      await page.keyboard.type("ключ");
      await option(/Größter/).waitFor();
      await take(`palette-found-${width}`);
      await page.keyboard.press("Enter");
      await page.waitForURL(({ pathname }) => pathname.endsWith(`/keys/${keyId}`));
      await leftDialog(page);
      await page.keyboard.press("/");
      await page.keyboard.type("usage");
      await expect.poll(chosen).toContain("Usage");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Usage", exact: true }).waitFor();
      await leftDialog(page);
      await page.keyboard.press("Control+k");
      await page.keyboard.type("dark look");
      await page.keyboard.press("Enter");
      await expect.poll(() => page.evaluate("document.documentElement.dataset.theme")).toBe("dark");
      await leftDialog(page);
      await page.keyboard.press("Control+k");
      await field().waitFor();
      await take(`palette-dark-${width}`);
      await page.keyboard.type("system");
      await page.keyboard.press("Enter");
      await leftDialog(page);
      await page.keyboard.press("g");
      await page.keyboard.press("o");
      await page.getByRole("heading", { name: "Overview" }).waitFor();
    });

  test("arrows walk in a circle, and Escape gives the focus back", async () => {
    const button = page.getByRole("button", { name: /^Find/ });
    await button.focus();
    await page.keyboard.press("Enter");
    await field().waitFor();
    const first = await chosen();
    await page.keyboard.press("ArrowUp");
    expect(await chosen()).not.toBe(first);
    await page.keyboard.press("ArrowDown");
    expect(await chosen()).toBe(first);
    await page.keyboard.type("something typed");
    await page.keyboard.press("Escape");
    await field().waitFor({ state: "hidden" });
    await leftDialog(page);
    await expect
      .poll(() => button.evaluate((one) => one === one.ownerDocument.activeElement))
      .toBe(true);
  });

  test("markup is text, and a text of 10 KB is cut to what the service takes", async () => {
    await page.keyboard.press("Control+k");
    await field().fill("<img");
    await option("<img src=x onerror=alert(1)>").waitFor();
    expect(await page.locator("dialog img").count()).toBe(0);
    await field().fill("");
    await page.keyboard.insertText("<p>".repeat(3_400));
    expect((await field().inputValue()).length).toBe(200);
    await page.getByText("Nothing is so called.").or(page.getByText("1 found")).waitFor();
    await page.keyboard.press("Escape");
    await leftDialog(page);
  });

  test("without an answer it still leads to pages", async () => {
    await page.goto(`${origin}/console/${gateway.accountId}`);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await page.route("**/*OperationsService/Search", (route) => route.abort());
    await page.keyboard.press("Control+k");
    await page.keyboard.type("credits");
    await page.getByText(/^Only pages and acts are listed\./).waitFor();
    expect(await field().inputValue()).toBe("credits");
    await option(/^Credits/)
      .first()
      .waitFor();
    await page.keyboard.press("Escape");
    await leftDialog(page);
    await page.unroute("**/*OperationsService/Search");
  });

  test("a ? opens its line of the glossary, and so does the key", async () => {
    await page
      .getByRole("button", { name: /^What is meant by “Credits left, v/ })
      .first()
      .click();
    const line = page.locator(".glossary [aria-current]");
    await expect.poll(() => line.locator("dt").textContent()).toBe("Pool");
    await take("glossary-1440");
    await page.keyboard.press("Escape");
    await leftDialog(page);
    await page.keyboard.press("?");
    await page.getByRole("heading", { name: "Glossary" }).waitFor();
    expect(await line.count()).toBe(0);
    await page.keyboard.press("Escape");
    await leftDialog(page);
  });

  for (const [name, key, heading] of [
    ["palette", "/", "Find"],
    ["glossary", "?", "Glossary"],
  ] as const)
    test(`without the file of the ${name} the keys still work, and it opens later`, async () => {
      await page.goto(`${origin}/console/${gateway.accountId}/keys`);
      await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
      const search = page.getByRole("searchbox").first();
      const file = "**/assets/overlays-*.js";
      const opened = page.getByRole("heading", { name: heading, exact: true });
      // While it is on its way, Escape closes it, and fields take what is typed.
      let release = () => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      await page.route(file, async (route) => {
        await held;
        await route.abort();
      });
      const asked = page.waitForRequest(file);
      await page.keyboard.press(key);
      await asked;
      await search.focus();
      await page.keyboard.type("ab");
      expect(await search.inputValue()).toBe("ab");
      await page.keyboard.press("Escape");
      release();
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press(key);
      await page.getByText("The gateway does not answer. Check your network.").waitFor();
      await search.fill("");
      await search.focus();
      await page.keyboard.type("more");
      expect(await search.inputValue()).toBe("more");
      await page.unroute(file);
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press(key);
      await opened.waitFor();
      await page.keyboard.press("Escape");
      await leftDialog(page);
    });

  test("Enter behind a new text does not open what was found for the text before", async () => {
    await page.goto(`${origin}/console/${gateway.accountId}`);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await page.keyboard.press("Control+k");
    await field().fill("ключ");
    await option(/Größter/).waitFor();
    // As fast as nobody types: the text is drawn, and no effect of it has run.
    await page.evaluate(`(async () => {
      const input = document.querySelector("[role=combobox]");
      input.value = "nothing like it";
      input.dispatchEvent(new Event("input", { bubbles: true }));
      for (let index = 0; index < 20; index++) await undefined;
      input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    })()`);
    await field().waitFor({ state: "hidden" });
    await leftDialog(page);
    expect(page.url()).not.toContain(keyId);
  });

  test("credits are offered where the person may buy some, and nowhere else", async () => {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    const { account } = await core.billing.createAccount(
      { settings: { name: "A customer" } },
      call,
    );
    const offered = async (path: string) => {
      await page.goto(`${origin}/console/${path}`);
      await page.getByRole("button", { name: /^Find/ }).waitFor();
      await page.keyboard.press("Control+k");
      await field().fill("credits");
      await page.getByText(/^\d+ found$|^Nothing is so called/).waitFor();
      return (await option(/^Buy credits/).count()) > 0;
    };
    expect(await offered(accountId)).toBe(true);
    expect(await offered(account?.accountId ?? "")).toBe(false);
    expect(await offered("operator/accounts")).toBe(false);
    await core.billing.suspendAccount({ accountId, reason: "An open invoice." }, call);
    expect(await offered(accountId)).toBe(false);
    await core.billing.resumeAccount({ accountId, reason: "as before" }, call);
  });

  test("the pages said nothing that should not be", () => {
    expect(problems).toEqual([]);
  });
});
