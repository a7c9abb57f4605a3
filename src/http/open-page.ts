// GET /models and /models.json: the models, their prices and the packs for everybody, without a
// credential and without a script. Both are made of the configuration file alone, so they are
// served while the database is down, and nothing in them names a provider. /models with the
// credential of a key is a spelling of /v1/models.

import { createHash } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../base/errors.ts";
import { closed, decimal, list, ref, text } from "../base/json-schema.ts";
import { grouped, modelFacts } from "../base/model-facts.ts";
import { creditsPerUsd } from "../base/shown-figures.ts";
import { type CatalogFile, coinsOf } from "../config/catalog.ts";
import { createCatalog } from "../inference/inference.ts";
import { renderModelInfo } from "./models.ts";
import { json, type Operation } from "./operation.ts";

export type OpenPageParts = {
  /** The file in use. */
  readonly file: () => CatalogFile;
  /** The address under which people reach this listener. */
  readonly publicUrl: () => URL;
  /** The path of the style sheet. Undefined: there is none. */
  readonly stylesheet: () => Promise<string | undefined>;
};

export type OpenPage = ReturnType<typeof createOpenPage>;

export const openModelsOperation: Operation = {
  id: "listOpenModels",
  summary:
    "Lists the models, their prices and the packs for everybody, where the operator wants it",
  answer: {
    [json]: closed({
      models: list(ref("ModelInfo")),
      packs: list(closed({ usd: decimal, credits: decimal })),
      coins: list(text),
      seller: closed({ name: text }, { contact: text, terms_url: text, privacy_url: text }),
    }),
  },
  errors: ["not_found"],
};

/** A page for one file, address and style sheet. */
type Rendered = { readonly of: readonly unknown[]; readonly html: Body; readonly json: Body };
type Body = { readonly content: Buffer; readonly type: string; readonly etag: string };

const policy = [
  ...["default-src 'none'", "style-src 'self'", "img-src data:", "base-uri 'none'"],
  ...["form-action 'none'", "frame-ancestors 'none'"],
].join("; ");

export function createOpenPage({ file, publicUrl, stylesheet }: OpenPageParts) {
  let rendered: Rendered | undefined;
  const isOn = () => {
    const { payments } = file();
    return payments !== undefined && (payments.seller.publicModels ?? true);
  };
  const render = async (): Promise<Rendered> => {
    const of = [file(), publicUrl().origin, await stylesheet()] as const;
    if (rendered?.of.every((one, index) => one === of[index])) return rendered;
    rendered = { of, html: bodyOf(renderHtml(...of), "text/html"), json: renderJson(of[0]) };
    return rendered;
  };
  const sendAs =
    (kind: "html" | "json") => async (request: FastifyRequest, reply: FastifyReply) => {
      if (!isOn()) throw new ApiError("not_found", { message: "No such path." });
      const { content, type, etag } = (await render())[kind];
      reply.headers({
        etag,
        "cache-control": "public, max-age=60",
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        // The same path serves keys.
        vary: "authorization, x-api-key",
        ...(file().payments?.seller.index !== true && { "x-robots-tag": "noindex" }),
      });
      if (request.headers["if-none-match"] === etag) return reply.code(304).send();
      return reply.type(type).send(content);
    };
  return { isOn, sendHtml: sendAs("html"), sendJson: sendAs("json") };
}

/** True: a program asks with a credential, or tries to. */
export function bringsCredential({ headers }: Pick<FastifyRequest, "headers">): boolean {
  return headers.authorization !== undefined || headers["x-api-key"] !== undefined;
}

function bodyOf(content: string, type: string): Body {
  const hash = createHash("sha256").update(content).digest("base64url").slice(0, 22);
  return { content: Buffer.from(content), type: `${type}; charset=utf-8`, etag: `"${hash}"` };
}

type Pack = { readonly usd: string; readonly credits: string };

function packsOf({ payments }: CatalogFile): Pack[] {
  return (payments?.packsUsd ?? []).map((usd) => ({
    usd: String(usd),
    credits: String(usd * creditsPerUsd),
  }));
}

function renderJson(file: CatalogFile): Body {
  const { name = "", contact, termsUrl, privacyUrl } = file.payments?.seller ?? {};
  const seller: JsonObject = {
    name,
    ...(contact !== undefined && { contact }),
    ...(termsUrl !== undefined && { terms_url: termsUrl }),
    ...(privacyUrl !== undefined && { privacy_url: privacyUrl }),
  };
  const models = soldModels(file).map(renderModelInfo);
  const coins = file.payments ? coinsOf(file.payments) : [];
  const content = { models, packs: packsOf(file), coins, seller };
  return bodyOf(`${JSON.stringify(content)}\n`, json);
}

function soldModels(file: CatalogFile) {
  return createCatalog(file)
    .list([])
    .filter(({ aliasFor }) => aliasFor === "");
}

