// PostgreSQL with TLS: the forms of address that clouds give, with a private authority, and what
// the start says of each mistake.

import { chmod, chown, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readCommandConfig } from "../../src/config/environment.ts";
import { findBinaries } from "../../src/postgres/embedded/binaries.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { checkConnection } from "../../src/postgres/preflight.ts";
import { Servers } from "../../src/postgres/servers.ts";
import { startupErrorMessage } from "../../src/server/startup-error.ts";
import { createAuthority } from "../support/certificates.ts";
import { freePort } from "../support/ports.ts";
import { query } from "../support/query.ts";
import { TestServer } from "../support/server-pair.ts";

let folder: string;
let server: TestServer;
let untouched: TestServer;
const authority = createAuthority("ours");
const file = (name: string) => join(folder, name);

async function put(name: string, content: string | Buffer): Promise<void> {
  await writeFile(file(name), content, { mode: 0o600 });
  const { ownerId } = await findBinaries();
  if (process.getuid?.() === 0 && ownerId !== 0) await chown(file(name), ownerId, -1);
}

/** The server takes this certificate from now on. */
async function serve({ certificate, privateKey }: ReturnType<typeof authority.issue>) {
  await put("server.crt", certificate);
  await put("server.key", privateKey);
  if (server !== undefined) {
    await server.stop();
    await server.start();
  }
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-tls-"));
  await chmod(folder, 0o755);
  const binaries = await findBinaries();
  await serve(authority.issue("server"));
  await put("root.crt", authority.certificate);
  await put("other.crt", createAuthority("theirs").certificate);
  const client = authority.issue("gateway");
  await put("client.crt", client.certificate);
  await put("client.key", client.privateKey);
  await put(
    "hba.conf",
    `hostnossl all encrypted 127.0.0.1/32 reject
hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca
host all all 127.0.0.1/32 trust
`,
  );
  server = new TestServer("tls", await freePort(), folder, binaries, [
    ...["ssl=on", `ssl_cert_file=${file("server.crt")}`, `ssl_key_file=${file("server.key")}`],
    ...[`ssl_ca_file=${file("root.crt")}`, `hba_file=${file("hba.conf")}`],
  ]);
  untouched = new TestServer("plain", await freePort(), folder, binaries);
  for (const one of [server, untouched]) {
    await one.create();
    await one.start();
    await one.query("create database gateway", "postgres");
  }
  for (const role of ["encrypted", "certified"]) await server.query(`create role ${role} login`);
});
afterAll(async () => {
  await Promise.all([server.stop(), untouched.stop()]);
  await rm(folder, { recursive: true, force: true });
});

function urlOf(parameters: string, { user = "gateway", host = "localhost", of = server } = {}) {
  const named = parameters.replaceAll("FOLDER", folder);
  return `postgres://${user}@${host}:${of.port}/gateway${named && `?${named}`}`;
}

/** Whether the connection is encrypted. */
async function isEncrypted(url: string): Promise<boolean | undefined> {
  const { client } = await new Servers(url).connect();
  const { rows } = await client.query<{ ssl: boolean }>(
    "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
  );
  await client.end();
  return rows[0]?.ssl;
}

/** What a start says of this address. */
async function problemOf(url: string): Promise<string> {
  const config = readCommandConfig({ DATABASE_URL: url });
  const failure = await checkConnection(url).then(
    () => "none",
    (error: unknown) => startupErrorMessage(error, config),
  );
  return failure.replaceAll(/:\d{4,5}\b/g, "");
}

for (const [form, parameters] of [
  ["require, without looking at the certificate", "sslmode=require"],
  ["require with an authority of its own", "sslmode=require&sslrootcert=FOLDER/root.crt"],
  ["verify-ca", "sslmode=verify-ca&sslrootcert=FOLDER/root.crt"],
  ["verify-full", "sslmode=verify-full&sslrootcert=FOLDER/root.crt"],
  [
    "verify-full with a certificate of the client",
    "sslmode=verify-full&sslrootcert=FOLDER/root.crt&sslcert=FOLDER/client.crt&sslkey=FOLDER/client.key",
  ],
] as const) {
  test(`a gateway connects by ${form}`, async () => {
    const user = parameters.includes("sslcert") ? "certified" : "encrypted";
    expect(await isEncrypted(urlOf(parameters, { user }))).toBe(true);
  });
}

