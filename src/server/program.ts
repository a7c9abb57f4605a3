// The program. It runs as one gateway process or, with WORKERS, as the parent of several.

import cluster from "node:cluster";
import { readFileSync } from "node:fs";
import { createLog } from "../base/log.ts";
import {
  type CatalogFile,
  defaultCatalog,
  findMissing,
  readCatalogFile,
} from "../config/catalog.ts";
import { type Config, readCatalogPath, readConfig } from "../config/environment.ts";

// EX_CONFIG of sysexits.h: a supervisor need not restart the process.
const exitConfiguration = 78;

const { worker } = cluster;
const parent = worker && (await (await import("./worker.ts")).joinParent(worker));
const configuration = readConfiguration(parent?.catalogText);
if ("problems" in configuration) {
  if (!parent) console.error(configuration.problems);
  else await parent.fail(configuration.problems);
  process.exit(exitConfiguration);
}
const { config, catalog } = configuration;
const log = createLog(config.logLevel, worker?.id);

process.on("uncaughtException", (error) => {
  log.fatal({ code: "uncaught_exception", err: error }, "uncaught exception, exiting");
  process.exit(1);
});

// Imported by need: a parent has none of the services, and so needs little memory.
if (config.workers > 1 && !parent) {
  const { runWorkers } = await import("./workers.ts");
  await runWorkers({ config, log, readCatalogText });
} else {
  const { runGateway } = await import("./run.ts");
  await runGateway({ config, catalog, env: process.env, log }, readCatalog, parent);
}

/** `catalogText`: the configuration file, if another process has read it. */
function readConfiguration(
  catalogText: string | undefined,
): { config: Config; catalog: CatalogFile } | { problems: string } {
  const problems: string[] = [];
  const attempt = <T>(read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
  const config = attempt(() => readConfig(process.env));
  // Read even if the environment has problems, so that all problems are reported together.
  const catalog = attempt(() => readCatalog(catalogText));
  if (config && catalog) return { config, catalog };
  return { problems: problems.join("\n") };
}

/**
 * Reads the configuration file, whose credentials must be in the environment. Throws one Error with
 * all problems of the file.
 */
function readCatalog(text = readCatalogText()): CatalogFile {
  const catalog = readCatalogFile(text);
  const missing = findMissing(catalog, process.env);
  if (missing.length > 0) throw new Error(`configuration file:\n  ${missing.join("\n  ")}`);
  return catalog;
}

function readCatalogText(): string {
  const path = readCatalogPath(process.env);
  return path === undefined ? defaultCatalog() : readFileSync(path, "utf8");
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a bug: report the line. The process ends, and the others settle its requests */
    uncaught_exception: true;
  }
}
