// The open page of models in Chromium, without its script engine: accessible by WCAG 2.2 AA, light
// and dark, and inside of the screen at every width.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { openCatalog } from "../support/open-page.ts";
import { findMisplaced, widths } from "./states/geometry.ts";

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  let browser: Browser;
  let address: string;
  beforeAll(async () => {
    gateway = await startTestGateway({ catalog: openCatalog() });
    address = `http://localhost:${new URL(gateway.address).port}/models`;
    browser = await startChromium();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
  });

  for (const colorScheme of ["light", "dark"] as const)
    test(`is accessible and has its style, ${colorScheme}`, async () => {
      const context = await browser.newContext({ colorScheme, bypassCSP: true });
      const page = await context.newPage();
      await page.goto(address);
      const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"));
      await page.addScriptTag({ content: axe.toString() });
      const { violations } = await page.evaluate<AxeResults>(
        `axe.run({ runOnly: ${JSON.stringify(tags)} })`,
      );
      expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
      const display = await page.evaluate(
        "getComputedStyle(document.querySelector('main')).display",
      );
      expect(display).toBe("grid");
      await context.close();
    });

  test("shows everything without a script, and calls nobody but its own origin", async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).origin));
    await page.goto(address);
    expect(await page.locator("article").count()).toBe(3);
    expect(await page.locator("text=1,000 out costs").count()).toBe(3);
    await page.locator("text=Sign in").click();
    expect(new URL(page.url()).pathname).toBe("/console/sign-in");
    expect(new Set(asked)).toEqual(new Set([new URL(address).origin]));
    await context.close();
  });

  for (const width of widths)
    test(`has everything in its place at ${width} pixels`, async () => {
      const context = await browser.newContext({ viewport: { width, height: 800 } });
      const page = await context.newPage();
      await page.goto(address);
      expect(await page.evaluate(findMisplaced)).toEqual([]);
      if (process.env.SCREENS) {
        const path = `${process.env.SCREENS}/models-${width}.png`;
        await page.screenshot({ path, fullPage: true });
      }
      await context.close();
    });
});
