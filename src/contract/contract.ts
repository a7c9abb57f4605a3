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
import { timestampDate } from "@bufbuild/protobuf/wkt";
import {
  type CallOptions,
  Code,
  ConnectError,
  type ContextValues,
  createContextKey,
  createContextValues,
} from "@connectrpc/connect";
import { AccountsService } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { ApprovalsService } from "../../gen/gateway/approvals/v1/approvals_pb.ts";
import { AuditService } from "../../gen/gateway/audit/v1/audit_pb.ts";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { PriceListsService } from "../../gen/gateway/billing/v1/price_lists_pb.ts";
import type { Callers } from "../../gen/gateway/common/v1/options_pb.ts";
import {
  type AccountRole,
  AdminScope,
  type ManagementScope,
  type OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import {
  type AuthenticateResponse,
  type Key,
  KeysService,
  type Secret,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ManagementKeysService } from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { OperationsService } from "../../gen/gateway/operations/v1/operations_pb.ts";
import { SupportService } from "../../gen/gateway/operations/v1/support_pb.ts";
import { PaymentDeskService } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { PromotionsService } from "../../gen/gateway/payments/v1/promotions_pb.ts";
import { SweepsService } from "../../gen/gateway/payments/v1/sweeps_pb.ts";
import { AdminTokensService } from "../../gen/gateway/people/v1/admin_tokens_pb.ts";
import { MembersService } from "../../gen/gateway/people/v1/members_pb.ts";
import { PeopleService } from "../../gen/gateway/people/v1/people_pb.ts";
import { ProfileService } from "../../gen/gateway/people/v1/profile_pb.ts";
import { SignInService } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { ViewsService } from "../../gen/gateway/people/v1/views_pb.ts";
import { SalesService } from "../../gen/gateway/sales/v1/sales_pb.ts";
import { UsageService } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { VerificationService } from "../../gen/gateway/verification/v1/verification_pb.ts";
import type { PartName } from "../base/actors.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Stopwatch } from "../base/stopwatch.ts";

/** Reads the headers of a call, by names in lower case. `Headers` has this type too. */
export type CallHeaders = Pick<Headers, "get" | "has">;

/** One call. */
export interface Call {
  /** Aborted when the caller disconnects or the deadline passes. */
  readonly signal: AbortSignal;
  /** The metadata of the call. `authorization` holds the credential. */
  readonly requestHeader: CallHeaders;
  /**
   * The caller, if a listener of this process authenticated it less than `callerMsMax` ago. Only
   * the local binding sets it, never a message from outside.
   */
  readonly caller?: Caller | undefined;
  /**
   * True: the headers `x-client-address` and `x-client-agent` were written by a listener of ours.
   * Absent: anybody may have written them.
   */
  readonly namesClient?: boolean | undefined;
  /** IP address of the peer of a connection. Absent: the call came from this process. */
  readonly peer?: string | undefined;
  /**
   * Runs while the call waits for a provider, and in a facade while it waits for its core. Only the
   * local binding sets it.
   */
  readonly waits?: Stopwatch | undefined;
}

/** The authenticated caller. */
export type Caller =
  | KeyCaller
  | AdminToken
  | ManagementCaller
  | Person
  /** A part of the gateway, such as `payments`. Only the local binding names it, never a header. */
  | { readonly kind: "internal"; readonly service: PartName }
  /** A call without a valid credential, of a method that is for everybody. */
  | { readonly kind: "anyone" };

/** The holder of an API key. */
export type KeyCaller = {
  readonly kind: "key";
  readonly key: Key;
  readonly secret: Secret;
  /** True: the key or who manages it has a budget with a limit. Absent: neither has. */
  readonly isLimited?: boolean;
  /** The price list of its account. Absent: the public prices. */
  readonly priceListId?: string | undefined;
};

/** The holder of an admin token: sees every account and has none. */
export type AdminToken = {
  readonly kind: "admin";
  /** As audit events and transfers name it. */
  readonly name: string;
  readonly scope: AdminScope;
  /** Under which its revocation is announced. Undefined: no call revokes it. */
  readonly tokenId: string | undefined;
  /** Who made it. Absent: the machine. */
  readonly personId?: string | undefined;
};

/** The holder of a management key: changes and reads its account, and pays for nothing. */
export type ManagementCaller = {
  readonly kind: "management";
  readonly managementKeyId: string;
  readonly accountId: string;
  readonly name: string;
  readonly scopes: readonly ManagementScope[];
};

/** The admin token that the environment, or the first start, gives. */
export const environmentToken: AdminToken = {
  kind: "admin",
  name: "ADMIN_TOKEN",
  scope: AdminScope.ALL,
  tokenId: undefined,
};

/** A person, by one of his sessions. */
export type Person = {
  readonly kind: "person";
  readonly personId: string;
  /** Names the session. It is not its secret. */
  readonly sessionId: string;
  /** At most one for each account. */
  readonly memberships: readonly Membership[];
  readonly operator: OperatorRole;
  /** Until then, methods marked `strong` need no further confirmation. Absent: they do. */
  readonly strongUntil: Date | undefined;
};

/** The role of a person in one account. */
export type Membership = { readonly accountId: string; readonly role: AccountRole };

/** A call after authentication. */
export interface AuthenticatedCall extends Call {
  readonly caller: Caller;
  /** The callers that the method admits. */
  readonly allowed: Callers;
  /**
   * The account that the call concerns, as `callers.ts` decides it. Empty if the request has no
   * field `account_id`, or has set `all_accounts`.
   */
  readonly accountId: string;
  /** Adds facts to the audit event of the call. Absent on methods that leave none. */
  readonly note?: ((facts: AuditFacts) => void) | undefined;
}

/** Facts of an audit event by name, as text. Never a secret, and no free text of the caller. */
export type AuditFacts = Readonly<Record<string, string>>;

/** Where a call comes from, beside its headers. */
export type Origin = Pick<Call, "namesClient" | "peer">;

/**
 * Finds the caller of a credential. Throws `missing_key`, `invalid_key` or `revoked_key`, or
 * another error whose gRPC code is UNAUTHENTICATED, and `address_not_allowed`. `origin` absent:
 * unknown, which no list of addresses allows.
 */
export type Authenticate = (requestHeader: CallHeaders, origin?: Origin) => Promise<Caller>;

/**
 * Calls `listener` when a session of a person has ended, a role of the person changed, or an admin
 * token was revoked, on any node, within a second. `subjectId`: of the person or the token. Returns
 * the function that unsubscribes.
 */
export type OnCallerChange = (listener: (change: { subjectId: string }) => void) => () => void;

/**
 * The methods of `S`. Each takes its request and the call, and returns complete messages. Matches
 * Connect's `ServiceImpl`. A client has this type too, with `CallOptions` in place of the call.
 */
export type Implementation<S extends Methods, C = Call> = {
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
export function boundMethod<S extends Methods, C>(
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
export function implement<T>(service: Methods, build: (desc: DescMethod) => unknown): T {
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

/**
 * The error of a call that failed by `thrown`, for its caller. An unexpected one is logged.
 */
export function failureOf(
  thrown: unknown,
  { name }: DescMethod,
  { signal, requestHeader }: Pick<Call, "signal" | "requestHeader">,
  log: Log,
): ApiError {
  // After an abort, libraries throw errors of their own, which rarely name a deadline.
  const isSpecific = thrown instanceof ApiError && thrown.reason !== "cancelled";
  const error = signal.aborted && !isSpecific ? abortError(signal) : toApiError(thrown);
  if (error.reason === "internal")
    log.error(
      {
        code: "internal_error",
        method: name,
        err: error.cause ?? error,
        requestId: requestHeader.get("x-request-id") ?? undefined,
      },
      "call failed",
    );
  return error;
}

/**
 * Methods that one object implements: those of a service, or those of all services of one folder of
 * `src` together. Names of methods are unique in a folder.
 */
export type Methods = Pick<DescService, "methods" | "method">;

type MethodsOf<T extends readonly DescService[]> = T extends readonly [
  infer One extends DescService,
  ...infer Rest extends readonly DescService[],
]
  ? One["method"] & MethodsOf<Rest>
  : unknown;

/** The services that one object implements. */
function join<const T extends readonly DescService[]>(...services: T) {
  const method: MethodsOf<T> = Object.assign({}, ...services.map((one) => one.method));
  return { services, methods: services.flatMap((one) => one.methods), method };
}

/** The descriptors of the services, by the folder of `src` that implements them. */
export const serviceTypes = {
  billing: join(
    AccountsService,
    BillingService,
    PriceListsService,
    UsageService,
    VerificationService,
  ),
  keys: join(KeysService, ManagementKeysService),
  inference: join(InferenceService),
  people: join(
    SignInService,
    ProfileService,
    MembersService,
    ViewsService,
    PeopleService,
    AdminTokensService,
    AuditService,
  ),
  payments: join(PaymentsService, PaymentDeskService, SweepsService, PromotionsService),
  alerts: join(AlertsService),
  operations: join(OperationsService, SupportService, ApprovalsService, SalesService),
} as const;
type ServiceTypes = typeof serviceTypes;

/** The descriptors of all services. */
export const allServices: readonly DescService[] = Object.values(serviceTypes).flatMap(
  ({ services }): readonly DescService[] => services,
);

/** A client of the methods of `S`, as Connect makes one of a service. */
export type ClientOf<S extends Methods> = {
  [P in keyof S["method"]]: S["method"][P] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : S["method"][P] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>, options?: CallOptions) => AsyncIterable<MessageShape<O>>
      : never;
};

/** Clients of the services. Send the credential as the header `authorization: Bearer …`. */
export type Core = { [N in keyof ServiceTypes]: ClientOf<ServiceTypes[N]> };

/** The service objects, each behind its interceptor. */
export type Services = { [N in keyof ServiceTypes]: Implementation<ServiceTypes[N]> };

/** A Core that calls these services in this process. */
export function localCore(services: Services): Core {
  return {
    billing: localClient(serviceTypes.billing, services.billing),
    keys: localClient(serviceTypes.keys, services.keys),
    inference: localClient(serviceTypes.inference, services.inference),
    people: localClient(serviceTypes.people, services.people),
    payments: localClient(serviceTypes.payments, services.payments),
    alerts: localClient(serviceTypes.alerts, services.alerts),
    operations: localClient(serviceTypes.operations, services.operations),
  };
}

/** A client that calls a service of this process, and passes messages by reference. */
export function localClient<S extends Methods>(
  service: S,
  implementation: Implementation<S>,
): ClientOf<S> {
  return implement<ClientOf<S>>(service, (desc) => {
    const { run } = boundMethod(implementation, desc);
    return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
      run(create(desc.input, request), callOf(options));
  });
}

const noHeaders = new Headers();

/** The headers of a plain record. To make `Headers` of it takes 3 µs. */
class RecordHeaders implements CallHeaders {
  readonly #record: Readonly<Record<string, unknown>>;

  constructor(record: Readonly<Record<string, unknown>>) {
    this.#record = record;
  }

  get(name: string): string | null {
    const record = this.#record;
    const own = Object.hasOwn(record, name)
      ? name
      : Object.keys(record).find((key) => key.toLowerCase() === name);
    return own === undefined ? null : String(record[own]);
  }

  has(name: string): boolean {
    return this.get(name) !== null;
  }
}

/** Reads the headers of a call. */
export function callHeaders(headers: HeadersInit | undefined): CallHeaders {
  if (headers === undefined) return noHeaders;
  if (headers instanceof Headers) return headers;
  return Symbol.iterator in headers ? new Headers(headers) : new RecordHeaders(headers);
}
const never = new AbortController().signal;

/** How long a service of this process accepts a caller that a listener has authenticated. */
export const callerMsMax = 400;

/**
 * What a part of this process says of a call that it makes. Only the bindings of this process read
 * it: no message carries it.
 */
export type LocalFacts = Pick<Call, "waits"> & {
  /** The caller, and until when it need not be authenticated again, by `performance.now()`. */
  readonly known?: { readonly caller: Caller; readonly untilMs: number } | undefined;
};

const noFacts: LocalFacts = {};
const localFacts = createContextKey(noFacts, { description: "what this process says of a call" });

/** Sets facts of a call in its context values, which it returns. Other facts stay. */
export function withFacts(values: ContextValues, facts: LocalFacts): ContextValues {
  return values.set(localFacts, { ...values.get(localFacts), ...facts });
}

/** The facts of `withFacts`. */
export function factsOf(values: ContextValues | undefined): LocalFacts {
  return values?.get(localFacts) ?? noFacts;
}

/** Context values of a call that a part of the gateway makes itself. */
export function asService(service: PartName): ContextValues {
  const caller = { kind: "internal", service } as const;
  return withFacts(createContextValues(), {
    known: { caller, untilMs: Number.POSITIVE_INFINITY },
  });
}

/** A caller that a listener authenticated at `atMs`, for the services of the same process. */
export function knownCaller(answer: AuthenticateResponse, atMs: number): LocalFacts["known"] {
  const caller = toCaller(answer);
  return caller && { caller, untilMs: atMs + callerMsMax };
}

/** The caller that an answer of `KeysService.Authenticate` describes. Undefined: it names none. */
export function toCaller({
  admin,
  key,
  secret,
  person,
  management,
  limited: isLimited,
  priceListId,
}: AuthenticateResponse): Caller | undefined {
  if (admin) {
    const { name, scope, tokenId } = admin;
    return { kind: "admin", name, scope, tokenId: tokenId === "" ? undefined : tokenId };
  }
  if (key && secret)
    return { kind: "key", key, secret, isLimited, priceListId: priceListId || undefined };
  if (management) {
    const { managementKeyId, accountId, name, scopes } = management;
    return { kind: "management", managementKeyId, accountId, name, scopes };
  }
  if (!person) return undefined;
  const { personId, sessionId, memberships, operatorRole: operator, strongUntil } = person;
  return {
    kind: "person",
    personId,
    sessionId,
    memberships,
    operator,
    strongUntil: strongUntil && timestampDate(strongUntil),
  };
}

function callOf(options: CallOptions | undefined): Call {
  const { signal = never, timeoutMs = 0, headers, contextValues } = options ?? {};
  const { known, waits } = factsOf(contextValues);
  return {
    signal: timeoutMs > 0 ? AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]) : signal,
    requestHeader: callHeaders(headers),
    caller: known && performance.now() < known.untilMs ? known.caller : undefined,
    namesClient: true,
    waits,
  };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a bug: report the line, which names the method or the request */
    internal_error: true;
  }
}
