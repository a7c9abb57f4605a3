// Posts of alerts against receivers and name servers that a customer controls.

import { createHmac } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { isPublicAddress } from "../../src/alerts/public-address.ts";
import {
  checkWebhookUrl,
  createPostWebhook,
  type Resolve,
  showSecret,
} from "../../src/alerts/webhook.ts";
import { parseProxy } from "../../src/base/outbound.ts";
import { readSamples } from "../docs/documents.ts";
import { createAuthority } from "../support/certificates.ts";
import { startForwardProxy } from "../support/forward-proxy.ts";

const authority = createAuthority("the receivers");
const secret = Buffer.from("of the tests, of thirty-two byte");
const never = new AbortController().signal;
const post = { id: "cap_reached/acc_a/key_1/2026-11", body: '{"type":"alert.test"}' };

let server: Server;
let port: number;
let connections = 0;
let answer: (request: IncomingMessage, response: ServerResponse) => void;

beforeAll(async () => {
  const { certificate, privateKey } = authority.issue("receiver");
  server = createServer({ cert: certificate, key: privateKey }, (request, response) =>
    answer(request, response),
  );
  server.on("connection", () => connections++);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  port = typeof address === "object" && address ? address.port : 0;
});
beforeEach(() => {
  connections = 0;
  answer = (_, response) => response.end("thanks");
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, "close");
});

type Options = Partial<Parameters<typeof createPostWebhook>[0]>;

/** Posts to the receiver as `host`, which the operator allows. */
function send(path = "/", options: Options = {}, host = "localhost"): Promise<void> {
  const posting = createPostWebhook({
    allowHosts: () => ["localhost"],
    ca: authority.certificate,
    ...options,
  });
  const url = `https://${host}:${port}${path}`;
  return posting({ url, form: "standard", secret }, post, never);
}

test("a receiver gets the alert, and can check who sent it", async () => {
  const received = Promise.withResolvers<{ request: IncomingMessage; body: string }>();
  answer = async (request, response) => {
    received.resolve({ request, body: await text(request) });
    response.writeHead(204).end();
  };
  await send("/hooks?team=a");
  const { request, body } = await received.promise;
  expect([request.method, request.url, body]).toEqual(["POST", "/hooks?team=a", post.body]);
  expect(request.headers.host).toBe(`localhost:${port}`);
  const { "webhook-id": id, "webhook-timestamp": timestamp } = request.headers;
  expect(id).toBe(post.id);
  expect(Math.abs(Number(timestamp) - Date.now() / 1000)).toBeLessThan(60);
  // As a receiver computes it from the secret that its owner was shown.
  const key = Buffer.from(showSecret(secret).slice("whsec_".length), "base64");
  const signed = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  expect(request.headers["webhook-signature"]).toBe(`v1,${signed}`);

  // And as the documents tell receivers to.
  const [sample = ""] = readSamples("docs/customers/alerts.md")
    .filter(({ language }) => language === "javascript")
    .map(({ text }) => text);
  const { readAlert } = await import(`data:text/javascript,${encodeURIComponent(sample)}`);
  expect(readAlert(showSecret(secret), request.headers, body)).toEqual({ type: "alert.test" });
  const other = Buffer.from(secret).fill(0, 0, 1);
  expect(() => readAlert(showSecret(other), request.headers, body)).toThrow("not from the gateway");
  expect(() => readAlert(showSecret(secret), request.headers, `${body} `)).toThrow("not from");
  const late = { ...request.headers, "webhook-timestamp": String(Number(timestamp) - 400) };
  expect(() => readAlert(showSecret(secret), late, body)).toThrow("not from the gateway");
});

test("a name is resolved once, and the post goes to that very address", async () => {
  let looks = 0;
  const resolve: Resolve = async () => (looks++ === 0 ? ["127.0.0.1"] : ["127.0.0.2"]);
  await send("/", { resolve });
  expect([looks, connections]).toEqual([1, 1]);
  // At the second address nobody listens, although the name is the same.
  await expect(send("/", { resolve })).rejects.toThrow("cannot be reached");
  expect([looks, connections]).toEqual([2, 1]);
});

test("a name that turns to a private address later reaches nothing", async () => {
  let looks = 0;
  // Public when it is checked (in a range that nobody has), private at any later look.
  const resolve: Resolve = async () => (looks++ === 0 ? ["2d00::1"] : ["127.0.0.1"]);
  const options = { resolve, allowHosts: () => [], timeoutMs: 300 };
  await expect(send("/", options)).rejects.toThrow(/cannot be reached|No answer/);
  expect([looks, connections]).toEqual([1, 0]);
  await expect(send("/", options)).rejects.toThrow("not a public one");
  expect([looks, connections]).toEqual([2, 0]);
});

test("one private address among public ones refuses the name", async () => {
  const resolve: Resolve = async () => ["93.184.216.34", "127.0.0.1"];
  await expect(send("/", { resolve, allowHosts: () => [] })).rejects.toThrow("not a public one");
  expect(connections).toBe(0);
});

const special = [
  ...["0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254"],
  ...["169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1"],
  ...["192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"],
  ...["224.0.0.1", "240.0.0.1", "255.255.255.255"],
  ...["::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8"],
  ...["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1"],
  ...["2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1"],
  ...["fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"],
];
test.for(special)("%s is no public address", (address) => {
  expect(isPublicAddress(address)).toBe(false);
});

