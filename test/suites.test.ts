// Rules for the suites themselves, and the choice of those that run.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type CallExpression, type Node, parseSync, Visitor, visitorKeys } from "oxc-parser";
import { describe, expect, test } from "vitest";
import {
  deepSuites,
  dependOn,
  fitInto,
  isDeep,
  partOf,
  renderTimes,
  root,
  suites,
} from "./runner/suites.ts";
import { faultsOf, isListed, type Unsteady } from "./runner/unsteady.ts";

const fast = suites.filter((suite) => !isDeep(suite));
const read = (path: string) => readFileSync(join(root, path), "utf8");

/** Support that starts processes: servers, browsers, and gateways of their own. */
const starters =
  /support\/(child-gateway|cluster|crash-cluster|rolling|redis|redis-topologies|chain-node|pgbouncer|chromium)\.ts"/;

/** One small suite of each kind that `npm test` runs all the same. */
const canaries = [
  "test/console/canary.test.ts",
  "test/crash/canary.test.ts",
  "test/server/canary.test.ts",
];

test("a suite that starts processes is deep, or a canary", () => {
  const starting = fast.filter((suite) => starters.test(read(suite)));
  expect(starting).toEqual(canaries);
});

describe("a test that returns before its first assertion is found", () => {
  test.for([
    ["if (isThere) return; expect(1).toBe(1);", 1],
    ["if (isThere) { await log(); return; } expect(1).toBe(1);", 1],
    ["expect(0).toBe(0); if (isThere) return; expect(1).toBe(1);", 0],
    ["list.forEach((one) => { if (one) return; expect(one).toBe(1); });", 0],
    ["if (isThere) return context.skip(); expect(1).toBe(1);", 0],
    ["return expect(1).toBe(1);", 0],
  ] as const)("%s", ([body, faults]) => {
    const source = `test.for([1])("name", async (context) => { ${body} });`;
    expect(earlyReturns("a.ts", source)).toHaveLength(faults);
  });

  test("in no suite", () => {
    expect(suites.flatMap((suite) => earlyReturns(suite, read(suite)))).toEqual([]);
  });
});

