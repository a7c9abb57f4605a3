// The ways to a first paid request, walked by a newcomer at the width of a phone and of a desk: as
// owner at localhost, as invited member, and as somebody who signed up and has no credits.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { type CatalogFile, closedPeople, simulatedPayments } from "../../src/config/catalog.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

const catalog: CatalogFile = {
  ...fastCatalog(),
  payments: simulatedPayments,
  people: { ...closedPeople, signUp: { mode: "open", domains: [] } },
};
const widths = [360, 1440];

/** What a person does on a page, counted. */
class Walk {
  clicks = 0;
  fields = 0;
  readonly page: Page;
  readonly problems: readonly string[];
  #gateway: TestGateway;

  private constructor(opened: { page: Page; problems: string[] }, gateway: TestGateway) {
    this.page = opened.page;
    this.problems = opened.problems;
    this.#gateway = gateway;
  }

  static async begin(browser: Browser, gateway: TestGateway, width: number): Promise<Walk> {
    const opened = await openPage(browser);
    await opened.page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
    return new Walk(opened, gateway);
  }

  async click(name: string): Promise<void> {
    this.clicks++;
    await this.page.getByRole("button", { name, exact: true }).click();
  }

  async fill(label: string, text: string): Promise<void> {
    this.fields++;
    await this.page.getByLabel(label, { exact: true }).fill(text);
  }

