// The tables of the documents that come from the code. `npm run docs` writes them;
// `tables.test.ts` compares.

import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  getOption,
} from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { comments } from "../../gen/comments.ts";
import { LimitMetricSchema } from "../../gen/gateway/common/v1/error_pb.ts";
import { callers, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  AccountRoleSchema,
  AdminScopeSchema,
  ManagementScopeSchema,
  OperatorRoleSchema,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { errorCatalog, isErrorReason } from "../../src/base/errors.ts";
import { blocksOf, type Tool, tools } from "../../src/console/web/tools.ts";
import tried from "../../src/console/web/tools-tried.json" with { type: "json" };
import { scopesFor } from "../../src/contract/callers.ts";
import { allServices } from "../../src/contract/contract.ts";
import { count, type Limits, limitsOf, rangeText, secondsOf } from "../../src/contract/limits.ts";
import { rowOf } from "../../src/http/error-table.ts";
import { type Definition, definitions } from "../../src/metrics/metrics.ts";
import { anchorOf, readDocument, root } from "./documents.ts";

/** The generated tables, by document and name. */
const tables: Readonly<Record<string, Readonly<Record<string, (document: string) => string>>>> = {
  "README.md": { tools: toolsTable },
  "docs/tools.md": { tools: toolsTable, samples: toolSamples },
  "docs/customers/errors.md": { reasons: reasonsTable },
  "docs/customers/methods.md": { methods: methodsTable },
  "docs/customers/field-limits.md": { limits: limitsTable },
  "docs/customers/limits-and-budgets.md": { "names of limits": limitNamesTable },
  "docs/operating/watching.md": { metrics: metricsTable },
  "docs/operating/log-codes.md": { "log codes": logCodesTable },
};

/** The documents with generated tables. */
export const tablesDocuments = Object.keys(tables);

/** The text of a document with its generated tables replaced by those of the code. */
export function refreshTables(document: string, text: string): string {
  let fresh = text;
  for (const [name, render] of Object.entries(tables[document] ?? {})) {
    const table = render(document);
    const block = new RegExp(`(<!-- table: ${name} -->\n)[^]*?(<!-- end -->)`);
    if (!block.test(fresh)) throw new Error(`${document} lacks the table ${name}`);
    fresh = fresh.replace(block, (_, begin: string, end: string) => `${begin}\n${table}\n\n${end}`);
  }
  return fresh;
}

function reasonsTable(): string {
  const rows = Object.keys(errorCatalog)
    .filter(isErrorReason)
    .map((name) => {
      const { rpc, message } = errorCatalog[name];
      const { status, chatStatus, native, chat } = rowOf(name);
      return [
        `\`${name}\``,
        chatStatus === undefined ? String(status) : `${status} (chat ${chatStatus})`,
        native[0],
        chat[1] ?? "null",
        Code[rpc],
        message,
      ];
    });
  return renderTable(
    ["reason", "HTTP", "native `error.type`", "chat `error.code`", "gRPC", "message"],
    rows,
  );
}

function methodsTable(): string {
  const rows = allServices.flatMap((service) =>
    service.methods.map((method) => {
      const {
        key,
        accountReader,
        admin,
        person,
        operatorRole: operator,
        anyone,
      } = getOption(method, callers);
      return [
        `${service.name}.${method.name}`,
        key ? "yes" : accountReader ? "account reader" : "",
        scopesFor(getOption(method, callers))
          .map((scope) => nameOf(ManagementScopeSchema, scope))
          .join(", "),
        nameOf(AccountRoleSchema, person),
        nameOf(OperatorRoleSchema, operator),
        nameOf(AdminScopeSchema, admin),
        [anyone && "for everybody", getOption(method, strong) && "confirm"]
          .filter((note) => note !== false)
          .join(", "),
      ];
    }),
  );
  const head = [
    "method",
    "API key",
    "management key",
    "person, from",
    "operator, from",
    "admin token",
    "",
  ];
  return renderTable(head, rows);
}

/** The limits of the fields of requests that others than operators send. */
function limitsTable(): string {
  const seen = new Set<DescMessage>();
  const fieldsIn = (type: DescMessage): DescField[] => {
    if (seen.has(type) || type.typeName.startsWith("google.protobuf.")) return [];
    seen.add(type);
    return type.fields.flatMap((field) => [
      field,
      ...(field.message ? fieldsIn(field.message) : []),
    ]);
  };
  const methods = allServices.flatMap((service) => service.methods);
  const rows = methods.filter(isForCustomers).flatMap(({ input }) =>
    fieldsIn(input).flatMap((field) => {
      const limits = limitsOf(field);
      const words = limits ? wordsOf(limits) : [];
      if (words.length === 0) return [];
      return [[`\`${field.parent.name}.${field.name}\``, words.join("; "), defaultOf(field)]];
    }),
  );
  return renderTable(["field", "limits", "otherwise"], rows);
}

function isForCustomers(method: DescMethod): boolean {
  const { key, accountReader, management, person, anyone } = getOption(method, callers);
  return key || accountReader || management.length > 0 || person !== 0 || anyone;
}

/** What the comment of a field says of its absence. */
function defaultOf({ parent, name }: DescField): string {
  const sentences = comments[`${parent.typeName}.${name}`]?.split(/(?<=\.) /) ?? [];
  return sentences.filter((one) => /^(Absent|Empty|0|UNSPECIFIED): /.test(one)).join(" ");
}

function limitNamesTable(): string {
  const rows = LimitMetricSchema.values
    .filter(({ number }) => number !== 0)
    .map(({ name, localName }) => [
      `\`${localName.toLowerCase()}\``,
      comments[`${LimitMetricSchema.typeName}.${name}`] ?? "",
    ]);
  return renderTable(["name", "what it bounds"], rows);
}

/** The limits of a field beside `required`, each in words. */
function wordsOf(limits: Limits): string[] {
  const { lengthMin, lengthMax, bytesMax, form, least, most, itemsMin, itemsMax } = limits;
  const bounds = (min: number | undefined, max: number | undefined, thing: Thing) => {
    if (max === undefined) return min === undefined ? [] : [`at least ${count(min, thing)}`];
    return [min === undefined ? `at most ${count(max, thing)}` : `${min} to ${count(max, thing)}`];
  };
  const isDuration = typeof (least ?? most) === "bigint" && limits.unit === "nanoseconds";
  const range = isDuration
    ? `${rangeText(secondsOf(least), secondsOf(most))} seconds`
    : rangeText(least, most);
  const inner = (name: string, of: Limits | undefined) =>
    of ? wordsOf(of).map((words) => `each ${name} ${words}`) : [];
  return [
    ...bounds(itemsMin, itemsMax, "entry"),
    ...(limits.isUnique ? ["each once"] : []),
    ...bounds(lengthMin, lengthMax, "character"),
    ...bounds(undefined, bytesMax, "byte"),
    ...(form === undefined ? [] : [form]),
    ...(least === undefined && most === undefined ? [] : [range.replace(/^is /, "")]),
    ...(limits.isFuture ? ["in the future"] : []),
    ...inner("entry", limits.items),
    ...inner("key", limits.keys),
    ...inner("value", limits.values),
  ];
}

type Thing = Parameters<typeof count>[1];

function metricsTable(): string {
  const all: Readonly<Record<string, Definition>> = definitions;
  const rows = Object.entries(all).map(([name, { kind, labels, help }]) => [
    `\`${name}\``,
    kind,
    labels.map((label) => `\`${label}\``).join(", "),
    help,
  ]);
  return renderTable(["metric", "type", "labels", "meaning"], rows);
}

/** The codes of log lines, as they are declared beside their writers, with their comments. */
export function readLogCodes(): [code: string, advice: string][] {
  const declared = globSync("src/**/*.ts", { cwd: root }).flatMap((path) => {
    const text = readFileSync(join(root, path), "utf8");
    const blocks = text.matchAll(/interface LogCodes \{\n([\s\S]*?)\n {2}\}\n/g);
    return [...blocks].flatMap(([, block = ""]) => [
      ...block.matchAll(/\/\*\*([\s\S]*?)\*\/\n {4}(\w+): true;/g),
    ]);
  });
  return declared
    .map(([, comment = "", code = ""]): [string, string] => [
      code,
      comment.replace(/\s+(\* )?/g, " ").trim(),
    ])
    .sort(([one], [other]) => (one < other ? -1 : 1));
}

function logCodesTable(): string {
  const rows = readLogCodes().map(([code, advice]) => [`\`${code}\``, advice]);
  return renderTable(["code", "what to do"], rows);
}

/** A line a tool: its format, where its address goes, and the version that was tried. */
function toolsTable(document: string): string {
  const page = document === "README.md" ? "docs/tools.md" : "";
  const rows = tools.map((tool) => [
    `[${tool.title}](${page}#${anchorOf(tool.title)})`,
    tool.format,
    placeOfAddress(tool),
    triedOf(tool)?.version ?? (tool.untried ? `not tried: ${tool.untried}` : "not tried yet"),
  ]);
  return renderTable(["tool", "format", "the address goes into", "tried with"], rows);
}

function placeOfAddress({ env = {}, settings, plain }: Tool): string {
  const names = Object.keys(env).filter((name) => env[name]?.includes("{origin}"));
  if (names.length > 0) return names.map((name) => `\`${name}\``).join(", ");
  if (settings) return `\`${settings.path}\``;
  return plain.file || plain.run ? "the code" : "its settings";
}

/** What `test/tools` found, and wrote. */
type Tried = {
  readonly version: string;
  readonly on: string;
  readonly passed: string;
  readonly prints: string;
  readonly wrongKey: number;
  readonly noCredits: number;
};

function triedOf({ id }: Tool): Tried | undefined {
  const all: Readonly<Record<string, Tried>> = tried;
  return all[id];
}

const documented = {
  origin: "http://127.0.0.1:8080",
  grpc: "127.0.0.1:50051",
  key: "$GATEWAY_KEY",
};

/** The languages of the samples, by the ends of their files. */
const languages: Readonly<Record<string, string>> = {
  go: "go",
  java: "java",
  json: "json",
  mjs: "js",
  py: "python",
  rs: "rust",
  toml: "toml",
  xml: "xml",
  yaml: "yaml",
};

/** What to copy for each tool. */
function toolSamples(): string {
  return tools.map(sectionOf).join("\n\n");
}

function sectionOf(tool: Tool): string {
  const fill = (text: string) => text.replaceAll("{origin}", documented.origin);
  const was = triedOf(tool);
  const facts = was
    ? `Format: ${tool.format}. Tried with ${was.version} on ${was.on}: ${was.passed}.`
    : `Format: ${tool.format}. Not tried by us${tool.untried ? `: it ${tool.untried}` : " yet"}.`;
  const repeats = was && tool.format !== "gRPC" && was.wrongKey + was.noCredits > 2;
  const refused = repeats
    ? `With a wrong key it ends after ${was.wrongKey} requests, without credits after ${was.noCredits}.`
    : "";
  const { install: _, settings: __, env: ___, ...streaming } = tool;
  return [
    `### ${tool.title}`,
    wrapped([facts, refused, fill(tool.advice ?? "")].filter((text) => text !== "").join(" ")),
    ...blocksOf(tool, documented).map(renderBlock),
    ...(was && was.prints !== "" ? [`Prints:\n\n\`\`\`\n${wrapped(was.prints)}\n\`\`\``] : []),
    ...(tool.stream
      ? ["As a stream:", ...blocksOf(streaming, documented, true).map(renderBlock)]
      : []),
  ].join("\n\n");
}

/** A paragraph in lines of at most 100 columns. */
function wrapped(text: string): string {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const line = lines.at(-1);
    if (line !== undefined && [...line].length + 1 + [...word].length <= 100)
      lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines.join("\n");
}

function renderBlock({ path, text }: { path?: string; text: string }): string {
  const language = path === undefined ? "sh" : (languages[path.split(".").at(-1) ?? ""] ?? "");
  const title = path === undefined ? "" : `**${path}**:\n\n`;
  // A shell does not read files: there the key itself has to stand.
  const shown = path === undefined ? text : text.replaceAll(documented.key, "sk-gw2-…");
  return `${title}\`\`\`${language}\n${shown.trimEnd()}\n\`\`\``;
}

/** The name of an enum value in small letters. Empty for the value 0. */
function nameOf(schema: DescEnum, value: number): string {
  return value === 0 ? "" : (schema.value[value]?.localName.toLowerCase() ?? "");
}

function renderTable(head: string[], rows: string[][]): string {
  const lines = [head, head.map(() => "---"), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

if (import.meta.main) {
  for (const document of tablesDocuments)
    writeFileSync(join(root, document), refreshTables(document, readDocument(document)));
}
