// Budgets in Chromium, by an owner, a member and a viewer, on a phone and on a desk: who sets them,
// who sees them, and that what a page shows is what requests meet. WALK_SCREENS names a folder that
// gets a picture of each step.

import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { findMisplaced } from "./states/geometry.ts";

const sizes: readonly NonNullable<BrowserContextOptions["viewport"]>[] = [
  { width: 1440, height: 900 },
  { width: 360, height: 740 },
];
const folder = process.env.WALK_SCREENS;

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let origin = "";
  let olga: Page;
  const problems: string[][] = [];
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    olga = await open();
    await arrive(olga, gateway.ownerLink, "olga@example.com", "Olga");
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  async function open(): Promise<Page> {
    const opened = await openPage(browser);
    problems.push(opened.problems);
    opened.page.setDefaultTimeout(15_000);
    return opened.page;
  }
  /** Opens a link, and makes a passkey. */
  async function arrive(page: Page, link: string, login: string, name: string): Promise<void> {
    await page.goto(link);
    await page.getByLabel("Login").fill(login);
    await page.getByLabel("Your name").fill(name);
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.waitForURL(({ pathname }) => pathname !== "/console/welcome");
  }
  async function invite(role: RegExp): Promise<string> {
    await go(olga, "members");
    await olga.getByRole("button", { name: "Invite" }).click();
    await olga.getByRole("radio", { name: role }).check();
    await olga.getByRole("button", { name: "Make the invitation" }).click();
    const link = await olga.getByLabel("Invitation link").inputValue();
    await olga.getByRole("button", { name: "Done" }).click();
    return link;
  }

  const go = async (page: Page, path: string) => {
    await leftDialog(page);
    await page.goto(`${origin}/console/${gateway.accountId}/${path}`);
  };
  const save = async (page: Page) => {
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  };
  /** Everything is in its place. */
  const seen = async (page: Page, step: string) => {
    const { width = 0 } = page.viewportSize() ?? {};
    // What is loaded by need, and what moves in.
    await page.evaluate("document.fonts.ready");
    if (folder) await page.screenshot({ path: `${folder}/${step}-${width}.png`, fullPage: true });
    expect([step, await page.evaluate(findMisplaced)]).toEqual([step, []]);
  };

  /** Nothing is above it, such as the buttons of a dialog, and it is not scrolled away. */
  const isInSight = (page: Page, selector: string) =>
    page.evaluate(`(() => {
      const one = document.querySelector(${JSON.stringify(selector)});
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return one.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
    })()`);

  /** Sends one request. Resolves with the status, and the error if there is one. */
  async function ask(secret: string): Promise<{ status: number; message: string }> {
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "haiku",
        max_tokens: 100,
        messages: [{ role: "user", content: "Hello ".repeat(200) }],
      }),
    });
    const { error = {} } = Object(await answer.json());
    return { status: answer.status, message: String(Object(error).message ?? "") };
  }
  /** As a program with a management key. */
  async function createKey(secret: string, name: string, more: object) {
    const answer = await fetch(`${gateway.address}/gateway.keys.v1.KeysService/CreateKey`, {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify({ family: "FAMILY_V1", settings: { name, ...more } }),
    });
    return { status: answer.status, ...Object(await answer.json()) };
  }

  for (const size of sizes)
    test(`budgets, as an owner, a member and a viewer, ${size.width} px wide`, async () => {
      const { width } = size;
      const name = (who: string) => `${who}${width}`;
      const [mia, vera] = [await open(), await open()];
      for (const page of [olga, mia, vera]) await page.setViewportSize(size);

      // The owner limits members who have no limit, and chooses when he hears of budgets.
      await go(olga, "settings");
      await olga.getByRole("heading", { name: "What members may spend" }).scrollIntoViewIfNeeded();
      const defaults = olga.locator("section", { hasText: "What members may spend" });
      await defaults.getByRole("button", { name: "Set limits" }).click();
      await olga.getByLabel("A month").fill("1,000");
      await olga.getByLabel("Requests at once").fill("8");
      await olga.getByText("≈ $5.00").waitFor();
      await seen(olga, "1-owner-default-limits");
      await save(olga);
      await defaults.getByText("1,000 credits a month, 8 requests at once").waitFor();
      await olga.getByRole("heading", { name: "Data and leaving" }).scrollIntoViewIfNeeded();
      const percents = olga.getByLabel("Of a budget spent");
      await percents.fill("50, 120");
      await olga.getByRole("button", { name: "Save", exact: true }).click();
      await olga.getByText("Up to ten whole numbers from 1 to 100").waitFor();
      await percents.fill("50, 90, 100");
      await olga.getByRole("button", { name: "Save", exact: true }).click();
      await olga.getByText("Saved.", { exact: true }).waitFor();
      await seen(olga, "2-owner-settings");

      await arrive(mia, await invite(/^Member/), name("mia"), name("Mia"));
      await arrive(vera, await invite(/^Viewer/), name("vera"), name("Vera"));

      // The member makes a key, and sees what he may spend.
      await go(mia, "keys?new=1");
      await mia.getByLabel("Name", { exact: true }).fill(name("job"));
      await mia.getByRole("button", { name: "Create key" }).click();
      const secret = await mia.getByLabel("The secret of the key").inputValue();
      await mia.getByRole("button", { name: "I have stored it" }).click();
      expect((await ask(secret)).status).toBe(200);
      await go(mia, "");
      await mia.getByRole("heading", { name: "What you may spend" }).waitFor();
      await mia.getByText("of 1,000 credits this month").first().waitFor();
      await seen(mia, "3-member-overview");

      // The owner gives the member a budget of his own, from the list.
      await go(olga, "members");
      const row = olga.getByRole("row", { name: name("Mia") });
      await row.getByText("of 1,000 this month").first().waitFor();
      await row.getByRole("button", { name: "Limits" }).click();
      await olga.getByLabel("A day").fill("50");
      await seen(olga, "4-owner-member-dialog");
      await save(olga);
      await row.getByText("of 50 today").first().waitFor();
      await seen(olga, "5-owner-members");
      await row.getByRole("link", { name: name("Mia") }).click();
      await olga.getByRole("heading", { name: "Keys used this month" }).waitFor();
      await olga.getByText("of 50 credits today").first().waitFor();
      await olga.getByRole("link", { name: name("job") }).waitFor();
      await seen(olga, "6-owner-member-page");

      // And the member's key limits, and addresses.
      await olga.getByRole("link", { name: name("job") }).click();
      await olga.getByRole("button", { name: "Edit" }).click();
      await olga.getByLabel("Daily cap").fill("20");
      await olga.getByLabel("Only from these addresses").fill("10.0.0.1/8");
      await olga.getByRole("dialog").getByRole("button", { name: "Save" }).click();
      await olga.getByText("10.0.0.0/8", { exact: false }).last().waitFor();
      await seen(olga, "7-owner-key-dialog");
      await olga.getByLabel("Only from these addresses").fill("192.0.2.0/24");
      await save(olga);
      await olga.getByText("of 20 credits today").waitFor();
      await expect.poll(async () => (await ask(secret)).status).toBe(403);
      await olga.getByRole("button", { name: "Edit" }).click();
      await olga.getByLabel("Only from these addresses").fill("");
      await olga.getByRole("button", { name: /^Add my address/ }).click();
      await olga.getByText(`The same caps for everything that ${name("Mia")} spends`).click();
      await save(olga);
      await expect.poll(async () => (await ask(secret)).status).toBe(200);
      await olga.getByText("127.0.0.1", { exact: true }).waitFor();
      await olga.getByText("of 20 credits today").waitFor();
      await seen(olga, "8-owner-key-page");

      // The member sees the bars, and can tighten, not raise.
      await go(mia, "keys");
      await mia.getByRole("link", { name: name("job") }).click();
      await mia.getByText("of 20 credits today").waitFor();
      await seen(mia, "9-member-key-page");
      await mia.getByRole("button", { name: "Edit" }).click();
      await mia.getByText("You may only tighten them.").waitFor();
      await mia.getByLabel("Daily cap").fill("30");
      await mia.getByRole("dialog").getByRole("button", { name: "Save" }).click();
      await mia.getByText("An owner has set the limits of this key").waitFor();
      expect(await isInSight(mia, "dialog [role=alert]")).toBe(true);
      await seen(mia, "10-member-cannot-raise");
      await mia.getByLabel("Daily cap").fill("10");
      await save(mia);
      await mia.getByText("of 10 credits today").waitFor();

      // What an owner pauses, the member sees, and does not resume; his own pause he ends.
      await go(olga, "keys");
      await olga.getByRole("button", { name: `Pause ${name("job")}` }).click();
      await olga.getByText(`${name("job")} is paused.`, { exact: false }).waitFor();
      await mia.getByText("Only an owner can resume it.").waitFor();
      expect(await mia.getByRole("button", { name: "Resume" }).count()).toBe(0);
      await seen(mia, "10b-member-key-paused");
      await go(mia, "keys?status=paused");
      await mia.getByRole("link", { name: name("job") }).waitFor();
      expect(await mia.getByRole("button", { name: /^Resume/ }).count()).toBe(0);
      await go(olga, "keys?status=paused");
      await olga.getByRole("button", { name: `Resume ${name("job")}` }).click();
      await olga.getByText(`${name("job")} works again.`).waitFor();
      await go(mia, "keys");
      await mia.getByRole("button", { name: `Pause ${name("job")}` }).click();
      await mia.getByRole("button", { name: `Resume ${name("job")}` }).click();
      await mia.getByRole("button", { name: `Pause ${name("job")}` }).click();
      await mia.getByRole("button", { name: `Resume ${name("job")}` }).waitFor();
      // Until an owner says that it stays.
      await olga.getByRole("link", { name: name("job") }).click();
      await olga.getByRole("button", { name: "Keep paused" }).click();
      await olga.getByRole("button", { name: "Keep paused" }).waitFor({ state: "detached" });
      await mia
        .getByRole("button", { name: `Resume ${name("job")}` })
        .waitFor({ state: "detached" });
      await olga.getByRole("button", { name: "Resume" }).click();

      // What the page shows is what a request meets.
      await go(olga, "members");
      await row.getByText("of 20 today").first().waitFor();
      await row
        .getByTitle(/of 1,000 this month/)
        .first()
        .waitFor();
      await row.getByRole("button", { name: "Limits" }).click();
      await olga.getByLabel("A day").fill("0.01");
      await save(olga);
      await row.getByText("of 0.01 today").first().waitFor();
      const refused = await ask(secret);
      expect(refused.status).toBe(402);
      expect(refused.message).toMatch(
        /^The daily budget of the manager of this key is reached: 0 credits of it are left/,
      );
      await go(mia, "");
      await mia.getByText("of 0.01 credits today").first().waitFor();
      await mia.getByRole("link", { name: "By key" }).click();
      await mia.getByRole("heading", { name: "Keys used this month" }).waitFor();
      expect(await mia.getByRole("button", { name: "Limits" }).count()).toBe(0);
      await seen(mia, "11-member-own-page");
      expect(await mia.getByRole("link", { name: "Members" }).count()).toBe(0);

      // A program of the owner makes keys, below the ceiling that he set.
      await go(olga, "settings");
      await olga.getByRole("heading", { name: "Data and leaving" }).scrollIntoViewIfNeeded();
      await olga.getByRole("button", { name: "New management key" }).click();
      await olga.getByLabel("Name", { exact: true }).fill(name("deploy"));
      await olga.getByLabel("Monthly cap").fill("300");
      await seen(olga, "12-owner-management-key");
      await olga.getByRole("dialog").getByRole("button", { name: "Create" }).click();
      const manager = await olga.getByLabel("The secret of the key").inputValue();
      await seen(olga, "13-owner-management-secret");
      await olga.getByRole("button", { name: "I have stored it" }).click();
      const managers = olga.getByRole("row", { name: name("deploy") });
      await managers.getByRole("button", { name: "Limits" }).click();
      await olga.getByLabel("In total").fill("700");
      await seen(olga, "13b-owner-management-limits");
      await save(olga);
      await managers.getByText("0.00 of 700 in total").first().waitFor();
      const above = { monthlyCapMicrocredits: "300000001" };
      expect(await createKey(manager, name("above"), above)).toMatchObject({ status: 400 });
      const made = await createKey(manager, name("agent"), {});
      expect([made.status, made.key?.monthlyCapMicrocredits]).toEqual([200, "300000000"]);
      await go(olga, "keys");
      await olga.getByRole("link", { name: name("agent") }).waitFor();
      await olga.getByText("of 300 this month").first().waitFor();
      await seen(olga, "14-owner-keys");

      // The viewer reads, and changes nothing.
      await go(vera, "");
      await vera.getByRole("heading", { name: "Newest requests" }).waitFor();
      expect(await vera.getByRole("heading", { name: "What you may spend" }).count()).toBe(0);
      await seen(vera, "15-viewer-overview");
      await go(vera, "keys");
      await vera.getByRole("link", { name: name("job") }).click();
      await vera.getByText("of 10 credits today").waitFor();
      expect(await vera.getByRole("button", { name: /Edit|Pause|Revoke|Rotate/ }).count()).toBe(0);
      await seen(vera, "16-viewer-key-page");
      await go(vera, "members");
      await vera.getByText("Only owners of an account see who belongs to it").waitFor();
      await go(vera, new URL(mia.url()).pathname.split("/").slice(3).join("/"));
      await vera.getByText("Only owners of an account see who belongs to it").waitFor();
      await seen(vera, "17-viewer-member-page");
      await go(vera, "settings");
      await vera.getByRole("heading", { name: "Data and leaving" }).scrollIntoViewIfNeeded();
      await vera.getByRole("button", { name: "Leave" }).waitFor();
      expect(await vera.getByText("What members may spend").count()).toBe(0);
      for (const page of [mia, vera]) await page.context().close();
      expect(problems.flat()).toEqual([]);
    });
});
