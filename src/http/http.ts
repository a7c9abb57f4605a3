// The public HTTP listener: native messages and chat completions over the services. It parses,
// calls a service, renders.

import { performance } from "node:perf_hooks";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { shuttingDown } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Core } from "../contract/contract.ts";
import { createRequestLog } from "./access-log.ts";
import type { IdentifyCaller } from "./authenticate.ts";
import { getCredits, getReceipt } from "./balance-and-receipts.ts";
import { postChatCompletions } from "./chat-completions.ts";
import { hangUpSignal, type RequestContext, requestIdHeaders, requestIdOf } from "./context.ts";
import {
  type CredentialForm,
  type NativeBearer,
  readCredential,
  requireVersion,
} from "./credentials.ts";
import { OpenReplies } from "./drain.ts";
import type { Envelope } from "./error-body.ts";
import {
  answerBadBytes,
  answerBadPath,
  createFailureHandler,
  notServedError,
  pathVariants,
  type Served,
} from "./error-handler.ts";
import { getLiveness, getNothing, getReadiness, type Readiness } from "./health.ts";
import { postCountTokens, postMessages } from "./messages.ts";
import { getModel, getModels, getModelsInfo } from "./models.ts";
import { defaultKeepAlive, type KeepAlive } from "./send-stream.ts";

export type { PartState, Readiness } from "./health.ts";

type HttpServerSettings = {
  /** Asked at every request, since the configuration file may change. */
  readonly nativeBearer: () => NativeBearer;
  /** Addresses or CIDR ranges of the proxies whose `X-Forwarded-For` is believed. Empty: none. */
  readonly trustedProxies: readonly string[];
  /** When a stream's head leaves, and how often something follows. Absent: 12 s, 10 s. */
  readonly pace?: KeepAlive;
};

export type HttpServerParts = {
  readonly core: Core;
  readonly settings: HttpServerSettings;
  readonly readiness: () => Promise<Readiness>;
  readonly identifyCaller: IdentifyCaller;
  readonly log: Log;
};

export type HttpServer = FastifyInstance & {
  /** Refuses new requests from now on with 503; resolves when those that run have ended. */
  drain(): Promise<void>;
  /** True once new requests are refused. Routes that others add refuse theirs by themselves. */
  isDraining(): boolean;
};

type Route = {
  readonly method: "GET" | "POST" | "HEAD";
  readonly paths: readonly string[];
  readonly envelope: Envelope;
  /** Absent: open to all. */
  readonly credential?: CredentialForm;
  readonly needsVersion?: true;
  /** Asks for what the key spent this month. */
  readonly monthUsage?: true;
  readonly run: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;
};

