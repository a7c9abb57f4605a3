// Named statements, read from `.sql` files.

import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";

/** One SQL statement; `name` is its name in the server's statistics too. */
export type Statement = {
  readonly name: string;
  readonly text: string;
  /** How long its answer is waited for. Absent: as long as a server takes that is well. */
  readonly timeoutMs?: number;
};

/**
 * Reads `sql/<file>.sql` beside the caller's module; the name is `<folder>/<file>`. Call once, when
 * the module loads.
 */
export function statement(moduleUrl: string, file: string): Statement {
  const folder = dirname(fileURLToPath(moduleUrl));
  return {
    name: `${basename(folder)}/${file}`,
    text: readFileSync(`${folder}/sql/${file}.sql`, "utf8"),
  };
}
