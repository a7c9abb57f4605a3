// Puts one mutant in place, within the process that runs a suite, and notes which mutants the suite
// reaches.

import { appendFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { afterAll, beforeEach } from "vitest";
import type { Query } from "../../src/postgres/statement.ts";
import { statements } from "./statements.ts";

/** A suite that runs longer has an endless loop. */
const patienceMs = 3 * Number(process.env.MUTANT_TEST_MS);

/** What Stryker's instrumented sources look at. */
type Switch = {
  isLoaded?: boolean;
  activeMutant?: string | undefined;
  /** How often a run came past each mutant. */
  mutantCoverage?: { readonly static: Record<string, number>; readonly perTest: object };
  hitCount?: number | undefined;
  hitLimit?: number | undefined;
};

/** One suite with one mutant, or with none to see what it reaches. */
export type Trial = {
  readonly trial: string;
  /** The mutated source. */
  readonly file?: string;
  readonly mutant?: string;
  readonly hitLimit?: number;
  readonly statement?: { readonly name: string; readonly text: string };
  /** File to which the reached mutants or statements are added. */
  readonly coverage?: string;
  /** Names of the tests that run. Absent: all. */
  readonly tests?: readonly string[];
  /** File to which a trial is added that never ends. */
  readonly endless: string;
};

/** Puts the mutant in place until the suite has ended. */
export async function activate(trial: Trial): Promise<void> {
  // What a source does while it loads is no part of a trial.
  if (trial.file !== undefined) await import(trial.file);
  const outer: { __stryker__?: Switch } = Object(globalThis);
  outer.__stryker__ ??= {};
  const space = outer.__stryker__;
  const { coverage } = trial;
  const used = new Map<string, Set<string>>();
  beforeEach(({ task, skip }) => {
    running = fullName(task);
    if (trial.tests && !trial.tests.includes(running)) skip();
  });
  // Instrumented sources keep the first object that they saw.
  const isFirst = space.isLoaded !== true;
  space.isLoaded = true;
  space.mutantCoverage ??= { static: {}, perTest: {} };
  const hits = space.mutantCoverage.static;
  if (coverage !== undefined && isFirst) note(coverage, "load", hits);
  for (const id of Object.keys(hits)) delete hits[id];
  space.activeMutant = trial.mutant;
  space.hitCount = trial.hitLimit === undefined ? undefined : 0;
  space.hitLimit = trial.hitLimit;
  const undo = await putStatement(trial, used);
  const watch = watchLoop(trial);
  afterAll(async () => {
    space.activeMutant = undefined;
    undo();
    await watch?.terminate();
    running = outsideOfTests;
    if (coverage === undefined) return;
    const tests: Record<string, string[]> = {};
    for (const [name, by] of used) {
      hits[name] = 1;
      tests[name] = [...by];
    }
    note(coverage, trial.trial, hits, tests);
  });
}

/** Stands for what a suite does before and after its tests. */
export const outsideOfTests = "";
let running = outsideOfTests;

function fullName({ name, suite }: { name: string; suite?: { name: string } | undefined }): string {
  return `${suite?.name ?? ""} > ${name}`;
}

function note(
  coverage: string,
  trial: string,
  hits: Readonly<Record<string, number>>,
  tests: Readonly<Record<string, readonly string[]>> = {},
): void {
  appendFileSync(coverage, `${JSON.stringify({ trial, hits, tests })}\n`);
}

async function putStatement({ statement, coverage }: Trial, used: Map<string, Set<string>>) {
  if (statement === undefined && coverage === undefined) return () => undefined;
  const all = await statements();
  const undone: (() => void)[] = [];
  const put = (target: object, change: object) => {
    const before = { ...target };
    Object.assign(target, change);
    undone.push(() => Object.assign(target, before));
  };
  if (statement !== undefined) {
    const { name, text } = statement;
    const target = all.find((one) => one.name === name);
    if (!target) throw new Error(`no statement is named ${name}`);
    put(target, { text });
  }
  if (coverage !== undefined) {
    for (const one of all) {
      const make = one.with;
      put(one, {
        with(...parameters: readonly unknown[]): Query {
          const by = used.get(one.name) ?? new Set();
          used.set(one.name, by.add(running));
          return make(...parameters);
        },
      });
    }
  }
  return () => {
    for (const undo of undone) undo();
  };
}

/** Ends the process when its trial never does. */
function watchLoop({ trial, endless }: Trial): Worker {
  const program = `
    const { workerData: { trial, endless, ms } } = require("node:worker_threads");
    setTimeout(() => {
      require("node:fs").appendFileSync(endless, trial + "\\n");
      process.kill(process.pid, "SIGKILL");
    }, ms);`;
  const worker = new Worker(program, {
    eval: true,
    workerData: { trial, endless, ms: patienceMs },
  });
  worker.unref();
  return worker;
}
