// Time as the parts of this process see it, so that tests can hold it.

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
