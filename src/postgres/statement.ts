// Named statements, read from `.sql` files.

import { existsSync, readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { expandCategories } from "../base/token-categories.ts";

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
 * is one, and expands its token categories. The name of
 * the statement is `<folder>/<file>`. Call once, when the module loads.
 */
export function statement(moduleUrl: string, file: string): Statement {
  const folder = dirname(fileURLToPath(moduleUrl));
  const read = (path: string) =>
    expandCategories(readFileSync(`${folder}/sql/${path}.sql`, "utf8"));
  return {
    name: `${basename(folder)}/${file}`,
    text: read(file),
    ...(existsSync(`${folder}/sql/distributed/${file}.sql`) && {
      distributed: read(`distributed/${file}`),
    }),
  };
}
