// The messages between a parent and its workers. An upgrade in place replaces the workers and not
// the parent, so the two may be of different versions: messages may gain members and kinds, and an
// unknown kind is ignored.

import type { Snapshot } from "../metrics/metrics.ts";
import type { WindowsReply, WindowsRequest } from "../rate-limits/shared-windows.ts";

export type ToWorker =
  /**
   * The answer to `join`. `embeddedUrl`: the embedded database, which the parent runs.
   * `endedNodes`: as in `nodes-ended`, the last ones.
   */
  | {
      readonly kind: "start";
      readonly embeddedUrl?: string | undefined;
      readonly catalogText: string;
      readonly endedNodes?: readonly string[];
    }
  /** The process of these nodes of the ledger has ended: settle the requests that it left. */
  | { readonly kind: "nodes-ended"; readonly nodeIds: readonly string[] }
  /** Take another configuration file, unless it has a mistake. */
  | { readonly kind: "reload"; readonly version: number; readonly catalogText: string }
  /** Reject new requests, finish active ones, exit. */
  | { readonly kind: "stop" }
  /**
   * Leave new connections to the other workers, finish those that are open, exit. `stop` after that
   * closes the idle ones.
   */
  | { readonly kind: "retire" }
  | { readonly kind: "windows"; readonly reply: WindowsReply }
  /** Send `metrics`. */
  | { readonly kind: "read-metrics" }
  | HintMessage;

export type ToParent =
  /** The worker listens to messages. */
  | { readonly kind: "join" }
  | ReadyMessage
  /** The worker is about to register as this node of the ledger. */
  | { readonly kind: "node"; readonly nodeId: string }
  /** The worker cannot start, and exits. */
  | { readonly kind: "failed"; readonly problem: string }
  /** The worker got SIGTERM itself: it retires. */
  | { readonly kind: "leaving" }
  /** The worker retires, and has no request. Clients may send some on connections they keep. */
  | { readonly kind: "idle" }
  /** The worker has taken this version of the configuration file. */
  | { readonly kind: "reloaded"; readonly version: number }
  | { readonly kind: "windows"; readonly request: WindowsRequest }
  /** The metrics of now. The last ones stay in the sums when the worker has exited. */
  | { readonly kind: "metrics"; readonly snapshot: Snapshot }
  | HintMessage;

/** The worker serves its ports. */
export type ReadyMessage = {
  readonly kind: "ready";
  /** The text for stdout: addresses, and the first keys after a first start. */
  readonly announcement: string;
  readonly http?: string | undefined;
  readonly grpc?: string | undefined;
};

/** A hint for the other workers. */
type HintMessage = { readonly kind: "hint"; readonly channel: string; readonly message: string };
