// The address of the sink that gets every charge.

import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";

/** `name`: the address without credentials. A sink of another name gets all charges again. */
export type SinkSettings =
  | { readonly kind: "files"; readonly name: string; readonly folder: string }
  | {
      readonly kind: "clickhouse";
      readonly name: string;
      /** `http:` or `https:`, without credentials. */
      readonly url: string;
      readonly database: string;
      readonly user: string;
      readonly password: string;
    };

const forms =
  "file:///folder, or clickhouse+https://user:password@host:8443/database (or clickhouse+http://)";

/** Reads an address. Throws an Error that quotes neither user nor password. */
export function parseSink(text: string): SinkSettings {
  const url = URL.parse(text.replace(/^clickhouse\+(?=https?:)/, ""));
  if (url?.search !== "" || url.hash !== "") throw new Error(`must be ${forms}`);
  if (url.protocol === "file:") return { kind: "files", ...folderOf(url) };
  const database = url.pathname.slice(1);
  const isHttp = url.protocol === "http:" || url.protocol === "https:";
  if (!isHttp || !text.startsWith("clickhouse+") || !/^\w+$/.test(database))
    throw new Error(`must be ${forms}`);
  return {
    kind: "clickhouse",
    name: `clickhouse+${url.origin}/${database}`,
    url: `${url.origin}/`,
    database,
    user: decoded(url.username) || "default",
    password: decoded(url.password),
  };
}

function folderOf(url: URL): { name: string; folder: string } {
  if (url.host !== "" || url.pathname === "/") throw new Error(`must be ${forms}`);
  const folder = fileURLToPath(url).replace(/\/+$/, "");
  if (!isAbsolute(folder)) throw new Error(`must be ${forms}`);
  return { name: `file://${folder}`, folder };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new Error("has a user or a password that is not percent-encoded");
  }
}
