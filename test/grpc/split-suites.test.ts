// Every suite of the two public formats once more, with the services behind gRPC: clients see no
// difference.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe } from "vitest";

process.env.TEST_SPLIT = "true";

for (const format of ["native", "chat"]) {
  const folder = join(import.meta.dirname, "..", format);
  for (const suite of readdirSync(folder).filter((name) => name.endsWith(".test.ts"))) {
    describe(`${format}/${suite}`, async () => {
      await import(join(folder, suite));
    });
  }
}
