// The page of the public description, in Chromium.

import { expect, test } from "vitest";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway } from "../support/gateway.ts";

test.skipIf(!hasChromium)("fits a telephone, in both themes, without a script", async () => {
  const [gateway, browser] = await Promise.all([startTestGateway(), startChromium()]);
  try {
    const { page, problems } = await openPage(browser);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).origin));
    await page.setViewportSize({ width: 360, height: 740 });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      await page.goto(`${gateway.address}/docs`);
      await page.evaluate(
        "for (const one of document.querySelectorAll('details')) one.open = true",
      );
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect(width).toBeLessThanOrEqual(360);
    }
    expect(new Set(asked)).toEqual(new Set([gateway.address]));
    expect(problems).toEqual([]);
  } finally {
    await browser.close();
    await gateway.stop();
  }
});
