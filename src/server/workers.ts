// The parent of several worker processes. It serves no request: it holds the listening sockets,
// runs the embedded database, keeps the rate-limit windows that the workers share without Redis,
// and starts, replaces and ends the workers. Each worker is a node of its own.

import cluster, { type Worker } from "node:cluster";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { withTimeout } from "../base/clock.ts";
import { retireMsMax } from "../base/keep-alive.ts";
import type { Log } from "../base/log.ts";
import { exitProcess } from "../base/stderr.ts";
import type { Config } from "../config/environment.ts";
import { serveMetrics } from "../metrics/metrics.ts";
import { type Embedded, startEmbedded, templateFolder } from "../postgres/embedded/embedded.ts";
import { createSharedWindows } from "../rate-limits/shared-windows.ts";
import { shrinkHeap } from "./shrink-heap.ts";
import { onEndSignals } from "./signals.ts";
import { startupErrorMessage } from "./startup-error.ts";
import { WorkerMetrics } from "./worker-metrics.ts";
import type { ReadyMessage, ToParent, ToWorker } from "./worker-protocol.ts";

/** What a worker loads before all else. */
const orphanPath = join(import.meta.dirname, "orphan.cjs");
/** After so many deaths within a minute the gateway ends: restarting does not help. */
const deathsMax = 3;
const deathsMs = 60_000;
const restartPauseMs = { first: 500, max: 10_000 };
/** How long a new worker may take before the replacement of the old ones is given up. */
const replaceMsMax = 30_000;
/** Added to the drain: time to cancel and settle what is left, and to leave the ledger. */
const stopMarginMs = 27_000;
/** How long the end waits for an embedded database that is still starting. */
const databaseMsMax = 10_000;
/** Ended nodes that a new worker hears of. The ledger forgets a node when its requests settled. */
const endedNodesMax = 100;

type Parts = {
  readonly config: Config;
  readonly log: Log;
  /** Reads the text of the configuration file. */
  readonly readCatalogText: () => string;
};

/** Runs the workers. Exits when a signal or a failure has ended them. */
export async function runWorkers(parts: Parts): Promise<void> {
  const { config, log } = parts;
  const database = openDatabase(config, log, () => workers.fail("the database is lost", 1));
  const workers = new Workers(parts, async (exitCode) => {
    try {
      const started = database.catch(() => undefined);
      const embedded = await withTimeout(started, databaseMsMax, () => undefined);
      await embedded?.stop();
      log.info("stopped");
    } catch (error) {
      log.error({ code: "stop_failed", err: error }, "the gateway failed to stop cleanly");
      await exitProcess(1);
    }
    await exitProcess(exitCode);
  });
  onEndSignals(
    (signal) => workers.stop(signal),
    () => workers.abort(),
  );
  process.on("SIGHUP", () => workers.reload());
  process.on("SIGUSR2", () => void workers.replaceAll());
  try {
    const { metrics } = workers;
    if (config.metrics && metrics) {
      const { address } = await serveMetrics(config.metrics, () => metrics.read());
      log.info({ metrics: address }, "metrics of all workers");
    }
    const embedded = await database;
    await workers.start(embedded?.url);
  } catch (error) {
    log.debug({ err: error }, "the gateway failed to start");
    console.error(startupErrorMessage(error, config));
    await database.then(
      (embedded) => embedded?.stop(),
      () => undefined,
    );
    await exitProcess(1);
  }
}

/** Starts the embedded database, unless another one is configured or none is needed. */
async function openDatabase(
  config: Config,
  log: Log,
  onLost: () => void,
): Promise<Embedded | undefined> {
  if (config.databaseUrl !== undefined || config.role === "facade") return undefined;
  // Those that were replaced wait until their clients have left them.
  const processes = 2 * config.workers;
  return startEmbedded(config.dataDir, log, { processes, templates: templateFolder, onLost });
}

type Exit = { readonly code: number | null; readonly signal: string | null };

/** One worker process. */
type Child = {
  readonly worker: Worker;
  /** Rejects if the worker exits before. */
  readonly ready: Promise<ReadyMessage>;
  readonly exited: Promise<Exit>;
  /** Resolves when it retires and has no request, or has exited. */
  readonly idle: Promise<unknown>;
  /** Its nodes of the ledger: another one each time that it was declared dead. */
  readonly nodeIds: string[];
  /** The version of the configuration file at its start. */
  readonly catalogVersion: number;
  /** `ending`: it was asked to exit. */
  state: "starting" | "serving" | "ending";
  /** Why it could not start, as far as it could say. */
  problem: string | undefined;
};

