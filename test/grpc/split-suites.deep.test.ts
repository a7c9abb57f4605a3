// Every suite of the two public formats once more, with the services behind gRPC: clients see no
// difference.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe } from "vitest";

process.env.TEST_SPLIT = "true";
afterAll(() => {
  delete process.env.TEST_SPLIT;
});

for (const format of ["native", "chat"]) {
  const folder = join(import.meta.dirname, "..", format);
  for (const suite of readdirSync(folder).filter((name) => name.endsWith(".test.ts"))) {
    describe(`${format}/${suite}`, async () => {
      // A module of its own, also in a worker that has run the suite before.
      await import(`${join(folder, suite)}?split`);
    });
  }
}
