// The public HTTP listener: REST and server-sent events in the native, the chat and the Responses
// format. A handler parses the request, calls a service and renders the answer.

import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { DescMethod, JsonObject } from "@bufbuild/protobuf";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError, shuttingDown } from "../base/errors.ts";
import { keepAliveMarginMs, keepAliveTimeoutMs } from "../base/keep-alive.ts";
import type { Log } from "../base/log.ts";
import { Stopwatch } from "../base/stopwatch.ts";
import { addressHeader } from "../contract/callers.ts";
import { allServices, type Core } from "../contract/contract.ts";
import { type Generate, overRpc } from "../contract/generation.ts";
import type { DocsParts } from "../docs/docs.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { TraceHeaders, Tracer } from "../tracing/tracing.ts";
import { aboutOperation, descriptorsOperation, getAbout, getDescriptorSet } from "./about.ts";
import {
  type CredentialForm,
  createFailedCredentials,
  type FailedCredentials,
  type IdentifyCaller,
  type NativeBearer,
  readCredential,
  requireVersion,
} from "./authenticate.ts";
import {
  creditsOperation,
  getCredits,
  getReceipt,
  listReceipts,
  receiptOperation,
  receiptsOperation,
} from "./balance-and-receipts.ts";
import { createReadJson, createReadRaw } from "./body.ts";
import { chatOperation, postChatCompletions } from "./chat-completions.ts";
import { type AddressLoad, allowHalfClose, OpenRequests } from "./connections.ts";
import {
  createAccessLog,
  endOf,
  type RequestContext,
  requestIdHeaders,
  requestIdOf,
} from "./context.ts";
import { docsOperation, docsPaths, getDocs } from "./docs.ts";
import {
  createErrorHandler,
  handleClientError,
  handleFrameworkError,
  noRouteError,
  pathVariants,
  refuseUpgrade,
  type ServedPath,
} from "./error-handler.ts";
import type { Envelope } from "./error-table.ts";
import {
  emptyOperation,
  getEmpty,
  getLiveness,
  getReadiness,
  livenessOperation,
  type Readiness,
  readinessOperation,
} from "./health.ts";
import type { KeyLoad } from "./key-load.ts";
import { countOperation, messagesOperation, postCountTokens, postMessages } from "./messages.ts";
import {
  getModel,
  getModels,
  getModelsInfo,
  modelOperation,
  modelsInfoOperation,
  modelsOperation,
} from "./models.ts";
import {
  bringsCredential,
  createOpenPage,
  type OpenPageParts,
  openModelsOperation,
} from "./open-page.ts";
import {
  billingUsageOperation,
  creditGrantsOperation,
  getBillingUsage,
  getCreditGrants,
  getSubscription,
  subscriptionOperation,
} from "./openai-billing.ts";
import { type DescribedPost, describeApi, getOpenapi, openapiOperation } from "./openapi.ts";
import { methodPath } from "./openapi-services.ts";
import type { DescribedRoute, Operation } from "./operation.ts";
import { RequestMetrics } from "./request-metrics.ts";
import { postResponses, responsesOperation, writeFailedStream } from "./responses.ts";
import { contentKeyBytes, SealedContent } from "./sealed-content.ts";
import { defaultKeepAlive, type KeepAlive } from "./send-answer.ts";
import { createProxyReport } from "./unnamed-proxies.ts";
import { getUsage, usageOperation } from "./usage.ts";
import { postWebhook, webhookOperation } from "./webhooks.ts";

export type { PartState, Readiness } from "./health.ts";

type HttpServerSettings = {
  /** Read at every request, since the configuration file may be reloaded. */
  readonly file: { readonly nativeBearer: NativeBearer };
  /** Addresses or CIDR ranges of the proxies whose `X-Forwarded-For` is trusted. */
  readonly trustedProxies: readonly string[];
  /** Timing of a stream's head and pings. Default: `defaultKeepAlive`. */
  readonly keepAlive?: KeepAlive;
  /** Whether the end of a stream shows what the request was charged. Default: true. */
  readonly showCost?: boolean;
};

