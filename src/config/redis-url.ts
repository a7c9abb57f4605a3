// The address of Redis: one server, a cluster, or a primary that sentinels know by its name.

/** `tls`: the connections are encrypted, those to sentinels too. */
export type RedisUrl =
  | { readonly kind: "server"; readonly url: string }
  | (RedisList & { readonly kind: "cluster" })
  | (RedisList & { readonly kind: "sentinel"; readonly name: string; readonly db: number });

type RedisList = {
  /** The first servers or sentinels to ask. They know the others. */
  readonly servers: readonly { readonly host: string; readonly port: number }[];
  /** Of the servers, not of the sentinels, which have none. */
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly tls: boolean;
};

const forms =
  "redis://host:6379, rediss://…, redis+cluster://a:6379,b:6379, " +
  "or redis+sentinel://a:26379,b:26379/name";
const defaultPorts = { cluster: 6379, sentinel: 26_379 };

/** Reads an address. Throws an Error that quotes neither user nor password. */
export function parseRedisUrl(text: string): RedisUrl {
  const [, scheme, kind, authority = "", path = ""] =
    /^(rediss?)(?:\+(cluster|sentinel))?:\/\/([^/?#]*)([^?#]*)$/.exec(text) ?? [];
  if (scheme === undefined) {
    if (/^rediss?:\/\//.test(text) && URL.canParse(text)) return { kind: "server", url: text };
    throw new Error(`must be ${forms}`);
  }
  if (kind !== "cluster" && kind !== "sentinel") {
    if (authority.includes(",") || !URL.canParse(text)) throw new Error(`must be ${forms}`);
    return { kind: "server", url: text };
  }
  // A password may have an unencoded @.
  const userEnd = authority.lastIndexOf("@");
  const [username, password] = credentialsOf(authority.slice(0, Math.max(0, userEnd)));
  const servers = authority
    .slice(userEnd + 1)
    .split(",")
    .map((one) => serverOf(one, defaultPorts[kind]));
  const list = { servers, username, password, tls: scheme === "rediss" };
  const [, name = "", db = ""] = path.split("/");
  if (kind === "cluster") {
    if (name !== "") throw new Error("a cluster has no databases: leave the path out");
    return { kind, ...list };
  }
  if (!/^[\w.-]+$/.test(name))
    throw new Error("must end with the name of the primary: redis+sentinel://a,b,c/name");
  if (!/^\d{0,5}$/.test(db)) throw new Error("the database after the name must be a number");
  return { kind, ...list, name, db: Number(db) };
}

function serverOf(text: string, defaultPort: number): { host: string; port: number } {
  const [, bracketed, plain = bracketed, digits = `${defaultPort}`] =
    /^(?:\[([0-9a-f:.]+)\]|([^:\s[\]]+))(?::(\d{1,5}))?$/i.exec(text) ?? [];
  const port = Number(digits);
  if (plain === undefined) throw new Error("must list servers as host:port, separated by commas");
  if (port < 1 || port > 65_535) throw new Error("a port must be a number from 1 to 65535");
  return { host: plain, port };
}

function credentialsOf(text: string): [username: string | undefined, password: string | undefined] {
  if (text === "") return [undefined, undefined];
  const [, user = "", password = ""] = /^([^:]*):?(.*)$/.exec(text) ?? [];
  try {
    return [decodeURIComponent(user) || undefined, decodeURIComponent(password) || undefined];
  } catch {
    throw new Error("user and password must be percent-encoded");
  }
}
