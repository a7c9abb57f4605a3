// `npm test`: types, lint and protos first, then every suite. The last line counts them all: `N
// passed, N failed, N skipped`. `npm test -- keys limits` runs the suites whose path holds one of
// the words, and no other check.

import { spawnSync } from "node:child_process";
import type { Reporter } from "vitest/node";
import { startVitest } from "vitest/node";

const checks = [
  { name: "types", command: ["tsc", "--noEmit"] },
  { name: "lint and format", command: ["biome", "check", "--error-on-warnings", "."] },
  { name: "protos", command: ["buf", "lint"] },
];

const count = { passed: 0, failed: 0, skipped: 0 };
const filters = process.argv.slice(2);

if (filters.length === 0) for (const check of checks) runCheck(check);

const counter: Reporter = {
  onTestRunEnd(modules, unhandledErrors) {
    count.failed += unhandledErrors.length;
    for (const module of modules) {
      // A file that cannot be loaded, or a hook that failed, may leave no failed test behind.
      const tests = [...module.children.allTests()];
      const anyFailed = tests.some((test) => test.result().state === "failed");
      if (module.state() === "failed" && !anyFailed) count.failed++;
      for (const test of tests) {
        const { state } = test.result();
        if (state === "passed" || state === "failed") count[state]++;
        else count.skipped++;
      }
    }
  },
};

// Whatever else fails, a run without its suites is a failed run.
let finished = false;
process.on("exit", () => {
  if (!finished) count.failed++;
  if (count.failed > 0) process.exitCode = 1;
  console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
});

const vitest = await startVitest("test", filters, {
  run: true,
  watch: false,
  reporters: ["default", counter],
});
await vitest.close();
finished = vitest.state.getTestModules().length > 0;
process.exit();

function runCheck({
  name,
  command: [program = "", ...args],
}: {
  name: string;
  command: string[];
}): void {
  const { status, error } = spawnSync(program, args, { stdio: "inherit" });
  const passed = status === 0;
  console.log(`${passed ? "passed" : "FAILED"}: ${name}${error ? ` (${error.message})` : ""}`);
  count[passed ? "passed" : "failed"]++;
}
