import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import fastify from "fastify";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  readCatalogPath,
  readCommandConfig,
  readConfig,
  secretNames,
  workersFor,
} from "../../src/config/environment.ts";
import { contentKey } from "../support/content-key.ts";

test("an empty environment gives a gateway for one machine", () => {
  expect(readConfig({})).toEqual({
    host: "127.0.0.1",
    port: 8080,
    grpcHost: "127.0.0.1",
    grpcPort: 50051,
    grpcAllowPlaintext: false,
    dataDir: "./data",
    requireSync: false,
    databaseWaitMs: 60_000,
    ledgerMaxWaitMs: 10_000,
    logLevel: "info",
    role: "all",
    workers: 1,
    cores: [],
    signUpCells: [],
    cell: "00",
    httpAdmin: "true",
    streamCost: true,
    overlap: true,
    proxies: {},
    seed: true,
    drainDelayMs: 0,
    drainLimitMs: 120_000,
    trustedProxies: [],
    maxConnectionsPerAddress: 256,
    requestMemory: {
      totalBytes: 512 * 1024 * 1024,
      perKeyBytes: 128 * 1024 * 1024,
      perAddressBytes: 256 * 1024 * 1024,
    },
  });
});

test("the shares of the request memory follow its size, and hold the largest body at least", () => {
  const mebibytesOf = (env: NodeJS.ProcessEnv) =>
    Object.values(readConfig(env).requestMemory).map((bytes) => bytes / 1024 / 1024);
  expect(mebibytesOf({ REQUEST_MEMORY_MIB: "2048" })).toEqual([2048, 512, 1024]);
  expect(mebibytesOf({ REQUEST_MEMORY_MIB: "128" })).toEqual([128, 128, 128]);
  const shares = {
    REQUEST_MEMORY_PER_KEY_MIB: "300",
    REQUEST_MEMORY_PER_ADDRESS_MIB: "400",
  };
  expect(mebibytesOf(shares)).toEqual([512, 300, 400]);
  expect(() => readConfig({ REQUEST_MEMORY_MIB: "127" })).toThrow(
    "REQUEST_MEMORY_MIB: must be a whole number from 128 to 1048576",
  );
});

test("months are kept and charges sent as they are asked for, and a bad address names no secret", () => {
  expect(readConfig({})).not.toHaveProperty("retentionMonths");
  expect(readConfig({})).not.toHaveProperty("sink");
  expect(readConfig({ RETENTION_MONTHS: "12", EXPORT_SINK: "file:///charges" })).toMatchObject({
    retentionMonths: 12,
    sink: { kind: "files", folder: "/charges" },
  });
  for (const months of ["0", "-1", "1.5", "a year"])
    expect(() => readConfig({ RETENTION_MONTHS: months })).toThrow(
      "RETENTION_MONTHS: must be a whole number from 1 to 1200",
    );
  const readSink = () => readConfig({ EXPORT_SINK: "https://me:hidden@localhost/charges" });
  expect(readSink).toThrow("EXPORT_SINK: must be file:///folder, or clickhouse+https://");
  expect(readSink).not.toThrow("hidden");
});

test("an empty variable counts as absent", () => {
  expect(readConfig({ PORT: "", DATABASE_URL: " ", CORE_ADDRESS: "" })).toEqual(readConfig({}));
});

test("an empty CONFIG names no file", () => {
  for (const value of ["", " ", undefined]) {
    const env = value === undefined ? {} : { CONFIG: value };
    expect(readCatalogPath(env)).toBeUndefined();
  }
  expect(readCatalogPath({ CONFIG: " models.yaml" })).toBe("models.yaml");
});

test("an external database is seeded only with SEED=true", () => {
  const env = {
    DATABASE_URL: "postgres://somewhere/ledger",
    ADMIN_TOKEN: "a-token-of-some-length",
    CONTENT_KEY: contentKey,
  };
  expect(readConfig(env).seed).toBe(false);
  expect(readConfig({ ...env, SEED: "true" }).seed).toBe(true);
});

