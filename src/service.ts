// What a service is to the rest of the house: an object with one function per method of its generated type, called the same way by
// every binding. `guard` puts identity, required fields and the last word on errors in front of all of them alike.

import {
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  getOption,
  hasOption,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { callers } from "../gen/gateway/common/v1/options_pb.ts";
import type { Key, Secret } from "../gen/gateway/keys/v1/keys_pb.ts";
import { Refusal, toRefusal } from "./errors.ts";
import type { Log } from "./log.ts";
import { checkRequest } from "./request-rules.ts";

/** One call as every binding gives it. Connect's `HandlerContext` is one. */
export interface Call {
  /** Aborted when the caller hangs up or the deadline passes. */
  readonly signal: AbortSignal;
  /** Metadata. `authorization` holds the credential. */
  readonly requestHeader: Headers;
}

/** Whoever calls. */
export type Caller =
  | { readonly kind: "key"; readonly key: Key; readonly secret: Secret }
  /** The operator. Sees every account, and has none. */
  | { readonly kind: "admin" };

/** A call whose caller is known. */
export interface CallOf extends Call {
  readonly caller: Caller;
}

/** Tells who sends this credential. Throws `missing_key`, `invalid_key` or `revoked_key`. */
export type Authenticate = (requestHeader: Headers) => Promise<Caller>;

/**
 * The methods of `S`, each taking its request and the call, and answering complete messages. Fits Connect's `ServiceImpl`; a client
 * is one too, with `CallOptions` for the call.
 */
export type Implementation<S extends DescService, C = Call> = {
  [P in keyof S["method"]]: S["method"][P] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: C) => Promise<MessageShape<O>>
    : S["method"][P] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, call: C) => AsyncIterable<MessageShape<O>>
      : never;
};

/** A method of an implementation, for code that walks all methods of a service. */
export type BoundMethod<C = Call> =
  | { kind: "unary"; desc: DescMethodUnary; run: (request: Message, call: C) => Promise<Message> }
  | { kind: "stream"; desc: DescMethodServerStreaming; run: (request: Message, call: C) => AsyncIterable<Message> };

/** The method `desc` of `implementation`. */
export function boundMethod<S extends DescService, C>(implementation: Implementation<S, C>, desc: DescMethod): BoundMethod<C> {
  // Descriptors tell at run time what the mapped type tells at compile time; only here and in `implement` do the two meet.
  const methods = implementation as Record<string, unknown>;
  const run = methods[desc.localName];
  if (typeof run !== "function") throw new Error(`${desc.parent.typeName} lacks ${desc.localName}`);
  if (isUnary(desc)) return { kind: "unary", desc, run: run.bind(implementation) };
  if (isServerStreaming(desc)) return { kind: "stream", desc, run: run.bind(implementation) };
  throw new Error(`${desc.parent.typeName}.${desc.name}: client streams are not used here`);
}

function isUnary(desc: DescMethod): desc is DescMethodUnary {
  return desc.methodKind === "unary";
}

function isServerStreaming(desc: DescMethod): desc is DescMethodServerStreaming {
  return desc.methodKind === "server_streaming";
}

/** Builds an object with one function per method of `service`. */
export function implement<T>(service: DescService, build: (desc: DescMethod) => unknown): T {
  return Object.fromEntries(service.methods.map((desc) => [desc.localName, build(desc)])) as T;
}

/**
 * The same service for unidentified callers: authenticates each call, admits whom the method's `callers` option names, refuses a
 * request that breaks what the protos declare, and lets nothing but a `Refusal` out. What was not foreseen is logged here.
 */
export function guard<S extends DescService>(
  service: S,
  implementation: Implementation<S, CallOf>,
  authenticate: Authenticate,
  log: Log,
): Implementation<S> {
  return implement<Implementation<S>>(service, (desc) => {
    const method = boundMethod<S, CallOf>(implementation, desc);
    const admits = hasOption(desc, callers) ? getOption(desc, callers) : { key: false, admin: false };

    const admit = async (request: Message, call: Call): Promise<CallOf> => {
      const caller = await authenticate(call.requestHeader);
      if (!admits[caller.kind]) throw new Refusal("not_permitted");
      checkRequest(desc.input, request);
      if (call.signal.aborted) throw abortRefusal(call.signal);
      return { signal: call.signal, requestHeader: call.requestHeader, caller };
    };
    const refuse = (error: unknown, { signal }: Call): never => {
      // What an implementation throws when its signal fires is up to the libraries it uses, and few of them know of deadlines.
      const saysMore = error instanceof Refusal && error.refusal !== "cancelled";
      const refusal = signal.aborted && !saysMore ? abortRefusal(signal) : toRefusal(error);
      if (refusal.refusal === "internal") log.error({ method: desc.name, err: refusal.cause ?? refusal }, "call failed");
      throw refusal;
    };

    if (method.kind === "unary") {
      return (request: Message, call: Call) =>
        untilAborted(
          call.signal,
          admit(request, call).then((identified) => method.run(request, identified)),
        ).catch((error) => refuse(error, call));
    }
    return (request: Message, call: Call) =>
      openLater(
        async () => method.run(request, await admit(request, call))[Symbol.asyncIterator](),
        (error) => refuse(error, call),
      );
  });
}

/** `work`, or the refusal of the abort once the signal fires: an implementation that ignores the signal must not keep its caller. */
function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(abortRefusal(signal));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** What a call that this signal ended fails with: its reason if that is a refusal, `timeout` for a deadline, else `cancelled`. */
export function abortRefusal(signal: AbortSignal): Refusal {
  const { reason } = signal;
  if (reason instanceof Refusal) return reason;
  const timeout = reason instanceof ConnectError ? reason.code === Code.DeadlineExceeded : reason?.name === "TimeoutError";
  return new Refusal(timeout ? "timeout" : "cancelled", { cause: reason });
}

/** An iterable that opens its source at the first read, and from then on adds nothing but `refuse` to the source's own promises. */
function openLater(open: () => Promise<AsyncIterator<Message>>, refuse: (error: unknown) => never): AsyncIterable<Message> {
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
