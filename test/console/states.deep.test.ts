// Every page of the console in each of its states, in Chromium: accessible by WCAG 2.2 AA, silent,
// within its own origin, and no wider than the screen; light and dark, on a phone and on a desk.

import type { AxeResults } from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { now } from "./states/answers.ts";
import {
  axePath,
  type StatesServer,
  scrollThrough,
  startStates,
  statePath,
} from "./states/server.ts";
import { allPages } from "./states/states.ts";

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Every page is at the time of the states. The clock of Playwright slows down all timers, too. */
const standStill = `Date = class extends Date {
  constructor(...parts) { super(...(parts.length > 0 ? parts : [${now.getTime()}])); }
  static now() { return ${now.getTime()}; }
}`;

const looks = [
  { colorScheme: "light", width: 1440, height: 900 },
  { colorScheme: "dark", width: 360, height: 740 },
] as const;

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let server: StatesServer;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
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
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
  });

  for (const { name, states } of allPages)
    test(`${name} is accessible and silent in each of its states`, async () => {
      const findings: string[] = [];
      for (const state of Object.keys(states)) {
        const found = await visit(page, server.address, statePath(name, state));
        findings.push(...found.map((one) => `${state}, ${one}`));
      }
      expect(findings).toEqual([]);
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

/** What is wrong with a state, one sentence each. */
async function visit(page: Page, address: string, path: string): Promise<string[]> {
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
  await wear(page, looks[0]);
  await page.goto(address + path);
  await page.locator("main, .skeleton").first().waitFor();
  // What is further down is asked for when somebody scrolls to it.
  await page.evaluate(scrollThrough);
  // A state has no sign of being complete that all have in common: calls that follow each other.
  await expect.poll(() => performance.now() - lastAnswerAt).toBeGreaterThan(100);
  await page.addScriptTag({ url: address + axePath });
  // Only its style sheet asks for colour scheme and width, so the page need not be loaded again.
  for (const look of looks) {
    await wear(page, look);
    problems.push(...(await judge(page)).map((one) => `${look.colorScheme}: ${one}`));
  }
  return problems;
}

type Look = (typeof looks)[number];

async function wear(page: Page, { colorScheme, width, height }: Look): Promise<void> {
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize({ width, height });
}

/** What is wrong with the page as it looks now. */
async function judge(page: Page): Promise<string[]> {
  const problems: string[] = [];
  const isTooWide = await page.evaluate(
    "document.documentElement.scrollWidth > document.documentElement.clientWidth",
  );
  if (isTooWide) problems.push("is wider than the screen");
  // Its result also names every part that passed: describing those takes longer than judging them.
  const options = JSON.stringify({ runOnly: tags, resultTypes: ["violations"] });
  const run = `axe.run(document, ${options}).then(({ violations }) => violations)`;
  const violations: AxeResults["violations"] = await page.evaluate(run);
  for (const { id, nodes } of violations)
    for (const { html, failureSummary } of nodes)
      problems.push(`${id}: ${html} ${failureSummary}`.slice(0, 500));
  return problems;
}
