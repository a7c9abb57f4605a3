// Where one provider is reached: its connections, and what every request to it has in common.

import { Pool } from "undici";
import type { ProviderSettings } from "../catalog-file/catalog-file.ts";

export type Endpoint = {
  readonly dispatcher: Pool;
  /** Path of the base address, without a slash at the end. */
  readonly basePath: string;
  /** Names and values by turns. */
  readonly headers: readonly string[];
  /** Values that must not be seen by a caller. */
  readonly secrets: readonly string[];
};

/** Opens the pool of a provider. HTTP/1.1 only: one connection per running answer, so that each has its own back-pressure. */
export function openEndpoint(settings: ProviderSettings, credential: string | undefined): Endpoint {
  const url = new URL(settings.baseUrl);
  const { credentialHeader, headers } = settings;
  return {
    dispatcher: new Pool(url.origin, {
      connections: settings.concurrency,
      pipelining: 1,
      allowH2: false,
      connect: { timeout: settings.connectMs, rejectUnauthorized: true },
      headersTimeout: settings.firstByteMs,
      bodyTimeout: settings.idleMs,
      keepAliveTimeout: 30_000,
    }),
    basePath: url.pathname.replace(/\/+$/, ""),
    headers: [
      ...["content-type", "application/json", "accept", "application/json, text/event-stream", "user-agent", "model-gateway"],
      ...Object.entries(headers).flat(),
      ...(credential === undefined
        ? []
        : [credentialHeader, credentialHeader === "authorization" ? `Bearer ${credential}` : credential]),
    ],
    // Short values are ordinary words rather than secrets, and would tear holes into messages.
    secrets: [...(credential === undefined ? [] : [credential]), ...Object.values(headers)].filter(({ length }) => length >= 8),
  };
}
