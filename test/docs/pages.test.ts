// The documents as pages: what is served, its links, its headers, and what the search finds.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { renderMarkdown } from "../../src/docs/markdown.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { documents, readDocument, root } from "./documents.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ split: false });
});
afterAll(() => gateway.stop());

const get = (path: string, init: RequestInit = {}) => fetch(gateway.address + path, init);
const read = async (path: string) => (await get(path)).text();

/** Of each document that is a page. */
const pages = documents
  .filter((path) => path.startsWith("docs/") && !path.startsWith("docs/decisions/"))
  .map((path) => ({
    path,
    href: `/${path.replace(/(\/README)?\.md$/, "")}`,
    title: /^# (.+)$/m.exec(readDocument(path))?.[1] ?? expect.unreachable(path),
  }));

test("each document is a page with its title, which the index lists", async () => {
  const index = await read("/docs");
  expect(pages.length).toBeGreaterThan(5);
  for (const { href, title } of pages) {
    expect(index).toContain(`<a href="${href}">${title}</a>`);
    const answer = await get(href);
    expect([answer.status, answer.headers.get("content-type")]).toEqual([
      200,
      "text/html; charset=utf-8",
    ]);
    const html = await answer.text();
    expect(html).toContain(`<title>${title} – Model Gateway</title>`);
    expect(html).toContain(`<a href="${href}" aria-current="page">${title}</a>`);
  }
});

test("each link of a page leads to a page, a heading or elsewhere", async () => {
  const idsOf = new Map<string, Set<string>>();
  const targets: { from: string; to: string }[] = [];
  for (const { href } of pages) {
    const html = await read(href);
    idsOf.set(href, new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id = ""]) => id)));
    for (const [, to = ""] of html.matchAll(/<(?:a|img)[^>]* (?:href|src)="([^"]+)"/g))
      targets.push({ from: href, to });
  }
  expect(targets.length).toBeGreaterThan(100);
  const others = ["/docs", "/console/", "/openapi.json", "/protos/descriptor.binpb"];
  const isFound = ({ from, to }: { from: string; to: string }) => {
    if (/^(https?|mailto):/.test(to) || others.includes(to)) return true;
    if (/^\/docs\/pictures\/[\w-]+\.png$/.test(to)) return existsSync(join(root, to));
    const [page = "", id] = to.split("#");
    const ids = idsOf.get(page === "" ? from : page);
    return ids !== undefined && (id === undefined || ids.has(id));
  };
  expect(targets.filter((target) => !isFound(target))).toEqual([]);
});

test("a page has the one before it and the one after it", async () => {
  const hrefs = [...(await read("/docs")).matchAll(/<li><a href="(\/docs\/[^"]+)">/g)].map(
    ([, href = ""]) => href,
  );
  const order = [...new Set(hrefs)];
  expect(order).toHaveLength(pages.length);
  for (const [at, href] of order.entries()) {
    const html = await read(href);
    const way = (rel: string) => new RegExp(`<a rel="${rel}" href="([^"]+)"`).exec(html)?.[1];
    expect([way("prev"), way("next")]).toEqual([order[at - 1], order[at + 1]]);
  }
});

test("markup, addresses of scripts and links into the repository are text", () => {
  const { html, sections } = renderMarkdown(
    [
      "# One `<b>`",
      "<!-- table: gone -->",
      'A <script>alert(1)</script> [run](javascript:alert) ![x" onerror="y](z.png)',
      "## Same\n\nfirst",
      "## Same\n\n```js\nconst a = '</code><i>';\n```",
    ].join("\n\n"),
    { hrefOf: () => undefined, sampleOf: String },
  );
  expect(html).not.toMatch(/<(script|b|i|img|!--)|javascript:|<[^>]*onerror/);
  expect(html).toContain("&lt;script&gt;alert(1)&lt;/script&gt; run x&quot;");
  expect(sections.map(({ id, level, heading }) => [id, level, heading])).toEqual([
    ["one-b", 1, "One <b>"],
    ["same", 2, "Same"],
    ["same-1", 2, "Same"],
  ]);
  expect(sections.at(-1)?.text).toBe("const a = '</code><i>';");
});

test("samples for customers have the address of this gateway", async () => {
  const { origin } = new URL(gateway.ownerLink);
  const html = await read("/docs/tools");
  expect(html).toContain(`ANTHROPIC_BASE_URL=${origin}\n`);
  expect(html).not.toMatch(/<pre[^>]*><code>[^<]*127\.0\.0\.1:8080/);
});

