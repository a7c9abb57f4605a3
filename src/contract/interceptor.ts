// What stands in front of every method of every service, whichever listener calls it: identity, the
// rules that the protos declare, and the last word on errors.

import { type DescService, getOption, hasOption, type Message } from "@bufbuild/protobuf";
import { audited, callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { withAuditLog } from "./audit-log.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  abortError,
  boundMethod,
  type Call,
  type Implementation,
  implement,
} from "./contract.ts";
import { checkRequest } from "./validate.ts";

/**
 * The same service for unidentified callers: authenticates each call, admits whom the method's
 * `callers` option names, refuses a request that breaks what the protos declare, and lets nothing
 * but a `ApiError` out. What was not foreseen is logged here, and what the operator changes.
 */
export function intercept<S extends DescService>(
  service: S,
  implementation: Implementation<S, AuthenticatedCall>,
  authenticate: Authenticate,
  log: Log,
): Implementation<S> {
  return implement<Implementation<S>>(service, (desc) => {
    const method = boundMethod<S, AuthenticatedCall>(implementation, desc);
    const admits = hasOption(desc, callers)
      ? getOption(desc, callers)
      : { key: false, admin: false };

    const admit = async (request: Message, call: Call): Promise<AuthenticatedCall> => {
      const caller = await authenticate(call.requestHeader);
      if (!admits[caller.kind]) throw new ApiError("not_permitted");
      checkRequest(desc.input, request);
      if (call.signal.aborted) throw abortError(call.signal);
      return { signal: call.signal, requestHeader: call.requestHeader, caller };
    };
    const refuse = (error: unknown, { signal }: Call): never => {
      // What an implementation throws when its signal fires is up to the libraries it uses, and few
      // of them know of deadlines.
      const saysMore = error instanceof ApiError && error.reason !== "cancelled";
      const apiError = signal.aborted && !saysMore ? abortError(signal) : toApiError(error);
      if (apiError.reason === "internal")
        log.error({ method: desc.name, err: apiError.cause ?? apiError }, "call failed");
      throw apiError;
    };

    if (method.kind === "unary") {
      const admitAndRun = (request: Message, call: Call) =>
        admit(request, call).then((identified) => method.run(request, identified));
      const run = getOption(desc, audited)
        ? withAuditLog(method.desc, admitAndRun, log)
        : admitAndRun;
      return (request: Message, call: Call) =>
        untilAborted(call.signal, run(request, call)).catch((error) => refuse(error, call));
    }
    return (request: Message, call: Call) =>
      openLater(
        async () => method.run(request, await admit(request, call))[Symbol.asyncIterator](),
        (error) => refuse(error, call),
      );
  });
}

/**
 * `work`, or the error of the abort once the signal fires: an implementation that ignores the
 * signal must not keep its caller.
 */
function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(abortError(signal));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/**
 * An iterable that opens its source at the first read, and from then on adds nothing but `refuse`
 * to the source's own promises.
 */
function openLater(
  open: () => Promise<AsyncIterator<Message>>,
  refuse: (error: unknown) => never,
): AsyncIterable<Message> {
  let opened: Promise<AsyncIterator<Message>> | undefined;
  let source: AsyncIterator<Message> | undefined;
  return {
    [Symbol.asyncIterator]: () => ({
      next() {
        if (source) return source.next().catch(refuse);
        opened ??= open();
        return opened
          .then((iterator) => {
            source = iterator;
            return iterator.next();
          })
          .catch(refuse);
      },
      async return() {
        // Nothing is opened after the caller has left.
        opened ??= Promise.resolve(ended);
        const iterator = await opened.catch(() => undefined);
        await iterator?.return?.();
        return { done: true, value: undefined };
      },
    }),
  };
}

const ended: AsyncIterator<Message> = { next: async () => ({ done: true, value: undefined }) };