test("a list is separated by commas", () => {
  const config = readConfig({
    ROLE: "facade",
    CONTENT_KEY: contentKey,
    PUBLIC_URL: "https://gateway.example.com",
    CORE_ADDRESS: "one:50051, [::1]:50052,",
    TRUSTED_PROXIES: "10.0.0.0/8",
  });
  expect(config.cores).toEqual([{ addresses: ["one:50051", "[::1]:50052"] }]);
  expect(config.trustedProxies).toEqual(["10.0.0.0/8"]);
  // Only a core is called by gRPC.
  expect(config.grpcPort).toBeUndefined();
});

test("a facade of cells has the cores of each, and shares out new people", () => {
  const config = readConfig({
    ...facade,
    CORE_ADDRESS: "00=a:50051+[::1]:50052, 07=b:50051",
    SIGN_UP_CELLS: "00=1, 07=3",
    GRPC_PORT: "50052",
  });
  expect(config.cores).toEqual([
    { cell: "00", addresses: ["a:50051", "[::1]:50052"] },
    { cell: "07", addresses: ["b:50051"] },
  ]);
  expect(config.signUpCells).toEqual([
    { cell: "00", weight: 1 },
    { cell: "07", weight: 3 },
  ]);
  expect(config.grpcPort).toBe(50052);
});

test("a facade without cells ignores GRPC_PORT", () => {
  const env = { ...facade, CORE_ADDRESS: "a:50051", GRPC_PORT: "50052" };
  expect(readConfig(env).grpcPort).toBeUndefined();
});

test("a command needs no role of its cell, and no address", () => {
  const env = { CELL: "07", DATABASE_URL: "postgres://user@127.0.0.1:1/ledger" };
  expect(readCommandConfig(env).cell).toBe("07");
  expect(readCommandConfig({ ...env, ROLE: "core" })).toMatchObject({ role: "core", cell: "07" });
  expect(() => readCommandConfig({ CELL: "7" })).toThrow("CELL: must be two digits");
});

test("NO_PROXY counts where there is a proxy", () => {
  expect(readConfig({ NO_PROXY: "https://not.a.host" }).proxies).toEqual({});
  const { proxies } = readConfig({ NO_PROXY: "10.0.0.0/8,.svc", HTTP_PROXY: "http://proxy" });
  expect(proxies.direct).toHaveLength(2);
});

test("TRUSTED_PROXIES takes addresses and ranges", () => {
  const proxies = ["10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8", "2001:db8::1/128"];
  expect(readConfig({ TRUSTED_PROXIES: proxies.join(",") }).trustedProxies).toEqual(proxies);
  expect(() => fastify({ trustProxy: proxies })).not.toThrow();
});

test.for([
  "nginx",
  "10.0.0",
  "10.0.0.0/33",
  "::1/129",
  "0.0.0.0/0",
  "10.0.0.0/",
  "10.0.0.0/8/8",
  "10.0.0.0/255.0.0.0",
  "loopback",
])("TRUSTED_PROXIES rejects %s", (proxy) => {
  expect(problemsOf({ TRUSTED_PROXIES: `10.0.0.1,${proxy}` })).toEqual([
    expect.stringMatching(/^TRUSTED_PROXIES: /),
  ]);
});

test("WORKERS takes a number up to 64, or auto", () => {
  expect(readConfig({ WORKERS: "64" }).workers).toBe(64);
  expect(readConfig({ WORKERS: " 2 " }).workers).toBe(2);
  expect(readConfig({ WORKERS: "auto" }).workers).toBe(workersFor(availableParallelism()));
});

test.for([
  [1, 1],
  [2, 1],
  [3, 1],
  [4, 2],
  [8, 6],
  [66, 64],
  [128, 64],
] as const)(
  "WORKERS=auto leaves processors for the database: of %d, %d",
  ([processors, workers]) => {
    expect(workersFor(processors)).toBe(workers);
  },
);

test.for(["0", "65", "-1", "1.5", "abc", "AUTO", "1e1"])("WORKERS rejects %s", (workers) => {
  expect(problemsOf({ WORKERS: workers })).toEqual([
    "WORKERS: must be a whole number from 1 to 64, or auto",
  ]);
});

