// A promise with a time limit.

/**
 * Settles as `work` does. After `ms` milliseconds without a result, it settles as `onTimeout` does
 * instead: with its return value or its exception. `work` itself continues.
 */
export function withTimeout<T, U>(
  work: Promise<T>,
  ms: number,
  onTimeout: () => U,
): Promise<T | U> {
  return new Promise((resolve, reject) => {
    let expiry: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => {
      // After a pause of this process, timers fire before sockets are read: the result may have
      // arrived already.
      expiry = setImmediate(() => resolve(Promise.try(onTimeout)));
    }, ms);
    const stop = () => {
      clearTimeout(timer);
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
