// Named statements, read from `.sql` files.

import { existsSync, readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { expandChargeLine } from "../base/charge-line.ts";
import { expandCategories } from "../base/token-categories.ts";
import { expandSums } from "../base/usage-sums.ts";

/** One SQL statement. The server's statistics list it under the same name. */
export type Statement = {
  readonly name: string;
  readonly text: string;
  /** The text for a distributed engine. Absent: the same one. */
  readonly distributed?: string;
  /** Query timeout. Default: 30 s. */
  readonly timeoutMs?: number;
};

/**
 * Reads `sql/<file>.sql` beside the caller's module, and `sql/distributed/<file>.sql` where there
 * is one, and expands its token categories, sums and lines of charges. The name of the statement is
 * `<folder>/<file>`. Call once, when the module loads.
 */
export function statement(moduleUrl: string, file: string): Statement {
  const folder = dirname(fileURLToPath(moduleUrl));
  const read = (path: string) =>
    expandChargeLine(
      expandSums(expandCategories(readFileSync(`${folder}/sql/${path}.sql`, "utf8"))),
    );
  const text = read(file);
  const isOverridden = existsSync(`${folder}/sql/distributed/${file}.sql`);
  const distributed = isOverridden ? read(`distributed/${file}`) : text;
  return {
    name: `${basename(folder)}/${file}`,
    text: expandAccounts(text, false),
    distributed: expandAccounts(distributed, true),
  };
}

/**
 * Expands `of_accounts(column)` in SQL, where `$1` has the accounts of a batch: on a distributed
 * engine ` and column = any($1)`, which tells it the shards that have to answer. PostgreSQL does
 * not need it, and would compare each row with every account.
 */
function expandAccounts(sql: string, isDistributed: boolean): string {
  return sql.replace(/\s*\bof_accounts\(([\w.]+)\)/g, (_, column: string) =>
    isDistributed ? ` and ${column} = any($1::text[])` : "",
  );
}