export type HttpServerParts = {
  readonly core: Core;
  /** Default: that of `core`. */
  readonly generate?: Generate | undefined;
  readonly settings: HttpServerSettings;
  readonly readiness: () => Promise<Readiness>;
  readonly identifyCaller: IdentifyCaller;
  readonly keyLoad: KeyLoad;
  readonly addressLoad: AddressLoad;
  /** Default: of this listener alone. */
  readonly failedCredentials?: FailedCredentials;
  /** What everybody sees of the models. Absent: nothing. */
  readonly openPage?:
    | (OpenPageParts & {
        /** True for a browser that brings a session, alive or not. */
        readonly mayBeSignedIn: (cookies: string) => boolean;
      })
    | undefined;
  /** The pages of the documents. Absent: there are none. */
  readonly docs?: DocsParts;
  /** What customers have posted to them, by name, for the public description. Default: nothing. */
  readonly posts?: Readonly<Record<string, DescribedPost>>;
  /** Default: with a key of this listener alone. */
  readonly sealedContent?: SealedContent;
  /** Called once an hour with each peer whose `X-Forwarded-For` is not believed. */
  readonly onUnnamedProxy?: ((peer: string) => void) | undefined;
  /** Default: the clock of this machine. */
  readonly clock?: Clock;
  readonly log: Log;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer | undefined;
};

export type HttpServer = FastifyInstance & {
  /** GET /health is 503 from now on, and replies end their connections. Requests are served. */
  leave(): void;
  /** Rejects new requests with 503 from now on. Resolves when the open ones have ended. */
  drain(): Promise<void>;
  /**
   * Accepts no new connections: another process listens on the port too. Serves requests on open
   * connections, with `connection: close`. Resolves when no request is open.
   */
  retire(): Promise<void>;
  /**
   * After `retire`: resolves when no connection is left that its client may still send on. Once
   * `hurry` fires, idle ones are closed after a second instead.
   */
  disconnect(hurry: AbortSignal): Promise<void>;
  /** True once `drain` was called. Routes added from outside reject new requests themselves. */
  isDraining(): boolean;
  /** True once `leave`, `drain` or `retire` was called: each answer ends its connection. */
  endsConnections(): boolean;
  /** Fires once `drain` or `retire` was called: streams without an end of their own must end. */
  readonly stopping: AbortSignal;
};

declare module "fastify" {
  interface FastifyContextConfig {
    /** True for a path that lists leave out, such as the second and third spelling of one. */
    isVariant?: boolean;
    /** What the public description says of the route. Absent: nothing. */
    described?: DescribedRoute | undefined;
  }
}

