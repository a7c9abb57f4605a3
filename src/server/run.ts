// One gateway as a process, alone or as a worker: signals, reload, exit.

import { withTimeout } from "../base/clock.ts";
import { retireMsMax } from "../base/keep-alive.ts";
import { exitProcess } from "../base/stderr.ts";
import type { CatalogFile } from "../config/catalog.ts";
import {
  type Embedded,
  type EmbeddedOptions,
  startEmbedded,
  templateFolder,
} from "../postgres/embedded/embedded.ts";
import type { Gateway } from "./gateway.ts";
import type { GatewayParts } from "./parts.ts";
import { shrinkWhenIdle } from "./shrink-heap.ts";
import { onEndSignals } from "./signals.ts";
import type { Parent } from "./worker.ts";

/** How long a worker without its parent finishes active requests, and when it is ended. */
const orphanDrainMs = 5_000;
const orphanExitMs = 9_000;
/** How long an exit waits for a bundle of the console that is being made. It takes a second. */
const bundleMsMax = 10_000;
/** How long a stop waits for a start that goes on. */
const startMsMax = 10_000;
/**
 * After the drain: time to settle what is left, to leave the ledger and to stop the embedded
 * database. A process that is not done then ends all the same.
 */
const closeMsMax = 25_000;

/**
 * Starts a gateway. Exits with 1 if it cannot start, and with 0 after it has stopped.
 * `readCatalog` reads the configuration file again; it throws an Error with all problems of it.
 */
export async function runGateway(
  parts: Omit<GatewayParts, "embedded" | "shared">,
  readCatalog: (text?: string) => CatalogFile,
  parent?: Parent,
): Promise<void> {
  const { config, log } = parts;
  const giveUp = new AbortController();
  const onLost = () => void stop({ reason: "database lost", exitCode: 1 });
  const starting = start({ ...parts, giveUp: giveUp.signal }, parent, onLost);
  const hurry = new AbortController();
  const closeIdle = new AbortController();
  let isStopping = false;
  let isReady = false;

  // A second signal stops the process at once. The next start settles the active requests.
  onEndSignals(
    (signal) => {
      if (!parent) void stop({ signal });
      // A terminal sends Ctrl-C to the parent as well, which ends its workers by a message.
      else if (signal === "SIGTERM") {
        parent.report("leaving");
        void stop({ signal, retire: true });
      }
    },
    () => void exitProcess(1),
  );
  // A worker gets the file from its parent.
  process.on("SIGHUP", () => void (parent ? undefined : reload()));
  // Its default would end the process.
  process.on("SIGUSR2", () =>
    log.warn(
      { code: "signal_ignored" },
      "SIGUSR2 ignored: it is for the parent of several workers",
    ),
  );
  parent?.onReload(reload);
  parent?.onMetrics(async () => (await starting).metrics());
  parent?.onStop((reason) => {
    if (reason !== "retire") closeIdle.abort();
    if (reason === "orphaned") {
      setTimeout(() => hurry.abort(), orphanDrainMs);
      setTimeout(() => void exitProcess(1), orphanExitMs);
    }
    void stop({ reason, retire: reason !== "stop" });
  });

  try {
    const gateway = await starting;
    isReady = true;
    const { httpAddress: http, grpcAddress: grpc, firstKeys } = gateway;
    const { renderBanner } = await import("./bootstrap.ts");
    const announcement =
      firstKeys && http !== undefined
        ? renderBanner(firstKeys, http, config.dataDir, process.stdout.isTTY === true)
        : `The model gateway runs at ${http ?? grpc}`;
    if (parent) parent.ready({ announcement, http, grpc });
    else {
      console.log(announcement);
      const { metricsAddress: metrics } = gateway;
      const ms = Math.round(performance.now());
      log.info({ http, grpc, metrics, role: config.role, ms }, "ready");
    }
    shrinkWhenIdle(log);
  } catch (error) {
    // `stop` ends the process.
    if (giveUp.signal.aborted) return;
    log.debug({ err: error }, "the gateway failed to start");
    const { startupErrorMessage } = await import("./startup-error.ts");
    const problem = startupErrorMessage(error, config);
    if (parent) await parent.fail(problem);
    else console.error(problem);
    await exit(1);
  }

  /** The bundler would fill stderr with its own state if this process ended before it. */
  async function exit(code: number): Promise<void> {
    const { bundleInProgress } = await import("../console/console.ts");
    const bundling = bundleInProgress();
    if (bundling) await withTimeout(bundling, bundleMsMax, () => undefined);
    await exitProcess(code);
  }

  async function stop({ retire = false, exitCode = 0, ...why }: StopCause): Promise<void> {
    if (isStopping) return;
    isStopping = true;
    log.info(
      { ...why, delayMs: retire ? 0 : config.drainDelayMs, limitMs: config.drainLimitMs },
      retire
        ? "draining: leaving new connections to other workers, finishing active requests"
        : "draining: rejecting new requests after the delay, finishing active ones",
    );
    try {
      const gateway = await findStarted();
      if (gateway) await stopGateway(gateway, retire);
      log.info("stopped");
      await exit(gateway && gateway.unsettled() > 0 ? 1 : exitCode);
    } catch (error) {
      // A start cannot end without its parent.
      if (why.reason === "orphaned" && !isReady)
        log.info({ err: error }, "the parent died while this worker was starting: exiting");
      else log.error({ code: "stop_failed", err: error }, "the gateway failed to stop cleanly");
      await exitProcess(1);
    }
  }

  async function stopGateway(gateway: Gateway, retire: boolean): Promise<void> {
    const { drainDelayMs, drainLimitMs } = config;
    const limitMs = retire ? retireMsMax(drainLimitMs) : drainDelayMs + drainLimitMs;
    const retirement = { onIdle: () => parent?.report("idle"), closeIdle: closeIdle.signal };
    const stopped = gateway.stop({ hurry: hurry.signal, retire: retire ? retirement : undefined });
    await withTimeout(stopped, limitMs + closeMsMax, () => {
      throw new Error("a part of the gateway did not stop in time");
    });
    await parent?.leave(gateway.metrics());
  }

  /** The gateway, if it has started or will soon. Undefined: it gave up waiting for a database. */
  async function findStarted(): Promise<Gateway | undefined> {
    giveUp.abort();
    try {
      return await withTimeout(starting, startMsMax, () => {
        throw new Error("the gateway was starting, and did not get ready or fail in time");
      });
    } catch (error) {
      if (error === giveUp.signal.reason) return undefined;
      throw error;
    }
  }

  /** False: the file has a mistake. */
  async function reload(text?: string): Promise<boolean> {
    try {
      const gateway = await starting;
      gateway.reload(readCatalog(text));
      log.info("configuration file reloaded");
      return true;
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      void starting.then((gateway) => gateway.countRejectedFile()).catch(() => undefined);
      log.error(
        { code: "config_rejected", problem },
        "new configuration file rejected; the current one stays in effect",
      );
      return false;
    }
  }
}

