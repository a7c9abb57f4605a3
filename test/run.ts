// Runs the tests.
//
//   npm test                          types, lint and protos, then every suite that is not deep
//   npm test -- keys limits           the suites whose path contains one of the words, no checks
//   npm run test:deep                 the deep suites, all properties from fresh seeds, and
//                                     mutants of what recent commits changed
//   npm run test:deep -- crash        those whose path contains one of the words
//   npm run test:deep -- --part 2/6   a sixth of them
//
// `--deep-until SECONDS` lets `npm test` go on with deep suites until that time (since 1970), for
// `.ci/run`. `--record` stores how long each suite took in test/times.json.
//
// The last line is the sum of checks and tests: `N passed, N failed, N skipped`.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs, stripVTControlCharacters } from "node:util";
import type { Reporter, TestModule, TestSuite } from "vitest/node";
import { startVitest } from "vitest/node";
import { findBundle, writeBundle } from "../src/server/bundle.ts";
import {
  changedFiles,
  countCommits,
  deepSuites,
  dependOn,
  fitInto,
  isDeep,
  partOf,
  readTimes,
  renderTimes,
  root,
  suites,
  usualMs,
  workers,
} from "./runner/suites.ts";
import { faultsOf, isListed, type Unsteady } from "./runner/unsteady.ts";

const checks = [
  { name: "types", command: ["tsc", "--noEmit"] },
  { name: "types of the console", command: ["tsc", "--noEmit", "-p", "src/console/web"] },
  { name: "lint and format", command: ["biome", "check", "--error-on-warnings", "."] },
  { name: "protos", command: ["buf", "lint"] },
];

/** Parts of the deep suites that `.ci/run` takes by turns. */
const turns = 6;
const recentCommits = 20;
/** A start of the runner and its database. */
const startMs = 15_000;
/** Failing suites are run once more, unless there are more of them than this. */
const repeatedMax = 40;
/** How long mutants of what recent commits changed are tried. */
const mutantsMs = 180_000;
/** A suite is over its budget at so many times its usual time, in the pace of this run. */
const overBudget = 3;

type Result = {
  passed: number;
  failed: number;
  skipped: number;
  /** Full names, with the first lines of their errors. */
  failures: { name: string; why: string[] }[];
  ms: number;
};

const { values: options, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    deep: { type: "boolean", default: false },
    part: { type: "string" },
    "deep-until": { type: "string" },
    record: { type: "boolean", default: false },
  },
});
const times = readTimes();
const startedMs = performance.now();
/** The checks, and what no suite can be blamed for. */
const count = { passed: 0, failed: 0, skipped: 0 };
/** By suite, and in which run: the properties run in both. */
const results = new Map<string, Result>();
/** Shown once more at the end: their output is between that of suites. */
const lastLines: string[] = [];

// A run that ends before its suites have run is a failed run.
let isFinished = false;
process.on("exit", () => {
  if (!isFinished) count.failed++;
  for (const { passed, failed, skipped } of results.values()) {
    count.passed += passed;
    count.failed += failed;
    count.skipped += skipped;
  }
  process.exitCode = count.failed > 0 ? 1 : 0;
  printFigures();
  for (const line of lastLines) console.log(line);
  console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
});

const unsteady: Unsteady[] = JSON.parse(readFileSync(join(root, "test/unsteady.json"), "utf8"));
for (const fault of faultsOf(unsteady, new Date())) {
  lastLines.push(`FAILED: test/unsteady.json: ${fault}`);
  count.failed++;
}
// As after `npm install`: gateways that are processes of their own start in half of the time.
if (findBundle() === undefined) await writeBundle();
if (options.deep) {
  await runAll("deep", chooseDeep());
  if (words.length === 0) await tryMutants(mutantsMs);
} else {
  if (words.length === 0) await runChecks();
  await runAll("fast", matching(suites.filter((suite) => !isDeep(suite))));
  const untilSeconds = options["deep-until"];
  if (untilSeconds !== undefined) await runDeepUntil(Number(untilSeconds) * 1_000);
}
isFinished = results.size > 0;
if (options.record) writeFileSync(join(root, "test/times.json"), renderTimes(times, measured()));
process.exit();

