// 5,000 keys by hand, at the widths of a phone and of a desk: they are found, grouped, picked and
// changed together, while somebody else changes some of them. What the page costs on the wire.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { query } from "../support/query.ts";

const keysMade = 5_000;
const wireBytesMax = 60_000;
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let postgres: Postgres;
  let browser: Browser;
  let page: Page;
  let problems: string[] = [];
  let origin = "";
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    ({ origin } = new URL(gateway.ownerLink));
    postgres = connectPostgres(gateway.databaseUrl);
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    page.setDefaultTimeout(30_000);
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).waitFor();
    await seed();
  });
  afterAll(async () => {
    await browser.close();
    // The figures are nobody's charges, and the ledger is verified at its end.
    await run("no days", "delete from usage_daily");
    await run("no spend", "update budgets set spent = 0 where account_id = $1", [
      gateway.accountId,
    ]);
    await postgres.close();
    await gateway.stop();
  });

  const run = <Row>(name: string, text: string, values: unknown[] = []) =>
    query<Row>(postgres, { name: `test/${name}`, text }, values);

  /** Keys with names of 60 characters in three scripts, tags of 10,000 values, and 30 days each. */
  async function seed(): Promise<void> {
    const { accountId } = gateway;
    await run(
      "keys",
      `with made as (
         insert into keys (key_id, account_id, family, name, created_by, created_at, expires_at)
         select 'key_' || lpad(n::text, 5, '0') || md5(n::text), $1, 'v1',
           'Größter Schlüssel Ключ производства 生产环境密钥 des Hauses ' || lpad(n::text, 4, '0'), '',
           now() - interval '100 days',
           case when n % 100 = 0 then now() + interval '3 days' end
         from generate_series(1, $2::int) n returning key_id, substr(key_id, 5, 5)::int as n
       ), budgeted as (
         insert into budgets (account_id, family, payer, spent, day, last_used_at, month_limit)
         select $1, 'v1', key_id, n, (now() at time zone 'utc')::date,
           now() - n % 30 * interval '5 days', case when n % 250 = 0 then n end from made
       ), tagged as (
         insert into key_tags (key_id, account_id, tag, value)
         select key_id, $1, t.tag, t.value from made
         cross join lateral (values ('team', 'команда ' || n % 12), ('job', 'job-' || n),
           ('run', 'run-' || n)) t (tag, value)
       ), used as (
         insert into usage_daily (account_id, key_id, model, day, amount)
         select $1, key_id, 'm', (now() at time zone 'utc')::date - d,
           (n * 37 + d * d * 1009) % 900000
         from made cross join generate_series(3, 29) d
       )
       insert into key_secrets (digest, secret_id, key_id, shown)
       select sha256(key_id::bytea), 'sec_' || md5('s' || key_id), key_id,
         'sk-gw2-1' || left(md5('a' || key_id), 4) || '…' || left(md5('b' || key_id), 4)
       from made`,
      [accountId, keysMade],
    );
    await run(
      "closed",
      "update usage_progress set closed_to = (now() at time zone 'utc')::date - 2",
    );
    await run("analyze", "analyze keys, budgets, key_tags, usage_daily");
  }

  const shots = process.env.SCREENSHOTS;

  /** Nothing is wider than the window, and axe finds nothing. Pictures are kept where asked for. */
  async function look(name: string, width: number): Promise<void> {
    if (shots)
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        await page.screenshot({ path: `${shots}/${name}-${width}-${colorScheme}.png` });
      }
    await page.emulateMedia({ colorScheme: "light" });
    const over = await page.evaluate<number>(
      "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    );
    expect([name, width, over]).toEqual([name, width, 0]);
    const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"));
    await page.evaluate(axe.toString());
    const { violations } = await page.evaluate<AxeResults>(
      `axe.run({ runOnly: ${JSON.stringify(tags)} })`,
    );
    expect(violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`)).toEqual([]);
  }

  const keysPage = (search = "") =>
    page.goto(`${origin}/console/${gateway.accountId}/keys${search}`);
  const row = (n: number) =>
    page.getByRole("row", { name: new RegExp(`Hauses ${String(n).padStart(4, "0")}\\b`) });
  const box = (n: number) => row(n).getByRole("checkbox");
  const bar = () => page.getByRole("region", { name: "Picked keys" });
  const picked = () => bar().getByRole("status").textContent();
  const dialog = () => page.getByRole("dialog");
  const message = () => page.locator(".message").textContent();
  const statusesOf = async (keyIds: readonly string[]) => {
    const { core, call } = gateway.admin;
    const answer = await core.keys.listKeys(
      { accountId: gateway.accountId, keyIds: [...keyIds], onlyIds: true, pageSize: 1000 },
      call,
    );
    return answer.keys.map(({ state: status }) => status);
  };
  const idsOf = async (...numbers: readonly number[]) => {
    const rows = await run<{ keyId: string }>(
      "ids",
      `select key_id as "keyId" from keys where account_id = $1 and name like any($2) order by 1`,
      [gateway.accountId, numbers.map((n) => `%Hauses ${String(n).padStart(4, "0")}`)],
    );
    return rows.map(({ keyId }) => keyId);
  };

  test("the page of 5,000 keys is small on the wire, in all of its calls", async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Network.enable");
    const calls = new Map<string, string>();
    const bytes = new Map<string, number>();
    cdp.on("Network.requestWillBeSent", ({ requestId, request }) => {
      const method = /\/(gateway\.[^?]*)/.exec(request.url)?.[1];
      if (method) calls.set(requestId, method);
    });
    cdp.on("Network.dataReceived", ({ requestId, encodedDataLength }) => {
      bytes.set(requestId, (bytes.get(requestId) ?? 0) + encodedDataLength);
    });
    await keysPage();
    await row(5000).waitFor();
    await page.getByRole("button", { name: "Near their budget" }).waitFor();
    const sizeOfLists = () =>
      [...calls].map(([id, method]) => (method.endsWith("/ListKeys") ? (bytes.get(id) ?? 0) : 0));
    await expect.poll(() => Math.max(...sizeOfLists())).toBeGreaterThan(1_000);
    await cdp.detach();
    const sizes = [...calls].map(([id, method]) => [method, bytes.get(id) ?? 0] as const);
    const all = sizes.reduce((sum, [, size]) => sum + size, 0);
    console.info(`the page of ${keysMade} keys: ${all} bytes on the wire`, sizes);
    // One call has the keys, their days and the counts.
    expect(sizeOfLists().filter((size) => size > 0)).toHaveLength(1);
    expect(all).toBeLessThan(wireBytesMax);
  });

  for (const [index, width] of [1440, 360].entries())
    test(`keys are found, picked and changed together at ${width} px`, async () => {
      const base = 1_000 * (index + 1);
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await keysPage();
      await row(4980).waitFor();
      expect(await row(4980).locator("svg.spark").getAttribute("aria-label")).toMatch(
        /credits in 30 days, UTC$/,
      );
      await look("keys", width);

      // Three keys by the keyboard, of a search by the service; a pause, which is undone.
      await page.getByRole("searchbox", { name: "Name or hint" }).fill(`Hauses ${base / 100 + 1}0`);
      await row(base + 101).waitFor();
      await box(base + 101).focus();
      await page.keyboard.press("Space");
      await expect.poll(picked).toBe("1 key picked");
      await box(base + 102).check();
      await box(base + 103).check();
      await expect.poll(picked).toBe("3 keys picked");
      await look("keys-picked", width);
      const three = await idsOf(base + 101, base + 102, base + 103);
      await bar().getByRole("button", { name: "Pause" }).click();
      await dialog().getByRole("heading", { name: "Pause 3 keys" }).waitFor();
      await dialog().getByText("New requests are refused until you resume them.").waitFor();
      await look("keys-pause", width);
      await dialog().getByRole("button", { name: "Pause 3 keys" }).click();
      await expect.poll(message).toContain("3 keys were paused.");
      await leftDialog(page);
      expect(await statusesOf(three)).toEqual(three.map(() => KeyState.PAUSED));
      await page.getByRole("button", { name: "Undo" }).click();
      await expect.poll(message).toContain("3 keys were resumed.");
      expect(await statusesOf(three)).toEqual(three.map(() => KeyState.ACTIVE));
      expect(await bar().count()).toBe(0);

      // Limits: only what is named. One of the keys is changed elsewhere meanwhile.
      for (const n of [101, 102, 103]) await box(base + n).check();
      await bar().getByRole("button", { name: "Set limits" }).click();
      await dialog().getByLabel("Daily cap", { exact: true }).selectOption("becomes");
      await dialog().getByLabel("Daily cap: new value").fill("12");
      await look("keys-limits", width);
      const { core, call } = gateway.admin;
      await core.keys.updateKey(
        {
          keyId: three[1] ?? "",
          settings: { name: "changed elsewhere" },
          updateMask: { paths: ["name"] },
        },
        call,
      );
      await dialog().getByRole("button", { name: "Set limits of 3 keys" }).click();
      await dialog().getByRole("heading", { name: "Not all were changed" }).waitFor();
      await dialog().getByText("1 key was changed by somebody else").waitFor();
      await dialog().getByText("changed elsewhere: Active").waitFor();
      await look("keys-left", width);
      await dialog().getByRole("button", { name: "OK" }).click();
      await leftDialog(page);
      await expect.poll(picked).toBe("1 key picked");
      const caps = async () =>
        Promise.all(
          three.map(async (keyId) => {
            const { key } = await core.keys.getKey({ keyId }, call);
            return [key?.dailyCapMicrocredits, key?.monthlyCapMicrocredits];
          }),
        );
      const none = [undefined, undefined];
      const twelve = [12_000_000n, undefined];
      expect(await caps()).toEqual([twelve, none, twelve]);
      // It is still picked, as it is now: once more.
      await bar().getByRole("button", { name: "Set limits" }).click();
      await dialog().getByRole("button", { name: "Set limits of 1 key" }).click();
      await dialog().getByText("Choose at least one limit.").waitFor();
      await dialog().getByLabel("Daily cap", { exact: true }).selectOption("becomes");
      await dialog().getByLabel("Daily cap: new value").fill("12");
      await dialog().getByRole("button", { name: "Set limits of 1 key" }).click();
      await expect.poll(message).toContain("1 key was changed.");
      await leftDialog(page);
      expect(await caps()).toEqual([twelve, twelve, twelve]);
    });

  for (const [index, width] of [1440, 360].entries())
    test(`keys are tagged, grouped and revoked by their tag at ${width} px`, async () => {
      const team = `équipe ${index}`;
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await keysPage(`?q=Hauses+${3 + index}99`);
      await row(3990 + index * 1000).waitFor();
      await page.getByRole("checkbox", { name: "Pick the keys on this page" }).check();
      await expect.poll(picked).toBe("10 keys picked");
      await bar().getByRole("button", { name: "Tags" }).click();
      // Of 10,000 values, those that begin so are offered.
      const field = dialog().getByLabel("Set");
      await field.fill("job=job-49");
      await page.locator('datalist option[value="job=job-4900"]').waitFor({ state: "attached" });
      expect(await page.locator("datalist option").count()).toBeLessThanOrEqual(20);
      await field.fill(`team=${team}`);
      await dialog().getByLabel("Remove").fill("run");
      await look("keys-tags", width);
      await dialog().getByRole("button", { name: "Tags of 10 keys" }).click();
      await expect.poll(message).toContain("10 keys were changed.");
      await leftDialog(page);

      await keysPage("?group=team");
      await page.getByRole("link", { name: team }).waitFor();
      await look("keys-groups", width);
      await page.getByRole("link", { name: team }).click();
      await expect.poll(() => page.locator("tbody tr").count()).toBe(10);
      expect(new URL(page.url()).searchParams.get("tag")).toBe(`team=${team}`);
      await page.getByRole("checkbox", { name: "Pick the keys on this page" }).check();
      await bar().getByRole("button", { name: "Revoke" }).click();
      await dialog().getByText("This cannot be undone.").waitFor();
      await dialog().getByLabel("Type 10 to confirm").fill("11");
      await dialog().getByRole("button", { name: "Revoke 10 keys" }).click();
      await dialog().getByText("This is not the number of keys.").waitFor();
      await dialog().getByLabel("Type 10 to confirm").fill("10");
      await look("keys-revoke", width);
      await dialog().getByRole("button", { name: "Revoke 10 keys" }).click();
      await expect.poll(message).toContain("10 keys were revoked.");
      await leftDialog(page);
      await page.getByText("No key matches").waitFor();
      await look("keys-none", width);
    });

  test("all that match are picked in a second step, which says how many, and are changed", async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    await keysPage();
    const looks = page.getByRole("button", { name: /^Near their budget/ });
    expect(await looks.textContent()).toMatch(/20$/);
    await page.getByRole("button", { name: /^Expire soon/ }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get("look")).toBe("expires_soon");
    await row(4900).waitFor();
    await look("keys-look", 1440);
    // A row has no box: its key is revoked.
    const { core, call } = gateway.admin;
    const [gone = "", kept = ""] = (await idsOf(4987, 4975)).toReversed();
    await core.keys.revokeKey({ keyId: gone }, call);
    await keysPage("?status=all&tag=team%3D%D0%BA%D0%BE%D0%BC%D0%B0%D0%BD%D0%B4%D0%B0+7");
    await row(4987).waitFor();
    expect(await box(4987).count()).toBe(0);
    await page.getByRole("checkbox", { name: "Pick the keys on this page" }).check();
    await expect.poll(picked).toBe("49 keys picked");
    await page.getByRole("button", { name: /^Pick all \d+ that match$/ }).click();
    await expect.poll(picked).toMatch(/^(41\d|40\d) keys picked$/);
    await look("keys-all", 1440);
    const n = /^\d+/.exec((await picked()) ?? "")?.[0] ?? "";
    await bar().getByRole("button", { name: "Pause" }).click();
    await dialog()
      .getByRole("button", { name: `Pause ${n} keys` })
      .click();
    await expect.poll(message, { timeout: 30_000 }).toContain(`${n} keys were paused.`);
    await leftDialog(page);
    const { events } = await core.people.listAuditEvents(
      { accountId: gateway.accountId, keyId: kept },
      call,
    );
    expect(events.map(({ method }) => method)).toEqual(["ChangeKeys"]);
    const left = await core.keys.listKeys(
      {
        accountId: gateway.accountId,
        tags: { team: "команда 7" },
        states: [KeyState.ACTIVE],
        onlyIds: true,
      },
      call,
    );
    expect(left.keys).toEqual([]);
  });

  test("what was left is said also where the list has the key no more", async () => {
    await keysPage("?q=Hauses+2345");
    await box(2345).check();
    const [keyId = ""] = await idsOf(2345);
    await bar().getByRole("button", { name: "Pause" }).click();
    const { core, call } = gateway.admin;
    await core.keys.updateKey(
      { keyId, settings: { name: "changed elsewhere" }, updateMask: { paths: ["name"] } },
      call,
    );
    await dialog().getByRole("button", { name: "Pause 1 key" }).click();
    await page.getByText("No key matches").waitFor();
    const heading = dialog().getByRole("heading", { name: "Not all were changed" });
    await heading.waitFor();
    expect(await heading.isVisible()).toBe(true);
    await dialog().getByRole("button", { name: "OK" }).click();
    await leftDialog(page);
  });

  test("the keys of the page and those that are picked are files", async () => {
    await keysPage("?q=Hauses+2222");
    await box(2222).check();
    const hrefs = [
      await page.getByRole("link", { name: "CSV", exact: true }).getAttribute("href"),
      await bar().getByRole("link", { name: "CSV of these" }).getAttribute("href"),
    ];
    for (const href of hrefs) {
      const answer = await page.request.get(`${origin}${href}`, {
        headers: { "sec-fetch-site": "same-origin" },
      });
      const lines = (await answer.text()).trimEnd().split("\r\n");
      expect([answer.status(), lines.length]).toEqual([200, 2]);
      expect(lines[0]).toMatch(/^key_id,name,hint,/);
      expect(lines[1]).toContain("des Hauses 2222");
      expect(lines[1]).toContain("job=job-2222");
    }
  });

  test("a viewer sees no boxes, and everything else", async () => {
    await page.route("**/GetSession", async (route) => {
      const response = await route.fetch();
      const session = await response.json();
      const accounts = session.accounts.map((one: object) => ({
        ...one,
        role: "ACCOUNT_ROLE_VIEWER",
      }));
      const operatorRole = "OPERATOR_ROLE_UNSPECIFIED";
      await route.fulfill({ response, json: { ...session, accounts, operatorRole } });
    });
    await keysPage();
    await row(4980).waitFor();
    expect(await page.getByRole("checkbox", { name: /^Pick/ }).count()).toBe(0);
    await page.getByRole("button", { name: /^Expire soon/ }).waitFor();
    await page.unroute("**/GetSession");
  });

  test("the pages said nothing that should not be", () => {
    expect(problems).toEqual([]);
  });
});
