// The gRPC listener. It serves every service to internal callers and to separate facades, with
// the same service objects that the HTTP listener calls in this process.

import { once } from "node:events";
import { getOption, type Message } from "@bufbuild/protobuf";
import {
  logVerbosity,
  type Metadata,
  Server,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  setLogVerbosity,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import { CellsService } from "../../gen/gateway/cells/v1/cells_pb.ts";
import { callers, endless } from "../../gen/gateway/common/v1/options_pb.ts";
import { withTimeout } from "../base/clock.ts";
import { type ApiError, type ErrorReason, shuttingDown, toApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { hostAndPort, type ServerTls } from "../config/environment.ts";
import {
  type Authenticate,
  allServices,
  type BoundMethod,
  boundMethod,
  type Call,
  type Implementation,
  type Methods,
  type Services,
  serviceTypes,
} from "../contract/contract.ts";
import { decodeRequest } from "../contract/decode-request.ts";
import { messageBytesMax } from "../contract/message-limits.ts";
import { cellHeader, encodeMessage, headersOf, pathOf } from "./codec.ts";
import { createHealth, type ServingServices } from "./health.ts";
import { createReflection } from "./reflection.ts";
import { toStatus } from "./status.ts";
import { Certificate, serverCredentials } from "./tls.ts";

// grpc-js also reports its messages as errors, and stderr must hold only JSON lines.
setLogVerbosity(logVerbosity.NONE);

export type { Certificate } from "./tls.ts";

export type GrpcServer = {
  /** Undefined: plaintext. */
  readonly certificate: Certificate | undefined;
  /**
   * Starts to listen and returns the port, for callers that passed port 0. Throws for a public
   * address without TLS and for a port in use.
   */
  listen(host: string, port: number): Promise<number>;
  /** Reports NOT_SERVING from now on. Calls are served. */
  leave(): void;
  /**
   * Accepts no new calls, reports NOT_SERVING, and waits for the active calls. After `limitMs` it
   * aborts the remaining ones and waits for them again, because they still settle their holds.
   */
  drain(limitMs: number): Promise<void>;
};

export type GrpcServerParts = {
  services: Services;
  /**
   * Runs before a request is read, so that unauthenticated callers cannot fill the memory. The
   * services authenticate again.
   */
  authenticate: Authenticate;
  readiness: () => Promise<ServingServices>;
  /** Of a core: what facades of several cells ask. */
  cells?: CellServing | undefined;
  /** Called with the reason of each error that a caller gets. */
  onError?: ((reason: ErrorReason) => void) | undefined;
  /** Absent: plaintext. */
  tls?: ServerTls;
  /**
   * Allows plaintext on an address that other machines can reach, for networks that encrypt.
   */
  allowPlaintext: boolean;
};

/** What a core answers to facades, and to whom. */
export type CellServing = {
  readonly service: Implementation<typeof CellsService>;
  /**
   * The error of a call for another cell or database than this one, by its header `x-cell`.
   * Undefined: it is for this one.
   */
  refusalOf(addressed: string): ApiError | undefined;
};

export function createGrpcServer(parts: GrpcServerParts): GrpcServer {
  // With client authorities, every connection has presented a certificate that one of them signed.
  const namesClient = parts.tls?.clientAuthorities !== undefined;
  const calls = new ActiveCalls(namesClient);
  const certificate =
    parts.tls && new Certificate({ ...parts.tls, authorities: parts.tls.clientAuthorities });
  const fail = (error: unknown) => {
    parts.onError?.(toApiError(error).reason);
    return toStatus(error);
  };
  const health = createHealth(parts.readiness);
  const server = new Server({
    interceptors: [authenticateBeforeReading(parts, fail, namesClient)],
    // grpc-js has one limit for the whole server. `decodeRequest` checks the smaller ones.
    "grpc.max_receive_message_length": messageBytesMax,
    // A facade has one connection, with one stream for each running request.
    "grpc.max_concurrent_streams": 10_000,
    // Detects lost callers, so that their calls are cancelled.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.enable_channelz": 0,
  });
  addService(server, serviceTypes.billing, parts.services.billing, calls, fail);
  addService(server, serviceTypes.keys, parts.services.keys, calls, fail);
  addService(server, serviceTypes.inference, parts.services.inference, calls, fail);
  addService(server, serviceTypes.people, parts.services.people, calls, fail);
  addService(server, serviceTypes.payments, parts.services.payments, calls, fail);
  addService(server, serviceTypes.alerts, parts.services.alerts, calls, fail);
  addService(server, serviceTypes.operations, parts.services.operations, calls, fail);
  if (parts.cells) addService(server, CellsService, parts.cells.service, calls, fail);
  health.implementation.addToServer(server);
  createReflection().addToServer(server);

  return {
    certificate,
    async listen(host, port) {
      const credentials = serverCredentials(host, certificate, parts.allowPlaintext);
      const bound = await new Promise<number>((resolve, reject) => {
        server.bindAsync(hostAndPort(host, port), credentials, (error, boundPort) =>
          error ? reject(error) : resolve(boundPort),
        );
      });
      await health.follow();
      return bound;
    },
    leave: () => health.stop(),
    async drain(limitMs) {
      health.stop();
      calls.stopEndless(shuttingDown());
      const closed = new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
      await withTimeout(calls.ended(), limitMs, () => calls.abort(shuttingDown()));
      await calls.ended();
      // The remaining streams are watchers of the health service, which never end by themselves,
      // and clients that do not read to the end.
      await withTimeout(closed, lastBytesMs, () => undefined);
      server.forceShutdown();
    },
  };
}

/** How long a client may take to read the end of its last answer. */
const lastBytesMs = 1_000;

function addService<S extends Methods>(
  server: Server,
  service: S,
  implementation: Implementation<S>,
  calls: ActiveCalls,
  fail: Fail,
) {
  for (const desc of service.methods) {
    const method = boundMethod(implementation, desc);
    server.register(
      pathOf(desc),
      handlerOf(method, calls, fail),
      (answer: Message) => encodeMessage(desc.output, answer),
      // The handler decodes. An error thrown here would become INTERNAL.
      (bytes: Buffer) => bytes,
      method.kind === "unary" ? "unary" : "serverStream",
    );
  }
}

/** The status of an error. Counts it. */
type Fail = (error: unknown) => ReturnType<typeof toStatus>;

function handlerOf(method: BoundMethod, calls: ActiveCalls, fail: Fail): UntypedHandleCall {
  if (method.kind === "unary") {
    return (surface: ServerUnaryCall<Buffer, Message>, answer: sendUnaryData<Message>) => {
      calls
        .run(surface, (call) => method.run(decodeRequest(method.desc, surface.request), call))
        .then(
          (message) => answer(null, message),
          (error) => answer(fail(error)),
        );
    };
  }
  const isEndless = getOption(method.desc, endless);
  return (surface: ServerWritableStream<Buffer, Message>) => {
    const write = async (call: Call) => {
      const messages = method.run(decodeRequest(method.desc, surface.request), call);
      await writeAll(surface, messages, call.signal);
      // An aborted stream must not look complete.
      call.signal.throwIfAborted();
    };
    calls.run(surface, write, isEndless).then(
      () => surface.end(),
      (error) => surface.emit("error", fail(error)),
    );
  };
}

/**
 * Writes every message, and requests the next one before each write. So a provider is called before
 * the admission is written, and the first token reaches a facade 0.2 ms earlier.
 */
async function writeAll(
  surface: ServerWritableStream<Buffer, Message>,
  messages: AsyncIterable<Message>,
  signal: AbortSignal,
): Promise<void> {
  const iterator = messages[Symbol.asyncIterator]();
  try {
    let next = iterator.next();
    for (let read = await next; !read.done; read = await next) {
      next = iterator.next();
      if (surface.write(read.value)) continue;
      // If it rejects meanwhile, the loop throws that error when it awaits it.
      next.catch(() => undefined);
      await drained(surface, signal);
    }
  } finally {
    await iterator.return?.();
  }
}

/** Waits until a slow reader has caught up. Throws when the call has been aborted. */
async function drained(
  surface: ServerWritableStream<Buffer, Message>,
  signal: AbortSignal,
): Promise<void> {
  await once(surface, "drain", { signal }).catch((error: unknown) => {
    // The abort reason of the call is more specific than the AbortError of `once`.
    signal.throwIfAborted();
    throw error;
  });
}

/** The paths that need a credential. */
const guardedPaths = new Set(
  allServices.flatMap((service) =>
    service.methods.filter((desc) => !getOption(desc, callers).anyone).map(pathOf),
  ),
);

/**
 * Authenticates a call while its request still waits in the socket. Methods for everybody, health
 * and reflection need no credential.
 */
function authenticateBeforeReading(
  { authenticate, cells }: Pick<GrpcServerParts, "authenticate" | "cells">,
  fail: Fail,
  namesClient: boolean,
): ServerInterceptor {
  return (method, call) =>
    new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, proceed) => {
            const [addressed] = cells ? metadata.get(cellHeader) : [];
            const refusal = addressed ? cells?.refusalOf(String(addressed)) : undefined;
            if (refusal) return call.sendStatus(fail(refusal));
            if (!guardedPaths.has(method.path)) return proceed(metadata);
            const origin = { namesClient, peer: peerOf(call) };
            // Too much metadata throws.
            Promise.try(() => authenticate(headersOf(metadata), origin)).then(
              () => proceed(metadata),
              (error: unknown) => call.sendStatus(fail(error)),
            );
          },
        }),
    });
}