  /** Runs what the page shows to paste. Resolves with the status of its answer. */
  async paste(): Promise<number> {
    const secret = await this.page.getByLabel("The secret of the key").inputValue();
    const shown = (await this.page.locator(".snippet pre").first().textContent()) ?? "";
    expect(shown).toContain(`export GATEWAY_KEY=${secret}\n`);
    const answer = await fetch(`${this.#gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: /-d '([^']*)'/.exec(shown)?.[1] ?? "",
    });
    await answer.arrayBuffer();
    return answer.status;
  }

  /** The last step is green, and the page said nothing in its log. */
  async end(): Promise<void> {
    expect(await this.paste()).toBe(200);
    await this.page.locator(".waiting.seen").waitFor();
    expect(await this.page.locator(".step.done").count()).toBe(
      await this.page.locator(".step").count(),
    );
    expect(this.problems).toEqual([]);
  }
}

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let smtp: TestSmtpServer;
  let browser: Browser;
  /** Of the first owner, once there is one. */
  let owner: Page | undefined;
  beforeAll(async () => {
    smtp = await startSmtpServer();
    gateway = await startTestGateway({ split: false, catalog, env: { SMTP_URL: smtp.url } });
    browser = await startChromium();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
    await smtp.stop();
  });

  /** Invites somebody as the owner, who is signed in. Resolves with the link. */
  const invite = async (role: string) =>
    Object(
      await owner?.evaluate(
        async (request) => {
          const answer = await fetch("/gateway.people.v1.MembersService/CreateInvitation", {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify(request),
          });
          return answer.json();
        },
        { accountId: gateway.accountId, role },
      ),
    ).link;

  /** Signs up at an address, and stops before the first key. */
  async function signUp(width: number, email: string): Promise<Walk> {
    const walk = await Walk.begin(browser, gateway, width);
    await walk.page.goto(`${new URL(gateway.ownerLink).origin}/console/sign-up`);
    await walk.fill("E-mail address", email);
    await walk.click("Send the link");
    const mail = () => smtp.mails.find(({ to }) => to.includes(email));
    await expect.poll(mail, { timeout: 10_000 }).toBeDefined();
    await walk.page.goto(mail()?.links[0] ?? "");
    await walk.click("Create a passkey");
    await walk.page.getByRole("heading", { name: "Make a key" }).waitFor();
    return walk;
  }

  const accountOf = (page: Page) => new URL(page.url()).pathname.split("/")[2] ?? "";

  /** The newest order of the account on screen. */
  async function orderOf(page: Page): Promise<string> {
    const { core, call } = gateway.admin;
    const listed = await core.payments.listOrders({ accountId: accountOf(page) }, call);
    return listed.orders[0]?.orderId ?? "";
  }

  test("the owner at localhost, in 3 clicks and 3 fields at most", async () => {
    // The link works once, so one width has the first link, the others one of an owner like it.
    for (const [index, width] of widths.entries()) {
      const walk = await Walk.begin(browser, gateway, width);
      await walk.page.goto(index === 0 ? gateway.ownerLink : await invite("ACCOUNT_ROLE_OWNER"));
      await walk.fill("Login", `owner-${width}`);
      await walk.fill("Your name", "Olga");
      await walk.click("Create a passkey");
      await walk.click("Create key");
      await walk.end();
      owner ??= walk.page;
      expect(walk.clicks).toBeLessThanOrEqual(3);
      expect(walk.fields).toBeLessThanOrEqual(3);
    }
  });

  test.for(widths)("an invited member at %i, in 3 clicks and 3 fields at most", async (width) => {
    const walk = await Walk.begin(browser, gateway, width);
    await walk.page.goto(await invite("ACCOUNT_ROLE_MEMBER"));
    await walk.fill("Login", `member-${width}`);
    await walk.fill("Your name", "Max");
    await walk.click("Create a passkey");
    await walk.click("Create key");
    await walk.end();
    expect(walk.clicks).toBeLessThanOrEqual(3);
    expect(walk.fields).toBeLessThanOrEqual(3);
  });

  test.for(widths)(
    "somebody who signed up without credits at %i buys a pack first",
    async (width) => {
      const walk = await signUp(width, `buyer-${width}@example.com`);
      await walk.click("Create key");
      await walk.page.getByText("which has no credits yet").waitFor();
      await walk.click("Order for $5");
      await walk.page.getByText("Nothing has arrived yet.").waitFor();
      // A customer pays with a wallet, and is not offered to play a payment.
      expect(await walk.page.getByText("Play a payment").count()).toBe(0);
      const { core, call } = gateway.admin;
      const orderId = await orderOf(walk.page);
      const { order } = await core.payments.getOrder({ orderId }, call);
      const amount = order?.missingCoins ?? "";
      await core.payments.simulateDeposit(
        { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 1 } } },
        call,
      );
      await walk.end();
      expect(walk.clicks).toBeLessThanOrEqual(6);
      expect(walk.fields).toBeLessThanOrEqual(4);
    },
  );

  test("a code, or the operator, is another way to the first credits", async () => {
    const { core, call } = gateway.admin;
    const promotion = { name: "Hackathon", bonusMicrocredits: 500_000_000n, family: Family.V1 };
    const { code } = await core.payments.createPromotion(
      { ...promotion, maxUses: 5, needsPurchase: false },
      call,
    );
    const coder = await signUp(360, "coder@example.com");
    await coder.click("Create key");
    await coder.page.getByText("I have a code").click();
    await coder.fill("Code", code);
    await coder.click("Redeem code");
    await coder.end();

    const asking = await signUp(1440, "asking@example.com");
    await asking.click("Create key");
    await asking.page.getByText("Ask somebody").click();
    await asking.page.getByText("The operator of this gateway can give you credits.").waitFor();
    await core.billing.createTransfer(
      {
        accountId: accountOf(asking.page),
        family: Family.V1,
        amountMicrocredits: 5_000_000n,
        kind: TransferKind.BONUS,
        reason: "A gift",
        idempotencyKey: "gift",
      },
      call,
    );
    await asking.end();
  });

  test("a refused request is seen with what to do, and turns green after", async () => {
    const walk = await signUp(360, "refused@example.com");
    await walk.click("Create key");
    await walk.click("Make the key without credits");
    await walk.page.getByText("Waiting for your first request").waitFor();
    expect(await walk.paste()).toBe(402);
    await walk.page.getByText("No credits left. Buy credits for this pool.").waitFor();
    await walk.click("Get credits");
    await walk.click("Order for $5");
    await walk.page.getByText("Nothing has arrived yet.").waitFor();
    const { core, call } = gateway.admin;
    const orderId = await orderOf(walk.page);
    const { order } = await core.payments.getOrder({ orderId }, call);
    const amount = order?.missingCoins ?? "";
    await core.payments.simulateDeposit(
      { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 1 } } },
      call,
    );
    await walk.page.getByText("Nothing has arrived yet.").waitFor({ state: "detached" });
    await expect.poll(() => walk.paste()).toBe(200);
    await walk.end();
  });

  test("an operator plays every payment of a simulated order in the page", async () => {
    if (!owner) throw new Error("nobody is the owner");
    const { core, call } = gateway.admin;
    const { accountId } = gateway;
    const origin = new URL(gateway.ownerLink).origin;
    /** Which words the page shows after a case. */
    const ends: readonly (readonly [string, RegExp])[] = [
      ["Exact", /Paid\. 1,000\.00 credits were added/],
      ["Too little", /2\.5 USDT arrived, 2\.5 USDT are missing/],
      ["Too much", /More arrived than the pack costs/],
      ["Late", /a part waits|valued at the rate|Paid/],
      ["Wrong coin", /Something else arrived than was ordered/],
      ["Lost", /gone again/],
    ];
    for (const [name, words] of ends) {
      const { order } = await core.payments.createOrder(
        {
          accountId,
          family: Family.V1,
          packMicrodollars: 5_000_000n,
          method: "simulated:usdt",
          idempotencyKey: name,
        },
        call,
      );
      const path = name === "Lost" ? "operator/orders" : `${accountId}/credits/orders`;
      await owner.goto(`${origin}/console/${path}/${order?.orderId}`);
      await owner.getByRole("button", { name, exact: true }).click();
      await owner.getByText(words).first().waitFor();
    }
    expect(await owner.getByText("Play a payment").count()).toBe(1);
  });
});
