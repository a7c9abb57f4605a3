// Writes one JSON line for each event to stderr. (The banner of the first start goes to stdout.)
// Prompts, answers and credentials are never logged: callers pass ids and numbers only, and the
// redaction below is a second safeguard.

import { type Logger, pino } from "pino";

export type Log = Logger;

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
    // Lines are written together, at most 0.1 s late: writing each line by itself took a tenth of
    // the time of a plain request. Exits flush.
    pino.destination({
      dest: 2,
      sync: false,
      periodicFlush: 100,
      // Workers write to one pipe. A pipe takes up to 4,096 bytes at once (PIPE_BUF); longer writes
      // of several processes may mix.
      ...(isAlone ? { minLength: 12_288 } : { minLength: 3_072, maxWrite: 4_096 }),
    }),
  );
}