/** The lines at which a test ends without having asserted or skipped anything. */
function earlyReturns(path: string, source: string): string[] {
  const found: string[] = [];
  new Visitor({
    CallExpression(call) {
      const body = isTest(call) ? call.arguments.at(-1) : undefined;
      if (body?.type !== "ArrowFunctionExpression" && body?.type !== "FunctionExpression") return;
      for (const { start, end } of returnsOf(body)) {
        const before = source.slice(body.start, start);
        const itself = source.slice(start, end);
        if (/\bexpect\b/.test(before) || /\bexpect\b|\bskip\(/.test(itself)) continue;
        found.push(`${path}:${source.slice(0, start).split("\n").length}`);
      }
    },
  }).visit(parseSync(path, source).program);
  return found;
}

/** True for `test(…)`, `test.for(…)(…)` and the like. */
function isTest({ callee }: CallExpression): boolean {
  if (callee.type === "CallExpression") return isTest(callee);
  if (callee.type === "MemberExpression")
    return callee.object.type === "Identifier" && callee.object.name === "test";
  return callee.type === "Identifier" && callee.name === "test";
}

/** The return statements of a function, without those of the functions inside. */
function returnsOf(of: Node): Node[] {
  return childrenOf(of).flatMap((child) => {
    if (child.type === "ReturnStatement") return [child];
    return /Function/.test(child.type) ? [] : returnsOf(child);
  });
}

function childrenOf(node: Node): Node[] {
  const values = (visitorKeys[node.type] ?? []).flatMap((key): unknown => Reflect.get(node, key));
  return values.filter((value): value is Node => typeof value === "object" && value !== null);
}

const times = new Map(suites.map((suite, index) => [suite, 1_000 + 137 * (index % 50)]));

test("the parts of the deep suites have each suite once, and take about as long", () => {
  const parts = [1, 2, 3, 4, 5, 6].map((part) => partOf(deepSuites, { part, of: 6 }, times));
  expect(parts.flat().sort()).toEqual([...deepSuites].sort());
  const sums = parts.map((all) => all.reduce((sum, suite) => sum + (times.get(suite) ?? 0), 0));
  expect(Math.max(...sums) - Math.min(...sums)).toBeLessThanOrEqual(8_000);
});

test("as many suites run as end in time, in their order", () => {
  const all = ["a", "b", "c", "d"];
  const usual = new Map([
    ["a", 10_000],
    ["b", 60_000],
    ["c", 5_000],
    ["d", 20_000],
  ]);
  expect(fitInto(all, { ms: 20_000, workers: 1, pace: 1 }, usual)).toEqual(["a", "c"]);
  expect(fitInto(all, { ms: 20_000, workers: 2, pace: 1 }, usual)).toEqual(["a", "c", "d"]);
  expect(fitInto(all, { ms: 20_000, workers: 2, pace: 3 }, usual)).toEqual(["c"]);
  expect(fitInto(all, { ms: 0, workers: 2, pace: 1 }, usual)).toEqual([]);
});

test("a suite depends on what it imports, directly or not, and on the folder named like its own", () => {
  const dependent = (...changed: string[]) => dependOn(new Set(changed), suites);
  expect(dependent("src/billing/sql/admission.sql")).toContain("test/billing/holds.test.ts");
  expect(dependent("src/base/money.ts")).toContain("test/e2e/usage-and-receipts.test.ts");
  expect(dependent("test/runner/unsteady.ts")).toEqual(["test/suites.test.ts"]);
  expect(dependent("docs/operating/production.md")).toEqual([]);
});

test("the times of a run replace earlier ones, and forget suites that are gone or short", () => {
  const [one = "", two = "", three = ""] = suites;
  const before = new Map([
    ["test/gone.test.ts", 5_000],
    [one, 3_000],
    [two, 4_000],
  ]);
  const measured = new Map([
    [two, 500],
    [three, 2_345],
  ]);
  expect(JSON.parse(renderTimes(before, measured))).toEqual({ [one]: 3_000, [three]: 2_300 });
});

describe("the list of unsteady tests", () => {
  const entry: Unsteady = {
    suite: "test/http/answers.test.ts",
    test: "a client that hangs up > is charged",
    since: "2026-11-20",
    reason: "the signal comes before the answer",
    tried: "a gate in the provider",
  };
  const today = new Date("2026-11-26T12:00:00Z");

  test("has no fault of its own", () => {
    expect(faultsOf(JSON.parse(read("test/unsteady.json")), new Date())).toEqual([]);
  });

  test.for<[string, Partial<Unsteady>, RegExp]>([
    ["older than two weeks", { since: "2026-11-11" }, /older than 14 days/],
    ["without a day", { since: "" }, /needs a day/],
    ["without a reason", { reason: "" }, /needs a suite, a test, a reason/],
    ["of money", { suite: "test/billing/holds.test.ts" }, /may not be unsteady/],
    ["of workers", { suite: "test/server/workers.deep.test.ts" }, /may not be unsteady/],
  ])("refuses an entry %s", ([, change, fault]) => {
    expect(faultsOf([entry], today)).toEqual([]);
    expect(faultsOf([{ ...entry, ...change }], today)).toEqual([expect.stringMatching(fault)]);
  });

  test("excuses a suite only if it lists each test that failed", () => {
    expect(isListed([entry], entry.suite, [entry.test])).toBe(true);
    expect(isListed([entry], entry.suite, [entry.test, "another"])).toBe(false);
    expect(isListed([entry], "test/http/other.test.ts", [entry.test])).toBe(false);
    expect(isListed([entry], entry.suite, [])).toBe(false);
  });
});
