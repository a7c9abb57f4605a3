// `npm run console-screens [-- PART…]`: pictures of every page and dialog in each of its states, in
// both themes and three widths, for people to look at. `PART`: only those whose name contains it.

import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { startChromium } from "../../support/chromium.ts";
import { now } from "./answers.ts";
import { scrollThrough, startStates, statePath } from "./server.ts";
import { allPages } from "./states.ts";
import { type Visit, visits } from "./visits.ts";

const folder = join(import.meta.dirname, "../../../console-screens");
const parts = process.argv.slice(2);
const isWanted = (name: string) => parts.length === 0 || parts.some((part) => name.includes(part));

type Picture = Pick<Visit, "page" | "state"> & Partial<Visit>;
const pictures: readonly Picture[] = [
  ...allPages.flatMap(({ name, states }) =>
    Object.keys(states).map((state) => ({ page: name, state })),
  ),
  ...visits,
];

if (parts.length === 0) await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
const server = await startStates();
const browser = await startChromium();
let count = 0;
try {
  for (const colorScheme of ["light", "dark"] as const)
    for (const width of [360, 1024, 1440]) {
      const context = await browser.newContext({
        colorScheme,
        viewport: { width, height: width === 360 ? 740 : 900 },
        reducedMotion: "reduce",
      });
      const page = await context.newPage();
      await page.clock.setFixedTime(now);
      for (const { page: name, state, name: visit = "", run } of pictures) {
        const title = [name, state, visit].join(" ").trim().replaceAll(" ", "-");
        if (!isWanted(title)) continue;
        await page.goto(server.address + statePath(name, state));
        // What is further down is asked for when somebody scrolls to it.
        await page.evaluate(scrollThrough);
        await run?.(page);
        // Until nothing arrives any more: streams stay open, so the network is never idle.
        await page.waitForTimeout(400);
        const path = join(folder, `${title}-${colorScheme}-${width}.png`);
        await page.screenshot({ path, fullPage: run === undefined });
        count++;
      }
      await context.close();
    }
} finally {
  await browser.close();
  await server.stop();
}
console.log(`${count} pictures are in ${folder}`);
