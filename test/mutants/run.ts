// Mutation testing: changes the product at one place at a time, and tells which changes no test
// notices.
//
//   npm run test:mutants -- src/billing/price.ts src/billing/sql/holds.sql
//   npm run test:mutants -- --suites "inference crash" src/billing/price.ts
//   npm run test:mutants -- --only "billing/price billing/hold-size" src/billing/price.ts
//   npm run test:mutants -- --only tables --apart src/payments/sql/orders.sql
//   npm run test:mutants -- --changed 20 --seconds 180    files that the last commits changed, each
//                                                         with the five suites that are nearest
//
// Stryker's instrumenter puts all mutants of a source into it, each behind a switch; mutants of a
// file of statements are of `statements.ts`. Workers keep the modules of the product and read a
// suite anew for each mutant, until one fails. Suites are those of the file's room that are not
// deep, and those that import the file: `--suites` adds others, `--only` names those that are
// enough, the best first, `--most 5` takes the nearest ones. `FILE:10-80` changes these lines
// alone, and of statements `FILE:find-account` one. `--apart` runs only the tests that run the
// changed statement, in suites whose tests do not build on each other.
// What survives is printed with its line; `equivalent.json` names the mutants that change nothing,
// with the reason.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { Instrumenter } from "@stryker-mutator/instrumenter";
import { Client } from "pg";
import { createVitest, type TestModule } from "vitest/node";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { readBlocks } from "../../src/postgres/generate.ts";
import { migrate } from "../../src/postgres/migrate.ts";
import {
  changedFiles,
  importsOf,
  isDeep,
  nextTo,
  readTimes,
  root,
  suites,
  usualMs,
} from "../runner/suites.ts";
import { outsideOfTests, type Trial } from "./activate.ts";
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

/** So many trials run in one process, which then gives its memory back. */
const trialsAtOnce = 80;

function ignore(): void {}
const isEnabled = () => false;
const quiet = {
  ...{ trace: ignore, debug: ignore, info: ignore, warn: ignore, error: ignore, fatal: ignore },
  ...{ isTraceEnabled: isEnabled, isDebugEnabled: isEnabled, isInfoEnabled: isEnabled },
  ...{ isWarnEnabled: isEnabled, isErrorEnabled: isEnabled, isFatalEnabled: isEnabled },
};

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    suites: { type: "string", default: "" },
    only: { type: "string" },
    changed: { type: "string" },
    seconds: { type: "string" },
    most: { type: "string" },
    apart: { type: "boolean", default: false },
  },
});

if (options.changed !== undefined) await tryChanged(Number(options.changed));
else
  for (const positional of positionals) {
    const [file = "", part] = positional.split(":");
    print(file, await tryFile(relative(root, file), part));
  }
// Tests that found mutants have set a code.
process.exit(0);

