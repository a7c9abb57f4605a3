// Time as the providers see it, so that tests can hold it.

export type Clock = {
  /** Milliseconds since some fixed moment. */
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
