// Debian's Chromium, driven by playwright-core, with a virtual authenticator for passkeys. Its
// build without a desktop takes a third less of the processors for the same pages.

import { existsSync } from "node:fs";
import { type Browser, chromium, type Page } from "playwright-core";

const path = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((one) =>
  existsSync(one),
);

/** True where Chromium is installed (`apt-get install chromium-headless-shell`, or `chromium`). */
export const hasChromium = path !== undefined;

/** `hosts`: names that lead to this machine. */
export function startChromium(hosts: readonly string[] = []): Promise<Browser> {
  const rules = hosts.map((host) => `MAP ${host} 127.0.0.1`).join(", ");
  return chromium.launch({
    ...(path !== undefined && { executablePath: path }),
    // The zone of every page whose test names none.
    env: { ...process.env, TZ: "UTC" },
    args: [
      ...["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
      ...(hosts.length > 0 ? [`--host-resolver-rules=${rules}`] : []),
    ],
  });
}

/**
 * Waits until the page of the console has gone back from the entry of a dialog that was closed. A
 * navigation that begins meanwhile is aborted.
 */
export async function leftDialog(page: Page): Promise<void> {
  while (await page.evaluate("history.state?.isDialog === true"));
}

/** A page of a new profile. Its authenticator verifies its user without asking. */
export async function openPage(browser: Browser): Promise<{ page: Page; problems: string[] }> {
  const context = await browser.newContext();
  const page = await context.newPage();
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => {
    // A refused call is an answer that the page shows.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      problems.push(message.text());
  });
  const cdp = await context.newCDPSession(page);
  await cdp.send("WebAuthn.enable");
  await cdp.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport: "internal",
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  return { page, problems };
}
