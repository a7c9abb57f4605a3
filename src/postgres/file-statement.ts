// Named statements, read from `.sql` files.

import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { expandCategories } from "../base/token-categories.ts";
import { expandSums } from "../base/usage-sums.ts";

/** One SQL statement. The server's statistics list it under the same name. */
export type Statement = {
  readonly name: string;
  readonly text: string;
  /** Query timeout. Default: 30 s. */
  readonly timeoutMs?: number;
};

/**
 * Reads `sql/<file>.sql` beside the caller's module, and expands its token categories and sums. The
 * name of the statement is `<folder>/<file>`. Call once, when the module loads.
 */
export function statement(moduleUrl: string, file: string): Statement {
  const folder = dirname(fileURLToPath(moduleUrl));
  const text = readFileSync(`${folder}/sql/${file}.sql`, "utf8");
  return {
    name: `${basename(folder)}/${file}`,
    text: expandSums(expandCategories(text)),
  };
}
