// A log whose lines a test reads.

import { pino } from "pino";
import type { Log } from "../../src/base/log.ts";
import type { LogLine } from "./workers.ts";

export function recordLog(): { log: Log; lines: () => readonly LogLine[] } {
  const lines: LogLine[] = [];
  const log = pino(
    { base: null, level: "debug" },
    { write: (line) => lines.push(JSON.parse(line)) },
  );
  return { log, lines: () => lines };
}
