// The interface between listeners and services. A service is an object with one function for each
// method of its generated type, and every binding calls it the same way. This file holds the types
// and the local binding, which calls the services of this process and passes messages by reference.
// The gRPC binding is `grpc/client.ts`. Both fail with `ApiError` only.

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import {
  type CallOptions,
  type Client,
  Code,
  ConnectError,
  type ContextValues,
  createContextKey,
  createContextValues,
} from "@connectrpc/connect";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import {
  type AuthenticateResponse,
  type Key,
  KeysService,
  type Secret,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../base/errors.ts";

/** One call. Connect's `HandlerContext` has this type too. */
export interface Call {
  /** Aborted when the caller disconnects or the deadline passes. */
  readonly signal: AbortSignal;
  /** The metadata of the call. `authorization` holds the credential. */
  readonly requestHeader: Headers;
  /**
   * The caller, if a listener of this process authenticated it within the last second. Only the
   * local binding sets it, never a message from outside.
   */
  readonly caller?: Caller | undefined;
  /**
   * Called when a provider has received the whole request of a generation, so that a listener may
   * count its memory as free.
   */
  readonly onTaken?: (() => void) | undefined;
}

/** The authenticated caller. */
export type Caller =
  | { readonly kind: "key"; readonly key: Key; readonly secret: Secret }
  /** The operator: sees every account and has none. */
  | { readonly kind: "admin" };

/** A call after authentication. */
export interface AuthenticatedCall extends Call {
  readonly caller: Caller;
}

/** Finds the caller of a credential. Throws `missing_key`, `invalid_key` or `revoked_key`. */
export type Authenticate = (requestHeader: Headers) => Promise<Caller>;

/**
 * The methods of `S`. Each takes its request and the call, and returns complete messages. Matches
 * Connect's `ServiceImpl`. A client has this type too, with `CallOptions` in place of the call.
 */
export type Implementation<S extends DescService, C = Call> = {
  [P in keyof S["method"]]: S["method"][P] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: C) => Promise<MessageShape<O>>
    : S["method"][P] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, call: C) => AsyncIterable<MessageShape<O>>
      : never;
};

/** One method of an implementation, for code that loops over all methods of a service. */
export type BoundMethod<C = Call> =
  | { kind: "unary"; desc: DescMethodUnary; run: (request: Message, call: C) => Promise<Message> }
  | {
      kind: "stream";
      desc: DescMethodServerStreaming;
      run: (request: Message, call: C) => AsyncIterable<Message>;
    };

/** The method `desc` of `implementation`. Throws if there is none, or if clients stream to it. */
export function boundMethod<S extends DescService, C>(
  implementation: Implementation<S, C>,
  desc: DescMethod,
): BoundMethod<C> {
  // The descriptor and the mapped type list the same methods, one at run time, the other at compile
  // time. Only this function and `implement` rely on that.
  const methods = implementation as Record<string, unknown>;
  const run = methods[desc.localName];
  if (typeof run !== "function") throw new Error(`${desc.parent.typeName} lacks ${desc.localName}`);
  if (isUnary(desc)) return { kind: "unary", desc, run: run.bind(implementation) };
  if (isServerStreaming(desc)) return { kind: "stream", desc, run: run.bind(implementation) };
  throw new Error(`${desc.parent.typeName}.${desc.name}: client streams are not supported`);
}

function isUnary(desc: DescMethod): desc is DescMethodUnary {
  return desc.methodKind === "unary";
}

function isServerStreaming(desc: DescMethod): desc is DescMethodServerStreaming {
  return desc.methodKind === "server_streaming";
}

/** Builds an object with one function for each method of `service`. */
export function implement<T>(service: DescService, build: (desc: DescMethod) => unknown): T {
  return Object.fromEntries(service.methods.map((desc) => [desc.localName, build(desc)])) as T;
}

/**
 * The error of a call whose signal fired: the abort reason if it is an ApiError, `timeout` for a
 * deadline, else `cancelled`.
 */
export function abortError(signal: AbortSignal): ApiError {
  const { reason } = signal;
  if (reason instanceof ApiError) return reason;
  const timeout =
    reason instanceof ConnectError
      ? reason.code === Code.DeadlineExceeded
      : reason?.name === "TimeoutError";
  return new ApiError(timeout ? "timeout" : "cancelled", { cause: reason });
}

/** The descriptors of the three services. */
export const serviceTypes = {
  billing: BillingService,
  keys: KeysService,
  inference: InferenceService,
} as const;
type ServiceTypes = typeof serviceTypes;

/** Clients of the three services. Send the credential as the header `authorization: Bearer …`. */
export type Core = { [N in keyof ServiceTypes]: Client<ServiceTypes[N]> };

/** The three service objects, each behind its interceptor. */
export type Services = { [N in keyof ServiceTypes]: Implementation<ServiceTypes[N]> };

/** A Core that calls these services in this process. */
export function localCore(services: Services): Core {
  return {
    billing: localClient(BillingService, services.billing),
    keys: localClient(KeysService, services.keys),
    inference: localClient(InferenceService, services.inference),
  };
}

function localClient<S extends DescService>(
  service: S,
  implementation: Implementation<S>,
): Client<S> {
  return implement<Client<S>>(service, (desc) => {
    const { run } = boundMethod(implementation, desc);
    return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
      run(create(desc.input, request), callOf(options));
  });
}

const noHeaders = new Headers();
const never = new AbortController().signal;

/** How long a service of this process accepts a caller that a listener has authenticated. */
export const callerMsMax = 400;
const knownCaller = createContextKey<{ caller: Caller; atMs: number } | undefined>(undefined, {
  description: "the caller that the listener authenticated, and when",
});

/** Context values that pass an authenticated caller to the services of this process. */
export function withCaller(
  { admin, key, secret }: AuthenticateResponse,
  atMs: number,
): ContextValues {
  const values = createContextValues();
  if (admin) return values.set(knownCaller, { caller: { kind: "admin" }, atMs });
  return key && secret
    ? values.set(knownCaller, { caller: { kind: "key", key, secret }, atMs })
    : values;
}

const taken = createContextKey<(() => void) | undefined>(undefined, {
  description: "called when a provider has received the request",
});

/** Adds the function that is called when a provider has received the request of a generation. */
export function withOnTaken(values: ContextValues, onTaken: () => void): ContextValues {
  return values.set(taken, onTaken);
}

/** The function of `withOnTaken`. */
export function onTakenOf(values: ContextValues | undefined): (() => void) | undefined {
  return values?.get(taken);
}

function callerOf(values: ContextValues | undefined): Caller | undefined {
  const known = values?.get(knownCaller);
  return known && performance.now() - known.atMs < callerMsMax ? known.caller : undefined;
}

function callOf(options: CallOptions | undefined): Call {
  const headers = options?.headers;
  const timeoutMs = options?.timeoutMs ?? 0;
  const signals = [
    options?.signal,
    timeoutMs > 0 ? AbortSignal.timeout(timeoutMs) : undefined,
  ].filter((one) => one !== undefined);
  return {
    signal: signals.length > 1 ? AbortSignal.any(signals) : (signals[0] ?? never),
    requestHeader:
      headers === undefined
        ? noHeaders
        : headers instanceof Headers
          ? headers
          : new Headers(headers),
    caller: callerOf(options?.contextValues),
    onTaken: onTakenOf(options?.contextValues),
  };
}
