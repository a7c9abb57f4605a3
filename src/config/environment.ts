// The environment variables, read once into one frozen object. They are a section like those of the
// configuration file: a variable is a member, in capitals.

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { availableParallelism } from "node:os";
import * as v from "valibot";
import { isCellName, plainCell } from "../base/cells.ts";
import { readMailAddress } from "../base/mail-address.ts";
import { type ProxySettings, parseDirectHosts, parseProxy } from "../base/outbound.ts";
import { parseDatabaseUrl } from "./database-url.ts";
import { parseRedisUrl } from "./redis-url.ts";
import { checked, choice, flag, integer, placeOf, type Settings, section, text } from "./schema.ts";
import { parseSink } from "./sink.ts";

export type { SinkSettings } from "./sink.ts";

// Shorter tokens can be guessed. The token that a first start generates has 43 characters.
const adminTokenLengthMin = 16;
const workersMax = 64;
const grpcPortDefault = 50_051;

/**
 * How many workers `auto` starts on so many processors. One stays for the database, one for the
 * system and the parent; on up to three, a second worker takes from the database what it adds.
 */
export function workersFor(processors: number): number {
  return processors <= 3 ? 1 : Math.min(processors - 2, workersMax);
}
const contentKeysMax = 2;
const contentKeyBytes = 32;
const contentKeyAdvice = "32 bytes in base64, as `openssl rand -base64 32` prints them";
// The largest body has 32 MiB, and four bytes of memory are counted for each of its bytes. With
// less, it could never be received.
const requestMemoryMinMib = 128;
const mebibyte = 1024 * 1024;

/** A text that `parse` takes. `rule`: its problem. Default: the message of what `parse` throws. */
const parsed = (parse: (text: string) => unknown, rule?: string) =>
  checked((value) => {
    const problem = problemOf(() => parse(value));
    return problem === undefined ? undefined : (rule ?? problem);
  });

function problemOf(parse: () => unknown): string | undefined {
  try {
    parse();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : `${error}`;
  }
}

/** A list separated by commas. */
const commaList = (isRight: (entry: string) => boolean, rule: string) =>
  v.pipe(
    checked((list) => (split(list).every(isRight) ? undefined : rule)),
    v.transform(split),
  );
const split = (list: string) =>
  list
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");

/** The path of a file, and what is in it. */
const file = v.pipe(
  parsed((path) => readFileSync(path), "the file cannot be read"),
  v.transform((path) => ({ path, content: readFileSync(path) })),
);

const port = integer(0, 65_535);
const memory = integer(requestMemoryMinMib, 1_048_576);

const adminToken = checked((token) => {
  if (!/^[\x21-\x7e]+$/.test(token))
    return "must consist of visible ASCII characters, without spaces";
  if (token.length < adminTokenLengthMin)
    return `must have at least ${adminTokenLengthMin} characters`;
  return /^adm-gw2-/i.test(token)
    ? "must not begin as the tokens of CreateAdminToken do, with adm-gw2-"
    : undefined;
});

const keysOf = (list: string) => list.split(",").map((one) => Buffer.from(one.trim(), "base64"));
const contentKeys = v.pipe(
  checked((list) => {
    const keys = keysOf(list);
    return keys.length > contentKeysMax || keys.some(({ length }) => length !== contentKeyBytes)
      ? "must be one key or two, 32 bytes each, in base64"
      : undefined;
  }),
  v.transform(keysOf),
);

const origin = v.pipe(
  checked((value) => {
    const url = URL.parse(value);
    if (!url || !/^https?:$/.test(url.protocol) || url.href !== `${url.origin}/`)
      return "must be an address such as https://gateway.example.com, no path";
    return url.protocol === "http:" && !isLocalhost(url)
      ? "must begin with https:// unless its host is localhost"
      : undefined;
  }),
  v.transform((value) => new URL(value)),
);

const smtpUrl = v.pipe(
  checked((value) => {
    const url = URL.parse(value);
    const isServer = url && /^smtps?:$/.test(url.protocol) && url.hostname !== "";
    const isAll = url && /^\/?$/.test(url.pathname) && url.search + url.hash === "";
    return isServer && isAll && isDecodable(url)
      ? undefined
      : "must be such as smtp://user:password@mail.example.com:587, or smtps://";
  }),
  v.transform((value) => new URL(value)),
);

