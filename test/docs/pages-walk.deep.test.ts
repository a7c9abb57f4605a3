// The documents in Chromium: accessible by WCAG 2.2 AA, light and dark, inside of the screen at
// every width, on paper, and searched with and without a script.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findMisplaced, widths } from "../console/states/geometry.ts";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** The longest page, one with tables, and those that are no documents. */
const walked = {
  index: "/docs",
  page: "/docs/tools",
  tables: "/docs/renamed",
  found: "/docs?q=rotate%20key",
  none: "/docs/none",
};

describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let origin: string;
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
    origin = `http://localhost:${new URL(gateway.address).port}`;
    browser = await startChromium();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  /** Runs in a new profile. Pictures go into the folder `SCREENS`, for people to look at. */
  async function visit(options: BrowserContextOptions, run: (page: Page) => Promise<void>) {
    const context = await browser.newContext(options);
    try {
      await run(await context.newPage());
    } finally {
      await context.close();
    }
  }

  async function take(page: Page, name: string): Promise<void> {
    const { SCREENS } = process.env;
    if (SCREENS) await page.screenshot({ path: `${SCREENS}/docs-${name}.png` });
  }

  for (const colorScheme of ["light", "dark"] as const)
    test(`every page is accessible and has its style, ${colorScheme}`, () =>
      visit({ colorScheme, bypassCSP: true }, async (page) => {
        const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"));
        for (const [name, path] of Object.entries(walked)) {
          await page.goto(origin + path);
          await page.addScriptTag({ content: axe.toString() });
          const { violations } = await page.evaluate<AxeResults>(
            `axe.run({ runOnly: ${JSON.stringify(tags)} })`,
          );
          const found = violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
          expect([name, found]).toEqual([name, []]);
          await take(page, `${name}-${colorScheme}`);
        }
      }));

  for (const width of widths)
    test(`has everything in its place at ${width} pixels`, () =>
      visit({ viewport: { width, height: 900 } }, async (page) => {
        for (const [name, path] of Object.entries(walked)) {
          await page.goto(origin + path);
          expect([name, await page.evaluate(findMisplaced)]).toEqual([name, []]);
          await take(page, `${name}-${width}`);
        }
      }));

  test("is searched and read without a script, and calls nobody but its own origin", () =>
    visit({ javaScriptEnabled: false }, async (page) => {
      const asked: string[] = [];
      page.on("request", (request) => asked.push(new URL(request.url()).origin));
      await page.goto(`${origin}/docs`);
      await page.getByRole("searchbox").fill("claude code");
      await page.getByRole("searchbox").press("Enter");
      await page.locator("ol a").first().click();
      expect(new URL(page.url()).pathname).toMatch(/^\/docs\/./);
      await page.locator("a[rel=next]").click();
      expect(await page.locator("h1").count()).toBe(1);
      expect(new Set(asked)).toEqual(new Set([origin]));
    }));

  test("a button copies a sample, and the console's theme is kept", () =>
    visit({ permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
      const problems: string[] = [];
      page.on("pageerror", (error) => problems.push(error.message));
      page.on("console", (message) => {
        if (message.type() === "error") problems.push(message.text());
      });
      await page.goto(`${origin}/docs/tools`);
      await page.evaluate("localStorage.setItem('gateway-theme', 'dark')");
      await page.reload();
      expect(await page.locator("html").getAttribute("data-theme")).toBe("dark");
      const sample = page.locator(".sample").first();
      await sample.getByRole("button", { name: "Copy" }).click();
      await sample.getByRole("button", { name: "Copied" }).waitFor();
      const copied = await page.evaluate("navigator.clipboard.readText()");
      expect(copied).toBe(await sample.locator("code").textContent());
      expect(problems).toEqual([]);
    }));

  test("on paper there is the text, and nothing to press", () =>
    visit({}, async (page) => {
      await page.goto(`${origin}/docs/tools`);
      await page.emulateMedia({ media: "print" });
      for (const hidden of ["header", "nav", ".sample button", "h2 .anchor"])
        expect(await page.locator(hidden).first().isVisible(), hidden).toBe(false);
      expect(await page.locator("h1").isVisible()).toBe(true);
      await take(page, "paper");
    }));
});
