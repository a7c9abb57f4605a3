// The address of the database: one server, or several of which one takes the writes, in the form
// that libpq reads: `postgres://user:password@a:5432,b:5432/gateway?target_session_attrs=primary`.

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

/** Reads an address. Throws an Error that quotes neither user nor password. */
export function parseDatabaseUrl(text: string): DatabaseUrl {
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
