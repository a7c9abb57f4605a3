// The environment variables, read once into one frozen object.
//
// Written by hand and not with a schema library, see docs/decisions/0017-configuration-by-hand.md.

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { availableParallelism } from "node:os";
import { readMailAddress } from "../base/mail-address.ts";
import { parseDatabaseUrl } from "./database-url.ts";
import { parseRedisUrl } from "./redis-url.ts";
import { parseSink, type SinkSettings } from "./sink.ts";

export type { SinkSettings } from "./sink.ts";

export type Role = "all" | "core" | "facade";

export type Config = {
  /** Address of the public HTTP listener. Port 0: any free port. */
  readonly host: string;
  readonly port: number;
  /** Address of the gRPC listener. Port 0: any free port. */
  readonly grpcHost: string;
  readonly grpcPort: number;
  /** Absent: the gRPC listener uses plaintext. */
  readonly grpcTls?: ServerTls;
  /** Allows a plaintext gRPC listener on an address other than loopback. */
  readonly grpcAllowPlaintext: boolean;
  /** Folder of the embedded database and of first-keys.json. */
  readonly dataDir: string;
  /** One server or a list, as `parseDatabaseUrl` reads it. Absent: the embedded database. */
  readonly databaseUrl?: string;
  /** Of the owner of the tables, who migrates them. Absent: `databaseUrl`. */
  readonly migrationDatabaseUrl?: string;
  /** Refuse to start on a ledger whose commits are on one server alone. */
  readonly requireSync: boolean;
  /** How long a start waits for the database. */
  readonly databaseWaitMs: number;
  /** How long a new request waits for the ledger. */
  readonly ledgerMaxWaitMs: number;
  /** Months before the current one whose charges are kept. Absent: all, and none is closed. */
  readonly retentionMonths?: number;
  /** Where every charge is sent. Absent: nowhere. */
  readonly sink?: SinkSettings;
  /** As `parseRedisUrl` reads it. Absent: limits are counted in the memory of this process. */
  readonly redisUrl?: string;
  /**
   * Absent: the first start generates one and writes it to first-keys.json. Required with
   * `databaseUrl`.
   */
  readonly adminToken?: string;
  /**
   * Keys that seal what clients return unread, 32 bytes each; the first one seals. Absent: one in
   * `dataDir`, which the first start makes. Required with `databaseUrl` and for a facade, because
   * several processes must open what one of them sealed. A core seals nothing.
   */
  readonly contentKeys?: readonly Buffer[];
  readonly logLevel: LogLevel;
  /** Absent: no metrics are counted. `genai`: also under the names of OpenTelemetry. */
  readonly metrics?: { readonly host: string; readonly port: number; readonly genai: boolean };
  /** Absent: nothing is traced. */
  readonly tracing?: TracingSettings;
  readonly role: Role;
  /** Number of processes that serve the ports. With 1, the process itself does. */
  readonly workers: number;
  /**
   * The address under which people reach the console: passkeys belong to it, and links begin with
   * it. Absent: `http://localhost` and the port. Required unless the role is `all`.
   */
  readonly publicUrl?: URL;
  /** Absent: no mail is sent, and links are shown to those who make them. */
  readonly smtp?: SmtpServer;
  /** `host:port` of each core. Empty unless the role is `facade`. */
  readonly coreAddresses: readonly string[];
  /** Absent: cores are called in plaintext. */
  readonly coreTls?: ClientTls;
  /** Who may do on the HTTP listener what only operators may. `persons`: not the admin token. */
  readonly httpAdmin: HttpAdmin;
  /** Whether the end of a streamed answer shows what it cost. */
  readonly streamCost: boolean;
  /** Whether a provider may be called while the hold is being placed. */
  readonly overlap: boolean;
  /** Create the account `default`, with credits and two keys, unless an earlier start did. */
  readonly seed: boolean;
  /** Time after SIGTERM in which requests are served, and balancers are asked to send no more. */
  readonly drainDelayMs: number;
  /** Time for active requests to finish after that. */
  readonly drainLimitMs: number;
  /** Addresses and CIDR ranges of proxies whose `X-Forwarded-For` is trusted. */
  readonly trustedProxies: readonly string[];
  /**
   * Connections of one client address, or requests in progress of one address that a trusted proxy
   * forwards.
   */
  readonly maxConnectionsPerAddress: number;
  /** Bytes of memory for the bodies of requests, in all and for one key and one address. */
  readonly requestMemory: {
    readonly totalBytes: number;
    readonly perKeyBytes: number;
    readonly perAddressBytes: number;
  };
};

const samplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;

/** Where traces go, and which requests have one. */
export type TracingSettings = {
  /** With the path, such as `http://localhost:4318/v1/traces`. */
  readonly endpoint: string;
  /** Sent with each batch, for a collector that asks for a credential. */
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  readonly sampler: (typeof samplers)[number];
  /** Share of the requests that are traced, of those that the sampler decides on. */
  readonly ratio: number;
};

/** The server that takes our mail. */
export type SmtpServer = {
  /** `smtp:` (with STARTTLS where it is offered) or `smtps:`, with the credentials, if any. */
  readonly url: URL;
  /** Address of the sender. */
  readonly from: string;
};

/** TLS of a server, in PEM. */
export type ServerTls = {
  readonly certificate: Buffer;
  readonly privateKey: Buffer;
  /** Clients must present a certificate signed by one of these. Absent: none is required. */
  readonly clientAuthorities?: Buffer;
  readonly files?: TlsFiles;
};

/** The files that PEM is of, to be read again. Empty: there is no such file. */
export type TlsFiles = Readonly<Record<"certificate" | "privateKey" | "authorities", string>>;

/** TLS of a client, in PEM. */
export type ClientTls = {
  /** Accepted signers of the server's certificate. Absent: those that Node trusts. */
  readonly authorities?: Buffer;
  /** Presented to a server that requires a client certificate. */
  readonly identity?: { readonly certificate: Buffer; readonly privateKey: Buffer };
  readonly files?: TlsFiles;
};

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
type LogLevel = (typeof logLevels)[number];
const httpAdmins = ["true", "persons", "false"] as const;
export type HttpAdmin = (typeof httpAdmins)[number];
const roles = ["all", "core", "facade"] as const;

// Shorter tokens can be guessed. The token that a first start generates has 43 characters.
const adminTokenLengthMin = 16;
const workersMax = 64;

const contentKeysMax = 2;
const contentKeyBytes = 32;

const contentKeyAdvice = "32 bytes in base64, as `openssl rand -base64 32` prints them";

/** The keys of a list separated by commas, in base64. Never repeats one in a problem. */
function readContentKeys(value: string | undefined, problems: string[]): Buffer[] | undefined {
  if (value === undefined) return undefined;
  const keys = value.split(",").map((one) => Buffer.from(one.trim(), "base64"));
  if (keys.length > contentKeysMax || keys.some(({ length }) => length !== contentKeyBytes))
    problems.push("CONTENT_KEY: must be one key or two, 32 bytes each, in base64");
  return keys;
}

/** Each may also be the content of a file, whose path is in the variable with `_FILE` behind it. */
export const secretNames = [
  "DATABASE_URL",
  "MIGRATION_DATABASE_URL",
  "REDIS_URL",
  "ADMIN_TOKEN",
  "CONTENT_KEY",
  "SMTP_URL",
  "EXPORT_SINK",
  "OTEL_EXPORTER_OTLP_HEADERS",
] as const;

/** The secrets that are in files, by their variables. Adds to `problems`. */
function readSecretFiles(env: NodeJS.ProcessEnv, problems: string[]): NodeJS.ProcessEnv {
  const read: NodeJS.ProcessEnv = {};
  for (const name of secretNames) {
    const path = readText(env, `${name}_FILE`);
    if (path === undefined) continue;
    if (readText(env, name) !== undefined) {
      problems.push(`${name}, ${name}_FILE: set one of them`);
      continue;
    }
    try {
      // Spaces and the newline at its end are no part of it.
      const content = readFileSync(path, "utf8").trim();
      if (content === "") problems.push(`${name}_FILE: the file is empty`);
      read[name] = content;
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : "unreadable";
      problems.push(`${name}_FILE: the file cannot be read (${code})`);
    }
  }
  return read;
}

/**
 * The environment for a command, which serves no requests and so needs none of the secrets of a
 * gateway. Throws as `readConfig` does.
 */
