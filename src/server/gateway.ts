// One gateway: the services or the way to them, and the listeners that its role opens.

import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { Config } from "../config/environment.ts";
import { hostAndPort } from "../config/environment.ts";
import { type Core, localCore } from "../contract/contract.ts";
import { grpcCore } from "../grpc/client.ts";
import { createGrpcServer } from "../grpc/grpc.ts";
import { createFailedCredentials, createIdentifyCaller } from "../http/authenticate.ts";
import { registerConnect } from "../http/connect.ts";
import { createHttpServer, type Readiness } from "../http/http.ts";
import { type FirstKeys, seed } from "./bootstrap.ts";
import { remoteReadiness } from "./readiness.ts";
import { type GatewayParts, type StartedServices, startServices } from "./services.ts";

export type Gateway = {
  /** Base address of the HTTP listener. Absent in the role `core`. */
  readonly httpAddress?: string;
  /** `host:port` of the gRPC listener. Absent in the role `facade`. */
  readonly grpcAddress?: string;
  /** What the first start made. Absent at later starts. */
  readonly firstKeys?: FirstKeys;
  /** Follows another file, without dropping a request. */
  reload(catalog: CatalogFile): void;
  /**
   * Refuses new requests, lets running ones finish within the drain limit, settles what they owe,
   * and closes everything.
   */
  stop(): Promise<void>;
};

/** A listener that is open. */
type Listener = {
  readonly address: string;
  /** Takes nothing new; resolves when what runs has ended. */
  drain(): Promise<void>;
};

/** Starts a gateway. What was started is stopped again when a later part fails. */
export async function startGateway(parts: GatewayParts): Promise<Gateway> {
  const stack = new AsyncDisposableStack();
  try {
    return await openGateway(parts, stack);
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function openGateway(parts: GatewayParts, stack: AsyncDisposableStack): Promise<Gateway> {
  const { config, log } = parts;
  const running = config.role === "facade" ? undefined : await startServices(parts, stack);
  const core = running ? localCore(running.services) : connectCore(config, stack);
  const readiness = running?.readiness ?? remoteReadiness(core);
  const grpc = running && (await openGrpc(config, running, stack));
  let { nativeBearer } = parts.catalog;
  const http =
    config.role === "core"
      ? undefined
      : await openHttp(parts, core, readiness, () => nativeBearer, stack);
  // Last, so that a start which fails for a taken port has not made the keys that it would have
  // shown.
  const firstKeys =
    running && config.seed ? await seed(core, running.adminToken, config.dataDir) : undefined;
  return {
    ...(http && { httpAddress: http.address }),
    ...(grpc && { grpcAddress: grpc.address }),
    ...(firstKeys && { firstKeys }),
    reload(catalog) {
      running?.reload(catalog);
      ({ nativeBearer } = catalog);
    },
    async stop() {
      await drain([http, grpc], running, config.drainLimitMs, log);
      await stack.disposeAsync();
    },
  };
}

function connectCore(config: Config, stack: AsyncDisposableStack): Core {
  const core = grpcCore({
    addresses: config.coreAddresses,
    ...(config.coreTls && { tls: config.coreTls }),
  });
  stack.defer(() => core.close());
  return core;
}

async function openGrpc(
  config: Config,
  running: StartedServices,
  stack: AsyncDisposableStack,
): Promise<Listener> {
  const server = createGrpcServer({
    services: running.services,
    authenticate: running.authenticate,
    readiness: async () => servingOf(await running.readiness()),
    ...(config.grpcTls && { tls: config.grpcTls }),
    allowPlaintext: config.grpcAllowPlaintext,
  });
  const port = await server.listen(config.grpcHost, config.grpcPort);
  // After a drain nothing is left to do; after a failed start there is nothing to wait for.
  stack.defer(() => server.drain(0));
  // Its own limit comes after ours, which knows how to end and settle what runs.
  const limitMs = config.drainLimitMs + lastBytesMs;
  return { address: hostAndPort(config.grpcHost, port), drain: () => server.drain(limitMs) };
}

function servingOf({ database, providers }: Readiness) {
  const ledger = database?.state !== "down";
  return { billing: ledger, keys: ledger, inference: ledger && providers?.state !== "down" };
}

async function openHttp(
  { config, log }: GatewayParts,
  core: Core,
  readiness: () => Promise<Readiness>,
  nativeBearer: () => CatalogFile["nativeBearer"],
  stack: AsyncDisposableStack,
): Promise<Listener> {
  const { host, port, trustedProxies, httpAdmin } = config;
  const identifyCaller = createIdentifyCaller(core, createFailedCredentials());
  const app = createHttpServer({
    core,
    settings: { nativeBearer, trustedProxies },
    readiness,
    identifyCaller,
    log,
  });
  registerConnect(app, {
    core,
    identifyCaller,
    adminMethods: httpAdmin,
    isDraining: () => app.isDraining(),
  });
  stack.defer(() => {
    // Idle connections of clients would keep the listener open for as long as they like.
    const closed = app.close();
    app.server.closeAllConnections();
    return closed;
  });
  await app.listen({ host, port });
  const address = app.server.address();
  const bound = typeof address === "object" && address ? address.port : port;
  return { address: `http://${hostAndPort(host, bound)}`, drain: () => app.drain() };
}

async function drain(
  doors: (Listener | undefined)[],
  running: StartedServices | undefined,
  limitMs: number,
  log: Log,
) {
  const drained = Promise.all(doors.map((door) => door?.drain())).then(() => true);
  if (await withTimeout(drained, limitMs, () => false)) return;
  log.warn("the drain limit passed: what still runs is ended and settled");
  const ended = Promise.all([drained, running?.cancelActive()]);
  await withTimeout(ended, lastBytesMs, () => undefined);
}

/**
 * How long answers that the drain limit cut short may take to be handed to the ledger, and to be
 * read to their end.
 */
const lastBytesMs = 2_000;
