// The pages of the console in Chromium on loopback: how long until the first paint, and until
// another page is whole; and what the console adds to a start. Needs Debian's Chromium.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { hasChromium, startChromium } from "../../support/chromium.ts";
import { nativeBody, nativeHeaders } from "../bodies.ts";
import { signIn } from "../csv-download.ts";
import { type GatewayProcess, Lab, urlOf } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import type { Result, Row } from "../report.ts";

const loads = 15;
const rounds = 6;
const starts = 5;
const requests = 200;
const paths = ["Keys", "Usage", "Requests", "Credits", "Members", "Settings", "Overview"];

const bundler = join(import.meta.dirname, "../console-bundle.ts");

export async function consolePages(): Promise<Result> {
  if (!hasChromium) throw new Error("Chromium is not installed: apt-get install chromium");
  await using lab = new Lab();
  const provider = await lab.provider();
  const gateway = await lab.gateway(provider);
  const cookie = await signIn(gateway);
  const origin = urlOf(gateway).replace("127.0.0.1", "localhost");
  await useKey(gateway);
  const browser = await startChromium();
  try {
    const [name = "", value = ""] = cookie.split("=");
    const firstPaints: number[] = [];
    const wholePages: number[] = [];
    for (let load = 0; load < loads; load++) {
      // A new profile: nothing is cached.
      const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
      await context.addCookies([{ name, value, url: origin }]);
      const page = await context.newPage();
      await page.goto(`${origin}/console/${gateway.accountId}`);
      await page.evaluate(untilWhole);
      firstPaints.push(Number(await page.evaluate(readFirstPaint)));
      wholePages.push(Number(await page.evaluate("performance.now()")));
      await context.close();
    }
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    await context.addCookies([{ name, value, url: origin }]);
    const page = await context.newPage();
    await page.goto(`${origin}/console/${gateway.accountId}`);
    await page.evaluate(untilWhole);
    const changes = new Map<string, { drawn: number; whole: number }[]>();
    for (let round = 0; round < rounds; round++)
      for (const title of paths)
        changes.set(title, [...(changes.get(title) ?? []), await change(page, title)]);
    const made: { ms: number; bytes: number }[] = [];
    for (let start = 0; start < starts; start++) made.push(await bundleOnce());
    const all = [...changes.values()].flat();
    const rows: Row[] = [
      { measure: "first paint, cold", value: spreadOf(firstPaints), unit: "ms", must: "≤ 300" },
      { measure: "overview whole, cold", value: spreadOf(wholePages), unit: "ms" },
      {
        measure: "page change until it is drawn, all pages",
        unit: "ms",
        must: "≤ 100",
        value: spreadOf(all.map(({ drawn }) => drawn)),
      },
      ...[...changes].map(([title, times]) => ({
        measure: `page change until its data is drawn: ${title}`,
        value: spreadOf(times.map(({ whole }) => whole)),
        unit: "ms",
      })),
      {
        measure: "bundling beside a start, alone",
        unit: "ms",
        must: "≤ 300",
        value: spreadOf(made.map(({ ms }) => ms)),
      },
      {
        measure: "memory of the bundle and its bundler",
        unit: "MB",
        must: "≤ 15",
        value: spreadOf(made.map(({ bytes }) => bytes / 1e6)),
      },
    ];
    return { rows, faults: await lab.faults(provider) };
  } finally {
    await browser.close();
  }
}

/** Follows a link of the column, by the clock of the page. */
async function change(page: Page, title: string): Promise<{ drawn: number; whole: number }> {
  const text = await page.evaluate(`(${followLink})(${JSON.stringify(title)})`);
  const { drawn, whole } = Object(text);
  return { drawn: Number(drawn), whole: Number(whole) };
}

/** Runs in the page. What is further down stays grey until somebody scrolls to it. */
const isGrey = `[...document.querySelectorAll(".skeleton")]
  .some((one) => one.getBoundingClientRect().top < innerHeight - 80)`;

/** Runs in the page. Resolves with milliseconds. */
const followLink = `async (title) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const links = [...document.querySelectorAll(".sections a")];
  const started = performance.now();
  links.find((link) => link.textContent.trim() === title).click();
  while (document.querySelector("h1")?.textContent !== title) await frame();
  await frame();
  const drawn = performance.now() - started;
  while (${isGrey}) await frame();
  return { drawn, whole: performance.now() - started };
}`;

/** Run in the page. */
const isWhole = `document.querySelector("main h1") && !${isGrey}`;
const untilWhole = `new Promise((resolve) => {
  const look = () => (${isWhole} ? resolve() : requestAnimationFrame(look));
  look();
})`;
const readFirstPaint = `performance.getEntriesByName("first-contentful-paint")[0].startTime`;

async function bundleOnce(): Promise<{ ms: number; bytes: number }> {
  const { stdout } = await promisify(execFile)(process.execPath, ["--expose-gc", bundler]);
  const { ms, bytes } = Object(JSON.parse(stdout));
  return { ms: Number(ms), bytes: Number(bytes) };
}

/** So that pages have something to show. */
async function useKey(gateway: GatewayProcess): Promise<void> {
  const request = {
    method: "POST",
    headers: nativeHeaders(gateway),
    // The body leaves room for the whole answer: beyond `max_tokens`, nothing is charged.
    body: nativeBody("native", 100, false),
  };
  for (let sent = 0; sent < requests; sent++) {
    const answer = await fetch(`${urlOf(gateway)}/v1/messages`, request);
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`);
  }
}
