// The way out: every HTTP connection of the gateway to another server, through the proxy that the
// settings name for it. Not SMTP, PostgreSQL and Redis. A webhook of a customer takes a tunnel from
// here, and no proxy of the environment.

import { X509Certificate } from "node:crypto";
import { BlockList, isIP, Socket } from "node:net";
import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";
import {
  Agent,
  buildConnector,
  Client,
  type Dispatcher,
  fetch,
  Pool,
  type RequestInit,
  type Response,
} from "undici";
import { isLocalShortage } from "./shortage.ts";
import { tlsProblemOf } from "./tls-problem.ts";

/** An HTTP proxy. Neither part stands in an error: the address is the operator's matter. */
export type HttpProxy = {
  /** `http://host:port` or `https://host:port`, without a user. */
  readonly origin: string;
  /** Its `proxy-authorization`. Absent: it asks for none. */
  readonly authorization?: string;
};

/** A host that is called directly. */
export type DirectHost = {
  /** In small letters, an IPv6 address without brackets. `*`: every host. */
  readonly host: string;
  /** Also hosts that end in `.` and this one, or these alone. */
  readonly names: "with subdomains" | "subdomains";
  /** Empty: every port. */
  readonly port: string;
};

export type ProxySettings = {
  /** For addresses of `https:`, and of `http:`. Absent: these are called directly. */
  readonly https?: HttpProxy;
  readonly http?: HttpProxy;
  readonly direct?: readonly (DirectHost | BlockList)[];
};

/** Reads the URL of a proxy. Throws an Error that quotes nothing of it. */
export function parseProxy(text: string): HttpProxy {
  const url = URL.parse(text.includes("://") ? text : `http://${text}`);
  if (!url || !/^https?:$/.test(url.protocol) || url.pathname + url.search + url.hash !== "/")
    throw new Error("must be such as http://user:password@proxy.example.com:3128");
  const { origin, username, password } = url;
  if (username + password === "") return { origin };
  let user: string;
  try {
    user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  } catch {
    throw new Error("has a user or a password that is not percent-encoded");
  }
  return { origin, authorization: `Basic ${Buffer.from(user).toString("base64")}` };
}

/** Reads `NO_PROXY`. Throws an Error for what would match nothing. */
export function parseDirectHosts(text: string): (DirectHost | BlockList)[] {
  return text.split(/[\s,]+/).flatMap((entry) => (entry === "" ? [] : readDirectHost(entry)));
}

function readDirectHost(entry: string): DirectHost | BlockList {
  const rule =
    "must list hosts, .suffixes or *, each with a port if need be, " +
    "and ranges such as 10.0.0.0/8";
  const [, first = "", bits] = /^(.*)\/(\d{1,3})$/.exec(entry) ?? [];
  if (isIP(first) > 0 && Number(bits) <= (isIP(first) === 6 ? 128 : 32))
    return rangesOf([first, Number(bits)]);
  if (isIP(entry)) return { host: entry.toLowerCase(), names: "with subdomains", port: "" };
  const [, host = "", port = ""] = /^(\[[\da-f:.]+\]|[^[\]:/]+)(?::(\d{1,5}))?$/i.exec(entry) ?? [];
  const name = host.replace(/^\[|\]$|\.$/g, "").toLowerCase();
  if (name === "*") return { host: name, names: "with subdomains", port };
  const bare = name.replace(/^\*?\./, "");
  if (bare === "" || bare.includes("*")) throw new Error(rule);
  return { host: bare, names: name.startsWith("*") ? "subdomains" : "with subdomains", port };
}

const usualPorts: Readonly<Record<string, string>> = { "https:": "443", "http:": "80" };

function rangesOf(...ranges: readonly (readonly [first: string, bits: number])[]): BlockList {
  const list = new BlockList();
  for (const [first, bits] of ranges) list.addSubnet(first, bits, familyOf(first));
  return list;
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return isIP(address) === 6 ? "ipv6" : "ipv4";
}

/** True for an address in one of them, also in the IPv6 form of an IPv4 address. */
function isIn(list: BlockList, host: string): boolean {
  return isIP(host) > 0 && list.check(host, familyOf(host));
}

/**
 * Hosts that no proxy of the environment reaches, or may hear of: this machine, and what a cloud
 * tells its machines of themselves, credentials among it.
 */
const localNames = /^(?:(?:.+\.)?localhost|metadata(?:\.goog|\.google\.internal)?)$/;
const localRanges = rangesOf(
  ...([
    ["0.0.0.0", 32],
    ["127.0.0.0", 8],
    ["169.254.0.0", 16],
  ] as const),
  ...([
    ["::", 127],
    ["fe80::", 10],
    ["fd00:ec2::", 32],
  ] as const),
);