const proxy = v.pipe(parsed(parseProxy), v.transform(parseProxy));

const mailAddress = v.pipe(
  checked((value) => (readMailAddress(value) ? undefined : "must be an e-mail address")),
  v.transform((value) => readMailAddress(value) ?? value),
);

/** Of HTTP headers: `name=value,…`, percent-encoded. */
const headersOf = (list: string) =>
  Object.fromEntries(
    split(list).map((entry) => {
      const [, name, value = ""] = /^([\w-]+)\s*=(.*)$/.exec(entry) ?? [];
      if (name === undefined) throw new Error("no name");
      return [name.toLowerCase(), decodeURIComponent(value.trim())];
    }),
  );
const headerList = v.pipe(
  parsed(headersOf, "must be name=value, or several with commas"),
  v.transform(headersOf),
);
const collector = checked((url) =>
  /^https?:$/.test(URL.parse(url)?.protocol ?? "") ? undefined : "must be an http or https URL",
);
const share = checked((value) =>
  /^([01]|[01]?\.\d+)$/.test(value) && Number(value) <= 1
    ? undefined
    : "must be a number from 0 to 1",
);

const roles = ["all", "core", "facade"] as const;
const httpAdmins = ["true", "persons", "false"] as const;
const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
const samplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;

/** The variables that are settings as they are. */
const plain = {
  role: v.optional(choice(roles), "all"),
  /** Of a core: the cell whose database it has. Its secrets name it. */
  cell: v.optional(
    checked((name) => (isCellName(name) ? undefined : "must be two digits, such as 07")),
    plainCell,
  ),
  /** One server or a list, as `parseDatabaseUrl` reads it. Absent: the embedded database. */
  database_url: v.exactOptional(parsed(parseDatabaseUrl)),
  /** Of the owner of the tables, who migrates them. Absent: `databaseUrl`. */
  migration_database_url: v.exactOptional(parsed(parseDatabaseUrl)),
  /** Refuse to start on a ledger whose commits are on one server alone. */
  require_sync: v.optional(flag, "false"),
  /** As `parseRedisUrl` reads it. Absent: limits are counted in the memory of this process. */
  redis_url: v.exactOptional(parsed(parseRedisUrl)),
  /** Months before the current one whose charges are kept. Absent: all, and none is closed. */
  retention_months: v.exactOptional(integer(1, 1_200)),
  /**
   * Absent: the first start generates one and writes it to first-keys.json. Required with
   * `databaseUrl`.
   */
  admin_token: v.exactOptional(adminToken),
  /**
   * The address under which people reach the console: passkeys belong to it, and links begin with
   * it. Absent: `http://localhost` and the port. Required unless the role is `all`.
   */
  public_url: v.exactOptional(origin),
  /** Addresses and CIDR ranges of proxies whose `X-Forwarded-For` is trusted. */
  trusted_proxies: v.pipe(
    v.optional(
      commaList(
        isAddressRange,
        "must be an address or a CIDR range, or several separated by commas",
      ),
    ),
    v.transform((list) => list ?? []),
  ),
  /** Address of the public HTTP listener. Port 0: any free port. */
  host: v.optional(text, "127.0.0.1"),
  port: v.optional(port, "8080"),
  /** Address of the gRPC listener. */
  grpc_host: v.optional(text, "127.0.0.1"),
  /** Allows a plaintext gRPC listener on an address other than loopback. */
  grpc_allow_plaintext: v.optional(flag, "false"),
  /** Folder of the embedded database and of first-keys.json. */
  data_dir: v.optional(text, "./data"),
  log_level: v.optional(choice(logLevels), "info"),
  /** Number of processes that serve the ports. With 1, the process itself does. */
  workers: v.optional(
    v.lazy((input) =>
      input === "auto"
        ? v.pipe(
            text,
            v.transform(() => workersFor(availableParallelism())),
          )
        : integer(1, workersMax, ", or auto"),
    ),
    "1",
  ),
  /** Who may do on the HTTP listener what only operators may. `persons`: not the admin token. */
  http_admin: v.optional(choice(httpAdmins), "true"),
  /** Whether the end of a streamed answer shows what it cost. */
  stream_cost: v.optional(flag, "true"),
  /** Whether a provider may be called while the hold is being placed. */
  overlap: v.optional(flag, "true"),
  /**
   * Connections of one client address, or requests in progress of one address that a trusted proxy
   * forwards.
   */
  max_connections_per_address: v.optional(integer(1, 1_000_000), "256"),
};

