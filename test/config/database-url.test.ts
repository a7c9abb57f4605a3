import { expect, test } from "vitest";
import { parseDatabaseUrl } from "../../src/config/database-url.ts";
import { readConfig } from "../../src/config/environment.ts";

const lists = [
  {
    name: "one server takes whatever it is",
    text: "postgres://u:p@a:5432/gw?sslmode=require",
    servers: ["a:5432 postgres://u:p@a:5432/gw?sslmode=require&uselibpqcompat=true"],
    target: "any",
  },
  {
    name: "a list with ports needs a server that takes writes",
    text: "postgres://u:p@a:5432,b:5433/gw",
    servers: ["a:5432 postgres://u:p@a:5432/gw", "b:5433 postgres://u:p@b:5433/gw"],
    target: "read-write",
  },
  {
    name: "a list without ports",
    text: "postgresql://u:p@a,b/gw?target_session_attrs=primary&sslmode=disable",
    servers: [
      "a postgresql://u:p@a/gw?sslmode=disable&uselibpqcompat=true",
      "b postgresql://u:p@b/gw?sslmode=disable&uselibpqcompat=true",
    ],
    target: "primary",
  },
  {
    name: "a list with some ports",
    text: "postgres://a,b:6432/gw?target_session_attrs=any",
    servers: ["a postgres://a/gw", "b:6432 postgres://b:6432/gw"],
    target: "any",
  },
  {
    name: "IPv6 addresses, and a password with an @",
    text: "postgres://u:p@ss@[::1]:5432,[fe80::1]/gw",
    servers: [
      "[::1]:5432 postgres://u:p@ss@[::1]:5432/gw",
      "[fe80::1] postgres://u:p@ss@[fe80::1]/gw",
    ],
    target: "read-write",
  },
  {
    name: "the parameters host and port, with one port for all",
    text: "postgres://u@ignored/gw?host=a,::1&port=6000",
    servers: ["a:6000 postgres://u@a:6000/gw", "[::1]:6000 postgres://u@[::1]:6000/gw"],
    target: "read-write",
  },
  {
    name: "a socket",
    text: "postgres://u:p@localhost:5432/gw?host=%2Frun%2Fpg",
    servers: ["/run/pg:5432 postgres://u:p@localhost:5432/gw?host=%2Frun%2Fpg"],
    target: "any",
  },
];
for (const { name, text, servers, target } of lists) {
  test(`DATABASE_URL: ${name}`, () => {
    const read = parseDatabaseUrl(text);
    expect(read.servers.map((server) => `${server.name} ${server.url}`)).toEqual(servers);
    expect(read.target).toBe(target);
  });
}

test("DATABASE_URL: parameters with an @ are no part of a password", () => {
  const { servers } = parseDatabaseUrl("postgres://a:5432/gw?application_name=a@b");
  expect(servers.map(({ name }) => name)).toEqual(["a:5432"]);
});

const wrong = [
  { text: "postgres://u:hidden@a:5432,/gw", problem: "a host of the list is empty" },
  { text: "postgres://u:hidden@,b/gw", problem: "a host of the list is empty" },
  { text: "postgres://u:hidden@a,:5433/gw", problem: "a host of the list is empty" },
  { text: "postgres://u:hidden@/gw?host=a,b,c&port=1,2", problem: "has 3 hosts and 2 ports" },
  { text: "postgres://u:hidden@a:70000,b/gw", problem: "a port must be a number from 1 to 65535" },
  { text: "postgres://u:hidden@a:54x,b/gw", problem: "a port must be a number from 1 to 65535" },
  { text: "postgres://u:hidden@a b,c/gw", problem: "is not a valid URL" },
  {
    text: "postgres://u:hidden@a,b/gw?target_session_attrs=standby",
    problem:
      "target_session_attrs=standby: the ledger is written to; use one of any, read-write, primary",
  },
  {
    text: "postgres://u:hidden@a,b/gw?target_session_attrs=hidden",
    problem: "target_session_attrs must be one of any, read-write, primary",
  },
  ...["#", "/", "?", "1/", "a@b#", "a@b/"].map((sign) => ({
    text: `postgres://u:hidden${sign}hidden@a:5432/gw`,
    problem: "has a user or password with a # / or ?: write them as %23, %2F and %3F there",
  })),
  {
    text: "postgres://u:hidden@a/gw?sslmode=prefer",
    problem:
      "sslmode=prefer may send the password in the clear: " +
      "use one of disable, require, verify-ca, verify-full",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=hidden",
    problem: "sslmode must be one of disable, require, verify-ca, verify-full",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=verify-ca",
    problem: "sslmode=verify-ca: needs sslrootcert, the file of the authority",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=require&sslrootcert=system",
    problem: "sslrootcert=system: needs sslmode=verify-full",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=require&sslrootcert=/nowhere",
    problem: "sslrootcert: the file cannot be read (ENOENT)",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=require&sslrootcert=/",
    problem: "sslrootcert: the file cannot be read (EISDIR)",
  },
  {
    text: "postgres://u:hidden@a/gw?sslrootcert=/nowhere",
    problem: "sslrootcert: needs sslmode, too",
  },
  {
    text: "postgres://u:hidden@a/gw?sslmode=require&sslcert=/nowhere",
    problem: "sslcert, sslkey: set both or neither",
  },
  {
    text: "mysql://u:hidden@a/gw",
    problem: "must be a URL that begins with postgres:// or postgresql://",
  },
];
for (const { text, problem } of wrong) {
  test(`DATABASE_URL rejects ${text.replace("u:hidden@", "")}: ${problem}`, () => {
    const start = () => readConfig({ DATABASE_URL: text, ADMIN_TOKEN: "a-token-of-some-length" });
    expect(start).toThrow(`DATABASE_URL: ${problem}`);
    expect(start).not.toThrow("hidden");
  });
}
