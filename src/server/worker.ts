// The side of a worker: its connection to the parent that started it.

import type { Worker } from "node:cluster";
import type { NodeParent } from "../billing/billing.ts";
import type { Snapshot } from "../metrics/metrics.ts";
import { createSharedLimiter, type SharedLimiter } from "../rate-limits/shared-windows.ts";
import type { Hints } from "../redis/redis.ts";
import type { ReadyMessage, ToParent, ToWorker } from "./worker-protocol.ts";

/** `stop` and `retire` are requests of the parent. `orphaned`: it died. */
export type StopReason = "stop" | "retire" | "orphaned";

/** What the workers of one machine have in common, through their parent. */
export type Shared = {
  readonly limiter: SharedLimiter;
  readonly hints: Hints;
  readonly nodes: NodeParent;
};

export type Parent = {
  /** URL of the embedded database, if the parent runs one. */
  readonly embeddedUrl: string | undefined;
  /** The configuration file that is in effect. */
  readonly catalogText: string;
  readonly shared: Shared;
  ready(message: Omit<ReadyMessage, "kind">): void;
  /** Reports why this worker cannot start. Resolves when the message was sent. */
  fail(problem: string): Promise<void>;
  report(kind: "leaving" | "idle"): void;
  /** `reload` returns false if the file has a mistake. */
  onReload(reload: (catalogText: string) => Promise<boolean>): void;
  onStop(listener: (reason: StopReason) => void): void;
  /** `read` returns the metrics of this worker. */
  onMetrics(read: () => Promise<Snapshot>): void;
  /** Leaves the last metrics of this worker with the parent. Resolves when they were sent. */
  leave(metrics: Snapshot): Promise<void>;
};

/** Waits for the first message of the parent. Ends the process if the parent is gone. */
export async function joinParent(worker: Worker): Promise<Parent> {
  // Otherwise Node ends a worker at once when its parent dies.
  worker.exitedAfterDisconnect = true;
  // A message to a parent that is gone is lost; `disconnect` reports it.
  const send = (message: ToParent, onSent = () => {}): void => {
    if (worker.isConnected()) worker.send(message, onSent);
    else onSent();
  };
  const limiter = createSharedLimiter((request) => send({ kind: "windows", request }));
  const hints = createHints((channel, message) => send({ kind: "hint", channel, message }));
  const nodes = createNodes((nodeId) => send({ kind: "node", nodeId }));
  const started = Promise.withResolvers<Extract<ToWorker, { kind: "start" }>>();
  let reload: (catalogText: string) => Promise<boolean> = async () => false;
  let readMetrics: () => Promise<Snapshot> = async () => [];
  let stop: (reason: StopReason) => void = () => process.exit(1);

  worker.on("disconnect", () => {
    limiter.close();
    stop("orphaned");
  });
  worker.on("message", (message: ToWorker) => {
    switch (message.kind) {
      case "start":
        nodes.receive(message.endedNodes ?? []);
        return started.resolve(message);
      case "reload":
        return void reload(message.catalogText).then((isTaken) => {
          if (isTaken) send({ kind: "reloaded", version: message.version });
        });
      case "stop":
      case "retire":
        return stop(message.kind);
      case "windows":
        return limiter.receive(message.reply);
      case "read-metrics":
        return void readMetrics()
          .catch((): Snapshot => [])
          .then((snapshot) => send({ kind: "metrics", snapshot }));
      case "nodes-ended":
        return nodes.receive(message.nodeIds);
      case "hint":
        return hints.receive(message.channel, message.message);
    }
  });
  send({ kind: "join" });
  const { embeddedUrl, catalogText } = await started.promise;
  return {
    embeddedUrl,
    catalogText,
    shared: { limiter, hints, nodes },
    ready: (message) => send({ kind: "ready", ...message }),
    fail: (problem) => new Promise((resolve) => send({ kind: "failed", problem }, resolve)),
    report: (kind) => send({ kind }),
    onReload(listener) {
      reload = listener;
    },
    onStop(listener) {
      stop = listener;
    },
    onMetrics(read) {
      readMetrics = read;
    },
    leave: (snapshot) => new Promise((resolve) => send({ kind: "metrics", snapshot }, resolve)),
  };
}

/** What the parent says of nodes. It may say so before anybody listens. */
function createNodes(announce: NodeParent["announce"]) {
  const ended: string[] = [];
  let listener = (nodeId: string): void => void ended.push(nodeId);
  return {
    announce,
    onNodeEnded(next: (nodeId: string) => void) {
      listener = next;
      for (const nodeId of ended.splice(0)) listener(nodeId);
    },
    receive(nodeIds: readonly string[]) {
      for (const nodeId of nodeIds) listener(nodeId);
    },
  };
}

/** Hints that pass through the parent. `publish` does not reach this worker itself. */
function createHints(publish: Hints["publish"]) {
  const listeners = new Map<string, Set<(message: string) => void>>();
  return {
    publish,
    subscribe(channel: string, listener: (message: string) => void) {
      const all = listeners.get(channel) ?? new Set();
      listeners.set(channel, all.add(listener));
      return () => void all.delete(listener);
    },
    /** Takes a hint of another worker. */
    receive(channel: string, message: string) {
      for (const listener of listeners.get(channel) ?? []) listener(message);
    },
  };
}
