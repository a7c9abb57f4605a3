// What `npm start` runs, for those who start a gateway with arguments of their own.

import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };

const words = packageFile.scripts.start.split(" ");

/** Node's own flags. */
export const nodeFlags: readonly string[] = words.filter((word) => word.startsWith("--"));

/** Path of the program. */
export const main = join(import.meta.dirname, "../..", words.at(-1) ?? "");