class Workers {
  readonly #config: Config;
  readonly #log: Log;
  readonly #readCatalogText: () => string;
  readonly #onEnd: (exitCode: number) => Promise<void>;
  readonly #answerWindows;
  /** The nodes of the ledger that its workers are or were, oldest first. */
  readonly #ownNodes = new Set<string>();
  readonly #metrics: WorkerMetrics | undefined;
  readonly #children = new Set<Child>();
  #embeddedUrl: string | undefined;
  #endedNodes: readonly string[] = [];
  /** Times of the deaths within the last minute. */
  #deathsAtMs: number[] = [];
  /** The configuration file in effect. A file with a mistake must not stop a later worker. */
  #catalogText: string;
  /** The last file that was passed to running workers. */
  #offered: { readonly version: number; readonly text: string };
  /** True from the beginning, until the first workers are ready. */
  #isReplacing = true;
  #isReplacementDue = false;
  #isStopping = false;

  /** Calls `onEnd` once, when no worker is left. */
  constructor(parts: Parts, onEnd: (exitCode: number) => Promise<void>) {
    this.#config = parts.config;
    this.#log = parts.log;
    this.#readCatalogText = parts.readCatalogText;
    this.#onEnd = onEnd;
    this.#answerWindows = createSharedWindows(parts.log, { ownNodes: this.#ownNodes });
    this.#metrics = parts.config.metrics && new WorkerMetrics();
    this.#catalogText = parts.readCatalogText();
    this.#offered = { version: 0, text: this.#catalogText };
    // All workers accept from the same queue of the system. Were connections passed on by the
    // parent, those in a worker's queue would be lost when it dies.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({ execArgv: [...process.execArgv, "--require", orphanPath] });
  }

  /** The metrics of all workers. Undefined: none are counted. */
  get metrics(): WorkerMetrics | undefined {
    return this.#metrics;
  }