test("PUBLIC_URL is an origin: https, or http at localhost", () => {
  const read = (value: string) => readConfig({ PUBLIC_URL: value }).publicUrl?.origin;
  expect(readConfig({}).publicUrl).toBeUndefined();
  expect(read("https://gateway.example.com")).toBe("https://gateway.example.com");
  expect(read("http://localhost:8080/")).toBe("http://localhost:8080");
  for (const value of ["gateway", "ftp://gateway", "https://gateway/console", "https://u:p@g"])
    expect(problemsOf({ PUBLIC_URL: value })).toEqual([
      "PUBLIC_URL: must be an address such as https://gateway.example.com, no path",
    ]);
  expect(problemsOf({ PUBLIC_URL: "http://gateway.example.com" })).toEqual([
    "PUBLIC_URL: must begin with https:// unless its host is localhost",
  ]);
  expect(problemsOf({ ROLE: "core" })).toEqual(["PUBLIC_URL: is required with ROLE=core"]);
});

test("all problems are reported at once", () => {
  const env = {
    PORT: "http",
    GRPC_PORT: "65536",
    DATABASE_URL: "localhost:5432",
    REDIS_URL: "http://localhost",
    LOG_LEVEL: "loud",
    ROLE: "facade",
    SEED: "yes",
    DRAIN_LIMIT_SECONDS: "-1",
    ADMIN_TOKEN: "short",
    TRUSTED_PROXIES: "nginx",
  };
  expect(problemsOf(env)).toEqual([
    "DATABASE_URL: must be a URL that begins with postgres:// or postgresql://",
    "REDIS_URL: must be redis://host:6379, rediss://…, redis+cluster://a:6379,b:6379, " +
      "or redis+sentinel://a:26379,b:26379/name",
    "ADMIN_TOKEN: must have at least 16 characters",
    "TRUSTED_PROXIES: must be an address or a CIDR range, or several separated by commas",
    "PORT: must be a whole number from 0 to 65535",
    "LOG_LEVEL: must be one of trace, debug, info, warn, error, fatal, silent",
    "GRPC_PORT: must be a whole number from 0 to 65535",
    "DRAIN_LIMIT_SECONDS: must be a whole number from 0 to 3600",
    "SEED: must be one of true, false",
    "CONTENT_KEY: is required with ROLE=facade: 32 bytes in base64, as `openssl rand -base64 32` prints them",
    "CORE_ADDRESS: is required with ROLE=facade",
    "PUBLIC_URL: is required with ROLE=facade",
  ]);
});

const facade = {
  ROLE: "facade",
  PUBLIC_URL: "https://gateway.example.com",
  CORE_ADDRESS: "core:50051",
  CONTENT_KEY: contentKey,
};

test("a core of an external database needs a content key, as every gateway does", () => {
  const { PUBLIC_URL } = facade;
  const database = { DATABASE_URL: "postgres://x/y", ADMIN_TOKEN: "a-token-of-some-length" };
  expect(problemsOf({ ROLE: "core", PUBLIC_URL, ...database })).toEqual([
    expect.stringContaining("CONTENT_KEY: is required with DATABASE_URL"),
  ]);
  expect(problemsOf({ ROLE: "core", PUBLIC_URL, CONTENT_KEY: contentKey, ...database })).toEqual(
    [],
  );
});

