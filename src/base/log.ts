// One JSON line per event on stderr; stdout belongs to the first-start banner. Prompts, answers and
// credentials are never logged: callers pass ids and figures only, and the redaction below is the
// second fence.

import { type Logger, pino } from "pino";

export type Log = Logger;

/** A logger at `level` (pino's names; `silent` for none). */
export function createLog(level: string): Log {
  return pino(
    {
      level,
      base: null,
      redact: {
        paths: ["*.authorization", '*["x-api-key"]', "*.secret", "*.password"],
        censor: "[redacted]",
      },
    },
    // Lines leave together, a tenth of a second late at most: a write each took a tenth of a plain
    // request. Exits flush.
    pino.destination({ dest: 2, sync: false, minLength: 12_288, periodicFlush: 100 }),
  );
}
