// The connections to a provider over HTTP: the way to it, its authorities, and its limits.

import type { Dispatcher } from "undici";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { type Outbound, parseAuthorities } from "../base/outbound.ts";
import { WatchedFile } from "../base/watched-file.ts";
import { type HttpProviderSettings, readProxy } from "../config/catalog.ts";

/** Opens the connections of a provider. The caller closes them. */
export type OpenConnections = (settings: ConnectedSettings) => Dispatcher;

type ConnectedSettings = Pick<
  HttpProviderSettings,
  "baseUrl" | "caFile" | "concurrency" | "connectMs" | "firstByteMs" | "idleMs" | "proxy"
>;

/**
 * Returns the function that opens connections for the provider `name`. It throws for a `ca_file`
 * that cannot be used, and for a variable that holds no URL of a proxy. `files` gets what closes
 * the files that are read again.
 */
export function connectionsOf(
  name: string,
  parts: {
    outbound: Outbound;
    env: NodeJS.ProcessEnv;
    files: DisposableStack;
    clock: Clock;
    log: Log;
  },
): OpenConnections {
  const { outbound, env, files, clock, log } = parts;
  return ({ baseUrl, caFile, concurrency, connectMs, firstByteMs, idleMs, proxy }) => {
    const way = typeof proxy === "object" ? readProxy(proxy, env) : proxy;
    const authorities =
      caFile === undefined
        ? undefined
        : files.use(
            new WatchedFile(caFile, parseAuthorities, { name: `ca_file of ${name}`, clock, log }),
          );
    return outbound.open(
      new URL(baseUrl).origin,
      {
        connectMs,
        ...(way !== "env" && { proxy: way }),
        ...(authorities && { authorities: () => authorities.value }),
      },
      {
        connections: concurrency,
        pipelining: 1,
        headersTimeout: firstByteMs,
        bodyTimeout: idleMs,
        keepAliveTimeout: 30_000,
      },
    );
  };
}
