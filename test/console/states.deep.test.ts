// Every page and dialog of the console in each of its states, in Chromium: accessible by WCAG 2.2
// AA, silent, within its own origin, light and dark; and with everything in its place at five
// widths and in two fonts.

import type { AxeResults } from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { now } from "./states/answers.ts";
import { findMisplaced, widths } from "./states/geometry.ts";
import {
  axePath,
  type StatesServer,
  scrollThrough,
  startStates,
  statePath,
} from "./states/server.ts";
import { allPages } from "./states/states.ts";
import { type Visit, visits } from "./states/visits.ts";

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Every page is at the time of the states. The clock of Playwright slows down all timers, too. */
const standStill = `Date = class extends Date {
  constructor(...parts) { super(...(parts.length > 0 ? parts : [${now.getTime()}])); }
  static now() { return ${now.getTime()}; }
}`;

/** The tables that nobody sorts, by their captions, with the reason. */
const unsorted: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [
      "Accounts, newest first",
      "Audit events, newest first",
      "Requests, newest first",
      "The keys by team",
    ].map((caption) => [caption, "a part: the service has more, in the one order of its pages"]),
  ),
  ...Object.fromEntries(
    [
      "Orders that wait for a person, oldest first",
      "Orders of all accounts, newest first",
      "What was found, what is so called exactly first",
      "Notes, newest first",
      "Mails to people of the account, newest first",
      "Promotions that the account used, newest first",
      "Receipts and credit notes of the account, newest first",
      "What waits for an approval, newest first",
      "Accounts in debt",
      "Sweeps, newest first",
      "What came during sweeps",
      "Addresses, in the order in which they were given",
    ].map((caption) => [caption, "work in the order in which it is done, a page at a time"]),
  ),
  ...Object.fromEntries(
    [
      ...["Admin tokens, oldest first", "Keys of the account", "Members of the account"],
      ...["Requests that were refused", "Running requests"],
    ].map((caption) => [caption, "few, or the first ones: their own page has the rest"]),
  ),
  "Top keys this month": "five, by what they spent",
  "Keys of this time": "five, by what they spent, and all others as one",
  "Models of this time": "five, by what they cost, and all others as one",
  "Newest requests": "ten, by their time",
  Secrets: "few, the newest first",
  Deliveries: "the newest, as they were made",
  Alerts: "a form: a row for each kind",
  "What it cost": "a sum: the categories, as everywhere",
  "Calls to providers": "what happened, in its order",
  "What arrived": "what happened, in its order",
  "What goes back": "what happened, in its order",
  "What was credited": "a document",
  "Paid with": "a document",
  "What is taken back": "a document",
};

/** Whether a table on screen has a column to sort by, by their captions. */
const findTables = `[...document.querySelectorAll("main table, dialog table")].map((table) => [
  table.caption.textContent, table.querySelector("button.sort") !== null])`;

const [widest] = widths;
const narrowest = 360;

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let server: StatesServer;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  const sorted = new Map<string, boolean>();
  beforeAll(async () => {
    server = await startStates();
    browser = await startChromium();
    context = await browser.newContext({
      reducedMotion: "reduce",
      // The policy of the page forbids scripts from elsewhere. A test of its own checks it.
      bypassCSP: true,
    });
    await context.addInitScript(standStill);
    // All states share it: what V8 has compiled for one serves the next.
    page = await context.newPage();
    // What a visit presses is there, or never comes.
    page.setDefaultTimeout(10_000);
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
  });

  for (const { name, states } of allPages)
    test(`${name} is accessible, silent and in its place in each of its states`, async () => {
      const all: string[] = [];
      for (const state of Object.keys(states)) {
        const found = await findings(page, server.address, { page: name, state });
        all.push(...found.map((one) => `${state}, ${one}`));
        const tables: [string, boolean][] = await page.evaluate(findTables);
        for (const [caption, isSorted] of tables)
          sorted.set(caption, isSorted || sorted.get(caption) === true);
      }
      expect(all).toEqual([]);
    });

  for (const visit of visits)
    test(`${visit.page}, ${visit.state}: ${visit.name} is accessible and in its place`, async () => {
      expect(await findings(page, server.address, visit)).toEqual([]);
    });

  test("every table can be sorted, or is listed with the reason", () => {
    const without = [...sorted].filter(([, isSorted]) => !isSorted).map(([caption]) => caption);
    expect(without.sort()).toEqual(Object.keys(unsorted).sort());
  });

  test("nothing in the page breaks its policy", async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("console", (message) => problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(error.message));
    for (const { name, states } of allPages) {
      if (!("full" in states)) continue;
      await page.goto(server.address + statePath(name, "full"));
      await page.locator("h1").first().waitFor();
    }
    expect(problems.filter((text) => !text.startsWith("Failed to load resource"))).toEqual([]);
    await context.close();
  });
});

/** What is wrong with a state, or with what opens there, one sentence each. */
async function findings(
  page: Page,
  address: string,
  visit: Omit<Visit, "name" | "run"> & { readonly run?: Visit["run"] },
): Promise<string[]> {
  const problems: string[] = [];
  page.removeAllListeners();
  page.on("pageerror", (error) => problems.push(`throws ${error.message}`));
  page.on("console", (message) => {
    // The state of a failure fails a call.
    if (!message.text().startsWith("Failed to load resource"))
      problems.push(`says ${message.text()}`);
  });
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== address && protocol !== "data:") problems.push(`asks ${request.url()}`);
  });
  let lastAnswerAt = performance.now();
  page.on("requestfinished", () => {
    lastAnswerAt = performance.now();
  });
  await page.emulateMedia({ colorScheme: "light" });
  await resize(page, widest);
  await page.goto(address + statePath(visit.page, visit.state));
  await page.locator("main, .skeleton").first().waitFor();
  // What is further down is asked for when somebody scrolls to it.
  await page.evaluate(scrollThrough);
  await visit.run?.(page);
  // A state has no sign of being complete that all have in common: calls that follow each other.
  await expect.poll(() => performance.now() - lastAnswerAt).toBeGreaterThan(100);
  await page.addScriptTag({ url: address + axePath });
  problems.push(...(await judge(page)).map((one) => `light: ${one}`));
  // Only its style sheet asks for colour scheme and width, so the page need not be loaded again.
  for (const width of widths) {
    await resize(page, width);
    const misplaced: string[] = await page.evaluate(findMisplaced);
    problems.push(...misplaced.map((one) => `${width} px, ${one}`));
  }
  await page.emulateMedia({ colorScheme: "dark" });
  problems.push(...(await judge(page)).map((one) => `dark: ${one}`));
  return problems;
}

async function resize(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: width === narrowest ? 740 : 900 });
}

/** What axe finds on the page as it looks now. */
async function judge(page: Page): Promise<string[]> {
  // Its result also names every part that passed: describing those takes longer than judging them.
  const options = JSON.stringify({ runOnly: tags, resultTypes: ["violations"] });
  // Below a dialog is the page of a state that is judged by itself.
  const place = "document.querySelector('dialog[open]') ?? document";
  const run = `axe.run(${place}, ${options}).then(({ violations }) => violations)`;
  const violations: AxeResults["violations"] = await page.evaluate(run);
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`.slice(0, 500)),
  );
}
