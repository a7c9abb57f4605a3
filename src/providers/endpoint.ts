// The parts that all requests to one HTTP provider share: the connection pool, the headers, a key,
// and two rules for the requests.

import { create, type JsonObject } from "@bufbuild/protobuf";
import type { Dispatcher } from "undici";
import { ToolChoiceSchema, ToolSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { type Outbound, parseAuthorities } from "../base/outbound.ts";
import { WatchedFile } from "../base/watched-file.ts";
import { type HttpSettings, readProxy } from "../config/catalog.ts";
import type { Authenticator } from "./surface.ts";

export type Endpoint = {
  readonly dispatcher: Dispatcher;
  /** Path of the base URL, without a slash at the end. */
  readonly basePath: string;
  /** Those of every request: name, value, name, value, … */
  readonly headers: readonly string[];
};

/** What a provider is connected with, beside its settings. */
export type EndpointParts = {
  /** Its name. */
  readonly name: string;
  readonly outbound: Outbound;
  readonly env: NodeJS.ProcessEnv;
  /** Gets what closes the files that are read again. */
  readonly files: DisposableStack;
  readonly clock: Clock;
  readonly log: Log;
};

/**
 * Creates the connection pool of a provider. Each active call has its own connection, and so its
 * own back-pressure. Throws for a `ca_file` that cannot be used, and for a variable that holds no
 * URL of a proxy.
 */
export function openEndpoint(settings: HttpSettings, parts: EndpointParts): Endpoint {
  const url = new URL(settings.baseUrl);
  const { caFile, concurrency, connectMs, firstByteMs, idleMs, proxy } = settings;
  const way = typeof proxy === "object" ? readProxy(proxy, parts.env) : proxy;
  const authorities =
    caFile === undefined ? undefined : watchFile("ca_file", caFile, parseAuthorities, parts);
  return {
    dispatcher: parts.outbound.open(
      url.origin,
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
    ),
    basePath: url.pathname.replace(/\/+$/, ""),
    headers: [
      ...[
        "content-type",
        "application/json",
        "accept",
        "application/json, text/event-stream",
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

/** A file of a provider that is read again when it changes. Throws as `readFileNow`. */
export function watchFile<T>(
  setting: "ca_file" | "credential_file",
  path: string,
  parse: (content: Buffer) => T,
  { name, files, clock, log }: EndpointParts,
): WatchedFile<T> {
  return files.use(new WatchedFile(path, parse, { name: `${setting} of ${name}`, clock, log }));
}

/** Earlier keys that are still removed from texts: requests with them may be under way. */
const earlierMax = 3;

/** A key in a header: one that stays as it is, or that of a file. `undefined`: none is sent. */
export function keyAuthenticator(
  key: string | WatchedFile<string> | undefined,
  header: string,
  source?: string,
): Authenticator {
  const headersWith = (value: string) => [
    header,
    header === "authorization" ? `Bearer ${value}` : value,
  ];
  // Shorter keys are ordinary words. Removing them would damage messages.
  const secretsOf = (value: string) => (value.length >= 8 ? [value] : []);
  const credential = source === undefined ? {} : { credential: () => ({ source }) };
  if (key === undefined) return { headers: () => [], secrets: () => [], ...credential };
  let used = typeof key === "string" ? key : key.value;
  let headers = headersWith(used);
  let secrets: readonly string[] = secretsOf(used);
  if (typeof key === "string")
    return { headers: () => headers, secrets: () => secrets, ...credential };
  const follow = () => {
    if (key.value === used) return;
    used = key.value;
    headers = headersWith(used);
    secrets = [...secretsOf(used), ...secrets.slice(0, earlierMax)];
  };
  return {
    headers() {
      follow();
      return headers;
    },
    secrets() {
      follow();
      return secrets;
    },
    refresh: ({ status }) => (status === 401 ? key.refresh() : undefined),
    ...credential,
  };
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
