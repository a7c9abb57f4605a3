// Puts one mutant in place, within the process that runs a suite, and notes which mutants the suite
// reaches.

import { appendFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { afterAll } from "vitest";
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
  const used = new Set<string>();
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
    if (coverage === undefined) return;
    for (const name of used) hits[name] = 1;
    note(coverage, trial.trial, hits);
  });
}

function note(coverage: string, trial: string, hits: Readonly<Record<string, number>>): void {
  appendFileSync(coverage, `${JSON.stringify({ trial, hits })}\n`);
}

async function putStatement({ statement, coverage }: Trial, used: Set<string>) {
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
          used.add(one.name);
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
