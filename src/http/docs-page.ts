// GET /docs: the document of /openapi.json for people, as one page without scripts, whose style is
// in it. It asks no other address for anything, so it works where there is no network.

import { createHash } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { text, uncheckedMark } from "../base/json-schema.ts";
import { isObject } from "../formats/json.ts";
import type { Operation } from "./operation.ts";

export const docsOperation: Operation = {
  id: "getDocs",
  summary: "Shows this document to people",
  answer: { "text/html": text },
};

export function getDocs(document: () => JsonObject) {
  let page: Buffer | undefined;
  return async (_: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    page ??= Buffer.from(renderPage(document()));
    return reply
      .headers({
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
      })
      .send(page);
  };
}

const style = `:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:0.9em ui-monospace,monospace}
details{border:1px solid #8886;border-radius:6px;margin:.5rem 0;padding:.5rem .8rem}
summary{cursor:pointer}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}
ul{padding-left:1.2rem;margin:.2rem 0}
h3,h4{margin:1rem 0 .2rem}
.scroll{overflow-x:auto}
p,.lines{white-space:pre-line}
body{overflow-wrap:anywhere}
td{overflow-wrap:break-word}`;

const policy = [
  "default-src 'none'",
  `style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

function renderPage(document: JsonObject): string {
  const { title, description } = member(document, "info");
  const name = escaped(String(title));
  const components = member(document, "components");
  const render = (one: Described) => renderOperation(one, member(components, "parameters"));
  const operations = entries(document.paths).flatMap(([path, methods]) =>
    entries(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`,
      operation,
    })),
  );
  const ofTag = (tagName: string | undefined) =>
    operations.filter(({ operation: { tags } }) => {
      const [first] = Array.isArray(tags) ? tags : [];
      return first === tagName;
    });
  const services = objectsIn(document.tags).map((one) => {
    const [serviceName, about] = [String(one.name), paragraph(one.description)];
    const methods = ofTag(serviceName).map(render);
    return `<h2 id="${escaped(serviceName)}">${escaped(serviceName)}</h2>${about}${methods.join("\n")}`;
  });
  const links = objectsIn(document.tags).map(({ name: one }) => `<li>${link(String(one))}</li>`);
  const webhooks = entries(document.webhooks).flatMap(([hook, methods]) =>
    entries(methods).map(([method, operation]) =>
      render({ name: `${method.toUpperCase()} ${hook}`, operation }),
    ),
  );
  const schemas = entries(components.schemas).map(([schemaName, schema]) =>
    tag(
      "section",
      `<h3 id="${escaped(schemaName)}">${code(schemaName)}</h3>${renderSchema(schema)}`,
    ),
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${name}</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><style>${style}</style></head>
<body><main><h1>${name}</h1>${paragraph(description)}
<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>
<ul><li><a href="#paths">Paths</a></li>${links.join("")}
<li><a href="#webhooks">Webhooks</a></li><li><a href="#schemas">Schemas</a></li></ul>
<h2 id="paths">Paths</h2>
${ofTag(undefined).map(render).join("\n")}
${services.join("\n")}
<h2 id="webhooks">Webhooks</h2>
<p>What this gateway posts to its customers.</p>
${webhooks.join("\n")}
<h2 id="schemas">Schemas</h2>
${schemas.join("\n")}
</main></body></html>
`;
}

type Described = { readonly name: string; readonly operation: JsonObject };

function renderOperation({ name, operation }: Described, shared: JsonObject): string {
  const { summary, description, parameters, responses } = operation;
  const body = entries(member(operation, "requestBody").content).map(([type, content]) =>
    tag("section", `<h4>Body</h4>${code(type)}: ${renderSchema(content.schema)}`),
  );
  const rows = objectsIn(parameters)
    .map((one) => (typeof one.$ref === "string" ? member(shared, nameIn(one.$ref)) : one))
    .map((one) =>
      cells([
        code(String(one.name)),
        `${escaped(String(one.in))}${one.required === true ? ", required" : ""}`,
        `${renderSchema(one.schema)}${paragraph(one.description)}`,
      ]),
    );
  const answers = entries(responses).map(([status, response]) =>
    cells([
      code(status),
      `<span class="lines">${withCode(String(response.description))}</span> ` +
        entries(response.content)
          .map(([type, content]) => `${code(type)}: ${renderSchema(content.schema)}`)
          .join(" or "),
    ]),
  );
  const head = `${code(name)} ${withCode(String(summary))}`;
  return tag(
    "details",
    `<summary>${head}</summary>${paragraph(description)}` +
      (rows.length > 0 ? `<h4>Parameters</h4>${table(rows)}` : "") +
      body.join("") +
      `<h4>Answers</h4>${table(answers)}`,
  );
}

/** A schema as text, with a list of its members. */
function renderSchema(value: JsonValue | undefined): string {
  if (!isObject(value)) return "";
  const { $ref, description, properties, items, required } = value;
  const { additionalProperties, contentSchema } = value;
  const needed = Array.isArray(required) ? required : [];
  const members = entries(properties).map(([name, schema]) => {
    const mark = needed.includes(name) ? "" : " (optional)";
    return `<li>${code(name)}${mark}: ${renderSchema(schema)}</li>`;
  });
  const parts = [
    ...(typeof $ref === "string" ? [link(nameIn($ref))] : []),
    escaped(typeof $ref === "string" ? "" : kindOf(value)),
    ...(items === undefined ? [] : [`of ${renderSchema(items)}`]),
    ...(isObject(additionalProperties) ? [`of ${renderSchema(additionalProperties)}`] : []),
    ...(isObject(contentSchema) ? [`of ${renderSchema(contentSchema)}`] : []),
    ...["anyOf", "oneOf"].map((word) => renderChoices(objectsIn(value[word]).map(renderSchema))),
    objectsIn(value.allOf)
      .map(renderSchema)
      .filter((one) => one !== "")
      .join(" and "),
    ...[renderSchema(value.not)].map((inner) => (inner === "" ? "" : `not ${inner}`)),
    ...(typeof description === "string"
      ? [`<span class="lines">${withCode(description)}</span>`]
      : []),
    ...(value[uncheckedMark] === true ? ["(not checked here)"] : []),
  ];
  const list = members.length > 0 ? tag("ul", members.join("")) : "";
  return parts.filter((part) => part !== "").join(" ") + list;
}

/** Short ones in one line, others as a list. Those that say nothing of members are left out. */
function renderChoices(choices: readonly string[]): string {
  const texts = choices.filter((one) => one !== "");
  if (texts.length < 2) return "";
  if (texts.every((one) => !one.includes("<ul>"))) return texts.join(" or ");
  return `one of ${tag("ul", texts.map((one) => tag("li", one)).join(""))}`;
}

/** `integer from 1 to 1000`, `"v1", "v2"` */
function kindOf({
  type,
  enum: choices,
  const: only,
  format,
  minimum,
  maximum,
}: JsonObject): string {
  if (only !== undefined) return JSON.stringify(only);
  if (Array.isArray(choices)) return choices.map((one) => JSON.stringify(one)).join(", ");
  const range = [
    ...(minimum === undefined ? [] : [`from ${minimum}`]),
    ...(maximum === undefined ? [] : [`to ${maximum}`]),
  ];
  return [typeof type === "string" ? type : "", typeof format === "string" ? format : "", ...range]
    .filter((part) => part !== "")
    .join(" ");
}

function member(value: JsonObject, name: string): JsonObject {
  const inner = value[name];
  return isObject(inner) ? inner : {};
}

/** The members that are objects. */
function entries(value: JsonValue | undefined): [string, JsonObject][] {
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, inner]) => (isObject(inner) ? [[name, inner]] : []));
}

function objectsIn(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** The last name of a reference. */
function nameIn(reference: string): string {
  return reference.split("/").at(-1) ?? "";
}

function link(name: string): string {
  return `<a href="#${escaped(name)}">${code(name)}</a>`;
}

function paragraph(value: JsonValue | undefined): string {
  return typeof value === "string" ? tag("p", withCode(value)) : "";
}

function table(rows: readonly string[]): string {
  return `<div class="scroll"><table>${rows.join("")}</table></div>`;
}

function cells(values: readonly string[]): string {
  return tag("tr", values.map((value) => tag("td", value)).join(""));
}

function tag(name: string, content: string): string {
  return `<${name}>${content}</${name}>`;
}

function code(value: string): string {
  return tag("code", escaped(value));
}

/** Text with `code` in backquotes. */
function withCode(value: string): string {
  return escaped(value).replace(/`([^`]+)`/g, "<code>$1</code>");
}

function escaped(value: string): string {
  return value
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