export function readCommandConfig(env: NodeJS.ProcessEnv): Config {
  const unused = Buffer.alloc(contentKeyBytes).toString("base64");
  const { ADMIN_TOKEN_FILE: _, CONTENT_KEY_FILE: __, ...others } = env;
  return readConfig({ ADMIN_TOKEN: "not-needed-by-a-command", CONTENT_KEY: unused, ...others });
}

/** Reads the environment. Throws one Error that lists every problem, one a line. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const problems: string[] = [];
  const {
    text,
    integer,
    choice,
    flag,
    list,
    origin,
    databaseUrl: readDatabaseUrl,
    redisUrl: readRedisUrl,
    sink: readSink,
    pair,
    file,
    smtpUrl: readSmtpUrl,
    mailAddress,
  } = createReader(env, problems);

  const role = choice("ROLE", roles, "all");
  const databaseUrl = readDatabaseUrl("DATABASE_URL");
  const migrationDatabaseUrl = readDatabaseUrl("MIGRATION_DATABASE_URL");
  const requireSync = flag("REQUIRE_SYNC", false);
  const redisUrl = readRedisUrl("REDIS_URL");
  const retention = text("RETENTION_MONTHS");
  const retentionMonths = integer("RETENTION_MONTHS", { min: 1, max: 1_200, fallback: 1 });
  const sink = readSink("EXPORT_SINK");
  const adminToken = text("ADMIN_TOKEN");
  const contentKeys = readContentKeys(text("CONTENT_KEY"), problems);
  const publicUrl = origin("PUBLIC_URL");
  const smtpUrl = readSmtpUrl("SMTP_URL");
  const mailFrom = mailAddress("MAIL_FROM");
  const coreAddresses = list("CORE_ADDRESS");
  const trustedProxies = list("TRUSTED_PROXIES");
  const grpcPair = pair("GRPC_TLS_CERT", "GRPC_TLS_KEY");
  const clientAuthorities = file("GRPC_TLS_CLIENT_CA");
  const authorities = file("CORE_TLS_CA");
  const identity = pair("CORE_TLS_CERT", "CORE_TLS_KEY");
  const filesOf = (certificate: string, privateKey: string, authorities: string): TlsFiles => ({
    certificate: text(certificate) ?? "",
    privateKey: text(privateKey) ?? "",
    authorities: text(authorities) ?? "",
  });
  const coreTls = flag("CORE_TLS", authorities !== undefined || identity !== undefined);

  if (adminToken !== undefined && !/^[\x21-\x7e]+$/.test(adminToken)) {
    problems.push("ADMIN_TOKEN: must consist of visible ASCII characters, without spaces");
  } else if (adminToken !== undefined && adminToken.length < adminTokenLengthMin) {
    problems.push(`ADMIN_TOKEN: must have at least ${adminTokenLengthMin} characters`);
  } else if (adminToken !== undefined && /^adm-gw2-/i.test(adminToken)) {
    problems.push(
      "ADMIN_TOKEN: must not begin as the tokens of CreateAdminToken do, with adm-gw2-",
    );
  }
  if (contentKeys === undefined && role === "all" && databaseUrl !== undefined)
    problems.push(`CONTENT_KEY: is required with DATABASE_URL: ${contentKeyAdvice}`);
  if (contentKeys === undefined && role === "facade")
    problems.push(`CONTENT_KEY: is required with ROLE=facade: ${contentKeyAdvice}`);
  const metricsHost = text("METRICS_HOST") ?? "127.0.0.1";
  const genai = flag("METRICS_GENAI", false);
  const metricsPort =
    text("METRICS_PORT") === undefined
      ? undefined
      : integer("METRICS_PORT", { min: 0, max: 65_535, fallback: 0 });
  const tracing = readTracing();
  if (migrationDatabaseUrl !== undefined && databaseUrl === undefined)
    problems.push("MIGRATION_DATABASE_URL: requires DATABASE_URL");
  if (requireSync && databaseUrl === undefined)
    problems.push("REQUIRE_SYNC: requires DATABASE_URL");
  if (role === "facade" && coreAddresses.length === 0)
    problems.push("CORE_ADDRESS: is required with ROLE=facade");
  if (role !== "all" && publicUrl === undefined)
    problems.push(`PUBLIC_URL: is required with ROLE=${role}`);
  if (text("MAIL_FROM") !== undefined && text("SMTP_URL") === undefined)
    problems.push("MAIL_FROM: requires SMTP_URL");
  if (clientAuthorities !== undefined && grpcPair === undefined) {
    problems.push("GRPC_TLS_CLIENT_CA: requires GRPC_TLS_CERT and GRPC_TLS_KEY");
  }
  if (!coreAddresses.every(isHostAndPort))
    problems.push("CORE_ADDRESS: must be host:port, or several separated by commas");
  if (!trustedProxies.every(isAddressRange)) {
    problems.push(
      "TRUSTED_PROXIES: must be an address or a CIDR range, or several separated by commas",
    );
  }

  /** The variables of OpenTelemetry. */
  function readTracing(): TracingSettings | undefined {
    const base = text("OTEL_EXPORTER_OTLP_ENDPOINT");
    const names = text("OTEL_EXPORTER_OTLP_HEADERS");
    const share = text("OTEL_TRACES_SAMPLER_ARG") ?? "0.01";
    const ratio = /^(0|1|0?\.\d+|[01]\.\d+)$/.test(share) ? Number(share) : Number.NaN;
    const settings = {
      serviceName: text("OTEL_SERVICE_NAME") ?? "model-gateway",
      sampler: choice("OTEL_TRACES_SAMPLER", samplers, "parentbased_traceidratio"),
      ratio,
    };
    if (base === undefined) return undefined;
    if (!(ratio >= 0 && ratio <= 1))
      problems.push("OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1");
    const headers = readHeaderList(names ?? "");
    if (headers === undefined)
      problems.push("OTEL_EXPORTER_OTLP_HEADERS: must be name=value, or several with commas");
    if (!/^https?:$/.test(URL.parse(base)?.protocol ?? "")) {
      problems.push("OTEL_EXPORTER_OTLP_ENDPOINT: must be an http or https URL");
      return undefined;
    }
    const endpoint = `${base.replace(/\/+$/, "")}/v1/traces`;
    return { ...settings, endpoint, headers: headers ?? {} };
  }

  function readWorkers(): number {
    if (text("WORKERS") === "auto") return Math.min(availableParallelism(), workersMax);
    const range = { min: 1, max: workersMax, fallback: 1 };
    return integer("WORKERS", range, `a whole number from 1 to ${workersMax}, or auto`);
  }

  const config: Config = {
    host: text("HOST") ?? "127.0.0.1",
    port: integer("PORT", { min: 0, max: 65_535, fallback: 8080 }),
    grpcHost: text("GRPC_HOST") ?? "127.0.0.1",
    grpcPort: integer("GRPC_PORT", { min: 0, max: 65_535, fallback: 50_051 }),
    ...(grpcPair && {
      grpcTls: {
        ...grpcPair,
        ...(clientAuthorities && { clientAuthorities }),
        files: filesOf("GRPC_TLS_CERT", "GRPC_TLS_KEY", "GRPC_TLS_CLIENT_CA"),
      },
    }),
    grpcAllowPlaintext: flag("GRPC_ALLOW_PLAINTEXT", false),
    dataDir: text("DATA_DIR") ?? "./data",
    ...(databaseUrl !== undefined && { databaseUrl }),
    ...(migrationDatabaseUrl !== undefined && { migrationDatabaseUrl }),
    requireSync,
    databaseWaitMs: integer("DATABASE_WAIT_SECONDS", { min: 0, max: 3_600, fallback: 60 }) * 1000,
    ledgerMaxWaitMs: integer("LEDGER_MAX_WAIT_SECONDS", { min: 1, max: 600, fallback: 10 }) * 1000,
    ...(retention !== undefined && { retentionMonths }),
    ...(sink && { sink }),
    ...(redisUrl !== undefined && { redisUrl }),
    ...(adminToken !== undefined && { adminToken }),
    ...(contentKeys && { contentKeys }),
    logLevel: choice("LOG_LEVEL", logLevels, "info"),
    ...(metricsPort !== undefined && { metrics: { host: metricsHost, port: metricsPort, genai } }),
    ...(tracing && { tracing }),
    role,
    workers: readWorkers(),
    ...(publicUrl && { publicUrl }),
    ...(smtpUrl && {
      smtp: { url: smtpUrl, from: mailFrom ?? `no-reply@${publicUrl?.hostname ?? "localhost"}` },
    }),
    coreAddresses,
    ...(coreTls && {
      coreTls: {
        ...(authorities && { authorities }),
        ...(identity && { identity }),
        files: filesOf("CORE_TLS_CERT", "CORE_TLS_KEY", "CORE_TLS_CA"),
      },
    }),
    httpAdmin: choice("HTTP_ADMIN", httpAdmins, "true"),
    streamCost: flag("STREAM_COST", true),
    overlap: flag("OVERLAP", true),
    seed: flag("SEED", databaseUrl === undefined),
    drainDelayMs: integer("DRAIN_DELAY_SECONDS", { min: 0, max: 600, fallback: 0 }) * 1000,
    drainLimitMs: integer("DRAIN_LIMIT_SECONDS", { min: 0, max: 3_600, fallback: 120 }) * 1000,
    trustedProxies,
    maxConnectionsPerAddress: integer("MAX_CONNECTIONS_PER_ADDRESS", {
      min: 1,
      max: 1_000_000,
      fallback: 256,
    }),
    requestMemory: readRequestMemory(integer),
  };
  if (problems.length > 0)
    throw new Error(`configuration:\n${problems.map((one) => `  ${one}`).join("\n")}`);
  return Object.freeze(config);
}

