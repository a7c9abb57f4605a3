// What the style sheets of the console may say: layouts that can shrink, and features that the
// oldest supported browsers have.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const web = join(import.meta.dirname, "../../src/console/web");

type Rule = { readonly selector: string; readonly declarations: ReadonlyMap<string, string> };

/** The innermost rules of a sheet. What is around them, such as a layer, is left out. */
function rulesOf(sheet: string): Rule[] {
  const plain = sheet.replace(/\/\*.*?\*\//gs, "");
  return [...plain.matchAll(/([^{};]+)\{([^{}]*)\}/g)].map(([, selector = "", body = ""]) => ({
    selector: selector.trim().replace(/\s+/g, " "),
    declarations: new Map(
      body
        .split(";")
        .filter((text) => text.includes(":"))
        .map((text) => {
          const at = text.indexOf(":");
          return [
            text.slice(0, at).trim(),
            text
              .slice(at + 1)
              .trim()
              .replace(/\s+/g, " "),
          ];
        }),
    ),
  }));
}

const rules = ["theme.css", "figures.css"].flatMap((name) =>
  rulesOf(readFileSync(join(web, name), "utf8")),
);

/** The selectors that may be grids. `.both`: two texts in one place. */
const grids = [".stack", ".columns", ".both"];

/** What keeps columns from shrinking, one sentence each. */
function stiffColumns(value: string): string[] {
  const flexible = /minmax\((?:0|min\([^()]+, 100%\)), [\d.]+fr\)/g;
  const rest = value
    .replace(flexible, "fits")
    .replace(/repeat\((?:\d+|auto-fit), fits\)/g, "fits")
    .split(" ");
  const isFixed = (track: string) => /^[\d.]+(?:rem|px)$/.test(track) || track === "max-content";
  const stiff = rest.filter((track) => track !== "fits" && !isFixed(track));
  return rest.includes("fits") ? stiff : [value];
}

function gridFaults(of: readonly Rule[]): string[] {
  return of.flatMap(({ selector, declarations }) => {
    const isGrid = /^(inline-)?grid$/.test(declarations.get("display") ?? "");
    const columns = declarations.get("grid-template-columns");
    return [
      ...(isGrid && !grids.includes(selector) ? [`${selector} is a grid of its own`] : []),
      ...(isGrid && columns === undefined ? [`${selector} names no columns`] : []),
      ...stiffColumns(columns ?? "minmax(0, 1fr)").map((track) => `${selector} has ${track}`),
    ];
  });
}

test("only the layouts of all pages are grids, and all columns can shrink", () => {
  expect(gridFaults(rules)).toEqual([]);
});

test("a grid of its own, and a column that cannot shrink, are found", () => {
  const faults = (sheet: string) => gridFaults(rulesOf(sheet));
  expect(faults("@layer pages { .a { display: grid; } }")).toEqual([
    ".a is a grid of its own",
    ".a names no columns",
  ]);
  for (const columns of ["1fr max-content", "repeat(auto-fit, minmax(13rem, 1fr))", "max-content"])
    expect(faults(`.stack { grid-template-columns: ${columns}; }`)).toHaveLength(1);
  expect(faults(".two { grid-template-columns: 13rem minmax(0, 2.5fr); }")).toEqual([]);
});
