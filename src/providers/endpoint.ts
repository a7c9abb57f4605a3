// Where one provider is reached: its connections, and what every request to it has in common.

import { create, type JsonObject } from "@bufbuild/protobuf";
import { Pool } from "undici";
import { ToolChoiceSchema, ToolSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { HttpProviderSettings } from "../config/catalog.ts";

export type Endpoint = {
  readonly dispatcher: Pool;
  /** Path of the base address, without a slash at the end. */
  readonly basePath: string;
  /** Names and values by turns. */
  readonly headers: readonly string[];
  /** Values that must not be seen by a caller. */
  readonly secrets: readonly string[];
};

/**
 * Opens the pool of a provider. HTTP/1.1 only: one connection per running answer, so that each has
 * its own back-pressure.
 */
export function openEndpoint(
  settings: HttpProviderSettings,
  credential: string | undefined,
): Endpoint {
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
      ...[
        "content-type",
        "application/json",
        "accept",
        "application/json, text/event-stream",
        "user-agent",
        "model-gateway",
      ],
      ...Object.entries(headers).flat(),
      ...(credential === undefined
        ? []
        : [
            credentialHeader,
            credentialHeader === "authorization" ? `Bearer ${credential}` : credential,
          ]),
    ],
    // Short values are ordinary words rather than secrets, and would tear holes into messages.
    secrets: [...(credential === undefined ? [] : [credential]), ...Object.values(headers)].filter(
      ({ length }) => length >= 8,
    ),
  };
}

// Whether a provider is asked for a stream.

// A longer answer would leave a connection idle for so long that something between here and the
// provider closes it, and a hang-up would tell nothing about what was produced.
const plainTokensMax = 4096;

/** True when the client wants a stream, and for every answer that may become long. */
export function wantsStream({
  stream = false,
  maxTokens = Number.POSITIVE_INFINITY,
}: GenerateRequest): boolean {
  return stream || maxTokens > plainTokensMax;
}

// Some providers refuse a conversation that holds tool calls while no tools are defined, as when a
// client asks for a summary at the end of its work.

/**
 * The request with a minimal definition of each tool that its history calls, if it defines none
 * itself. The stubs may not be called: the client has no such tools.
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

// An empty list of tools, which the typed field cannot tell from none.
function withoutTools({ tools: _, ...others }: JsonObject): JsonObject {
  return others;
}
