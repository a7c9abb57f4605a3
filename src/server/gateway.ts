// One gateway: the services, or a client of them, and the listeners that its role opens.

import { hostname } from "node:os";
import { describedPosts } from "../alerts/alerts.ts";
import { loopbackRanges, matchAddresses } from "../base/client-address.ts";
import { aborted, pause, systemClock, withTimeout } from "../base/clock.ts";
import { ApiError, type ErrorReason } from "../base/errors.ts";
import { disconnectMsMax } from "../base/keep-alive.ts";
import { Outbound } from "../base/outbound.ts";
import type { CatalogFile } from "../config/catalog.ts";
import { hostAndPort } from "../config/environment.ts";
import {
  createSessionCookie,
  docsAssets,
  registerConsole,
  settingsFor,
  stylesheetPath,
} from "../console/console.ts";
import { type Core, localCore, toCaller } from "../contract/contract.ts";
import { forwardedCall, forwardTo } from "../contract/forward.ts";
import { type Certificate, createGrpcServer, type GrpcServerParts } from "../grpc/grpc.ts";
import {
  createFailedCredentials,
  createIdentifyCaller,
  refuseAdminTokens,
} from "../http/authenticate.ts";
import { registerConnect } from "../http/connect.ts";
import { AddressLoad } from "../http/connections.ts";
import { createHttpServer, type Readiness } from "../http/http.ts";
import { KeyLoad } from "../http/key-load.ts";
import { SealedContent } from "../http/sealed-content.ts";
import {
  Metrics,
  type MetricsListener,
  readProcess,
  type Snapshot,
  serveMetrics,
  snapshotOf,
} from "../metrics/metrics.ts";
import { createRateLimits } from "../rate-limits/rate-limits.ts";
import { Tracer } from "../tracing/tracing.ts";
import { type FirstKeys, saveAdminToken, seed, signInLinkAdvice } from "./bootstrap.ts";
import { connectCores } from "./cells.ts";
import { watchCertificate } from "./certificate-watch.ts";
import { findContentKeys } from "./content-key.ts";
import type { GatewayParts } from "./parts.ts";
import { watchChanges } from "./payer-changes.ts";
import { remoteReadiness } from "./readiness.ts";
import { type StartedServices, startServices } from "./services.ts";

export type Gateway = {
  /** Base address of the HTTP listener. Absent in the role `core`. */
  readonly httpAddress?: string;
  /** `host:port` of the gRPC listener. Absent in a facade without one. */
  readonly grpcAddress?: string;
  /** Present only at the first start. */
  readonly firstKeys?: FirstKeys;
  /** Base address of the listener of metrics. Absent where there is none, and in a worker. */
  readonly metricsAddress?: string;
  /** The metrics of this process. Empty where none are counted. */
  metrics(): Snapshot;
  /** Takes models, prices, routes and providers from another file. No request is dropped. */
  reload(catalog: CatalogFile): void;
  /** Counts a file that was rejected before it reached `reload`. */
  countRejectedFile(): void;
  /**
   * For the drain delay, reports to balancers that it leaves, and serves the requests that come.
   * Then rejects new requests, lets active ones finish until the drain limit, cancels and settles
   * the rest, and closes everything.
   */
  stop(how?: StopOptions): Promise<void>;
  /** After `stop`: the requests that it could not settle. Other processes will. */
  unsettled(): number;
};

export type StopOptions = {
  /**
   * Other processes serve the same ports: requests on open connections are served instead of
   * rejected, and new connections are left to the others.
   */
  readonly retire?: Retirement | undefined;
  /** Ends the delay and the drain before their time. */
  readonly hurry?: AbortSignal;
};

export type Retirement = {
  /** Called when no request is open. Clients may still send some on connections that they keep. */
  onIdle(): void;
  /** Idle connections are closed instead of left to their clients. */
  readonly closeIdle: AbortSignal;
};

/** An open listener. */
type Listener = {
  readonly address: string;
  /** Reports that it takes no requests. It still serves them. */
  leave(): void;
  /** Rejects new requests. Resolves when the active ones have ended. */
  drain(): Promise<void>;
  /** Leaves new connections to other processes. Resolves when the active requests have ended. */
  retire(): Promise<void>;
};

type HttpListener = Listener & {
  /** After `retire`: resolves when no connection is left, or no request once `hurry` has fired. */
  disconnect(hurry: AbortSignal): Promise<void>;
};

/**
 * After the drain limit: time to queue the cancelled requests' settlements and send their errors.
 */
const cancelLimitMs = 2_000;

