// The whole way of a customer in Chromium: from the first start to a revoked key. And what pages do
// when something changes under them.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const password = "a long password";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  /** Of the first operator, from his first link on. */
  let page: Page;
  let problems: string[] = [];
  let origin = "";
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin });
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  const at = (path: string) => `${origin}/console/${gateway.accountId}${path}`;

  /** Sends one paid request. Resolves with the status. */
  async function ask(secret: string): Promise<number> {
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
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    await answer.arrayBuffer();
    return answer.status;
  }

  const secretOnScreen = () => page.getByLabel("The secret of the key").inputValue();
  const figure = (label: string) =>
    page.locator(".figures > div", { hasText: label }).locator(".value").textContent();

  test("from the first start to a paid request, a new secret, bought credits and the end", async () => {
    // The first start, with a passkey.
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga@example.com");
    await page.getByLabel("Your name").fill("Olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();

    // A key, and its first request, seen live.
    await page.getByLabel("Name", { exact: true }).fill("ci");
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByText("Waiting for your first request").waitFor();
    const first = await secretOnScreen();
    expect(first).toMatch(/^sk-gw2-1/);
    // What is shown to paste works as it is.
    const snippet = await page.locator(".snippet pre").first().textContent();
    expect(snippet).toContain(`export GATEWAY_KEY=${first}\n`);
    expect(await ask(first)).toBe(200);
    await page.getByText("Your first request has arrived: model-haiku").waitFor();
    await page.getByRole("link", { name: "Open the console" }).click();
    await page.getByRole("heading", { name: "Overview" }).waitFor();

    // What it cost.
    await page.getByRole("link", { name: "Usage", exact: true }).first().click();
    await page.getByRole("heading", { name: "Usage" }).waitFor();
    await expect.poll(() => figure("Requests")).toBe("1");
    expect(Number(await figure("Credits spent"))).toBeGreaterThanOrEqual(0);

    // A new secret; the old one dies.
    await page.getByRole("link", { name: "Keys", exact: true }).click();
    await page.getByRole("link", { name: "ci", exact: true }).click();
    await page.getByRole("button", { name: "Rotate" }).click();
    await page.getByText("the old one works until").waitFor();
    await page.getByRole("button", { name: "now", exact: true }).click();
    await page.getByRole("button", { name: "Make a new secret" }).click();
    await page.getByRole("heading", { name: "ci has a new secret" }).waitFor();
    const second = await secretOnScreen();
    expect(second).not.toBe(first);
    // Closing before it was copied asks once.
    await page.keyboard.press("Escape");
    await page.getByText("You have not copied the secret.").waitFor();
    await page.getByRole("button", { name: "Back to the secret" }).click();
    await page.getByRole("button", { name: "Copy", exact: true }).first().click();
    expect(await page.evaluate("navigator.clipboard.readText()")).toBe(second);
    await page.getByRole("button", { name: "I have stored it" }).click();
    expect(await ask(second)).toBe(200);
    await expect.poll(() => ask(first)).toBe(401);
    // The secret is nowhere any more, also not behind the back button.
    await leftDialog(page);
    await page.goBack();
    await page.goForward();
    await page.getByRole("heading", { name: "ci" }).waitFor();
    expect(await page.content()).not.toContain(second);
    expect(page.url()).not.toContain(second);

    // Credits, by the processor that only pretends.
    await page.getByRole("link", { name: "Credits", exact: true }).click();
    await page.getByRole("link", { name: "Buy credits for the v1 pool" }).click();
    await page.locator("main").getByText("1,000.00 credits").click();
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("USDT on TRON", { exact: true }).click();
    await page.getByRole("button", { name: "Order for $5" }).click();
    await page.getByText("Nothing has arrived yet.").waitFor();
    const orderId = new URL(page.url()).pathname.split("/").at(-1) ?? "";
    const { payments } = gateway.admin.core;
    const event = { case: "deposit", value: { coins: "5", confirmations: 1 } } as const;
    await payments.simulateDeposit({ orderId, event }, gateway.admin.call);
    await page.getByText("Paid. 1,000.00 credits were added to the v1 pool.").waitFor();
    await page.getByRole("link", { name: /^Receipt R/ }).click();
    await page.getByRole("button", { name: "Print" }).waitFor();

    // The end of the key. A pause is offered first, and its name has to be typed.
    await page.getByRole("link", { name: "Keys", exact: true }).click();
    await page.getByRole("link", { name: "ci", exact: true }).click();
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    await page.getByRole("button", { name: "Pause it instead" }).waitFor();
    await page.getByLabel("Type ci to confirm").fill("c");
    await page.getByRole("button", { name: "Revoke ci" }).click();
    await page.getByText("This is not the name of the key.").waitFor();
    expect(await ask(second)).toBe(200);
    await page.getByLabel("Type ci to confirm").fill("ci");
    await page.getByRole("button", { name: "Revoke ci" }).click();
    await page.getByText("ci is revoked.").waitFor();
    expect(await ask(second)).toBe(401);
    expect(problems).toEqual([]);
  });

  test("a pause refuses requests and a resumption takes them again", async () => {
    await page.goto(at("/keys?new=1"));
    await page.getByLabel("Name", { exact: true }).fill("nightly");
    await page.getByText("Limits", { exact: true }).click();
    await page.getByLabel("Requests a minute").fill("5");
    await page.getByLabel("The same in dollars").fill("1");
    expect(await page.getByLabel("Monthly cap").inputValue()).toBe("200");
    await page.getByRole("radio", { name: /Only these/ }).check();
    await page.getByRole("checkbox", { name: /haiku/i }).check();
    await page.getByRole("button", { name: "Create key" }).click();
    const secret = await secretOnScreen();
    await page.getByRole("button", { name: "Copy", exact: true }).first().click();
    await page.getByRole("button", { name: "I have stored it" }).click();
    expect(await ask(secret)).toBe(200);

    const row = page.getByRole("row", { name: /nightly/ });
    await row.getByRole("button", { name: "Pause" }).click();
    await page.getByText("nightly is paused.").waitFor();
    expect(await ask(secret)).toBe(403);
    await row.getByRole("button", { name: "Resume" }).click();
    await page.getByText("nightly works again.").waitFor();
    expect(await ask(secret)).toBe(200);
    expect(await row.textContent()).toContain(" of 200");
  });

  test("two people who change one key at once do not undo each other's changes", async () => {
    const other = await page.context().newPage();
    for (const one of [page, other]) {
      await one.goto(at("/keys"));
      await one.getByRole("link", { name: "nightly" }).click();
      await one.getByRole("button", { name: "Edit" }).click();
      await one.getByRole("heading", { name: "Edit nightly" }).waitFor();
    }
    await page.getByLabel("Requests a minute").fill("7");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
    await other.getByLabel("Name", { exact: true }).fill("<b>nightly</b> 🧪");
    await other.getByRole("button", { name: "Save" }).click();
    await other.getByRole("heading", { name: "<b>nightly</b> 🧪" }).waitFor();
    await expect
      .poll(() => other.locator(".figures > div", { hasText: "Requests a minute" }).textContent())
      .toContain("7");
    await other.close();
  });

  test("a mistake stands at its field, costs nothing, and loses nothing that was typed", async () => {
    await page.goto(at("/keys?new=1"));
    await page.getByLabel("Name", { exact: true }).fill("x".repeat(201));
    await page.getByRole("button", { name: "Create key" }).click();
    const name = page.getByLabel("Name", { exact: true });
    await expect.poll(() => name.getAttribute("aria-invalid")).toBe("true");
    expect(await name.inputValue()).toBe("x".repeat(201));
    await name.fill("late");
    await page.getByText("Limits", { exact: true }).click();
    await page.getByLabel("Monthly cap").fill("a lot");
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByText("This is not an amount of credits.").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await page.getByRole("row", { name: /late/ }).count()).toBe(0);
    await leftDialog(page);
  });

  test("a session that ends while a form is filled in is renewed in place", async () => {
    await page.goto(at("/settings"));
    await page.getByRole("button", { name: "Set a password" }).click();
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Set a password" }).last().click();
    await page.getByText("The password is set.").waitFor();

    await page.goto(at("/keys?new=1"));
    await page.getByLabel("Name", { exact: true }).fill("typed before");
    await page.context().clearCookies();
    await page.getByRole("button", { name: "Create key" }).dispatchEvent("click");
    await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
    await page.getByRole("button", { name: "Use a password" }).click();
    await page.getByLabel("Login").fill("olga@example.com");
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    // The call that failed was repeated.
    await page.getByRole("heading", { name: "typed before is ready" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Close without it" }).click();
    await page.getByRole("link", { name: "typed before" }).waitFor();
    expect(await page.getByRole("link", { name: "typed before" }).count()).toBe(1);
  });

  test("what another tab revoked is told, and the page follows", async () => {
    await page.goto(at("/keys"));
    await page.getByRole("link", { name: "typed before" }).click();
    await page.getByRole("button", { name: "Edit" }).click();
    const { keys } = gateway.admin.core;
    const keyId = new URL(page.url()).pathname.split("/").at(-1) ?? "";
    await keys.revokeKey({ keyId }, gateway.admin.call);
    await page.getByLabel("Name", { exact: true }).fill("too late");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").filter({ hasText: "revoked" }).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    // A dialog is an entry of the history: a navigation would meet the way back from it.
    await expect.poll(() => page.evaluate("history.state?.isDialog === true")).toBe(false);
    const { key } = await keys.getKey({ keyId }, gateway.admin.call);
    expect(key).toMatchObject({ name: "typed before", revokedAt: expect.anything() });
  });

  test("without a gateway the page says so, keeps what it shows, and comes back", async () => {
    await page.goto(at("/keys"));
    await page.getByRole("link", { name: "nightly" }).waitFor();
    await page.context().setOffline(true);
    await page.getByRole("button", { name: "Pause" }).first().click();
    await page.getByText("No answer from the gateway.").waitFor();
    expect(await page.getByRole("link", { name: "nightly" }).count()).toBe(1);
    await page.context().setOffline(false);
    await page.goto(at("/members"));
    await page.getByRole("heading", { name: "Members" }).waitFor();
  });

  test("somebody is invited, joins, changes the role, and is removed", async () => {
    await page.goto(at("/members"));
    await page.getByRole("button", { name: "Invite" }).click();
    await page.getByRole("radio", { name: /^Viewer/ }).check();
    await page.getByRole("button", { name: "Make the invitation" }).click();
    const link = await page.getByLabel("Invitation link").inputValue();
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("table", { name: /^Invitations/ }).waitFor();

    const invited = await openPage(browser);
    await invited.page.goto(link);
    await invited.page.getByLabel("Login").fill("vic");
    await invited.page.getByLabel("Your name").fill("<i>Vic</i>");
    await invited.page.getByRole("button", { name: "Create a passkey" }).click();
    await invited.page.getByRole("heading", { name: "Overview" }).waitFor();
    // A viewer is offered nothing that a viewer cannot do.
    expect(await invited.page.getByRole("link", { name: "Create a key" }).count()).toBe(0);
    expect(await invited.page.getByRole("link", { name: "Members" }).count()).toBe(0);

    await page.reload();
    const row = page.getByRole("row", { name: /<i>Vic<\/i>/ });
    await row.getByRole("combobox").selectOption("member");
    await page.getByText("<i>Vic</i> is Member now.").waitFor();
    const { people } = gateway.admin.core;
    const { accountId } = gateway;
    const { members } = await people.listMembers({ accountId }, gateway.admin.call);
    expect(members.find(({ login }) => login === "vic")?.role).toBe(AccountRole.MEMBER);

    await row.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Remove <i>Vic</i>" }).click();
    await page.getByText("<i>Vic</i> is no longer a member.").waitFor();
    await invited.page.reload();
    await invited.page
      .getByRole("heading", { name: /^(You belong to no account|There is no such)/ })
      .waitFor();
    expect(invited.problems).toEqual([]);
  });

  test("the last way in and the last owner stay, and the page says why", async () => {
    await page.goto(at("/settings"));
    await page.getByRole("button", { name: "Leave", exact: true }).click();
    await page.getByRole("button", { name: "Leave the account" }).click();
    await page.getByRole("dialog").getByRole("alert").filter({ hasText: /owner/ }).waitFor();
    const { accountId } = gateway;
    const { members } = await gateway.admin.core.people.listMembers(
      { accountId },
      gateway.admin.call,
    );
    expect(members.map(({ role }) => role)).toEqual([AccountRole.OWNER]);
  });
});
