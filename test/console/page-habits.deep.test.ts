// What the page does with what people choose, type and meet, beyond the states of its pages.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { now } from "./states/answers.ts";
import { type StatesServer, scrollThrough, startStates, statePath } from "./states/server.ts";

describe.skipIf(!hasChromium)("in Chromium", () => {
  let server: StatesServer;
  let browser: Browser;
  let page: Page;
  beforeAll(async () => {
    server = await startStates();
    browser = await startChromium();
    page = await (await browser.newContext({ bypassCSP: true })).newPage();
    page.setDefaultTimeout(10_000);
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
  });

  const open = (name: string, state = "full") => page.goto(server.address + statePath(name, state));
  const button = (name: string) => page.getByRole("button", { name, exact: true }).first();

  test("a chosen theme is there before anything is drawn", async () => {
    await open("overview");
    await page.evaluate("localStorage.setItem('gateway-theme', 'dark')");
    // Whatever comes later: the page must not be light before it.
    await page.route(/assets\/(main|theme)-.*/, (route) => route.abort());
    await page.reload();
    expect(await page.evaluate("document.documentElement.dataset.theme")).toBe("dark");
    await page.unroute(/assets\/(main|theme)-.*/);
    await page.evaluate("localStorage.removeItem('gateway-theme')");
  });

  const unanswered = () => page.getByText("The gateway does not answer. Check your network.");

  test("a link is not lost with the file of its page, nor with an answer", async () => {
    for (const lost of ["**/assets/link-*.js", "**/BeginPasskey"]) {
      // Another page first: an address that differs in its hash alone loads nothing.
      await open("overview");
      await page.route(lost, (route) => route.abort());
      await open("link", "invitation");
      await unanswered().waitFor();
      expect(page.url()).not.toContain("#");
      await page.unroute(lost);
      await button("Try again").click();
      await page.getByRole("heading", { name: /ACME Robotics/ }).waitFor();
      expect(page.url()).not.toContain("#");
    }
  });

  test("the first steps without their file say so, and come with it", async () => {
    await page.route("**/assets/start-*.js", (route) => route.abort());
    await open("start");
    await unanswered().waitFor();
    await page.unroute("**/assets/start-*.js");
    await button("Try again").click();
    await button("Create key").waitFor();
    expect(await unanswered().count()).toBe(0);
  });

  test("with forced colours, what is chosen differs by more than its background", async () => {
    await page.emulateMedia({ forcedColors: "active" });
    const looks = (selector: string) =>
      page.evaluate(`(() => {
        const style = getComputedStyle(document.querySelector(${JSON.stringify(selector)}));
        return [style.outlineStyle, style.textDecorationLine, style.borderBlockEndColor].join();
      })()`);
    const pairs = [
      ["usage", ".head [aria-pressed=true]", ".head [aria-pressed=false]"],
      ["usage", ".sections a[aria-current]", ".sections a:not([aria-current])"],
      ["key-form", ".choice:has(:checked)", ".choice:not(:has(:checked))"],
    ] as const;
    for (const [name, chosen, other] of pairs) {
      await open(name);
      await page.locator(chosen).first().waitFor();
      expect(await looks(chosen), chosen).not.toBe(await looks(other));
    }
    await page.emulateMedia({ forcedColors: null });
  });

  test("a number that no key can have is refused at its field, and nothing is sent", async () => {
    const sent: string[] = [];
    page.on("request", (request) => sent.push(request.url()));
    await open("key-form");
    await page.getByText("Limits", { exact: true }).click();
    await page.getByLabel("Requests a minute").fill("-3");
    await button("Create key").click();
    const field = page.getByLabel("Requests a minute");
    await expect.poll(() => field.getAttribute("aria-invalid")).toBe("true");
    await page.getByText("A whole number from 0 to 4,294,967,295.").waitFor();
    expect(sent.filter((url) => url.endsWith("/CreateKey"))).toEqual([]);
    page.removeAllListeners("request");
  });

  test("what no service said in words is said in those of the page", async () => {
    const body = JSON.stringify({ code: "invalid_argument", message: "cannot decode uint32" });
    await page.route("**/CreateKey", (route) =>
      route.fulfill({ status: 400, contentType: "application/json", body }),
    );
    await open("key-form");
    await button("Create key").click();
    await page.getByText("The gateway did not understand this page.").waitFor();
    expect(await page.getByText("cannot decode").count()).toBe(0);
    await page.unroute("**/CreateKey");
  });

  test("a range of one's own begins as the last one", async () => {
    await open("usage");
    await button("7 days").click();
    await button("From … to").click();
    const days = await Promise.all(
      ["From (UTC)", "To (UTC)"].map((label) =>
        page.getByLabel(label, { exact: true }).inputValue(),
      ),
    );
    const [from = "", to = ""] = days;
    expect(Date.parse(to) - Date.parse(from)).toBe(6 * 86_400_000);
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test("grouping by tag begins with a tag that requests have, and others are offered", async () => {
    await open("usage");
    await button("Tag").click();
    await expect.poll(() => new URL(page.url()).searchParams.get("tag")).toBe("team");
    const offered = page.locator("datalist option[value='team=research']");
    expect(await offered.count()).toBe(1);
  });

  test("an audit event is a sentence with names, and its facts unfold", async () => {
    await open("operator-audit");
    await page.getByRole("cell", { name: "made a transfer" }).waitFor();
    await page.getByText("2 facts").first().click();
    await page.getByText("2,000.00 credits").waitFor();
    const rows = await page.locator("tbody").textContent();
    expect(rows).not.toMatch(/CreateTransfer|amountMicrocredits|acc_/);
    await page.getByRole("combobox", { name: "Who" }).selectOption({ label: "Ana Bălan" });
    await expect.poll(() => page.url()).toContain("actor=person%3Aper_ana");
  });

  test("credits that could not be read are said not to be loaded", async () => {
    await open("credits", "failed");
    await expect.poll(() => page.locator(".balance").textContent()).toContain("Not loaded");
  });

  test("whether the page is live stands in one place", async () => {
    await open("requests");
    await expect.poll(() => page.locator(".read-at").textContent()).toMatch(/^live /);
    expect(await page.locator("button.live").textContent()).toBe("Live");
  });

  test("a note about an order leads to the order", async () => {
    await open("credits");
    const note = page.getByRole("link", { name: "Order", exact: true }).first();
    expect(await note.getAttribute("href")).toMatch(/credits\/orders\/ord_/);
  });

  test("parts of a page that fail for one reason say it once", async () => {
    await open("overview", "failed");
    await page.locator("main").waitFor();
    await page.evaluate(scrollThrough);
    await page.getByText("Not loaded either, for the same reason.").first().waitFor();
    const sentences = await page.locator("main .failed p").allTextContents();
    expect(new Set(sentences).size).toBe(sentences.length);
    expect(sentences.length).toBeGreaterThan(1);
  });

  test("an order and a receipt that there are not are named so", async () => {
    await open("order", "failed");
    await page.getByText("There is no such order in this account.").waitFor();
    await open("document", "failed");
    await page.getByText("There is no such receipt").waitFor();
    expect(await page.getByText("This did not work").count()).toBe(0);
  });

  test("what did not complete is called so, and its parts are shown", async () => {
    await open("usage");
    const cell = (name: RegExp) => page.locator(".figures > div", { hasText: name });
    await cell(/^Requests/)
      .getByText(/\d failed, \d+ cut off/)
      .waitFor();
    await page.getByRole("columnheader", { name: "Failed or cut" }).waitFor();
    await button("Requests").click();
    const legend = page.locator(".bars-legend").first();
    expect(await legend.textContent()).toBe("CompletedFailedCut off");
  });

  test("the bar of a pool is a share of what it had, and a table ends as its card does", async () => {
    await open("credits");
    const bar = page.locator(".pool-bar").first();
    await bar.waitFor();
    const shares = await page.evaluate(`[...document.querySelector(".pool-bar").children].map(
      (one) => one.getBoundingClientRect().width / one.parentElement.clientWidth)`);
    // Of 10,000 credits, 6,412.08 are free and 41.50 held.
    expect(shares).toEqual([expect.closeTo(0.641, 2), expect.closeTo(0.004, 2)]);
    await page.getByText("10,000.00 when it was last filled").waitFor();
    const corners = await page.evaluate(`[...document.querySelectorAll(".card .wide")].map((one) =>
      [one, one.closest(".card")].map((it) => getComputedStyle(it).borderEndEndRadius))`);
    expect(corners).toEqual([
      ["10px", "10px"],
      ["10px", "10px"],
    ]);
  });

  test("a running request is found behind the held credits, and its owner ends it", async () => {
    await open("credits");
    await button("41.50 held by running requests").click();
    await page.getByRole("dialog").getByText("model-opus-4.6").waitFor();
    const ended = page.waitForRequest("**/EndRequest");
    await button("End req_0199e1c0a1b27c3d8e4f0000").click();
    expect((await ended).postDataJSON()).toEqual({
      requestId: "req_0199e1c0a1b27c3d8e4f0000",
      accountId: "acct_acme",
    });
    await page.getByText("The request ends now.").waitFor();
  });

  test("times are those of the reader's zone, which may change while the page is open", async () => {
    const there = await browser.newContext({ bypassCSP: true });
    const page = await there.newPage();
    const session = await there.newCDPSession(page);
    const arriveIn = (timezoneId: string) =>
      session.send("Emulation.setTimezoneOverride", { timezoneId });
    await arriveIn("Asia/Tokyo");
    const openCredits = async () => {
      // Parts further down wait until somebody sees them.
      await page.bringToFront();
      await page.goto(server.address + statePath("credits", "full"));
    };
    await openCredits();
    const time = page.getByRole("table", { name: "Orders, newest first" }).locator("time").first();
    const shows = (text: string) =>
      expect.poll(() => time.textContent(), { timeout: 20_000 }).toBe(text);
    const inNewfoundland = "22\u00a0Nov\u00a02026, 10:31:46\u00a0UTC\u22123:30";
    const inUtc = "22\u00a0Nov\u00a02026, 14:01:46\u00a0UTC";
    await shows("22\u00a0Nov\u00a02026, 23:01:46\u00a0UTC+9");
    expect(await time.getAttribute("title")).toBe(
      `22\u00a0Nov\u00a02026, 23:01:46\u00a0UTC+9\n${inUtc}`,
    );
    // The reader lands elsewhere, and comes back to the page.
    await arriveIn("America/St_Johns");
    await page.evaluate("dispatchEvent(new Event('focus'))");
    await shows(inNewfoundland);

    // A choice holds wherever the browser is, in all of its tabs, and after a reload.
    const other = await there.newPage();
    await other.goto(server.address + statePath("settings", "full"));
    const zone = other.getByLabel("Time zone");
    expect(await zone.inputValue()).toBe("");
    await zone.selectOption("Europe/Berlin");
    await other.getByText(/^Now it is .*UTC\+[12]\. Budgets, usage/).waitFor();
    await shows("22\u00a0Nov\u00a02026, 15:01:46\u00a0UTC+1");
    await openCredits();
    await shows("22\u00a0Nov\u00a02026, 15:01:46\u00a0UTC+1");
    await zone.selectOption("UTC");
    await shows(inUtc);
    expect(await time.getAttribute("title")).toBe(inUtc);
    // A name that this browser does not know is as none.
    await page.evaluate("localStorage.setItem('gateway-zone', 'Mars/Olympus')");
    await openCredits();
    await shows(inNewfoundland);
    await there.close();
  });

  test("budgets, usage and documents are in UTC for a reader far from it, and say so", async () => {
    const there = await browser.newContext({ timezoneId: "Pacific/Kiritimati", bypassCSP: true });
    const page = await there.newPage();
    const show = async (name: string, text: string) => {
      await page.goto(server.address + statePath(name, "full"));
      await page.getByText(text).first().waitFor();
    };
    await show("overview", "Credits spent today, UTC");
    await page.getByText("Credits spent this month, UTC").waitFor();
    await page.getByRole("heading", { name: "Credits per UTC day, by model" }).waitFor();
    await show("key", "Spent this month, UTC");
    await show("usage", "All hours, days and months are UTC");
    await page.getByText("As table").first().click();
    await page.getByRole("columnheader", { name: "Day, UTC" }).first().waitFor();
    await show("member", "00:00\u00a0UTC");
    await show("document", "All times are UTC.");
    await show("requests", "From (UTC)");
    const time = page.getByRole("rowheader").first();
    const ofThere = /, \d\d:\d\d:\d\d\sUTC\+14$/;
    await expect.poll(() => time.textContent(), { timeout: 20_000 }).toMatch(ofThere);
    await there.close();
  });

  /** Parts that are files of their own: where, and what brings them on screen. */
  const parts = [
    ["connect", "full", "tools"],
    ["try", "full", "tools"],
    ["order", "open", "drawing"],
  ] as const;
  for (const [name, state, file] of parts)
    test(`${name} without the file "${file}" says so, and has it after a try`, async () => {
      const there = await browser.newContext({ bypassCSP: true });
      const page = await there.newPage();
      const again = page.getByText("The gateway does not answer. Check your network.");
      const path = `**/assets/${file}-*.js`;
      // The order would have expired.
      await page.clock.setFixedTime(now);
      const show = async () => {
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page.evaluate(scrollThrough);
      };
      await page.route(path, (route) => route.abort());
      await page.goto(server.address + statePath(name, state));
      await show();
      await again.waitFor();
      await page.unroute(path);
      const come = page.waitForResponse(path);
      await page.getByRole("button", { name: "Try again" }).first().click();
      await show();
      expect((await come).status()).toBe(200);
      await expect.poll(() => again.count()).toBe(0);
      await there.close();
    });

  for (const [name, file] of [
    ["settings", "of-account"],
    ["usage", "of-figures"],
  ] as const)
    test(`the page ${name} without its file says so, and is there after a try`, async () => {
      const there = await browser.newContext();
      const page = await there.newPage();
      const path = `**/assets/${file}-*.js`;
      await page.route(path, (route) => route.abort());
      await page.goto(server.address + statePath(name, "full"));
      const again = page.getByText("The gateway does not answer. Check your network.");
      await again.waitFor();
      await page.unroute(path);
      await page.getByRole("button", { name: "Try again" }).click();
      await page.getByRole("heading", { level: 1 }).waitFor();
      expect(await again.count()).toBe(0);
      await there.close();
    });

  test("a secret stays on screen while the list of tools is asked for again", async () => {
    const path = "**/assets/tools-*.js";
    await page.route(path, (route) => route.abort());
    await open("key-form");
    await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
    const secret = page.getByLabel("The secret of the key");
    const shown = await secret.inputValue();
    await unanswered().waitFor();
    await page.unroute(path);
    await button("Try again").click();
    await page.getByLabel("Tool").waitFor();
    expect(await secret.inputValue()).toBe(shown);
  });

  test("nothing is offered to buy where no way to pay is set up", async () => {
    for (const name of ["overview", "credits"]) {
      await page.route("**/GetSession", async (route) => {
        const response = await route.fetch();
        await route.fulfill({
          response,
          json: { ...(await response.json()), sellsCredits: false },
        });
      });
      await open(name);
      await page.locator(".figures, .pools").first().waitFor();
      expect(await page.getByRole("link", { name: /^Buy credits/ }).count()).toBe(0);
      await page.unroute("**/GetSession");
      await open(name);
      await page
        .getByRole("link", { name: /^Buy credits/ })
        .first()
        .waitFor();
    }
  });

  test("a table that is a list on a phone is sorted there, by keyboard too", async () => {
    const there = await browser.newContext({
      viewport: { width: 360, height: 740 },
      bypassCSP: true,
    });
    const page = await there.newPage();
    await page.goto(server.address + statePath("operator-sales", "full"));
    const table = page.getByRole("table", { name: "Sums of the month" });
    const requests = table.getByRole("button", { name: "Requests", exact: true });
    const figures = async () => {
      const rows = await table.locator("tbody tr").allTextContents();
      return rows.map((row) => Number(/Requests([\d,]+)/.exec(row)?.[1]?.replaceAll(",", "")));
    };
    await requests.focus();
    expect((await figures()).length).toBeGreaterThan(1);
    for (const [order, largestFirst] of [
      ["descending", true],
      ["ascending", false],
    ] as const) {
      await page.keyboard.press("Enter");
      const head = table.getByRole("columnheader", { name: "Requests", exact: true });
      await expect.poll(() => head.getAttribute("aria-sort")).toBe(order);
      const seen = await figures();
      const sign = largestFirst ? -1 : 1;
      expect(seen).toEqual(seen.toSorted((a, b) => sign * (a - b)));
    }
    await page.keyboard.press("Tab");
    const next = table.getByRole("button", { name: "Used", exact: true });
    expect(await next.evaluate((one) => one === one.ownerDocument.activeElement)).toBe(true);
    await there.close();
  });

  test("a pause names its key, and is undone where it is reported", async () => {
    await open("keys");
    await button("Pause ci").click();
    await page.getByText("ci is paused.").waitFor();
    const resumed = page.waitForRequest("**/ResumeKey");
    await button("Undo").click();
    await resumed;
    await page.getByText("ci works again.").waitFor();
    expect(await page.getByRole("columnheader", { name: "Made", exact: true }).count()).toBe(1);
  });
});
