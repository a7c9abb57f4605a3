// Connect and gRPC-web: the services on the public HTTP listener, so that browsers and `curl`
// with JSON can manage keys and read usage. The routes call Core, so they work in every role.

import type { IncomingMessage, ServerResponse } from "node:http";
import {
  clearField,
  clone,
  type DescMethod,
  getOption,
  isMessage,
  type Message,
} from "@bufbuild/protobuf";
import type { CallOptions, ConnectError, ConnectRouter, HandlerContext } from "@connectrpc/connect";
import { createAsyncIterable } from "@connectrpc/connect/protocol";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import type { FastifyInstance } from "fastify";
import { callers, endless } from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { type SessionGrant, SessionGrantSchema } from "../../gen/gateway/people/v1/person_pb.ts";
import { ProfileService } from "../../gen/gateway/people/v1/profile_pb.ts";
import {
  type OidcFlow,
  OidcFlowSchema,
  SignInService,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError, type ErrorReason, shuttingDown, toApiError } from "../base/errors.ts";
import { isRequestId, newRequestId } from "../base/ids.ts";
import {
  dropOperatorRole,
  forwardedHeaders,
  nameClient,
  otherSessionsHeader,
} from "../contract/callers.ts";
import {
  allServices,
  type BoundMethod,
  boundMethod,
  type Core,
  type Implementation,
  type Methods,
  serviceTypes,
} from "../contract/contract.ts";
import { recursionLimit, requestBytesMax } from "../contract/message-limits.ts";
import type { FailedCredentials, IdentifyCaller } from "./authenticate.ts";
import { dropBody, whenSent } from "./body.ts";
import { compressAnswers } from "./compress-answer.ts";
import { checkBody, senderOf, withSender } from "./connect-body.ts";
import { toConnectError, toConnectResponse, toUnaryResponse } from "./connect-error.ts";
import type { AddressLoad } from "./connections.ts";
import type { KeyLoad } from "./key-load.ts";

export type ConnectParts = {
  core: Core;
  identifyCaller: IdentifyCaller;
  keyLoad: KeyLoad;
  addressLoad: AddressLoad;
  /** Counts forged signatures of webhooks, as their route does. Absent: nobody counts them. */
  failedCredentials?: FailedCredentials;
  /** Default: the clock of this machine. */
  clock?: Clock;
  /**
   * True: also serves the methods that only operators may call. False: operators are here what they
   * are in their accounts, and nothing else.
   */
  adminMethods: boolean;
  /** True after the listener has stopped accepting calls. */
  isDraining: () => boolean;
  /** True if each answer ends its connection. */
  endsConnections: () => boolean;
  /** Fires when the listener stops: streams without an end of their own must end. */
  stopping: AbortSignal;
  /** Called with the reason of each error that a caller gets. */
  onError?: ((reason: ErrorReason) => void) | undefined;
  /** `host:port` of the gRPC listener of this process. Absent: it has none. */
  grpcAddress?: string | undefined;
  /** Absent: cookies are ignored. */
  sessionCookie?: SessionCookie;
};

/** The cookie that holds the session of a browser. */
export type SessionCookie = {
  /** Undefined: the call brings no cookie. Throws `not_permitted` for the call of another page. */
  tokenOf(headers: Headers): string | undefined;
  /**
   * Throws `not_permitted` if a page elsewhere makes a call with which a person comes in. `peer`:
   * the IP address that connects.
   */
  checkOrigin(headers: Headers, peer: string): void;
  /** The header `set-cookie` that begins a session. */
  begin(grant: SessionGrant, cookie: string | null): string;
  /** The sessions of other cells in the header `cookie`. */
  othersOf(cookie: string | null): readonly string[];
  /** The header `set-cookie` that ends it. */
  end(): string;
  /** The header `set-cookie` that keeps the way to a provider of OIDC. */
  beginFlow(flow: OidcFlow): string;
};

/**
 * Adds the routes `/<service>/<method>` to `app`. Sends no CORS header, so that pages of other
 * origins cannot call them. An unknown method or media type gets an error of Connect's own form.
 */