async function tryFile(file: string, part: string | undefined): Promise<Tried[]> {
  const named = (text: string) =>
    text
      .split(" ")
      .filter((word) => word !== "")
      .flatMap((word) => suites.filter((suite) => suite.includes(word)));
  const fast = suites.filter((suite) => !isDeep(suite));
  const near = options.only === undefined ? nextTo([file], fast) : named(options.only);
  const times = readTimes();
  // Those that import the file, or the statements that are made of it, say most of it.
  const [, room] = /^src\/([^/]+)\/sql\//.exec(file) ?? [];
  const imported = room === undefined ? file : `gen/sql/${room}.ts`;
  const rank = (suite: string) => (importsOf(suite).includes(imported) ? 0 : 1);
  const most = options.most === undefined ? undefined : Number(options.most);
  const all = [...new Set([...near, ...named(options.suites)])];
  if (options.only === undefined)
    all
      .sort((one, other) => usualMs(times, one) - usualMs(times, other))
      .sort((one, other) => rank(one) - rank(other));
  const chosen = all.slice(0, most);
  if (chosen.length === 0) throw new Error(`no suite stands next to ${file}`);
  console.log(`${file}: ${chosen.length} suites`);
  const folder = mkdtempSync(join(tmpdir(), "gateway-mutants-"));
  try {
    if (file.endsWith(".sql")) return await tryStatements(file, part, chosen, folder);
    return await trySource(file, part, chosen, folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Files that recent commits changed, the smallest first, while there is time. */
async function tryChanged(commits: number): Promise<void> {
  // To load what a run needs takes time as well.
  const untilMs = performance.timeOrigin + Number(options.seconds ?? 180) * 1_000;
  const isMutable = (path: string) =>
    /^src\/.*\.(ts|sql)$/.test(path) && !/console\/web|migrations|\.d\.ts$/.test(path);
  const files = [...(changedFiles(commits) ?? [])]
    .filter((path) => isMutable(path) && statSync(join(root, path), { throwIfNoEntry: false }))
    .sort((one, other) => statSync(join(root, one)).size - statSync(join(root, other)).size);
  const left: string[] = [];
  for (const file of files) {
    const ms = untilMs - Date.now();
    // A process of its own, with what it has started, can be ended.
    const child = spawn(process.execPath, [import.meta.filename, file, "--most", "5"], {
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

/** One mutant, as the suites see it. */
type Mutant = Omit<Tried, "outcome"> & {
  /** What a suite must reach to see it: the id of the mutant, or the name of its statement. */
  readonly reached: string;
  readonly put: Partial<Trial>;
};

async function trySource(
  file: string,
  lines: string | undefined,
  chosen: readonly string[],
  folder: string,
): Promise<Tried[]> {
  const path = join(root, file);
  const content = readFileSync(path, "utf8");
  const { files, mutants } = await new Instrumenter(quiet).instrument(
    [{ name: path, content, mutate: true }],
    // An emptied text of an error or a log line says little, an emptied kind does not compile.
    { plugins: null, ignorers: [], excludedMutations: ["StringLiteral"] },
  );
  const instrumented = join(folder, "instrumented.ts");
  writeFileSync(instrumented, files[0]?.content ?? "");
  const [from = 0, to = Number.POSITIVE_INFINITY] = lines?.split("-").map(Number) ?? [];
  const texts = content.split("\n");
  const all = mutants
    .filter(({ status }) => status !== "Ignored")
    .map(({ id, location: { start, end }, replacement = "" }): Mutant => {
      // Lines and columns count from zero.
      const before = texts[start.line]?.trim() ?? "";
      const first = texts[start.line]?.slice(0, start.column) ?? "";
      const last = texts[end.line]?.slice(end.column) ?? "";
      const after = (first + replacement + last).replaceAll(/\s+/g, " ").trim();
      const put = { file: path, mutant: id };
      return { line: start.line + 1, before, after, reached: id, put };
    })
    .filter(({ line = 0 }) => line >= from && line <= to);
  process.env.MUTANT_FILE = path;
  process.env.MUTANT_SOURCE = instrumented;
  return tryMutants(file, all, chosen, folder);
}

async function tryStatements(
  file: string,
  only: string | undefined,
  chosen: readonly string[],
  folder: string,
): Promise<Tried[]> {
  delete process.env.MUTANT_SOURCE;
  const [, room = ""] = /^src\/([^/]+)\/sql\//.exec(file) ?? [];
  const names = readBlocks(file, readFileSync(join(root, file), "utf8"))
    .map(({ name }) => `${room}/${kebab(name)}`)
    .filter(
      (name) => only === undefined || only.split(",").some((one) => name.endsWith(`/${one}`)),
    );
  const all = (await statements()).filter(({ name }) => names.includes(name)).flatMap(mutantsOf);
  const valid = await onlyValid(all);
  const invalid = all
    .filter((mutant) => !valid.has(mutant))
    .map(({ before, after }): Tried => ({ line: undefined, before, after, outcome: "invalid" }));
  const mutants = [...valid].map(
    ({ name, text, before, after }): Mutant => ({
      line: undefined,
      before: `${name}: ${before}`,
      after,
      reached: name,
      put: { statement: { name, text } },
    }),
  );
  return [...invalid, ...(await tryMutants(file, mutants, chosen, folder))];
}

/**
 * Tries each mutant with the suites that reach it, the quickest first, until one fails. A worker
 * keeps the modules of the product: only the suite itself is read anew for each trial.
 */
async function tryMutants(
  fileName: string,
  mutants: readonly Mutant[],
  chosen: readonly string[],
  folder: string,
): Promise<Tried[]> {
  const wrappers = join(folder, "wrappers");
  const [coverage, endless] = [join(folder, "coverage"), join(folder, "endless")];
  mkdirSync(wrappers);
  for (const path of [coverage, endless]) writeFileSync(path, "");
  process.env.MUTANT_WRAPPERS = wrappers;
  const times = readTimes();
  const longestMs = Math.max(...chosen.map((suite) => usualMs(times, suite)));
  process.env.MUTANT_TEST_MS = String(Math.min(60_000, Math.max(15_000, 6 * longestMs)));
  const vitest = await createVitest("test", { config: configFile, watch: false, reporters: [] });
  let trials = 0;
  const wrap = (suite: string, put: Partial<Trial>) => {
    const trial = `t${++trials}`;
    const path = join(wrappers, `${trial}.test.ts`);
    const suitePath = JSON.stringify(`${join(root, suite)}?trial=${trial}`);
    const activate = JSON.stringify(join(root, "test/mutants/activate.ts"));
    const given = JSON.stringify({ trial, endless, ...put });
    writeFileSync(
      path,
      `import { activate } from ${activate};\nawait activate(${given});\nawait import(${suitePath});\n`,
    );
    return { trial, path };
  };
  /** Paths of those of these suites that failed, with the first error of each. */
  const failed = async (paths: readonly string[]): Promise<Map<string, string>> => {
    const left = new Set(paths);
    const found = new Map<string, string>();
    while (left.size > 0) {
      const specifications = [...left].flatMap((path) => {
        const [project] = vitest.projects;
        return project ? [project.createSpecification(path)] : [];
      });
      const { testModules } = await vitest.runTestSpecifications(specifications, true);
      const ended = readFileSync(endless, "utf8").split("\n");
      const before = left.size;
      for (const module of testModules) {
        const path = module.moduleId;
        const state = module.state();
        const isEndless = ended.includes(basename(path, ".test.ts"));
        if (state === "failed" || isEndless) found.set(path, firstError(module));
        if (state === "passed" || state === "failed" || state === "skipped" || isEndless)
          left.delete(path);
      }
      if (left.size === before) throw new Error("no trial ends");
    }
    return found;
  };
  try {
    const source = mutants.find(({ put }) => put.file !== undefined)?.put.file;
    const bare = chosen.map((suite) => {
      const given = { coverage, ...(source !== undefined && { file: source }) };
      return { suite, ...wrap(suite, given) };
    });
    const failing = await failed(bare.map(({ path }) => path));
    for (const { suite, path } of bare)
      if (failing.has(path)) {
        console.log(`  fails without a mutant, and is left out: ${suite}`);
        console.log(`    ${failing.get(path)}`);
      }
    const lines = readFileSync(coverage, "utf8").trim().split("\n").map(readHits);
    const hitsOf = (name: string) => lines.find(({ trial }) => trial === name)?.hits ?? {};
    const testsOf = (name: string) => lines.find(({ trial }) => trial === name)?.tests ?? {};
    const reach = bare
      .filter(({ path }) => !failing.has(path))
      .map(({ suite, trial }) => ({ suite, hits: hitsOf(trial), tests: testsOf(trial) }));
    const loaded = hitsOf("load");
    let open = mutants.map((mutant) => {
      const left = reach.flatMap(({ suite, hits, tests }) => {
        const count = hits[mutant.reached];
        const by = tests[mutant.reached];
        const some = options.apart && by && !by.includes(outsideOfTests) ? { tests: by } : {};
        return count === undefined ? [] : [{ suite, hitLimit: 100 * count, some }];
      });
      return { mutant, left };
    });
    const killed = new Set<Mutant>();
    for (let round = 0; open.some(({ left }) => left.length > 0); round++) {
      const tried = open.flatMap(({ mutant, left: [next] }) => {
        if (!next) return [];
        const { suite, hitLimit, some } = next;
        const limit = mutant.put.mutant === undefined ? {} : { hitLimit };
        return [{ mutant, suite, path: wrap(suite, { ...mutant.put, ...limit, ...some }).path }];
      });
      for (let at = 0; at < tried.length; at += trialsAtOnce) {
        const some = tried.slice(at, at + trialsAtOnce);
        // What a mutant left behind must not fail the others.
        const bare = [...new Set(some.map(({ suite }) => suite))].map((suite) => ({
          suite,
          path: wrap(suite, source === undefined ? {} : { file: source }).path,
        }));
        const failing = await failed([...some, ...bare].map(({ path }) => path));
        for (const { mutant, path } of some) if (failing.has(path)) killed.add(mutant);
        for (const { suite, path } of bare)
          if (failing.has(path)) console.log(`  doubtful, fails without a mutant: ${suite}`);
      }
      open = open
        .filter(({ mutant }) => !killed.has(mutant))
        .map(({ mutant, left }) => ({ mutant, left: left.slice(1) }));
      const waiting = open.filter(({ left }) => left.length > 0).length;
      console.log(`  round ${round + 1}: ${tried.length} tried, ${waiting} left`);
    }
    const isReached = ({ reached }: Mutant) => reach.some(({ hits }) => reached in hits);
    return (
      mutants
        // Only the load of the file runs it.
        .filter((mutant) => isReached(mutant) || !(mutant.reached in loaded))
        .map((mutant) => ({
          ...mutant,
          outcome: killed.has(mutant) ? "killed" : survived(fileName, mutant.after),
        }))
    );
  } finally {
    await vitest.close();
  }
}

function firstError(module: TestModule): string {
  const tests = [...module.children.allTests()].map((one) => one.result().errors);
  const [error] = [module.errors(), ...tests].flatMap((errors) => errors ?? []);
  // Of a property, what it found stands in the cause.
  const { message } = error?.cause ?? error ?? { message: "it never ends" };
  return message.split("\n")[0] ?? "";
}

/** How often a run came past each mutant, or past each statement. */
type Hits = Readonly<Record<string, number>>;
type Reached = {
  readonly trial: string;
  readonly hits: Hits;
  /** The tests that ran each statement. */
  readonly tests?: Readonly<Record<string, readonly string[]>>;
};
function readHits(line: string): Reached {
  return JSON.parse(line);
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
