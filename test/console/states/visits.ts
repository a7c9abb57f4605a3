// What opens on a page when somebody does something there: dialogs, and the steps after a click.

import type { Page } from "playwright-core";

export type Visit = {
  readonly name: string;
  /** The state in which it begins. */
  readonly page: string;
  readonly state: string;
  readonly run: (page: Page) => Promise<void>;
};

/** Presses buttons by their names, one after another. The first that is found counts. */
function press(...names: readonly (string | RegExp)[]): Visit["run"] {
  return async (page) => {
    for (const name of names)
      await page
        .getByRole("button", { name, exact: typeof name === "string" })
        .first()
        .click();
  };
}

/** Presses one of several buttons of the same name. */
function pressOneOf(name: string, index: number): Visit["run"] {
  return (page) => page.getByRole("button", { name, exact: true }).nth(index).click();
}

/** Parts that are loaded by need are loaded once they are seen. */
async function scrollTo(page: Page, heading: string): Promise<void> {
  await page.getByRole("heading", { name: heading }).scrollIntoViewIfNeeded();
}

/** Presses within the dialog on top. */
async function pressInDialog(page: Page, name: string | RegExp): Promise<void> {
  await page.getByRole("dialog").last().getByRole("button", { name }).last().click();
}

const longKey = "the nightly jobs of the whole research department in Potsdam";

async function createKey(page: Page): Promise<void> {
  await page.getByRole("dialog").getByLabel("Name").fill(longKey);
  await pressInDialog(page, "Create key");
  await page.getByText("You will not see it again.").waitFor();
}

async function pickKeys(page: Page): Promise<void> {
  await page.getByRole("checkbox", { name: "Pick the keys on this page" }).check();
}

function actOnKeys(name: string): Visit["run"] {
  return async (page) => {
    await pickKeys(page);
    await page.getByRole("region", { name: "Picked keys" }).getByRole("button", { name }).click();
    await page.getByRole("dialog").waitFor();
  };
}

/** By the page on which they open. */
const visitsOf: Readonly<Record<string, Readonly<Record<string, Visit["run"]>>>> = {
  "start full": {
    "first key made": async (page) => {
      await press("Create key")(page);
      await page.getByText("You will not see it again.").waitFor();
    },
  },
  "keys full": {
    picked: pickKeys,
    "pause of some": actOnKeys("Pause"),
    "limits of some": async (page) => {
      await actOnKeys("Set limits")(page);
      await page
        .getByRole("dialog")
        .getByLabel("Daily cap", { exact: true })
        .selectOption("becomes");
    },
    "tags of some": actOnKeys("Tags"),
    "revocation of some": actOnKeys("Revoke"),
    "some left": async (page) => {
      await actOnKeys("Pause")(page);
      await pressInDialog(page, /^Pause/);
      await page.getByText("Not all were changed").waitFor();
    },
  },
  "key-form full": {
    limits: async (page) => page.getByRole("dialog").getByText("Limits").click(),
    secret: createKey,
    "secret that was not copied": async (page) => {
      await createKey(page);
      await page.keyboard.press("Escape");
    },
  },
  "key full": {
    edit: press("Edit"),
    rotate: press("Rotate"),
    rotated: async (page) => {
      await press("Rotate")(page);
      await pressInDialog(page, "Make a new secret");
      await page.getByText("You will not see it again.").waitFor();
    },
    revoke: press("Revoke"),
  },
  "key long names": { edit: press("Edit"), rotate: press("Rotate"), revoke: press("Revoke") },
  "members full": {
    invitation: press(/^Invite/),
    invited: async (page) => {
      await press(/^Invite/)(page);
      await pressInDialog(page, "Make the invitation");
      await page.getByRole("dialog").getByRole("button", { name: /^Copy/ }).waitFor();
    },
    removal: press("Remove"),
    limits: press("Limits"),
  },
  "settings full": {
    rename: press("Rename"),
    passkey: press("Add a passkey"),
    "billing details": pressOneOf("Change", 0),
    password: pressOneOf("Change", 1),
    email: pressOneOf("Change", 2),
    deletion: press(/^Delete/),
    "default limits": async (page) => {
      await scrollTo(page, "What members may spend");
      await press("Set limits")(page);
    },
    "management key": async (page) => {
      await scrollTo(page, "Data and leaving");
      await press("New management key")(page);
    },
    "management limits": async (page) => {
      await scrollTo(page, "Data and leaving");
      await pressOneOf("Limits", 0)(page);
    },
    "management secret": async (page) => {
      await scrollTo(page, "Data and leaving");
      await press("New management key")(page);
      await page.getByRole("dialog").getByLabel("Name").fill("deploy-bot");
      await pressInDialog(page, "Create");
      await page.getByText("You will not see it again.").waitFor();
    },
    "management revocation": async (page) => {
      await scrollTo(page, "Data and leaving");
      await pressOneOf("Revoke", 0)(page);
    },
  },
  "settings long names": { closing: press(/^Close/), leaving: press("Leave") },
  "overview full": {
    palette: async (page) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: /^Find / }).fill("a");
      await page.getByText("There are more.").waitFor();
    },
    glossary: async (page) => {
      await page.keyboard.press("?");
      await page.getByRole("heading", { name: "Glossary" }).waitFor();
    },
  },
  "connect full": {
    "another tool": (page) =>
      page.getByRole("link", { name: "Java", exact: false }).first().click(),
    streaming: press("Streaming"),
  },
  "try full": {
    "nothing to send": press("Send"),
    // The states have no public path.
    refused: async (page) => {
      await page.getByLabel("Message", { exact: true }).fill("word ".repeat(40));
      await press("Send")(page);
      await page.getByText("Something else answered").waitFor();
    },
  },
  "credits full": { "running requests": press(/held by running requests/) },
  "usage full": { views: press("Views"), "a view": press("Views", "Save this view") },
  "usage-by-key full": {
    // Its tip has the longest names.
    "a bar": (page) => page.locator("g[data-bar]").nth(3).hover(),
  },
  "order open": { cancelling: press(/^Cancel/) },
  "alerts full": {
    "those that failed": async (page) => page.getByLabel("Only those that failed").check(),
    "the bell": async (page) => {
      await page.setViewportSize({ width: 1440, height: 900 });
      await press(/^Alerts/)(page);
    },
  },
  "operator-account full": {
    transfer: press("Move credits"),
    suspension: press("Suspend"),
    "a notice again": press("Send again"),
    "a receipt again": press("Mail it"),
  },
  "operator-order full": { decision: press("Decide") },
  "operator-order refunding": { "coins sent": press("Coins sent") },
  "operator-audit full": {
    // The one with the longest facts is the last.
    "its facts": (page) => page.locator("summary").last().click(),
  },
  "operator-price-list full": {
    preview: async (page) => {
      await press("Preview")(page);
      await page.getByRole("table").last().scrollIntoViewIfNeeded();
    },
    "in force": press("Preview", "Put in force"),
    "wrong condition": async (page) => {
      await page.getByLabel("Conditions of model-opus-4.6").fill("prompt_over: 5");
      await press("Preview")(page);
    },
  },
  "operator-new-price-list full": { name: press("Preview", "Make list") },
  "operator-people full": { "new token": press(/token/i) },
};

export const visits: readonly Visit[] = Object.entries(visitsOf).flatMap(([place, runs]) => {
  const [page = "", ...state] = place.split(" ");
  return Object.entries(runs).map(([name, run]) => ({ name, page, state: state.join(" "), run }));
});
