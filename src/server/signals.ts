// The signals that end a process.

// npm forwards a Ctrl-C that the terminal already sent to this process. A second signal within this
// time is ignored.
const repeatedSignalMs = 1_000;

/** Calls `stop` at the first SIGTERM or SIGINT, and `abort` at another, a second or more later. */
export function onEndSignals(stop: (signal: string) => void, abort: () => void): void {
  let firstAtMs: number | undefined;
  for (const signal of ["SIGTERM", "SIGINT"] as const)
    process.on(signal, () => {
      if (firstAtMs === undefined) {
        firstAtMs = performance.now();
        stop(signal);
      } else if (performance.now() - firstAtMs > repeatedSignalMs) abort();
    });
}
