// Mutation testing: changes the product at one place at a time, and tells which changes no test
// notices.
//
//   npm run test:mutants -- src/billing/price.ts src/billing/sql/holds.sql
//   npm run test:mutants -- --suites "inference crash" src/billing/price.ts
//   npm run test:mutants -- --only "billing/price billing/hold-size" src/billing/price.ts
//   npm run test:mutants -- --changed 20 --seconds 180    files that the last commits changed
//
// A source is mutated by Stryker, a file of statements by `statements.ts`. Both run the suites of
// the file's room that are not deep, and those that import the file: `--suites` adds others,
// `--only` names those that are enough. `FILE:10-80` changes these lines alone, and of statements
// `FILE:find-account` one of them. What survives is printed with its line; `equivalent.json`
// names the mutants that change nothing, with the reason.

import { spawn } from "node:child_process";
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { Stryker } from "@stryker-mutator/core";
import { Client } from "pg";
import { createVitest } from "vitest/node";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { readBlocks } from "../../src/postgres/generate.ts";
import { migrate } from "../../src/postgres/migrate.ts";
import {
  changedFiles,
  isDeep,
  nextTo,
  readTimes,
  root,
  suites,
  usualMs,
} from "../runner/suites.ts";
import { mutantsOf, type StatementMutant, statements } from "./statements.ts";

type Outcome = "killed" | "survived" | "equivalent" | "invalid";

/** What became of one mutant. */
type Tried = {
  readonly line: number | undefined;
  readonly before: string;
  readonly after: string;
  readonly outcome: Outcome;
};

/** A mutant that changes nothing. */
type Equivalent = { readonly file: string; readonly mutant: string; readonly reason: string };

const equivalents: Equivalent[] = JSON.parse(
  readFileSync(join(import.meta.dirname, "equivalent.json"), "utf8"),
);
const configFile = "test/mutants/vitest.config.ts";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    suites: { type: "string", default: "" },
    only: { type: "string" },
    changed: { type: "string" },
    seconds: { type: "string" },
  },
});

if (options.changed !== undefined) await tryChanged(Number(options.changed));
else
  for (const positional of positionals) {
    const [file = "", part] = positional.split(":");
    print(file, await tryFile(relative(root, file), part));
  }
process.exit();

async function tryFile(file: string, part: string | undefined): Promise<Tried[]> {
  const named = (text: string) => {
    const words = text.split(" ").filter((word) => word !== "");
    return suites.filter((suite) => words.some((word) => suite.includes(word)));
  };
  const fast = suites.filter((suite) => !isDeep(suite));
  const near = options.only === undefined ? nextTo([file], fast) : named(options.only);
  const times = readTimes();
  const chosen = [...new Set([...near, ...named(options.suites)])].sort(
    (one, other) => usualMs(times, one) - usualMs(times, other),
  );
  if (chosen.length === 0) throw new Error(`no suite stands next to ${file}`);
  process.env.MUTANT_SUITES = JSON.stringify(chosen);
  console.log(`${file}: ${chosen.length} suites`);
  return file.endsWith(".sql") ? tryStatements(file, part) : trySource(file, part);
}

/** Files that recent commits changed, the smallest first, while there is time. */
async function tryChanged(commits: number): Promise<void> {
  const untilMs = Date.now() + Number(options.seconds ?? 180) * 1_000;
  const isMutable = (path: string) =>
    /^src\/.*\.(ts|sql)$/.test(path) && !/console\/web|migrations|\.d\.ts$/.test(path);
  const files = [...(changedFiles(commits) ?? [])]
    .filter((path) => isMutable(path) && statSync(join(root, path), { throwIfNoEntry: false }))
    .sort((one, other) => statSync(join(root, one)).size - statSync(join(root, other)).size);
  const left: string[] = [];
  for (const file of files) {
    const ms = untilMs - Date.now();
    // A process of its own, with what it has started, can be ended.
    const child = spawn(process.execPath, [import.meta.filename, file], {
      stdio: "inherit",
      detached: true,
    });
    const isDone = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      }, ms);
      child.on("close", (code) => {
        clearTimeout(timer);
        resolve(code === 0);
      });
    });
    if (!isDone) left.push(file);
    if (Date.now() >= untilMs) {
      left.push(...files.slice(files.indexOf(file) + 1));
      break;
    }
  }
  console.log(
    `${files.length - left.length} files, for lack of time not ${left.join(" ") || "none"}`,
  );
}

