// What the style sheets of the console may say: layouts that can shrink, and features that the
// oldest supported browsers have.

import { globSync, readFileSync } from "node:fs";
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

/**
 * The oldest browsers for which the page is made (docs/operating/people.md). The tests try those
 * that Debian has now; an old Firefox and Safari are in no registry that tests can use.
 */
const oldest = { firefox: 128, safari: 17.5 };

/** Where a newer feature is absent, the sheet has this instead, or does without. */
type Since = { readonly firefox: number; readonly safari: number; readonly instead?: string };

const never = Number.POSITIVE_INFINITY;
/** What came after 2020, by the versions that brought it. */
const newer: Readonly<Record<string, Since>> = {
  "@container": { firefox: 110, safari: 16 },
  "@layer": { firefox: 97, safari: 15.4 },
  ":focus-visible": { firefox: 85, safari: 15.4 },
  ":has": { firefox: 121, safari: 15.4 },
  ":is": { firefox: 78, safari: 14 },
  ":popover-open": { firefox: 125, safari: 17 },
  "::backdrop": { firefox: 98, safari: 15.4 },
  "accent-color": { firefox: 92, safari: 15.4 },
  "color-mix()": { firefox: 113, safari: 16.2 },
  "light-dark()": { firefox: 120, safari: 17.5 },
  "oklch()": { firefox: 113, safari: 15.4 },
  container: { firefox: 110, safari: 16 },
  "container-type": { firefox: 110, safari: 16 },
  cqi: { firefox: 110, safari: 16 },
  dvh: { firefox: 101, safari: 15.4 },
  vi: { firefox: 101, safari: 15.4 },
  lh: { firefox: 120, safari: 16.4 },
  inset: { firefox: 66, safari: 14.1 },
  scale: { firefox: 72, safari: 14.1 },
  translate: { firefox: 72, safari: 14.1 },
  "forced-color-adjust": { firefox: 113, safari: never, instead: "no forced colours there" },
  "scrollbar-width": { firefox: 64, safari: 18.2, instead: "a bar is seen" },
  "user-select": { firefox: 69, safari: never, instead: "-webkit-user-select" },
  "text-size-adjust": { firefox: never, safari: never, instead: "the size of the browser" },
  "position-area": {
    firefox: 147,
    safari: 26,
    instead: "@supports not (position-area: block-end)",
  },
  "position-try-fallbacks": {
    firefox: 147,
    safari: 26,
    instead: "@supports not (position-area: block-end)",
  },
};

/** What every browser has had since 2020 or before. */
const old = new Set(
  `@import @keyframes @media @page @supports ::after ::before ::placeholder :checked :disabled
  :empty :first-child :focus :focus-within :hover :last-child :not :nth-child :root
  calc() inset() linear-gradient() min() minmax() repeat() var() % em fr ms px rem s vh vw mm
  -webkit-font-smoothing -webkit-user-select align-content align-items animation background
  block-size border
  border-block-end border-block-end-color border-block-start border-collapse border-color
  border-inline-end border-radius box-shadow box-sizing break-after break-inside clip-path color
  color-scheme content cursor direction display fill fill-opacity flex flex-basis flex-direction
  flex-flow flex-shrink flex-wrap font font-family font-size font-style font-variant-numeric
  font-weight gap grid-area grid-column grid-template-columns inline-size inset-block-end
  inset-block-start inset-inline-end justify-content justify-items justify-self letter-spacing
  line-height list-style margin margin-block margin-block-end margin-block-start margin-inline
  margin-inline-end margin-inline-start max-block-size max-inline-size min-block-size
  min-inline-size opacity order outline outline-offset overflow overflow-wrap overflow-x overflow-y
  padding padding-block padding-block-end padding-block-start padding-inline padding-inline-end
  padding-inline-start place-content pointer-events position resize stroke stroke-dasharray
  stroke-linecap stroke-linejoin stroke-width table-layout text-align text-decoration text-overflow
  text-underline-offset touch-action vector-effect vertical-align visibility white-space
  word-break z-index`.split(/\s+/),
);

