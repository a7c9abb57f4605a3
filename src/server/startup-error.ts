// The message of a failed start, in one line for the operator.

import { DatabaseError } from "pg";
import { ApiError } from "../base/errors.ts";
import { type TlsProblem, tlsProblemOf } from "../base/tls-problem.ts";
import type { Config } from "../config/environment.ts";
import { isUnreachable } from "../postgres/postgres.ts";
import { UnusableDatabase } from "../postgres/preflight.ts";
import { DatabaseAway, databaseOf } from "../postgres/wait-for-database.ts";

const unwritableCodes = ["EACCES", "EROFS", "EPERM", "ENOSPC", "ENOTDIR"];

/** Describes the cause, and the remedy if it is known. Contains no password. */
export function startupErrorMessage(error: unknown, config: Config): string {
  // What a caller of a service would not see.
  if (error instanceof ApiError && error.cause) return startupErrorMessage(error.cause, config);
  if (error instanceof DatabaseAway) return databaseAway(error, config);
  const { code, message, port, path } = detailsOf(error);
  if (code === "EADDRINUSE")
    return portInUse(port === config.metrics?.port ? "METRICS_PORT" : "PORT", port);
  // grpc-js gives the code in the message only.
  if (message.includes("EADDRINUSE")) return portInUse("GRPC_PORT", config.grpcPort);
  if (unwritableCodes.includes(code)) {
    const detail = path ? `${code}, ${path}` : code;
    return `cannot start: the data directory ${config.dataDir} is not writable (${detail}); set DATA_DIR`;
  }
  const problem =
    config.databaseUrl === undefined ? undefined : databaseProblem(error, config.databaseUrl);
  return `cannot start: ${problem ?? message}`;
}

function databaseAway({ database, cause }: DatabaseAway, config: Config): string {
  const waited = config.databaseWaitMs > 0 ? ` after ${config.databaseWaitMs / 1000} s` : "";
  const advice =
    config.databaseUrl === undefined
      ? `see ${config.dataDir}/postgres.log`
      : `check ${database === databaseOf(config.databaseUrl) ? "" : "MIGRATION_"}DATABASE_URL`;
  return `cannot start: ${database} is not reachable${waited} (${reasonOf(cause)}); ${advice}`;
}

function reasonOf(error: unknown): string {
  if (error instanceof ApiError && error.cause) return reasonOf(error.cause);
  const { code, message } = detailsOf(error);
  return error instanceof DatabaseError || code === "" ? message : code;
}

function databaseProblem(error: unknown, url: string): string | undefined {
  const database = databaseOf(url);
  const { code, message } = detailsOf(error);
  if (error instanceof UnusableDatabase) return `${database}: ${message}`;
  const tls = tlsProblemOf(error);
  if (tls) return `${database} ${tls.text}${tlsAdvice[tls.kind]} (${code || "no TLS"})`;
  if (isUnreachable(error))
    return `${database} is not reachable (${reasonOf(error)}); check DATABASE_URL`;
  if (error instanceof DatabaseError) {
    const describe = /no encryption|SSL off/.test(message) ? wantsTls : serverErrors[code];
    return describe && `${database} ${describe(message)}`;
  }
  return undefined;
}

const wantsTls = (message: string) =>
  `refuses connections without TLS (${message}); add sslmode=require or sslmode=verify-full to ` +
  "DATABASE_URL";

const tlsAdvice: Readonly<Record<TlsProblem["kind"], string>> = {
  authority: ": name the file of the authority by sslrootcert in DATABASE_URL",
  ended: ": renew it there",
  "not yet": ": look at the clocks",
  names: ": connect by one of them, or use sslmode=verify-ca",
  refused: ": name its files by sslcert and sslkey in DATABASE_URL",
  none: ": turn it on there, or take sslmode out of DATABASE_URL",
};

/** Errors of a server at the start, by SQLSTATE. */
const serverErrors: Readonly<Record<string, (message: string) => string>> = {
  "28P01": (message) => `refuses user or password (${message}); check DATABASE_URL`,
  "28000": (message) => `refuses this user (${message}); check DATABASE_URL and pg_hba.conf`,
  "3D000": (message) => `lacks it (${message}); create it, or check DATABASE_URL`,
  "42501": (message) =>
    `does not give the role of DATABASE_URL the rights it needs (${message}); grant them`,
};

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
