// A gRPC server on a free port of this machine.

import { onTestFinished } from "vitest";
import type { Core, Services } from "../../src/contract/contract.ts";
import { grpcCore, type RemoteCore } from "../../src/grpc/client.ts";
import { createGrpcServer, type GrpcServer, type GrpcServerParts } from "../../src/grpc/grpc.ts";
import { authenticate } from "./scripted-services.ts";

export const allReady = async () => ({
  billing: true,
  keys: true,
  inference: true,
  people: true,
  payments: true,
  alerts: true,
  operations: true,
});

/** Serves until the test has finished. */
export async function startGrpcServer(
  services: Services,
  changes: Partial<GrpcServerParts> = {},
): Promise<{ server: GrpcServer; port: number; address: string }> {
  const server = createGrpcServer({
    services,
    authenticate,
    readiness: allReady,
    allowPlaintext: false,
    ...changes,
  });
  const port = await server.listen("127.0.0.1", 0);
  onTestFinished(() => server.drain(0));
  return { server, port, address: `127.0.0.1:${port}` };
}

/** A client until the test has finished. */
export function connectGrpc(...addresses: string[]): Core {
  return connectGrpcWith({ addresses });
}

/** As `connectGrpc`. */
export function connectGrpcWith(parts: Parameters<typeof grpcCore>[0]): RemoteCore {
  const core = grpcCore(parts);
  onTestFinished(() => core.close());
  return core;
}
