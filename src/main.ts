// The gateway process: reads the configuration, starts a gateway and handles signals. SIGTERM and
// SIGINT drain it and exit; SIGHUP reloads the configuration file.

import { readFileSync } from "node:fs";
import { createLog } from "./base/log.ts";
import {
  type CatalogFile,
  defaultCatalog,
  findMissingCredentials,
  readCatalogFile,
} from "./config/catalog.ts";
import { type Config, readCatalogPath, readConfig } from "./config/environment.ts";
import { renderBanner } from "./server/bootstrap.ts";
import { startGateway } from "./server/gateway.ts";
import { shrinkHeap } from "./server/shrink-heap.ts";
import { startupErrorMessage } from "./server/startup-error.ts";

// EX_CONFIG of sysexits.h: a supervisor need not restart the process.
const exitConfiguration = 78;

const { config, catalog } = readConfiguration();
const log = createLog(config.logLevel);

process.on("uncaughtException", (error) => {
  log.fatal({ err: error }, "uncaught exception, exiting");
  process.exit(1);
});

// npm forwards a Ctrl-C that the terminal already sent to this process. A second signal within this
// time is ignored.
const repeatedSignalMs = 1_000;
let stoppingSinceMs: number | undefined;
const starting = startGateway({ config, catalog, env: process.env, log });
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => stop(signal));
process.on("SIGHUP", () => reload());

try {
  announce(await starting);
  shrinkHeap();
} catch (error) {
  log.debug({ err: error }, "the gateway failed to start");
  console.error(startupErrorMessage(error, config));
  process.exit(1);
}

async function stop(signal: string): Promise<void> {
  if (stoppingSinceMs !== undefined) {
    // A second signal stops the process at once. The next start settles the active requests.
    if (performance.now() - stoppingSinceMs > repeatedSignalMs) process.exit(1);
    return;
  }
  stoppingSinceMs = performance.now();
  log.info(
    { signal, limitMs: config.drainLimitMs },
    "draining: rejecting new requests, finishing active ones",
  );
  try {
    const gateway = await starting;
    await gateway.stop();
    log.info("stopped");
    process.exit(0);
  } catch (error) {
    log.error({ err: error }, "the gateway failed to stop cleanly");
    process.exit(1);
  }
}

async function reload(): Promise<void> {
  try {
    const gateway = await starting;
    gateway.reload(readCatalog(config));
    log.info("configuration file reloaded");
  } catch (error) {
    log.error(
      { problem: messageOf(error) },
      "new configuration file rejected; the current one stays in effect",
    );
  }
}

function readConfiguration(): { config: Config; catalog: CatalogFile } {
  const problems: string[] = [];
  const attempt = <T>(read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      problems.push(messageOf(error));
      return undefined;
    }
  };
  const config = attempt(() => readConfig(process.env));
  // Read even if the environment has problems, so that all problems are reported together.
  const catalog = attempt(() => readCatalog({ catalogPath: readCatalogPath(process.env) }));
  if (config && catalog) return { config, catalog };
  console.error(problems.join("\n"));
  process.exit(exitConfiguration);
}

/**
 * Reads the configuration file, whose credentials must be in the environment. Throws one Error with
 * all problems of the file.
 */
function readCatalog({ catalogPath }: { catalogPath?: string | undefined }): CatalogFile {
  const catalog = readCatalogFile(
    catalogPath === undefined ? defaultCatalog() : readFileSync(catalogPath, "utf8"),
  );
  const missing = findMissingCredentials(catalog.providers, process.env);
  if (missing.length > 0) throw new Error(`configuration file:\n  ${missing.join("\n  ")}`);
  return catalog;
}

function announce({
  httpAddress,
  grpcAddress,
  firstKeys,
}: Awaited<ReturnType<typeof startGateway>>): void {
  if (firstKeys && httpAddress !== undefined)
    console.log(renderBanner(firstKeys, httpAddress, config.dataDir));
  else console.log(`The model gateway runs at ${httpAddress ?? grpcAddress}`);
  log.info({ http: httpAddress, grpc: grpcAddress, role: config.role }, "ready");
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
