// What going back does: it closes a dialog, undoes a filter, and asks before something is lost.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasChromium, startChromium } from "../support/chromium.ts";
import { type StatesServer, startStates, statePath } from "./states/server.ts";

describe.skipIf(!hasChromium)("in Chromium", () => {
  let server: StatesServer;
  let browser: Browser;
  let page: Page;
  beforeAll(async () => {
    server = await startStates();
    browser = await startChromium();
    page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(10_000);
  });
  afterAll(async () => {
    await browser.close();
    await server.stop();
  });

  const open = (name: string, state = "full") => page.goto(server.address + statePath(name, state));
  const press = (name: string) => page.getByRole("button", { name, exact: true }).first().click();
  const dialog = () => page.getByRole("dialog");
  /** The dialog is closed, and so is its entry of the history. */
  const closed = async () => {
    await dialog().waitFor({ state: "detached" });
    await expect.poll(() => page.evaluate("history.state")).toBe(null);
  };
  const search = () => new URL(page.url()).search;

  test("going back closes a dialog, and stays on its page", async () => {
    await open("key");
    await press("Rotate");
    await dialog().waitFor();
    await page.goBack();
    await closed();
    await page.getByRole("heading", { name: "ci" }).waitFor();
    // The next one has an entry of its own again.
    await press("Rotate");
    await dialog().waitFor();
    await press("Cancel");
    await closed();
  });

  test("a dialog that is in the address is gone from it after the way back", async () => {
    await open("keys");
    await press("Create a key");
    await dialog().waitFor();
    expect(search()).toContain("new=1");
    await page.goBack();
    await dialog().waitFor({ state: "detached" });
    await expect.poll(search).toBe("?status=all");
    await press("Create a key");
    await press("Cancel");
    await dialog().waitFor({ state: "detached" });
    await expect.poll(search).toBe("?status=all");
    await expect.poll(() => page.evaluate("history.state")).toBe(null);
    expect(await dialog().count()).toBe(0);
  });

  test("what was typed into a dialog is lost by the second try only", async () => {
    await open("key");
    await press("Edit");
    await dialog().getByLabel("Name").fill("another name");
    await page.goBack();
    await page.getByText("What you typed is not saved.").waitFor();
    await press("Go on");
    expect(await dialog().getByLabel("Name").inputValue()).toBe("another name");
    await page.keyboard.press("Escape");
    await page.getByText("What you typed is not saved.").waitFor();
    await press("Close without saving");
    await closed();
  });

  test("a secret that was stored needs no question, and one that is left does", async () => {
    await open("key");
    for (const way of ["cross", "stored"]) {
      await press("Rotate");
      await press("Make a new secret");
      await page.getByText("You will not see it again.").waitFor();
      if (way === "stored") await press("I have stored it");
      else {
        await press("Close");
        await page.getByText("You have not copied the secret.").waitFor();
        await press("Close without it");
      }
      await closed();
    }
  });

  test("each filter is undone by going back", async () => {
    await open("usage");
    await page.getByRole("button", { name: "7 days" }).click();
    await page.getByRole("button", { name: "Model", exact: true }).click();
    expect(search()).toBe("?period=7d&by=model");
    await page.goBack();
    await expect.poll(search).toBe("?period=7d");
    await page.goBack();
    await expect.poll(search).toBe("");
  });
});
