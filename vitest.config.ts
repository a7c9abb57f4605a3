import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The longest suite, then folders of suites that start processes and wait for them. */
const longest = ["console/states", "server/", "crash/", "rate-limits/", "payments/", "console/"]
  .concat(["e2e/", "people/", "postgres/", "grpc/"])
  .map((path) => `/test/${path}`);

/** Runs the longest suites first, so that none of them is left alone at the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification) => {
      const index = longest.findIndex((folder) => moduleId.includes(folder));
      return index < 0 ? longest.length : index;
    };
    return sorted.toSorted((one, other) => rank(one) - rank(other));
  }
}

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    setupFiles: ["test/support/check-answers.ts", "test/support/patience.ts"],
    pool: "forks",
    // A worker keeps its modules from file to file: importing them costs a file three seconds, a
    // third of a whole run.
    isolate: false,
    // Most suites wait more than they compute: one worker for each processor leaves a third idle.
    // Two for each make one another wait for longer than their patience on a slow machine.
    maxWorkers: Math.ceil(1.5 * availableParallelism()),
    sequence: { sequencer: LongestFirst },
    // They only keep a test from hanging: a machine may give us a quarter of what it promised.
    testTimeout: 240_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
