// The tables of docs/customers.md that come from the code. `npm run docs` writes them;
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
import { serviceTypes } from "../../src/contract/contract.ts";
import { errorTable } from "../../src/http/error-table.ts";
import { readDocument, root } from "./documents.ts";

/** The document with the generated tables. */
export const tablesDocument = "docs/customers.md";

/** `text` with its generated tables replaced by those of the code. */
export function refreshTables(text: string): string {
  let fresh = text;
  for (const [name, table] of Object.entries({
    reasons: reasonsTable(),
    methods: methodsTable(),
  })) {
    const block = new RegExp(`(<!-- table: ${name} -->\n)[^]*?(<!-- end -->)`);
    if (!block.test(fresh)) throw new Error(`${tablesDocument} lacks the table ${name}`);
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

/** The name of an enum value in small letters. Empty for the value 0. */
function nameOf(schema: DescEnum, value: number): string {
  return value === 0 ? "" : (schema.value[value]?.localName.toLowerCase() ?? "");
}

function renderTable(head: string[], rows: string[][]): string {
  const lines = [head, head.map(() => "---"), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

if (import.meta.main) {
  writeFileSync(join(root, tablesDocument), refreshTables(readDocument(tablesDocument)));
}
