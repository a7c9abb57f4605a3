// Markdown to HTML, by sections. By marked: it reads the Markdown of GitHub, in which the documents
// are written, has types and no dependencies, and its parts can be written otherwise one by one.

import { Marked } from "marked";
import { escaped, textOf } from "./html.ts";

export type Section = {
  /** Its anchor in the page, as GitHub gives it. */
  readonly id: string;
  /** 1: the page itself, until its first section. */
  readonly level: number;
  readonly heading: string;
  /** Plain, without its heading. */
  readonly text: string;
};

export type Rendered = { readonly html: string; readonly sections: readonly Section[] };

const scrolling = '<div class="docs-table" role="group" aria-label="Table" tabindex="0">';

export type Place = {
  /** The address of a link's target. Undefined: it leads nowhere here, and is plain text. */
  hrefOf(target: string): string | undefined;
  /** What a sample shows here. */
  sampleOf(code: string): string;
};

/** Renders a document. Its markup is text: documents have none but comments, which are dropped. */
export function renderMarkdown(source: string, { hrefOf, sampleOf }: Place): Rendered {
  const ids = new Map<string, number>();
  const idOf = (heading: string) => {
    const id = heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-");
    const used = ids.get(id) ?? 0;
    ids.set(id, used + 1);
    return used === 0 ? id : `${id}-${used}`;
  };
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth }) {
        const html = this.parser.parseInline(tokens);
        const text = escaped(textOf(html));
        const id = idOf(textOf(html));
        const link =
          depth === 1 ? "" : ` <a class="anchor" href="#${id}" aria-label="Link to ${text}">#</a>`;
        return `<h${depth} id="${id}">${html}${link}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        const html = this.parser.parseInline(tokens);
        const target = hrefOf(href);
        return target === undefined ? html : `<a href="${escaped(target)}">${html}</a>`;
      },
      image({ href, text }) {
        const source = hrefOf(href);
        return source === undefined
          ? escaped(text)
          : `<img src="${escaped(source)}" alt="${escaped(text)}" loading="lazy">`;
      },
      code({ text }) {
        const sample = escaped(sampleOf(text));
        return `<div class="sample"><pre tabindex="0"><code>${sample}</code></pre></div>\n`;
      },
      html({ text }) {
        return /^\s*<!--[\s\S]*-->\s*$/.test(text) ? "" : escaped(text);
      },
    },
  });
  const html = marked
    .parse(source, { async: false })
    // On narrow screens, a table scrolls by itself.
    .replaceAll("<table>", `${scrolling}<table>`)
    .replaceAll("</table>", "</table></div>");
  return { html, sections: html.split(/(?=<h[1-6] id=)/).flatMap(sectionOf) };
}

const headingPattern = /^<h(\d) id="([^"]*)">([\s\S]*?)(?: <a class="anchor"[^\n]*)?<\/h\d>\n?/;

function sectionOf(html: string): Section[] {
  const [whole, level = "", id = "", heading = ""] = headingPattern.exec(html) ?? [];
  if (whole === undefined) return [];
  const text = textOf(html.slice(whole.length));
  return [{ id, level: Number(level), heading: textOf(heading), text }];
}
