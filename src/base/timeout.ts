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
  const { promise, resolve, reject } = Promise.withResolvers<T | U>();
  let expiry: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    // After a pause of this process, timers fire before sockets are read: the result may have
    // arrived already.
    expiry = setImmediate(() => resolve(Promise.try(onTimeout)));
  }, ms);
  work.then(resolve, reject).finally(() => {
    clearTimeout(timer);
    clearImmediate(expiry);
  });
  return promise;
}