test.for(["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1"])(
  "%s is a public address",
  (address) => {
    expect(isPublicAddress(address)).toBe(true);
  },
);

test.for([...["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1", "0"]])(
  "the host %s reaches nothing",
  async (host) => {
    await expect(send("/", { allowHosts: () => [] }, host)).rejects.toThrow("not a public one");
    expect(connections).toBe(0);
  },
);

test("a redirect is not followed", async () => {
  const paths: (string | undefined)[] = [];
  answer = (request, response) => {
    paths.push(request.url);
    response.writeHead(307, { location: `https://localhost:${port}/inside` }).end();
  };
  await expect(send("/first")).rejects.toThrow("redirects");
  expect(paths).toEqual(["/first"]);
});

test("a receiver that hangs is given up after the limit", async () => {
  answer = () => undefined;
  await expect(send("/", { timeoutMs: 200 })).rejects.toThrow("No answer within 0.2 s");
});

test("a receiver that drips its answer is given up after the limit", async () => {
  answer = (_, response) => {
    const timer = setInterval(() => response.write("."), 20);
    response.on("close", () => clearInterval(timer));
  };
  await expect(send("/", { timeoutMs: 200 })).rejects.toThrow("No answer within 0.2 s");
});

test("a name server that hangs is given up after the limit", async () => {
  const resolve: Resolve = () => new Promise(() => undefined);
  await expect(send("/", { resolve, timeoutMs: 200 })).rejects.toThrow("No answer");
});

test("of an answer of megabytes, at most 64 KB and what was under way is read", async () => {
  const closed = Promise.withResolvers<number>();
  answer = (request, response) => {
    const chunk = Buffer.alloc(64 * 1024);
    const more = () => {
      while (!response.destroyed && response.write(chunk)) if (request.destroyed) return;
    };
    response.on("drain", more);
    response.on("close", () => closed.resolve(request.socket.bytesWritten));
    more();
  };
  await send("/");
  // Buffers of both sockets were filled, and no more.
  expect(await closed.promise).toBeLessThan(32 * 1024 * 1024);
});

test("heads of megabytes are refused", async () => {
  answer = (request) => {
    request.socket.write(`HTTP/1.1 200 OK\r\nx: ${"a".repeat(1 << 20)}\r\n\r\n`);
  };
  await expect(send("/")).rejects.toThrow("cannot be reached");
});

test("a receiver that refuses, and one with a wrong certificate, fail with a reason", async () => {
  answer = (_, response) => response.writeHead(500).end();
  await expect(send("/")).rejects.toThrow("status 500");
  const stranger = createAuthority("a stranger").certificate;
  await expect(send("/", { ca: stranger })).rejects.toThrow("certificate");
  // The certificate is for localhost, whatever the address is.
  const resolve: Resolve = async () => ["127.0.0.1"];
  const other = { resolve, allowHosts: () => ["hooks.example"] };
  await expect(send("/", other, "hooks.example")).rejects.toThrow("certificate");
});

test("a proxy of the operator connects to the checked address, and hears no name", async () => {
  const proxy = await startForwardProxy({ hasPassword: true });
  const received = Promise.withResolvers<IncomingMessage>();
  answer = (request, response) => {
    received.resolve(request);
    response.end();
  };
  const through = { proxy: () => parseProxy(proxy.url) };
  await send("/hooks", through);
  expect(proxy.seen.map(({ method, url }) => [method, url])).toEqual([
    ["CONNECT", `127.0.0.1:${port}`],
  ]);
  expect(proxy.seen[0]?.headers.host).toBe(`127.0.0.1:${port}`);
  const { headers } = await received.promise;
  expect(headers.host).toBe(`localhost:${port}`);
  expect(Object.keys(headers).filter((name) => name.startsWith("proxy"))).toEqual([]);

  // The guard stands, and so does the check of the name.
  const resolve: Resolve = async () => ["127.0.0.1"];
  const guarded = { ...through, resolve, allowHosts: () => [] };
  await expect(send("/", guarded)).rejects.toThrow("not a public one");
  const other = { ...through, resolve, allowHosts: () => ["hooks.example"] };
  await expect(send("/", other, "hooks.example")).rejects.toThrow("certificate");
  expect(proxy.seen.length).toBe(2);

  proxy.become("stalls");
  await expect(send("/", { ...through, timeoutMs: 200 })).rejects.toThrow("No answer within 0.2 s");
  for (const mood of [403, 407, "closes"] as const) {
    proxy.become(mood);
    await expect(send("/", through)).rejects.toThrow(/^The receiver cannot be reached$/);
  }
  proxy.stop();
  await expect(send("/", through)).rejects.toThrow(/^The receiver cannot be reached$/);
  expect(connections).toBe(2);
});

test("a post takes no proxy of the environment", async () => {
  const proxy = await startForwardProxy();
  onTestFinished(() => proxy.stop());
  vi.stubEnv("HTTPS_PROXY", proxy.url);
  vi.stubEnv("https_proxy", proxy.url);
  onTestFinished(() => void vi.unstubAllEnvs());
  await send();
  expect(proxy.seen).toEqual([]);
});

test.for([
  ...["http://example.com/", "ftp://example.com/", "example.com", "https://"],
  ...["https://user:pass@example.com/", "https://example.com/#a", "javascript:alert(1)"],
])("%s is no address of a webhook", (url) => {
  expect(() => checkWebhookUrl("settings.webhook_url", url)).toThrow("is an https address");
});
