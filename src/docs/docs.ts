// The documents as pages: those in `docs/`, but for the decisions. Read at the first request for
// one, rendered one by one, and kept: a gateway whose documents nobody opens does nothing of it.

import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import { BoundedMap } from "../base/bounded-map.ts";
import { textOf } from "./html.ts";
import { type Rendered, renderMarkdown, type Section } from "./markdown.ts";
import {
  type Assets,
  type Frame,
  type PageGroup,
  renderFound,
  renderIndex,
  renderNoPage,
  renderPage,
} from "./page.ts";
import { orderPages, weightOf } from "./readers.ts";
import { createSearch, type Entry, type Found, type Search } from "./search.ts";

/** Longer queries are cut: nobody types them, and each word costs time. */
const queryCharactersMax = 200;

const root = join(import.meta.dirname, "../..");

export type DocsParts = {
  /** The address under which people reach this gateway. */
  readonly publicUrl: () => URL;
  readonly assets: () => Promise<Assets>;
  /** The folder with the documents. Default: that of this repository. */
  readonly folder?: string;
};

export type DocsAnswer = {
  readonly status: 200 | 404;
  readonly type: string;
  readonly content: Buffer;
  /** Absent: it is of one search, and nobody asks for it again. */
  readonly etag?: string;
};

export type Docs = {
  /**
   * `path`: below `/docs`, without a slash at either end; the index is empty. A path that no page
   * has answers 404. `query`: searches instead; blank, the index is shown.
   */
  answer(path: string, query?: string): Promise<DocsAnswer>;
};

type Document = {
  readonly href: string;
  readonly title: string;
  readonly summary: string;
  readonly path: string;
  /** From the folder of the documents. */
  readonly file: string;
  readonly source: string;
  readonly showsPublicUrl: boolean;
  /** How much its sections count in a search. */
  readonly weight: number;
};

type Library = {
  readonly groups: readonly PageGroup[];
  /** By path. */
  readonly documents: ReadonlyMap<string, Document>;
  /** Files from the folder of the documents. */
  readonly pictures: ReadonlySet<string>;
};

export function createDocs(parts: DocsParts): Docs {
  const { publicUrl, assets, folder = join(root, "docs") } = parts;
  const library = once(() => readLibrary(folder));
  const search = searchInTurn(once(async () => createSearch(await entriesOf(await library()))));
  const kept = new Map<string, () => Promise<DocsAnswer>>();
  const keep = (key: string, make: () => Promise<DocsAnswer>) => {
    const found = kept.get(key) ?? once(make);
    kept.set(key, found);
    return found();
  };

  return {
    async answer(path, query = "") {
      const all = await library();
      const frame: Frame = { groups: all.groups, assets: await assets() };
      if (all.pictures.has(path))
        return keep(path, async () => {
          const content = await readFile(join(folder, path));
          return { status: 200, type: "image/png", content, etag: tagOf(content) };
        });
      const document = all.documents.get(path);
      const asked = query.trim().slice(0, queryCharactersMax).toWellFormed();
      if (path === "" && asked !== "")
        return htmlOf(renderFound(frame, asked, await search(asked)));
      if (!document && path !== "") return { ...htmlOf(renderNoPage(frame)), status: 404 };
      const { origin } = publicUrl();
      // The files of the console have other names once they have changed.
      return keep([path, origin, ...frame.assets.stylesheets].join(" "), async () => {
        const html = document
          ? renderPage(frame, { ...document, ...render(document, all, origin) })
          : renderIndex(frame);
        return { ...htmlOf(html), etag: tagOf(html) };
      });
    },
  };
}

/**
 * Searches one after the other, each followed by a pause of three times its length: however often
 * anybody asks, searching takes a quarter of the process. What was asked lately is kept.
 */
function searchInTurn(index: () => Promise<Search>): (query: string) => Promise<readonly Found[]> {
  const kept = new BoundedMap<string, readonly Found[]>(200);
  let before: Promise<unknown> = Promise.resolve();
  return async (query) => {
    const known = kept.get(query);
    if (known) return known;
    const found = Promise.all([index(), before]).then(([search]) => {
      const begun = performance.now();
      const sections = search(query);
      return { sections, tookMs: performance.now() - begun };
    });
    before = found.then(
      ({ tookMs }) => delay(3 * tookMs, undefined, { ref: false }),
      () => undefined,
    );
    const { sections } = await found;
    kept.set(query, sections);
    return sections;
  };
}

