// `npm run console-screens [-- PART…]`: pictures of every page in each of its states, in both
// themes and widths, for people to look at. `PART`: only pages or states whose name contains it.

import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { startChromium } from "../../support/chromium.ts";
import { now } from "./answers.ts";
import { scrollThrough, startStates, statePath } from "./server.ts";
import { allPages } from "./states.ts";

const folder = join(import.meta.dirname, "../../../console-screens");
const parts = process.argv.slice(2);
const isWanted = (name: string) => parts.length === 0 || parts.some((part) => name.includes(part));

if (parts.length === 0) await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
const server = await startStates();
const browser = await startChromium();
let pictures = 0;
try {
  for (const colorScheme of ["light", "dark"] as const)
    for (const width of [360, 1440]) {
      const context = await browser.newContext({
        colorScheme,
        viewport: { width, height: width === 360 ? 740 : 900 },
        reducedMotion: "reduce",
      });
      const page = await context.newPage();
      await page.clock.setFixedTime(now);
      for (const { name, states } of allPages)
        for (const state of Object.keys(states)) {
          const title = `${name}-${state}`.replaceAll(" ", "-");
          if (!isWanted(title)) continue;
          await page.goto(server.address + statePath(name, state));
          // What is further down is asked for when somebody scrolls to it.
          await page.evaluate(scrollThrough);
          // Until nothing arrives any more: streams stay open, so the network is never idle.
          await page.waitForTimeout(400);
          const path = join(folder, `${title}-${colorScheme}-${width}.png`);
          await page.screenshot({ path, fullPage: true });
          pictures++;
        }
      await context.close();
    }
} finally {
  await browser.close();
  await server.stop();
}
console.log(`${pictures} pictures are in ${folder}`);
