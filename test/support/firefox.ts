// Firefox as its makers and Debian publish it, by WebDriver BiDi: Playwright has a build of its
// own, which no registry of packages has.

import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { findProgram } from "./programs.ts";

const path = findProgram("firefox-esr") ?? findProgram("firefox");

/** True where Firefox is installed (`apt-get install firefox-esr`). */
export const hasFirefox = path !== undefined;

export function startFirefox(): Promise<Browser> {
  if (path === undefined) throw new Error("there is no Firefox");
  return puppeteer.launch({ browser: "firefox", executablePath: path, protocolTimeout: 60_000 });
}

/** A page of a new profile, and what its console says that is wrong. */
export async function openFirefoxPage(browser: Browser): Promise<FirefoxPage> {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) problems.push(message.text());
  });
  const find = (path: string) => page.locator(`xpath/${path}`);
  return {
    page,
    problems,
    press: (name) => find(`//*[self::a or self::button][normalize-space()="${name}"]`).click(),
    fill: (label, text) => find(`//*[@id=//label[normalize-space()="${label}"]/@for]`).fill(text),
    async see(text) {
      await page.waitForSelector(`::-p-text(${text})`);
    },
    async resize(width) {
      await page.setViewport({ width, height: width < 640 ? 740 : 900 });
    },
  };
}

export type FirefoxPage = {
  readonly page: Page;
  readonly problems: readonly string[];
  /** Presses a button, or follows a link. */
  press(name: string): Promise<void>;
  fill(label: string, text: string): Promise<void>;
  /** Waits until the text is on the page. */
  see(text: string): Promise<void>;
  resize(width: number): Promise<void>;
};
