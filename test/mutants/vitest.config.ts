// How suites run against mutants: one after the other in a few workers that keep their modules.

import { readFileSync } from "node:fs";
import base from "../../vitest.config.ts";

const { MUTANT_WRAPPERS: folder = "", MUTANT_FILE: file, MUTANT_SOURCE: source } = process.env;

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
    testTimeout: 60_000,
    hookTimeout: 60_000,
    teardownTimeout: 10_000,
    expect: { ...base.test?.expect, poll: { timeout: 5_000 } },
    onConsoleLog: () => false,
    watch: false,
  },
};
