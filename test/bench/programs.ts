// Programs of others that may be installed here.

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

/** Path of a program. Undefined: it is not on the PATH. */
export function findProgram(name: string): string | undefined {
  return (process.env.PATH ?? "")
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find(existsSync);
}