function matching(all: readonly string[]): string[] {
  return all.filter((suite) => words.length === 0 || words.some((word) => suite.includes(word)));
}

function chooseDeep(): string[] {
  const [part, of] = (options.part ?? "1/1").split("/").map(Number);
  if (!part || !of || part > of) throw new Error("--part takes a part of a whole, such as 2/6");
  return partOf(matching(deepSuites), { part, of }, times);
}

/** First what recent commits may have broken, then the next sixth. */
async function runDeepUntil(untilMs: number): Promise<void> {
  const changed = changedFiles(recentCommits);
  const touched = changed ? dependOn(changed, deepSuites) : [];
  const part = (countCommits() % turns) + 1;
  let left = [...new Set([...touched, ...partOf(deepSuites, { part, of: turns }, times)])];
  for (;;) {
    const limits = { ms: untilMs - Date.now() - startMs, workers, pace: pace() };
    const next = fitInto(left, limits, times);
    if (next.length === 0) break;
    console.log(`${next.length} deep suites`);
    await runAll("deep", next);
    left = left.filter((suite) => !next.includes(suite));
  }
  await tryMutants(Math.min(mutantsMs, untilMs - Date.now() - startMs));
  const out = deepSuites.filter((suite) => !results.has(`deep ${suite}`));
  if (left.length > 0) console.log(`for lack of time not run:\n${left.join("\n")}`);
  lastLines.push(
    `left out: ${out.length} of ${deepSuites.length} deep suites, ${left.length} of them ` +
      `for lack of time; this was part ${part} of ${turns}`,
  );
}

/**
 * Runs these suites. Those that fail run once more, alone: that tells what is wrong with the
 * product from what is wrong beside others. Both are failures.
 */
async function runAll(run: "fast" | "deep", chosen: readonly string[]): Promise<void> {
  if (chosen.length === 0) return;
  process.env.TEST_RUN = run;
  const first = await runSuites(chosen);
  for (const [suite, result] of first) results.set(`${run} ${suite}`, result);
  const failed = [...first].filter(([, result]) => result.failed > 0);
  if (failed.length === 0 || failed.length > repeatedMax) return;
  console.log(`once more, one after the other:\n${failed.map(([suite]) => suite).join("\n")}`);
  const alone = await runSuites(
    failed.map(([suite]) => suite),
    { fileParallelism: false, isolate: true },
  );
  for (const [suite, result] of failed) {
    const how = alone.get(suite)?.failed === 0 ? "fails beside others" : "fails always";
    const isKnown = isListed(
      unsteady,
      suite,
      result.failures.map(({ name }) => name),
    );
    lastLines.push(`${isKnown ? "UNSTEADY" : "FAILED"}: ${suite}: ${how}`);
    for (const { name, why } of result.failures) lastLines.push(`  ${name}`, ...indent(why));
    if (!isKnown) continue;
    result.skipped += result.failed;
    result.failed = 0;
  }
}

async function runSuites(
  chosen: readonly string[],
  how: { fileParallelism?: boolean; isolate?: boolean } = {},
): Promise<Map<string, Result>> {
  const ended = new Map<string, Result>();
  const counter: Reporter = {
    onTestRunEnd(modules, unhandledErrors) {
      for (const module of modules) {
        const { duration, setupDuration, collectDuration } = module.diagnostic();
        const ms = duration + setupDuration + collectDuration;
        const result: Result = { passed: 0, failed: 0, skipped: 0, failures: [], ms };
        for (const test of module.children.allTests()) {
          const { state } = test.result();
          if (state === "passed" || state === "failed") result[state]++;
          else result.skipped++;
          if (state === "failed")
            result.failures.push({ name: test.fullName, why: whyOf(test.result().errors ?? []) });
        }
        // Of files that cannot be loaded and of hooks, which may leave no failed test behind.
        for (const group of [module, ...module.children.allSuites()])
          if (group.errors().length > 0)
            result.failures.push({ name: nameOf(group), why: whyOf(group.errors()) });
        if (module.state() === "failed" && result.failed === 0) result.failed++;
        ended.set(relative(root, module.moduleId), result);
      }
      for (const error of unhandledErrors) {
        const result = ended.get(relative(root, fileOf(error) ?? ""));
        const failure = { name: "an error outside of its tests", why: whyOf([error]) };
        if (!result) {
          count.failed++;
          lastLines.push(`FAILED: no suite: ${failure.name}`, ...indent(failure.why));
          continue;
        }
        result.failed++;
        result.failures.push(failure);
      }
    },
  };
  const vitest = await startVitest("test", [...chosen], {
    run: true,
    watch: false,
    reporters: ["default", counter],
    ...how,
  });
  await vitest.close();
  return ended;
}