/** `name=value,…`, percent-encoded. Undefined: it is not. */
function readHeaderList(list: string): Record<string, string> | undefined {
  const headers: Record<string, string> = {};
  for (const one of list.split(",").filter((part) => part.trim() !== "")) {
    const [, name, value = ""] = /^\s*([\w-]+)\s*=(.*)$/.exec(one) ?? [];
    if (name === undefined) return undefined;
    try {
      headers[name.toLowerCase()] = decodeURIComponent(value.trim());
    } catch {
      return undefined;
    }
  }
  return headers;
}

const mebibyte = 1024 * 1024;
// The largest body has 32 MiB, and four bytes of memory are counted for each of its bytes. With
// less, it could never be received.
const requestMemoryMin = 128;

function readRequestMemory(integer: ReadInteger): Config["requestMemory"] {
  const range = { min: requestMemoryMin, max: 1_048_576 };
  const total = integer("REQUEST_MEMORY_MIB", { ...range, fallback: 512 });
  const share = (name: string, parts: number) =>
    integer(name, { ...range, fallback: Math.max(requestMemoryMin, Math.floor(total / parts)) });
  return {
    totalBytes: total * mebibyte,
    perKeyBytes: share("REQUEST_MEMORY_PER_KEY_MIB", 4) * mebibyte,
    perAddressBytes: share("REQUEST_MEMORY_PER_ADDRESS_MIB", 2) * mebibyte,
  };
}

