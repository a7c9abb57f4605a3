// The way of a buyer who closed the page: he pays too little, too late. A mail, the stream of
// alerts and the webhook tell him, each once; then the bell, the list and the order, at the widths
// of a phone and of a desk.

import { once } from "node:events";
import { createServer } from "node:https";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { Client } from "pg";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { AlertKind } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import type { CatalogFile } from "../../src/config/catalog.ts";
import { createAuthority } from "../support/certificates.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

const catalog: CatalogFile = {
  ...fastCatalog(),
  alerts: { ...fastCatalog().alerts, allowHosts: ["localhost"] },
};
const soon = { timeout: 40_000 };

type Post = { readonly id: string; readonly type: string; readonly facts: Record<string, string> };

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let client: Client;
  let browser: Browser;
  let smtp: TestSmtpServer;
  let page: Page;
  let origin = "";
  let orderId = "";
  let problems: string[] = [];
  const posts: Post[] = [];
  const seen = new Map<string, number>();
  const watching = new AbortController();
  const authority = createAuthority("the receivers");
  const { certificate: cert, privateKey: key } = authority.issue("receiver");
  const receiver = createServer({ cert, key }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { type, data } = JSON.parse(Buffer.concat(chunks).toString());
      posts.push({ id: String(request.headers["webhook-id"]), type, facts: data.facts });
      response.writeHead(204).end();
    });
  });
  beforeAll(async () => {
    setDefaultCACertificates([...getCACertificates("default"), authority.certificate]);
    receiver.listen(0, "127.0.0.1");
    await once(receiver, "listening");
    smtp = await startSmtpServer();
    const env = { SMTP_URL: smtp.url, MAIL_FROM: "gateway@example.com" };
    gateway = await startTestGateway({ split: false, catalog, env });
    client = new Client({ connectionString: gateway.databaseUrl });
    await client.connect();
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
  });
  afterAll(async () => {
    watching.abort();
    await browser.close();
    await client.end();
    await gateway.stop();
    await smtp.stop();
    receiver.closeAllConnections();
    receiver.close();
  });

  const account = () => gateway.accountId;
  const open = (path: string) => page.goto(`${origin}/console/${account()}/${path}`);

  /** Nothing of the page is wider than the window, whose picture is kept where somebody asks. */
  async function look(name: string, widths: readonly number[] = [360, 1440]): Promise<void> {
    for (const width of widths) {
      await page.setViewportSize({ width, height: 900 });
      const shots = process.env.SCREENSHOTS;
      if (shots) await page.screenshot({ path: `${shots}/${name}-${width}.png` });
      const over = await page.evaluate<number>(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth",
      );
      expect([name, width, over]).toEqual([name, width, 0]);
    }
  }

  test("an owner lets payments be posted, by the settings", async () => {
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga@example.com");
    await page.getByLabel("Your name").fill("Olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.waitForURL(({ pathname }) => pathname !== "/console/welcome");
    await client.query("update people set email = login, email_verified_at = now()");
    const address = receiver.address();
    const port = typeof address === "object" && address ? address.port : 0;
    await page.setViewportSize({ width: 1440, height: 900 });
    await open("settings");
    const field = page.getByLabel("Webhook", { exact: true });
    await vi.waitFor(async () => {
      await page.mouse.wheel(0, 2_000);
      expect(await field.count()).toBe(1);
    }, soon);
    await field.fill(`https://localhost:${port}/`);
    for (const name of ["Payment that is too small", "Payment after its quote"])
      await page.getByRole("checkbox", { name: `${name}: Webhook` }).check();
    await look("settings");
    await page.setViewportSize({ width: 1440, height: 900 });
    const form = page.locator("form").filter({ has: field });
    await form.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
  });

  test("the page is closed, and too little comes too late: it is told once by each way", async () => {
    const { core, call } = gateway.admin;
    // The first keys are told, too.
    await vi.waitFor(async () => {
      const { rowCount } = await client.query("update alerts set dismissed_at = now()");
      expect(rowCount).toBe(2);
    }, soon);
    void (async () => {
      const stream = core.alerts.watchAlerts(
        { accountId: account() },
        { ...call, signal: watching.signal },
      );
      const known = new Set<string>();
      for await (const { newest } of stream)
        for (const { alertId, kind } of newest?.alerts ?? []) {
          if (known.has(alertId) || kind === AlertKind.KEY_CREATED) continue;
          known.add(alertId);
          const name = Object.entries(AlertKind).find(([, number]) => number === kind)?.[0] ?? "";
          seen.set(name, (seen.get(name) ?? 0) + 1);
        }
    })().catch(() => undefined);
    orderId = await page.evaluate(async (accountId) => {
      const response = await fetch("/gateway.payments.v1.PaymentsService/CreateOrder", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          ...{
            accountId,
            family: "FAMILY_V1",
            packMicrodollars: "5000000",
            method: "simulated:usdc",
          },
          idempotencyKey: "the walk",
        }),
      });
      return Object(await response.json()).order.orderId;
    }, account());
    await open(`credits/orders/${orderId}`);
    await page.getByText("0x", { exact: false }).or(page.getByText(orderId)).first().waitFor();
    await page.goto("about:blank");
    await client.query(
      `update payment_orders set quoted_until = now() - interval '1 minute',
         created_at = created_at - interval '20 minutes' where order_id = $1`,
      [orderId],
    );
    await core.payments.simulateDeposit(
      { orderId, event: { case: "deposit", value: { coins: "2", confirmations: 1 } } },
      call,
    );
    const told = ["PAYMENT_CREDITED", "PAYMENT_LATE", "PAYMENT_SEEN", "PAYMENT_SHORT"];
    await vi.waitFor(() => expect([...seen.keys()].sort()).toEqual(told), soon);
    const mails = () => smtp.mails.filter(({ text }) => text.includes(orderId));
    await vi.waitFor(() => expect(mails()).toHaveLength(3), soon);
    await vi.waitFor(() => expect(posts).toHaveLength(2), soon);
    for (let looks = 0; looks < 3; looks++)
      await client.query("update payment_orders set next_look_at = now()");
    await client.query("delete from leases where task = 'alerts'");
    await vi.waitFor(async () => {
      const { rows } = await client.query(
        "select count(*)::integer as n from alert_deliveries where state <> 'sent'",
      );
      expect(rows).toEqual([{ n: 0 }]);
    }, soon);
    expect([...seen.values()]).toEqual([1, 1, 1, 1]);
    expect(posts.map(({ type }) => type).sort()).toEqual([
      "alert.payment_late",
      "alert.payment_short",
    ]);
    for (const { facts } of posts) expect(facts.order_id).toBe(orderId);
    const subjects = mails()
      .map(({ headers }) => headers.get("subject") ?? "")
      .sort();
    expect(subjects.map((one) => one.replace(/ \(.*/, ""))).toEqual([
      "400 credits were added to the pool v1",
      "A payment of 2 USDC came after its quote",
      "Less arrived than was ordered: 3.00 USD are missing",
    ]);
  });

  test("the bell counts them and leads to the order, whose timeline tells all", async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    await open("");
    const bell = page.getByRole("button", { name: "Alerts, 4 unread" });
    await bell.waitFor();
    await bell.click();
    const list = page.locator(".bell-list");
    const late = list.getByRole("link", { name: /^2 USDC came after the quote/ });
    await late.waitFor();
    await look("bell", [1440]);
    await late.click();
    await page.getByRole("heading", { name: "What happened" }).waitFor();
    await page.locator(".events").getByText("$3.00 are missing: the quote is over").waitFor();
    await page.getByRole("heading", { name: "What happened" }).scrollIntoViewIfNeeded();
    await look("order");
  });

  test("the page of alerts has the deliveries, and sends one again", async () => {
    await page.setViewportSize({ width: 360, height: 900 });
    await open("");
    await page.getByRole("link", { name: "Alerts, 4 unread" }).click();
    await page.getByRole("heading", { name: "Alerts", level: 1 }).waitFor();
    const again = page.getByRole("button", { name: "Send again" });
    await again.first().waitFor();
    await look("alerts");
    await page.setViewportSize({ width: 1440, height: 900 });
    await again.first().click();
    await page.getByText("It is sent again.").waitFor();
    await vi.waitFor(() => expect(posts).toHaveLength(3), soon);
    expect(new Set(posts.map(({ id }) => id)).size).toBe(2);
    await page.getByRole("button", { name: "Dismiss" }).first().click();
    await page.getByRole("button", { name: "Alerts, 3 unread" }).waitFor();
    expect(problems).toEqual([]);
  });
});