/** Makes a value at the first call. A failure is not kept: the next call tries again. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

function htmlOf(html: string): DocsAnswer {
  return { status: 200, type: "text/html; charset=utf-8", content: Buffer.from(html) };
}

function tagOf(content: string | Buffer): string {
  return createHash("sha256").update(content).digest("base64url").slice(0, 22);
}

async function readLibrary(folder: string): Promise<Library> {
  const names = (await readdir(folder, { recursive: true })).map((name) =>
    name.replaceAll("\\", "/"),
  );
  const files = names.filter((name) => name.endsWith(".md") && !name.startsWith("decisions/"));
  const sources = new Map(
    await Promise.all(
      files.map(async (file) => [file, await readFile(join(folder, file), "utf8")] as const),
    ),
  );
  const fileOf = new Map(files.map((file) => [pathOf(file), file]));
  const groups = orderPages([...fileOf.keys()]).map(({ paths, ...group }) => ({
    ...group,
    pages: paths.map((path): Document => {
      const file = fileOf.get(path) ?? "";
      const source = sources.get(file) ?? "";
      const [title = path] = /(?<=^# ).+$/m.exec(source) ?? [];
      const { showsPublicUrl } = group;
      const weight = weightOf(path, isOverview(file));
      const summary = summaryOf(source);
      return { path, href: `/docs/${path}`, title, summary, file, source, showsPublicUrl, weight };
    }),
  }));
  const documents = groups.flatMap(({ pages }) => pages.map((page) => [page.path, page] as const));
  return {
    groups,
    documents: new Map(documents),
    pictures: new Set(names.filter((name) => /^pictures\/[\w-]+\.png$/.test(name))),
  };
}

/** The path of a page. That of a folder is the one of its README.md. */
function pathOf(file: string): string {
  return file.replace(/(?:^|\/)README\.md$/, "").replace(/\.md$/, "");
}

/** The first sentence below the title, as plain text. */
function summaryOf(source: string): string {
  const [, first = ""] = source.split(/\n\s*\n/);
  const text = textOf(renderMarkdown(first, { hrefOf: () => undefined, sampleOf: String }).html);
  const [sentence = text] = /^.+?\.(?= |$)/.exec(text) ?? [];
  return sentence;
}

/** Where a gateway on the machine of the reader listens. */
const ownMachine = "http://127.0.0.1:8080";

function render(document: Document, library: Library, origin: string): Rendered {
  const { file, source, showsPublicUrl } = document;
  return renderMarkdown(source, {
    hrefOf: (target) => hrefOf(target, file, library),
    sampleOf: (code) => (showsPublicUrl ? code.replaceAll(ownMachine, origin) : code),
  });
}

function hrefOf(target: string, file: string, { documents, pictures }: Library) {
  // Addresses of samples are no links.
  if (/^https?:\/\/(localhost|127\.)/.test(target)) return undefined;
  if (/^(https?:\/\/|mailto:|#)/.test(target)) return target;
  const [path = "", anchor] = target.split("#");
  const linked = posix.join(posix.dirname(file), path);
  if (pictures.has(linked)) return `/docs/${linked}`;
  // The rest of the repository is not served.
  const page = documents.get(pathOf(linked).replace(/\/$/, ""));
  return page && `${page.href}${anchor === undefined ? "" : `#${anchor}`}`;
}

async function entriesOf(library: Library): Promise<Entry[]> {
  const entries: Omit<Entry, "questions">[] = [];
  const questions = new Map<string, string>();
  for (const document of library.documents.values()) {
    const { href, title, path: page, file } = document;
    const { html, sections } = render(document, library, "");
    if (isOverview(file)) collectQuestions(html, questions);
    const above: Section[] = [];
    for (const section of sections) {
      const { id, level, heading, text } = section;
      while ((above.at(-1)?.level ?? 0) >= level) above.pop();
      const headings = level === 1 ? [] : [...above.map((one) => one.heading), heading];
      if (level > 1) above.push(section);
      const address = level === 1 ? href : `${href}#${id}`;
      entries.push({ href: address, page, title, headings, text, weight: document.weight });
    }
    // Requests are served in between.
    await turn();
  }
  return entries.map((entry) => ({
    ...entry,
    questions: questions.get(`/docs/${entry.page}`) ?? "",
  }));
}

/** The page of a folder lists its pages with the questions that they answer. */
function isOverview(file: string): boolean {
  return /(^|\/)README\.md$/.test(file);
}

/** Adds the row of a table to each page to which it links, as its questions. */
function collectQuestions(html: string, questions: Map<string, string>): void {
  for (const [row] of html.matchAll(/<tr>[\s\S]*?<\/tr>/g))
    for (const [, href = ""] of row.matchAll(/ href="([^"#]+)/g))
      questions.set(href, `${questions.get(href) ?? ""} ${textOf(row)}`);
}