/** Path of the configuration file. Undefined: the built-in one, as for an empty `CONFIG`. */
export function readCatalogPath(env: NodeJS.ProcessEnv): string | undefined {
  return readText(env, "CONFIG");
}

// The value without spaces around it; undefined for an empty one.
function readText(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const value = env[name]?.trim();
  return value === "" ? undefined : value;
}

// The host is a name, an IPv4 address, or an IPv6 address in brackets.
function isHostAndPort(text: string): boolean {
  return /^(\[[0-9a-f:.]+\]|[^:/\s]+):\d{1,5}$/i.test(text);
}

// An address, or a range such as `10.0.0.0/8`. The range of all addresses is rejected, because any
// client could then claim any address.
function isAddressRange(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  return (
    prefix === undefined ||
    (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
  );
}

/** `rule` describes the valid values. */
type ReadInteger = (
  name: string,
  range: { min: number; max: number; fallback: number },
  rule?: string,
) => number;

// Readers of one variable each. They trim it, treat an empty one as absent, and add to `problems`.
// A problem never repeats the value, which may be a secret in the wrong variable.
function createReader(env: NodeJS.ProcessEnv, problems: string[]) {
  const secrets = readSecretFiles(env, problems);
  const text = (name: string): string | undefined => readText(env, name) ?? readText(secrets, name);
  const integer: ReadInteger = (
    name,
    range,
    rule = `a whole number from ${range.min} to ${range.max}`,
  ) => {
    const value = text(name);
    if (value === undefined) return range.fallback;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= range.min && number <= range.max) return number;
    problems.push(`${name}: must be ${rule}`);
    return range.fallback;
  };
  const choice = <T extends string>(name: string, choices: readonly T[], fallback: T): T => {
    const value = text(name);
    if (value === undefined) return fallback;
    const found = choices.find((one) => one === value);
    if (found === undefined) problems.push(`${name}: must be one of ${choices.join(", ")}`);
    return found ?? fallback;
  };
  const flag = (name: string, fallback: boolean): boolean =>
    text(name) === undefined
      ? fallback
      : choice(name, ["true", "false"], fallback ? "true" : "false") === "true";
  const list = (name: string): string[] =>
    (text(name) ?? "")
      .split(",")
      .map((one) => one.trim())
      .filter((one) => one !== "");
  const parsed = (name: string, parse: (value: string) => unknown): string | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    try {
      parse(value);
    } catch (error) {
      problems.push(`${name}: ${error instanceof Error ? error.message : error}`);
    }
    return value;
  };
  const databaseUrl = (name: string) => parsed(name, parseDatabaseUrl);
  const redisUrl = (name: string) => parsed(name, parseRedisUrl);
  const sink = (name: string) => {
    const before = problems.length;
    const value = parsed(name, parseSink);
    return value === undefined || problems.length > before ? undefined : parseSink(value);
  };
  const origin = (name: string): URL | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    const parsed = URL.parse(value);
    if (!parsed || !/^https?:$/.test(parsed.protocol) || parsed.href !== `${parsed.origin}/`) {
      problems.push(`${name}: must be an address such as https://gateway.example.com, no path`);
    } else if (parsed.protocol === "http:" && !isLocalhost(parsed)) {
      problems.push(`${name}: must begin with https:// unless its host is localhost`);
    } else return parsed;
    return undefined;
  };
  const smtpUrl = (name: string): URL | undefined => {
    const value = text(name);
    const parsed = value === undefined ? undefined : URL.parse(value);
    if (parsed === undefined) return undefined;
    const isPlain = parsed !== null && /^smtps?:$/.test(parsed.protocol) && parsed.hostname !== "";
    if (
      isPlain &&
      /^\/?$/.test(parsed.pathname) &&
      parsed.search + parsed.hash === "" &&
      isDecodable(parsed)
    )
      return parsed;
    problems.push(
      `${name}: must be such as smtp://user:password@mail.example.com:587, or smtps://`,
    );
    return undefined;
  };
  const mailAddress = (name: string): string | undefined => {
    const value = text(name);
    const address = value === undefined ? undefined : readMailAddress(value);
    if (value !== undefined && address === undefined)
      problems.push(`${name}: must be an e-mail address`);
    return address;
  };
  const file = (name: string): Buffer | undefined => {
    const path = text(name);
    if (path === undefined) return undefined;
    try {
      return readFileSync(path);
    } catch {
      problems.push(`${name}: the file cannot be read`);
      return undefined;
    }
  };
  const pair = (
    certificateName: string,
    keyName: string,
  ): { certificate: Buffer; privateKey: Buffer } | undefined => {
    const [certificate, privateKey] = [file(certificateName), file(keyName)];
    if (certificate && privateKey) return { certificate, privateKey };
    if ((text(certificateName) === undefined) !== (text(keyName) === undefined)) {
      problems.push(`${certificateName}, ${keyName}: set both or neither`);
    }
    return undefined;
  };
  return {
    text,
    integer,
    choice,
    flag,
    list,
    origin,
    databaseUrl,
    redisUrl,
    sink,
    file,
    pair,
    smtpUrl,
    mailAddress,
  };
}

function isDecodable({ username, password }: URL): boolean {
  try {
    decodeURIComponent(username + password);
    return true;
  } catch {
    return false;
  }
}

/** True for the host of an address that only this machine reaches. */
export function isLocalhost({ hostname }: URL): boolean {
  return /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

/** `host:port`, with an IPv6 host in brackets. */
export function hostAndPort(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
