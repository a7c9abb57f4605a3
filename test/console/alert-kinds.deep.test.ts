// The page has no list of its own of the kinds of alerts: it shows those of the service, also one
// that a newer gateway has.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AlertKind } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  let gateway: TestGateway;
  beforeAll(async () => {
    gateway = await startTestGateway({ split: false });
  });
  afterAll(() => gateway.stop());

  test("every kind of the service is a row of the page, and so is one that is added", async () => {
    const browser = await startChromium();
    const { page, problems } = await openPage(browser);
    /** What the service said, by whose alerts they are. */
    const kinds = new Map<string, number>();
    await page.route("**/gateway.alerts.v1.AlertsService/ListAlerts", async (route) => {
      const response = await route.fetch();
      const json = Object(await response.json());
      const rules: object[] = json.settings?.rules ?? [];
      kinds.set(String(Object(route.request().postDataJSON()).accountId ?? ""), rules.length);
      await route.fulfill({
        response,
        json: { ...json, settings: { rules: [...rules, { kind: 99 }] } },
      });
    });
    await page.goto(gateway.ownerLink);
    await page.getByLabel("Login").fill("olga");
    await page.getByRole("button", { name: "Create a passkey" }).click();
    await page.getByRole("button", { name: "Create key" }).waitFor();
    const origin = new URL(gateway.ownerLink).origin;
    let rows = 0;
    for (const path of [`${gateway.accountId}/settings`, "operator/health"]) {
      await page.goto(`${origin}/console/${path}`);
      const table = page.getByRole("table", { name: "Alerts" });
      await expect
        .poll(async () => {
          await page.mouse.wheel(0, 5_000);
          return table.count();
        })
        .toBe(1);
      const names = await table.locator("tbody th").allTextContents();
      expect(names).toContain("Kind 99");
      expect(names.filter((name) => name.trim() === "" || name === "Kind 0")).toEqual([]);
      expect(new Set(names).size).toBe(names.length);
      rows += names.length - 1;
    }
    expect([...kinds.keys()].toSorted()).toEqual(["", gateway.accountId]);
    expect([...kinds.values()].reduce((sum, one) => sum + one, 0)).toBe(rows);
    // A payment that waits and a leaked key are both an account's and an operator's.
    const all = Object.values(AlertKind).filter((kind) => typeof kind === "number" && kind > 0);
    expect(rows).toBe(all.length + 2);
    expect(problems).toEqual([]);
    await browser.close();
  });
});
