// Other programs that may be installed on this machine.

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const usualFolders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];

/** Path of a program; undefined when it is not installed. */
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

/** Path of a Redis or Valkey server, or REDIS_BINARY; undefined when none is installed. */
export const redisBinary =
  process.env.REDIS_BINARY ?? findProgram("redis-server") ?? findProgram("valkey-server");
