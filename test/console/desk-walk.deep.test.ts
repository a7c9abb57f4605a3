// The way of a complaint in Chromium, at the widths of a phone and of a desk: a buyer paid too
// little, too late, and wrote with a transaction hash. Support finds it, two admins give credits
// for it, and the customer's page, the list of orders, its files and the documents agree.

import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { type CatalogFile, simulatedPayments } from "../../src/config/catalog.ts";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

/** Who gives more than 5 dollars needs another person. */
const catalog: CatalogFile = {
  ...fastCatalog(),
  payments: { ...simulatedPayments, secondApprovalAboveUsd: 5 },
};

const hash = "5e".repeat(32);

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let smtp: TestSmtpServer;
  let gateway: TestGateway;
  let client: Client;
  let browser: Browser;
  let origin = "";
  let olga: Page;
  let bob: Page;
  let sue: Page;
  let accountId = "";
  let orderId = "";
  const problems: string[][] = [];
  beforeAll(async () => {
    smtp = await startSmtpServer();
    const env = { SMTP_URL: smtp.url, MAIL_FROM: "gateway@example.com" };
    gateway = await startTestGateway({ split: false, catalog, env });
    client = new Client({ connectionString: gateway.databaseUrl });
    await client.connect();
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    const opened = [];
    for (let index = 0; index < 3; index++) opened.push(await openPage(browser));
    for (const one of opened) problems.push(one.problems);
    [olga, bob, sue] = opened.map(({ page }) => page) as [Page, Page, Page];
  });
  afterAll(async () => {
    await browser.close();
    await client.end();
    await gateway.stop();
    await smtp.stop();
  });

  /** Opens a link, and makes a passkey. */
  async function arrive(page: Page, link: string, login: string, name: string): Promise<void> {
    await page.goto(link);
    await page.getByLabel("Login").fill(login);
    await page.getByLabel("Your name").fill(name);
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.waitForURL(({ pathname }) => pathname !== "/console/welcome");
  }

  /** A further operator, who signs in anew with the role. */
  async function arriveAs(page: Page, login: string, name: string, role: string): Promise<void> {
    await olga.goto(`${origin}/console/${gateway.accountId}/members`);
    await olga.getByRole("button", { name: "Invite" }).click();
    await olga.getByRole("radio", { name: /^Viewer/ }).check();
    await olga.getByRole("button", { name: "Make the invitation" }).click();
    const link = await olga.getByLabel("Invitation link").inputValue();
    await olga.getByRole("button", { name: "Done" }).click();
    await arrive(page, link, login, name);
    await client.query("update people set operator = $2 where login = $1", [login, role]);
    await page.goto(`${origin}/console/sign-in`);
    await page.getByRole("button", { name: "Sign in with a passkey" }).click();
    await page.locator(".frame").waitFor();
  }

  const open = (page: Page, path: string) => page.goto(`${origin}/console/operator${path}`);

  /** Nothing of the page is wider than the window, whose picture is kept where somebody asks. */
  async function look(page: Page, name: string): Promise<void> {
    for (const width of [360, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      const shots = process.env.SCREENSHOTS;
      if (shots) await page.screenshot({ path: `${shots}/${name}-${width}.png`, fullPage: true });
      const over = await page.evaluate<number>(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth",
      );
      expect([name, width, over]).toEqual([name, width, 0]);
    }
  }

  /** The sum of a column of a file, in millionths. */
  async function sumOf(file: string, column: string): Promise<bigint> {
    const text = await olga.evaluate(async (path) => (await fetch(path)).text(), file);
    const [head = "", ...lines] = text.split("\r\n").slice(0, -1);
    const at = head.split(",").indexOf(column);
    expect(at).toBeGreaterThan(0);
    return lines
      .map((line) => line.split(",")[at] ?? "")
      .reduce((sum, cell) => {
        const [whole = "", fraction = ""] = cell.split(".");
        return sum + BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, "0"));
      }, 0n);
  }

  test("three people are there: two admins and one of support", async () => {
    await arrive(olga, gateway.ownerLink, "olga@example.com", "Olga");
    await arriveAs(bob, "bob@example.com", "Bob", "admin");
    await arriveAs(sue, "sue@example.com", "Sue", "support");
    await open(sue, "/accounts");
    await sue.getByText("Your role lets you look.").waitFor();
    expect(await sue.getByRole("button", { name: "New account" }).count()).toBe(0);
  });

  test("a buyer pays too little, too late, and writes with a hash", async () => {
    const { core, call } = gateway.admin;
    const { account } = await core.billing.createAccount(
      { settings: { name: "Buyer & Söhne" } },
      call,
    );
    accountId = account?.accountId ?? "";
    await client.query(
      `insert into people (person_id, login, name, email, email_verified_at)
       values ('per_buyer', 'berta', 'Berta', 'berta@buyer.example', now())`,
    );
    await client.query(
      "insert into members (account_id, person_id, role) values ($1, 'per_buyer', 'owner')",
      [accountId],
    );
    const { methods } = await core.payments.listPaymentMethods({}, call);
    const method = methods.find(({ asset }) => asset === "BTC")?.method ?? "";
    const { order } = await core.payments.createOrder(
      {
        accountId,
        family: Family.V1,
        packMicrodollars: 50_000_000n,
        method,
        idempotencyKey: "walk",
      },
      call,
    );
    orderId = order?.orderId ?? "";
    const until = order?.quotedUntil ? timestampDate(order.quotedUntil) : new Date();
    const firstSeenAt = timestampFromDate(new Date(until.getTime() + 60_000));
    await core.payments.simulateDeposit(
      {
        orderId,
        event: { case: "deposit", value: { coins: "0.0001", confirmations: 10, firstSeenAt } },
      },
      call,
    );
    await expect
      .poll(async () => (await core.payments.listAttention({}, call)).orders, { timeout: 10_000 })
      .toHaveLength(1);
    await client.query(
      `insert into payment_transactions (processor, chain, tx, external_id)
       select processor, network, $2, external_id from payment_deposits where order_id = $1`,
      [orderId, hash],
    );
  });

  test("support finds it by the key /, and cannot decide", async () => {
    await open(sue, "/accounts");
    await sue.getByRole("heading", { name: "Accounts" }).waitFor();
    await sue.keyboard.press("/");
    await sue.keyboard.type(`0x${hash.toUpperCase()}`);
    await look(sue, "search-box");
    await sue.keyboard.press("Enter");
    await sue.waitForURL(({ pathname }) => pathname.endsWith(`/orders/${orderId}`));
    await sue.getByText("Late, and its value is unknown").waitFor();
    expect(await sue.getByRole("button", { name: "Decide", exact: true }).count()).toBe(0);
    await open(sue, `/accounts/${accountId}`);
    await sue.getByLabel("A note for other operators").fill("Wrote: paid late.\n<b>Grant it?</b>");
    await sue.getByRole("button", { name: "Add note" }).click();
    await sue.getByRole("row", { name: /<b>Grant it\?<\/b>/ }).waitFor();
  });

  test("a search finds names, and says what to type where it finds nothing", async () => {
    await open(sue, "/search?q=a");
    await sue.getByRole("heading", { name: "Search" }).waitFor();
    await open(sue, `/search?q=${"ff".repeat(32)}`);
    await sue.getByText("Nothing is so called").waitFor();
    await look(sue, "search-nothing");
    for (const name of ["Söhne of the north", "Söhne of the south"])
      await gateway.admin.core.billing.createAccount({ settings: { name } }, gateway.admin.call);
    await open(sue, "/search?q=söhne");
    await sue.getByRole("link", { name: "Söhne of the south" }).first().waitFor();
    await look(sue, "search-hits");
  });

  test("a whole secret is found, and stands in no address and on no page", async () => {
    const { core, call } = gateway.admin;
    const { key, secret } = await core.keys.createKey(
      { accountId, family: Family.V1, settings: { name: "leaked" } },
      call,
    );
    const unknown = `sk-gw2-1${"z".repeat(49)}`;
    const addresses: string[] = [];
    sue.on("framenavigated", (frame) => addresses.push(frame.url()));
    await open(sue, "/accounts");
    await sue.getByRole("heading", { name: "Accounts" }).waitFor();
    const box = sue.getByRole("combobox", { name: /^Find anything/ });
    await sue.keyboard.press("/");
    await box.fill(unknown);
    await box.press("Enter");
    await sue.getByText("Nothing is so called").waitFor();
    expect(await sue.locator("main").textContent()).not.toContain(unknown);
    expect(await sue.getByRole("link", { name: "Look in the names of accounts" }).count()).toBe(0);
    await look(sue, "search-secret");
    await leftDialog(sue);
    await sue.keyboard.press("/");
    await box.fill(secret);
    await box.press("Enter");
    await sue.waitForURL(({ pathname }) => pathname.endsWith(`/keys/${key?.keyId}`));
    // As somebody may have sent it, and in the filter of accounts.
    await open(sue, `/search?q=${unknown}`);
    await sue.getByText("Nothing is so called").waitFor();
    expect(sue.url()).not.toContain(unknown);
    addresses.length = 0;
    await open(sue, "/accounts");
    await sue.getByRole("searchbox", { name: /^Name, owner, id/ }).fill(secret);
    await sue.getByRole("link", { name: "Buyer & Söhne" }).waitFor();
    await expect.poll(() => sue.getByRole("row").count()).toBe(2);
    const entries = await sue.evaluate<string>("location.href + JSON.stringify(history.state)");
    for (const text of [...addresses, entries]) expect(text).not.toContain("sk-gw2");
    await open(sue, "/search");
    await sue.getByText("Press / and type what you look for.").waitFor();
  });

  test("an admin grants it, and another one approves", async () => {
    await open(olga, `/orders/${orderId}`);
    await olga.getByRole("button", { name: "Decide", exact: true }).click();
    await olga.getByRole("textbox", { name: "Dollars" }).fill("10");
    await olga.getByLabel("Reason").fill("It came late, and is worth that much.");
    await olga.getByRole("button", { name: "Decide", exact: true }).last().click();
    await olga.locator(".messages", { hasText: "Another person" }).waitFor();
    await open(bob, "/attention");
    const row = bob.getByRole("row", { name: /It came late/ });
    await row.getByRole("button", { name: "Approve" }).click();
    await bob.locator(".messages", { hasText: "Approved and done." }).waitFor();
    const { order } = await gateway.admin.core.payments.getOrder({ orderId }, gateway.admin.call);
    expect(order?.grantedMicrocredits).toBe(2_000_000_000n);
  });

  test("the customer's page tells it all", async () => {
    const { promotion } = await gateway.admin.core.payments.createPromotion(
      { name: "Autumn", family: Family.V1, bonusMicrocredits: 1_000_000n, maxUses: 5 },
      gateway.admin.call,
    );
    await client.query(
      "insert into promotion_uses (code_id, account_id, order_id, used_at) " +
        "values ($1, $2, $3, now())",
      [promotion?.promotionId, accountId, orderId],
    );
    // Its bonus of one credit is posted.
    await client.query("update promotions set used = 1 where code_id = $1", [
      promotion?.promotionId,
    ]);
    await client.query("update pools set week_limit = 7000000 where account_id = $1", [accountId]);
    const { priceList } = await gateway.admin.core.billing.createPriceList(
      { name: "Resellers", discountBp: 1_000, reason: "a larger customer" },
      gateway.admin.call,
    );
    const { priceListId = "" } = priceList ?? {};
    await gateway.admin.core.billing.setAccountPriceList(
      { accountId, priceListId, reason: "a larger customer" },
      gateway.admin.call,
    );
    await open(sue, `/accounts/${accountId}`);
    await sue
      .getByRole("row", { name: /2,000\.00/ })
      .first()
      .waitFor();
    const tableOf = (caption: string) => sue.getByRole("table", { name: caption });
    const number = /R\d{4}-\d{6}/;
    await tableOf("Orders, newest first").getByRole("row", { name: number }).waitFor();
    await tableOf("Receipts and credit notes").getByRole("row", { name: number }).waitFor();
    const limits = tableOf("What pools, people and programs");
    await limits
      .getByRole("row", { name: /All keys.*0\.00 of 7 credits this week/ })
      .first()
      .waitFor();
    await tableOf("Promotions that the account")
      .getByRole("row", { name: /Autumn/ })
      .waitFor();
    await sue.getByRole("row", { name: /Grant it/ }).waitFor();
    const since = /^Pays by the price list Resellers, version 1, since \d+\s\w+\s\d{4}\.$/;
    await sue.getByText(since).waitFor();
    // What was mailed, to whom, and what became of it.
    await tableOf("Mails to people")
      .getByRole("row", { name: /Credits bought.*Berta b…@buyer\.example.*Sent/ })
      .waitFor();
    expect(await sue.locator("main").textContent()).not.toContain("berta@buyer.example");
    expect(await sue.getByRole("button", { name: "Between pools" }).count()).toBe(0);
    // Side by side where there is room, else what happened comes last.
    const leftOf = async (heading: string) =>
      (await sue.getByRole("heading", { name: heading, exact: true }).boundingBox()) ?? { x: -1 };
    for (const [width, isWide] of [
      [1440, true],
      [360, false],
    ] as const) {
      await sue.setViewportSize({ width, height: 900 });
      const [facts, past] = [await leftOf("Keys"), await leftOf("Notes")];
      expect([width, past.x > facts.x + 200]).toEqual([width, isWide]);
    }
    await look(sue, "customer");
  });

  test("support mails the receipt and a notice again, and says why", async () => {
    const receipts = () => smtp.mails.filter(({ text }) => /^Receipt R\d{4}/m.test(text));
    const before = receipts().length;
    const again = async (table: string, row: RegExp, button: string) => {
      await sue
        .getByRole("table", { name: table })
        .getByRole("row", { name: row })
        .first()
        .getByRole("button", { name: button })
        .click();
      const dialog = sue.getByRole("dialog");
      await dialog.getByRole("button", { name: button }).click();
      await dialog.getByText("Say why, in 5 characters at least.").waitFor();
      await dialog.getByLabel("Reason").fill("The buyer lost it.");
      return dialog;
    };
    const document = await again("Receipts and credit notes", /R\d{4}-\d{6}/, "Mail it");
    await look(sue, "mail-document");
    // No member ordered it: the choice is refused in the dialog.
    await document.getByRole("radio", { name: /^The buyer/ }).check();
    await document.getByRole("button", { name: "Mail it" }).click();
    await document.getByText("No member ordered it: a program did.").waitFor();
    await document.getByRole("radio", { name: /^The owners/ }).check();
    await document.getByRole("button", { name: "Mail it" }).click();
    await sue.locator(".messages", { hasText: "It is sent again." }).waitFor();
    await expect.poll(() => receipts().length, { timeout: 20_000 }).toBe(before + 1);
    const notice = await again("Mails to people", /Credits bought/, "Send again");
    await look(sue, "mail-notice");
    await notice.getByRole("button", { name: "Send again" }).click();
    await notice.waitFor({ state: "hidden" });
    await expect.poll(() => receipts().length, { timeout: 20_000 }).toBe(before + 2);
    // The list follows by itself.
    await sue
      .getByRole("table", { name: "Mails to people" })
      .getByRole("row", { name: /Receipt sent again.*Berta.*Sent/ })
      .waitFor();
    await look(sue, "customer-mails");
    const { core, call } = gateway.admin;
    for (const method of ["ResendDocument", "ResendNotice"]) {
      const { events } = await core.people.listAuditEvents({ accountId, method }, call);
      const done = events.filter(({ succeeded }) => succeeded);
      expect(done.map(({ facts }) => facts.reason)).toEqual(["The buyer lost it."]);
    }
  });

  test("an admin moves some of it to the other pool", async () => {
    await open(olga, `/accounts/${accountId}`);
    await olga.getByRole("button", { name: "Between pools" }).click();
    await olga.getByLabel("Credits", { exact: true }).fill("500");
    await olga.getByLabel("Reason").fill("why");
    await olga.getByRole("button", { name: "Move them" }).click();
    await olga.getByText("Say why, in 5 characters at least.").waitFor();
    await olga.getByLabel("Reason").fill("They use model-v2 alone.");
    await look(olga, "move");
    await olga.getByRole("button", { name: "Move them" }).click();
    await olga.locator(".messages", { hasText: "500.00 credits are in the v2 pool" }).waitFor();
    const { pools } = await gateway.admin.core.billing.getPools({ accountId }, gateway.admin.call);
    // The bonus of the promotion is posted at its own time: 1,500 or 1,501 are left.
    expect(pools[1]?.freeMicrocredits).toBe(500_000_000n);
  });

  test("an admin voids an open order, and says why", async () => {
    const { core, call } = gateway.admin;
    const { order } = await core.payments.createOrder(
      {
        ...{ accountId, family: Family.V1, packMicrodollars: 5_000_000n },
        ...{ method: "simulated:usdt", idempotencyKey: "to be void" },
      },
      call,
    );
    const { orderId = "" } = order ?? {};
    await open(olga, `/orders/${orderId}`);
    await olga.getByRole("button", { name: "Cancel order", exact: true }).click();
    await olga.getByLabel("Reason").fill("The buyer asked for it.");
    await look(olga, "void");
    await olga.getByRole("button", { name: "Cancel order", exact: true }).last().click();
    await olga.locator(".messages", { hasText: "The order is cancelled." }).waitFor();
    const method = "CancelOrder";
    const { events } = await core.people.listAuditEvents({ accountId, method }, call);
    expect(events.map(({ facts }) => facts.reason)).toEqual(["The buyer asked for it."]);
  });

  test("all orders, their file and the documents have the same sums", async () => {
    await open(olga, "/orders");
    await olga
      .getByRole("row", { name: /Buyer & Söhne/ })
      .first()
      .waitFor();
    await olga.getByText("2,000.00").first().waitFor();
    await look(olga, "orders");
    const hrefOf = async (name: string) =>
      (await olga.getByRole("link", { name }).getAttribute("href")) ?? "";
    const orders = await hrefOf("Orders as CSV");
    const granted = await sumOf(orders, "granted_credits");
    expect(granted).toBe(2_000_000_000n);
    expect(await sumOf(await hrefOf("Documents as CSV"), "credits")).toBe(granted);
    const found = await olga.evaluate(async (path) => (await fetch(path)).text(), orders);
    expect(found).toContain(hash);
    // A filter is in the address, and in the file.
    await olga.getByRole("combobox", { name: "State" }).selectOption("open");
    await olga.getByText("No order matches.").waitFor();
    expect(new URL(olga.url()).search).toContain("state=open");
    expect(await hrefOf("Orders as CSV")).toContain("state=open");
  });

  test("a refused request is found by the id that its client was shown", async () => {
    const { key, secret } = await gateway.admin.core.keys.createKey(
      { accountId, family: Family.V1, settings: { name: "build" } },
      gateway.admin.call,
    );
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        ...{ "x-api-key": secret, "anthropic-version": "2023-06-01" },
        "content-type": "application/json",
      },
      body: JSON.stringify({
        ...{ model: "no-such-model", max_tokens: 20 },
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    const { request_id: requestId } = Object(await answer.json());
    const { core, call } = gateway.admin;
    await expect
      .poll(async () => (await core.billing.findRequests({ requestId }, call)).refusals)
      .toHaveLength(1);
    await open(sue, `/search?q=${requestId}`);
    await sue.waitForURL(({ pathname }) => pathname.endsWith(`/refusals/${requestId}`));
    await sue.getByText("no-such-model").waitFor();
    await sue.getByText(key?.keyId ?? "").waitFor();
    await look(sue, "refusal");
    expect(problems).toEqual([[], [], []]);
  });
});
