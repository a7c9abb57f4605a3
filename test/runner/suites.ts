// The suites of this folder: which there are, how long each usually takes, and which depend on a
// file.
//
// A suite that starts processes of its own or waits for real time is named `*.deep.test.ts`.
// `npm test` leaves it out, `npm run test:deep` runs it. That command also runs the suites that
// import fast-check once more, from seeds that no run has had before.

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join, relative, resolve } from "node:path";

export const root = resolve(import.meta.dirname, "../..");
const timesFile = join(root, "test/times.json");

/** So many suites run at once. Two for each processor make one another wait on a slow machine. */
export const workers = Math.ceil(1.5 * availableParallelism());

/** Every suite, as its path from the root. */
export const suites: readonly string[] = readdirSync(join(root, "test"), { recursive: true })
  .map((path) => `test/${String(path)}`)
  .filter((path) => path.endsWith(".test.ts"))
  .sort();

export const isDeep = (suite: string) => suite.endsWith(".deep.test.ts");

/** What `npm run test:deep` runs. */
export const deepSuites = suites.filter(
  (suite) => isDeep(suite) || readFileSync(join(root, suite), "utf8").includes('"fast-check"'),
);

/** Shorter ones are not stored. */
const shortMs = 1_000;

/** Usual time of the suites that take longer than a second, in milliseconds. */
export function readTimes(): Map<string, number> {
  return new Map(Object.entries<number>(JSON.parse(readFileSync(timesFile, "utf8"))));
}

/** The text of `times.json` with the times of this run in place of earlier ones. */
export function renderTimes(
  before: ReadonlyMap<string, number>,
  measured: ReadonlyMap<string, number>,
): string {
  const times = [...new Map([...before, ...measured])]
    .filter(([suite, ms]) => suites.includes(suite) && ms > shortMs)
    .map(([suite, ms]) => [suite, Math.round(ms / 100) * 100] as const)
    .sort(([one], [other]) => (one < other ? -1 : 1));
  return `${JSON.stringify(Object.fromEntries(times), null, 2)}\n`;
}

export const usualMs = (times: ReadonlyMap<string, number>, suite: string) =>
  times.get(suite) ?? shortMs;

/**
 * Part `part` of `of` of these suites, counted from one. All parts take about as long, and together
 * they have each suite once.
 */
export function partOf(
  all: readonly string[],
  { part, of }: { part: number; of: number },
  times: ReadonlyMap<string, number>,
): string[] {
  const parts = Array.from({ length: of }, () => ({ ms: 0, suites: [] as string[] }));
  const longestFirst = all.toSorted((one, other) => usualMs(times, other) - usualMs(times, one));
  for (const suite of longestFirst) {
    const shortest = parts.reduce((least, one) => (one.ms < least.ms ? one : least));
    shortest.ms += usualMs(times, suite);
    shortest.suites.push(suite);
  }
  return parts[part - 1]?.suites ?? [];
}

/** The first of these suites that end within `ms`, with so many workers. */
export function fitInto(
  all: readonly string[],
  { ms, workers, pace }: { ms: number; workers: number; pace: number },
  times: ReadonlyMap<string, number>,
): string[] {
  const fitting: string[] = [];
  let sumMs = 0;
  for (const suite of all) {
    const ownMs = usualMs(times, suite) * pace;
    if (ownMs > ms || (sumMs + ownMs) / workers > ms) continue;
    sumMs += ownMs;
    fitting.push(suite);
  }
  return fitting;
}

/**
 * The suites of `all` that depend on one of these files: they import it, directly or through
 * others, or are in the folder of tests that is named like its folder of sources. A started program
 * is not followed: suites that start one depend on everything.
 */
export function dependOn(changed: ReadonlySet<string>, all: readonly string[]): string[] {
  const imports = new Map<string, string[]>();
  const rooms = new Set([...changed].flatMap((path) => /^src\/([^/]+)\//.exec(path)?.[1] ?? []));
  const reaches = (file: string, seen: Set<string>): boolean => {
    if (changed.has(file)) return true;
    if (seen.has(file)) return false;
    seen.add(file);
    let own = imports.get(file);
    if (!own) {
      own = importsOf(file);
      imports.set(file, own);
    }
    return own.some((next) => reaches(next, seen));
  };
  return all.filter((suite) => {
    const [, folder = ""] = suite.split("/");
    return rooms.has(folder) || reaches(suite, new Set());
  });
}

/** The suites of `all` that import one of these files themselves, or are of its room. */
export function nextTo(files: readonly string[], all: readonly string[]): string[] {
  const rooms = files.flatMap((path) => /^src\/([^/]+)\//.exec(path)?.[1] ?? []);
  return all.filter((suite) => {
    const [, folder = ""] = suite.split("/");
    return rooms.includes(folder) || importsOf(suite).some((path) => files.includes(path));
  });
}

/** The files of this project that a source imports, as paths from the root. */
export function importsOf(file: string): string[] {
  if (!/\.tsx?$/.test(file)) return [];
  const text = readFileSync(join(root, file), "utf8");
  const paths = [...text.matchAll(/(?:from|import)\s*\(?\s*"(\.[^"?]+)/g)].map(([, path]) => path);
  return paths.flatMap((path) => (path ? relative(root, join(root, dirname(file), path)) : []));
}

/** The files that the last `count` commits changed. Undefined where there are not so many. */
export function changedFiles(count: number): Set<string> | undefined {
  const names = git("diff", "--name-only", `HEAD~${count}`, "HEAD");
  return names === undefined ? undefined : new Set(names.split("\n"));
}

/** How many commits led here. Zero where the history is not known. */
export function countCommits(): number {
  return Number(git("rev-list", "--count", "HEAD") ?? 0);
}

function git(...args: string[]): string | undefined {
  try {
    const stdio: ["ignore", "pipe", "ignore"] = ["ignore", "pipe", "ignore"];
    return execFileSync("git", args, { cwd: root, encoding: "utf8", stdio }).trim();
  } catch {
    return undefined;
  }
}
