// The figures of a page move together: while requests are charged, no two of them differ in age by
// more than two seconds. And a refusal that proves the page old makes it look again.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const trafficMs = 30_000;
const betweenMs = 150;
const sampleMs = 250;
const agesMs = 2_000;

/** The first number in a text, in hundredths of credits. */
const hundredths = (text: string) =>
  Math.round(Number(/-?[\d,]+\.\d\d/.exec(text)?.[0].replaceAll(",", "")) * 100);

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let page: Page;
  let problems: string[] = [];
  let origin = "";
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga@example.com");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).waitFor();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  const at = (path: string) => `${origin}/console/${gateway.accountId}${path}`;

  async function ask(): Promise<void> {
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": gateway.v1,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "opus",
        max_tokens: 1000,
        messages: [{ role: "user", content: "Hello ".repeat(2_000) }],
      }),
    });
    await answer.arrayBuffer();
    expect(answer.status).toBe(200);
  }

  /** What the page shows in one moment. */
  const figuresOf = () =>
    page.evaluate<Record<string, string>>(`(() => {
      const text = (selector) => document.querySelector(selector)?.textContent ?? "";
      const figures = [...document.querySelectorAll(".figures > div")];
      const figure = (label) => figures
        .find((one) => one.textContent.startsWith(label))
        ?.querySelector(".value").textContent ?? "";
      return {
        column: text(".balance-pool"),
        free: figure("Credits left, v1"),
        today: figure("Credits spent today"),
        month: figure("Credits spent this month"),
        key: text("section[aria-label='Top keys this month'] tbody td:last-child"),
      };
    })()`);

  test("over 30 s of traffic no two figures of a page differ in age by more than 2 s", async () => {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    const bonus = { accountId, family: Family.V1, kind: TransferKind.BONUS, reason: "Traffic" };
    const amountMicrocredits = 100_000_000_000n;
    await core.billing.createTransfer(
      { ...bonus, amountMicrocredits, idempotencyKey: "traffic" },
      call,
    );
    await ask();
    await page.goto(at(""));
    await page.getByText("Credits spent today").waitFor();
    await expect.poll(async () => hundredths((await figuresOf()).key ?? "")).toBeGreaterThan(0);
    const first = await figuresOf();
    /** When so many hundredths had been spent since then, as the service said. */
    const spent: { readonly total: number; readonly atMs: number }[] = [
      { total: 0, atMs: performance.now() },
    ];
    const freeNow = async () => {
      const { forecasts } = await core.billing.getForecast({ accountId }, call);
      return Number(forecasts[0]?.freeMicrocredits ?? 0n) / 10_000;
    };
    const before = await freeNow();
    const until = performance.now() + trafficMs;
    const traffic = (async () => {
      while (performance.now() < until) {
        await ask();
        spent.push({ total: before - (await freeNow()), atMs: performance.now() });
        await new Promise((resolve) => setTimeout(resolve, betweenMs));
      }
    })();
    /** How many requests had been charged in what a figure shows, rounded as it is. */
    const placeOf = (total: number) => {
      const place = spent.findIndex((one) => one.total >= total - 1.01);
      return place === -1 ? spent.length - 1 : place;
    };
    /** A figure is right until the next request is charged. */
    const rightUntil = (place: number) => spent[place + 1]?.atMs ?? performance.now();
    let worst = 0;
    const seen = new Set<number>();
    while (performance.now() < until) {
      const now = await figuresOf();
      const changes = Object.entries(now).map(([name, text]) =>
        Math.abs(hundredths(text) - hundredths(first[name] ?? "")),
      );
      expect(changes.every(Number.isFinite), JSON.stringify(now)).toBe(true);
      const places = changes.map(placeOf);
      const newest = spent[Math.max(...places)]?.atMs ?? 0;
      worst = Math.max(worst, newest - rightUntil(Math.min(...places)));
      for (const change of changes) seen.add(change);
      await new Promise((resolve) => setTimeout(resolve, sampleMs));
    }
    await traffic;
    // It followed along, and did not stand still.
    expect(seen.size).toBeGreaterThan(10);
    expect(worst).toBeLessThanOrEqual(agesMs);
    expect(await page.locator(".read-at").textContent()).toMatch(/^live · \d\d:\d\d:\d\d\sUTC\S*$/);
  });

  test("each pool has a line of its own, which is red when it is empty", async () => {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    await page.goto(at("/credits"));
    const v2 = page.locator(".balance-pool", { hasText: "v2" });
    await v2.waitFor();
    const { pools } = await core.billing.getPools({ accountId }, call);
    const amount = pools.find(({ family }) => family === Family.V2)?.freeMicrocredits ?? 0n;
    expect(amount).toBeGreaterThan(0n);
    expect(await v2.getAttribute("data-tone")).toBeNull();
    const transfer = { accountId, family: Family.V2, kind: TransferKind.ADJUSTMENT };
    const text = { reason: "Empty it", idempotencyKey: "empty" };
    await core.billing.createTransfer({ ...transfer, ...text, amountMicrocredits: -amount }, call);
    await expect.poll(() => v2.getAttribute("data-tone")).toBe("bad");
    expect(await v2.textContent()).toContain("0.00");
    const v1 = page.locator(".balance-pool", { hasText: "v1" });
    expect(await v1.getAttribute("data-tone")).toBeNull();
  });

  test("a young account has a chart by hours, and says where its links lead", async () => {
    await page.goto(at(""));
    await page.getByRole("heading", { name: "Credits per UTC hour, by model" }).waitFor();
    await page.goto(at("/members"));
    await page.getByRole("button", { name: "Invite" }).click();
    await page.getByRole("button", { name: "Make the invitation" }).click();
    await page.getByText("This link works on this machine only.").waitFor();
    expect(await page.getByText("Start the gateway with PUBLIC_URL").count()).toBe(1);
    await page.goto(`${origin}/console/operator/accounts`);
    await page.getByRole("heading", { name: "Accounts" }).waitFor();
  });

  test("columns that a person chose are kept, and no table scrolls sideways at 1280", async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    for (const path of ["/keys?status=all", "/requests", "/usage?by=key", "/credits", ""]) {
      await page.goto(at(path));
      await page.locator("tbody tr").first().waitFor();
      const isScrolling =
        "[...document.querySelectorAll('.wide')].map((e) => e.scrollWidth - e.clientWidth)";
      expect([path, await page.evaluate(isScrolling)]).toEqual([path, [0]]);
    }
    // A page that scrolls moves under an open menu when the driver brings a choice into sight.
    await page.setViewportSize({ width: 1280, height: 1_600 });
    await page.goto(at("/requests"));
    const outcome = page.getByRole("columnheader", { name: "Outcome" });
    await page.locator("tbody tr").first().waitFor();
    expect(await outcome.count()).toBe(0);
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("checkbox", { name: "Outcome" }).check();
    await outcome.waitFor();
    await page.reload();
    await outcome.waitFor();
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("checkbox", { name: "Outcome" }).uncheck();
    await outcome.waitFor({ state: "detached" });
    // Sorted by the service: the newest key stands first, or last.
    await page.goto(at("/keys?status=all"));
    await page.getByRole("button", { name: /^Key/ }).click();
    const names = () => page.locator("tbody th .name").allTextContents();
    const sorted = async (descending: boolean) => {
      const found = (await names()).map((name) => name.toLowerCase());
      const wanted = found.toSorted((a, b) => (a < b ? -1 : 1) * (descending ? -1 : 1));
      return found.length > 1 && found.join() === wanted.join();
    };
    await expect.poll(() => sorted(false)).toBe(true);
    await page.getByRole("button", { name: /^Key/ }).click();
    await expect.poll(() => sorted(true)).toBe(true);
  });

  test("a suspended account is offered nothing to buy", async () => {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    await page.goto(at("/credits"));
    await page.getByRole("link", { name: "Buy credits", exact: true }).first().waitFor();
    await core.billing.suspendAccount({ accountId, reason: "An open invoice." }, call);
    for (const path of ["/credits", ""]) {
      await page.goto(at(path));
      await page.getByText("The operator says: An open invoice.").waitFor();
      expect(await page.getByRole("link", { name: /^Buy credits/ }).count()).toBe(0);
    }
    await core.billing.resumeAccount({ accountId, reason: "as before" }, call);
  });

  test("a pause of a key that was revoked elsewhere makes the page look again", async () => {
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    const { key } = await core.keys.createKey(
      { accountId, family: Family.V1, settings: { name: "gone" } },
      call,
    );
    await page.goto(at("/keys?status=all"));
    const row = page.getByRole("row", { name: /gone/ });
    const pause = row.getByRole("button", { name: "Pause" });
    await pause.waitFor();
    await core.keys.revokeKey({ keyId: key?.keyId ?? "" }, call);
    await pause.click();
    await row.getByText("Revoked").waitFor();
    expect(await pause.count()).toBe(0);
    expect(problems).toEqual([]);
  });
});
