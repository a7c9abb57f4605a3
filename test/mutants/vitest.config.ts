// How the suites run against a mutant: those that stand next to the mutated file, one by one.

import base from "../../vitest.config.ts";

const { MUTANT_SUITES: suites = "[]" } = process.env;

export default {
  ...base,
  test: {
    ...base.test,
    include: JSON.parse(suites),
    setupFiles: [...(base.test?.setupFiles ?? []), "test/mutants/setup.ts"],
    fileParallelism: false,
    bail: 1,
    // A mutant that never ends is found like one that fails.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { ...base.test?.expect, poll: { timeout: 5_000 } },
    watch: false,
  },
};
