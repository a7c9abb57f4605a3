// Usage that answers why, walked at the widths of a phone and of a desk over charges of which no
// two days have the same figures: bars are opened, ranges chosen, parts left out, figures compared
// with the ledger, and views kept by an owner and by a viewer.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import { Client } from "pg";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { count, credits, dollars } from "../../src/console/web/format.ts";
import { hasChromium, leftDialog, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { price } from "../support/ledger.ts";

const widths = [360, 1440];
const password = "a long password";
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

type Sums = {
  readonly amount: bigint;
  readonly requests: bigint;
  readonly failed: bigint;
  readonly cut: bigint;
  readonly output: bigint;
  readonly saved: bigint;
  readonly refused: bigint;
};

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let db: Client;
  let origin = "";
  let page: Page;
  let problems: string[];
  let owner: BrowserContext;
  /** UTC days as `2026-11-22`, the oldest first: those of the last seven, the last one is today. */
  let days: string[];

  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    db = new Client({ connectionString: gateway.databaseUrl });
    await db.connect();
    const { rows } = await db.query(
      `select to_char(day, 'YYYY-MM-DD') as day from generate_series(
         (now() at time zone 'utc')::date - 6, (now() at time zone 'utc')::date, '1 day') day`,
    );
    days = rows.map(({ day }) => String(day));
    const { core, call } = gateway.admin;
    await core.keys.createKey(
      { accountId: gateway.accountId, family: Family.V1, settings: { name: "the third key" } },
      call,
    );
    await writeLedger(db, gateway.accountId);
    await core.billing.setBudget(
      {
        ...{ accountId: gateway.accountId, families: [Family.V1] },
        payer: { payer: { case: "pool", value: true } },
        limits: { monthlyMicrocredits: 777_000_000n },
      },
      call,
    );
    browser = await startChromium();
    owner = await signIn(gateway.ownerLink, "olga");
    ({ page, problems } = await pageOf(owner));
  });
  afterAll(async () => {
    await browser.close();
    await db.end();
    await gateway.stop();
  });

  /** A profile whose person came by a link. */
  async function signIn(link: string, login: string): Promise<BrowserContext> {
    const { hash } = new URL(link);
    const redeemed = await fetch(`${origin}/gateway.people.v1.SignInService/RedeemLink`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: hash.slice(1), login, name: login, password }),
    });
    const [name = "", value = ""] = (redeemed.headers.get("set-cookie") ?? "").split(/[=;]/);
    const context = await browser.newContext({ bypassCSP: true, reducedMotion: "reduce" });
    await context.addCookies([{ name, value, url: origin }]);
    return context;
  }

  async function pageOf(context: BrowserContext): Promise<{ page: Page; problems: string[] }> {
    const opened = await context.newPage();
    opened.setDefaultTimeout(20_000);
    const found: string[] = [];
    opened.on("pageerror", (error) => found.push(error.message));
    opened.on("console", (message) => {
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
        found.push(message.text());
    });
    return { page: opened, problems: found };
  }

  async function open(path: string, width: number): Promise<void> {
    await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
    await page.goto(`${origin}/console/${gateway.accountId}/${path}`);
    await page.getByText(/^(Credits|Dollars) spent$/).waitFor();
  }

  const shots = process.env.SCREENSHOTS;

  /** Nothing of the page is wider than the window, and axe finds nothing. */
  async function look(name: string, width: number): Promise<void> {
    if (shots) await page.screenshot({ path: `${shots}/${name}-${width}.png`, fullPage: true });
    const over = await page.evaluate<number>(
      "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    );
    expect([name, width, over]).toEqual([name, width, 0]);
    const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"));
    await page.addScriptTag({ content: axe.toString() });
    const { violations } = await page.evaluate<AxeResults>(
      `axe.run(document.querySelector("dialog[open]") ?? document,
        { runOnly: ${JSON.stringify(tags)}, resultTypes: ["violations"] })`,
    );
    expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
  }

  /** The sums of a time, from the charges and the counts of refusals. */
  async function ledger(from: string, to: string, condition = "true"): Promise<Sums> {
    const { rows } = await db.query(
      `select coalesce(sum(amount), 0)::text as amount, count(*)::text as requests,
         coalesce(sum(failed), 0)::text as failed, coalesce(sum(cut), 0)::text as cut,
         coalesce(sum(amount_output), 0)::text as output,
         coalesce(sum(cache_saved), 0)::text as saved,
         (select coalesce(sum(requests), 0)::text from errors_hourly
          where account_id = $1 and hour >= $2 and hour < $3) as refused
       from charge_sums
       where account_id = $1 and admitted_at >= $2 and admitted_at < $3 and ${condition}`,
      [gateway.accountId, `${from}+00`, `${to}+00`],
    );
    const of = (name: string) => BigInt(Object(rows[0])[name]);
    return {
      ...{ amount: of("amount"), requests: of("requests"), failed: of("failed"), cut: of("cut") },
      ...{ output: of("output"), saved: of("saved"), refused: of("refused") },
    };
  }

  const day = (index: number) => days[index] ?? "";
  const dayAfter = (index: number) => `${day(index)} 24:00`;
  const query = () => new URL(page.url()).searchParams;
  const bars = () => page.locator(".card").first().locator("g[data-bar]");
  const opened = () => page.locator(".card", { has: page.locator(".opened") });
  /** The cells of the last row of a table. */
  const footOf = (caption: string) =>
    page.getByRole("table", { name: caption, exact: true }).locator("tfoot :is(th, td)");
  const figure = (place: number) => page.locator(".figures dd.value").nth(place);

  /** Every sum of the panel is that of the bar, and both are those of the ledger. */
  async function comparePanel(from: string, to: string): Promise<void> {
    const { amount, requests, failed, cut, refused } = await ledger(from, to);
    expect(requests).toBeGreaterThan(1n);
    const money = credits(amount);
    await opened()
      .getByText(`${money} credits, ${count(requests)} requests`)
      .waitFor();
    for (const caption of ["Keys of this time", "Models of this time"])
      expect(await footOf(caption).allTextContents()).toEqual(["Total", count(requests), money]);
    expect(await footOf("Failed and cut off").allTextContents()).toEqual([
      "Total",
      count(failed + cut),
    ]);
    if (refused === 0n) await opened().getByText("None was refused.").waitFor();
    else expect(await footOf("Refused").allTextContents()).toEqual(["Total", count(refused)]);
  }

  for (const width of widths)
    describe(`at ${width} px`, () => {
      test("a click opens a day, whose sums are those of the bar and of its requests", async () => {
        await open("usage?period=7d", width);
        expect(await bars().count()).toBe(7);
        const totals: Sums[] = [];
        for (const [index, one] of days.entries()) totals.push(await ledger(one, dayAfter(index)));
        expect(new Set(totals.map(({ amount }) => amount)).size).toBe(7);
        const label = (await bars().nth(4).getAttribute("aria-label")) ?? "";
        expect(label.replace(/\s/g, " ")).toContain(
          `: ${credits(totals[4]?.amount ?? 0n)} credits`,
        );
        await bars().nth(4).click();
        await expect.poll(() => query().get("at")).toBe(day(4));
        expect(await bars().nth(4).getAttribute("aria-expanded")).toBe("true");
        await comparePanel(day(4), dayAfter(4));
        await look("opened", width);
        // Again: another day, whose sums are its own.
        await bars().nth(2).click();
        await expect.poll(() => query().get("at")).toBe(day(2));
        await comparePanel(day(2), dayAfter(2));
        await page.reload();
        await comparePanel(day(2), dayAfter(2));
        await page.getByRole("link", { name: "Open these requests" }).click();
        await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
        expect([query().get("from"), query().get("to")]).toEqual([day(2), day(2)]);
        const listed = page.getByRole("table", { name: /requests/i }).locator("tbody tr");
        await expect.poll(() => listed.count()).toBe(Number(totals[2]?.requests));
        await page.goBack();
        await comparePanel(day(2), dayAfter(2));
        await page.getByRole("button", { name: "Close", exact: true }).click();
        await expect.poll(() => opened().count()).toBe(0);
        expect(query().has("at")).toBe(false);
        // Each click is an entry of the history, however fast they follow.
        await page.evaluate(`(async () => {
          for (const place of [4, 2]) {
            document.querySelector(".card").querySelectorAll("g[data-bar] .bars-hit")[place]
              .dispatchEvent(new MouseEvent("click", { bubbles: true }));
            await new Promise(requestAnimationFrame);
          }
        })()`);
        await expect.poll(() => query().get("at")).toBe(day(2));
        await page.goBack();
        await expect.poll(() => query().get("at")).toBe(day(4));
      });

      test("a request that is settled late is in the open bar as soon as in the chart", async () => {
        await open("usage?period=7d", width);
        await bars().nth(5).click();
        await comparePanel(day(5), dayAfter(5));
        const hour = width === 360 ? "12" : "13";
        await settleLate(db, gateway.accountId, `req_late_${hour}`, `${day(5)} ${hour}:30+00`);
        const { amount } = await ledger(day(5), dayAfter(5));
        const label = async () => (await bars().nth(5).getAttribute("aria-label")) ?? "";
        await expect
          .poll(async () => (await label()).replace(/\s/g, " "), { timeout: 20_000 })
          .toContain(`: ${credits(amount)} credits`);
        await comparePanel(day(5), dayAfter(5));
      });

      test("an hour opens too, with the filters of the page, and so do its requests", async () => {
        await open(`usage?period=custom&from=${day(3)}&to=${day(3)}&model=model-1`, width);
        const hour = (await bars().count()) - 24 + 4;
        await bars().nth(hour).click();
        await expect.poll(() => query().get("at")).toBe(`${day(3)}T04:00`);
        const own = await ledger(`${day(3)} 04:00`, `${day(3)} 05:00`, "model = 'model-1'");
        const money = credits(own.amount);
        await opened()
          .getByText(`${money} credits, ${count(own.requests)} requests`)
          .waitFor();
        expect(await footOf("Keys of this time").allTextContents()).toEqual([
          ...["Total", count(own.requests), money],
        ]);
        await page.getByRole("link", { name: "Open these requests" }).click();
        await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
        expect(Object.fromEntries(query())).toEqual({
          ...{ model: "model-1", from: `${day(3)}T04:00`, to: `${day(3)}T05:00` },
        });
        const listed = page.getByRole("table", { name: /requests/i }).locator("tbody tr");
        await expect.poll(() => listed.count()).toBe(Number(own.requests));
        expect(await page.getByLabel("From (UTC)").inputValue()).toBe(`${day(3)}T04:00`);
      });

      test("by keys: Enter opens and closes a bar, Shift with an arrow chooses a range", async () => {
        await open("usage?period=7d", width);
        await bars().nth(5).focus();
        await page.keyboard.press("Enter");
        await expect.poll(() => query().get("at")).toBe(day(5));
        await comparePanel(day(5), dayAfter(5));
        await page.keyboard.press("Enter");
        await expect.poll(() => query().has("at")).toBe(false);
        await page.keyboard.press("Shift+ArrowLeft");
        await page.keyboard.press("Shift+ArrowLeft");
        expect(await page.locator(".card").first().locator(".is-active").count()).toBe(3);
        await page.keyboard.press("Escape");
        expect(await page.locator(".card").first().locator(".is-active").count()).toBe(0);
        await page.keyboard.press("Shift+ArrowRight");
        await page.keyboard.press("Enter");
        await expect.poll(() => query().get("period")).toBe("custom");
        expect([query().get("from"), query().get("to")]).toEqual([day(3), day(4)]);
        const { amount } = await ledger(day(3), dayAfter(4));
        await expect.poll(() => figure(0).textContent()).toBe(credits(amount));
      });

      test("dragging over bars chooses a range, which is an entry of the history", async () => {
        await open("usage?period=7d", width);
        const { amount } = await ledger(day(1), dayAfter(3));
        const before = await figure(0).textContent();
        await drag(1, 3);
        await expect.poll(() => query().get("period")).toBe("custom");
        expect([query().get("from"), query().get("to")]).toEqual([day(1), day(3)]);
        await expect.poll(() => figure(0).textContent()).toBe(credits(amount));
        await page.goBack();
        await expect.poll(() => figure(0).textContent()).toBe(before);
        expect(query().get("period")).toBe("7d");
        // Of hours, the range has hours.
        await page.goto(`${page.url().split("?")[0]}?period=custom&from=${day(3)}&to=${day(3)}`);
        await expect.poll(() => bars().count()).toBe(24);
        await drag(3, 4);
        await expect.poll(() => query().get("from")).toBe(`${day(3)}T03:00`);
        expect(query().get("to")).toBe(`${day(3)}T05:00`);
        const hours = await ledger(`${day(3)} 03:00`, `${day(3)} 05:00`);
        await expect.poll(() => figure(0).textContent()).toBe(credits(hours.amount));
        await look("hours", width);
      });

      async function drag(from: number, to: number): Promise<void> {
        const middleOf = async (place: number) => {
          const bar = bars().nth(place);
          await bar.scrollIntoViewIfNeeded();
          const box = await bar.locator(".bars-hit").boundingBox();
          if (!box) throw new Error("no bar");
          return [box.x + box.width / 2, box.y + box.height / 2] as const;
        };
        await page.mouse.move(...(await middleOf(from)));
        await page.mouse.down();
        await page.mouse.move(...(await middleOf(to)), { steps: 4 });
        await page.mouse.up();
      }

      test("a part that is left out is in no bar, and the address keeps it", async () => {
        await open("usage?period=7d", width);
        const { amount, output } = await ledger(day(0), dayAfter(6));
        await page.getByText("As table").first().click();
        const total = () => footOf("Credits per day").last().textContent();
        await expect.poll(total).toBe(`${credits(amount)} credits`);
        const entry = (name: string) =>
          page.locator(".bars-legend").first().getByRole("button", { name, exact: true });
        await entry("Output").click();
        await expect.poll(total).toBe(`${credits(amount - output)} credits`);
        expect(query().get("hide")).toBe("output");
        expect(await entry("Output").getAttribute("aria-pressed")).toBe("false");
        await page.reload();
        await page.getByText("As table").first().click();
        await expect.poll(total).toBe(`${credits(amount - output)} credits`);
        await look("legend", width);
        // With Shift it is alone, and a second time all are back.
        await entry("Output").click({ modifiers: ["Shift"] });
        await expect.poll(total).toBe(`${credits(output)} credits`);
        await entry("Output").focus();
        await page.keyboard.press("Shift+Enter");
        await expect.poll(total).toBe(`${credits(amount)} credits`);
        expect(query().has("hide")).toBe(false);
      });

      test("the small charts and the month have the sums of the page", async () => {
        await open("usage?period=7d", width);
        const all = await ledger(day(0), dayAfter(6));
        await page.getByText("This month so far").scrollIntoViewIfNeeded();
        await page.getByText("Outcomes per day").scrollIntoViewIfNeeded();
        await page.getByText("Refused per day").scrollIntoViewIfNeeded();
        const small = (label: string) =>
          page.locator("figure", { has: page.getByText(label, { exact: true }) });
        for (const label of ["Outcomes per day", "Refused per day", "First token per day"])
          await small(label).getByText("As table").click();
        expect(await footOf("Outcomes per day").allTextContents()).toEqual([
          "Total",
          ...[all.requests - all.failed - all.cut, all.failed, all.cut, all.requests].map(
            (one) => `${count(one)} requests`,
          ),
        ]);
        expect((await footOf("Refused per day").allTextContents()).at(-1)).toBe(
          `${count(all.refused)} requests`,
        );
        const saved = credits(all.saved / 1_000n);
        expect(await small("Saved by the cache per day").textContent()).toContain(
          `${saved} credits in all`,
        );
        const first = page.getByRole("table", { name: "First token per day" });
        expect((await first.locator("tbody tr").nth(1).allTextContents())[0]).toMatch(/≤ 0\.3 s/);
        const month = page.locator(".card", { has: page.getByText("This month so far") });
        await month.scrollIntoViewIfNeeded();
        await month.getByText("As table").click();
        const start = `${day(6).slice(0, 8)}01`;
        const sofar = await ledger(start, dayAfter(6));
        const today = Number(day(6).slice(8));
        await expect
          .poll(() => month.getByRole("row", { name: new RegExp(`^Day ${today} `) }).textContent())
          .toContain(`${credits(sofar.amount)} credits`);
        // Each pool has a line of its own, and its budget.
        await month.getByText("Choose a pool to see its budget.").waitFor();
        await month.getByRole("button", { name: "v1" }).click();
        const ofPool = await ledger(start, dayAfter(6), `"family" = 'v1'`);
        await month.getByText("The dashed line is the monthly limit of the pool v1.").waitFor();
        await expect
          .poll(() => month.getByRole("row", { name: new RegExp(`^Day ${today} `) }).textContent())
          .toMatch(new RegExp(`${credits(ofPool.amount)} credits.*777\\.00 credits$`));
        await month.getByRole("button", { name: "v2" }).click();
        await month.getByText("The budget of the pool v2 has no monthly limit.").waitFor();
        await look("multiples", width);
      });

      test("of budgets the month speaks only where one was read, of all that is shown", async () => {
        const month = page.locator(".card", { has: page.getByText("This month so far") });
        const read = async (query: string) => {
          await open(`usage?period=7d&${query}`, width);
          await month.scrollIntoViewIfNeeded();
          await month.getByText("As table").waitFor();
        };
        const ofBudget = month.getByText(/budget|limit of/i);
        await read("model=model-1");
        expect(await ofBudget.count()).toBe(0);
        const { rows } = await db.query(
          `select (select min(key_id) from keys where "family" = 'v1') as v1,
             (select min(key_id) from keys where "family" = 'v2') as v2`,
        );
        await read(`key=${rows[0]?.v2}`);
        await month.getByText("The budget of the key has no monthly limit.").waitFor();
        // A pool that was chosen counts no more once only the other one is left.
        await page.evaluate(
          `history.pushState(null, "", location.pathname + "?period=7d");
           dispatchEvent(new PopStateEvent("popstate"))`,
        );
        await page.getByText("Outcomes per day").waitFor();
        await month.scrollIntoViewIfNeeded();
        await month.getByRole("button", { name: "v1" }).click();
        await month.getByText("The dashed line is the monthly limit of the pool v1.").waitFor();
        await page.goBack();
        await month.getByText("The budget of the key has no monthly limit.").waitFor();
        await expect.poll(() => month.getByRole("button", { name: "v1" }).count()).toBe(0);
        const { amount } = await ledger(
          `${day(6).slice(0, 8)}01`,
          dayAfter(6),
          `key_id = '${rows[0]?.v2}'`,
        );
        await month.getByText("As table").click();
        const today = month.getByRole("row", {
          name: new RegExp(`^Day ${Number(day(6).slice(8))} `),
        });
        await expect.poll(() => today.textContent()).toContain(`${credits(amount)} credits`);
        // A call that fails says nothing of budgets.
        await page.route("**/GetKey", (route) => route.abort());
        await read(`key=${rows[0]?.v1}`);
        expect(await ofBudget.count()).toBe(0);
        await page.unroute("**/GetKey");
      });

      test("two groups, and dollars everywhere, have the same sums", async () => {
        await open("usage?period=7d&by=model", width);
        const { amount, requests } = await ledger(day(0), dayAfter(6));
        await page.getByLabel("Then by").selectOption("Key");
        await expect
          .poll(async () => (await footOf("By model, then key").allTextContents()).slice(0, 4))
          .toEqual(["All models", "", credits(amount), count(requests)]);
        expect(query().get("split")).toBe("key");
        const names = await page
          .locator(".bars-legend")
          .first()
          .getByRole("button")
          .allTextContents();
        expect(names[0]).toMatch(/^model-\d · /);
        await page.getByLabel("Money in").selectOption("Dollars");
        await expect.poll(() => figure(0).textContent()).toBe(dollars(amount));
        expect((await footOf("By model, then key").allTextContents())[2]).toBe(dollars(amount));
        await bars().nth(4).click();
        const bar = await ledger(day(4), dayAfter(4));
        await expect
          .poll(async () => (await footOf("Keys of this time").allTextContents()).at(-1))
          .toBe(dollars(bar.amount));
        expect(await page.locator("main").textContent()).not.toMatch(/[\d.]\s?credits/);
        await look("dollars", width);
      });

      test("views are saved, opened and deleted: own ones, and those of the account", async () => {
        await open("usage?period=7d&by=key", width);
        const shared = `Aufwand 週ごと الإنفاق ${width}`.padEnd(60, "…");
        await saveView(page, shared, true);
        await open("usage?period=13m&in=tokens", width);
        await saveView(page, "own", false);
        await open("usage", width);
        await page.getByRole("button", { name: "Views" }).click();
        await look("views", width);
        await page.getByRole("link", { name: shared }).click();
        await expect.poll(() => Object.fromEntries(query())).toEqual({ period: "7d", by: "key" });

        // A viewer has the account's, keeps own ones, and cannot delete what is of all.
        const { accountId } = gateway;
        const link = await page.evaluate<string>(
          `fetch("/gateway.people.v1.MembersService/CreateInvitation", {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: ${JSON.stringify(JSON.stringify({ accountId, role: "ACCOUNT_ROLE_VIEWER" }))},
          }).then((answer) => answer.json()).then(({ link }) => link)`,
        );
        const viewer = await signIn(link, `viewer-${width}`);
        const other = await pageOf(viewer);
        await other.page.setViewportSize({ width, height: 800 });
        await other.page.goto(`${origin}/console/${accountId}/requests`);
        await other.page.getByRole("button", { name: "Views" }).click();
        await other.page.getByRole("link", { name: shared }).waitFor();
        expect(await other.page.getByRole("link", { name: "own", exact: true }).count()).toBe(0);
        const remove = `Delete the view ${shared}`;
        expect(await other.page.getByRole("button", { name: remove }).count()).toBe(0);
        await other.page.keyboard.press("Escape");
        await saveView(other.page, "of the viewer", false);
        await other.page.getByRole("button", { name: "Views" }).click();
        await other.page.getByRole("link", { name: "of the viewer" }).waitFor();
        expect(other.problems).toEqual([]);
        await viewer.close();

        for (const name of ["own", shared]) {
          await page.getByRole("button", { name: "Views" }).click();
          await page.getByRole("button", { name: `Delete the view ${name}` }).click();
          await page.getByText(`“${name}” is deleted.`).waitFor();
          await page.keyboard.press("Escape");
        }
        await page.getByRole("button", { name: "Views" }).click();
        await page.getByText("No view is saved so far.").waitFor();
      });
    });

  async function saveView(on: Page, name: string, forAll: boolean): Promise<void> {
    await on.getByRole("button", { name: "Views" }).click();
    await on.getByRole("button", { name: "Save this view" }).click();
    const dialog = on.getByRole("dialog");
    await dialog.getByLabel("Name").fill(name);
    if (forAll) await dialog.getByLabel("For everybody in the account").check();
    await dialog.getByRole("button", { name: "Save this view" }).click();
    await dialog.waitFor({ state: "detached" });
    await leftDialog(on);
  }

  test("nothing of it made the console complain", () => expect(problems).toEqual([]));
});

