// The documents are complete: they contain every closed list of the code, and no other entry.

import { globSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { Outcome, OutcomeSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { secretNames } from "../../src/config/environment.ts";
import { allServices } from "../../src/contract/contract.ts";
import { readSettingNames } from "../support/settings.ts";
import { documents, readDocument, readSection, root } from "./documents.ts";
import { readLogCodes, refreshTables, tablesDocuments } from "./tables.ts";

for (const document of tablesDocuments) {
  test(`the tables of ${document} are those of the code (\`npm run docs\` writes them)`, () => {
    const text = readDocument(document);
    expect(refreshTables(document, text)).toBe(text);
  });
}

test("every code of a log line is written by the file that declares it", () => {
  const unused = globSync("src/**/*.ts", { cwd: root }).flatMap((path) => {
    const text = readFileSync(join(root, path), "utf8");
    const [, block = ""] = /interface LogCodes \{\n([\s\S]*?)\n {2}\}\n/.exec(text) ?? [];
    const codes = [...block.matchAll(/^ {4}(\w+): true;/gm)].map(([, code]) => code);
    return codes.filter((code) => !text.includes(`"${code}"`)).map((code) => `${path}: ${code}`);
  });
  expect(unused).toEqual([]);
  expect(readLogCodes().length).toBeGreaterThan(80);
});

test("the settings are the environment variables that are read", () => {
  const section = readDocument("docs/operating/settings.md");
  const read = readSettingNames();
  expect(read).toContain("PORT");
  // Files of secrets are one rule, which names the secrets.
  const files = secretNames.map((name) => `${name}_FILE`);
  // Proxies have names in small letters, too.
  const settings = [...read].filter(
    (name) => !files.some((file) => file === name) && name === name.toUpperCase(),
  );
  expect(firstCells(section)).toEqual(settings.sort());
  const [, rule = ""] = /That is so for ([^.]*)\./.exec(section) ?? [];
  for (const name of secretNames) expect(rule).toContain(`\`${name}\``);
});

test("the outcomes are those that a charge can have", () => {
  const stored = OutcomeSchema.values.filter(
    ({ number }) => number !== Outcome.UNSPECIFIED && number !== Outcome.RUNNING,
  );
  const section = readSection("docs/customers/credits.md", "## Endings and charges");
  const named = new Set([...section.matchAll(/`([A-Z_]{4,})`/g)].map(([, name]) => name));
  const names = stored.map(({ name }) => name.replace("OUTCOME_", ""));
  expect(names.filter((name) => !named.has(name))).toEqual([]);
});

/** The first cells of the tables in a section, where they are written in capitals, sorted. */
function firstCells(section: string): string[] {
  return [...section.matchAll(/^\| `([A-Z_]+)` \|/gm)].map((match) => match[1] ?? "").sort();
}

test("every directive of the simulated provider is documented", () => {
  const source = readFileSync(join(root, "src/providers/simulated/directives.ts"), "utf8");
  const directives = [...source.matchAll(/case "([a-z_]+)":/g)].map((match) => match[1] ?? "");
  expect(directives.length).toBeGreaterThan(0);
  const section = readDocument("docs/operating/simulated.md");
  expect(directives.filter((name) => !section.includes(`\`${name}=`))).toEqual([]);
});

test("each line of the Responses format names a test that exists", () => {
  const tests = globSync("test/**/*.test.ts", { cwd: root })
    .map((path) => readFileSync(join(root, path), "utf8"))
    .join("\n");
  const names = [
    ...readDocument("docs/customers/responses.md").matchAll(/^\|.*\| "(.+)" \|$/gm),
  ].map(([, name = ""]) => name);
  expect(names.length).toBeGreaterThan(30);
  expect(names.filter((name) => !tests.includes(name))).toEqual([]);
});

test("every dependency has its reason", () => {
  const manifest: unknown = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const dependencies = Object.keys(Object(manifest).dependencies);
  const section = readSection("docs/internals.md", "## Dependencies");
  expect(dependencies.filter((name) => !section.includes(`\`${name}\``))).toEqual([]);
});

test("every folder of the sources is described", () => {
  const folders = readdirSync(join(root, "src"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
  const section = readSection("docs/internals.md", "## The picture");
  expect(folders.filter((name) => !section.includes(`\`src/${name}/\``))).toEqual([]);
});

test("every npm script is described", () => {
  const manifest: unknown = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const scripts = Object.keys(Object(manifest).scripts);
  const text = readDocument("docs/internals.md");
  const isNamed = (name: string) => text.includes(`npm ${name}\``) || text.includes(`run ${name}`);
  expect(scripts.filter((name) => !isNamed(name))).toEqual([]);
});

/** Pages that a reader reads whole. Others are looked up: tools, internals, measurements, names. */
const pages = documents.filter(
  (path) => !path.includes("/") || /^docs\/(customers|operating)\//.test(path),
);

test.each(pages)("%s is short enough to be read", (path) => {
  const lines = readDocument(path).trimEnd().split("\n").length;
  expect(lines).toBeLessThanOrEqual(path === "README.md" ? 200 : 250);
});

test.each(["docs/customers/", "docs/operating/"])("%sREADME.md leads to each page", (folder) => {
  const index = readDocument(`${folder}README.md`);
  const names = documents.filter((path) => path.startsWith(folder)).map((path) => basename(path));
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((name) => name !== "README.md" && !index.includes(`](${name})`))).toEqual([]);
});

test("each method that a document calls exists", () => {
  const methods = new Set(
    allServices.flatMap((service) =>
      service.methods.map(({ name }) => `${service.typeName}/${name}`),
    ),
  );
  const called = documents
    .filter((path) => !path.startsWith("docs/decisions/") && path !== "docs/renamed.md")
    .flatMap((path) =>
      [...readDocument(path).matchAll(/\b(?:gateway\.)?(\w+\.v1\.\w+\/[A-Z]\w+)/g)].map(
        ([, method]) => `${path}: gateway.${method}`,
      ),
    );
  expect(called.length).toBeGreaterThan(10);
  expect(called.filter((one) => !methods.has(one.replace(/^.*: /, "")))).toEqual([]);
});
