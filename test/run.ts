// Runs the tests.
//
//   npm test                  types, lint and protos, then every suite
//   npm run test:fast         the same checks, then the suites that are not slow: for use between
//                             edits, less than a minute on two processors
//   npm test -- keys limits   the suites whose path contains one of the words, and no checks
//
// The last line is the sum of checks and tests: `N passed, N failed, N skipped`.

import { execFile } from "node:child_process";
import { configDefaults } from "vitest/config";
import type { Reporter } from "vitest/node";
import { startVitest } from "vitest/node";
import { findBundle, writeBundle } from "../src/server/bundle.ts";

/**
 * Suites that `npm run test:fast` leaves out, as folders or files: they start processes, load
 * client libraries, wait for real time, or try thousands of generated inputs. A new suite is fast
 * unless it is added here.
 */
const slowSuites = [
  "test/crash/**",
  "test/docs/samples.test.ts",
  "test/e2e/**",
  "test/server/**",
  "test/billing/{faults,interleavings}.test.ts",
  "test/chat/clients.test.ts",
  "test/formats/schemas.test.ts",
  "test/formats/native/{decode-request,law}.test.ts",
  "test/grpc/{contract,floods,lifecycle,real-services,server,split,split-suites}.test.ts",
  "test/http/{malformed-bodies,openapi,sdk}.test.ts",
  "test/inference/reported-usage.test.ts",
  "test/keys/{nodes,propagation}.test.ts",
  "test/console/{browser,journey,states}.test.ts",
  "test/people/{command,nodes,properties,secrets}.test.ts",
  "test/native/{clients,law,requests,sdk}.test.ts",
  "test/postgres/{durability,pooler,servers,template}.test.ts",
  "test/rate-limits/{fallback-quota,redis,redis-sync}.test.ts",
];

const checks = [
  { name: "types", command: ["tsc", "--noEmit"] },
  { name: "types of the console", command: ["tsc", "--noEmit", "-p", "src/console/web"] },
  { name: "lint and format", command: ["biome", "check", "--error-on-warnings", "."] },
  { name: "protos", command: ["buf", "lint"] },
];

/**
 * Suites that fail beside others run once more, alone, unless there are more of them than this, or
 * the first round took so long that a second one would not end in time.
 */
const unsteady = { most: 40, firstRoundMsMax: 60 * 60_000 };

type Count = { passed: number; failed: number; skipped: number };
const none = (): Count => ({ passed: 0, failed: 0, skipped: 0 });
const count = none();
/** What each suite counted when it ran last, by its file. */
const suites = new Map<string, Count>();
/** Named once more at the end: their output is between that of suites. */
const failedChecks: string[] = [];
const words = process.argv.slice(2);
const isFast = words.includes("--fast");
const filters = words.filter((word) => word !== "--fast");

const counter: Reporter = {
  onTestRunEnd(modules, unhandledErrors) {
    for (const module of modules) {
      const ofSuite = none();
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed" || state === "failed") ofSuite[state]++;
        else ofSuite.skipped++;
      }
      // A file that cannot be loaded, or a hook that failed, may leave no failed test behind.
      if (module.state() === "failed" && ofSuite.failed === 0) ofSuite.failed++;
      suites.set(module.moduleId, ofSuite);
    }
    for (const error of unhandledErrors) {
      const suite = suites.get(fileOf(error) ?? "");
      if (suite) suite.failed++;
      else count.failed++;
    }
  },
};

// A run that ends before its suites have run is a failed run.
let finished = false;
process.on("exit", () => {
  if (!finished) count.failed++;
  for (const { passed, failed, skipped } of suites.values()) {
    count.passed += passed;
    count.failed += failed;
    count.skipped += skipped;
  }
  process.exitCode = count.failed > 0 ? 1 : 0;
  for (const name of failedChecks) console.log(`FAILED: ${name}`);
  console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
});

if (filters.length === 0) await runChecks();
// As after `npm install`: gateways that are processes of their own start in half of the time.
if (!isFast && findBundle() === undefined) await writeBundle();
const startedAt = performance.now();
await runSuites(filters);
const firstRoundMs = performance.now() - startedAt;
finished = suites.size > 0;
// Many suites wait for servers and for each other's processes in real time. One that fails while
// the machine is busy, and not alone, has too little patience: it is named, to be mended. What is
// wrong with the product fails again.
const failed = [...suites].flatMap(([file, { failed }]) => (failed > 0 ? [file] : []));
const isWorthwhile =
  failed.length <= unsteady.most &&
  firstRoundMs <= unsteady.firstRoundMsMax &&
  filters.length === 0;
if (failed.length > 0 && isWorthwhile) {
  console.log(`once more, one after the other:\n${failed.join("\n")}`);
  finished = false;
  await runSuites(failed, { fileParallelism: false, isolate: true });
  finished = true;
  for (const file of failed) if (suites.get(file)?.failed === 0) console.log(`UNSTEADY: ${file}`);
}
process.exit();

/** Runs the suites whose path contains one of the words, or all, and counts their tests. */
async function runSuites(
  words: string[],
  how: { fileParallelism?: boolean; isolate?: boolean } = {},
): Promise<void> {
  const vitest = await startVitest("test", words, {
    run: true,
    watch: false,
    reporters: ["default", counter],
    exclude: isFast ? [...configDefaults.exclude, ...slowSuites] : configDefaults.exclude,
    ...how,
  });
  await vitest.close();
}

/** The suite that ran when an error was left unhandled, or when its worker died. */
function fileOf(error: unknown): string | undefined {
  const { VITEST_TEST_PATH: path, message, cause } = Object(error);
  if (typeof path === "string") return path;
  const [, file] = / while running test file (\S+)$/.exec(String(message)) ?? [];
  return file ?? (cause === undefined ? undefined : fileOf(cause));
}

/** Runs the checks, one after the other. */
async function runChecks(): Promise<void> {
  for (const { name, command } of checks) {
    const [program = "", ...args] = command;
    const { isPassed, output } = await new Promise<{ isPassed: boolean; output: string }>(
      (resolve) =>
        execFile(program, args, { maxBuffer: 2 ** 26 }, (error, stdout, stderr) =>
          resolve({ isPassed: !error, output: stdout + stderr || String(error ?? "") }),
        ),
    );
    if (!isPassed) {
      console.log(output);
      failedChecks.push(name);
    }
    console.log(`${isPassed ? "passed" : "FAILED"}: ${name}`);
    count[isPassed ? "passed" : "failed"]++;
  }
}