test("without sslmode nothing is encrypted, and a server that wants TLS is named", async () => {
  expect(await isEncrypted(urlOf(""))).toBe(false);
  expect(await problemOf(urlOf("", { user: "encrypted" }))).toMatch(
    /^cannot start: the database at localhost refuses connections without TLS \(.*\); add sslmode=require or sslmode=verify-full to DATABASE_URL$/,
  );
});

const unknown =
  "cannot start: the database at localhost has a certificate of an authority that is not known " +
  "here: name the file of the authority by sslrootcert in DATABASE_URL";

for (const [name, parameters, problem] of [
  ["another authority", "sslmode=require&sslrootcert=FOLDER/other.crt", unknown],
  ["the authorities of the system", "sslrootcert=system", unknown],
  ["a full check without an authority", "sslmode=verify-full", unknown],
] as const) {
  test(`${name} refuses the certificate of a private one`, async () => {
    expect(await problemOf(urlOf(parameters))).toContain(problem);
  });
}

test("a missing certificate of the client is named", async () => {
  const problem = await problemOf(urlOf("sslmode=require", { user: "certified" }));
  expect(problem).toContain("connection requires a valid client certificate");
});

test("a server without TLS is named", async () => {
  expect(await problemOf(urlOf("sslmode=require", { of: untouched }))).toBe(
    "cannot start: the database at localhost takes no TLS: turn it on there, or take sslmode out " +
      "of DATABASE_URL (no TLS)",
  );
});

test("a certificate for another host matters to a full check alone", async () => {
  await serve(authority.issue("server", { host: "db.example.com" }));
  const root = "sslrootcert=FOLDER/root.crt";
  expect(await isEncrypted(urlOf(`sslmode=verify-ca&${root}`))).toBe(true);
  expect(await problemOf(urlOf(`sslmode=verify-full&${root}`))).toBe(
    "cannot start: the database at localhost has a certificate for other names: connect by one of " +
      "them, or use sslmode=verify-ca (ERR_TLS_CERT_ALTNAME_INVALID)",
  );
});

test("a gateway that runs logs by name what it refuses, and answers that the database is away", async () => {
  await serve(authority.issue("server"));
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const postgres = connectPostgres(urlOf("sslmode=verify-full&sslrootcert=FOLDER/root.crt"), {
    log,
  });
  const one = () => query(postgres, { name: "", text: "select 1 as one" });
  expect(await one()).toEqual([{ one: 1 }]);
  const refused: unknown[] = [];
  for (const pair of [
    authority.issue("server", { hours: -1 }),
    authority.issue("server", { host: "db.example.com" }),
    createAuthority("theirs").issue("server"),
  ]) {
    await serve(pair);
    // The first statement may meet the connection of before.
    await one().catch(() => undefined);
    await expect(one()).rejects.toMatchObject({ reason: "database_unavailable" });
    refused.push(lines.at(-1));
  }
  const line = (reason: string) =>
    expect.objectContaining({
      code: "certificate_refused",
      server: `localhost:${server.port}`,
      reason,
    });
  expect(refused).toEqual([
    line("has a certificate that has ended"),
    line("has a certificate for other names"),
    line("has a certificate of an authority that is not known here"),
  ]);
  expect(lines).toHaveLength(3);
  await serve(authority.issue("server"));
  expect(await one()).toEqual([{ one: 1 }]);
  await postgres.close();
});

test("a certificate that has ended is refused, and taken once it was renewed", async () => {
  const url = urlOf("sslmode=verify-full&sslrootcert=FOLDER/root.crt");
  await serve(authority.issue("server", { hours: -1 }));
  expect(await problemOf(url)).toBe(
    "cannot start: the database at localhost has a certificate that has ended: renew it there " +
      "(CERT_HAS_EXPIRED)",
  );
  await serve(authority.issue("server"));
  expect(await isEncrypted(url)).toBe(true);
});
