// The interceptor in front of every service method, for all listeners: authentication, permission,
// validation of the request, the audit log, and translation of errors.

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
 * The same service for callers that are not authenticated yet. Each call is authenticated, checked
 * against the `callers` option of the method, and its request validated. Calls fail with `ApiError`
 * only. Unexpected errors and audited calls are logged.
 */
export function intercept<S extends DescService>(
  service: S,
  implementation: Implementation<S, AuthenticatedCall>,
  authenticate: Authenticate,
  log: Log,
): Implementation<S> {
  return implement<Implementation<S>>(service, (desc) => {
    const method = boundMethod<S, AuthenticatedCall>(implementation, desc);
    const allowed = hasOption(desc, callers)
      ? getOption(desc, callers)
      : { key: false, admin: false };

    const admit = async (request: Message, call: Call): Promise<AuthenticatedCall> => {
      const caller = call.caller ?? (await authenticate(call.requestHeader));
      if (!allowed[caller.kind]) throw new ApiError("not_permitted");
      checkRequest(desc.input, request);
      if (call.signal.aborted) throw abortError(call.signal);
      const { signal, requestHeader, onTaken } = call;
      return { signal, requestHeader, caller, onTaken };
    };
    const fail = (thrown: unknown, { signal }: Call): never => {
      // After an abort, libraries throw errors of their own, which rarely name a deadline.
      const isSpecific = thrown instanceof ApiError && thrown.reason !== "cancelled";
      const error = signal.aborted && !isSpecific ? abortError(signal) : toApiError(thrown);
      if (error.reason === "internal")
        log.error({ method: desc.name, err: error.cause ?? error }, "call failed");
      throw error;
    };

    if (method.kind === "unary") {
      const admitAndRun = (request: Message, call: Call) =>
        admit(request, call).then((authenticated) => method.run(request, authenticated));
      const run = getOption(desc, audited)
        ? withAuditLog(method.desc, admitAndRun, log)
        : admitAndRun;
      return (request: Message, call: Call) =>
        untilAborted(call.signal, run(request, call)).catch((error) => fail(error, call));
    }
    return async function* (request: Message, call: Call) {
      try {
        yield* method.run(request, await admit(request, call));
      } catch (error) {
        fail(error, call);
      }
    };
  });
}

/**
 * Settles as `work` does, or rejects as soon as the signal fires: an implementation that ignores
 * the signal must not make its caller wait.
 */
function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(abortError(signal));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