const rejected: { name: string; env: NodeJS.ProcessEnv; message: string }[] = [
  {
    name: "an external database without a content key",
    env: { DATABASE_URL: "postgres://x/y", ADMIN_TOKEN: "a-token-of-some-length" },
    message: "CONTENT_KEY: is required with DATABASE_URL: 32 bytes in base64, as `openssl rand",
  },
  {
    name: "a facade without a content key",
    env: { ...facade, CONTENT_KEY: undefined },
    message: "CONTENT_KEY: is required with ROLE=facade",
  },
  {
    name: "an admin token that is not ASCII",
    env: { ADMIN_TOKEN: "sixteen chars ü ü ü" },
    message: "ADMIN_TOKEN: must consist of visible ASCII",
  },
  {
    name: "a core address without a port",
    env: { ...facade, CORE_ADDRESS: "core" },
    message: "CORE_ADDRESS: must be host:port",
  },
  {
    name: "a cell that is not two digits",
    env: { ...facade, ROLE: "core", CELL: "7" },
    message: "CELL: must be two digits, such as 07",
  },
  {
    name: "a cell of a gateway that is no core",
    env: { CELL: "07" },
    message: "CELL: requires ROLE=core",
  },
  {
    name: "a cell of CORE_ADDRESS without a name",
    env: { ...facade, CORE_ADDRESS: "00=a:1,b:1" },
    message: "CORE_ADDRESS: must be host:port",
  },
  {
    name: "a cell of CORE_ADDRESS twice",
    env: { ...facade, CORE_ADDRESS: "00=a:1,00=b:1" },
    message: "CORE_ADDRESS: names the cell 00 twice",
  },
  {
    name: "a part of new people for an unknown cell",
    env: { ...facade, CORE_ADDRESS: "00=a:1,07=b:1", SIGN_UP_CELLS: "00=1,08=1" },
    message: "SIGN_UP_CELLS: names the cell 08, which CORE_ADDRESS lacks",
  },
  {
    name: "a cell without new people among those that have some",
    env: { ...facade, CORE_ADDRESS: "00=a:1,07=b:1", SIGN_UP_CELLS: "00=0" },
    message: "SIGN_UP_CELLS: must be cells and their parts",
  },
  { name: "a fraction of a port", env: { PORT: "80.5" }, message: "PORT: must be" },
  {
    name: "a certificate without its key",
    env: { GRPC_TLS_CERT: import.meta.filename },
    message: "GRPC_TLS_CERT, GRPC_TLS_KEY: set both or neither",
  },
  {
    name: "a certificate file that does not exist",
    env: { CORE_TLS_CA: "/nowhere" },
    message: "CORE_TLS_CA: the file cannot be read",
  },
  {
    name: "a client CA without a server certificate",
    env: { GRPC_TLS_CLIENT_CA: import.meta.filename },
    message: "GRPC_TLS_CLIENT_CA: requires GRPC_TLS_CERT",
  },
];
for (const { name, env, message } of rejected) {
  test(`${name} is rejected`, () => {
    expect(problemsOf(env)).toEqual([expect.stringContaining(message)]);
  });
}

test("a problem never repeats the value, which may be a secret in the wrong variable", () => {
  expect(problemsOf({ PORT: "sk-gw2-secret", REDIS_URL: "sk-gw2-secret" }).join()).not.toContain(
    "secret",
  );
});

function problemsOf(env: NodeJS.ProcessEnv): string[] {
  try {
    readConfig(env);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const [first, ...problems] = error.message.split("\n");
    expect(first).toBe("configuration:");
    return problems.map((one) => one.trim());
  }
  return [];
}

describe("a secret in a file", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "gateway-secrets-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const put = (content: string) => {
    writeFileSync(join(folder, "secret"), content);
    return join(folder, "secret");
  };

  test("is its content without the newline at its end", () => {
    const ADMIN_TOKEN_FILE = put("a-token-of-some-length\n");
    expect(readConfig({ ADMIN_TOKEN_FILE }).adminToken).toBe("a-token-of-some-length");
  });

  test("may be any of the secrets", () => {
    const readAll = () =>
      readConfig(Object.fromEntries(secretNames.map((name) => [`${name}_FILE`, folder])));
    for (const name of secretNames)
      expect(readAll).toThrow(`${name}_FILE: the file cannot be read (EISDIR)`);
  });

  test("is checked as the variable is, and never quoted", () => {
    const ADMIN_TOKEN_FILE = put("hidden token\n");
    const read = () => readConfig({ ADMIN_TOKEN_FILE });
    expect(read).toThrow("ADMIN_TOKEN: must consist of visible ASCII characters");
    expect(read).not.toThrow("hidden");
  });

  test.for([
    ["a missing file", "/nowhere", {}, "ADMIN_TOKEN_FILE: the file cannot be read (ENOENT)"],
    ["an empty file", "", {}, "ADMIN_TOKEN_FILE: the file is empty"],
    ["both", "", { ADMIN_TOKEN: "x" }, "ADMIN_TOKEN, ADMIN_TOKEN_FILE: set one of them"],
  ] as const)("%s is a problem", ([, path, more, problem]) => {
    const ADMIN_TOKEN_FILE = path === "" ? put("\n") : path;
    expect(() => readConfig({ ADMIN_TOKEN_FILE, ...more })).toThrow(problem);
  });

  test("is not needed by a command", () => {
    expect(() => readCommandConfig({ ADMIN_TOKEN_FILE: "/nowhere" })).not.toThrow();
  });
});
