// The bundle of the program counts only while it is made of the sources that are there.

import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findBundle } from "../../src/server/bundle.ts";

const root = join(import.meta.dirname, "../..");
const madeAt = Date.UTC(2026, 0, 1);

let folder: string;
let source: string;
const find = (options = "--trace-warnings") => findBundle(folder, options);
const changedAt = (ms: number) => utimesSync(source, ms / 1000, ms / 1000);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-bundle-"));
  source = join(folder, "source.ts");
  writeFileSync(source, "");
  changedAt(madeAt - 1_000);
  const about = { madeAt, sources: [relative(root, source)] };
  writeFileSync(join(folder, "about.json"), JSON.stringify(about));
});
afterEach(() => rmSync(folder, { recursive: true }));

test("a bundle that is younger than its sources is found", () => {
  expect(find()).toBe(`file://${folder}/program.js`);
});

test("a bundle with a source that changed since, or is gone, is not found", () => {
  changedAt(madeAt + 1_000);
  expect(find()).toBeUndefined();
  rmSync(source);
  expect(find()).toBeUndefined();
});

test("where no bundle was finished, none is found", () => {
  rmSync(join(folder, "about.json"));
  expect(find()).toBeUndefined();
  writeFileSync(join(folder, "about.json"), "{");
  expect(find()).toBeUndefined();
});

test("a program that is loaded after others runs from its sources, which it shares with them", () => {
  for (const options of ["--import=./tracing.js", "--trace-warnings -r ./old.js"])
    expect(find(options)).toBeUndefined();
});
