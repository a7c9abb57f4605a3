// The page of models, by hand: 200 models with long names, 5,000 keys, the account's own prices,
// and a calculator whose results are those of receipts. Then an operator takes the list back.

import { Client } from "pg";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { promptOf } from "../../src/base/cost.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { count, credits } from "../../src/console/web/format.ts";
import { defaultCatalogWithoutPauses } from "../support/catalog.ts";
import { hasChromium, leftDialog, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const reason = "agreed with the customer";
const longNames = [
  "Größtes Sprachmodell für Übersetzungen langer Verträge Nr 1".padEnd(60, "X"),
  "Большая модель для перевода и разбора длинных договоров".padEnd(60, "Ж"),
  "用于翻译和分析超长合同的大型语言模型".padEnd(60, "文"),
];
const many = Array.from({ length: 197 }, (_, index) => {
  const name = longNames[index] ?? `Model ${index}`;
  return `  - { id: vendor/model-${index}, display_name: "${name}",
      created_at: 2026-02-05T00:00:00Z, context_tokens: ${100_000 + index},
      max_output_tokens: 64000, thinking: none,
      price: { input: ${1 + index}.00, output: 5.00 }, routes: [[{ provider: simulated }]] }`;
});
const catalog = readCatalogFile(
  defaultCatalogWithoutPauses()
    .replace(
      "price: { input: 0.70, output: 3.50 }",
      "price: { input: 0.70, output: 3.50, when: [{ prompt_above: 1000, multiply: 2 }, " +
        "{ speed: fast, multiply: 6 }] }",
    )
    .replace("\naliases:\n", `\n${many.join("\n")}\n\naliases:\n`),
);

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let client: Client;
  let browser: Browser;
  let viewer: Page;
  let owner: Page;
  let origin = "";
  const problems: string[][] = [];
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false, catalog });
    client = new Client({ connectionString: gateway.databaseUrl });
    await client.connect();
    ({ origin } = new URL(gateway.ownerLink));
    browser = await startChromium();
    const { people } = gateway.admin.core;
    const password = "a long password";
    const enter = async (link: string, login: string) => {
      const redeemed = await fetch(`${origin}/gateway.people.v1.SignInService/RedeemLink`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ token: new URL(link).hash.slice(1), login, name: login, password }),
      });
      const [name = "", value = ""] = (redeemed.headers.get("set-cookie") ?? "").split(/[=;]/);
      const opened = await openPage(browser);
      opened.page.setDefaultTimeout(20_000);
      await opened.page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await opened.page.context().addCookies([{ name, value, url: origin }]);
      problems.push(opened.problems);
      return { page: opened.page, value };
    };
    const entered = await enter(gateway.ownerLink, "olga");
    owner = entered.page;
    const invited = await people.createInvitation(
      { accountId: gateway.accountId, role: AccountRole.VIEWER },
      { headers: { authorization: `Session ${entered.value}` } },
    );
    viewer = (await enter(invited.link, "vera")).page;
  });
  afterAll(async () => {
    await browser.close();
    await client.end();
    await gateway.stop();
  });

  const open = (page: Page, path: string) =>
    page.goto(`${origin}/console/${gateway.accountId}/${path}`);
  const rowOf = (page: Page, model: string | RegExp) => page.getByRole("row", { name: model });
  const cellsOf = (page: Page, model: string | RegExp) =>
    rowOf(page, model).getByRole("cell").allInnerTexts();
  const call = () => gateway.admin.call;

  /** Nothing of the page is wider than the window, whose picture is kept where somebody asks. */
  async function look(page: Page, name: string): Promise<void> {
    for (const width of [360, 1024, 1440])
      for (const colorScheme of ["light", "dark"] as const) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        const shots = process.env.SCREENS;
        if (shots) await page.screenshot({ path: `${shots}/${name}-${width}-${colorScheme}.png` });
        const over = await page.evaluate<number>(
          "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        expect([name, width, over]).toEqual([name, width, 0]);
      }
  }

  for (const width of [360, 1440])
    test(`a viewer finds, sorts and copies among 200 models by keyboard at ${width} px`, async () => {
      await viewer.setViewportSize({ width, height: 900 });
      await open(viewer, "");
      await viewer.getByRole("heading", { name: "Overview" }).waitFor();
      await viewer.keyboard.press("g");
      await viewer.keyboard.press("m");
      await viewer.getByRole("heading", { name: "Models", exact: true }).waitFor();
      const rows = viewer.locator("tbody tr");
      await expect.poll(() => rows.count()).toBe(200);
      for (const name of longNames) await viewer.getByText(name).waitFor();
      await viewer.getByRole("button", { name: "Input", exact: true }).focus();
      await viewer.keyboard.press("Enter");
      await expect.poll(() => rows.first().textContent()).toContain("vendor/model-196");
      await viewer.keyboard.press("Enter");
      await expect.poll(() => rows.first().textContent()).toContain("Haiku 4.5");
      await viewer.getByRole("searchbox", { name: "Find a model" }).focus();
      await viewer.keyboard.type("ДОГОВОРОВ");
      await expect.poll(() => rows.count()).toBe(1);
      await viewer.keyboard.press("Control+a");
      // By an alias.
      await viewer.keyboard.type("haiku");
      await expect.poll(() => rows.count()).toBe(1);
      await viewer.getByRole("button", { name: "Copy haiku", exact: true }).focus();
      await viewer.keyboard.press("Enter");
      await viewer.getByRole("button", { name: "Copied" }).waitFor();
      expect(await viewer.evaluate("navigator.clipboard.readText()")).toBe("haiku");
      await viewer.getByRole("searchbox", { name: "Find a model" }).fill("no such model");
      await viewer.getByRole("button", { name: "Show all" }).click();
      await expect.poll(() => rows.count()).toBe(200);
    });

  test("a condition that no model has is none, in its field and in the costs", async () => {
    await open(viewer, "models?as=slow%2F%2F");
    await rowOf(viewer, /model-haiku-4\.5/).waitFor();
    expect(await viewer.getByLabel("Condition").inputValue()).toBe("");
    expect(await viewer.getByText("not offered").count()).toBe(0);
  });

  test("models without the asked condition come last, whichever way they are sorted", async () => {
    await open(viewer, "models?as=fast%2F%2F");
    const head = viewer.getByRole("button", { name: "This call", exact: true });
    const first = viewer.locator("tbody tr").first();
    const firsts: (string | null)[] = [];
    for (const direction of ["descending", "ascending"]) {
      await head.click();
      const sorted = viewer.locator(`th[aria-sort="${direction}"]`);
      await sorted.getByText("This call").waitFor();
      firsts.push(await first.textContent());
    }
    expect(firsts).toEqual(Array(2).fill(expect.stringContaining("Haiku 4.5")));
  });

  test("5,000 keys are counted by the service, and the page reads one of them", async () => {
    const { keys } = gateway.admin.core;
    await keys.createKey(
      {
        accountId: gateway.accountId,
        family: Family.V1,
        settings: { name: "haiku alone", allowedModels: ["haiku"] },
      },
      call(),
    );
    await client.query(
      `with made as (
        insert into keys (key_id, account_id, family, name, created_by, managed_by, allowed_models)
        select 'key_' || md5(n::text), $1, 'v1', 'service ' || n, '', '',
               case when n <= 1000 then '{model-haiku-4.5,vendor/model-7}' else '{}' end::text[]
          from generate_series(1, 5000) n returning key_id)
      insert into budgets (account_id, family, payer) select $1, 'v1', key_id from made`,
      [gateway.accountId],
    );
    const answers: number[] = [];
    viewer.on("response", async (response) => {
      if (response.url().endsWith("/ListKeys")) answers.push((await response.json()).keys.length);
    });
    await open(viewer, "models");
    const { rows } = await client.query(
      "select count(*)::int as n from keys where account_id = $1",
      [gateway.accountId],
    );
    const all: number = rows[0].n;
    await rowOf(viewer, /model-haiku-4\.5/)
      .getByText(`${count(all)} of ${count(all)}`)
      .waitFor();
    expect(await cellsOf(viewer, /vendor\/model-7 /)).toContain(
      `${count(all - 1)} of ${count(all)}`,
    );
    expect(await cellsOf(viewer, /vendor\/model-8 /)).toContain(
      `${count(all - 1_001)} of ${count(all)}`,
    );
    expect(answers).toEqual([1]);
    viewer.removeAllListeners("response");
  });

  test("the calculator says what receipts say: with conditions, steps and own prices", async () => {
    const { billing } = gateway.admin.core;
    const ask = async (words: number, more: object) => {
      const answer = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          ...{ "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" },
          "content-type": "application/json",
        },
        body: JSON.stringify({
          ...{ model: "model-haiku-4.5", max_tokens: 50, ...more },
          messages: [{ role: "user", content: "word ".repeat(words) }],
        }),
      });
      expect(answer.status, await answer.clone().text()).toBe(200);
      const requestId = answer.headers.get("request-id") ?? "";
      const { accountId } = gateway;
      const { receipt } = await billing.getReceipt({ requestId, accountId }, call());
      if (!receipt?.usage) throw new Error("no receipt");
      return { usage: receipt.usage, amount: receipt.chargedMicrocredits, price: receipt.price };
    };
    const { priceList } = await billing.createPriceList(
      { name: "Friends", discountBp: 1_111, reason },
      call(),
    );
    const lists = ["", priceList?.priceListId ?? ""];
    const notes: string[] = [];
    for (const priceListId of lists) {
      await billing.setAccountPriceList(
        { accountId: gateway.accountId, priceListId, reason },
        call(),
      );
      const wanted = priceListId === "" ? "" : "list Friends 1";
      await expect.poll(async () => (await ask(3, {})).price?.note).toBe(wanted);
      for (const [words, more, as] of [
        [5, {}, ""],
        [5, { speed: "fast" }, "fast//"],
        [2_500, {}, ""],
        [2_500, { speed: "fast" }, "fast//"],
      ] as const) {
        const { usage, amount, price } = await ask(words, more);
        notes.push(price?.note ?? "");
        expect([usage.cacheRead, usage.thinking]).toEqual([0, 0]);
        const planned = new URLSearchParams({
          ...{ q: "haiku-4.5", in: count(promptOf(usage)), out: String(usage.output) },
          ...{ cached: "0", as },
        });
        await open(viewer, `models?${planned}`);
        await rowOf(viewer, /haiku/).waitFor();
        const [first = ""] = await cellsOf(viewer, /haiku/);
        expect(first.split("\n")[0]).toBe(credits(amount, 4));
      }
    }
    const long = "above 1,000 tokens of prompt";
    const list = "list Friends 1";
    expect(notes).toEqual([
      ...["", "fast", long, `fast; ${long}`],
      ...[list, `fast; ${list}`, `${long}; ${list}`, `fast; ${long}; ${list}`],
    ]);
    // Own prices stand beside the public ones.
    await open(viewer, "models?q=haiku-4.5");
    const haiku = rowOf(viewer, /haiku/);
    await haiku.getByText("own prices").waitFor();
    await haiku.getByText("$0.62223").waitFor();
    await haiku.getByText("$0.70").waitFor();
    await look(viewer, "models-own");
    await open(viewer, "models");
    await viewer.getByText("Haiku 4.5").waitFor();
    await look(viewer, "models");
    // The median of what was asked just now.
    await expect.poll(() => cellsOf(viewer, /haiku/)).toContain("≤ 0.1 s");
    // A field says what it takes.
    await viewer.getByLabel("Tokens in").fill("1,5");
    await viewer.keyboard.press("Tab");
    await viewer.getByText("A whole number, such as 10,000").first().waitFor();
    await look(viewer, "models-wrong");
  });

  test("an operator takes the list back, from the page of the account", async () => {
    await owner.setViewportSize({ width: 1440, height: 900 });
    await owner.goto(`${origin}/console/operator/accounts/${gateway.accountId}`);
    await owner.getByRole("link", { name: "Take a list back" }).click();
    const dialog = owner.getByRole("dialog");
    expect(await dialog.getByLabel("Account").inputValue()).toBe(gateway.accountId);
    await look(owner, "take-back");
    await dialog.getByLabel("Reason").fill(reason);
    await dialog.getByRole("button", { name: "Take a list back" }).click();
    await owner.getByText("default has the public prices.").waitFor();
    await leftDialog(owner);
    const { account } = await gateway.admin.core.billing.getAccount(
      { accountId: gateway.accountId },
      call(),
    );
    expect(account?.priceListId).toBe("");
    await open(viewer, "models?q=haiku-4.5");
    await rowOf(viewer, /haiku/).waitFor();
    expect(await viewer.getByText("own prices").count()).toBe(0);
  });

  test("what is wrong with a list stands at its model, all of it at once, and conditions are seen", async () => {
    await owner.goto(`${origin}/console/operator/prices/new`);
    const field = (name: string) => owner.getByLabel(name, { exact: true });
    const preview = () => owner.getByRole("button", { name: "Preview" }).click();
    const way = field("Prices of model-haiku-4.5");
    await way.selectOption("own");
    await field("Input of model-haiku-4.5").fill("much");
    await field("Output of model-haiku-4.5").fill("2");
    await preview();
    await expect.poll(() => way.getAttribute("aria-invalid")).toBe("true");
    await owner.getByText(/^Input: must be a decimal/).waitFor();
    await field("Prices of model-opus-4.6").selectOption("own");
    await field("Input of model-opus-4.6").fill("more");
    await preview();
    const said = owner.getByRole("alert").filter({ hasText: "models[model-opus-4.6].price" });
    await said.filter({ hasText: "models[model-haiku-4.5].price: input" }).waitFor();
    await field("Prices of model-opus-4.6").selectOption("list");
    await field("Input of model-haiku-4.5").fill("0.5");
    await field("Conditions of model-haiku-4.5").fill("speed: fast, multiply: 3");
    await preview();
    const row = owner.getByRole("table", { name: "Every model before and after" });
    const haiku = row.getByRole("row", { name: /haiku/ });
    await haiku.getByText("Fast: 1.50 USD (300 credits) in and 6.00 USD").waitFor();
    const before = await haiku.locator("s.sentence").allTextContents();
    expect(before.map((one) => one.split(":")[0])).toEqual([
      "Above 1,000 tokens of prompt",
      "Fast",
      "Fast; above 1,000 tokens of prompt",
    ]);
  });

  test("no page broke its policy", () => {
    expect(problems.flat()).toEqual([]);
  });
});