/** IP address of the other side. */
function peerOf(call: Pick<SurfaceCall, "getPeer">): string {
  return call.getPeer().replace(/:\d+$/, "");
}

/** The part of a grpc-js server call that this file uses. */
type SurfaceCall = {
  readonly metadata: Metadata;
  getDeadline(): Date | number;
  /** `address:port`. */
  getPeer(): string;
  on(event: "cancelled", listener: () => void): unknown;
};

/**
 * The active calls. Each has a signal that fires when its caller disconnects or its deadline
 * passes. The drain waits for all of them.
 */
class ActiveCalls {
  readonly #controllers = new Set<AbortController>();
  readonly #endless = new Set<AbortController>();
  #stopReason: Error | undefined;
  readonly #count = new WaitGroup();
  readonly #namesClient: boolean;

  /** `namesClient`: the callers are facades of ours, which name their clients. */
  constructor(namesClient: boolean) {
    this.#namesClient = namesClient;
  }

  /**
   * Runs `work` as one call. Rejects as `work` does, or with `request_too_large` if the metadata is
   * too large. `isEndless`: the call ends when the listener stops.
   */
  async run<T>(
    surface: SurfaceCall,
    work: (call: Call) => Promise<T>,
    isEndless = false,
  ): Promise<T> {
    const controller = new AbortController();
    this.#controllers.add(controller);
    if (isEndless) this.#endless.add(controller);
    // A call of a connection that is still open.
    if (isEndless && this.#stopReason) controller.abort(this.#stopReason);
    this.#count.add();
    surface.on("cancelled", () => {
      // grpc-js emits this event after every call too.
      if (this.#controllers.has(controller)) controller.abort(reasonOf(surface.getDeadline()));
    });
    try {
      return await work({
        signal: controller.signal,
        requestHeader: headersOf(surface.metadata),
        namesClient: this.#namesClient,
        peer: peerOf(surface),
      });
    } finally {
      this.#controllers.delete(controller);
      this.#endless.delete(controller);
      this.#count.done();
    }
  }

  /** Ends the endless calls, from now on. */
  stopEndless(reason: Error): void {
    this.#stopReason = reason;
    for (const controller of this.#endless) controller.abort(reason);
  }

  /** Aborts every active call. */
  abort(reason: Error): void {
    for (const controller of this.#controllers) controller.abort(reason);
  }

  /** Resolves when no call is active. */
  ended(): Promise<void> {
    return this.#count.wait();
  }
}

// grpc-js emits `cancelled` for a passed deadline as well as for a disconnected caller.
function reasonOf(deadline: Date | number): DOMException {
  return Date.now() >= Number(deadline)
    ? new DOMException("The deadline passed.", "TimeoutError")
    : new DOMException("The caller cancelled.", "AbortError");
}