/** Every property, function, unit, pseudo-class and at-rule of a sheet. */
function featuresOf(sheet: string): Set<string> {
  const plain = sheet.replace(/\/\*.*?\*\//gs, "").replace(/"[^"]*"/g, '""');
  const features = new Set([...plain.matchAll(/@[\w-]+/g)].map(([name]) => name));
  for (const [, selector = ""] of plain.matchAll(/([^{};]+)\{/g))
    if (!selector.includes("@"))
      for (const [name] of selector.matchAll(/::?[a-z-]+/g)) features.add(name);
  for (const { declarations } of rulesOf(plain))
    for (const [property, value] of declarations) {
      if (!property.startsWith("--")) features.add(property);
      for (const [, name] of value.matchAll(/(?<![\w-])([a-z-]+)\(/g)) features.add(`${name}()`);
      for (const [, unit = ""] of value.matchAll(/(?<![\w#-])[\d.]+([a-z]+|%)/g))
        features.add(unit);
    }
  return features;
}

function missingIn(sheet: string): string[] {
  return [...featuresOf(sheet)].filter((name) => {
    const since = newer[name];
    if (old.has(name)) return false;
    if (!since) return true;
    const isThere = since.firefox <= oldest.firefox && since.safari <= oldest.safari;
    const { instead } = since;
    return !isThere && (!instead || (instead.startsWith("@") && !sheet.includes(instead)));
  });
}

const sheets = ["theme.css", "figures.css"].map((name) => readFileSync(join(web, name), "utf8"));

test("the style sheets use what the oldest supported browsers have, or say what is instead", () => {
  expect(missingIn(sheets.join("\n"))).toEqual([]);
});

test("a feature that is too new, or that nobody looked up, is found", () => {
  expect(missingIn("@layer a { p { position-area: block-end; } }")).toEqual(["position-area"]);
  expect(missingIn("p:open { text-box: trim-both; margin: 1rcap round(2px); }").sort()).toEqual(
    [":open", "rcap", "round()", "text-box"].sort(),
  );
});

/** Of scripts, what the compiler cannot refuse: its library of the DOM is that of today. */
const tooNew: Readonly<Record<string, Since>> = {
  parseCreationOptionsFromJSON: { firefox: 119, safari: 18.4 },
  parseRequestOptionsFromJSON: { firefox: 119, safari: 18.4 },
  scheduler: { firefox: 142, safari: never },
  requestIdleCallback: { firefox: 55, safari: never },
  navigation: { firefox: 147, safari: 26.2 },
  startViewTransition: { firefox: 144, safari: 18 },
  closedby: { firefox: 141, safari: never },
  requestClose: { firefox: 139, safari: 18.4 },
  commandfor: { firefox: 144, safari: 26.2 },
  moveBefore: { firefox: 144, safari: never },
  CloseWatcher: { firefox: 149, safari: never },
  fromBase64: { firefox: 133, safari: 18.2 },
  toBase64: { firefox: 133, safari: 18.2 },
  DurationFormat: { firefox: 136, safari: 16.4 },
  URLPattern: { firefox: 142, safari: 26 },
  cookieStore: { firefox: 140, safari: 18.4 },
  showPicker: { firefox: 101, safari: 16 },
};

test("the scripts use nothing of the DOM that the oldest supported browsers lack", () => {
  const sources = globSync("**/*.{ts,tsx}", { cwd: web }).map((name) =>
    readFileSync(join(web, name), "utf8").replace(/^\s*(\/\/|\*|\/\*).*$/gm, ""),
  );
  const words = new Set(sources.flatMap((text) => text.match(/\w+/g) ?? []));
  const missing = Object.entries(tooNew).filter(
    ([name, { firefox, safari }]) =>
      words.has(name) && (firefox > oldest.firefox || safari > oldest.safari),
  );
  expect(missing).toEqual([]);
  // The language itself: of 2024, which both have.
  const { compilerOptions } = JSON.parse(readFileSync(join(web, "tsconfig.json"), "utf8"));
  expect(compilerOptions.lib[0]).toBe("es2024");
});
