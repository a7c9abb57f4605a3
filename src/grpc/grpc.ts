// The gRPC listener: serves the three services to internal callers, with the same objects that the
// facade calls in process.

import { once } from "node:events";
import type { DescService, Message } from "@bufbuild/protobuf";
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
import { shuttingDown } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { hostAndPort, type ServerTls } from "../config/environment.ts";
import {
  type Authenticate,
  type BoundMethod,
  boundMethod,
  type Call,
  type Implementation,
  type Services,
  serviceTypes,
} from "../contract/contract.ts";
import { messageBytesMax } from "../contract/message-limits.ts";
import { decodeRequest, encodeMessage, headersOf, pathOf } from "./codec.ts";
import { createHealth, type ServingServices } from "./health.ts";
import { createReflection } from "./reflection.ts";
import { toStatus } from "./status.ts";
import { serverCredentials } from "./tls.ts";

// What grpc-js would print on its own reaches us as errors, and stderr holds one JSON object a
// line.
setLogVerbosity(logVerbosity.NONE);

export type GrpcServer = {
  /**
   * Starts to listen and gives the port, which matters for port 0. Throws for a public address
   * without TLS, or a taken port.
   */
  listen(host: string, port: number): Promise<number>;
  /**
   * Takes no new calls, reports itself as not serving, and waits for the running ones. Those that
   * still run after `limitMs` are aborted and waited for, since they settle what they owe.
   */
  drain(limitMs: number): Promise<void>;
};

export type GrpcServerParts = {
  services: Services;
  /**
   * Asked before a request is read, so that strangers cannot fill our memory. The services ask
   * again.
   */
  authenticate: Authenticate;
  readiness: () => Promise<ServingServices>;
  /** Absent: plaintext. */
  tls?: ServerTls;
  /**
   * Allows plaintext on an address that others can reach, for networks that encrypt by themselves.
   */
  allowPlaintext: boolean;
};

export function createGrpcServer(parts: GrpcServerParts): GrpcServer {
  const calls = new RunningCalls();
  const health = createHealth(parts.readiness);
  const server = new Server({
    interceptors: [admitBeforeReading(parts.authenticate)],
    // One limit for the whole server; smaller ones are checked when a request is decoded.
    "grpc.max_receive_message_length": messageBytesMax,
    // A facade has one connection, and every answer that runs is a stream on it.
    "grpc.max_concurrent_streams": 10_000,
    // Finds out about callers that vanished without a word, and ends what they asked for.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.enable_channelz": 0,
  });
  addService(server, serviceTypes.billing, parts.services.billing, calls);
  addService(server, serviceTypes.keys, parts.services.keys, calls);
  addService(server, serviceTypes.inference, parts.services.inference, calls);
  health.implementation.addToServer(server);
  createReflection(Object.values(serviceTypes)).addToServer(server);

  return {
    async listen(host, port) {
      const credentials = serverCredentials(host, parts.tls, parts.allowPlaintext);
      const bound = await new Promise<number>((resolve, reject) => {
        server.bindAsync(hostAndPort(host, port), credentials, (error, boundPort) =>
          error ? reject(error) : resolve(boundPort),
        );
      });
      await health.follow();
      return bound;
    },
    async drain(limitMs) {
      health.stop();
      const closed = new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
      await withTimeout(calls.ended(), limitMs, () => calls.abort(shuttingDown()));
      await calls.ended();
      // What is left are watchers of the health service, which never end by themselves, and clients
      // that do not read their end.
      await withTimeout(closed, lastBytesMs, () => undefined);
      server.forceShutdown();
    },
  };
}

/** How long a client may take to fetch the end of its last answer. */
const lastBytesMs = 1_000;

function addService<S extends DescService>(
  server: Server,
  service: S,
  implementation: Implementation<S>,
  calls: RunningCalls,
) {
  for (const desc of service.methods) {
    const method = boundMethod(implementation, desc);
    server.register(
      pathOf(desc),
      handlerOf(method, calls),
      (answer: Message) => encodeMessage(desc.output, answer),
      // Decoded by the handler: a failure here would be told as INTERNAL.
      (bytes: Buffer) => bytes,
      method.kind === "unary" ? "unary" : "serverStream",
    );
  }
}