async function trySource(file: string, lines: string | undefined): Promise<Tried[]> {
  const temp = join(tmpdir(), `gateway-mutants-${process.pid}`);
  // Stryker links no folder that is a link itself, as in a second worktree.
  const modules = join(root, "node_modules");
  const isLink = lstatSync(modules).isSymbolicLink();
  if (isLink) {
    mkdirSync(temp);
    symlinkSync(modules, join(temp, "node_modules"));
  }
  const stryker = new Stryker({
    mutate: [lines === undefined ? file : `${file}:${lines}`],
    symlinkNodeModules: !isLink,
    testRunner: "vitest",
    plugins: ["@stryker-mutator/vitest-runner"],
    vitest: { configFile, related: false },
    coverageAnalysis: "perTest",
    // One that only a file's own load runs would have each suite run whole, for minutes.
    ignoreStatic: true,
    concurrency: 2,
    timeoutMS: 20_000,
    tempDirName: temp,
    cleanTempDir: "always",
    ignorePatterns: [".git", "docs", "third_party"],
    // Stryker would rewrite it with an interface that the compiler no longer has.
    tsconfigFile: "absent.json",
    // An emptied text of an error or a log line says little, an emptied kind does not compile.
    mutator: { plugins: null, excludedMutations: ["StringLiteral"] },
    reporters: [],
  });
  const texts = readFileSync(join(root, file), "utf8").split("\n");
  return (await stryker.runMutationTest()).map(({ status, location, replacement = "" }) => {
    const { start, end } = location;
    // Lines and columns count from one.
    const before = texts[start.line - 1]?.trim() ?? "";
    const first = texts[start.line - 1]?.slice(0, start.column - 1) ?? "";
    const last = texts[end.line - 1]?.slice(end.column - 1) ?? "";
    const after = (first + replacement + last).replaceAll(/\s+/g, " ").trim();
    const isKilled = status === "Killed" || status === "Timeout";
    const isInvalid = status !== "Survived" && status !== "NoCoverage";
    const outcome = isKilled ? "killed" : isInvalid ? "invalid" : survived(file, after);
    return { line: start.line, before, after, outcome };
  });
}

async function tryStatements(file: string, only: string | undefined): Promise<Tried[]> {
  const [, room = ""] = /^src\/([^/]+)\/sql\//.exec(file) ?? [];
  const names = readBlocks(file, readFileSync(join(root, file), "utf8"))
    .map(({ name }) => `${room}/${kebab(name)}`)
    .filter((name) => only === undefined || name.endsWith(`/${only}`));
  const all = (await statements()).filter(({ name }) => names.includes(name)).flatMap(mutantsOf);
  const valid = await onlyValid(all);
  const folder = mkdtempSync(join(tmpdir(), "gateway-mutants-"));
  const coverage = join(folder, "coverage");
  process.env.MUTANT_COVERAGE = coverage;
  const vitest = await createVitest("test", { config: configFile, watch: false, reporters: [] });
  const run = async (chosen: readonly string[]): Promise<boolean> => {
    const found = await Promise.all(chosen.map((suite) => vitest.globTestSpecifications([suite])));
    const { testModules, unhandledErrors } = await vitest.runTestSpecifications(found.flat(), true);
    return unhandledErrors.length === 0 && testModules.every((one) => one.state() !== "failed");
  };
  try {
    const near: string[] = JSON.parse(process.env.MUTANT_SUITES ?? "[]");
    if (!(await run(near))) throw new Error("the suites fail without a mutant");
    delete process.env.MUTANT_COVERAGE;
    const runs = readFileSync(coverage, "utf8").trim().split("\n");
    const used = runs.map((line): { suite: string; names: string[] } => JSON.parse(line));
    const tried: Tried[] = all
      .filter((mutant) => !valid.has(mutant))
      .map(({ before, after }) => ({ line: undefined, before, after, outcome: "invalid" }));
    for (const mutant of valid) {
      const { name, text, before, after } = mutant;
      const chosen = near.filter((suite) =>
        used.some((one) => one.suite === suite && one.names.includes(name)),
      );
      process.env.MUTANT_STATEMENT = JSON.stringify({ name, text });
      const isKilled = chosen.length > 0 && !(await run(chosen));
      tried.push({
        line: undefined,
        before: `${name}: ${before}`,
        after,
        outcome: isKilled ? "killed" : survived(file, after),
      });
    }
    return tried;
  } finally {
    await vitest.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Those that a migrated database accepts. */
async function onlyValid(all: readonly StatementMutant[]): Promise<Set<StatementMutant>> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-mutants-"));
  const embedded = await startEmbedded(folder, createLog("silent"));
  try {
    await migrate(embedded.url);
    const client = new Client({ connectionString: embedded.url });
    await client.connect();
    const valid = new Set<StatementMutant>();
    for (const mutant of all) {
      const isAccepted = await client.query(`prepare mutant as ${mutant.text}`).then(
        () => true,
        () => false,
      );
      if (!isAccepted) continue;
      await client.query("deallocate mutant");
      valid.add(mutant);
    }
    await client.end();
    return valid;
  } finally {
    await embedded.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `FindOldRequests` is `find-old-requests`. */
function kebab(name: string): string {
  return name.replaceAll(/(?<!^)([A-Z])/g, "-$1").toLowerCase();
}

function survived(file: string, after: string): Outcome {
  const isListed = equivalents.some((one) => one.file === file && one.mutant === after);
  return isListed ? "equivalent" : "survived";
}

function print(file: string, tried: readonly Tried[]): void {
  const of = (outcome: Outcome) => tried.filter((one) => one.outcome === outcome);
  for (const { line, before, after } of of("survived")) {
    console.log(`${basename(file)}${line === undefined ? "" : `:${line}`}`);
    console.log(`  - ${before}\n  + ${after}`);
  }
  const [killed, left] = [of("killed").length, of("survived").length];
  const score = killed + left === 0 ? 100 : (100 * killed) / (killed + left);
  const others = `${of("equivalent").length} equivalent, ${of("invalid").length} invalid`;
  console.log(`${score.toFixed(1)} %  ${file}: ${killed} killed, ${left} survived, ${others}`);
}
