// The interceptor in front of every service method, for all listeners: authentication, permission,
// the account of the call, validation of the request, the audit, and translation of errors.

import { type DescMethod, getOption, type Message } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { audited, callers, endless, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import { type Clock, every, systemClock } from "../base/clock.ts";
import { ApiError, errorCatalog, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  type Act,
  type AuditSink,
  OperatorLooks,
  streamWithAudit,
  withAudit,
} from "./audit-log.ts";
import {
  checkAllAccounts,
  checkStrong,
  decideAccount,
  isAdmitted,
  isDemoted,
  refusalOf,
  subjectOf,
} from "./callers.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  abortError,
  boundMethod,
  type Call,
  type Caller,
  failureOf,
  type Implementation,
  implement,
  type ManagementCaller,
  type Methods,
  type OnCallerChange,
} from "./contract.ts";
import { checkRequest, refuseUnknownFields } from "./validate.ts";

export type { AuditEvent, AuditSink } from "./audit-log.ts";

export type InterceptorParts = {
  readonly authenticate: Authenticate;
  /** Gets unexpected errors and a line for each audited call. */
  readonly log: Log;
  /** Absent: administrative acts are only logged. */
  readonly audit?: AuditSink | undefined;
  /** Ends the streams of persons and admin tokens. Absent: none changes here. */
  readonly onCallerChange?: OnCallerChange | undefined;
  /** Counts a changing call of a management key. Throws `rate_limited`. Absent: no limit. */
  readonly countChange?: CountChange | undefined;
  readonly clock?: Clock | undefined;
};

export type CountChange = (caller: ManagementCaller) => Promise<void>;

/**
 * The same service for callers that are not authenticated yet. Each call is authenticated, checked
 * against the options of the method, and its request validated. Calls fail with `ApiError` only.
 */
export function intercept<S extends Methods>(
  service: S,
  implementation: Implementation<S, AuthenticatedCall>,
  parts: InterceptorParts,
): Implementation<S> {
  const { log, audit } = parts;
  const looks = audit && new OperatorLooks(audit, log);
  return implement<Implementation<S>>(service, (desc) => {
    const method = boundMethod<S, AuthenticatedCall>(implementation, desc);
    const admit = admission(desc, parts);
    const isEndless = getOption(desc, endless);
    const fail = (thrown: unknown, call: Call): never => {
      throw failureOf(thrown, desc, call, log);
    };

    if (method.kind === "unary") {
      const { desc: unary, run } = method;
      const admitAndRun = async (request: Message, call: Call) => {
        const admitted = await admit(request, call);
        return looks && admitted.caller.kind === "person"
          ? runAndRecord(request, admitted, looks)
          : run(request, admitted);
      };
      const runAndRecord = async (request: Message, call: AuthenticatedCall, to: OperatorLooks) => {
        const answer = await run(request, call);
        await to.record(unary, call, answer);
        return answer;
      };
      const work = getOption(desc, audited)
        ? withAudit(unary, { admit, run, log, sink: audit })
        : admitAndRun;
      return (request: Message, call: Call) =>
        untilAborted(call.signal, work(request, call)).catch((error) => fail(error, call));
    }
    const { desc: streaming, run: open } = method;
    const admitAndOpen = async function* (request: Message, call: Call, act?: Act) {
      try {
        const admitting = admit(request, call, act?.identified);
        const admitted = admitting instanceof Promise ? await admitting : admitting;
        if (act) act.accountId = admitted.accountId;
        else if (admitted.caller.kind === "person") await looks?.record(method.desc, admitted);
        const follow = followRights(admitted.caller, isEndless, parts);
        if (follow) {
          const recheck = async () => {
            const { caller } = await admit(request, { ...call, caller: undefined });
            // The method has decided by the role of before what the stream shows.
            if (isDemoted(admitted.caller, caller, admitted.accountId)) throw roleChanged();
          };
          const run = (signal: AbortSignal) => open(request, { ...admitted, signal });
          yield* whileAdmitted({ follow, recheck, run, signal: call.signal });
        } else {
          yield* open(request, admitted);
        }
      } catch (error) {
        fail(error, call);
      }
    };
    if (!getOption(desc, audited)) return admitAndOpen;
    return streamWithAudit(streaming, { run: admitAndOpen, log, sink: audit });
  });
}

/**
 * Authenticates a call of one method, and checks its caller, its request and its account. Returns
 * no promise for a caller that is known.
 */
