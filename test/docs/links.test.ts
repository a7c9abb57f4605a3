// Every reference of the documents exists: documents, headings, files, functions.

import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";
import { anchorOf, documents, readDocument, root } from "./documents.ts";
import questions from "./questions.json" with { type: "json" };

function anchorsOf(path: string): string[] {
  return [...readDocument(path).matchAll(/^#+ (.+)$/gm)].map((match) => anchorOf(match[1] ?? ""));
}

for (const path of documents) {
  const text = readDocument(path);

  test(`${path}: every link leads somewhere`, () => {
    const targets = [...text.matchAll(/\]\(([^)]+)\)/g)]
      .map((match) => match[1] ?? "")
      .filter((target) => !/^https?:/.test(target));
    const broken = targets.filter((target) => {
      const [file = "", anchor] = target.split("#");
      const linked = file === "" ? path : normalize(join(dirname(path), file));
      if (!existsSync(join(root, linked))) return true;
      return anchor !== undefined && !anchorsOf(linked).includes(anchor);
    });
    expect(broken).toEqual([]);
  });

  test(`${path}: every file that it names exists`, () => {
    const named = [...text.matchAll(/`((?:src|test|proto|docs|gen)\/[\w./-]*)`/g)].map(
      (match) => match[1] ?? "",
    );
    expect(named.filter((file) => !existsSync(join(root, file)))).toEqual([]);
  });

  test(`${path}: every function is in the file that is named with it`, () => {
    const located = [...text.matchAll(/`(\w+)`\s+in\s+`(src\/[\w./-]+\.ts)`/g)];
    const missing = located.filter(([, name = "", file = ""]) => {
      const source = readFileSync(join(root, file), "utf8");
      return !new RegExp(`\\b${name}\\b`).test(source);
    });
    expect(missing.map(([phrase]) => phrase)).toEqual([]);
  });
}

test("every document that a source, a test or a deployment names exists", () => {
  const files = globSync("{.ci,deploy,proto,src,test}/**/*.*", { cwd: root }).filter((path) =>
    /\.(mjs|proto|service|sh|sql|tsx?|txt|ya?ml)$/.test(path),
  );
  const broken = files.flatMap((path) =>
    [...readFileSync(join(root, path), "utf8").matchAll(/\bdocs\/[\w./-]+\.(?:md|yaml)\b/g)]
      .filter(([named]) => !existsSync(join(root, named)))
      .map(([named]) => `${path}: ${named}`),
  );
  expect(files.length).toBeGreaterThan(500);
  expect(broken).toEqual([]);
});

test("each question of the search has a page and a heading that answer it", () => {
  const broken = questions.filter(
    ({ page, heading }) =>
      !documents.includes(page) || !anchorsOf(page).includes(anchorOf(heading)),
  );
  expect(broken).toEqual([]);
  expect(new Set(questions.map(({ question }) => question)).size).toBe(questions.length);
});

test("each decision has a number of its own, which its title repeats", () => {
  const numbers = documents.flatMap((path) => /^docs\/decisions\/(\d{4})-/.exec(path)?.[1] ?? []);
  expect(numbers.length).toBeGreaterThan(0);
  expect(numbers.filter((number, index) => numbers.indexOf(number) !== index)).toEqual([]);
  const untitled = documents.filter((path) => {
    const number = /^docs\/decisions\/(\d{4})-/.exec(path)?.[1];
    return number !== undefined && !readDocument(path).startsWith(`# ${Number(number)}. `);
  });
  expect(untitled).toEqual([]);
});
