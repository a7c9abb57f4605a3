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
  /** The way that its settings name. */
  readonly outbound: Outbound;
  readonly env: NodeJS.ProcessEnv;
  /** Gets what closes the files that are read again. */
  readonly files: DisposableStack;
  readonly clock: Clock;
  readonly log: Log;
};

/**
 * Creates the connection pool of a provider. Each active call has its own connection, and so its
 * own back-pressure. Throws for a variable that holds no URL of a proxy.
 */
export function openEndpoint(
  settings: HttpSettings,
  parts: EndpointParts,
  accept = "application/json, text/event-stream",
): Endpoint {
  const url = new URL(settings.baseUrl);
  const { concurrency, connectMs, firstByteMs, idleMs, proxy } = settings;
  const way = typeof proxy === "object" ? readProxy(proxy, parts.env) : proxy;
  return {
    dispatcher: parts.outbound.open(
      url.origin,
      { connectMs, ...(way !== "env" && { proxy: way }) },
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

/**
 * The way to a provider and for its tokens, by its `proxy` and `ca_file`; `outbound` of the parts
 * is that of the environment. Throws for either that cannot be used.
 */
export function outboundTo({ caFile, proxy }: HttpSettings, parts: EndpointParts): Outbound {
  const { outbound, env, files } = parts;
  if (proxy === "env" && caFile === undefined) return outbound;
  const authorities =
    caFile === undefined ? undefined : watchFile("ca_file", caFile, parseAuthorities, parts);
  const own = typeof proxy === "object" ? readProxy(proxy, env) : undefined;
  const proxies = proxy === "env" ? undefined : own ? { https: own, http: own } : {};
  return files.adopt(outbound.with(proxies, authorities), (one) => void one.destroy());
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

const none: readonly string[] = [];

/** Earlier keys that are still removed from texts: requests with them may be under way. */
const earlierMax = 3;

/** A key, or that of a file. `source`: where it is from, in words. */
export type Key =
  | { readonly value: string; readonly source: string }
  | Pick<WatchedFile<string>, "value" | "path" | "refresh">;

/** Reads a key, and gives it with those before. The same list until it changes. */
export function secretsOf(key: { readonly value: string }): () => readonly string[] {
  let secrets = none;
  return () => {
    const { value } = key;
    // Shorter keys are ordinary words. Removing them would damage messages.
    if (value.length >= 8 && value !== secrets[0])
      secrets = [value, ...secrets.slice(0, earlierMax)];
    return secrets;
  };
}

/** A key in a header. `undefined`: none is sent. */
export function keyAuthenticator(key: Key | undefined, header: string): Authenticator {
  if (key === undefined) return { headers: () => none, secrets: () => none };
  let sent: string | undefined;
  let headers = none;
  const secrets = secretsOf(key);
  const credential = { source: "path" in key ? `file ${key.path}` : key.source };
  return {
    headers() {
      const { value } = key;
      if (value !== sent) {
        sent = value;
        headers = [header, header === "authorization" ? `Bearer ${value}` : value];
        secrets();
      }
      return headers;
    },
    secrets,
    ...("refresh" in key && {
      refresh({ status }) {
        if (status !== 401) return undefined;
        // Another look may have found the new one while the request was under way.
        return key.value === sent ? key.refresh() : Promise.resolve(true);
      },
    }),
    credential: () => credential,
  };
}

// During a longer plain answer the connection is idle for so long that a proxy may close it, and a
// cancelled call would not report the tokens produced so far.
const plainTokensMax = 4096;

/** True if the caller gets a stream, or the answer may become long. */
export function wantsStream({
  origin,
  maxTokens = Number.POSITIVE_INFINITY,
}: GenerateRequest): boolean {
  return origin?.streamed !== false || maxTokens > plainTokensMax;
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