/** The variables of which others settings are made. */
const parts = {
  content_key: v.exactOptional(contentKeys),
  grpc_port: v.exactOptional(port),
  export_sink: v.exactOptional(v.pipe(parsed(parseSink), v.transform(parseSink))),
  https_proxy: v.exactOptional(proxy),
  http_proxy: v.exactOptional(proxy),
  no_proxy: v.exactOptional(text),
  smtp_url: v.exactOptional(smtpUrl),
  mail_from: v.exactOptional(mailAddress),
  core_address: v.pipe(
    v.optional(parsed(parseCores)),
    v.transform((list) => (list === undefined ? [] : parseCores(list))),
  ),
  sign_up_cells: v.pipe(
    v.optional(parsed(parseWeights)),
    v.transform((list) => (list === undefined ? [] : parseWeights(list))),
  ),
  grpc_tls_cert: v.exactOptional(file),
  grpc_tls_key: v.exactOptional(file),
  grpc_tls_client_ca: v.exactOptional(file),
  core_tls: v.exactOptional(flag),
  core_tls_ca: v.exactOptional(file),
  core_tls_cert: v.exactOptional(file),
  core_tls_key: v.exactOptional(file),
  database_wait_seconds: v.optional(integer(0, 3_600), "60"),
  ledger_max_wait_seconds: v.optional(integer(1, 600), "10"),
  drain_delay_seconds: v.optional(integer(0, 600), "0"),
  drain_limit_seconds: v.optional(integer(0, 3_600), "120"),
  seed: v.exactOptional(flag),
  request_memory_mib: v.optional(memory, "512"),
  request_memory_per_key_mib: v.exactOptional(memory),
  request_memory_per_address_mib: v.exactOptional(memory),
  metrics_host: v.optional(text, "127.0.0.1"),
  metrics_port: v.exactOptional(port),
  metrics_genai: v.optional(flag, "false"),
  otel_exporter_otlp_endpoint: v.exactOptional(collector),
  otel_exporter_otlp_headers: v.exactOptional(headerList),
  otel_service_name: v.optional(text, "model-gateway"),
  otel_traces_sampler: v.optional(choice(samplers), "parentbased_traceidratio"),
  otel_traces_sampler_arg: v.optional(share, "0.01"),
};

const members = { ...plain, ...parts };

/** Variables that are required with a role, and that require another variable. */
const withRole = {
  content_key: ["facade"],
  core_address: ["facade"],
  public_url: ["core", "facade"],
} as const;
const withVariable = {
  migration_database_url: "database_url",
  require_sync: "database_url",
  mail_from: "smtp_url",
  grpc_tls_client_ca: "grpc_tls_cert",
} as const;
const pairs = { grpc_tls_cert: "grpc_tls_key", core_tls_cert: "core_tls_key" } as const;

