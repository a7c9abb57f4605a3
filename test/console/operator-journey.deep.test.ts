// The way of operators in Chromium: from an account that is found to credits that two people give,
// a suspension that its customer sees, and an order that is decided. And what customers see of it.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { type CatalogFile, simulatedPayments } from "../../src/config/catalog.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startGatewayWithProvider } from "../support/gateway-with-provider.ts";
import { errorAnswer } from "../support/provider-answers.ts";
import { query } from "../support/query.ts";

/** Who gives more than 5 dollars needs another person. */
const catalog: CatalogFile = {
  ...fastCatalog(),
  payments: { ...simulatedPayments, secondApprovalAboveUsd: 5 },
};

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let origin = "";
  let olga: Page;
  let bob: Page;
  let carla: Page;
  const problems: string[][] = [];
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false, catalog });
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    const opened = [];
    for (let index = 0; index < 3; index++) opened.push(await openPage(browser));
    for (const one of opened) problems.push(one.problems);
    [olga, bob, carla] = opened.map(({ page }) => page) as [Page, Page, Page];
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  /** Opens a link, and makes a passkey. */
  async function arrive(page: Page, link: string, login: string, name: string): Promise<void> {
    await page.goto(link);
    await page.getByLabel("Login").fill(login);
    await page.getByLabel("Your name").fill(name);
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.waitForURL(({ pathname }) => pathname !== "/console/welcome");
  }

  /** Invites somebody to the account on screen, and resolves with the link. */
  async function invite(page: Page, role: RegExp): Promise<string> {
    await page.getByRole("button", { name: "Invite" }).click();
    await page.getByRole("radio", { name: role }).check();
    await page.getByRole("button", { name: "Make the invitation" }).click();
    const link = await page.getByLabel("Invitation link").inputValue();
    await page.getByRole("button", { name: "Done" }).click();
    return link;
  }

  const open = (page: Page, path: string) => page.goto(`${origin}/console/operator${path}`);
  const toast = (page: Page, text: string) =>
    page.locator(".messages", { hasText: text }).waitFor();
  let accountId = "";

  test("an operator makes an account, invites its owner, and makes another operator", async () => {
    await arrive(olga, gateway.ownerLink, "olga@example.com", "Olga");
    await olga.goto(`${origin}/console/`);
    // The pages of operators stand below those of the account.
    await olga.getByRole("link", { name: "Accounts", exact: true }).click();
    await olga.getByRole("heading", { name: "Accounts" }).waitFor();
    await olga.getByRole("button", { name: "New account" }).click();
    await olga.getByLabel("Name", { exact: true }).fill("<b>Carla</b> GmbH شركة");
    await olga.getByRole("button", { name: "Make account" }).click();
    await olga.getByRole("heading", { name: "<b>Carla</b> GmbH شركة" }).waitFor();
    accountId = new URL(olga.url()).pathname.split("/").at(-1) ?? "";
    await olga.getByRole("link", { name: "Manage members" }).click();
    await arrive(carla, await invite(olga, /^Owner/), "carla@example.com", "Carla");

    await olga.goto(`${origin}/console/${gateway.accountId}/members`);
    await arrive(bob, await invite(olga, /^Viewer/), "bob@example.com", "Bob");
    await open(olga, "/people");
    await olga.getByLabel("Operator role of Bob").selectOption("admin");
    await toast(olga, "Another person has to approve this.");
    // Nobody else can, so the machine does.
    const postgres = connectPostgres(gateway.databaseUrl);
    const run = (text: string) => query(postgres, { name: "", text });
    await run("update approvals set state = 'rejected'");
    await run("update people set operator = 'admin' where login = 'bob@example.com'");
    await postgres.close();
    // A new role needs a new sign-in.
    await bob.goto(`${origin}/console/sign-in`);
    await bob.getByRole("button", { name: "Sign in with a passkey" }).click();
    await bob.locator(".frame").waitFor();
    await open(olga, "/people");
    expect(await olga.getByLabel("Operator role of Bob").inputValue()).toBe("admin");
  });

  test("credits above the limit are given by two people, with a reason", async () => {
    await open(olga, "/accounts");
    await olga.getByLabel("Name, owner, id, key, hint or request").fill("carla@example");
    await olga.getByRole("link", { name: "<b>Carla</b> GmbH شركة" }).click();
    await olga.getByRole("button", { name: "Move credits" }).click();
    await olga.getByLabel("Credits", { exact: true }).fill("2,000");
    await olga.getByText("That is $10.00.").waitFor();
    await olga.getByRole("button", { name: "Move credits" }).last().click();
    await olga.getByText("Say why, in 5 characters at least.").waitFor();
    await olga.getByLabel("Reason").fill("Goodwill <i>after</i> the outage");
    await olga.getByRole("button", { name: "Move credits" }).last().click();
    await toast(olga, "Another person has to approve this.");

    // Who asked cannot agree.
    await olga.getByRole("link", { name: "Attention", exact: true }).first().click();
    const row = olga.getByRole("row", { name: /Goodwill/ });
    await row.getByText("Another approves").waitFor();
    expect(await row.getByRole("button", { name: "Approve" }).count()).toBe(0);

    await open(bob, "/attention");
    // Two at once: one books, the other is told, and both see what became of it.
    const other = await bob.context().newPage();
    await open(other, "/attention");
    const approveIn = (page: Page) =>
      page.getByRole("row", { name: /Goodwill/ }).getByRole("button", { name: "Approve" });
    await approveIn(other).waitFor();
    await approveIn(bob).click();
    await toast(bob, "Approved and done.");
    await approveIn(other).click();
    await other.getByText("Nothing waits for an approval.").waitFor();
    await other.close();
    const { pools } = await gateway.admin.core.billing.getPools({ accountId }, gateway.admin.call);
    expect(pools[0]?.freeMicrocredits).toBe(2_000_000_000n);
    await open(olga, `/accounts/${accountId}`);
    await olga.getByRole("row", { name: /Goodwill <i>after<\/i> the outage/ }).waitFor();
  });

  test("a suspension is seen by the customer with its reason, and ends", async () => {
    await olga.getByRole("button", { name: "Suspend", exact: true }).click();
    await olga.getByLabel("What its members read").fill("Your invoice is open.");
    await olga.getByRole("button", { name: "Suspend account" }).click();
    await toast(olga, "is suspended.");
    await carla.goto(`${origin}/console/${accountId}`);
    await carla.getByText("The operator says: Your invoice is open.").waitFor();
    await olga.getByRole("button", { name: "Resume", exact: true }).click();
    await olga.getByLabel("Reason").fill("It is paid.");
    await olga.getByRole("button", { name: "Resume", exact: true }).last().click();
    await toast(olga, "works again.");
    await carla.reload();
    await carla.getByRole("heading", { name: "Overview" }).waitFor();
    await expect.poll(() => carla.getByText("The operator says").count()).toBe(0);
  });

  test("an order that waits is decided, and its credits arrive", async () => {
    const { core, call } = gateway.admin;
    const { order } = await core.payments.createOrder(
      {
        accountId,
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method: "simulated:usdt",
        idempotencyKey: "journey",
      },
      call,
    );
    const { orderId = "" } = order ?? {};
    const value = { coins: "0.0001", confirmations: 1, asset: "BTC" };
    await core.payments.simulateDeposit({ orderId, event: { case: "deposit", value } }, call);
    // The deposit is looked at beside the call. The page lists what waits when it opens.
    const waiting = async () => (await core.payments.listAttention({}, call)).orders;
    await expect.poll(waiting).toHaveLength(1);
    await open(olga, "/attention");
    await olga.getByText("Another coin or network arrived").waitFor();
    await olga.getByRole("link", { name: "Open", exact: true }).click();
    await olga.getByRole("button", { name: "Decide", exact: true }).click();
    await olga.getByRole("textbox", { name: "Dollars" }).fill("none");
    await olga.getByLabel("Reason").fill("It is worth that much.");
    await olga.getByRole("button", { name: "Decide", exact: true }).last().click();
    await olga.getByText("This is not an amount of dollars.").waitFor();
    await olga.getByRole("textbox", { name: "Dollars" }).fill("5");
    await olga.getByRole("button", { name: "Decide", exact: true }).last().click();
    await toast(olga, "Decided.");
    await olga.getByText("Nothing in this order waits for a person.").waitFor();
    await expect
      .poll(async () => (await core.billing.getPools({ accountId }, call)).pools[0])
      .toMatchObject({ freeMicrocredits: 3_000_000_000n });
  });

  test("the audit shows all of it, and the owner sees who looked", async () => {
    await open(olga, `/audit?account=${accountId}`);
    for (const act of ["made a transfer", "approved", "suspended an account", "decided an order"])
      await olga
        .getByRole("row", { name: new RegExp(act) })
        .first()
        .waitFor();
    const listed = await carla.evaluate(async (account) => {
      const answer = await fetch("/gateway.audit.v1.AuditService/ListAuditEvents", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ accountId: account, pageSize: 1000 }),
      });
      return answer.json();
    }, accountId);
    const { events } = Object(listed);
    const methods = new Set(events.map(({ method }: { method: string }) => method));
    // A look of an operator, who is no member, is an event as well.
    for (const method of ["GetAccount", "ListTransfers", "SuspendAccount", "Approve"])
      expect([...methods]).toContain(method);
  });

  test("operators see why a provider failed last, without its secrets", async () => {
    const broken = await startGatewayWithProvider("native");
    try {
      broken.provider.always(() =>
        errorAnswer(401, "authentication_error", "no key of https://user:pass-word@proxy.example"),
      );
      const sent = await broken.post({
        ...{ model: "haiku", max_tokens: 10 },
        messages: [{ role: "user", content: "Hello" }],
      });
      expect(sent.status).toBeGreaterThanOrEqual(500);
      const { page, problems: found } = await openPage(browser);
      await arrive(page, broken.gateway.ownerLink, "otto@example.com", "Otto");
      const home = new URL(broken.gateway.ownerLink).origin;
      for (const path of ["models", "health"]) {
        await page.goto(`${home}/console/operator/${path}`);
        const failure = page.locator(".failure").first();
        await failure.waitFor();
        const text = await failure.textContent();
        expect(text).toContain("status 401");
        expect(text).toContain("authentication_error: no key");
        expect(text).not.toContain("pass-word");
      }
      expect(found).toEqual([]);
      await page.close();
    } finally {
      await broken.stop();
    }
  });

  test("the other pages of operators show the installation, and work", async () => {
    await open(olga, "/health");
    await olga.getByText("alive", { exact: true }).waitFor();
    await olga.getByText("this answer").waitFor();
    // Their own alerts, which are loaded when they are scrolled to.
    await olga.mouse.wheel(0, 5_000);
    const finding = () => olga.getByRole("checkbox", { name: "Finding of the verifier: Page" });
    expect(await finding().isChecked()).toBe(true);
    await finding().uncheck();
    await olga.locator("form").getByRole("button", { name: "Save" }).click();
    await toast(olga, "Saved.");
    await olga.reload();
    await olga.getByText("this answer").waitFor();
    await olga.mouse.wheel(0, 5_000);
    expect(await finding().isChecked()).toBe(false);
    await olga.getByRole("link", { name: "Models", exact: true }).click();
    await olga.getByText("model-haiku-4.5").first().waitFor();
    await olga.getByRole("link", { name: "Attention", exact: true }).first().click();
    await olga.getByText("It was never checked.").waitFor();
    await olga.getByRole("button", { name: "Check now" }).click();
    await olga.getByText("Every balance is right.").waitFor();

    await olga.getByRole("link", { name: "Promotions", exact: true }).click();
    await olga.getByRole("button", { name: "New promotion" }).first().click();
    await olga.getByLabel("Name", { exact: true }).fill("Hackathon");
    await olga.getByLabel("Credits", { exact: true }).fill("500");
    await olga.getByText("Only after a purchase").click();
    await olga.getByRole("button", { name: "Make promotion" }).click();
    const code = await olga.getByLabel("The code").inputValue();
    expect(code.length).toBeGreaterThanOrEqual(16);
    await olga.getByRole("button", { name: "I have stored it" }).click();
    // It has no bound.
    await open(bob, "/attention");
    const promotion = bob.getByRole("row", { name: /Hackathon/ });
    await promotion.getByRole("button", { name: "Approve" }).click();
    await toast(bob, "Approved and done.");
    await carla.goto(`${origin}/console/${accountId}/credits`);
    await carla.getByLabel("Code", { exact: true }).fill(code);
    await carla.getByRole("button", { name: "Redeem code" }).click();
    await toast(carla, "500.00 credits of this code are in");
    await olga.reload();
    await olga.getByRole("button", { name: "End", exact: true }).click();
    await olga.getByRole("button", { name: "End promotion" }).click();
    await toast(olga, "Hackathon has ended.");

    await olga.getByRole("link", { name: "Price lists", exact: true }).click();
    await olga.getByRole("link", { name: "New price list" }).first().click();
    await olga.getByLabel("Discount on every model").fill("10");
    await olga.getByRole("button", { name: "Preview" }).click();
    // Haiku costs 140 credits.
    const haiku = olga.getByRole("row", { name: /model-haiku-4\.5/ });
    await haiku.getByText("140 126").waitFor();
    await olga.getByRole("button", { name: "Make list" }).click();
    await olga.getByLabel("Name", { exact: true }).fill("Carla's");
    await olga.getByLabel("Reason").fill("agreed for 2027");
    await olga.getByRole("dialog").getByRole("button", { name: "Make list" }).click();
    await toast(olga, "Version 1 of Carla's is in force.");
    await olga.getByRole("button", { name: "Give", exact: true }).click();
    await olga.getByLabel("Account", { exact: true }).fill(accountId);
    await olga.getByLabel("Reason").fill("agreed for 2027");
    await olga.getByRole("dialog").getByRole("button", { name: "Give" }).click();
    await toast(olga, "has the prices of Carla's.");
    // A cheap version needs another person.
    await olga.getByRole("link", { name: "Carla's" }).click();
    await olga.getByLabel("Prices of model-haiku-4.5").selectOption("prices of its own");
    await olga.getByLabel("Input of model-haiku-4.5").fill("0.1");
    await olga.getByLabel("Output of model-haiku-4.5").fill("1");
    await olga.getByLabel("Conditions of model-haiku-4.5").fill("prompt_over: 5");
    await olga.getByRole("button", { name: "Preview" }).click();
    await olga.getByText("This is no part of a condition: prompt_over: 5").waitFor();
    await olga.getByLabel("Conditions of model-haiku-4.5").fill("prompt_above: 900, multiply: 2");
    await olga.getByRole("button", { name: "Preview" }).click();
    await haiku.getByText("less than half").waitFor();
    await haiku.getByText(/^Above 900 tokens .*\(36 credits\) in .*\(360 credits\) out/).waitFor();
    await olga.getByRole("button", { name: "Put in force" }).click();
    await olga.getByLabel("Reason").fill("agreed for 2028");
    await olga.getByRole("dialog").getByRole("button", { name: "Put in force" }).click();
    await toast(olga, "Another person has to approve this.");
    await open(bob, "/attention");
    const cheaper = bob.getByRole("row", { name: /Carla's/ });
    await cheaper.getByRole("button", { name: "Approve" }).click();
    await toast(bob, "Approved and done.");
    await open(olga, "/prices");
    const row = olga.getByRole("row", { name: /Carla's/ });
    await row.waitFor();
    const cells = await row.getByRole("cell").allInnerTexts();
    expect(cells.slice(0, 4)).toEqual(["10 %", "1", "1", "2"]);

    await open(olga, "/people");
    await olga.getByRole("button", { name: "New token" }).click();
    await olga.getByLabel("Name", { exact: true }).fill("journey");
    await olga.getByRole("button", { name: "Make token" }).click();
    const token = await olga.getByLabel("The admin token").inputValue();
    expect(token).toMatch(/^adm-gw2-/);
    await olga.getByRole("button", { name: "I have stored it" }).click();
    expect(await olga.content()).not.toContain(token);
    await olga
      .getByRole("row", { name: /journey/ })
      .getByRole("button", { name: "Revoke" })
      .click();
    await olga.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await toast(olga, "journey is revoked.");
    expect(problems).toEqual([[], [], []]);
  });

  test("an operator without an account is led to a new one", async () => {
    const postgres = connectPostgres(gateway.databaseUrl);
    await query(postgres, {
      name: "",
      text: "delete from members where person_id in (select person_id from people where login = 'bob@example.com')",
    });
    await postgres.close();
    await bob.goto(`${origin}/console/`);
    // The checklist comes first, until it is done or put off.
    await bob.getByRole("button", { name: "Not now" }).click();
    await bob.getByRole("button", { name: "New account" }).click();
    await bob.getByLabel("Name", { exact: true }).fill("Bob's first");
    await bob.getByRole("button", { name: "Make account" }).click();
    await bob.getByRole("heading", { name: "Bob's first" }).waitFor();
    expect(new URL(bob.url()).pathname).toMatch(/\/accounts\/acc_/);
  });

  test("customers load nothing of it, and see no such pages", async () => {
    const asked: string[] = [];
    carla.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await carla.goto(`${origin}/console/${accountId}`);
    await carla.getByRole("heading", { name: "Overview" }).waitFor();
    for (const path of ["", "/accounts", "/health"]) {
      await open(carla, path);
      await carla.getByRole("heading", { name: "There is no such page" }).waitFor();
    }
    const scripts = asked.filter((path) => path.startsWith("/console/assets/"));
    expect(scripts.length).toBeGreaterThan(0);
    expect(scripts.filter((path) => path.includes("/operator"))).toEqual([]);
    expect(asked.filter((path) => path.includes("operations.v1"))).toEqual([]);
    expect(await carla.getByRole("navigation", { name: "Pages of operators" }).count()).toBe(0);
  });
});
