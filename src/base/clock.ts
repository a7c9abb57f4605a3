// Time as the parts of this process see it, so that tests can hold it, and the limits of waiting.

export type Clock = {
  /** Milliseconds since some fixed moment. Never goes back. */
  now(): number;
  /** Calls back once after `ms`, unless the returned function is called first. */
  after(ms: number, callback: () => void): () => void;
};

/** The clock of this machine. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

/** The same, but the process may end while a callback is due. */
export const backgroundClock: Clock = {
  now: systemClock.now,
  after(ms, callback) {
    const timer = setTimeout(callback, ms).unref();
    return () => clearTimeout(timer);
  },
};

/** Calls back each time that `ms` have passed, until the returned function is called. */
export function every(clock: Clock, ms: number, callback: () => void): () => void {
  let cancel = () => {};
  const plan = () => {
    cancel = clock.after(ms, () => {
      plan();
      callback();
    });
  };
  plan();
  return () => cancel();
}

/** Resolves after `ms`, or when `signal` fires. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      cancel();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.after(ms, end);
    signal?.addEventListener("abort", end, { once: true });
  });
}

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
