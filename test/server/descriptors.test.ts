// The limit of descriptors beside what the configuration allows.

import { expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { checkDescriptors } from "../../src/server/descriptors.ts";
import { catalogFor } from "../support/catalog.ts";

function warningsFor(concurrency: number): string[] {
  const warnings: string[] = [];
  const log = Object.assign(createLog("silent"), {
    warn: ({ code }: { code: string }) => void warnings.push(code),
  });
  const provider = { kind: "anthropic", url: "http://localhost:1" } as const;
  const catalog = readCatalogFile(
    catalogFor({ real: { ...provider, more: `concurrency: ${concurrency}` } }),
  );
  checkDescriptors(catalog, log);
  return warnings;
}

test("a limit of open files below twice the concurrency of the providers is a warning", () => {
  expect(warningsFor(1_000_000)).toEqual(["descriptors_few"]);
  expect(warningsFor(2)).toEqual([]);
});