describe("headers", () => {
  test("the policy lets nothing in from elsewhere, and no code of the page itself", async () => {
    for (const path of ["/docs", pages[0]?.href ?? "", "/docs?q=key", "/docs/none"]) {
      const { headers } = await get(path);
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain("unsafe");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("set-cookie")).toBeNull();
      const html = await read(path);
      expect(html).not.toMatch(/ style=| on\w+="|<style|<script(?! type="module" src="\/console)/);
    }
  });

  test("a page is kept for a minute, known by its tag, and compressed", async () => {
    const path = pages[0]?.href ?? "";
    const first = await get(path, { headers: { "accept-encoding": "identity" } });
    expect(first.headers.get("cache-control")).toBe("public, max-age=60");
    expect(first.headers.get("content-encoding")).toBeNull();
    const tag = first.headers.get("etag") ?? "";
    const again = await get(path, { headers: { "if-none-match": tag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    const packed = await get(path, { headers: { "accept-encoding": "gzip, br;q=0" } });
    expect(packed.headers.get("content-encoding")).toBeNull();
    const brotli = await get(path, { headers: { "accept-encoding": "gzip, deflate, br" } });
    expect(brotli.headers.get("content-encoding")).toBe("br");
    expect(await brotli.text()).toBe(await first.text());
    expect(brotli.headers.get("vary")).toBe("accept-encoding");
  });

  test("HEAD answers as GET does, without the page", async () => {
    for (const [path, status] of [
      ["/docs", 200],
      [pages[0]?.href ?? "", 200],
      ["/docs/none", 404],
    ] as const) {
      const answer = await get(path, { method: "HEAD" });
      expect([answer.status, await answer.text()]).toEqual([status, ""]);
      expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
    }
  });
});

test("pictures are small, have a palette, and are served", async () => {
  const pictures = ["console-light.png", "console-dark.png"].map((name) => `docs/pictures/${name}`);
  for (const path of pictures) {
    const file = readFileSync(join(root, path));
    expect(file.byteLength).toBeLessThanOrEqual(150_000);
    // The type of its colours: indexes.
    expect(file[25]).toBe(3);
    const answer = await get(`/${path}`);
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "image/png"]);
    expect(Buffer.from(await answer.arrayBuffer()).equals(file)).toBe(true);
  }
  // One that README shows, it shows in both themes.
  const shown = pictures.filter((path) => readDocument("README.md").includes(path));
  expect([[], pictures]).toContainEqual(shown);
});

test("an unknown page is a 404 with the list of pages, and nothing else is served", async () => {
  for (const path of [
    "/docs/none",
    "/docs/a/b",
    "/docs/decisions",
    "/docs/tools.md",
    "/docs/..%2f..%2fpackage.json",
    "/docs/pictures/none.png",
    "/docs/constructor",
  ]) {
    const answer = await get(path);
    expect([path, answer.status]).toEqual([path, 404]);
    expect(await answer.text()).toContain("No such page");
  }
  for (const path of ["/docs/a/b/c", "/docs/%zz"])
    expect((await get(path)).status).toBeGreaterThanOrEqual(400);
  const posted = await get("/docs", { method: "POST" });
  expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  expect((await get(`${pages[0]?.href}/`)).status).toBe(200);
});

/** The hrefs that a search finds, the best first. */
async function search(query: string): Promise<string[]> {
  const html = await read(`/docs?q=${encodeURIComponent(query)}`);
  const [list = ""] = /<ol[\s\S]*<\/ol>/.exec(html) ?? [];
  return [...list.matchAll(/<li><a href="([^"]+)"/g)].map(([, href = ""]) => href);
}

describe("search", () => {
  test("finds a section by its heading, by other forms of its words, and marks them", async () => {
    const [best = ""] = await search("hedging measuring");
    expect(best).toMatch(/^\/docs\//);
    const html = await read("/docs?q=sealed%20reasoning");
    expect(html).toMatch(/<mark>[Ss]ealed<\/mark>/);
    expect(html).toContain('value="sealed reasoning"');
    expect(await search("zzzzqqqq")).toEqual([]);
    expect(await read("/docs?q=zzzzqqqq")).toContain("Nothing found");
  });

  test.for([
    ["empty", "", "<h1>Documents</h1>"],
    ["blank", " \t\n", "<h1>Documents</h1>"],
    ["markup", '<script>alert("1")</script>"\'', "&lt;script&gt;alert(&quot;1&quot;)"],
    ["a long one, which is cut", "key ".repeat(600), "<h1>Found for"],
    ["names of members of objects", "constructor __proto__ toString", "<h1>"],
    ["nothing but stop words", "how do i", "Nothing found"],
    ["half of a character", "\ud800 key", "<h1>"],
    ["a zero", "\0", "<h1>"],
  ] as const)("a query that is %s is safe", async ([, query, shown]) => {
    const answer = await get(`/docs?q=${encodeURIComponent(query.toWellFormed())}`);
    const html = await answer.text();
    expect(answer.status).toBe(200);
    expect(html).toContain(shown);
    expect(html).not.toContain("<script>");
    expect(html.length).toBeLessThan(60_000);
  });

  test("broken and repeated parameters are safe", async () => {
    for (const path of ["/docs?q=%zz%ff", "/docs?q=a&q=b", "/docs?q[]=1", "/docs?x=1", "/docs?"])
      expect((await get(path)).status).toBe(200);
  });
});

/** Questions of customers and operators, as public issue trackers have them. */
const questionsPath = join(root, "test/docs/questions.json");

type Question = {
  readonly reader: string;
  /** The day on which the list was written. */
  readonly asked: string;
  readonly question: string;
  readonly page: string;
};

/** So many of 30 lead to their page at once. */
const foundMin = 27;

describe.skipIf(!existsSync(questionsPath))("the first that is found is the page", () => {
  test.for([
    ["customer", "2026-11-26"],
    ["customer", "2026-11-28"],
    ["operator", "2026-11-26"],
    ["operator", "2026-11-28"],
  ] as const)("for one %s, of the list of %s", async ([reader, asked]) => {
    const all: Question[] = JSON.parse(readFileSync(questionsPath, "utf8"));
    const list = all.filter((one) => one.reader === reader && one.asked === asked);
    expect(list).toHaveLength(30);
    const missed: string[] = [];
    for (const { question, page } of list) {
      const [first = "none"] = await search(question);
      const wanted = `/${page.replace(/(\/README)?\.md$/, "")}`;
      if (first.split("#")[0] !== wanted) missed.push(`${question} ${wanted}, found ${first}`);
    }
    expect(30 - missed.length, missed.join("\n")).toBeGreaterThanOrEqual(foundMin);
  });
});
