// The ways on from a console that stands, walked at the widths of a phone and of a desk: a tool is
// connected until its first request is seen and a refusal is explained, and an operator goes
// through the checklist, mends a line of it, and puts it away.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const widths = [360, 1440];

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
    page.setDefaultTimeout(60_000);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin });
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).waitFor();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  const copied = () => page.evaluate("navigator.clipboard.readText()");
  const shots = process.env.SCREENSHOTS;

  /** Nothing of the page is wider than the window, whose picture is kept where somebody asks. */
  async function look(name: string, width: number): Promise<void> {
    if (shots) await page.screenshot({ path: `${shots}/${name}-${width}.png`, fullPage: true });
    const over = await page.evaluate<number>(
      "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    );
    expect([name, width, over]).toEqual([name, width, 0]);
  }

  async function ask(secret: string, model: string): Promise<number> {
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({ model, max_tokens: 9, messages: [{ role: "user", content: "Hi" }] }),
    });
    await answer.arrayBuffer();
    return answer.status;
  }

  for (const width of widths)
    test(`a tool is connected, its first request seen, and a refusal explained at ${width} px`, async () => {
      const { core, call } = gateway.admin;
      const name = `tool at ${width}`;
      const { key, secret } = await core.keys.createKey(
        {
          accountId: gateway.accountId,
          family: Family.V1,
          settings: { name, allowedModels: ["haiku"] },
        },
        call,
      );
      const hint = key?.secrets[0]?.hint ?? "";
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await page.goto(`${origin}/console/${gateway.accountId}/connect`);

      // The addresses, each with a button that copies it.
      const grpc = `localhost:${new URL(`http://${gateway.grpcAddress}`).port}`;
      for (const [format, address] of [
        ["Messages format", origin],
        ["OpenAI format", `${origin}/v1`],
        ["gRPC", grpc],
      ] as const) {
        await page.getByRole("button", { name: `Copy the address: ${format}` }).click();
        await expect.poll(copied).toBe(address);
      }

      // A tool's block, plain and streaming, without a key and with one of the person's own.
      const block = () => page.locator(".snippet pre").last();
      await expect.poll(() => block().textContent()).toContain("export GATEWAY_KEY=YOUR_KEY");
      await page.getByText("Mind:").waitFor();
      const field = page.getByLabel("Key", { exact: true });
      await field.fill(name);
      await page
        .locator(`datalist option[value="${name} (${hint})"]`)
        .waitFor({ state: "attached" });
      await field.fill(`${name} (${hint})`);
      await expect.poll(() => block().textContent()).toContain(`export GATEWAY_KEY=${hint}`);
      expect(new URL(page.url()).searchParams.get("key")).toBe(key?.keyId);
      await page.getByRole("button", { name: "Streaming" }).click();
      await expect.poll(() => block().textContent()).toContain("curl -N");
      await page.getByRole("link", { name: "gRPC, Python" }).click();
      await expect
        .poll(() => page.locator(".snippet pre").allTextContents())
        .toEqual(expect.arrayContaining([expect.stringContaining(grpc)]));
      await page.getByRole("link", { name: "curl", exact: true }).click();
      await expect.poll(() => block().textContent()).toContain(`${origin}/v1/messages`);
      await look("connect", width);

      // The line below turns when the first request of this key has ended.
      const last = page.getByRole("region", { name: "Last request" }).getByRole("status");
      await expect
        .poll(() => last.textContent())
        .toBe("None so far. This line changes when one ends.");
      expect(await ask(secret, "haiku")).toBe(200);
      await expect
        .poll(() => last.textContent(), { timeout: 30_000 })
        .toMatch(/: model-haiku-4\.5, 0\.\d{4} credits\. Receipt$/);
      expect(await ask(secret, "sonnet")).toBe(403);
      const refused = page.getByText(
        /^\d+ refused since \d\d:00\sUTC\S*: Model not allowed. Add the model to the key, /,
      );
      await refused.waitFor({ timeout: 30_000 });
      await look("connect-refused", width);
      await last.getByRole("link", { name: "Receipt" }).click();
      await page.getByText("What it cost").first().waitFor();
    });

  test("where gRPC is not reached from elsewhere, no address of it is offered", async () => {
    await page.route("**/GetSession", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), grpcAddress: "" } });
    });
    await page.goto(`${origin}/console/${gateway.accountId}/connect?tool=grpc-python`);
    await page.getByText(/^As far as the gateway knows, it is not reached/).waitFor();
    expect(await page.getByRole("button", { name: /^Copy the address/ }).count()).toBe(2);
    await page.getByText('"GRPC_ADDRESS"').first().waitFor();
    await page.unroute("**/GetSession");
  });

  const row = (title: string) =>
    page.locator(".checklist > li").filter({ has: page.getByRole("heading", { name: title }) });
  const stateOf = (title: string) => row(title).locator(".tag").textContent();

  for (const width of widths)
    test(`an operator mends a line of the checklist and puts the list away at ${width} px`, async () => {
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await page.evaluate("localStorage.removeItem('gateway-checklist-dismissed')");
      await page.goto(`${origin}/console/operator`);
      await page.getByRole("heading", { name: "Checklist", exact: true }).waitFor();
      const states = () =>
        page
          .locator(".checklist > li")
          .evaluateAll((rows) =>
            rows.map((one) => [
              one.querySelector("h2")?.textContent ?? "",
              one.querySelector(".tag")?.textContent ?? "",
            ]),
          );
      const isChecked = width !== widths[0];
      await expect.poll(states).toEqual([
        ["Reachable from elsewhere", "to do"],
        ["Proxies named", "done"],
        ["A real provider", "to do"],
        ["Mail", "your choice"],
        ["Who may sign up", "your choice"],
        ["How people pay", "to do"],
        ["Backups", "your choice"],
        ["First check of the ledger", isChecked ? "done" : "to do"],
        ["Who hears of alerts", "to do"],
      ]);
      await page.getByText(isChecked ? "4 to do" : "5 to do").waitFor();

      // What is to be pasted, whole.
      await row("Reachable from elsewhere").getByRole("button", { name: "Copy" }).click();
      await expect
        .poll(copied)
        .toBe(
          "# in the environment; then start again\nHOST=0.0.0.0\nPUBLIC_URL=https://gateway.example.com",
        );
      await row("A real provider").getByRole("button", { name: "Copy" }).click();
      await expect.poll(copied).toContain("kind: anthropic");
      await look("checklist", width);

      if (!isChecked) {
        // Mended elsewhere: the list learns it when somebody asks again.
        await gateway.admin.core.billing.verifyLedger({}, gateway.admin.call);
        expect(await stateOf("First check of the ledger")).toBe("to do");
        await page.getByRole("button", { name: "Check again" }).click();
        await expect.poll(() => stateOf("First check of the ledger")).toBe("done");
        expect(await row("First check of the ledger").textContent()).toMatch(
          /Its last check without a finding ended on \d+\s\w+\s\d{4}, \d\d:\d\d:\d\d\sUTC\./,
        );
        expect(await row("First check of the ledger").locator("pre").count()).toBe(0);
      }
      await row("Who hears of alerts").getByRole("link", { name: "Set a webhook" }).click();
      await page.getByRole("heading", { name: "Health", exact: true }).waitFor();

      // Put away: the first page is another one, and the list is found in the column.
      await page.goto(`${origin}/console/operator`);
      await page.getByRole("button", { name: "Not now" }).click();
      await page.getByRole("heading", { name: "Accounts", exact: true }).waitFor();
      await page.reload();
      await page.getByRole("heading", { name: "Accounts", exact: true }).waitFor();
      await page.getByRole("link", { name: "Checklist" }).click();
      await page.getByRole("heading", { name: "Checklist", exact: true }).waitFor();
      await row("Mail").waitFor();
      expect(await page.getByRole("button", { name: "Not now" }).count()).toBe(0);
    });

  test("the pages said nothing that should not be", () => {
    expect(problems).toEqual([]);
  });
});