/** Starts a gateway. If a part fails to start, the parts before it are stopped again. */
export async function startGateway(parts: GatewayParts): Promise<Gateway> {
  const stack = new AsyncDisposableStack();
  try {
    return await openGateway(parts, stack);
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function openGateway(given: GatewayParts, stack: AsyncDisposableStack): Promise<Gateway> {
  const { config, log } = given;
  const metrics = config.metrics && new Metrics();
  const outbound = stack.adopt(new Outbound(config.proxies), (one) => one.destroy());
  const tracer =
    config.tracing && stack.adopt(new Tracer(config.tracing, log, outbound), (one) => one.close());
  const parts = { ...given, metrics, tracer, outbound };
  const listener = metrics && (await openMetrics(metrics, parts, stack));
  const local = config.role === "facade" ? undefined : await startServices(parts, stack);
  const { core, readiness } = local
    ? { core: localCore(local.services), readiness: local.readiness }
    : await connectCore(parts, stack);
  const served = local ? servedByCore(parts, local) : servedByFacade(core, readiness);
  const grpc = await openGrpc(parts, served, stack);
  if (grpc) local?.servesGrpcOn(grpc.port);
  const file = { nativeBearer: parts.catalog.nativeBearer, catalog: parts.catalog };
  const http =
    config.role === "core"
      ? undefined
      : await openHttp({
          ...parts,
          local,
          services: core,
          readiness,
          file,
          grpcAddress: grpc?.address,
          stack,
        });
  // Last: otherwise a start that fails because a port is in use creates keys and never prints them.
  const firstKeys = local && (await createFirstKeys(core, local, parts));
  let isDraining = false;
  metrics?.readOne("gateway_draining", () => (isDraining ? 1 : 0));
  const countReload = (result: "taken" | "rejected") => {
    if (metrics) metrics.counter("gateway_config_reloads_total", [result]).value += 1;
  };
  return {
    metrics: () => (metrics ? snapshotOf(metrics) : []),
    countRejectedFile: () => countReload("rejected"),
    ...(listener && { metricsAddress: listener.address }),
    ...(http && { httpAddress: http.address }),
    ...(grpc && { grpcAddress: grpc.address }),
    ...(firstKeys && { firstKeys }),
    reload(catalog) {
      local?.reload(catalog);
      Object.assign(file, { nativeBearer: catalog.nativeBearer, catalog });
      countReload("taken");
    },
    async stop({ retire, hurry } = {}) {
      isDraining = true;
      const open = [http, grpc].filter((listener) => listener !== undefined);
      const hurried = hurry && aborted(hurry).then(() => false);
      /** Waits for requests to end. Cancels and settles those that are left after the limit. */
      const finish = async (ending: Promise<void>[], limitMs: number) => {
        const ended = Promise.all(ending).then(() => true);
        const early = Promise.race([ended, ...(hurried ? [hurried] : [])]);
        if (await withTimeout(early, limitMs, () => false)) return;
        log.warn(
          { code: "drain_limit_reached" },
          "drain limit reached: cancelling and settling the active requests",
        );
        const settled = Promise.all([ended, local?.cancelActive()]);
        await withTimeout(settled, cancelLimitMs, () => undefined);
      };
      if (!retire && config.drainDelayMs > 0) {
        for (const listener of open) listener.leave();
        await pause(parts.clock ?? systemClock, config.drainDelayMs, hurry);
      }
      const ending = open.map((listener) => (retire ? listener.retire() : listener.drain()));
      await finish(ending, config.drainLimitMs);
      if (retire && http) {
        retire.onIdle();
        const limitMs = disconnectMsMax + config.drainLimitMs;
        await finish([http.disconnect(retire.closeIdle)], limitMs);
      }
      await stack.disposeAsync();
    },
    unsettled: () => local?.unsettled() ?? 0,
  };
}

/** Opened first and closed last. The parent of several workers has a listener for all of them. */
async function openMetrics(
  metrics: Metrics,
  { config, shared }: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<MetricsListener | undefined> {
  stack.defer(readProcess(metrics));
  if (!config.metrics || shared) return undefined;
  const opening = serveMetrics(config.metrics, () => snapshotOf(metrics));
  return stack.adopt(await opening, (listener) => listener.close());
}

/** Counts the errors that callers get. */
function countErrors(metrics: Metrics | undefined) {
  if (!metrics) return undefined;
  return (reason: ErrorReason) => {
    metrics.counter("gateway_errors_total", [reason]).value += 1;
  };
}

/** Seeds the database if configured. Undefined: nothing was missing. */
async function createFirstKeys(
  core: Core,
  local: StartedServices,
  { config, catalog, log }: GatewayParts,
): Promise<FirstKeys | undefined> {
  const { adminToken, installation } = local;
  const { seed: seeds, dataDir } = config;
  const isGenerated = config.adminToken === undefined && config.databaseUrl === undefined;
  // Without the setting, the file is the only place that has it.
  const savesToken = isGenerated || config.databaseUrl !== undefined;
  const createMissing = async () => {
    const made = seeds ? await seed({ core, dataDir, savesToken, ...local }) : undefined;
    if (!made && isGenerated) await saveAdminToken(dataDir, adminToken, log);
    return made;
  };
  const firstKeys = seeds || isGenerated ? await local.firstStart(createMissing) : undefined;
  if (!firstKeys && !(await installation.hasOperator()))
    log.warn(
      { code: "no_operator" },
      `nobody is an operator of the console yet: ${signInLinkAdvice}`,
    );
  if (catalog.payments?.secondApprovalAboveUsd !== undefined && (await isAlone(installation)))
    log.warn(
      { code: "one_operator" },
      `second_approval_above_usd is set, and nobody else can approve: ${signInLinkAdvice}`,
    );
  return firstKeys;
}

async function isAlone({ countAdmins }: StartedServices["installation"]): Promise<boolean> {
  return (await countAdmins()) === 1;
}

async function connectCore(
  { config, log, metrics, clock }: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<{ core: Core; readiness: () => Promise<Readiness> }> {
  const cores = stack.adopt(await connectCores({ config, log, clock }), (one) => one.close());
  const { certificate } = cores;
  const files = config.coreTls?.files;
  if (certificate && files && Object.values(files).some((path) => path !== "")) {
    const watch = watchCertificate(certificate, files, { log, clock, of: "client" });
    stack.defer(() => watch.stop());
    metrics?.readOne("gateway_certificate_end_seconds", () => endSeconds(certificate));
  }
  return { core: cores.core, readiness: remoteReadiness(cores) };
}

function endSeconds({ endsAt }: Certificate): number | undefined {
  return endsAt && endsAt.getTime() / 1000;
}

/** What a gRPC listener serves. */
type Served = Pick<GrpcServerParts, "services" | "authenticate" | "readiness" | "cells">;

function servedByCore({ config, log }: GatewayParts, local: StartedServices): Served {
  if (config.role === "core" && !config.grpcTls?.clientAuthorities)
    log.warn(
      { code: "client_addresses_unknown" },
      "GRPC_TLS_CLIENT_CA is not set: the address of a facade counts as that of its clients",
    );
  const { services, authenticate, cells } = local;
  const readiness = async () => servingOf(await local.readiness());
  return { services, authenticate, readiness, cells };
}

/** For internal services that know one address. */
function servedByFacade(core: Core, readiness: () => Promise<Readiness>): Served {
  return {
    services: forwardTo(core),
    async authenticate(requestHeader, origin = {}) {
      const call = forwardedCall({ requestHeader, ...origin });
      const caller = toCaller(await core.keys.authenticate({}, call));
      if (!caller) throw new ApiError("invalid_key");
      return caller;
    },
    async readiness() {
      const { core: cores } = await readiness();
      return servingOf({ ...(cores && { database: cores }) });
    },
  };
}

/** Undefined: the facade has no gRPC listener. */
async function openGrpc(
  { config, log, metrics, clock }: GatewayParts,
  served: Served,
  stack: AsyncDisposableStack,
): Promise<(Listener & { readonly port: number }) | undefined> {
  if (config.grpcPort === undefined) return undefined;
  const server = createGrpcServer({
    ...served,
    ...(config.grpcTls && { tls: config.grpcTls }),
    allowPlaintext: config.grpcAllowPlaintext,
    onError: countErrors(metrics),
  });
  const port = await server.listen(config.grpcHost, config.grpcPort);
  const { certificate } = server;
  if (certificate && config.grpcTls?.files) {
    const watch = watchCertificate(certificate, config.grpcTls.files, {
      ...{ log, clock, of: "gRPC listener" as const },
    });
    stack.defer(() => watch.stop());
    metrics?.readOne("gateway_certificate_end_seconds", () => endSeconds(certificate));
  }
  // Waits for nothing: after a drain no call is left, and after a failed start none has begun.
  stack.defer(() => server.drain(0));
  // Later than the drain limit of the gateway, which cancels and settles the active requests.
  const limitMs = config.drainLimitMs + cancelLimitMs;
  // gRPC has a signal of its own for a connection that ends: clients open another one.
  const drain = () => server.drain(limitMs);
  const leave = () => server.leave();
  return { address: hostAndPort(config.grpcHost, port), port, leave, drain, retire: drain };
}

function servingOf({ database, months, providers }: Readiness) {
  const ledger = database?.state !== "down" && months?.state !== "down";
  return {
    billing: ledger,
    keys: ledger,
    inference: ledger && providers?.state !== "down",
    people: ledger,
    payments: ledger,
    alerts: ledger,
    operations: ledger,
  };
}

type HttpParts = GatewayParts & {
  /** Absent in the role `facade`. */
  readonly local: StartedServices | undefined;
  /** The services of this process, or clients of a core. */
  readonly services: Core;
  readonly readiness: () => Promise<Readiness>;
  /** Changes when the configuration file is read again. */
  readonly file: Pick<CatalogFile, "nativeBearer"> & { readonly catalog: CatalogFile };
  readonly grpcAddress: string | undefined;
  readonly stack: AsyncDisposableStack;
};

async function openHttp(parts: HttpParts): Promise<HttpListener> {
  const { config, log, metrics, tracer, shared, local, services } = parts;
  const { readiness, file, grpcAddress, stack } = parts;
  const { host, port, trustedProxies, httpAdmin, streamCost } = config;
  const { core, limits, onPayerChange } = local
    ? { core: services, ...local }
    : {
        ...watchChanges(services),
        limits: createRateLimits({ nodes: alone, limiter: shared?.limiter, log }),
      };
  // The role `facade` cannot start without PUBLIC_URL.
  const configured = config.publicUrl ?? new URL(`http://localhost:${port}`);
  const publicUrl = local?.publicUrl ?? (() => configured);
  const failedCredentials = createFailedCredentials();
  const identifyAll = createIdentifyCaller(core, failedCredentials, onPayerChange);
  const identifyCaller = httpAdmin === "true" ? identifyAll : refuseAdminTokens(identifyAll);
  const { totalBytes, perKeyBytes, perAddressBytes } = config.requestMemory;
  const addressLoad = new AddressLoad({
    max: config.maxConnectionsPerAddress,
    bodyBytesMax: perAddressBytes,
    isExempt: matchAddresses([...loopbackRanges, ...trustedProxies]),
  });
  const keyLoad = new KeyLoad({
    memory: { totalBytes, perKeyBytes },
    addresses: addressLoad,
    rateLimits: limits,
    onPayerChange,
    // A facade has no ledger to count in.
    onRejected: local?.countRejected,
  });
  const cookies = createSessionCookie(publicUrl);
  const app = createHttpServer({
    core,
    generate: local?.generate,
    settings: { file, trustedProxies, showCost: streamCost },
    readiness,
    identifyCaller,
    keyLoad,
    addressLoad,
    failedCredentials,
    openPage: {
      file: () => file.catalog,
      publicUrl,
      stylesheet: stylesheetPath,
      mayBeSignedIn: (header) => cookies.readSession(header) !== undefined,
    },
    docs: { publicUrl, assets: docsAssets },
    posts: describedPosts,
    sealedContent: new SealedContent(await findContentKeys(config)),
    onUnnamedProxy: local?.noteProxy,
    log,
    metrics,
    tracer,
  });
  const adminMethods = httpAdmin !== "false";
  registerConnect(app, {
    core,
    identifyCaller,
    keyLoad,
    addressLoad,
    failedCredentials,
    adminMethods,
    isDraining: () => app.isDraining(),
    endsConnections: () => app.endsConnections(),
    stopping: app.stopping,
    grpcAddress,
    sessionCookie: cookies,
    onError: countErrors(metrics),
  });
  registerConsole(app, {
    core,
    log,
    people: core.people,
    publicUrl,
    cookies,
    adminMethods,
    checkRequest: (request) => addressLoad.checkRequest(request),
    // Counts wrong credentials, and refuses those of admin tokens where the port does.
    identify: async ({ authorization, address }, call) =>
      identifyCaller({ authorization, address, monthUsage: false }, call),
    isDraining: () => app.isDraining(),
  });
  stack.defer(() => {
    // Otherwise idle client connections keep the listener open.
    const closed = app.close();
    app.server.closeAllConnections();
    return closed;
  });
  await app.listen({ host, port });
  const address = app.server.address();
  const bound = typeof address === "object" && address ? address.port : port;
  local?.listensOn(bound);
  if (!config.publicUrl && !matchAddresses([...loopbackRanges])(host) && host !== "localhost")
    log.info(
      `people sign in to the console at ${publicUrl().origin} alone; to reach it from elsewhere, ` +
        `put a proxy that speaks https in front, and set ${settingsFor(hostname())}`,
    );
  return {
    address: `http://${hostAndPort(host, bound)}`,
    leave: () => app.leave(),
    drain: () => app.drain(),
    retire: () => app.retire(),
    disconnect: (hurry) => app.disconnect(hurry),
  };
}

/** A facade counts the failed requests by itself, with the other workers of its parent. */
const alone = { id: () => "facade", live: () => ["facade"] };

declare module "../base/log.ts" {
  interface LogCodes {
    /** set `GRPC_TLS_CLIENT_CA`, or accept that all people share the address of the facade */
    client_addresses_unknown: true;
    /**
     * answers were cut at the end of a process; raise `DRAIN_LIMIT_SECONDS` if they may take longer
     */
    drain_limit_reached: true;
    /** run `npm run sign-in-link` for the first operator */
    no_operator: true;
    /** nobody can approve what waits; make somebody else an operator admin */
    one_operator: true;
  }
}
