// Promises of time limits and signals.

import { type Clock, systemClock } from "./clock.ts";

/**
 * Settles as `work` does. After `ms` milliseconds without a result, it settles as `onTimeout` does
 * instead: with its return value or its exception. `work` itself continues.
 */
export function withTimeout<T, U>(
  work: Promise<T>,
  ms: number,
  onTimeout: () => U,
  clock: Clock = systemClock,
): Promise<T | U> {
  return new Promise((resolve, reject) => {
    let expiry: NodeJS.Immediate | undefined;
    const cancelTimer = clock.after(ms, () => {
      // After a pause of this process, timers fire before sockets are read: the result may have
      // arrived already.
      expiry = setImmediate(() => resolve(Promise.try(onTimeout)));
    });
    const stop = () => {
      cancelTimer();
      clearImmediate(expiry);
    };
    work.then(
      (value) => {
        stop();
        resolve(value);
      },
      (error: unknown) => {
        stop();
        reject(error);
      },
    );
  });
}

/** Resolves when `signal` fires, at once if it already has. */
export function aborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) resolve();
  else signal.addEventListener("abort", () => resolve(), { once: true });
  return promise;
}
