// The environment, read once into one frozen object.

import { readFileSync } from "node:fs";
import { isIP } from "node:net";

export type Role = "all" | "core" | "facade";

export type Config = {
  /** Of the public HTTP listener. Port 0 takes any free one. */
  readonly host: string;
  readonly port: number;
  readonly grpcHost: string;
  readonly grpcPort: number;
  /** Absent: the gRPC listener speaks plaintext. */
  readonly grpcTls?: ServerTls;
  /** Lets gRPC in plaintext listen on an address that others can reach. */
  readonly grpcAllowPlaintext: boolean;
  /** Folder of the embedded database and of first-keys.json. */
  readonly dataDir: string;
  /** Absent: the embedded database. */
  readonly databaseUrl?: string;
  /** Absent: limits are counted in this process's memory. */
  readonly redisUrl?: string;
  /**
   * Absent: made at the first start and kept in first-keys.json. Never absent with `databaseUrl`.
   */
  readonly adminToken?: string;
  /** Path of the catalogue file. Absent: the built-in one. */
  readonly catalogPath?: string;
  readonly logLevel: LogLevel;
  readonly role: Role;
  /** `host:port` of each core. Empty unless the role is `facade`. */
  readonly coreAddresses: readonly string[];
  /** Absent: cores are called in plaintext. */
  readonly coreTls?: ClientTls;
  /** Whether the HTTP listener also serves the methods that only the admin token may call. */
  readonly httpAdmin: boolean;
  /**
   * Whether a start makes the account `default`, with credits and two keys, where there is none of
   * that name.
   */
  readonly seed: boolean;
  /** How long running requests may take to finish after SIGTERM, in milliseconds. */
  readonly drainLimitMs: number;
  /** Addresses and CIDR ranges whose `X-Forwarded-For` is believed. */
  readonly trustedProxies: readonly string[];
};

/** PEM texts of a server. */
export type ServerTls = {
  readonly certificate: Buffer;
  readonly privateKey: Buffer;
  /** Callers must show a certificate signed by one of these. Absent: callers need none. */
  readonly clientAuthorities?: Buffer;
};

/** PEM texts of a client. */
export type ClientTls = {
  /** Signers of the server's certificate. Absent: those that Node trusts. */
  readonly authorities?: Buffer;
  /** Shown to a server that asks for one. */
  readonly identity?: { readonly certificate: Buffer; readonly privateKey: Buffer };
};

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
type LogLevel = (typeof logLevels)[number];
const roles = ["all", "core", "facade"] as const;

// Shorter tokens can be guessed; the one that a first start makes has 43 characters.
const adminTokenLengthMin = 16;