  /** Starts the first worker, which migrates and seeds the database, and then the others. */
  async start(embeddedUrl: string | undefined): Promise<void> {
    if (this.#isStopping) return;
    this.#embeddedUrl = embeddedUrl;
    const first = this.#fork();
    const all = [first];
    try {
      const { announcement, http, grpc } = await first.ready;
      while (all.length < this.#config.workers) all.push(this.#fork());
      await Promise.all(all.map(({ ready }) => ready));
      if (this.#isStopping) return;
      console.log(announcement);
      const { role, workers } = this.#config;
      this.#log.info({ http, grpc, role, workers }, "ready");
      shrinkHeap();
      this.#isReplacing = false;
      if (this.#isReplacementDue) void this.replaceAll();
    } catch {
      const exit = await Promise.race(all.map(({ exited }) => exited));
      for (const { problem } of all) if (problem !== undefined) console.error(problem);
      this.fail("a worker failed to start", exit.code ?? 1);
    }
  }

  /** Ends the workers, which finish their requests. */
  stop(signal: string): void {
    if (this.#isStopping) return;
    const { drainDelayMs: delayMs, drainLimitMs: limitMs } = this.#config;
    this.#log.info({ signal, delayMs, limitMs }, "draining: the workers reject new requests");
    void this.#endAll(0);
  }

  /** Ends everything at once. The next start settles the active requests. */
  abort(): void {
    for (const { worker } of this.#children) worker.process.kill("SIGKILL");
    void exitProcess(1);
  }

  /** Passes the configuration file to the workers. Each keeps its current one if it is wrong. */
  reload(): void {
    const text = this.#tryReadCatalog();
    if (text === undefined) return;
    this.#offered = { version: this.#offered.version + 1, text };
    for (const child of this.#children) this.#offer(child);
  }

  /** Replaces the workers one by one, with the program and the files as they are now. */
  async replaceAll(): Promise<void> {
    this.#isReplacementDue = true;
    if (this.#isReplacing) return;
    this.#isReplacing = true;
    while (this.#isReplacementDue && !this.#isStopping) {
      this.#isReplacementDue = false;
      await this.#replaceEach();
    }
    this.#isReplacing = false;
  }

  async #replaceEach(): Promise<void> {
    const text = this.#tryReadCatalog();
    if (text === undefined) return;
    const { version } = this.#offered;
    this.#log.info("replacing the workers");
    for (const old of [...this.#children].filter(({ state }) => state === "serving")) {
      await this.#waitForRoom();
      if (this.#isStopping) return;
      const next = this.#fork(text);
      const ready = next.ready.then(() => true);
      const isReady = await withTimeout(ready, replaceMsMax, () => false).catch(() => false);
      if (this.#isStopping) return;
      if (!isReady) {
        next.state = "ending";
        next.worker.process.kill("SIGKILL");
        const { problem } = next;
        this.#log.error(
          { code: "worker_not_ready", problem },
          "a new worker did not get ready: the old workers stay",
        );
        return this.#restartMissing(0);
      }
      // Unless a newer one was offered meanwhile.
      if (this.#offered.version === version) this.#catalogText = text;
      // Meanwhile the old one may have died: then the new one already takes its place.
      if (this.#children.has(old)) {
        this.#end(old, "retire");
        void this.#waitForEnd(old, retireMsMax(this.#config.drainLimitMs));
        // One at a time, so that never more than one worker too many uses the processors.
        await old.idle;
      }
      void this.#restartMissing(0);
    }
    this.#log.info("replaced the workers");
  }

  #fork(catalogText = this.#catalogText): Child {
    const worker = cluster.fork();
    const ready = Promise.withResolvers<ReadyMessage>();
    const exited = Promise.withResolvers<Exit>();
    const idle = Promise.withResolvers<void>();
    // The code that waits for it handles the exit.
    ready.promise.catch(() => undefined);
    const child: Child = {
      worker,
      ready: ready.promise,
      exited: exited.promise,
      idle: Promise.race([idle.promise, exited.promise]),
      nodeIds: [],
      catalogVersion: this.#offered.version,
      state: "starting",
      problem: undefined,
    };
    this.#children.add(child);
    this.#metrics?.add(worker.id, () => send(child, { kind: "read-metrics" }));
    worker.on("message", (message: ToParent) => {
      if (message.kind === "idle") return idle.resolve();
      this.#read(child, message, catalogText);
      if (message.kind === "ready") ready.resolve(message);
    });
    const onExit = (exit: Exit) => {
      if (!this.#children.delete(child)) return;
      this.#metrics?.remove(worker.id);
      this.#reportEnd(child.nodeIds);
      ready.reject(new Error("the worker exited"));
      exited.resolve(exit);
      if (child.state === "serving") this.#onDeath(child, exit);
    };
    worker.on("exit", (code: number | null, signal: string | null) => {
      // Its last messages come before the end of the channel.
      if (worker.isConnected()) worker.once("disconnect", () => onExit({ code, signal }));
      else onExit({ code, signal });
    });
    worker.on("error", (error) => {
      if (worker.process.pid !== undefined) return;
      child.problem = error.message;
      onExit({ code: 1, signal: null });
    });
    return child;
  }

  /** Does what a message of a worker asks for. */
  #read(child: Child, message: ToParent, catalogText: string): void {
    const { worker } = child;
    switch (message.kind) {
      case "join":
        if (child.state === "ending") this.#end(child, "stop");
        else
          send(child, {
            kind: "start",
            embeddedUrl: this.#embeddedUrl,
            catalogText,
            endedNodes: this.#endedNodes,
          });
        return;
      case "node":
        this.#ownNodes.add(message.nodeId);
        return void child.nodeIds.push(message.nodeId);
      case "ready":
        if (child.state === "starting") child.state = "serving";
        if (child.catalogVersion !== this.#offered.version) this.#offer(child);
        this.#log.info({ worker: worker.id, pid: worker.process.pid }, "worker ready");
        return;
      case "failed":
        child.problem = message.problem;
        return;
      case "leaving":
        child.state = "ending";
        void this.#waitForEnd(child, retireMsMax(this.#config.drainLimitMs));
        return void this.#restartMissing(0);
      case "reloaded":
        if (message.version === this.#offered.version) this.#catalogText = this.#offered.text;
        return;
      case "windows":
        return void this.#answerWindows(message.request).then((reply) =>
          send(child, { kind: "windows", reply }),
        );
      case "metrics":
        this.#metrics?.receive(worker.id, message.snapshot);
        return;
      case "hint":
        for (const other of this.#children) if (other !== child) send(other, message);
    }
  }

  /** The process of these nodes has exited, so the other workers need not wait for its silence. */
  #reportEnd(nodeIds: readonly string[]): void {
    this.#endedNodes = [...this.#endedNodes, ...nodeIds].slice(-endedNodesMax);
    for (const child of this.#children) send(child, { kind: "nodes-ended", nodeIds });
  }

  #onDeath({ worker }: Child, { code: exitCode, signal }: Exit): void {
    const nowMs = performance.now();
    this.#deathsAtMs = [...this.#deathsAtMs.filter((atMs) => atMs > nowMs - deathsMs), nowMs];
    this.#log.error(
      { code: "worker_died", worker: worker.id, pid: worker.process.pid, exitCode, signal },
      "a worker died",
    );
    if (this.#deathsAtMs.length < deathsMax) void this.#restartMissing(this.#deathsAtMs.length - 1);
    else this.fail(`${deathsMax} workers died within a minute`, 1);
  }

  /** Starts workers until as many run as configured. The pauses grow with `attempt`. */
  async #restartMissing(attempt: number): Promise<void> {
    for (let tries = attempt; ; tries++) {
      const { first, max } = restartPauseMs;
      if (tries > 0) await delay(Math.min(max, first * 2 ** (tries - 1)));
      const live = [...this.#children].filter(({ state }) => state !== "ending");
      if (this.#isStopping || live.length >= this.#config.workers) return;
      const child = this.#fork();
      const isReady = await child.ready.then(
        () => true,
        () => false,
      );
      if (isReady) {
        tries = -1;
        continue;
      }
      this.#log.error(
        { code: "worker_not_started", problem: child.problem },
        "a worker failed to start",
      );
      if (live.length === 0) return this.fail("no worker is left, and none starts", 1);
    }
  }

  /** Ends the gateway: restarting workers does not help. */
  fail(reason: string, exitCode: number): void {
    if (this.#isStopping) return;
    this.#log.fatal({ code: "workers_ended" }, `${reason}: ending the gateway`);
    void this.#endAll(exitCode);
  }

  async #endAll(exitCode: number): Promise<void> {
    this.#isStopping = true;
    const ending = [...this.#children];
    const serving = ending.filter(({ state }) => state === "serving");
    for (const child of ending) this.#end(child, "stop");
    const { drainDelayMs, drainLimitMs } = this.#config;
    const limitMs = drainDelayMs + drainLimitMs;
    await Promise.all(ending.map((child) => this.#waitForEnd(child, limitMs)));
    const exits = await Promise.all(serving.map(({ exited }) => exited));
    const isClean = exits.every(({ code }) => code === 0);
    await this.#onEnd(exitCode === 0 && !isClean ? 1 : exitCode);
  }

  /** Waits until no more workers retire than serve: each has memory and database connections. */
  async #waitForRoom(): Promise<void> {
    for (;;) {
      const ending = [...this.#children].filter(({ state }) => state === "ending");
      if (ending.length < this.#config.workers) return;
      await Promise.race(ending.map(({ exited }) => exited));
    }
  }

  async #waitForEnd({ worker, exited }: Child, limitMs: number): Promise<void> {
    if (await withTimeout(exited, limitMs + stopMarginMs, () => undefined)) return;
    this.#log.error(
      { code: "worker_killed", worker: worker.id },
      "a worker did not stop in time: killing it",
    );
    worker.process.kill("SIGKILL");
    await exited;
  }

  #end(child: Child, how: "stop" | "retire"): void {
    child.state = "ending";
    send(child, { kind: how });
  }

  #offer(child: Child): void {
    send(child, {
      kind: "reload",
      version: this.#offered.version,
      catalogText: this.#offered.text,
    });
  }

  /** Undefined, with a line in the log, if the file cannot be read. */
  #tryReadCatalog(): string | undefined {
    try {
      return this.#readCatalogText();
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      this.#log.error(
        { code: "config_unreadable", problem },
        "cannot read the configuration file; nothing is changed",
      );
      return undefined;
    }
  }
}

function send({ worker }: Child, message: ToWorker): void {
  // A message to a worker that is gone is lost; its exit is reported.
  if (worker.isConnected()) worker.send(message, () => {});
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** make the configuration file readable and send the signal again; the old file is in use */
    config_unreadable: true;
    /** look at the lines before it, and at the memory of the machine */
    worker_died: true;
    /** a worker did not end in time; its requests are settled by the others */
    worker_killed: true;
    /** the old workers stay; the line says what the new one lacks */
    worker_not_ready: true;
    /** the line says why; it is tried again */
    worker_not_started: true;
    /** the gateway has ended; a supervisor must start it again */
    workers_ended: true;
  }
}
