// Usage, requests, receipts and purchases in Chromium: that their figures are those of the ledger,
// that they follow along, and what they do when something goes wrong.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Client } from "pg";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { SimulatedDepositSchema } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { parseCredits } from "../../src/base/money.ts";
import {
  type CatalogFile,
  type OnchainSettings,
  simulatedPayments,
} from "../../src/config/catalog.ts";
import { loadBundle } from "../../src/console/bundle.ts";
import { count, credits } from "../../src/console/web/format.ts";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { evmAccountKey } from "../support/onchain.ts";

const login = "olga@example.com";
const password = "a long password";

/** Besides the simulated coins, a chain with permanent addresses. Its node is away. */
const onchain: OnchainSettings = {
  type: "onchain",
  name: "onchain",
  evm: {
    accountKey: evmAccountKey,
    gapLimit: 1_000,
    chains: [
      {
        name: "polygon",
        chainId: 137,
        rpcEnv: "RPC_POLYGON",
        depth: 3,
        takesEther: false,
        leastUsd: 5,
        tokens: [{ asset: "USDC", contract: `0x${"1".repeat(40)}`, decimals: 6 }],
      },
    ],
  },
};
const catalog: CatalogFile = {
  ...fastCatalog(),
  payments: { ...simulatedPayments, processors: [...simulatedPayments.processors, onchain] },
};

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let context: BrowserContext;
  let db: Client;
  let origin = "";

  beforeAll(async () => {
    gateway = await startTestGateway({
      split: false,
      catalog,
      env: { RPC_POLYGON: "http://127.0.0.1:9" },
    });
    db = new Client({ connectionString: gateway.databaseUrl });
    await db.connect();
    // The charts of a young account begin with its first day.
    await db.query("update accounts set created_at = now() - interval '100 days'");
    browser = await startChromium();
    const link = new URL(gateway.ownerLink);
    origin = link.origin;
    const redeemed = await fetch(`${origin}/gateway.people.v1.SignInService/RedeemLink`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: link.hash.slice(1), login, name: "Olga", password }),
    });
    const [name = "", value = ""] = (redeemed.headers.get("set-cookie") ?? "").split(/[=;]/);
    context = await browser.newContext({ acceptDownloads: true });
    await context.addCookies([{ name, value, url: origin }]);
  });
  afterAll(async () => {
    await browser.close();
    await db.end();
    await gateway.stop();
  });

  /** A page of the account, and what its console complained about. */
  async function open(path: string): Promise<{ page: Page; problems: string[] }> {
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => {
      // A refused call is an answer that the page shows.
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
        problems.push(message.text());
    });
    await page.goto(`${origin}/console/${gateway.accountId}/${path}`);
    return { page, problems };
  }

  async function ask(key: string, words: number, model = "haiku", tags = ""): Promise<string> {
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": key,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-gateway-tags": tags,
      },
      body: JSON.stringify({
        model,
        max_tokens: 10,
        messages: [{ role: "user", content: "word ".repeat(words) }],
      }),
    });
    await answer.arrayBuffer();
    expect(answer.status).toBe(200);
    return answer.headers.get("request-id") ?? "";
  }

  /** The cells of the last row of a table. */
  const footOf = (page: Page, caption: string) =>
    page.getByRole("table", { name: caption }).locator("tfoot :is(th, td)").allTextContents();

  test("the usage page adds up to its CSV files and to the ledger, whatever it shows", async () => {
    await Promise.all(
      Array.from({ length: 24 }, (_, index) =>
        ask(index % 3 ? gateway.v1 : gateway.v2, 40 * index + 1, index % 2 ? "haiku" : "sonnet"),
      ),
    );
    const ledger = await db.query(
      "select sum(amount)::bigint as amount, count(*)::bigint as requests from charges",
    );
    const { amount, requests } = Object(ledger.rows[0]);
    const spent = credits(BigInt(amount));
    expect(spent).not.toBe("0.00");

    const { page, problems } = await open("usage");
    await page.getByText("Credits spent").waitFor();
    const figure = page.locator(".figures dd.value").first();
    await expect.poll(() => figure.textContent()).toBe(spent);
    expect(await page.locator(".figures dd.value").nth(1).textContent()).toBe(
      count(BigInt(requests)),
    );

    // The table, the bars behind it, and every other way to look at it have the same sum.
    const byKey = await footOf(page, "By key");
    expect(byKey.slice(1, 3)).toEqual([spent, count(BigInt(requests))]);
    await page.getByText("As table").first().click();
    const inBars = async () => (await footOf(page, "Credits per day")).at(-1);
    await expect.poll(inBars).toBe(`${spent} credits`);
    for (const by of ["Model", "Key"]) {
      await page.getByRole("button", { name: by, exact: true }).click();
      await expect.poll(async () => (await footOf(page, `By ${by.toLowerCase()}`))[1]).toBe(spent);
      await page.getByText("As table").first().click();
      await expect.poll(inBars).toBe(`${spent} credits`);
    }
    expect(new URL(page.url()).searchParams.get("by")).toBe("key");

    // The file of the page, and that of single requests.
    for (const path of ["usage", "requests"]) {
      await page.goto(`${origin}/console/${gateway.accountId}/${path}`);
      const download = page.waitForEvent("download");
      await page.getByRole("link", { name: "Export CSV" }).click();
      const text = await readAll(await (await download).createReadStream());
      expect(sumOf(text)).toBe(BigInt(amount));
    }
    expect(problems).toEqual([]);
    await page.close();
  });

  test("a bar says its figures, and the arrow keys go from one to the next", async () => {
    const { page } = await open("usage?period=7d");
    await page.getByText("Credits spent").waitFor();
    const bars = page.getByRole("group", { name: "Credits per day" }).getByRole("button");
    expect(await bars.count()).toBe(7);
    await bars.last().focus();
    const today = await bars.last().getAttribute("aria-label");
    // Parts of a date and of an amount never stand on two lines: their spaces do not break.
    expect(today).toMatch(/^\d{1,2}\s\w{3,4}\s\d{4}: [\d,.]+\scredits\. Input /);
    await page.keyboard.press("ArrowLeft");
    const focused = page.locator(":focus");
    expect(await focused.getAttribute("data-bar")).toBe("5");
    expect(await page.locator(".bars-tip").textContent()).toContain("Total");
    await page.keyboard.press("Home");
    expect(await focused.getAttribute("data-bar")).toBe("0");
    // An empty bar shows the focus, too, and of all bars one is a stop of the tab key.
    expect(await focused.getAttribute("aria-label")).toMatch(/: 0\.00\scredits/);
    const ring = focused.locator(".bars-hit");
    const { stroke, strokeWidth } = await ring.evaluate(
      (one) => one.ownerDocument.defaultView?.getComputedStyle(one) ?? Object(undefined),
    );
    expect([stroke, strokeWidth]).toEqual([expect.not.stringMatching("none"), "2px"]);
    await page.keyboard.press("Tab");
    expect(await page.locator("[data-bar]:focus").count()).toBe(0);
    await page.keyboard.press("Shift+Tab");
    expect(await focused.getAttribute("data-bar")).toBe("0");
    await page.keyboard.press("Escape");
    expect(await page.locator(".bars-tip").count()).toBe(0);
    await page.close();
  });

  test("requests follow along by one stream, keep their filters in the address, and have receipts", async () => {
    const { page, problems } = await open("requests");
    const streams: string[] = [];
    page.on("request", (request) => {
      if (request.url().endsWith("/WatchCharges")) streams.push(request.method());
    });
    await page.reload();
    await page
      .getByRole("button", { name: "Live" })
      .and(page.locator("[data-state=open]"))
      .waitFor();
    const asked = await Promise.all([1, 2, 3, 4, 5].map((index) => ask(gateway.v1, index)));
    for (const id of asked) await page.locator(`a[href$="/${id}"]`).waitFor();
    expect(streams).toEqual(["POST"]);

    // What is being typed stays while the list grows.
    const tag = page.getByRole("textbox", { name: /^Tag/ });
    await tag.focus();
    await page.keyboard.type("team");
    await page.locator(`a[href$="/${await ask(gateway.v1, 6)}"]`).waitFor();
    expect(await tag.inputValue()).toBe("team");
    await tag.fill("");
    await tag.blur();
    expect(new URL(page.url()).search).toBe("");

    // Of another model: it does not pass the filter.
    const models = page.getByRole("combobox", { name: /^Model/ });
    await models.focus();
    await models.selectOption({ index: 1 });
    await expect.poll(() => new URL(page.url()).searchParams.get("model")).toBeTruthy();
    const model = new URL(page.url()).searchParams.get("model") ?? "";
    const cells = page.locator("tbody tr td:nth-child(3)");
    const others = async () => (await cells.allTextContents()).filter((one) => one !== model);
    await expect.poll(others).toEqual([]);
    await page.goto(`${origin}/console/${gateway.accountId}/requests?least=100000`);
    await page.getByText("No request matches").waitFor();
    await page.getByRole("button", { name: "Remove the filters" }).click();
    expect(new URL(page.url()).search).toBe("");

    await page.locator(`a[href$="/${asked[0]}"]`).click();
    await page.getByText("The answer is complete.").waitFor();
    const { receipt } = await gateway.admin.core.billing.getReceipt(
      { requestId: asked[0] ?? "", accountId: gateway.accountId },
      gateway.admin.call,
    );
    const charged = credits(receipt?.chargedMicrocredits ?? 0n, 4);
    expect((await footOf(page, "What it cost")).at(-1)).toBe(charged);
    const input = page.getByRole("row", { name: "Input" });
    expect(await input.locator("td").first().textContent()).toBe(count(receipt?.usage?.input ?? 0));
    expect(problems).toEqual([]);
    await page.close();
  });

  test("what stands below the chart of the overview stays where it is when its answer comes", async () => {
    const page = await context.newPage();
    await page.setViewportSize({ width: 1440, height: 900 });
    const answer = Promise.withResolvers<void>();
    await page.route("**/QueryUsage", async (route) => {
      await answer.promise;
      await route.continue();
    });
    await page.goto(`${origin}/console/${gateway.accountId}`);
    const keys = page.getByRole("heading", { name: "Top keys this month" });
    const top = async () => (await keys.boundingBox())?.y ?? 0;
    await page.getByRole("table", { name: "Top keys this month" }).waitFor();
    const before = await top();
    answer.resolve();
    await page.getByRole("group", { name: "Credits per UTC day, by model" }).waitFor();
    expect(Math.abs((await top()) - before)).toBeLessThan(4);
    await page.close();
  });

  test("no page but that of members makes more than three calls before it is whole", async () => {
    const { accountId, admin } = gateway;
    const page = await context.newPage();
    const calls: string[] = [];
    const files: string[] = [];
    let lastAt = 0;
    page.on("request", (request) => {
      const { protocol, pathname } = new URL(request.url());
      if (protocol === "data:") return;
      lastAt = performance.now();
      const call = pathname.split("/").at(-1) ?? "";
      // The stream of the bell is part of no page.
      if (request.method() === "POST") calls.push(...(call === "WatchAlerts" ? [] : [call]));
      else files.push(pathname);
    });
    page.on("requestfinished", () => {
      lastAt = performance.now();
    });
    const { keys } = await admin.core.keys.listKeys({ accountId }, admin.call);
    const { charges } = await admin.core.billing.listCharges({ accountId }, admin.call);
    const { members } = await admin.core.people.listMembers({ accountId }, admin.call);
    const order = await admin.core.payments.createOrder(
      {
        accountId,
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method: "simulated:btc",
        idempotencyKey: "c",
      },
      admin.call,
    );
    const paths = [
      ...["", "keys", `keys/${keys[0]?.keyId}`, "usage", "requests", "credits", "members"],
      "alerts",
      ...[`requests/${charges[0]?.requestId}`, "credits/buy", "settings", "start"],
      ...[`credits/orders/${order.order?.orderId}`, `members/${members[0]?.personId}`],
    ];
    const found: Record<string, readonly string[]> = {};
    const { html } = await loadBundle();
    await page.setViewportSize({ width: 1440, height: 900 });
    for (const path of paths) {
      // Late calls of the page before end here.
      await page.goto("about:blank");
      calls.length = 0;
      files.length = 0;
      await page.goto(`${origin}/console/${accountId}/${path}`);
      await page.locator("h1").first().waitFor();
      // A page has no sign of being whole that all have in common: calls that follow each other.
      await expect.poll(() => performance.now() - lastAt).toBeGreaterThan(300);
      // The page, its style and its two scripts, of which one sets the theme. The rest is loaded by
      // need: a file for pages of a kind.
      const first = files.filter((path) => path.startsWith("/console/acc_") || html.includes(path));
      expect(first).toHaveLength(4);
      // Members and invitations are lists of their own, with pages of their own.
      if (calls.length > (path === "members" ? 4 : 3)) found[path] = [...calls];
    }
    expect(found).toEqual({});
    await page.close();
  });

  test("what is seen before the script runs stays in its place", async () => {
    const looks: (object | null)[] = [];
    for (const javaScriptEnabled of [false, true])
      for (const width of [360, 1440]) {
        const other = await browser.newContext({
          javaScriptEnabled,
          viewport: { width, height: 800 },
          storageState: await context.storageState(),
        });
        const page = await other.newPage();
        await page.goto(`${origin}/console/${gateway.accountId}`);
        if (javaScriptEnabled) await page.locator("h1").waitFor();
        looks.push(await page.locator(".brand-mark").boundingBox());
        await other.close();
      }
    expect(looks.slice(0, 2)).toEqual(looks.slice(2));
    expect(looks).not.toContain(null);
  });

  test("an owner chooses an alert, sees it on the page, and puts it away", async () => {
    const { page, problems } = await open("settings");
    // Alerts are loaded when they are scrolled to.
    await page
      .getByRole("heading", { name: "Data and leaving", exact: true })
      .scrollIntoViewIfNeeded();
    const below = page.getByRole("textbox", { name: "Credits below" });
    await below.fill("a lot");
    const form = page.locator("form").filter({ has: below });
    await form.getByRole("button", { name: "Save" }).click();
    await expect.poll(() => below.getAttribute("aria-invalid")).toBe("true");
    await below.fill("5000");
    await form.getByRole("checkbox", { name: "Low credits: Page" }).check();
    await form.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();

    await page.goto(`${origin}/console/${gateway.accountId}/`);
    // The bell has them, too.
    const alerts = page.locator("main li").filter({ hasText: "is below 5,000" });
    const listed = async () => {
      await page.reload();
      await page.getByRole("heading", { name: "Newest requests" }).waitFor();
      // Alerts come last, and are loaded when they are scrolled to.
      await page.mouse.wheel(0, 5_000);
      await page.locator(".endings li").first().waitFor();
      return alerts.count();
    };
    // One for each pool. The gateway looks every 30 seconds.
    await expect.poll(listed, { interval: 2_000 }).toBe(2);
    await alerts.first().getByRole("button", { name: "Dismiss" }).click();
    await expect.poll(() => alerts.count()).toBe(1);
    await expect.poll(listed).toBe(1);
    expect(problems).toEqual([]);
    await page.close();
  });

  test("usage by a tag adds up to all, and a value leads to its requests", async () => {
    for (const tags of ["team=a,env=ci", "team=a", "team=b", ""])
      await ask(gateway.v1, 3, "haiku", tags);
    const { rows } = await db.query("select sum(amount)::bigint as amount from charges");
    const { page, problems } = await open("usage");
    await page.getByRole("button", { name: "Tag", exact: true }).click();
    // One that requests have, until another is chosen.
    await expect.poll(() => new URL(page.url()).searchParams.get("tag")).toBe("env");
    const field = page.locator("label", { hasText: /^Tag/ }).locator("input");
    await field.fill("team");
    await field.press("Enter");
    await expect
      .poll(async () => (await footOf(page, "By tag"))[1])
      .toBe(credits(BigInt(Object(rows[0]).amount)));
    await page.getByText("without it", { exact: true }).waitFor();
    await page.getByRole("link", { name: "a", exact: true }).click();
    await expect.poll(() => page.locator("tbody tr").count()).toBe(2);
    expect(new URL(page.url()).searchParams.get("tag")).toBe("team=a");
    await field.fill("team=a, env=ci");
    await field.press("Enter");
    await expect.poll(() => page.locator("tbody tr").count()).toBe(1);
    await page.locator("tbody tr a.row-link").first().click();
    await page.getByText("env=ci, team=a").waitFor();
    expect(problems).toEqual([]);
    await page.close();
  });

  const payments = () => gateway.admin.core.payments;
  const simulate = (orderId: string, value: MessageInitShape<typeof SimulatedDepositSchema>) =>
    payments().simulateDeposit({ orderId, event: { case: "deposit", value } }, gateway.admin.call);
  const settle = (orderId: string, depositId: string) => {
    const value = { depositId, confirmations: 1 };
    const event = { case: "change", value } as const;
    return payments().simulateDeposit({ orderId, event }, gateway.admin.call);
  };
  const orderIdOf = (page: Page) => new URL(page.url()).pathname.split("/").at(-1) ?? "";
  const postedOf = async () => {
    const { pools } = await gateway.admin.core.billing.getPools(
      { accountId: gateway.accountId },
      gateway.admin.call,
    );
    return pools.find(({ family }) => family === Family.V1)?.postedMicrocredits ?? 0n;
  };

  /** Buys 1,000 credits for the v1 pool, as a person does. Ends on the page of the order. */
  async function buy(coin: string): Promise<Page> {
    const { page } = await open("credits");
    await page.getByRole("link", { name: "Buy credits for the v1 pool" }).click();
    await page.locator("main").getByText("1,000.00 credits").click();
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText(coin, { exact: true }).click();
    await page.getByRole("button", { name: "Order for $5" }).click();
    await page.getByText("Nothing has arrived yet.").waitFor();
    return page;
  }

  test("a purchase: too little is seen, settles, is completed, and has a receipt", async () => {
    const before = await postedOf();
    const page = await buy("USDT on TRON");
    await page.getByText("No real money").waitFor();
    await page.getByRole("img", { name: /^QR code: USDT to simulated-/ }).waitFor();
    expect(await page.locator(".pay-amount b").textContent()).toBe("5");
    expect(await page.getByRole("timer").textContent()).toMatch(
      /^This rate stands for 1[45]:\d\d$/,
    );
    const orderId = orderIdOf(page);

    // An exchange took its fee.
    const { depositId } = await simulate(orderId, { coins: "4.5" });
    await page.getByText("We see 4.5 of 5 USDT. 0 of 1 confirmation.").waitFor();
    await settle(orderId, depositId);
    await page.getByText("4.5 USDT arrived, 0.5 USDT are missing.").waitFor();
    await page.getByText(/^Less arrived than the pack costs, .* Send the rest/).waitFor();
    expect(await page.locator(".pay-amount b").textContent()).toBe("0.5");
    await simulate(orderId, { coins: "0.5", confirmations: 1 });
    await page.getByText("Paid. 1,000.00 credits were added to the v1 pool.").waitFor();
    await expect.poll(postedOf).toBe(before + 1_000_000_000n);

    await page.getByRole("link", { name: /^Receipt / }).click();
    await page.getByRole("button", { name: "Print" }).waitFor();
    const sheet = page.getByRole("article");
    for (const text of ["1,000.00 credits for the v1 pool", "5.00", orderId, "default"])
      expect(await sheet.textContent()).toContain(text);
    await page.emulateMedia({ media: "print" });
    expect(await page.locator(".column").isVisible()).toBe(false);
    expect(await sheet.isVisible()).toBe(true);
    await page.emulateMedia({ media: "screen" });

    // What came in, with the balance after it.
    await page.goto(`${origin}/console/${gateway.accountId}/credits`);
    const history = page.getByRole("table", { name: "Transfers, newest first" });
    const newest = history.locator("tbody tr").first();
    expect(await newest.textContent()).toContain("+1,000.00");
    expect(await newest.textContent()).toContain(credits(before + 1_000_000_000n));
    await page.close();
  });

  test("a purchase: too much arrives, and what waits for a person is said", async () => {
    const page = await buy("USDC on Base");
    const orderId = orderIdOf(page);
    await simulate(orderId, { coins: "100", confirmations: 1 });
    await page.getByText("Paid. 11,000.00 credits were added to the v1 pool.").waitFor();
    await page.getByText("More arrived than is credited without asking.").waitFor();
    await page.getByRole("link", { name: "Credits", exact: true }).first().click();
    const waiting = page.getByRole("region", { name: "What waits" });
    await waiting.getByText("The operator decides about the rest.").waitFor();
    await waiting.getByRole("link", { name: "Open the order" }).click();
    expect(orderIdOf(page)).toBe(orderId);
    await page.close();
  });

  test("a purchase: what comes late is found, and valued or left to a person", async () => {
    const page = await buy("BTC on Bitcoin");
    const orderId = orderIdOf(page);
    await db.query(
      `update payment_orders set created_at = created_at - interval '1 hour',
         quoted_until = quoted_until - interval '1 hour', next_look_at = now()
       where order_id = $1`,
      [orderId],
    );
    await page.getByText("Nothing arrived while the rate stood.").waitFor();
    await page.getByRole("link", { name: "Order again" }).waitFor();
    expect(await page.locator(".pay").count()).toBe(0);
    const longAgo = { seconds: BigInt(Math.floor(Date.now() / 1000) - 600), nanos: 0 };
    await simulate(orderId, { coins: "0.0000769", confirmations: 1, firstSeenAt: longAgo });
    await page
      .getByText("Money arrived late, and the operator decides what it is worth.")
      .waitFor();
    await page.close();
  });

  test("an order is cancelled in a dialog, and the back button does not order twice", async () => {
    const page = await buy("ETH on Ethereum");
    await page.getByRole("button", { name: "Cancel order" }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel this order?" });
    await dialog.getByRole("button", { name: "Cancel order" }).click();
    await page.getByText("This order was cancelled.").waitFor();
    // A dialog is an entry of the history for as long as it is open.
    await dialog.waitFor({ state: "hidden" });
    await expect.poll(() => page.evaluate("history.state")).toBe(null);
    await page.goBack();
    await page.getByText("How many credits?").waitFor();
    const { orders } = await payments().listOrders(
      { accountId: gateway.accountId },
      gateway.admin.call,
    );
    expect(orders.filter(({ asset }) => asset === "ETH")).toHaveLength(1);
    await page.close();
  });

  test("a permanent address is made by a click, and stays the same", async () => {
    const { page, problems } = await open("credits/buy?pool=v1&pack=500");
    await page.getByText("USDT on TRON", { exact: true }).click();
    const show = page.getByRole("button", { name: "Show my address on Polygon" });
    expect(await show.count()).toBe(0);
    await page.getByText("USDC on Polygon", { exact: true }).click();
    await show.click();
    await page.getByRole("img", { name: /^QR code: USDC to 0x/ }).waitFor();
    const shown = await page.locator(".permanent code").textContent();
    expect(shown).toMatch(/^0x[0-9a-fA-F]{40}$/);
    const { address } = await payments().createDepositAddress(
      { accountId: gateway.accountId, family: Family.V1, network: "polygon" },
      gateway.admin.call,
    );
    expect(shown).toBe(address);
    await page.getByText("On Polygon, for the v1 pool").waitFor();
    // The other pool has an address of its own, so the one on screen goes.
    await page.goto(`${origin}/console/${gateway.accountId}/credits/buy?pool=v2&pack=500`);
    await page.getByText("USDC on Polygon", { exact: true }).click();
    await show.click();
    await page.getByText("On Polygon, for the v2 pool").waitFor();
    expect(await page.locator(".permanent code").textContent()).not.toBe(address);
    expect(problems).toEqual([]);
    await page.close();
  });

  test("the link of a promotion leads through the sign-in to credits, once", async () => {
    await payments().createPromotion(
      {
        name: "Spring",
        code: "SPRING & 2026 +1",
        family: Family.V1,
        bonusMicrocredits: 50_000_000n,
        needsPurchase: false,
      },
      gateway.admin.call,
    );
    const before = await postedOf();
    const stranger = await browser.newContext();
    const page = await stranger.newPage();
    const query = new URLSearchParams({ code: "spring & 2026 +1" });
    await page.goto(`${origin}/console/credits?${query}`);
    await page.getByRole("button", { name: "Use a password" }).click();
    await page.getByLabel("Login").fill(login);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    const code = page.getByRole("textbox", { name: "Code" });
    await expect.poll(() => code.inputValue()).toBe("spring & 2026 +1");
    await page.getByRole("button", { name: "Redeem code" }).click();
    await page.getByText("50.00 credits of this code are in the v1 pool.").waitFor();
    expect(await postedOf()).toBe(before + 50_000_000n);
    expect(new URL(page.url()).search).toBe("");
    expect(await code.inputValue()).toBe("");
    // A code that is none stands marked in its field. The same one again adds nothing.
    await code.fill("SUMMER 2026 1");
    await page.getByRole("button", { name: "Redeem code" }).click();
    await expect.poll(() => code.getAttribute("aria-invalid")).toBe("true");
    expect(await code.inputValue()).toBe("SUMMER 2026 1");
    await code.fill("SPRING 2026 1");
    await page.getByRole("button", { name: "Redeem code" }).click();
    await expect.poll(() => code.inputValue()).toBe("");
    expect(await postedOf()).toBe(before + 50_000_000n);
    await stranger.close();
  });

  test("a session that ends in the purchase is renewed in place, and the order is made", async () => {
    const { page } = await open("credits/buy?pool=v1&pack=500");
    await page.getByText("USDT on TRON", { exact: true }).click();
    // Signed out in another tab.
    const { page: other } = await open("credits");
    await other.getByRole("heading", { name: "Credits" }).waitFor();
    expect(await other.evaluate(signOut)).toBe(200);
    await other.close();
    const dialog = page.getByRole("dialog", { name: "Your session has ended" });
    await page.getByRole("button", { name: "Order for $5" }).click();
    await dialog.getByRole("button", { name: "Use a password" }).click();
    await dialog.getByLabel("Login").fill(login);
    await dialog.getByLabel("Password", { exact: true }).fill(password);
    await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByText("Nothing has arrived yet.").waitFor();
    expect(await page.locator(".pay-amount span").first().textContent()).toBe("USDT");
    await page.close();
  });
});

/** Runs in the page. Resolves with the status. */
async function signOut(): Promise<number> {
  const answer = await fetch("/gateway.people.v1.ProfileService/SignOut", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  return answer.status;
}

async function readAll(stream: AsyncIterable<Buffer | string>): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  return text;
}

/** The sum of the column `charge_credits`, in micro-credits. */
function sumOf(csv: string): bigint {
  const [head = "", ...lines] = csv.split("\r\n").slice(0, -1);
  const place = head.split(",").indexOf("charge_credits");
  return lines.reduce((sum, line) => sum + (parseCredits(line.split(",")[place] ?? "") ?? -1n), 0n);
}