function admission(
  desc: DescMethod,
  { authenticate, countChange }: Pick<InterceptorParts, "authenticate" | "countChange">,
) {
  // Without the option, the empty message admits nobody.
  const allowed = getOption(desc, callers);
  const needsStrong = getOption(desc, strong);
  const isAudited = getOption(desc, audited);
  const accountField = desc.input.field.accountId;
  const everyField = desc.input.field.allAccounts;
  const identify = allowed.anyone ? tolerant(authenticate) : authenticate;

  /** The account of a request. Empty: it has none, or is for all of them. */
  const accountOf = (request: Message, caller: Caller): string => {
    const named = accountField ? String(Reflect.get(request, accountField.localName)) : "";
    if (everyField && Reflect.get(request, everyField.localName) === true) {
      checkAllAccounts(allowed, caller, named);
      return "";
    }
    return accountField ? decideAccount(allowed, caller, named) : "";
  };

  return (
    request: Message,
    call: Call,
    identified?: (caller: Caller) => void,
  ): AuthenticatedCall | Promise<AuthenticatedCall> => {
    if (call.signal.aborted) throw abortError(call.signal);
    const check = (caller: Caller): AuthenticatedCall => {
      identified?.(caller);
      if (!isAdmitted(allowed, caller)) throw refusalOf(allowed, caller);
      checkRequest(desc.input, request);
      if (isAudited) refuseUnknownFields(desc.input, request);
      const accountId = accountOf(request, caller);
      if (needsStrong) checkStrong(caller);
      if (call.signal.aborted) throw abortError(call.signal);
      return { ...call, caller, allowed, accountId };
    };
    const checkAndCount = async (caller: Caller) => {
      const admitted = check(caller);
      if (isAudited && caller.kind === "management") await countChange?.(caller);
      return admitted;
    };
    if (!call.caller) return identify(call.requestHeader, call).then(checkAndCount);
    return call.caller.kind === "management" ? checkAndCount(call.caller) : check(call.caller);
  };
}

/** For methods that are for everybody: without a valid credential, the caller is anyone. */
function tolerant(authenticate: Authenticate): Authenticate {
  return async (requestHeader, origin) => {
    if (!requestHeader.has("authorization")) return { kind: "anyone" };
    return authenticate(requestHeader, origin).catch((error: unknown) => {
      if (errorCatalog[toApiError(error).reason].rpc !== Code.Unauthenticated) throw error;
      return { kind: "anyone" } as const;
    });
  };
}

/**
 * Calls back when a caller may have lost its rights. `isCertain`: something of the caller changed.
 * Returns the function that unsubscribes.
 */
type FollowRights = (onDoubt: (isCertain: boolean) => void) => () => void;

/** How often the rights of a key or token are checked: its end shows within a second. */
const recheckMs = 250;

/** Undefined: the rights of the caller need not be followed. */
function followRights(
  caller: Caller,
  isEndless: boolean,
  { onCallerChange, clock = systemClock }: InterceptorParts,
): FollowRights | undefined {
  const subjectId = subjectOf(caller);
  if (subjectId !== undefined && onCallerChange)
    return (onDoubt) =>
      onCallerChange((change) => {
        if (change.subjectId === subjectId) onDoubt(true);
      });
  // An answer to a key ends by itself, and inference ends it when the key is revoked. A program may
  // watch with its management key for days.
  if (caller.kind === "internal") return undefined;
  if (!isEndless && caller.kind !== "management") return undefined;
  return (onDoubt) => every(clock, recheckMs, () => onDoubt(false));
}

/**
 * The messages of a stream, as long as the caller may read it: whenever that is in doubt, the
 * caller is authenticated and checked again.
 */
async function* whileAdmitted(parts: {
  follow: FollowRights;
  recheck: () => Promise<unknown>;
  run: (signal: AbortSignal) => AsyncIterable<Message>;
  signal: AbortSignal;
}): AsyncGenerator<Message, void> {
  const { follow, recheck, run } = parts;
  const ended = new AbortController();
  const signal = AbortSignal.any([parts.signal, ended.signal]);
  const unsubscribe = follow((isCertain) => {
    recheck().catch((thrown: unknown) => {
      const error = toApiError(thrown);
      // Without a change, a database that is away is no reason to end the stream.
      if (isCertain || !isOutage(error)) ended.abort(error);
    });
  });
  let messages: AsyncIterator<Message> | undefined;
  try {
    // A change between the first check and the subscription.
    await recheck();
    messages = run(signal)[Symbol.asyncIterator]();
    for (;;) {
      const next = await untilAborted(signal, messages.next());
      if (next.done) return;
      yield next.value;
    }
  } finally {
    unsubscribe();
    const closed = messages?.return?.();
    // A method that ignores its signal must not keep its caller waiting.
    if (signal.aborted) closed?.catch(() => undefined);
    else await closed;
  }
}

function roleChanged(): ApiError {
  return new ApiError("not_permitted", {
    message: "Your role has changed. Open the stream again.",
  });
}

function isOutage({ reason }: ApiError): boolean {
  const { rpc } = errorCatalog[reason];
  return rpc === Code.Unavailable || rpc === Code.DeadlineExceeded || rpc === Code.Internal;
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