function renderHtml(file: CatalogFile, origin: string, stylesheet: string | undefined): string {
  const { payments, people } = file;
  const seller = payments?.seller;
  const title = escaped(seller?.name || "Model Gateway");
  const models = soldModels(file).flatMap(({ price, conditional, ...model }) => {
    const others = conditional.flatMap(({ price }) => price ?? []);
    return price ? [renderModel(modelFacts({ ...model, price, conditional: others }))] : [];
  });
  const coins = payments ? coinsOf(payments) : [];
  const packs = packsOf(file).map(
    ({ usd, credits }) => `<li>${grouped(usd)} USD: ${grouped(credits)} credits</li>`,
  );
  const signUp =
    people.signUp.mode === "closed" ? "" : link("/console/sign-up", "Sign up", "button main");
  const buttons = `${signUp}${link("/console/sign-in", "Sign in", "button")}`;
  const first = file.models[0]?.id ?? "";
  const style = stylesheet === undefined ? "" : `<link rel="stylesheet" href="${stylesheet}">`;
  return `<!doctype html>
<html lang="en" dir="ltr"><head><meta charset="utf-8"><title>${title}: models and prices</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">${style}
<link rel="alternate" type="application/json" href="/models.json"></head>
<body><main class="open stack"><header class="spread"><h1>${title}</h1>
<p class="row">${buttons}</p></header>
<p>Every model answers the messages, the chat completions and the responses format. Prices are for
a million tokens; 1 credit is 0.005 USD. The same for programs:
${link("/models.json", "models.json")}.</p>
<section class="models columns">${models.join("\n")}</section>
<section class="stack"><h2>Credits</h2><ul>${packs.join("")}</ul>
<p>Paid in advance, in ${escaped(coins.join(", ") || "nothing yet")}.</p></section>
<section class="stack"><h2>Connect</h2><p>The base address is <code>${escaped(origin)}</code>.
A key comes with an account.</p>${samplesOf(origin, first).map(renderSample).join("")}</section>
<footer>${footerOf(seller)}</footer></main></body></html>
`;
}

function renderModel({ name, id, sentences, prices }: ReturnType<typeof modelFacts>): string {
  const rows = prices.map(
    ({ label, usd, credits }) => `<tr><th scope="row">${label}<td>${usd}<td>${credits}`,
  );
  const of = escaped(name);
  return `<article class="stack"><h2>${of}</h2><p><code>${escaped(id)}</code></p>
<table aria-label="Prices of ${of}"><thead><tr><th scope="col">Per million<th scope="col">USD\
<th scope="col">Credits<tbody>${rows.join("")}</table>
${sentences.map((one) => `<p>${escaped(one)}</p>`).join("")}</article>`;
}

/** Ways to make a first call. */
function samplesOf(origin: string, model: string): { title: string; lines: string[] }[] {
  return [
    {
      title: "curl",
      lines: [
        `curl ${origin}/v1/messages -H "x-api-key: $KEY" -H "anthropic-version: 2023-06-01" \\`,
        `  -d '{"model": "${model}", "max_tokens": 100,`,
        '    "messages": [{"role": "user", "content": "Hello"}]}\'',
      ],
    },
    {
      title: "Claude Code",
      lines: [
        `export ANTHROPIC_BASE_URL=${origin} ANTHROPIC_AUTH_TOKEN=$KEY`,
        `claude --model ${model}`,
      ],
    },
    {
      title: "OpenAI SDK",
      lines: [
        `client = OpenAI(base_url="${origin}/v1", api_key=KEY)`,
        `client.chat.completions.create(model="${model}",`,
        '    messages=[{"role": "user", "content": "Hello"}])',
      ],
    },
  ];
}

function renderSample({ title, lines }: { title: string; lines: string[] }): string {
  const text = escaped(lines.join("\n"));
  return `<h3>${title}</h3><pre tabindex="0" aria-label="${title}"><code>${text}</code></pre>`;
}

function footerOf(seller: NonNullable<CatalogFile["payments"]>["seller"] | undefined): string {
  const { contact, termsUrl, privacyUrl } = seller ?? {};
  const parts = [
    ...(contact === undefined ? [] : [contactLink(contact)]),
    ...(termsUrl === undefined ? [] : [link(termsUrl, "Terms")]),
    ...(privacyUrl === undefined ? [] : [link(privacyUrl, "Privacy")]),
    link("/docs", "Documents"),
    link("/openapi.json", "API"),
  ];
  return `<p>${parts.join(" · ")}</p>`;
}

function contactLink(contact: string): string {
  if (/^https?:\/\//.test(contact)) return link(contact, "Contact");
  return contact.includes("@") ? link(`mailto:${contact}`, contact) : escaped(contact);
}

function link(href: string, label: string, kind = ""): string {
  const as = kind === "" ? "" : ` class="${kind}"`;
  return `<a${as} href="${escaped(href)}">${escaped(label)}</a>`;
}

const entities: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" },
};

function escaped(given: string): string {
  return given.replace(/[&<>"']/g, (one) => entities[one] ?? one);
}
