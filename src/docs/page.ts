// The frame of the pages: the column of pages, the form of the search, and what comes before and
// after.

import { escaped } from "./html.ts";
import type { Section } from "./markdown.ts";
import type { Found } from "./search.ts";

export type PageLink = { readonly href: string; readonly title: string };
export type PageGroup = {
  readonly name: string;
  readonly pages: readonly (PageLink & { readonly summary: string })[];
};

/** Paths of the files of the console. Empty: they could not be bundled. */
export type Assets = {
  readonly stylesheets: readonly string[];
  readonly scripts: readonly string[];
};

export type Frame = {
  readonly groups: readonly PageGroup[];
  readonly assets: Assets;
};

type Content = {
  readonly title: string;
  readonly main: string;
  /** The address of this page, if it is in the column. */
  readonly href?: string;
  readonly query?: string;
  /** Shown at the right, where there is room. */
  readonly sections?: readonly Section[];
};

const mark = `<svg class="brand-mark" viewBox="0 0 20 20" aria-hidden="true">\
<path d="M3 5h4l6 10h4M3 15h4l2-3.3M11 8.3 13 5h4"/></svg>`;
const icon =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20' fill='none' " +
  "stroke='%234361d8' stroke-width='2.4' stroke-linecap='round'%3E%3Cpath " +
  "d='M3 5h4l6 10h4M3 15h4l2-3.3M11 8.3 13 5h4'/%3E%3C/svg%3E";

function renderFrame({ groups, assets }: Frame, content: Content): string {
  const { title, main, href, query = "", sections = [] } = content;
  const scripts = assets.scripts.map((path) => `<script type="module" src="${path}"></script>`);
  const sheets = assets.stylesheets.map((path) => `<link rel="stylesheet" href="${path}">`);
  const lists = groups.map(
    ({ name, pages }) =>
      `<p class="faint">${name}</p><ul>${pages
        .map((page) => `<li>${linkTo(page, page.href === href)}</li>`)
        .join("")}</ul>`,
  );
  const inPage = sections.filter(({ level }) => level === 2);
  const contents = inPage.map(
    ({ id, heading }) => `<li><a href="#${id}">${escaped(heading)}</a></li>`,
  );
  return `<!doctype html>
<html lang="en" dir="ltr"><head><meta charset="utf-8"><title>${escaped(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="${icon}">
${scripts.join("")}${sheets.join("")}</head>
<body class="docs"><a class="skip" href="#main">To the text</a>
<header class="docs-head"><a class="brand" href="/docs">${mark}<span>Documents</span></a>
<form action="/docs" role="search" class="row"><input type="search" name="q" maxlength="200" \
aria-label="Search the documents" placeholder="Search" value="${escaped(query)}">\
<button class="button">Search</button></form>
<p class="row"><a class="docs-to-pages" href="#pages">Pages</a>\
<a href="/console/">Console</a></p></header>
<div class="docs-body"><main id="main" tabindex="-1">${main}</main>
${contents.length > 1 ? `<nav class="docs-contents" aria-label="On this page"><p class="faint">On this page</p><ul>${contents.join("")}</ul></nav>` : ""}
<nav class="docs-pages" id="pages" aria-label="Pages">${lists.join("")}
<p class="faint">For programs</p><ul><li><a href="/openapi.json">OpenAPI</a></li>\
<li><a href="/protos/descriptor.binpb">Descriptors of gRPC</a></li></ul></nav></div></body></html>
`;
}

function linkTo({ href, title }: PageLink, isCurrent: boolean): string {
  return `<a href="${href}"${isCurrent ? ' aria-current="page"' : ""}>${escaped(title)}</a>`;
}

/** The page of a document. */
export function renderPage(
  frame: Frame,
  page: PageLink & { readonly html: string; readonly sections: readonly Section[] },
): string {
  const all = frame.groups.flatMap(({ pages }) => pages);
  const at = all.findIndex(({ href }) => href === page.href);
  const [before, after] = [all[at - 1], all[at + 1]];
  const ways = [
    before &&
      `<a rel="prev" href="${before.href}"><small>Previous</small>${escaped(before.title)}</a>`,
    after && `<a rel="next" href="${after.href}"><small>Next</small>${escaped(after.title)}</a>`,
  ].filter((way) => way !== undefined);
  const main = `<article>${page.html}</article>
<nav class="docs-ways" aria-label="Previous and next">${ways.join("")}</nav>`;
  return renderFrame(frame, { ...page, title: `${page.title} – Model Gateway`, main });
}

/** The list of all pages. */
export function renderIndex(frame: Frame): string {
  const lists = frame.groups.map(
    ({ name, pages }) =>
      `<section><h2>${name}</h2><ul class="docs-list">${pages
        .map((page) => `<li>${linkTo(page, false)}<p>${escaped(page.summary)}</p></li>`)
        .join("")}</ul></section>`,
  );
  const main = `<h1>Documents</h1>${lists.join("")}<section><h2>For programs</h2>
<ul class="docs-list"><li><a href="/openapi.json">openapi.json</a>
<p>Every path and method in OpenAPI 3.1.</p></li>
<li><a href="/protos/descriptor.binpb">descriptor.binpb</a>
<p>The descriptors of the gRPC services.</p></li></ul></section>`;
  return renderFrame(frame, { title: "Documents – Model Gateway", main });
}

export function renderFound(frame: Frame, query: string, found: readonly Found[]): string {
  const list = found.map(
    ({ href, title, headings, excerpt }) =>
      `<li><a href="${href}">${escaped([title, ...headings].join(" › "))}</a>
<p>${excerpt}</p></li>`,
  );
  const shown = escaped(query);
  const main =
    found.length === 0
      ? `<h1>Nothing found</h1><p>No page has “${shown}”. Try fewer or other words, or look at
<a href="/docs">all pages</a>.</p>`
      : `<h1>Found for “${shown}”</h1><ol class="docs-list">${list.join("")}</ol>`;
  return renderFrame(frame, { title: `${query} – Model Gateway`, main, query });
}

export function renderNoPage(frame: Frame): string {
  const main = `<h1>No such page</h1><p>Search for it, or look at <a href="/docs">all pages</a>.</p>`;
  return renderFrame(frame, { title: "No such page – Model Gateway", main });
}