const settingsOf = (isCommand: boolean) =>
  section(members, (rule, has) => {
    const contentKey = (why: string) => `is required with ${why}: ${contentKeyAdvice}`;
    for (const [name, required] of Object.entries(withRole))
      rule(name, ["role"], ({ role }) => {
        if (has(name) || !required.some((one) => one === role)) return undefined;
        if (isCommand && name === "public_url") return undefined;
        const why = `ROLE=${role}`;
        return name === "content_key" ? contentKey(why) : `is required with ${why}`;
      });
    rule("cell", ["role", "cell"], ({ role, cell }) =>
      cell !== plainCell && role !== "core" && !isCommand ? "requires ROLE=core" : undefined,
    );
    rule("content_key", ["role"], ({ role }) =>
      role !== "facade" && has("database_url") && !has("content_key")
        ? contentKey("DATABASE_URL")
        : undefined,
    );
    rule("sign_up_cells", ["core_address", "sign_up_cells"], ({ core_address, sign_up_cells }) => {
      const lacking = sign_up_cells.find(
        (one) => !core_address.some(({ cell }) => cell === one.cell),
      );
      return lacking && `names the cell ${lacking.cell}, which CORE_ADDRESS lacks`;
    });
    for (const [name, other] of Object.entries(withVariable))
      rule(name, ["require_sync"], ({ require_sync }) =>
        has(name) && !has(other) && (name !== "require_sync" || require_sync)
          ? `requires ${other.toUpperCase()}`
          : undefined,
      );
    // Clusters set it for all, also where nothing has a proxy.
    rule("no_proxy", ["no_proxy"], ({ no_proxy = "" }) =>
      has("https_proxy") || has("http_proxy")
        ? problemOf(() => parseDirectHosts(no_proxy))
        : undefined,
    );
    for (const [one, other] of Object.entries(pairs))
      rule(`${one}, ${other}`, [], () =>
        has(one) === has(other) ? undefined : "set both or neither",
      );
  });

const variables = settingsOf(false);
const commandVariables = settingsOf(true);

export type Role = (typeof roles)[number];
export type HttpAdmin = (typeof httpAdmins)[number];

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

export type Config = Settings<typeof plain> & {
  /** Port of the gRPC listener. 0: any free port. Absent: a facade that has none. */
  readonly grpcPort: number | undefined;
  /** Absent: the gRPC listener uses plaintext. */
  readonly grpcTls?: ServerTls;
  /** The longest wait of a start for the database. */
  readonly databaseWaitMs: number;
  /** The longest wait of a new request for the ledger. */
  readonly ledgerMaxWaitMs: number;
  /** Where every charge is sent. Absent: nowhere. */
  readonly sink?: ReturnType<typeof parseSink>;
  /**
   * Keys that seal what clients return unread, 32 bytes each; the first one seals. Absent: one in
   * `dataDir`, which the first start makes. Required with `databaseUrl` and for a facade, because
   * several processes must open what one of them sealed.
   */
  readonly contentKeys?: readonly Buffer[];
  /** Absent: no metrics are counted. `genai`: also under the names of OpenTelemetry. */
  readonly metrics?: {
    readonly host: string;
    readonly port: number;
    readonly genai: boolean;
    /** A label of each. Absent: the cell of one installation alone. */
    readonly cell?: string;
  };
  /** Absent: nothing is traced. */
  readonly tracing?: TracingSettings;
  /** The proxies to what the gateway calls over HTTP. */
  readonly proxies: ProxySettings;
  /** Absent: no mail is sent, and links are shown to those who make them. */
  readonly smtp?: SmtpServer;
  /** The cores of a facade. Empty in another role. */
  readonly cores: readonly CoreAddresses[];
  /** Among which new people are shared out. Empty: they go to the first cell. */
  readonly signUpCells: readonly CellWeight[];
  /** Absent: cores are called in plaintext. */
  readonly coreTls?: ClientTls;
  /** Create the account `default`, with credits and two keys, unless an earlier start did. */
  readonly seed: boolean;
  /** Time after SIGTERM in which requests are served, and balancers are asked to send no more. */
  readonly drainDelayMs: number;
  /** Time for active requests to finish after that. */
  readonly drainLimitMs: number;
  /** Bytes of memory for the bodies of requests, in all and for one key and one address. */
  readonly requestMemory: {
    readonly totalBytes: number;
    readonly perKeyBytes: number;
    readonly perAddressBytes: number;
  };
};