export function registerConnect(app: FastifyInstance, parts: ConnectParts): void {
  app.register(async (scope) => {
    scope.addHook("onRequest", (request, reply, done) => {
      const { url = "" } = request.routeOptions;
      if (endlessPaths.has(url)) cutWhenStopped(reply.raw, parts.stopping);
      done();
    });
    // Fastify would answer an unknown media type with an error of its own form.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, _payload, done) => done(null));
    scope.register(fastifyConnectPlugin, {
      routes: (router) => {
        addMethods(router, serviceTypes.billing, parts.core.billing, parts);
        addMethods(router, serviceTypes.keys, parts.core.keys, parts);
        addMethods(router, serviceTypes.inference, parts.core.inference, parts);
        addMethods(router, serviceTypes.people, parts.core.people, parts);
        addMethods(router, serviceTypes.payments, parts.core.payments, parts);
        addMethods(router, serviceTypes.alerts, parts.core.alerts, parts);
        addMethods(router, serviceTypes.operations, parts.core.operations, parts);
        const body = { keyLoad: parts.keyLoad, clock: parts.clock ?? systemClock };
        for (const [index, handler] of router.handlers.entries())
          router.handlers[index] = compressAnswers(
            explainRejection(checkBody(handler, body), parts),
          );
      },
      // Administrative messages are small, and generation streams. Neither is worth a decompressor
      // that unauthenticated callers could overload.
      acceptCompression: [],
      binaryOptions: { recursionLimit },
      jsonOptions: { recursionLimit },
      contextValues: (request) => withSender({ request, address: request.ip }),
      requestGate: (context) => admit(parts, context),
    });
    addUnimplemented(scope, parts);
  });
}

/** Answers calls of methods that do not exist here, and of the reflection service. */
function addUnimplemented(scope: FastifyInstance, parts: ConnectParts): void {
  const { grpcAddress } = parts;
  const add = (path: string, message: string) =>
    scope.all(path, async (request, reply) => {
      await dropRest(parts, request.raw);
      const error = new ApiError("unimplemented", { message });
      const type = request.headers["content-type"] ?? "";
      const { status, header, body } = toConnectResponse(toConnectError(error), type);
      return reply.code(status).headers(Object.fromEntries(header)).send(Buffer.from(body));
    });
  for (const { typeName } of allServices)
    add(`/${typeName}/*`, `${typeName} has no such method here.`);
  const server = grpcAddress === undefined ? "the gRPC port of a core" : `gRPC at ${grpcAddress}`;
  for (const version of ["v1", "v1alpha"])
    add(
      `/grpc.reflection.${version}.ServerReflection/*`,
      `Reflection is served by ${server}. Over HTTP, GET /protos/descriptor.binpb has the descriptors.`,
    );
}

const endlessPaths = new Set(
  allServices.flatMap(({ typeName, methods }) =>
    methods.filter((desc) => getOption(desc, endless)).map(({ name }) => `/${typeName}/${name}`),
  ),
);

/** How long a client may take to read the end of an endless stream. */
const lastBytesMs = 1_000;

/**
 * Cuts the connection of an endless stream when the listener stops and its client does not read:
 * the library writes the next bytes only when it has read those before.
 */
function cutWhenStopped(reply: ServerResponse, stopping: AbortSignal): void {
  let timer: NodeJS.Timeout | undefined;
  const cut = () => {
    timer = setTimeout(() => reply.destroy(), lastBytesMs);
  };
  stopping.addEventListener("abort", cut, { once: true });
  if (stopping.aborted) cut();
  reply.once("close", () => {
    stopping.removeEventListener("abort", cut);
    clearTimeout(timer);
  });
}

type Handler = ConnectRouter["handlers"][number];

/**
 * No other method, also where the library would take a GET: the ids in its address would stand in
 * logs, and a page elsewhere could call it with the cookie of this one.
 */
const allowedMethods = ["POST"];

/**
 * The same handler. It gives the library's empty 405 and 415 a body in Connect's own form, and
 * keeps it from printing an error for each client that hangs up.
 */
function explainRejection(handler: Handler, parts: ConnectParts): Handler {
  const isStream = handler.method.methodKind !== "unary";
  const types = ["json", "proto"].flatMap((codec) => [
    isStream ? `application/connect+${codec}` : `application/${codec}`,
    `application/grpc-web+${codec}`,
  ]);
  const explained = async (request: Parameters<Handler>[0]) => {
    const isAllowed = allowedMethods.includes(request.method);
    const response = isAllowed ? await handler(request) : { status: 405 };
    if (response.status !== 405 && response.status !== 415)
      return { ...response, ...(response.body && { body: markHangUps(response.body) }) };
    const sender = request.contextValues && senderOf(request.contextValues);
    await dropRest(parts, sender?.request.raw);
    const isType = response.status === 415;
    const error = isType
      ? new ApiError("invalid_request", {
          message: `content-type: must be one of ${types.join(", ")}`,
        })
      : new ApiError("method_not_allowed", { allowed: allowedMethods });
    const { header, body } = toUnaryResponse(toConnectError(error));
    if (isType) header.set("accept-post", types.join(", "));
    else header.set("allow", allowedMethods.join(", "));
    return { status: response.status, header, body: createAsyncIterable([body]) };
  };
  return Object.assign(explained, handler, { allowedMethods });
}

