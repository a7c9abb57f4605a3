// The address of the database: one server, or several of which one takes the writes, in the form
// that libpq reads: `postgres://user:password@a:5432,b:5432/gateway?target_session_attrs=primary`.
// The parameters of TLS mean what they mean to psql.

import { readFileSync } from "node:fs";

/** Which servers of a list may be used. */
export type TargetServer = (typeof targets)[number];

export type DatabaseUrl = {
  /** In the order of the list. `url` names this server alone; `name` has no secret. */
  readonly servers: readonly { readonly name: string; readonly url: string }[];
  /**
   * `read-write`: a server that takes writes. `primary`: one that is not a standby. `any`: the
   * first one that answers.
   */
  readonly target: TargetServer;
};

const targets = ["any", "read-write", "primary"] as const;
const otherTargets = ["read-only", "standby", "prefer-standby"];

/**
 * Reads an address. Throws an Error that quotes neither user nor password: for what is no address,
 * and for a file of TLS that cannot be read.
 */
export function parseDatabaseUrl(text: string): DatabaseUrl {
  refuseOpenPassword(text);
  const [, scheme, authority = "", path, query] =
    /^(postgres(?:ql)?:)\/\/([^/?#]*)([^?#]*)(?:\?([^#]*))?$/.exec(text) ?? [];
  if (scheme === undefined)
    throw new Error("must be a URL that begins with postgres:// or postgresql://");
  // A password may have an unencoded @.
  const userEnd = authority.lastIndexOf("@") + 1;
  const user = authority.slice(0, userEnd);
  const parameters = new URLSearchParams(query);
  const hosts = hostsOf(authority.slice(userEnd), parameters);
  const target = targetOf(parameters, hosts.length);
  for (const name of ["host", "port", "target_session_attrs"]) parameters.delete(name);
  readTls(parameters);

  const servers = hosts.map(({ host, port }) => {
    const end = port === "" ? "" : `:${port}`;
    const own = new URLSearchParams(parameters);
    const isSocket = host.startsWith("/");
    if (isSocket) own.set("host", host);
    const search = own.size > 0 ? `?${own}` : "";
    const url = `${scheme}//${user}${isSocket ? "localhost" : host}${end}${path}${search}`;
    if (!URL.canParse(url)) throw new Error("is not a valid URL");
    return { name: `${host}${end}`, url };
  });
  return { servers, target };
}

const passwordAdvice =
  "has a user or password with a # / or ?: write them as %23, %2F and %3F there";

// The first # / or ? ends the user, the password and the hosts. In a password it leaves its end,
// with the @, to what follows.
function refuseOpenPassword(text: string): void {
  const [, authority = "", rest = ""] = /^postgres(?:ql)?:\/\/([^/?#]*)(.*)$/s.exec(text) ?? [];
  const isCut = !authority.includes("@") && /:(?!\d{1,5}$|$)/.test(authority);
  const [path = ""] = rest.split("?", 1);
  if (rest.includes("#") || path.includes("@") || (isCut && rest.includes("@")))
    throw new Error(passwordAdvice);
}

const tlsModes = ["disable", "require", "verify-ca", "verify-full"];

/**
 * Changes the parameters so that `pg` does what psql does with them. `require` encrypts, and looks
 * at the certificate only if `sslrootcert` names an authority; then it is `verify-ca`.
 */
function readTls(parameters: URLSearchParams): void {
  const mode = readMode(parameters);
  const files = ["sslrootcert", "sslcert", "sslkey"].filter((name) => parameters.has(name));
  if (files.length > 0 && mode === null) throw new Error(`${files[0]}: needs sslmode, too`);
  if (parameters.has("sslcert") !== parameters.has("sslkey"))
    throw new Error("sslcert, sslkey: set both or neither");
  for (const name of files) checkFile(name, parameters.get(name) ?? "");
  if (mode === null) return;
  parameters.set("sslmode", mode);
  parameters.set("uselibpqcompat", "true");
}

/** Null: there is none. Takes the word `system` out, which `pg` would read as a file. */
function readMode(parameters: URLSearchParams): string | null {
  const rootFile = parameters.get("sslrootcert");
  let mode = parameters.get("sslmode");
  // Of `pg` itself, and in the addresses of some clouds.
  if (mode === "no-verify") mode = "require";
  if (rootFile === "system") {
    if (mode !== null && mode !== "verify-full")
      throw new Error("sslrootcert=system: needs sslmode=verify-full");
    mode = "verify-full";
    parameters.delete("sslrootcert");
  }
  if (mode === "allow" || mode === "prefer")
    throw new Error(
      `sslmode=${mode} may send the password in the clear: use one of ${tlsModes.join(", ")}`,
    );
  if (mode !== null && !tlsModes.includes(mode))
    throw new Error(`sslmode must be one of ${tlsModes.join(", ")}`);
  if (mode === "verify-ca" && rootFile === null)
    throw new Error("sslmode=verify-ca: needs sslrootcert, the file of the authority");
  return mode;
}

function checkFile(name: string, path: string): void {
  try {
    readFileSync(path);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : error;
    throw new Error(`${name}: the file cannot be read (${code})`);
  }
}

type Host = { readonly host: string; readonly port: string };

// As in libpq, the parameters `host` and `port` replace what the authority names. One port is for
// all hosts.
function hostsOf(authority: string, parameters: URLSearchParams): Host[] {
  const named = authority.split(",").map(splitPort);
  const hostNames = parameters.get("host")?.split(",").map(bracketed);
  const ports = parameters.get("port")?.split(",") ?? named.map(({ port }) => port);
  const hosts = hostNames ?? named.map(({ host }) => host);
  if (hosts.length > 1 && hosts.includes("")) throw new Error("a host of the list is empty");
  if (ports.length !== 1 && ports.length !== hosts.length)
    throw new Error(`has ${hosts.length} hosts and ${ports.length} ports`);
  return hosts.map((host, index) => {
    const port = (ports.length === 1 ? ports[0] : ports[index]) ?? "";
    if (port !== "" && !(/^\d{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535))
      throw new Error("a port must be a number from 1 to 65535");
    return { host, port };
  });
}

function splitPort(text: string): Host {
  const [, host = "", port = ""] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(text) ?? [];
  return { host, port };
}

/** An IPv6 address as a URL writes it. */
function bracketed(host: string): string {
  return host.includes(":") && !host.startsWith("[") && !host.startsWith("/") ? `[${host}]` : host;
}

function targetOf(parameters: URLSearchParams, hosts: number): TargetServer {
  const text = parameters.get("target_session_attrs");
  // A gateway writes: of several servers it needs the one that takes writes.
  if (text === null) return hosts > 1 ? "read-write" : "any";
  const target = targets.find((one) => one === text);
  if (target !== undefined) return target;
  const choices = targets.join(", ");
  throw new Error(
    otherTargets.includes(text)
      ? `target_session_attrs=${text}: the ledger is written to; use one of ${choices}`
      : `target_session_attrs must be one of ${choices}`,
  );
}
