// Writes one JSON line for each event to stderr. (The banner of the first start goes to stdout.)
// Prompts, answers and credentials are never logged: callers pass ids and numbers only, and the
// redaction below is a second safeguard.

import { type Logger, pino } from "pino";
import { LineWriter } from "./stderr.ts";

/** Writes a line with a code, which says what an operator does about it. */
type LogCoded = (fields: LogFields, message: string) => void;
type LogFields = { readonly code: LogCode; readonly [name: string]: unknown };

export type Log = Omit<Logger, "warn" | "error" | "fatal"> & {
  readonly warn: LogCoded;
  readonly error: LogCoded;
  readonly fatal: LogCoded;
};

/**
 * A logger with one of pino's levels. `silent` writes nothing. `worker`: the number of this worker
 * process, which every line then carries.
 */
export function createLog(level: string, worker?: number): Log {
  const isAlone = worker === undefined;
  return pino(
    {
      level,
      base: isAlone ? null : { worker },
      redact: {
        paths: ["*.authorization", '*["x-api-key"]', "*.secret", "*.password"],
        censor: "[redacted]",
      },
    },
    new LineWriter(
      // Workers write to one pipe. A pipe takes up to 4,096 bytes at once (PIPE_BUF); longer writes
      // of several processes may mix.
      isAlone ? { minLength: 12_288 } : { minLength: 3_072, maxWrite: 4_096 },
    ),
  );
}

/**
 * The stable codes of lines of level 40 and above. Each is declared beside its writer, with what an
 * operator does about it as its comment: the table of docs/operating/log-codes.md is generated
 * from these.
 */
// biome-ignore lint/suspicious/noEmptyInterface: declarations of the writers fill it.
export interface LogCodes {}

export type LogCode = keyof LogCodes;
