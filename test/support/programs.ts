// Programs of others that may be installed here.

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const usualFolders = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/** Path of a program. Undefined: none is installed. */
export function findProgram(name: string): string | undefined {
  return [...(process.env.PATH ?? "").split(delimiter), ...usualFolders]
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** Path of a Redis server or of its twin. Undefined: none is installed. */
export const redisBinary = findProgram("redis-server") ?? findProgram("valkey-server");