function nameOf(group: TestModule | TestSuite): string {
  return group.type === "module" ? "the file, or a hook of it" : `a hook of ${group.fullName}`;
}

function indent(lines: readonly string[]): string[] {
  return lines.map((line) => `    ${line}`);
}

type Thrown = {
  readonly message: string;
  readonly stack?: string;
  readonly diff?: string;
  readonly cause?: unknown;
};

/** The first lines of an error and of its causes: for a property, its seed and the example. */
function whyOf(errors: readonly Thrown[]): string[] {
  const texts = errors.flatMap(({ message, stack = "", diff = "", cause }) => [
    message,
    stripVTControlCharacters(diff),
    Object(cause).message ?? "",
    // Where it came from: the suite that ran may not be the one to blame.
    ...stack.split("\n").filter((line) => /^\s+at (?!.*node_modules\/vitest)/.test(line)),
  ]);
  const lines = texts.join("\n").split("\n");
  return lines
    .filter((line) => line.trim() !== "")
    .slice(0, 12)
    .map((line) => line.slice(0, 300));
}

/** Prints the scores of what recent commits changed. Nothing fails by them. */
async function tryMutants(ms: number): Promise<void> {
  if (ms < mutantsMs / 3) return;
  const seconds = String(Math.round(ms / 1_000));
  const args = ["test/mutants/run.ts", "--changed", String(recentCommits), "--seconds", seconds];
  const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit" });
  await once(child, "close");
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
      lastLines.push(`FAILED: ${name}`);
    }
    console.log(`${isPassed ? "passed" : "FAILED"}: ${name}`);
    count[isPassed ? "passed" : "failed"]++;
  }
}

/** How long each suite took, in milliseconds. */
function measured(): Map<string, number> {
  return new Map([...results].map(([name, { ms }]) => [name.split(" ")[1] ?? "", ms]));
}

/** How many times longer than usual the suites of this run took together. */
function pace(): number {
  const all = [...measured()];
  const sum = all.reduce((sumMs, [, ms]) => sumMs + ms, 0);
  const usual = all.reduce((sumMs, [suite]) => sumMs + usualMs(times, suite), 0);
  return usual > 0 ? sum / usual : 1;
}

function printFigures(): void {
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  const cases = [...results.values()].reduce(
    (sum, { passed, failed, skipped }) => sum + passed + failed + skipped,
    0,
  );
  const processor = processorMs();
  const figures = [
    `${cases} cases of ${results.size} suites`,
    `${seconds(performance.now() - startedMs)} wall`,
    ...(processor === undefined ? [] : [`${seconds(processor)} of processor time`]),
  ];
  console.log(figures.join(", "));
  const slowest = [...results].sort(([, one], [, other]) => other.ms - one.ms).slice(0, 10);
  for (const [name, { ms }] of slowest) console.log(`  ${seconds(ms).padStart(8)}  ${name}`);
  const limit = overBudget * Math.max(1, pace());
  for (const [suite, ms] of measured())
    if (ms > usualMs(times, suite) * limit)
      lastLines.unshift(
        `OVER BUDGET: ${suite}: ${seconds(ms)}, usually ${seconds(usualMs(times, suite))}`,
      );
}

/** Of this process and of those that it waited for. Undefined where the system does not say. */
function processorMs(): number | undefined {
  try {
    // The name of the program, which may contain anything, is in parentheses.
    const stat = readFileSync("/proc/self/stat", "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    // A hundred ticks a second, on every Linux that Node runs on.
    return ticks * 10;
  } catch {
    return undefined;
  }
}