/** Reads the environment. Throws one Error whose lines name every problem. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const problems: string[] = [];
  const { text, integer, choice, flag, list, url, pair, file } = createReader(env, problems);

  const role = choice("ROLE", roles, "all");
  const databaseUrl = url("DATABASE_URL", ["postgres:", "postgresql:"]);
  const redisUrl = url("REDIS_URL", ["redis:", "rediss:"]);
  const adminToken = text("ADMIN_TOKEN");
  const catalogPath = text("CONFIG");
  const coreAddresses = list("CORE_ADDRESS");
  const trustedProxies = list("TRUSTED_PROXIES");
  const grpcPair = pair("GRPC_TLS_CERT", "GRPC_TLS_KEY");
  const clientAuthorities = file("GRPC_TLS_CLIENT_CA");
  const authorities = file("CORE_TLS_CA");
  const identity = pair("CORE_TLS_CERT", "CORE_TLS_KEY");
  const coreTls = flag("CORE_TLS", authorities !== undefined || identity !== undefined);

  if (adminToken !== undefined && !/^[\x21-\x7e]+$/.test(adminToken)) {
    problems.push("ADMIN_TOKEN: only visible ASCII characters, without spaces, fit into a header");
  } else if (adminToken !== undefined && adminToken.length < adminTokenLengthMin) {
    problems.push(`ADMIN_TOKEN: needs at least ${adminTokenLengthMin} characters`);
  }
  if (role !== "facade" && databaseUrl !== undefined && adminToken === undefined) {
    problems.push("ADMIN_TOKEN: is required with DATABASE_URL");
  }
  if (role === "facade" && coreAddresses.length === 0)
    problems.push("CORE_ADDRESS: is required with ROLE=facade");
  if (clientAuthorities !== undefined && grpcPair === undefined) {
    problems.push("GRPC_TLS_CLIENT_CA: needs GRPC_TLS_CERT and GRPC_TLS_KEY");
  }
  for (const address of coreAddresses) {
    if (!/^(\[[0-9a-f:.]+\]|[^:/\s]+):\d{1,5}$/i.test(address)) {
      problems.push("CORE_ADDRESS: must be host:port, or several separated by commas");
    }
  }

  if (!trustedProxies.every(isAddressRange)) {
    problems.push(
      "TRUSTED_PROXIES: must be an address or a CIDR range, or several separated by commas",
    );
  }

  const config: Config = {
    host: text("HOST") ?? "127.0.0.1",
    port: integer("PORT", { min: 0, max: 65_535, otherwise: 8080 }),
    grpcHost: text("GRPC_HOST") ?? "127.0.0.1",
    grpcPort: integer("GRPC_PORT", { min: 0, max: 65_535, otherwise: 50_051 }),
    ...(grpcPair && { grpcTls: { ...grpcPair, ...(clientAuthorities && { clientAuthorities }) } }),
    grpcAllowPlaintext: flag("GRPC_ALLOW_PLAINTEXT", false),
    dataDir: text("DATA_DIR") ?? "./data",
    ...(databaseUrl !== undefined && { databaseUrl }),
    ...(redisUrl !== undefined && { redisUrl }),
    ...(adminToken !== undefined && { adminToken }),
    ...(catalogPath !== undefined && { catalogPath }),
    logLevel: choice("LOG_LEVEL", logLevels, "info"),
    role,
    coreAddresses,
    ...(coreTls && {
      coreTls: { ...(authorities && { authorities }), ...(identity && { identity }) },
    }),
    httpAdmin: flag("HTTP_ADMIN", true),
    seed: flag("SEED", databaseUrl === undefined),
    drainLimitMs: integer("DRAIN_LIMIT_SECONDS", { min: 0, max: 3_600, otherwise: 120 }) * 1000,
    trustedProxies,
  };
  if (problems.length > 0)
    throw new Error(
      `configuration:\n${[...new Set(problems)].map((one) => `  ${one}`).join("\n")}`,
    );
  return Object.freeze(config);
}

/**
 * An address, or a range written `10.0.0.0/8`. A range of all addresses is none: then anybody could
 * say where they come from.
 */
function isAddressRange(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  return (
    prefix === undefined ||
    (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
  );
}

// Values are never repeated in a problem: one of them may be a secret in the wrong place.
function createReader(env: NodeJS.ProcessEnv, problems: string[]) {
  const text = (name: string): string | undefined => {
    const value = env[name]?.trim();
    return value === "" ? undefined : value;
  };
  const integer = (
    name: string,
    range: { min: number; max: number; otherwise: number },
  ): number => {
    const value = text(name);
    if (value === undefined) return range.otherwise;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= range.min && number <= range.max) return number;
    problems.push(`${name}: must be a whole number from ${range.min} to ${range.max}`);
    return range.otherwise;
  };
  const choice = <T extends string>(name: string, choices: readonly T[], otherwise: T): T => {
    const value = text(name);
    if (value === undefined) return otherwise;
    const found = choices.find((one) => one === value);
    if (found === undefined) problems.push(`${name}: must be one of ${choices.join(", ")}`);
    return found ?? otherwise;
  };
  const flag = (name: string, otherwise: boolean): boolean =>
    text(name) === undefined
      ? otherwise
      : choice(name, ["true", "false"], otherwise ? "true" : "false") === "true";
  const list = (name: string): string[] =>
    (text(name) ?? "")
      .split(",")
      .map((one) => one.trim())
      .filter((one) => one !== "");
  const url = (name: string, protocols: readonly string[]): string | undefined => {
    const value = text(name);
    if (value !== undefined && !protocols.includes(URL.parse(value)?.protocol ?? "")) {
      problems.push(
        `${name}: must be a URL that begins with ${protocols.map((one) => `${one}//`).join(" or ")}`,
      );
    }
    return value;
  };
  const file = (name: string): Buffer | undefined => {
    const path = text(name);
    if (path === undefined) return undefined;
    try {
      return readFileSync(path);
    } catch {
      problems.push(`${name}: names a file that cannot be read`);
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
      problems.push(`${certificateName} and ${keyName}: are needed together`);
    }
    return undefined;
  };
  return { text, integer, choice, flag, list, url, file, pair };
}

// Addresses as clients write them.

/** `host:port`, an IPv6 host in brackets. */
export function hostAndPort(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
