import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Outcome, OutcomeSchema } from "../gen/gateway/billing/v1/billing_pb.ts";
import { readReadme, refreshReadme } from "./readme/tables.ts";

const root = join(import.meta.dirname, "..");

test("the README's tables of reasons and methods are what the code says (`npm run readme` writes them)", () => {
  expect(refreshReadme(readReadme())).toBe(readReadme());
});

test("the README names every environment variable that is read, and no other", () => {
  const source = readFileSync(join(root, "src/config/environment.ts"), "utf8");
  const read = [
    ...source.matchAll(
      /\b(?:text|integer|choice|flag|list|url|file|pair)\(\s*"([A-Z_]+)"(?:, "([A-Z_]+)")?/g,
    ),
  ];
  const named = namesIn("## Settings");
  const expected = read
    .flatMap((match) => [match[1], match[2]])
    .filter((name) => name !== undefined);
  expect(named.sort()).toEqual([...new Set(expected)].sort());
});

test("the README names every outcome of a request, and no other", () => {
  const stored = OutcomeSchema.values.filter(({ number }) => number !== Outcome.UNSPECIFIED);
  expect(namesIn("## Credits").sort()).toEqual(
    stored.map(({ name }) => name.replace("OUTCOME_", "")).sort(),
  );
});

/** First cells of the tables in one section, where they are written in capitals. */
function namesIn(heading: string): string[] {
  const section = readReadme()
    .split(/^(?=## )/m)
    .find((text) => text.startsWith(heading));
  return [...(section ?? "").matchAll(/^\| `([A-Z_]+)` \|/gm)].map((match) => match[1] ?? "");
}

test("the README names every directive of the simulated model", () => {
  const source = readFileSync(join(root, "src/providers/simulated/directives.ts"), "utf8");
  const directives = [...source.matchAll(/case "([a-z_]+)":/g)].map((match) => match[1] ?? "");
  expect(directives.length).toBeGreaterThan(0);
  const readme = readReadme();
  expect(directives.filter((name) => !readme.includes(`\`${name}=`))).toEqual([]);
});

test("the README says why each dependency is there", () => {
  const manifest: unknown = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const dependencies = Object.keys(Object(manifest).dependencies);
  const readme = readReadme();
  expect(dependencies.filter((name) => !readme.includes(`\`${name}\``))).toEqual([]);
});
