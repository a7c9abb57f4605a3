// Every binding of the services: local, gRPC, Connect and gRPC-web.

import { create, type DescMethod, type DescService, type Message } from "@bufbuild/protobuf";
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
import type { ClientTls, HttpAdmin, ServerTls } from "../../src/config/environment.ts";
import {
  allServices,
  type BoundMethod,
  boundMethod,
  type ClientOf,
  type Core,
  localCore,
  type Services,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { createGrpcServer } from "../../src/grpc/grpc.ts";
import { createIdentifyCaller, refuseAdminTokens } from "../../src/http/authenticate.ts";
import { registerConnect } from "../../src/http/connect.ts";
import { allReady } from "./grpc-server.ts";
import { defaultLimits } from "./limits.ts";
import { authenticate } from "./scripted-services.ts";

export const httpBindingNames = ["Connect with JSON", "Connect with protobuf", "gRPC-web"] as const;
export const bindingNames = ["local", "gRPC", ...httpBindingNames] as const;
export type BindingName = (typeof bindingNames)[number];

/** The listeners and clients of the HTTP port. */
export type HttpBindings = Record<(typeof httpBindingNames)[number], Core> & {
  httpUrl: string;
  close(): Promise<void>;
};
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
    readiness: allReady,
    allowPlaintext: false,
    ...(tls && { tls: tls.server }),
  });
  const port = await server.listen("127.0.0.1", 0);
  const grpc = grpcCore({ addresses: [`127.0.0.1:${port}`], ...(tls && { tls: tls.client }) });
  const http = await startHttpBindings(services, "true");
  return {
    ...http,
    local: localCore(services),
    gRPC: grpc,
    grpcUrl: `http://127.0.0.1:${port}`,
    async close() {
      grpc.close();
      await server.drain(0);
      await http.close();
    },
  };
}

/** The bindings of the HTTP port, with this HTTP_ADMIN. */
export async function startHttpBindings(
  services: Services,
  httpAdmin: HttpAdmin,
): Promise<HttpBindings> {
  const app = fastify();
  const core = localCore(services);
  const identifyAll = createIdentifyCaller(core, { check() {}, record() {} });
  registerConnect(app, {
    core,
    identifyCaller: httpAdmin === "true" ? identifyAll : refuseAdminTokens(identifyAll),
    ...defaultLimits(),
    adminMethods: httpAdmin !== "false",
    isDraining: () => false,
    endsConnections: () => false,
    stopping: new AbortController().signal,
  });
  const baseUrl = await app.listen({ host: "127.0.0.1", port: 0 });
  const options = { baseUrl, httpVersion: "1.1" } as const;
  return {
    "Connect with JSON": coreOver(createConnectTransport({ ...options, useBinaryFormat: false })),
    "Connect with protobuf": coreOver(
      createConnectTransport({ ...options, useBinaryFormat: true }),
    ),
    "gRPC-web": coreOver(createGrpcWebTransport(options)),
    httpUrl: baseUrl,
    async close() {
      app.server.closeAllConnections();
      await app.close();
    },
  };
}

/** A client of the services of one folder. */
export function clientOver<S extends (typeof serviceTypes)[keyof Core]>(
  { services }: S,
  transport: Transport,
): ClientOf<S> {
  const clients = services.map((service: DescService) => createClient(service, transport));
  return Object.assign({}, ...clients);
}

/** Clients of all services. */
export function coreOver(transport: Transport): Core {
  return {
    billing: clientOver(serviceTypes.billing, transport),
    keys: clientOver(serviceTypes.keys, transport),
    inference: clientOver(serviceTypes.inference, transport),
    people: clientOver(serviceTypes.people, transport),
    payments: clientOver(serviceTypes.payments, transport),
    alerts: clientOver(serviceTypes.alerts, transport),
    operations: clientOver(serviceTypes.operations, transport),
  };
}

/** Every method of every service. */
export const methods: readonly DescMethod[] = allServices.flatMap(({ methods: own }) => own);

/** Calls one method of a service and returns all its answers. */
export function callAll(
  core: Core,
  desc: DescMethod,
  request: Message,
  options: CallOptions,
): Promise<Message[]> {
  return answersOf(find(core, desc), request, options);
}

export async function answersOf(
  method: BoundMethod<CallOptions>,
  request: Message,
  options: CallOptions,
): Promise<Message[]> {
  if (method.kind === "unary") return [await method.run(request, options)];
  const answers: Message[] = [];
  for await (const answer of method.run(request, options)) answers.push(answer);
  return answers;
}

function find(core: Core, desc: DescMethod): BoundMethod<CallOptions> {
  if (serviceTypes.billing.methods.includes(desc))
    return boundMethod<typeof serviceTypes.billing, CallOptions>(core.billing, desc);
  if (serviceTypes.keys.methods.includes(desc))
    return boundMethod<typeof serviceTypes.keys, CallOptions>(core.keys, desc);
  if (serviceTypes.people.methods.includes(desc))
    return boundMethod<typeof serviceTypes.people, CallOptions>(core.people, desc);
  if (serviceTypes.payments.methods.includes(desc))
    return boundMethod<typeof serviceTypes.payments, CallOptions>(core.payments, desc);
  if (serviceTypes.alerts.methods.includes(desc))
    return boundMethod<typeof serviceTypes.alerts, CallOptions>(core.alerts, desc);
  if (serviceTypes.operations.methods.includes(desc))
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