/** Reads authorities in PEM, to trust beside those that Node trusts. Throws for another text. */
export function parseAuthorities(pem: Buffer): SecureContext {
  const text = pem.toString("latin1");
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g);
  if (!certificates) throw new Error("holds no certificate in PEM");
  try {
    for (const one of certificates) new X509Certificate(one);
  } catch {
    throw new Error("holds a certificate that cannot be read");
  }
  return createSecureContext({ ca: [...getCACertificates("default"), ...certificates] });
}

/** Why a proxy did not connect us. Its message says no more than that. */
export class ProxyError extends Error {
  override readonly name = "ProxyError";
  readonly code = "proxy";
  /** True: it did not answer in time. */
  readonly isTimeout: boolean;

  constructor(problem: string, { isTimeout = false } = {}) {
    super(`the proxy ${problem}`);
    this.isTimeout = isTimeout;
  }
}

/** The message for a proxy that answers 407. */
export const proxyRefuses = "refuses our credential";

/** How the connections to one server are made. */
export type ConnectionSettings = {
  /** Default: as the environment says. */
  readonly proxy?: HttpProxy | "none" | undefined;
  /** Longest time to connect, and with a proxy also to wait for its answer. */
  readonly connectMs: number;
};

/** The authorities of new connections, those to a proxy included. */
export type Authorities = { readonly value: SecureContext };

type PoolNumbers = Pick<
  Pool.Options,
  "bodyTimeout" | "connections" | "headersTimeout" | "keepAliveTimeout" | "pipelining"
>;

/** As undici has it. */
const usualConnectMs = 10_000;

