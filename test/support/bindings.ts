// Every binding of the services: local, gRPC, Connect and gRPC-web.

import { create, type Message } from "@bufbuild/protobuf";
import { AnySchema, anyPack } from "@bufbuild/protobuf/wkt";
import {
  type CallOptions,
  Code,
  ConnectError,
  createClient,
  type Transport,
} from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import fastify from "fastify";
import { fromDetails } from "../../src/base/error-details.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import type { ClientTls, ServerTls } from "../../src/config/environment.ts";
import {
  type BoundMethod,
  boundMethod,
  type Core,
  localCore,
  type Services,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { createGrpcServer } from "../../src/grpc/grpc.ts";
import { createIdentifyCaller } from "../../src/http/authenticate.ts";
import { registerConnect } from "../../src/http/connect.ts";
import { defaultLimits } from "./limits.ts";
import { authenticate } from "./scripted-services.ts";

export const bindingNames = [
  "local",
  "gRPC",
  "Connect with JSON",
  "Connect with protobuf",
  "gRPC-web",
] as const;
export type BindingName = (typeof bindingNames)[number];

export type Bindings = Record<BindingName, Core> & {
  grpcUrl: string;
  httpUrl: string;
  close(): Promise<void>;
};

/** `tls`: of the gRPC listener, and the client's side of it. */
export async function startBindings(
  services: Services,
  identify = authenticate,
  tls?: { server: ServerTls; client: ClientTls },
): Promise<Bindings> {
  const server = createGrpcServer({
    services,
    authenticate: identify,
    readiness: async () => ({
      billing: true,
      keys: true,
      inference: true,
      people: true,
      payments: true,
      alerts: true,
      operations: true,
    }),
    allowPlaintext: false,
    ...(tls && { tls: tls.server }),
  });
  const port = await server.listen("127.0.0.1", 0);
  const grpc = grpcCore({ addresses: [`127.0.0.1:${port}`], ...(tls && { tls: tls.client }) });

  const http = fastify();
  const core = localCore(services);
  const identifyCaller = createIdentifyCaller(core, { check() {}, record() {} });
  registerConnect(http, {
    core,
    identifyCaller,
    ...defaultLimits(),
    adminMethods: true,
    isDraining: () => false,
    endsConnections: () => false,
    stopping: new AbortController().signal,
  });
  const baseUrl = await http.listen({ host: "127.0.0.1", port: 0 });
  const options = { baseUrl, httpVersion: "1.1" } as const;

  return {
    local: localCore(services),
    gRPC: grpc,
    "Connect with JSON": coreOver(createConnectTransport({ ...options, useBinaryFormat: false })),
    "Connect with protobuf": coreOver(
      createConnectTransport({ ...options, useBinaryFormat: true }),
    ),
    "gRPC-web": coreOver(createGrpcWebTransport(options)),
    grpcUrl: `http://127.0.0.1:${port}`,
    httpUrl: baseUrl,
    async close() {
      grpc.close();
      await server.drain(0);
      http.server.closeAllConnections();
      await http.close();
    },
  };
}

function coreOver(transport: Transport): Core {
  return {
    billing: createClient(serviceTypes.billing, transport),
    keys: createClient(serviceTypes.keys, transport),
    inference: createClient(serviceTypes.inference, transport),
    people: createClient(serviceTypes.people, transport),
    payments: createClient(serviceTypes.payments, transport),
    alerts: createClient(serviceTypes.alerts, transport),
    operations: createClient(serviceTypes.operations, transport),
  };
}

/** Every method of every service. */
export const methods = Object.values(serviceTypes).flatMap((service) => service.methods);

/** Calls one method and returns all its answers. */
export async function callAll(
  core: Core,
  desc: (typeof methods)[number],
  request: Message,
  options: CallOptions,
): Promise<Message[]> {
  const method = find(core, desc);
  if (method.kind === "unary") return [await method.run(request, options)];
  const answers: Message[] = [];
  for await (const answer of method.run(request, options)) answers.push(answer);
  return answers;
}

function find(core: Core, desc: (typeof methods)[number]): BoundMethod<CallOptions> {
  if (desc.parent === serviceTypes.billing)
    return boundMethod<typeof serviceTypes.billing, CallOptions>(core.billing, desc);
  if (desc.parent === serviceTypes.keys)
    return boundMethod<typeof serviceTypes.keys, CallOptions>(core.keys, desc);
  if (desc.parent === serviceTypes.people)
    return boundMethod<typeof serviceTypes.people, CallOptions>(core.people, desc);
  if (desc.parent === serviceTypes.payments)
    return boundMethod<typeof serviceTypes.payments, CallOptions>(core.payments, desc);
  if (desc.parent === serviceTypes.alerts)
    return boundMethod<typeof serviceTypes.alerts, CallOptions>(core.alerts, desc);
  if (desc.parent === serviceTypes.operations)
    return boundMethod<typeof serviceTypes.operations, CallOptions>(core.operations, desc);
  return boundMethod<typeof serviceTypes.inference, CallOptions>(core.inference, desc);
}

/** The error of a failed call, over any binding. */
export function apiErrorOf(error: unknown): ApiError {
  if (!(error instanceof ConnectError)) return toApiError(error);
  const details = error.details.flatMap((detail) =>
    "type" in detail
      ? create(AnySchema, { typeUrl: `type.googleapis.com/${detail.type}`, value: detail.value })
      : anyPack(detail.desc, create(detail.desc, detail.value)),
  );
  const sent = fromDetails(error.rawMessage, details);
  if (sent) return sent;
  // The client ended the call by itself, without an answer of the gateway.
  if (error.code === Code.Canceled) return new ApiError("cancelled");
  if (error.code === Code.DeadlineExceeded) return new ApiError("timeout");
  throw error;
}
