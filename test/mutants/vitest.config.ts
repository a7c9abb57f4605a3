// How suites run against mutants: one after the other in a few workers that keep their modules.

import { readFileSync } from "node:fs";
import base from "../../vitest.config.ts";

const { MUTANT_WRAPPERS: folder = "", MUTANT_FILE: file, MUTANT_SOURCE: source } = process.env;
const testMs = Number(process.env.MUTANT_TEST_MS);

export default {
  ...base,
  plugins: [
    {
      name: "mutated-source",
      enforce: "pre" as const,
      load: (id: string) =>
        source !== undefined && id === file ? readFileSync(source, "utf8") : undefined,
    },
  ],
  test: {
    ...base.test,
    dir: folder,
    // It would give a mutated source to the next run.
    fsModuleCache: false,
    include: ["**/*.test.ts"],
    setupFiles: [...(base.test?.setupFiles ?? []), "test/mutants/setup.ts"],
    maxWorkers: 2,
    sequence: {},
    dangerouslyIgnoreUnhandledErrors: true,
    // A mutant that never ends is found like one that fails.
    testTimeout: testMs,
    hookTimeout: testMs,
    teardownTimeout: 10_000,
    expect: { ...base.test?.expect, poll: { timeout: 5_000 } },
    onConsoleLog: () => false,
    watch: false,
  },
};
