// Connect and gRPC-web: the three services on the public HTTP listener, so that browsers and `curl`
// with JSON can manage keys and read usage. The routes call Core, so they work in every role.

import { type DescService, getOption, type Message } from "@bufbuild/protobuf";
import {
  type CallOptions,
  type ConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import type { FastifyInstance } from "fastify";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { shuttingDown } from "../base/errors.ts";
import {
  type BoundMethod,
  boundMethod,
  type Core,
  type Implementation,
  serviceTypes,
} from "../contract/contract.ts";
import { recursionLimit, requestBytesMax } from "../contract/message-limits.ts";
import type { IdentifyCaller } from "./authenticate.ts";
import { checkEnumNames } from "./connect-enums.ts";
import { toConnectError } from "./connect-error.ts";

export type ConnectParts = {
  core: Core;
  identifyCaller: IdentifyCaller;
  /** True: also serves the methods that only the operator may call. */
  adminMethods: boolean;
  /** True after the listener has stopped accepting calls. */
  isDraining: () => boolean;
};

/**
 * Adds the routes `/<service>/<method>` to `app`. Sends no CORS header, so that pages of other
 * origins cannot call them.
 */
export function registerConnect(app: FastifyInstance, parts: ConnectParts): void {
  app.register(fastifyConnectPlugin, {
    routes: (router) => {
      addMethods(router, serviceTypes.billing, parts.core.billing, parts.adminMethods);
      addMethods(router, serviceTypes.keys, parts.core.keys, parts.adminMethods);
      addMethods(router, serviceTypes.inference, parts.core.inference, parts.adminMethods);
      for (const [index, handler] of router.handlers.entries())
        router.handlers[index] = checkEnumNames(handler);
    },
    // Administrative messages are small, and generation streams. Neither is worth a decompressor
    // that unauthenticated callers could overload.
    acceptCompression: [],
    binaryOptions: { recursionLimit },
    jsonOptions: { recursionLimit },
    contextValues: (request) => createContextValues().set(clientAddress, request.ip),
    requestGate: (context) => admit(parts, context),
  });
}

const clientAddress = createContextKey("", { description: "address of the client" });

/** Authenticates a call before its request is read. The services authenticate again. */
async function admit(
  { identifyCaller, isDraining }: ConnectParts,
  context: HandlerContext,
): Promise<void> {
  const authorization = context.requestHeader.get("authorization") ?? "";
  const address = context.values.get(clientAddress);
  try {
    if (isDraining()) throw shuttingDown();
    await identifyCaller({ authorization, address, monthUsage: false }, callOf(context));
  } catch (error) {
    throw toConnectError(error);
  }
}

function addMethods<S extends DescService>(
  router: ConnectRouter,
  service: S,
  client: Implementation<S, CallOptions>,
  adminMethods: boolean,
): void {
  for (const desc of service.methods) {
    if (adminMethods || getOption(desc, callers).key) addMethod(router, boundMethod(client, desc));
  }
}

function addMethod(router: ConnectRouter, method: BoundMethod<CallOptions>): void {
  // gRPC needs HTTP/2 and has its own listener. (The option of the router does not apply to methods
  // with options.)
  const options = { readMaxBytes: requestBytesMax(method.desc), grpc: false };
  if (method.kind === "unary") {
    router.rpc(
      method.desc,
      async (request: Message, context: HandlerContext) => {
        try {
          return await method.run(request, callOf(context));
        } catch (error) {
          throw toConnectError(error);
        }
      },
      options,
    );
    return;
  }
  router.rpc(
    method.desc,
    async function* (request: Message, context: HandlerContext) {
      try {
        yield* method.run(request, callOf(context));
      } catch (error) {
        throw toConnectError(error);
      }
    },
    options,
  );
}

// Other headers stay in the listener.
const forwarded = ["authorization", "x-request-id"];

function callOf({ requestHeader, signal }: HandlerContext): CallOptions {
  const headers = new Headers();
  for (const name of forwarded) {
    const value = requestHeader.get(name);
    if (value !== null) headers.set(name, value);
  }
  return { headers, signal };
}
