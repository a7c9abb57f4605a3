// The limits of the built-in models are those of their vendor's page, and somebody has to read it.

import { expect, test } from "vitest";
import { defaultCatalog } from "../../src/config/catalog.ts";

/** Of https://…, as the file says it. */
const source = /(https:\/\/\S+)\n#\s+read on (\d{4}-\d\d-\d\d)\./;
const sixMonthsMs = 183 * 24 * 3_600_000;

test("the vendor's page of limits was read within six months", () => {
  const [, page, date = ""] = source.exec(defaultCatalog()) ?? [];
  const ageMs = Date.now() - Date.parse(date);
  expect(ageMs, `read ${page} again, and write its limits and the date`).toBeLessThan(sixMonthsMs);
  expect(ageMs).toBeGreaterThan(0);
});
