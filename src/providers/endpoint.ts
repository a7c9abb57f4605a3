// The parts that all requests to one HTTP provider share: the connection pool, the headers, a key,
// and two rules for the requests.

import { create, type JsonObject } from "@bufbuild/protobuf";
import { Pool } from "undici";
import { ToolChoiceSchema, ToolSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { HttpSettings } from "../config/catalog.ts";
import type { Authenticator } from "./surface.ts";

export type Endpoint = {
  readonly dispatcher: Pool;
  /** Path of the base URL, without a slash at the end. */
  readonly basePath: string;
  /** Those of every request: name, value, name, value, … */
  readonly headers: readonly string[];
};

/**
 * Creates the connection pool of a provider. HTTP/1.1 only: each active call has its own
 * connection, and so its own back-pressure.
 */
export function openEndpoint(
  settings: HttpSettings,
  accept = "application/json, text/event-stream",
): Endpoint {
  const url = new URL(settings.baseUrl);
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
      ...[
        "content-type",
        "application/json",
        "accept",
        accept,
        // Nothing is gained by packing the few bytes of a delta.
        "accept-encoding",
        "identity",
        "user-agent",
        "model-gateway",
      ],
      ...Object.entries(settings.headers).flat(),
    ],
  };
}

/** A key in a header, which stays as it is. `undefined`: none is sent. */
export function keyAuthenticator(key: string | undefined, header: string): Authenticator {
  if (key === undefined) return { headers: () => [], secrets: () => [] };
  const headers = [header, header === "authorization" ? `Bearer ${key}` : key];
  // Shorter keys are ordinary words. Removing them would damage messages.
  const secrets = key.length >= 8 ? [key] : [];
  return { headers: () => headers, secrets: () => secrets };
}

// During a longer plain answer the connection is idle for so long that a proxy may close it, and a
// cancelled call would not report the tokens produced so far.
const plainTokensMax = 4096;

/** True if the client requests a stream, or the answer may become long. */
export function wantsStream({
  stream = false,
  maxTokens = Number.POSITIVE_INFINITY,
}: GenerateRequest): boolean {
  return stream || maxTokens > plainTokensMax;
}

/**
 * Defines, in a request without tools, each tool that its conversation has called. Some providers
 * reject such a request, which clients send for a summary of their work. The stubs may not be
 * called, because the client does not have the tools.
 */
export function addToolStubs(request: GenerateRequest): GenerateRequest {
  if (request.tools.length > 0) return request;
  const names = new Set<string>();
  for (const { content } of request.messages) {
    for (const { kind } of content)
      if (kind.case === "toolUse" && kind.value.name !== "") names.add(kind.value.name);
  }
  if (names.size === 0) return request;
  const inputSchema: JsonObject = { type: "object", properties: {} };
  const { extensions, ...rest } = request;
  return {
    ...rest,
    tools: Array.from(names, (name) => create(ToolSchema, { name, inputSchema })),
    toolChoice: create(ToolChoiceSchema, { type: "none" }),
    ...(extensions && { extensions: withoutTools(extensions) }),
  };
}

// An empty `tools` list is stored as an extension, because the typed field is the same for an empty
// list and for none.
function withoutTools({ tools: _, ...others }: JsonObject): JsonObject {
  return others;
}
