// The parts that a gateway is given.

import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Outbound } from "../base/outbound.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { Config } from "../config/environment.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Embedded } from "../postgres/embedded/embedded.ts";
import type { Tracer } from "../tracing/tracing.ts";
import type { Shared } from "./worker.ts";

/** The input of a gateway, in every role. */
export type GatewayParts = {
  readonly config: Config;
  readonly catalog: CatalogFile;
  /** Holds the credentials of the providers. */
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  /** Ends the wait for a database that is not there. */
  readonly giveUp?: AbortSignal | undefined;
  /** The embedded database, if somebody else has begun to start it. */
  readonly embedded?: Promise<Embedded> | undefined;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
  /** The way to other servers. */
  readonly outbound?: Outbound;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer | undefined;
  /** Of heartbeats, polls, retries and counts. Default: the clock of this machine. */
  readonly clock?: Clock;
  /** Present in a worker: what the workers of a machine share. Redis, if configured, goes first. */
  readonly shared?: Shared;
};