/** Puts the settings together: some are made of several variables, some have another name. */
function configOf({
  contentKey,
  exportSink,
  httpsProxy: https,
  httpProxy: http,
  noProxy = "",
  smtpUrl,
  mailFrom,
  coreAddress,
  grpcPort,
  grpcTlsCert,
  grpcTlsKey,
  grpcTlsClientCa,
  coreTlsCa,
  coreTlsCert,
  coreTlsKey,
  databaseWaitSeconds,
  ledgerMaxWaitSeconds,
  drainDelaySeconds,
  drainLimitSeconds,
  requestMemoryMib,
  requestMemoryPerKeyMib,
  requestMemoryPerAddressMib,
  metricsHost,
  metricsPort,
  metricsGenai,
  otelExporterOtlpEndpoint: collector,
  otelExporterOtlpHeaders,
  otelServiceName,
  otelTracesSampler,
  otelTracesSamplerArg,
  coreTls,
  seed,
  ...plain
}: Settings<typeof members>): Config {
  const shareOf = (parts: number) =>
    Math.max(requestMemoryMinMib, Math.floor(requestMemoryMib / parts));
  return {
    ...plain,
    grpcPort:
      plain.role === "facade" ? facadePort(coreAddress, grpcPort) : (grpcPort ?? grpcPortDefault),
    ...serverTlsOf({ grpcTlsCert, grpcTlsKey, grpcTlsClientCa }),
    ...clientTlsOf({ coreTls, coreTlsCa, coreTlsCert, coreTlsKey }),
    databaseWaitMs: databaseWaitSeconds * 1000,
    ledgerMaxWaitMs: ledgerMaxWaitSeconds * 1000,
    ...(exportSink && { sink: exportSink }),
    ...(contentKey && { contentKeys: contentKey }),
    ...(metricsPort !== undefined && {
      metrics: {
        host: metricsHost,
        port: metricsPort,
        genai: metricsGenai,
        ...(plain.cell !== plainCell && { cell: plain.cell }),
      },
    }),
    ...(collector !== undefined && {
      tracing: {
        endpoint: `${collector.replace(/\/+$/, "")}/v1/traces`,
        headers: otelExporterOtlpHeaders ?? {},
        serviceName: otelServiceName,
        sampler: otelTracesSampler,
        ratio: Number(otelTracesSamplerArg),
      },
    }),
    proxies: {
      ...(https && { https }),
      ...(http && { http }),
      ...((https || http) && { direct: parseDirectHosts(noProxy) }),
    },
    ...(smtpUrl && {
      smtp: {
        url: smtpUrl,
        from: mailFrom ?? `no-reply@${plain.publicUrl?.hostname ?? "localhost"}`,
      },
    }),
    cores: coreAddress,
    seed: seed ?? plain.databaseUrl === undefined,
    drainDelayMs: drainDelaySeconds * 1000,
    drainLimitMs: drainLimitSeconds * 1000,
    requestMemory: {
      totalBytes: requestMemoryMib * mebibyte,
      perKeyBytes: (requestMemoryPerKeyMib ?? shareOf(4)) * mebibyte,
      perAddressBytes: (requestMemoryPerAddressMib ?? shareOf(2)) * mebibyte,
    },
  };
}

/** A facade without cells has no gRPC listener: its core has one. */
function facadePort([first]: readonly CoreAddresses[], port: number | undefined) {
  return first?.cell === undefined ? undefined : port;
}

type File = v.InferOutput<typeof file>;
type TlsSettings<Name extends keyof Settings<typeof members>> = {
  readonly [N in Name]: Settings<typeof members>[N] | undefined;
};

function serverTlsOf({
  grpcTlsCert,
  grpcTlsKey,
  grpcTlsClientCa,
}: TlsSettings<"grpcTlsCert" | "grpcTlsKey" | "grpcTlsClientCa">): Pick<Config, "grpcTls"> {
  const pair = pairOf(grpcTlsCert, grpcTlsKey);
  if (!pair) return {};
  const clientAuthorities = grpcTlsClientCa?.content;
  return {
    grpcTls: {
      ...pair,
      ...(clientAuthorities && { clientAuthorities }),
      files: filesOf(grpcTlsCert, grpcTlsKey, grpcTlsClientCa),
    },
  };
}

function clientTlsOf({
  coreTls,
  coreTlsCa,
  coreTlsCert,
  coreTlsKey,
}: TlsSettings<"coreTls" | "coreTlsCa" | "coreTlsCert" | "coreTlsKey">): Pick<Config, "coreTls"> {
  const identity = pairOf(coreTlsCert, coreTlsKey);
  if (!(coreTls ?? (coreTlsCa ?? identity) !== undefined)) return {};
  return {
    coreTls: {
      ...(coreTlsCa && { authorities: coreTlsCa.content }),
      ...(identity && { identity }),
      files: filesOf(coreTlsCert, coreTlsKey, coreTlsCa),
    },
  };
}