const hangUp = Object.assign(new Error("the client hung up"), { code: "ECONNRESET" });

/**
 * The same bytes. A write that a hang-up has cancelled gets the cause by which the library knows
 * it: it prints other failed writes to stderr.
 */
function markHangUps(bytes: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]() {
      const iterator = bytes[Symbol.asyncIterator]();
      return {
        next: () => iterator.next(),
        return: async () => (await iterator.return?.()) ?? { done: true, value: undefined },
        async throw(error: unknown) {
          if (error instanceof Error) error.cause ??= hangUp;
          return (await iterator.throw?.(error)) ?? { done: true, value: undefined };
        },
      };
    },
  };
}

/** IP address of the client. */
function addressOf({ values }: HandlerContext): string {
  return senderOf(values)?.address ?? "";
}

const { beginSignIn, beginPasskey, signInWithPassword, redeemLink, signUp, confirmEmail } =
  SignInService.method;
/**
 * With which a person comes in, and with which the page asks how: it says so before anybody types.
 * A passkey and a provider of OIDC know their origin themselves.
 */
const comingIn = new Set<DescMethod>([
  ...[beginSignIn, beginPasskey, signInWithPassword, redeemLink, signUp, confirmEmail],
]);

/** What concerns the sessions of a browser in all cells. */
const ofAllCells = new Set<DescMethod>([
  ProfileService.method.getSession,
  ProfileService.method.signOut,
  serviceTypes.operations.method.search,
]);

/** Gives the call of a page the session of its cookie, as any other program would send it. */
function useCookie(cookie: SessionCookie, { method, requestHeader }: HandlerContext): void {
  const token = cookie.tokenOf(requestHeader);
  if (token === undefined) return;
  requestHeader.set("authorization", `Session ${token}`);
  const others = ofAllCells.has(method) ? cookie.othersOf(requestHeader.get("cookie")) : [];
  if (others.length > 0) requestHeader.set(otherSessionsHeader, others.join(" "));
}

/** Authenticates a call before its request is read. The services authenticate again. */
async function admit(parts: ConnectParts, context: HandlerContext): Promise<void> {
  const { identifyCaller, addressLoad, isDraining, adminMethods, sessionCookie } = parts;
  const allowed = getOption(context.method, callers);
  const sender = senderOf(context.values);
  const address = addressOf(context);
  // An answer can hold a secret, which no cache may keep.
  context.responseHeader.set("cache-control", "no-store");
  nameRequest(context);
  try {
    if (isDraining()) throw shuttingDown();
    if (sender) addressLoad.checkRequest(sender.request);
    // Before anything is read: a link of a call that cannot succeed stays good.
    if (comingIn.has(context.method))
      sessionCookie?.checkOrigin(
        context.requestHeader,
        sender?.request.raw.socket.remoteAddress ?? "",
      );
    if (sessionCookie && !context.requestHeader.has("authorization"))
      useCookie(sessionCookie, context);
    const authorization = context.requestHeader.get("authorization") ?? "";
    // A service may begin its work before it looks at the signal.
    const timeoutMs = context.timeoutMs();
    if (timeoutMs !== undefined && timeoutMs <= 0)
      throw new ApiError("timeout", { message: "The deadline passed before the call began." });
    if (context.method === serviceTypes.payments.method.receiveWebhook)
      parts.failedCredentials?.check(address);
    const attempt = { authorization, address, monthUsage: false };
    const identify = async () => identifyCaller(attempt, callOf(context, adminMethods));
    if (allowed.anyone) {
      // What this port refuses whatever the method keeps out such a call, too.
      if (/^\s*bearer/i.test(authorization)) await identify().catch(throwNotPermitted);
      return;
    }
    const { caller } = await identify();
    if (sender && caller.key) sender.keyId = caller.key.keyId;
  } catch (error) {
    await dropRest(parts, sender?.request.raw);
    throw failed(parts, error);
  }
}

/**
 * Drops the rest of a call that is rejected unread, and waits for its end, if the answer ends the
 * connection: a client that still sends would get a reset in its place.
 */
async function dropRest(
  { endsConnections }: ConnectParts,
  request: IncomingMessage | undefined,
): Promise<void> {
  if (!request || !endsConnections()) return;
  dropBody(request);
  await whenSent(request);
}