export class Outbound {
  readonly #proxies: ProxySettings;
  readonly #authorities: Authorities | undefined;
  readonly #agent = new Agent({
    factory: (origin) => this.open(new URL(origin).origin, { connectMs: usualConnectMs }, {}),
  });

  /** `authorities`: default: those that Node trusts. */
  constructor(proxies: ProxySettings = {}, authorities?: Authorities) {
    this.#proxies = proxies;
    this.#authorities = authorities;
  }

  /** The same way, or one of other proxies, with these authorities. The caller destroys it. */
  with(proxies = this.#proxies, authorities?: Authorities): Outbound {
    return new Outbound(proxies, authorities);
  }

  /** The proxy that the environment names for an address. Undefined: it is called directly. */
  proxyTo({ protocol, hostname, port }: URL): HttpProxy | undefined {
    const { https, http, direct = [] } = this.#proxies;
    const proxy = protocol === "https:" ? https : http;
    if (!proxy) return undefined;
    const host = hostname.replace(/^\[|\]$|\.$/g, "").toLowerCase();
    const usedPort = port || usualPorts[protocol];
    const isDirect = direct.some((one) =>
      one instanceof BlockList
        ? isIn(one, host)
        : (one.port === "" || one.port === usedPort) &&
          (one.host === "*" ||
            host.endsWith(`.${one.host}`) ||
            (one.names !== "subdomains" && host === one.host)),
    );
    return isDirect || localNames.test(host) || isIn(localRanges, host) ? undefined : proxy;
  }

  /** As `fetch` of the standard. Its TypeError has a `ProxyError` as cause where a proxy failed. */
  readonly fetch = (url: string | URL, init: RequestInit = {}): Promise<Response> =>
    fetch(url, { ...init, dispatcher: this.#agent });

  /** Opens a pool of connections to one server, HTTP/1.1 only. The caller closes it. */
  open(origin: string, settings: ConnectionSettings, numbers: PoolNumbers): Dispatcher {
    const { proxy = this.proxyTo(new URL(origin)), connectMs } = settings;
    const authorities = this.#authorities;
    const options = { ...numbers, allowH2: false };
    if (proxy === undefined || proxy === "none") {
      const connect = authorities
        ? connectorWith(connectMs, authorities)
        : { timeout: connectMs, rejectUnauthorized: true };
      return new Pool(origin, { ...options, connect });
    }
    const { protocol, hostname, host, port } = new URL(origin);
    const connect = connectorWith(connectMs, authorities);
    if (protocol === "http:") return forward(origin, proxy, { ...options, connect });
    const target = { host, authority: port === "" ? `${hostname}:443` : host };
    const pool = new Pool(origin, {
      ...options,
      connect(socketOptions, callback) {
        const signal = AbortSignal.timeout(connectMs);
        openTunnel({ proxy, ...target, connect, signal }).then(
          (httpSocket) => connect({ ...socketOptions, httpSocket }, callback),
          (error: unknown) => callback(toError(error), null),
        );
      },
    });
    return pool.compose((dispatch) => (request, handler) => dispatch(request, discreet(handler)));
  }

  /** Closes the connections of `fetch` at once. */
  destroy(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** Connects with the authorities of that moment. A TLS session of others is not taken up again. */
function connectorWith(
  connectMs: number,
  authorities: Authorities | undefined,
): buildConnector.connector {
  const build = (secureContext?: SecureContext) =>
    buildConnector({
      timeout: connectMs,
      rejectUnauthorized: true,
      allowH2: false,
      ...(secureContext && { secureContext }),
    });
  if (!authorities) return build();
  let used = authorities.value;
  let connect = build(used);
  return (options, callback) => {
    const now = authorities.value;
    if (now !== used) {
      used = now;
      connect = build(now);
    }
    connect(options, callback);
  };
}

type Tunnel = {
  readonly proxy: HttpProxy;
  /** Names the server in an error. */
  readonly host: string;
  /** The server and its port: the proxy connects to it. */
  readonly authority: string;
  readonly signal: AbortSignal;
  /** Default: with the authorities that Node trusts. */
  readonly connect?: buildConnector.connector;
};

/**
 * A connection through a proxy, by CONNECT. Throws `ProxyError`, and the reason of an aborted
 * `signal` that is no timeout.
 */
export async function openTunnel(tunnel: Tunnel): Promise<Socket> {
  const {
    proxy,
    host,
    authority,
    signal,
    connect = connectorWith(usualConnectMs, undefined),
  } = tunnel;
  // The library's own agent for proxies waits without end for an answer to CONNECT, and says what
  // went wrong in texts alone.
  const client = new Client(proxy.origin, { connect: connectToProxy(connect) });
  const headers = {
    host: authority,
    ...(proxy.authorization !== undefined && { "proxy-authorization": proxy.authorization }),
  };
  try {
    const { statusCode, socket } = await client.connect({ path: authority, headers, signal });
    if (statusCode >= 200 && statusCode < 300 && socket instanceof Socket) return socket;
    socket.on("error", () => {}).destroy();
    throw new ProxyError(statusCode === 407 ? proxyRefuses : `answers ${statusCode} for ${host}`);
  } catch (error) {
    void client.destroy();
    if (signal.aborted && !isTimeout(signal.reason)) throw signal.reason;
    throw toProxyError(error, host);
  }
}

/** Has the name of the proxy for TLS: that of a request is its server's. */
function connectToProxy(connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) =>
    connect({ ...options, servername: "" }, (error, socket) => {
      if (error) callback(toProxyError(error), null);
      else callback(null, socket);
    });
}

/**
 * Requests of plain HTTP are sent to the proxy as they are, with the whole address: many proxies
 * open tunnels to port 443 only.
 */
function forward(
  origin: string,
  { origin: ofProxy, authorization }: HttpProxy,
  options: Pool.Options & { readonly connect: buildConnector.connector },
): Dispatcher {
  const pool = new Pool(ofProxy, { ...options, connect: connectToProxy(options.connect) });
  const more = [
    ...["host", new URL(origin).host],
    ...(authorization === undefined ? [] : ["proxy-authorization", authorization]),
  ];
  return pool.compose(
    (dispatch) => (request, handler) =>
      dispatch(
        {
          ...request,
          origin: ofProxy,
          path: `${origin}${request.path}`,
          headers: [...flatten(request.headers), ...more],
        },
        discreet(handler),
      ),
  );
}

/** Takes the address out of errors: that of a socket is the proxy's. */
function discreet(handler: Dispatcher.DispatchHandler): Dispatcher.DispatchHandler {
  const { onResponseError } = handler;
  handler.onResponseError = (controller, error) => {
    Reflect.deleteProperty(error, "socket");
    onResponseError?.call(handler, controller, error);
  };
  return handler;
}

/** Name, value, name, value, … */
function flatten(headers: Dispatcher.DispatchOptions["headers"]): string[] {
  if (Array.isArray(headers) && headers.every((one) => typeof one === "string")) return headers;
  const pairs = Object.entries(headers ?? {});
  return pairs.flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).flatMap((one) => [name, String(one)]),
  );
}

function toProxyError(error: unknown, host?: string): Error {
  if (error instanceof ProxyError) return error;
  const { code = "" } = Object(error);
  // No fault of the proxy. The message of the system holds its address.
  if (isLocalShortage(error)) return Object.assign(new Error(String(code)), { code });
  if (isTimeout(error))
    return new ProxyError(host === undefined ? "does not answer" : `does not answer for ${host}`, {
      isTimeout: true,
    });
  if (code === "UND_ERR_SOCKET" || code === "ECONNRESET")
    return new ProxyError("closes the connection");
  return new ProxyError(tlsProblemOf(error)?.text ?? `cannot be reached (${code || "no code"})`);
}

function isTimeout(error: unknown): boolean {
  const { name, code } = Object(error);
  return name === "TimeoutError" || code === "UND_ERR_CONNECT_TIMEOUT" || code === "ETIMEDOUT";
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
