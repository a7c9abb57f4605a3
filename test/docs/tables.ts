// The tables of the documents that come from the code. `npm run docs` writes them;
// `tables.test.ts` compares.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type DescEnum, getOption } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { callers, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  AccountRoleSchema,
  AdminScopeSchema,
  OperatorRoleSchema,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { errorCatalog } from "../../src/base/errors.ts";
import { logCodes } from "../../src/base/log.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { errorTable } from "../../src/http/error-table.ts";
import { type Definition, definitions } from "../../src/metrics/metrics.ts";
import { readDocument, root } from "./documents.ts";

/** The generated tables, by document and name. */
const tables: Readonly<Record<string, Readonly<Record<string, () => string>>>> = {
  "docs/customers.md": { reasons: reasonsTable, methods: methodsTable },
  "docs/watching.md": { metrics: metricsTable, "log codes": logCodesTable },
};

/** The documents with generated tables. */
export const tablesDocuments = Object.keys(tables);

/** The text of a document with its generated tables replaced by those of the code. */
export function refreshTables(document: string, text: string): string {
  let fresh = text;
  for (const [name, render] of Object.entries(tables[document] ?? {})) {
    const table = render();
    const block = new RegExp(`(<!-- table: ${name} -->\n)[^]*?(<!-- end -->)`);
    if (!block.test(fresh)) throw new Error(`${document} lacks the table ${name}`);
    fresh = fresh.replace(block, (_, begin: string, end: string) => `${begin}\n${table}\n\n${end}`);
  }
  return fresh;
}

function reasonsTable(): string {
  const answers = new Map(Object.entries(errorTable));
  const rows = Object.entries(errorCatalog).map(([name, { rpc, message }]) => {
    const answer = answers.get(name);
    if (!answer) throw new Error(`${name} has no HTTP answer`);
    const { status, native, chat } = answer;
    const chatStatus = "chatStatus" in answer ? ` (chat ${answer.chatStatus})` : "";
    return [
      `\`${name}\``,
      `${status}${chatStatus}`,
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
  const rows = Object.values(serviceTypes).flatMap((service) =>
    service.methods.map((method) => {
      const { key, accountReader, admin, person, operator, anyone } = getOption(method, callers);
      return [
        `${service.name}.${method.name}`,
        key ? "yes" : accountReader ? "account reader" : "",
        nameOf(AccountRoleSchema, person),
        nameOf(OperatorRoleSchema, operator),
        nameOf(AdminScopeSchema, admin),
        [anyone && "for everybody", getOption(method, strong) && "confirm"]
          .filter((note) => note !== false)
          .join(", "),
      ];
    }),
  );
  const head = ["method", "API key", "person, from", "operator, from", "admin token", ""];
  return renderTable(head, rows);
}

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

function logCodesTable(): string {
  const rows = Object.entries(logCodes).map(([code, advice]) => [`\`${code}\``, advice]);
  return renderTable(["code", "what to do"], rows);
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