/** The HTTP listener, not yet listening. */
export function createHttpServer(parts: HttpServerParts): HttpServer {
  const { core, log, settings, readiness, identifyCaller } = parts;
  const pace = settings.pace ?? defaultKeepAlive;
  const openReplies = new OpenReplies();
  const logRequest = createRequestLog(log);

  const native = { envelope: "native", credential: "native", needsVersion: true } as const;
  const chat = { envelope: "chat", credential: "chat" } as const;
  const either = { envelope: "union", credential: "either" } as const;
  const open = { envelope: "union" } as const;
  const routes: readonly Route[] = [
    {
      ...native,
      method: "POST",
      paths: pathVariants("/v1/messages"),
      run: postMessages(core, pace),
    },
    {
      ...native,
      method: "POST",
      paths: pathVariants("/v1/messages/count_tokens"),
      run: postCountTokens(core),
    },
    {
      ...chat,
      method: "POST",
      paths: pathVariants("/v1/chat/completions"),
      run: postChatCompletions(core, pace),
    },
    { ...either, method: "GET", paths: pathVariants("/v1/models"), run: getModels(core) },
    { ...either, method: "GET", paths: pathVariants("/v1/models/info"), run: getModelsInfo(core) },
    { ...either, method: "GET", paths: pathVariants("/v1/models/:id"), run: getModel(core) },
    { ...either, monthUsage: true, method: "GET", paths: ["/v1/credits"], run: getCredits(core) },
    { ...either, method: "GET", paths: ["/v1/receipts/:requestId"], run: getReceipt(core) },
    { ...open, method: "GET", paths: ["/healthz"], run: getLiveness() },
    {
      ...open,
      method: "GET",
      paths: ["/health"],
      run: getReadiness(readiness, () => openReplies.isDraining),
    },
    // Warm-up probes of the coding assistant.
    { ...open, method: "GET", paths: ["/api/hello"], run: getNothing() },
    { ...open, method: "HEAD", paths: ["/"], run: getNothing() },
  ];
  const served: Served[] = routes.flatMap(({ method, paths }) =>
    paths.map((path) => ({ path, methods: method === "GET" ? ["GET", "HEAD"] : [method] })),
  );

  const app = fastify({
    logger: false,
    genReqId: requestIdOf,
    trustProxy: settings.trustedProxies.length > 0 ? [...settings.trustedProxies] : false,
    // Time for a client to send its whole request, as in Node itself; answers have no limit.
    requestTimeout: 300_000,
    // While closing, requests get our own 503.
    return503OnClosing: false,
    routerOptions: { maxParamLength: 500 },
    frameworkErrors: answerBadPath,
    clientErrorHandler: (error, socket) =>
      answerBadBytes(error, socket, openReplies.isBusy(socket)),
    // Node's own answer to a request without Host has no id and no body, and nothing here depends
    // on the name.
    http: { requireHostHeader: false },
  });
  // The same holds for an expectation that Node does not know.
  app.server.on("checkExpectation", (request, response) =>
    app.server.emit("request", request, response),
  );

  // Routes that others add are waited for as well.
  app.addHook("onRequest", (_request, reply, done) => {
    openReplies.add(reply);
    done();
  });
  // A scope of its own: nothing in it touches routes that others add.
  app.register(async (scope) => {
    scope.decorateRequest("context");
    scope.setErrorHandler(createFailureHandler(log));
    // Bodies are read by the handlers, after the credential is known to be good.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, _payload, done) => done(null));

    const begin = (
      route: string,
      envelope: Envelope,
      request: FastifyRequest,
      reply: FastifyReply,
    ): RequestContext => {
      const context: RequestContext = {
        requestId: request.id,
        envelope,
        route,
        startedMs: performance.now(),
        logFields: {},
      };
      request.context = context;
      reply.headers(requestIdHeaders(context.requestId));
      if (openReplies.isDraining) reply.header("connection", "close");
      reply.raw.once("close", () => logRequest(request, reply));
      return context;
    };

    for (const {
      method,
      paths,
      envelope,
      credential,
      needsVersion,
      monthUsage = false,
      run,
    } of routes) {
      for (const url of paths) {
        scope.route({
          method,
          url,
          onRequest: async (request, reply) => {
            const context = begin(url, envelope, request, reply);
            if (!credential) return;
            if (openReplies.isDraining) throw shuttingDown();
            const authorization = `Bearer ${readCredential(credential, request.raw, settings.nativeBearer())}`;
            const headers = new Headers({ authorization, "x-request-id": context.requestId });
            const call = { headers, signal: hangUpSignal(reply) };
            const caller = await identifyCaller(
              { authorization, address: request.ip, monthUsage },
              call,
            );
            context.identity = { call, caller };
            if (needsVersion) context.vendor = requireVersion(request.headers);
          },
          handler: run,
        });
      }
    }

    // In the first hook, since the body of a request to nowhere is nobody's business.
    scope.setNotFoundHandler(async () => {});
    scope.addHook("onRequest", (request, reply, done) => {
      if (!request.is404) return done();
      begin("none", "union", request, reply);
      const { error, allow } = notServedError(request.method, request.url, served);
      if (allow.length > 0) reply.header("allow", allow.join(", "));
      done(error);
    });
  });
  // Not awaited: `close` itself waits for connections.
  app.addHook("preClose", async () => void openReplies.drain());

  return Object.assign(app, {
    drain: () => openReplies.drain(),
    isDraining: () => openReplies.isDraining,
  });
}
