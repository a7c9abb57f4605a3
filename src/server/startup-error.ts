// The message of a failed start, in one line for the operator.

import { parseDatabaseUrl } from "../config/database-url.ts";
import type { Config } from "../config/environment.ts";
import { isUnreachable } from "../postgres/postgres.ts";

const unwritableCodes = ["EACCES", "EROFS", "EPERM", "ENOSPC", "ENOTDIR"];

/** Describes the cause, and the remedy if it is known. Contains no password. */
export function startupErrorMessage(error: unknown, config: Config): string {
  const { code, message, port, path } = detailsOf(error);
  if (code === "EADDRINUSE") return portInUse("PORT", port);
  // grpc-js gives the code in the message only.
  if (message.includes("EADDRINUSE")) return portInUse("GRPC_PORT", config.grpcPort);
  if (unwritableCodes.includes(code)) {
    const detail = path ? `${code}, ${path}` : code;
    return `cannot start: the data directory ${config.dataDir} is not writable (${detail}); set DATA_DIR`;
  }
  if (isUnreachable(error) && config.databaseUrl !== undefined) {
    const host = parseDatabaseUrl(config.databaseUrl)
      .servers.map(({ name }) => name)
      .join(", ");
    return `cannot start: the database at ${host} is not reachable (${code || message}); check DATABASE_URL`;
  }
  return `cannot start: ${message}`;
}

function portInUse(variable: string, port: number | undefined): string {
  return `cannot start: port ${port} is in use; stop the process that uses it, or set ${variable}`;
}

function detailsOf(error: unknown): {
  code: string;
  message: string;
  port: number | undefined;
  path: string | undefined;
} {
  const members: Map<string, unknown> = new Map(
    Object.entries(error instanceof Error ? error : {}),
  );
  const [code, port, path] = [members.get("code"), members.get("port"), members.get("path")];
  return {
    code: typeof code === "string" ? code : "",
    message: error instanceof Error ? error.message : String(error),
    port: typeof port === "number" ? port : undefined,
    path: typeof path === "string" ? path : undefined,
  };
}