type Route = {
  readonly method: "GET" | "POST";
  readonly paths: readonly string[];
  readonly envelope: Envelope;
  /** Absent: no credential is needed. */
  readonly credential?: CredentialForm;
  readonly needsVersion?: true;
  /** Checks what is known of the key before the body is read. */
  readonly earlyCheck?: true;
  /** The handler needs the spending of the key this month. */
  readonly monthUsage?: true;
  /** What the public description says of it. */
  readonly operation: Operation;
  /** True: lists of the paths leave it out. */
  readonly isUnlisted?: true;
  readonly run: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;
  /** What this path serves to those who bring no credential. Undefined: nothing. */
  readonly openly?: {
    readonly path: string;
    isOn(): boolean;
    send(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply>;
  };
};

/** Creates the HTTP listener. It does not listen yet. */
export function createHttpServer(parts: HttpServerParts): HttpServer {
  const { trustedProxies } = parts.settings;
  const openRequests = new OpenRequests();
  const metrics = parts.metrics && new RequestMetrics(parts.metrics, () => openRequests.count);
  const app = fastify({
    logger: false,
    genReqId: requestIdOf,
    trustProxy: trustedProxies.length > 0 ? [...trustedProxies] : false,
    // Time in which a client must send its whole request. Answers have no time limit.
    requestTimeout: 300_000,
    keepAliveTimeout: keepAliveTimeoutMs,
    // Requests during a close get this gateway's own 503.
    return503OnClosing: false,
    routerOptions: { maxParamLength: 500 },
    frameworkErrors: handleFrameworkError,
    clientErrorHandler: (error, socket) =>
      handleClientError(error, socket, openRequests.repliesOn(socket)),
    // Node rejects a request without Host with an error that has no request id and no body. No
    // route reads that header.
    http: { requireHostHeader: false, keepAliveTimeoutBuffer: keepAliveMarginMs },
  });
  // Node rejects an unknown `Expect` header with an error that has no request id either.
  app.server.on("checkExpectation", (request, response) =>
    app.server.emit("request", request, response),
  );

  parts.addressLoad.limitConnections(app.server);
  allowHalfClose(app.server, openRequests);

  // On the root, so that they include the routes added from outside.
  const paths = new Set<string>();
  const described: DescribedRoute[] = [];
  app.addHook("onRoute", ({ method, url, config }) => {
    if (!config?.isVariant) paths.add(`${Array.isArray(method) ? "POST" : method} ${url}`);
    if (config?.described && method === config.described.method) described.push(config.described);
  });
  // Made once it is asked for, when all routes are known.
  let made: JsonObject | undefined;
  const document = () => {
    const methods = methodsOf(paths);
    made ??= describeApi({ routes: described, methods, posts: parts.posts ?? {} });
    return made;
  };
  const reportProxy = createProxyReport(
    parts.log,
    trustedProxies,
    parts.clock,
    parts.onUnnamedProxy,
  );
  // On the root, so that a drain also waits for routes added from outside.
  app.addHook("onRequest", (request, reply, done) => {
    const startedMs = metrics ? performance.now() : 0;
    openRequests.add(reply, metrics && (() => metrics.end(request, reply, startedMs)));
    // Its client reset the connection before we accepted it: nobody is there to be answered.
    if (request.raw.socket.remoteAddress === undefined) {
      parts.log.debug({ requestId: request.id, error: "cancelled" }, "client gone");
      reply.hijack();
      request.raw.destroy();
      return;
    }
    if (request.headers["x-forwarded-for"] !== undefined)
      reportProxy(request.raw.socket.remoteAddress);
    parts.addressLoad.countRequest(request, reply);
    done();
  });
  // In a scope, so that its error handler and parsers do not apply to routes added from outside.
  app.register(async (scope) =>
    addRoutes(scope, { ...parts, document, requestMetrics: metrics }, openRequests, paths),
  );
  // Not awaited: `close` itself waits for the connections.
  app.addHook("preClose", async () => void openRequests.drain(app.server));

  return Object.assign(app, {
    leave: () => openRequests.leave(),
    drain: () => openRequests.drain(app.server),
    retire: () => openRequests.retire(app.server),
    disconnect: (hurry: AbortSignal) => openRequests.disconnect(app.server, hurry),
    isDraining: () => openRequests.isDraining,
    endsConnections: () => openRequests.endsConnections,
    stopping: openRequests.stopping,
  });
}

/** `document`: the public description. */
type RouteParts = HttpServerParts & { readonly document: () => JsonObject };

/** Adds every route, and the error of a request that no route serves. */
function addRoutes(
  scope: FastifyInstance,
  parts: RouteParts & { readonly requestMetrics: RequestMetrics | undefined },
  openRequests: OpenRequests,
  paths: ReadonlySet<string>,
): void {
  const { log, settings, identifyCaller, keyLoad, requestMetrics, tracer } = parts;
  const routes = createRoutes(parts, openRequests, () => listPaths(paths));
  const logRequest = createAccessLog(log);

  scope.decorateRequest("context");
  scope.setErrorHandler(createErrorHandler(log));
  // The handlers read the body, after the caller is authenticated.
  scope.removeAllContentTypeParsers();
  // By its name too: Fastify looks up `*` anew for every request, which takes 2 µs.
  const ignored = ["application/json", "*"];
  scope.addContentTypeParser(ignored, (_request, _payload, done) => done(null));

  function begin(
    {
      route,
      pattern,
      envelope,
      credential,
    }: Pick<RequestContext, "route" | "pattern" | "envelope"> & {
      credential?: CredentialForm | undefined;
    },
    request: FastifyRequest,
    reply: FastifyReply,
  ): RequestContext {
    const context: RequestContext = {
      requestId: request.id,
      envelope,
      route,
      pattern,
      startedMs: performance.now(),
      // Probes and descriptions are not worth a trace.
      trace: credential && tracer?.receive(traceHeadersOf(request), `${request.method} ${pattern}`),
      waits: requestMetrics && new Stopwatch(),
      hangUp: new AbortController(),
      // Codex asks for its stream in this header too.
      writeFailure:
        envelope === "responses" && request.headers.accept === "text/event-stream"
          ? writeFailedStream
          : undefined,
      logFields: {},
    };
    request.context = context;
    reply.headers(requestIdHeaders(context.requestId));
    const ended = requestMetrics?.begin(pattern);
    reply.raw.once("close", () => {
      logRequest(request, reply);
      endTrace(request, reply);
      ended?.();
      const isAnswered = reply.raw.writableEnded;
      if (!isAnswered) context.hangUp.abort();
      context.turn?.end(isAnswered);
    });
    return context;
  }

  /** The checks of a caller before its body is read. */
  function checkEarly(
    { earlyCheck, needsVersion }: Route,
    { caller }: NonNullable<RequestContext["identity"]>,
    { context, headers, ip }: FastifyRequest,
  ): void {
    if (earlyCheck && caller.management) throw new ApiError("management_key_here");
    if (needsVersion) context.vendor = requireVersion(headers);
    if (earlyCheck && caller.key) context.turn = keyLoad.check(caller.key, ip, context.requestId);
  }

  function addRoute(url: string, route: Route): void {
    const isVariant = url !== route.paths[0];
    const { method, envelope, credential, monthUsage = false, run } = route;
    const [pattern = url] = route.paths;
    scope.route({
      method,
      url,
      config: {
        isVariant: isVariant || route.isUnlisted === true,
        ...(!isVariant && { described: { ...route, path: url } }),
      },
      onRequest: async (request, reply) => {
        const context = begin({ route: url, pattern, envelope, credential }, request, reply);
        if (!credential) return;
        if (openRequests.isDraining) throw shuttingDown();
        parts.addressLoad.checkRequest(request);
        if (route.openly && servesOpenly(route.openly, url, request)) {
          await route.openly.send(request, reply);
          return;
        }
        const key = readCredential(credential, request.raw, settings.file.nativeBearer);
        const authorization = `Bearer ${key}`;
        const headers = callHeadersOf(authorization, context, request);
        const call = { headers, signal: context.hangUp.signal };
        const attempt = { authorization, address: request.ip, monthUsage };
        const identifying = identifyCaller(attempt, call);
        const identified = identifying instanceof Promise ? await identifying : identifying;
        context.identity = { ...identified, headers };
        checkEarly(route, context.identity, request);
      },
      handler: run,
    });
  }

  // Some clients put a slash behind the address that they were given.
  for (const route of routes)
    for (const url of route.paths)
      for (const one of url === "/" ? [url] : [url, `${url}/`]) addRoute(one, route);

  const served: ServedPath[] = routes.flatMap(({ method, paths }) =>
    paths.map((path) => ({ path, methods: method === "GET" ? ["GET", "HEAD"] : [method] })),
  );
  scope.setNotFoundHandler(async () => {});
  // In the first hook, so that the error is sent before the body is read.
  scope.addHook("onRequest", (request, reply, done) => {
    if (!request.is404) return done();
    begin({ route: "none", pattern: "none", envelope: "union" }, request, reply);
    const { error, allow } = noRouteError(request.method, request.url, served, listPaths(paths));
    if (allow.length > 0) reply.header("allow", allow.join(", "));
    if (allow.includes("POST") && request.headers.upgrade !== undefined) {
      refuseUpgrade(request, reply);
      return;
    }
    done(error);
  });
}

/** The headers of the calls that serve a request. */
function callHeadersOf(
  authorization: string,
  { requestId, trace }: RequestContext,
  request: FastifyRequest,
): Record<string, string> {
  return {
    authorization,
    "x-request-id": requestId,
    [addressHeader]: request.ip ?? "",
    ...repeatHeader(request),
    ...trace?.headers,
  };
}

/** True if this request to `url` is answered without a credential. */
function servesOpenly(
  { path, isOn }: NonNullable<Route["openly"]>,
  url: string,
  request: FastifyRequest,
): boolean {
  return (url === path || url === `${path}/`) && !bringsCredential(request) && isOn();
}

/** How often the SDK of the client has sent the request before. */
function repeatHeader({ headers }: FastifyRequest): Record<string, string> {
  const count = headers["x-stainless-retry-count"];
  return typeof count === "string" ? { "x-stainless-retry-count": count } : {};
}

function traceHeadersOf({ headers }: FastifyRequest): Partial<TraceHeaders> {
  const { traceparent, tracestate } = headers;
  return {
    ...(typeof traceparent === "string" && { traceparent }),
    ...(typeof tracestate === "string" && { tracestate }),
  };
}

function endTrace({ method, context }: FastifyRequest, reply: FastifyReply): void {
  const { trace, identity, pattern, requestId } = context;
  if (!trace?.span) return;
  const key = identity?.caller.key;
  const { status, error, isFailed } = endOf(reply, context);
  trace.span.end(
    {
      "http.request.method": method,
      "http.route": pattern,
      "http.response.status_code": status,
      "error.type": error,
      "gateway.request_id": requestId,
      "gateway.account_id": key?.accountId,
      "gateway.key_id": key?.keyId,
    },
    isFailed ? error : undefined,
  );
}

/** The paths that are served, as `METHOD /path`, without the methods that a wildcard stands for. */
function listPaths(paths: ReadonlySet<string>): string[] {
  const wildcards = [...paths].filter((path) => path.endsWith("/*")).map((one) => one.slice(0, -1));
  return [...paths]
    .filter((path) => path.endsWith("/*") || !wildcards.some((one) => path.startsWith(one)))
    .filter((path) => !path.startsWith("HEAD ") && !path.includes(".reflection."))
    .map((path) => path.replace(/\/:(\w+)/, "/{$1}").replace(/\*$/, "{method}"));
}

/** The methods of the services that are served. */
function methodsOf(paths: ReadonlySet<string>): DescMethod[] {
  return allServices
    .flatMap((service): readonly DescMethod[] => service.methods)
    .filter((desc) => paths.has(`POST ${methodPath(desc)}`));
}

const shared = { method: "GET", envelope: "union", credential: "either" } as const;
const open = { method: "GET", envelope: "union" } as const;

function createRoutes(
  parts: RouteParts,
  openRequests: OpenRequests,
  paths: () => readonly string[],
): readonly Route[] {
  const { core, keyLoad, addressLoad, clock = systemClock } = parts;
  const openPage = parts.openPage && {
    ...createOpenPage(parts.openPage),
    mayBeSignedIn: parts.openPage.mayBeSignedIn,
  };
  const { failedCredentials = createFailedCredentials() } = parts;
  const isDraining = () => openRequests.isDraining;
  return [
    ...generationRoutes(parts),
    ...modelRoutes(core, openPage),
    ...accountRoutes(core),
    {
      method: "POST",
      envelope: "union",
      paths: ["/payments/:processor/webhook"],
      operation: webhookOperation,
      // It is for processors that have a secret: to others there is no such path.
      isUnlisted: true,
      run: postWebhook({
        core,
        addressLoad,
        failedCredentials,
        isDraining,
        readRaw: createReadRaw(keyLoad, clock),
      }),
    },
    ...openRoutes(parts, openRequests, paths, openPage),
  ];
}

/** The routes to models, which read a body. */
function generationRoutes(parts: RouteParts): readonly Route[] {
  const { core, settings, keyLoad, clock = systemClock } = parts;
  const answers = {
    core,
    generate: parts.generate ?? overRpc(core.inference),
    keepAlive: settings.keepAlive ?? defaultKeepAlive,
    showCost: settings.showCost ?? true,
  };
  const native = {
    method: "POST",
    envelope: "native",
    credential: "native",
    needsVersion: true,
  } as const;
  const chat = { method: "POST", envelope: "chat", credential: "chat" } as const;
  const sealedContent = parts.sealedContent ?? new SealedContent([randomBytes(contentKeyBytes)]);
  const readJson = createReadJson(keyLoad, clock);
  return [
    {
      ...native,
      paths: pathVariants("/v1/messages"),
      operation: messagesOperation,
      earlyCheck: true,
      run: postMessages(readJson, sealedContent, answers),
    },
    {
      ...native,
      paths: pathVariants("/v1/messages/count_tokens"),
      operation: countOperation,
      run: postCountTokens(core, readJson, sealedContent),
    },
    {
      ...chat,
      paths: pathVariants("/v1/chat/completions"),
      operation: chatOperation,
      earlyCheck: true,
      run: postChatCompletions(readJson, sealedContent, answers),
    },
    {
      ...chat,
      envelope: "responses",
      paths: pathVariants("/v1/responses"),
      operation: responsesOperation,
      earlyCheck: true,
      run: postResponses(readJson, sealedContent, answers),
    },
  ];
}

type OpenPage = ReturnType<typeof createOpenPage> &
  Pick<NonNullable<RouteParts["openPage"]>, "mayBeSignedIn">;

/** The routes to the list of models. */
function modelRoutes(core: Core, openPage: OpenPage | undefined): readonly Route[] {
  return [
    {
      ...shared,
      paths: pathVariants("/v1/models"),
      operation: modelsOperation,
      run: getModels(core),
      ...(openPage && {
        openly: { path: "/models", isOn: openPage.isOn, send: openPage.sendHtml },
      }),
    },
    {
      ...shared,
      paths: pathVariants("/v1/models/info"),
      operation: modelsInfoOperation,
      run: getModelsInfo(core),
    },
    {
      ...shared,
      paths: pathVariants("/v1/models/:id"),
      operation: modelOperation,
      run: getModel(core),
    },
  ];
}

/** The routes to the credits, the usage and the receipts of a key. */
function accountRoutes(core: Core): readonly Route[] {
  return [
    {
      ...shared,
      paths: ["/v1/credits"],
      operation: creditsOperation,
      monthUsage: true,
      run: getCredits(core),
    },
    { ...shared, paths: ["/v1/usage"], operation: usageOperation, run: getUsage(core) },
    {
      ...shared,
      paths: pathVariants("/v1/dashboard/billing/subscription"),
      operation: subscriptionOperation,
      monthUsage: true,
      run: getSubscription(core),
    },
    {
      ...shared,
      paths: pathVariants("/v1/dashboard/billing/usage"),
      operation: billingUsageOperation,
      monthUsage: true,
      run: getBillingUsage(core),
    },
    {
      ...shared,
      paths: pathVariants("/v1/dashboard/billing/credit_grants"),
      operation: creditGrantsOperation,
      monthUsage: true,
      run: getCreditGrants(core),
    },
    { ...shared, paths: ["/v1/receipts"], operation: receiptsOperation, run: listReceipts(core) },
    {
      ...shared,
      paths: ["/v1/receipts/:requestId"],
      operation: receiptOperation,
      run: getReceipt(core),
    },
  ];
}

/** The routes that need no credential. */
function openRoutes(
  { readiness, addressLoad, document, docs }: RouteParts,
  openRequests: OpenRequests,
  paths: () => readonly string[],
  openPage: OpenPage | undefined,
): readonly Route[] {
  return [
    { ...open, paths: ["/healthz"], operation: livenessOperation, run: getLiveness() },
    {
      ...open,
      paths: ["/health"],
      operation: readinessOperation,
      run: getReadiness(readiness, () => openRequests.isLeaving),
    },
    // Warm-up probes of a coding assistant.
    { ...open, paths: ["/api/hello"], operation: emptyOperation, run: getEmpty() },
    { ...open, paths: ["/"], operation: aboutOperation, run: getAbout(paths, openPage) },
    ...(openPage
      ? [
          {
            ...open,
            paths: ["/models.json"],
            operation: openModelsOperation,
            // Many installations have no such page.
            isUnlisted: true as const,
            async run(request: FastifyRequest, reply: FastifyReply) {
              addressLoad.checkRequest(request);
              return openPage.sendJson(request, reply);
            },
          },
        ]
      : []),
    {
      ...open,
      paths: ["/protos/descriptor.binpb"],
      operation: descriptorsOperation,
      run: getDescriptorSet(),
    },
    { ...open, paths: ["/openapi.json"], operation: openapiOperation, run: getOpenapi(document) },
    ...(docs
      ? [
          {
            ...open,
            paths: docsPaths,
            operation: docsOperation,
            run: getDocs(docs, addressLoad),
          },
        ]
      : []),
  ];
}