/** Charges and refusals of the last seven days, with their sums. Days differ in every figure. */
async function writeLedger(db: Client, accountId: string): Promise<void> {
  await db.query("update accounts set created_at = now() - interval '100 days'");
  await db.query(
    `do $$ declare first date; begin
       for first in select distinct date_trunc('month', day)::date
         from generate_series((now() at time zone 'utc')::date - 6, now(), '1 day') day
       loop
         execute format('create table if not exists %I partition of charges for values from (%L) to (%L)',
           to_char(first, '"charges_"YYYY_MM'), first, first + interval '1 month');
       end loop;
     end $$`,
  );
  await db.query(
    "insert into price_versions values ($1, 'model-1', $2, $3, $4, $5, $6, $7) on conflict do nothing",
    [
      ...[price.priceVersion, price.input, price.output, price.cacheWrite5m, price.cacheWrite1h],
      ...[price.cacheRead, price.thinking],
    ],
  );
  await db.query(
    `with rows as (
       select row_number() over () as n, d, h, k.key_id, k."family",
         ((now() at time zone 'utc')::date - d)::timestamp + h * interval '1 hour' as at
       from generate_series(0, 6) d,
         lateral (select * from unnest(array[0, 3, 4, 23]) h where d > 0 or h = 0) hours,
         lateral (select key_id, "family" from keys where account_id = $1 order by key_id) k,
         lateral generate_series(1, 1 + (d + h) % 3) again
     ), costed as (
       select *, 1000 * n * n as input, 7 * n as output, 5 * n as thinking, 300 * n * n as reads,
         11 * n as writes
       from rows
     ), priced as (
       select *, (input * $3::bigint + output * $4::bigint + thinking * $5::bigint
         + reads * $6::bigint + writes * $7::bigint + 999) / 1000 as amount
       from costed
     )
     insert into charges (account_id, request_id, month, "family", key_id, model, input, output,
       thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, price_version,
       granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis, attempts,
       admitted_at, settled_at, tags)
     select $1, 'req_walk_' || lpad(n::text, 7, '0'), date_trunc('month', at)::date, "family", key_id,
       'model-' || n % 4, input, output, thinking, writes, 0, reads, 0, $2, 1000000, amount, amount,
       0, 0, 0,
       case n % 5 when 0 then 'client_left' when 1 then 'provider_broke' when 2 then 'time_limit'
         else 'completed' end,
       'reported', '[]', at at time zone 'utc' + n % 50 * interval '1 second',
       at at time zone 'utc' + interval '1 minute', null
     from priced`,
    [
      ...[accountId, price.priceVersion, price.input, price.output, price.thinking],
      ...[price.cacheRead, price.cacheWrite5m],
    ],
  );
  await book(db, accountId, "req_walk_%");
  // Days that were closed before are closed again, from these hours.
  await db.query(
    `update usage_progress
     set closed_to = '0001-01-01', hours_from = '0001-01-01', tags_to = '0001-01-01'`,
  );
  await db.query(
    `insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
     select $1, date_trunc('day', now(), 'UTC') - d * interval '1 day' + h * interval '1 hour',
       (select min(key_id) from keys where account_id = $1), reason, 3 + d * d + h * 2 + place,
       now()
     from generate_series(1, 6) d, unnest(array[3, 23]) h,
       unnest(array['rate_limited', 'credits_exhausted', 'key_paused']) with ordinality
         as r (reason, place)`,
    [accountId],
  );
}

