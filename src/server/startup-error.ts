// Why a gateway did not start, in one line for whoever started it.

import type { Config } from "../config/environment.ts";
import { isUnreachable } from "../postgres/postgres.ts";

/** Names what to do where that is known. Holds no password. */
export function startupErrorMessage(error: unknown, config: Config): string {
  const { code, message, port, path } = membersOf(error);
  if (code === "EADDRINUSE") return explainTakenPort("PORT", port);
  // grpc-js tells it in words only.
  if (message.includes("EADDRINUSE")) return explainTakenPort("GRPC_PORT", config.grpcPort);
  if (
    code === "EACCES" ||
    code === "EROFS" ||
    code === "EPERM" ||
    code === "ENOSPC" ||
    code === "ENOTDIR"
  ) {
    return `cannot start: the data directory ${config.dataDir} is not writable (${code}${path ? `, ${path}` : ""}); set DATA_DIR`;
  }
  if (isUnreachable(error) && config.databaseUrl !== undefined) {
    const { host } = new URL(config.databaseUrl);
    return `cannot start: the database at ${host} is not reachable (${code || message}); see DATABASE_URL`;
  }
  return `cannot start: ${message}`;
}

function explainTakenPort(variable: string, port: number | undefined): string {
  return `cannot start: port ${port} is taken; end what listens there, or set ${variable}`;
}

function membersOf(error: unknown): {
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