function handlerOf(method: BoundMethod, calls: RunningCalls): UntypedHandleCall {
  if (method.kind === "unary") {
    return (surface: ServerUnaryCall<Buffer, Message>, answer: sendUnaryData<Message>) => {
      calls
        .run(surface, (call) => method.run(decodeRequest(method.desc, surface.request), call))
        .then(
          (message) => answer(null, message),
          (error) => answer(toStatus(error)),
        );
    };
  }
  return (surface: ServerWritableStream<Buffer, Message>) => {
    calls
      .run(surface, async (call) => {
        await writeAll(
          surface,
          method.run(decodeRequest(method.desc, surface.request), call),
          call.signal,
        );
        // A stream that was cut short must not look like a complete one.
        call.signal.throwIfAborted();
      })
      .then(
        () => surface.end(),
        (error) => surface.emit("error", toStatus(error)),
      );
  };
}

/**
 * Writes every message, and asks for each before it writes the one in front: a provider is called
 * before its admission is written, which brings the first token to a facade 0.2 ms earlier.
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
      // Should it fail meanwhile, that is told in its turn.
      next.catch(() => undefined);
      await drained(surface, signal);
    }
  } finally {
    await iterator.return?.();
  }
}

/** Waits for a slow reader. Throws when the call is over, since then nobody reads any more. */
async function drained(
  surface: ServerWritableStream<Buffer, Message>,
  signal: AbortSignal,
): Promise<void> {
  await once(surface, "drain", { signal }).catch((error: unknown) => {
    // The call's own reason says more than that it was aborted.
    signal.throwIfAborted();
    throw error;
  });
}

const ownPaths = new Set(
  Object.values(serviceTypes).flatMap((service) => service.methods.map(pathOf)),
);

/**
 * Refuses a call by its credential while its request still waits in the socket. Health and
 * reflection are open to all.
 */
function admitBeforeReading(authenticate: Authenticate): ServerInterceptor {
  return (method, call) =>
    new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, proceed) => {
            if (!ownPaths.has(method.path)) return proceed(metadata);
            admit(metadata).then(
              () => proceed(metadata),
              (error: unknown) => call.sendStatus(toStatus(error)),
            );
          },
        }),
    });

  async function admit(metadata: Metadata): Promise<void> {
    await authenticate(headersOf(metadata));
  }
}

// The calls that the gRPC server is running at this moment: each with a signal that fires when its
// caller leaves or its deadline passes, and all of them together for the drain.

/** What grpc-js gives for one call, as far as it is needed here. */
type SurfaceCall = {
  readonly metadata: Metadata;
  getDeadline(): Date | number;
  on(event: "cancelled", listener: () => void): unknown;
};

export class RunningCalls {
  readonly #controllers = new Set<AbortController>();
  readonly #count = new WaitGroup();

  /**
   * Runs `work` as one call, until it has ended. Rejects as `work` does, or with
   * `request_too_large` for the metadata.
   */
  async run<T>(surface: SurfaceCall, work: (call: Call) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    this.#controllers.add(controller);
    this.#count.add();
    surface.on("cancelled", () => {
      // grpc-js says so after every call, and means something only during one.
      if (this.#controllers.has(controller)) controller.abort(reasonOf(surface.getDeadline()));
    });
    try {
      return await work({ signal: controller.signal, requestHeader: headersOf(surface.metadata) });
    } finally {
      this.#controllers.delete(controller);
      this.#count.done();
    }
  }

  /** Aborts every call that runs now. */
  abort(reason: Error): void {
    for (const controller of this.#controllers) controller.abort(reason);
  }

  /** Resolves when no call runs. */
  ended(): Promise<void> {
    return this.#count.wait();
  }
}

// grpc-js cancels for both, the passed deadline and the caller that left.
function reasonOf(deadline: Date | number): DOMException {
  return Date.now() >= Number(deadline)
    ? new DOMException("The deadline passed.", "TimeoutError")
    : new DOMException("The caller cancelled.", "AbortError");
}