/** Starts the database, and imports the services meanwhile: each takes half a second. */
async function start(
  parts: Omit<GatewayParts, "embedded" | "shared">,
  parent: Parent | undefined,
  onLost: () => void,
): Promise<Gateway> {
  const { log } = parts;
  log.debug("starting");
  const launched = Promise.withResolvers<void>();
  const embedded = startDatabase(parts, parent, { onLaunched: launched.resolve, onLost });
  // The code that needs the database handles its error.
  void Promise.allSettled([embedded]).then(() => launched.resolve());
  // The imports let nothing else run: they would delay each step up to here.
  await launched.promise;
  try {
    const { startGateway } = await import("./gateway.ts");
    log.debug("services imported");
    return await startGateway({ ...parts, embedded, ...(parent && { shared: parent.shared }) });
  } catch (error) {
    // The gateway may have failed before it asked for the database.
    await embedded?.then(
      (database) => database.stop(),
      () => undefined,
    );
    throw error;
  }
}

/** Undefined: another database is configured, or none is needed. */
function startDatabase(
  { config, log }: Pick<GatewayParts, "config" | "log">,
  parent: Parent | undefined,
  on: Pick<EmbeddedOptions, "onLaunched" | "onLost">,
): Promise<Embedded> | undefined {
  if (config.databaseUrl !== undefined || config.role === "facade") return undefined;
  const url = parent?.embeddedUrl;
  if (url === undefined)
    return startEmbedded(config.dataDir, log, { templates: templateFolder, ...on });
  return Promise.resolve({ url, stop: async () => {} });
}

type StopCause = {
  readonly signal?: string;
  readonly reason?: string;
  readonly retire?: boolean;
  /** Of a clean stop. Default: 0. */
  readonly exitCode?: number;
};

declare module "../base/log.ts" {
  interface LogCodes {
    /** correct the configuration file and send SIGHUP again; the old file is in use */
    config_rejected: true;
    /** send SIGUSR2 to the parent of several workers, not to this process */
    signal_ignored: true;
    /** look at the error; the next start repairs what was left */
    stop_failed: true;
  }
}