function pairOf(certificate: File | undefined, privateKey: File | undefined) {
  return certificate && privateKey
    ? { certificate: certificate.content, privateKey: privateKey.content }
    : undefined;
}

function filesOf(...files: [File | undefined, File | undefined, File | undefined]): TlsFiles {
  const [certificate = "", privateKey = "", authorities = ""] = files.map((one) => one?.path);
  return { certificate, privateKey, authorities };
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
 * gateway, no address, and no role of its cell. Throws as `readConfig` does.
 */
export function readCommandConfig(env: NodeJS.ProcessEnv): Config {
  const unused = Buffer.alloc(contentKeyBytes).toString("base64");
  const { ADMIN_TOKEN_FILE: _, CONTENT_KEY_FILE: __, ...others } = env;
  const given = { ADMIN_TOKEN: "not-needed-by-a-command", CONTENT_KEY: unused, ...others };
  return readVariables(given, commandVariables);
}

/** Other programs read these in small letters, too, which win. */
const isProxyName = (member: string) => /^(https?|no)_proxy$/.test(member);

/** Reads the environment. Throws one Error that lists every problem, one a line. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  return readVariables(env, variables);
}

function readVariables(env: NodeJS.ProcessEnv, schema: typeof variables): Config {
  const problems: string[] = [];
  const secrets = readSecretFiles(env, problems);
  const given: Record<string, string> = {};
  for (const member of Object.keys(members)) {
    const name = member.toUpperCase();
    const value =
      (isProxyName(member) ? readText(env, member) : undefined) ??
      readText(env, name) ??
      readText(secrets, name);
    if (value !== undefined) given[member] = value;
  }
  const { success, output, issues } = v.safeParse(schema, given);
  for (const issue of issues ?? []) {
    // A problem never repeats the value, which may be a secret in the wrong variable.
    const message = issue.message.replace(`, not ${issue.input}`, "");
    problems.push(`${placeOf(issue).toUpperCase()}: ${message}`);
  }
  if (!success || problems.length > 0)
    throw new Error(`configuration:\n${problems.map((one) => `  ${one}`).join("\n")}`);
  return Object.freeze(configOf(output));
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

/** The cores of one cell. */
export type CoreAddresses = {
  /** Absent: the only one, which has no name. */
  readonly cell?: string;
  /** `host:port` of each core. */
  readonly addresses: readonly string[];
};

/** `host:port,…`, or `00=host:port+host:port,07=…`. Throws a rule. */
function parseCores(list: string): CoreAddresses[] {
  const rule =
    "must be host:port, or several separated by commas; with cells 00=host:port+host:port,07=…";
  const entries = split(list);
  const isRight = (addresses: readonly string[]) => addresses.every(isHostAndPort);
  if (!list.includes("=")) {
    if (!isRight(entries)) throw new Error(rule);
    return [{ addresses: entries }];
  }
  const cores = entries.map((entry) => {
    const [cell = "", text = ""] = entry.split("=");
    return { cell, addresses: text.split("+").map((address) => address.trim()) };
  });
  if (!cores.every(({ cell, addresses }) => isCellName(cell) && isRight(addresses)))
    throw new Error(rule);
  checkOnce(cores);
  return cores;
}

/** A cell, and its part of the new people. */
export type CellWeight = { readonly cell: string; readonly weight: number };

/** `00=3,07=1`. Throws a rule. */
function parseWeights(list: string): CellWeight[] {
  const weights = split(list).map((entry) => {
    const [, cell = "", weight] = /^(\d{2})=(\d{1,4})$/.exec(entry) ?? [];
    return { cell, weight: Number(weight) };
  });
  if (!weights.every(({ weight }) => weight > 0))
    throw new Error("must be cells and their parts, from 1 to 9999, such as 00=3,07=1");
  checkOnce(weights);
  return weights;
}

function checkOnce(list: readonly { readonly cell: string }[]): void {
  const twice = list.find(({ cell }, at) => list.findIndex((one) => one.cell === cell) !== at);
  if (twice) throw new Error(`names the cell ${twice.cell} twice`);
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
