// The documents of the repository: those of the root, docs/ and those beside the sources. Their
// texts, sections and samples.

import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The folder of the repository. */
export const root = join(import.meta.dirname, "../..");

/** Paths of all documents, from the root. */
export const documents: readonly string[] = [
  ...globSync(["*.md", "{docs,src}/**/*.md"], { cwd: root }).map((path) =>
    path.replaceAll("\\", "/"),
  ),
].sort();

/** The text of a document, by its path from the root. */
export function readDocument(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** The section under a heading, with the sections below it. Throws without such a heading. */
export function readSection(path: string, heading: string): string {
  const level = heading.indexOf(" ");
  const sections = readDocument(path).split(new RegExp(`^(?=#{1,${level}} )`, "m"));
  const section = sections.find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`${path} lacks the heading ${heading}`);
  return section;
}

/** A fenced block of a document. */
export type Sample = { readonly language: string; readonly text: string };

/** The fenced blocks of a document, in order, also those in lists. */
export function readSamples(path: string): readonly Sample[] {
  return [...readDocument(path).matchAll(/^( *)```([a-z]*)\n([\s\S]*?)^\1```$/gm)].map(
    ([, indent = "", language = "", text = ""]) => ({
      language,
      text: text.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
    }),
  );
}

/** The anchor that GitHub gives to a heading. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}
