// Imports follow the picture in the README.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "..");

// What starts and stops a process; nothing below knows of it.
const app = ["app.ts", "start-services.ts", "first-start.ts", "readiness.ts", "start-failure.ts"];

// From the top down. A file belongs to the first row that names its folder (or itself); what no row names is the floor.
const rows = [
  ["main.ts", "audit.ts", "check-config.ts"],
  app,
  ["facade", "rpc"],
  ["inference"],
  ["billing", "keys", "limits"],
  ["upstream"],
  ["wire/native", "wire/chat", "wire", "postgres", "redis"],
];
const floor = { name: "floor", height: 0 };

type Place = { name: string; height: number };

function placeOf(path: string): Place {
  for (const [index, row] of rows.entries()) {
    const name = row.find((one) => path === `src/${one}` || path.startsWith(`src/${one}/`));
    if (name !== undefined) return { name, height: rows.length - index };
  }
  return floor;
}

function mayImport(from: Place, to: Place): boolean {
  if (from.name === to.name || to.height < from.height) return true;
  if (app.includes(from.name) && app.includes(to.name)) return true;
  // What the two formats share lies beside their folders.
  return to.name === "wire" && from.name.startsWith("wire/");
}

type Import = { from: string; to: string };

function findFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(folder, name).split(sep).join("/"));
}

function readImports(file: string): string[] {
  const text = readFileSync(join(root, file), "utf8");
  return [...text.matchAll(/(?:^|\s)(?:from|import)\s*\(?\s*"([^"]+)"/g)].map((match) => match[1] ?? "");
}

function resolveImports(file: string): Import[] {
  return readImports(file)
    .filter((one) => one.startsWith("."))
    .map((one) => ({
      from: file,
      to: relative(root, join(root, dirname(file), one))
        .split(sep)
        .join("/"),
    }));
}

const sources = findFiles("src");
const imports = sources.flatMap(resolveImports);

test("imports point down, and neighbours do not import each other", () => {
  const wrong = imports.filter(({ from, to }) => to.startsWith("src/") && !mayImport(placeOf(from), placeOf(to)));
  expect(wrong).toEqual([]);
});

test("sources import sources, generated code and packages, never tests", () => {
  expect(imports.filter(({ to }) => !to.startsWith("src/") && !to.startsWith("gen/"))).toEqual([]);
});

test("generated code imports nothing of ours", () => {
  expect(
    findFiles("gen")
      .flatMap(resolveImports)
      .filter(({ to }) => !to.startsWith("gen/")),
  ).toEqual([]);
});

test("the codecs are pure: they reach no file, socket or clock service", () => {
  const effects = /^(node:(fs|net|tls|http|https|http2|dns|child_process|worker_threads|timers)|pg|ioredis|undici|fastify)\b/;
  const wrong = sources.filter((file) => file.startsWith("src/wire/") && readImports(file).some((one) => effects.test(one)));
  expect(wrong).toEqual([]);
});

test("only a folder's store runs SQL text: statements live in .sql files", () => {
  const inline = /\.query\(\s*["'`]/;
  const wrong = sources.filter(
    (file) => !file.startsWith("src/postgres/") && inline.test(readFileSync(join(root, file), "utf8")),
  );
  expect(wrong).toEqual([]);
});
