// The proxy that each address has, by the variables that all programs read.

import { expect, test } from "vitest";
import {
  Outbound,
  parseAuthorities,
  parseDirectHosts,
  parseProxy,
} from "../../src/base/outbound.ts";

const https = { origin: "http://secure.example" };
const http = { origin: "http://plain.example" };

/** The proxy that an address has with this NO_PROXY. */
function proxyOf(address: string, noProxy = ""): string | undefined {
  const outbound = new Outbound({ https, http, direct: parseDirectHosts(noProxy) });
  return outbound.proxyTo(new URL(address))?.origin;
}

test("each scheme has its own proxy, and none without one", () => {
  expect(proxyOf("https://a.example/")).toBe(https.origin);
  expect(proxyOf("http://a.example/")).toBe(http.origin);
  expect(new Outbound({ http }).proxyTo(new URL("https://a.example/"))).toBeUndefined();
  expect(new Outbound().proxyTo(new URL("http://a.example/"))).toBeUndefined();
});

test.for([
  ["a.example", "a.example", true],
  ["a.example", "A.Example.", true],
  ["a.example", "b.a.example", true],
  ["a.example", "ba.example", false],
  [".a.example", "b.a.example", true],
  [".a.example", "a.example", true],
  ["*.a.example", "b.a.example", true],
  ["*.a.example", "a.example", false],
  ["A.EXAMPLE", "a.example", true],
  ["*", "anything.example", true],
  ["*:8443", "a.example:8443", true],
  ["*:8443", "a.example", false],
  ["a.example:443", "a.example", true],
  ["a.example:444", "a.example", false],
  ["a.example:444", "b.a.example:444", true],
  ["c.example, a.example", "a.example", true],
  ["c.example a.example", "a.example", true],
  ["10.1.2.3", "10.1.2.3", true],
  ["10.1.2.3", "10.1.2.4", false],
  ["2001:db8::1", "[2001:db8::1]", true],
  ["10.0.0.0/8,.svc,localhost", "10.255.0.1", true],
  ["10.0.0.0/8,.svc,localhost", "11.0.0.1", false],
  ["10.0.0.0/8,.svc,localhost", "core.gateway.svc", true],
  ["10.0.0.0/8", "[::ffff:10.1.2.3]", true],
  ["2001:db8::/32", "[2001:db8:1::1]", true],
  ["2001:db8::/32", "[2001:db9::1]", false],
  ["[2001:DB8::1]:443", "[2001:db8::1]", true],
  ["[2001:db8::1]:444", "[2001:db8::1]", false],
] as const)("NO_PROXY %s and the host %s: %s", ([noProxy, host, isDirect]) => {
  expect(proxyOf(`https://${host}/`, noProxy) === undefined).toBe(isDirect);
});

test.for([
  "10.0.0.0/33",
  "2001:db8::/129",
  "a.example/8",
  "https://a.example",
  "a.*.example",
  "a:b:c",
  "a:99999999",
  ".",
])("NO_PROXY %s would match nothing, and is refused", (text) => {
  expect(() => parseDirectHosts(text)).toThrow("and ranges such as 10.0.0.0/8");
});

test.for([
  "http://localhost:11434",
  "http://127.0.0.1:8080",
  "http://[::1]:8080",
  "http://169.254.169.254/latest/api/token",
  "http://169.254.170.2/v2/credentials",
  "http://169.254.170.23/v1/credentials",
  "http://[fd00:ec2::254]/latest",
  "http://[fe80::1]/",
  "http://[::ffff:169.254.169.254]/latest",
  "http://0.0.0.0:8080",
  "http://[::]:8080",
  "http://x.localhost",
  "http://metadata/computeMetadata/v1",
  "http://metadata.goog/computeMetadata/v1",
  "http://metadata.google.internal/computeMetadata/v1",
])("%s is this machine's own matter, and called directly", (address) => {
  expect(proxyOf(address)).toBeUndefined();
});

test("a proxy is an address with or without user, password and scheme", () => {
  const basic = (user: string) => ({ authorization: `Basic ${btoa(user)}` });
  expect(parseProxy("http://proxy.example:3128")).toEqual({ origin: "http://proxy.example:3128" });
  expect(parseProxy("proxy.example:3128")).toEqual({ origin: "http://proxy.example:3128" });
  expect(parseProxy("https://u:p%40s@proxy.example/")).toEqual({
    origin: "https://proxy.example",
    ...basic("u:p@s"),
  });
  expect(parseProxy("http://u@proxy.example")).toEqual({
    origin: "http://proxy.example",
    ...basic("u:"),
  });
  for (const text of ["", "socks5://hidden:stuff@a", "http://hidden:stuff@a/path", "http://"]) {
    expect(() => parseProxy(text)).toThrow("must be such as http://user:password@proxy");
    expect(() => parseProxy(text)).not.toThrow(/hidden|stuff/);
  }
  expect(() => parseProxy("http://hidden:%stuff@a")).toThrow(/^has .* not percent-encoded$/);
});

test("authorities are certificates in PEM", () => {
  for (const [text, problem] of [
    ["", "holds no certificate in PEM"],
    ["-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "holds no certificate in PEM"],
    [
      "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
      "holds a certificate that cannot be read",
    ],
  ] as const)
    expect(() => parseAuthorities(Buffer.from(text))).toThrow(problem);
});