/**
 * Gives a call an id, unless the client gave it one: the log has it, and the answer repeats it.
 * Generations make their own, which is the id of their charge.
 */
function nameRequest({ method, requestHeader, responseHeader }: HandlerContext): void {
  const { generate } = serviceTypes.inference.method;
  if (!requestHeader.has("x-request-id") && method !== generate)
    requestHeader.set("x-request-id", newRequestId());
  const requestId = requestHeader.get("x-request-id") ?? "";
  if (isRequestId(requestId)) responseHeader.set("x-request-id", requestId);
}

/** The error for the caller. Counts it. */
function failed({ onError }: ConnectParts, error: unknown): ConnectError {
  onError?.(toApiError(error).reason);
  return toConnectError(error);
}

function throwNotPermitted(error: unknown): void {
  if (toApiError(error).reason === "not_permitted") throw error;
}

function addMethods<S extends Methods>(
  router: ConnectRouter,
  service: S,
  client: Implementation<S, CallOptions>,
  parts: ConnectParts,
): void {
  for (const desc of service.methods) {
    const { key, accountReader, person, anyone } = getOption(desc, callers);
    const isForCustomers = key || accountReader || anyone || person !== AccountRole.UNSPECIFIED;
    if (parts.adminMethods || isForCustomers) addMethod(router, boundMethod(client, desc), parts);
  }
}

function addMethod(
  router: ConnectRouter,
  method: BoundMethod<CallOptions>,
  parts: ConnectParts,
): void {
  const { sessionCookie, adminMethods, failedCredentials, stopping } = parts;
  // gRPC needs HTTP/2 and has its own listener. (The option of the router does not apply to methods
  // with options.)
  const options = { readMaxBytes: requestBytesMax(method.desc), grpc: false };
  if (method.kind === "unary") {
    router.rpc(
      method.desc,
      async (request: Message, context: HandlerContext) => {
        try {
          const answer = await method.run(request, callOf(context, adminMethods));
          return sessionCookie ? keepGrant(method.desc, answer, context, sessionCookie) : answer;
        } catch (error) {
          if (toApiError(error).reason === "invalid_signature")
            failedCredentials?.record(addressOf(context));
          throw failed(parts, error);
        }
      },
      options,
    );
    return;
  }
  const isEndless = getOption(method.desc, endless);
  router.rpc(
    method.desc,
    async function* (request: Message, context: HandlerContext) {
      try {
        const call = callOf(context, adminMethods);
        if (isEndless) call.signal = AbortSignal.any([context.signal, stopping]);
        yield* noteAccepted(method.run(request, call), context);
      } catch (error) {
        throw failed(parts, error);
      }
    },
    options,
  );
}

/** The same messages. With the first one, the service has the request: its memory may go. */
async function* noteAccepted(
  messages: AsyncIterable<Message>,
  { values }: HandlerContext,
): AsyncGenerator<Message, void> {
  for await (const message of messages) {
    senderOf(values)?.accepted?.();
    yield message;
  }
}

/** The same answer, without secrets of the browser: they go into cookies, which no script reads. */
function keepGrant(
  desc: DescMethod,
  answer: Message,
  { requestHeader, responseHeader }: HandlerContext,
  cookie: SessionCookie,
): Message {
  if (desc === ProfileService.method.signOut) responseHeader.append("set-cookie", cookie.end());
  const field = desc.output.fields.find(
    ({ message }) => message === SessionGrantSchema || message === OidcFlowSchema,
  );
  const secret: unknown = field && Reflect.get(answer, field.localName);
  if (!field) return answer;
  if (isMessage(secret, SessionGrantSchema))
    responseHeader.append("set-cookie", cookie.begin(secret, requestHeader.get("cookie")));
  else if (isMessage(secret, OidcFlowSchema))
    responseHeader.append("set-cookie", cookie.beginFlow(secret));
  else return answer;
  const shown = clone(desc.output, answer);
  clearField(shown, field);
  return shown;
}

function callOf(
  { requestHeader, signal, values }: HandlerContext,
  adminMethods: boolean,
): CallOptions {
  const headers = new Headers();
  const agent = requestHeader.get("user-agent") ?? "";
  nameClient(headers, { address: senderOf(values)?.address ?? "", agent });
  for (const name of forwardedHeaders) {
    const value = requestHeader.get(name);
    if (value !== null) headers.set(name, value);
  }
  if (!adminMethods) dropOperatorRole(headers);
  return { headers, signal, contextValues: values };
}
