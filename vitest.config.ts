import { relative } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { readTimes, root, usualMs, workers } from "./test/runner/suites.ts";

const times = readTimes();
const isDeep = process.env.TEST_RUN === "deep";

/** Runs the longest suites first, so that none of them is left alone at the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const usual = ({ moduleId }: TestSpecification) => usualMs(times, relative(root, moduleId));
    return files.toSorted((one, other) => usual(other) - usual(one));
  }
}

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    // A worker keeps its modules from file to file: importing them costs a file three seconds, a
    // third of a whole run.
    isolate: false,
    // Most suites wait more than they compute: one worker for each processor leaves a third idle.
    maxWorkers: workers,
    sequence: { sequencer: LongestFirst },
    // They only keep a test from hanging: a machine may give us a quarter of what it promised.
    testTimeout: isDeep ? 180_000 : 90_000,
    hookTimeout: 90_000,
    expect: { poll: { timeout: 30_000 }, requireAssertions: true },
  },
});