/** A charge of a past hour that has no other, as a request brings it that ran for long. */
async function settleLate(db: Client, accountId: string, id: string, at: string): Promise<void> {
  await db.query(
    `insert into charges
     select (jsonb_populate_record(c, jsonb_build_object('request_id', $2::text,
       'admitted_at', $3::timestamptz, 'month', date_trunc('month', $3::timestamptz, 'UTC')::date,
       'settled_at', now()))).*
     from charges c where account_id = $1 order by request_id limit 1`,
    [accountId, id, at],
  );
  await book(db, accountId, id);
}

/** Adds the charges with such ids to the hours, the budgets and the pools. */
async function book(db: Client, accountId: string, ids: string): Promise<void> {
  await db.query(
    `insert into usage_hourly (account_id, key_id, model, hour, input, output, thinking,
       cache_write_5m, cache_write_1h, cache_read, amount, amount_input, amount_output,
       amount_cache, amount_thinking, requests, completed, failed, cut, cache_saved, first_event_3)
     select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(input),
       sum(output), sum(thinking), sum(cache_write_5m), sum(cache_write_1h), sum(cache_read),
       sum(amount), sum(amount_input), sum(amount_output), sum(amount_cache), sum(amount_thinking),
       sum(requests), sum(completed), sum(failed), sum(cut), sum(cache_saved), count(*)
     from charge_sums where account_id = $1 and request_id like $2
     group by 1, 2, 3, 4`,
    [accountId, ids],
  );
  await db.query(
    `update budgets b set spent = spent + s.amount
     from (
       select key_id, sum(amount)::bigint as amount
       from charges where request_id like $1 group by 1
     ) s
     where s.key_id = b.payer`,
    [ids],
  );
  await db.query(
    `update pools p set spent = spent + s.amount, posted = posted - s.amount, in_debt = true
     from (
       select account_id, "family", sum(amount)::bigint as amount
       from charges where request_id like $1 group by 1, 2
     ) s
     where s.account_id = p.account_id and s."family" = p."family"`,
    [ids],
  );
}
