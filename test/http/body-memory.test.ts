// The memory of request bodies, the pace at which they must arrive, and the connections of one
// address: what one client may take from the others.

import { once } from "node:events";
import { type ClientRequest, request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { brotliCompressSync, gzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { loopbackRanges, matchAddresses, networkOf } from "../../src/base/client-address.ts";
import { ApiError } from "../../src/base/errors.ts";
import { paceBytes, paceMs } from "../../src/http/body.ts";
import type { KeyLoad } from "../../src/http/key-load.ts";
import { ManualClock } from "../support/clock.ts";
import {
  answerOf,
  chatHeaders,
  nativeBody,
  nativeHeaders,
  play,
  postChat,
  postNative,
  startHttpServer,
} from "../support/http-server.ts";
import { addressLoad, loadWithin } from "../support/limits.ts";

const mebibyte = 1024 * 1024;
const limits = {
  totalBytes: 16 * mebibyte,
  perKeyBytes: 4 * mebibyte,
  perAddressBytes: 8 * mebibyte,
};

/** The reason of the error that `run` throws. */
function reasonOf(run: () => void): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return error instanceof ApiError ? error.reason : String(error);
  }
}

describe("the budget", () => {
  test("counts four bytes for each byte of a body, until it is released", () => {
    const memory = loadWithin(limits);
    const body = memory.open({ keyId: "a", address: "192.0.2.1" });
    body.grow(1_000);
    body.grow(500);
    expect(memory.usedBytes).toBe(4_000);
    body.grow(1_500);
    expect(memory.usedBytes).toBe(6_000);
    body.free();
    body.free();
    body.grow(9_000);
    expect(memory.usedBytes).toBe(0);
  });

  test("rejects a body beyond the share of its key with 429, and the other keys go on", () => {
    const memory = loadWithin(limits);
    const address = "192.0.2.1";
    memory.open({ keyId: "a", address }).grow(mebibyte);
    expect(reasonOf(() => memory.open({ keyId: "a", address }).grow(1))).toBe("too_many_bodies");
    expect(reasonOf(() => memory.open({ keyId: "b", address }).grow(1))).toBeUndefined();
  });

  test("rejects a body beyond the share of its address with 503, and other addresses go on", () => {
    const memory = loadWithin(limits);
    for (const keyId of ["a", "b"]) memory.open({ keyId, address: "2001:db8::1" }).grow(mebibyte);
    // Another address of the same network of 64 bits.
    expect(reasonOf(() => memory.open({ keyId: "c", address: "2001:db8::2" }).grow(1))).toBe(
      "gateway_unavailable",
    );
    expect(
      reasonOf(() => memory.open({ keyId: "c", address: "2001:db8:0:1::2" }).grow(1)),
    ).toBeUndefined();
  });

  test("rejects a body beyond the whole with 503", () => {
    const memory = loadWithin(limits);
    for (const index of [1, 2, 3, 4])
      memory.open({ keyId: `key ${index}`, address: `192.0.2.${index}` }).grow(mebibyte);
    expect(reasonOf(() => memory.open({ keyId: "e", address: "192.0.2.9" }).grow(1))).toBe(
      "gateway_unavailable",
    );
  });

  test("never exceeds a limit, and is empty once every body is released", () => {
    const step = fc.record({
      body: fc.nat(9),
      bytes: fc.nat(2 * mebibyte),
      release: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const memory = loadWithin(limits);
        const open = (index: number) =>
          memory.open({ keyId: `key ${index % 3}`, address: `192.0.2.${index % 4}` });
        const bodies = Array.from({ length: 10 }, (_, index) => open(index));
        const held = Array<number>(10).fill(0);
        for (const { body, bytes, release } of steps) {
          const one = bodies[body];
          if (release) {
            one?.free();
            held[body] = 0;
            bodies[body] = open(body);
          } else if (reasonOf(() => one?.grow(bytes)) === undefined)
            held[body] = Math.max(held[body] ?? 0, 4 * bytes);
          expect(memory.usedBytes).toBe(held.reduce((sum, value) => sum + value, 0));
          expect(memory.usedBytes).toBeLessThanOrEqual(limits.totalBytes);
          for (const key of [0, 1, 2]) {
            const ofKey = held.filter((_, index) => index % 3 === key);
            expect(ofKey.reduce((sum, value) => sum + value, 0)).toBeLessThanOrEqual(
              limits.perKeyBytes,
            );
          }
        }
        for (const one of bodies) one.free();
        expect(memory.usedBytes).toBe(0);
      }),
    );
  });
});

/** A listener with a small budget, whose clock stands still. */
async function startSmall({ perKeyBytes = limits.perKeyBytes } = {}) {
  const clock = new ManualClock();
  const largest = Math.max(perKeyBytes, limits.totalBytes);
  const memory =
    perKeyBytes === limits.perKeyBytes
      ? limits
      : { totalBytes: largest, perKeyBytes, perAddressBytes: largest };
  const keyLoad = loadWithin(memory, { clock });
  return { ...(await startHttpServer({ keyLoad, clock })), clock, keyLoad };
}

type Answer = { status: number; headers: IncomingHttpHeaders; body: string };

/** Sends headers and bytes of a body without an end. */
function sendUnfinished(
  url: string,
  { path = "/v1/messages", headers = {}, bytes = "" as string | Buffer } = {},
): { request: ClientRequest; answer: Promise<Answer> } {
  const own = path.includes("chat") ? chatHeaders : nativeHeaders;
  const request = httpRequest(url + path, { method: "POST", headers: { ...own, ...headers } });
  onTestFinished(() => void request.destroy());
  const answer = new Promise<Answer>((resolve, reject) => {
    request.once("error", reject);
    request.once("response", async (response) => {
      request.off("error", reject).on("error", () => {});
      const body = await text(response).catch(() => "");
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
    });
  });
  answer.catch(() => {});
  request.flushHeaders();
  if (bytes.length > 0) request.write(bytes);
  return { request, answer };
}

/** Waits until the budget holds `bytes`. */
async function reserved(memory: KeyLoad, bytes: number): Promise<void> {
  await expect.poll(() => memory.usedBytes, { interval: 2 }).toBe(bytes);
}

const codeIn = (body: string) => /"(?:error_)?code":"(\w+)"/.exec(body)?.[1];

describe("a listener", () => {
  const paths = ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"];

  test.each(paths)("reserves the declared length of %s before the first byte", async (path) => {
    const { url, keyLoad, script } = await startSmall();
    const first = sendUnfinished(url, { path, headers: { "content-length": "1000000" } });
    await reserved(keyLoad, 4_000_000);
    const second = sendUnfinished(url, { path, headers: { "content-length": "1000000" } });
    const { status, headers, body } = await second.answer;
    expect([status, codeIn(body), headers["retry-after"]]).toEqual([429, "too_many_bodies", "1"]);
    expect(script.calls).toEqual(["authenticate"]);
    first.request.destroy();
    await reserved(keyLoad, 0);
  });

  test("answers 503 with retry-after where the address or the whole has no room", async () => {
    const { url, keyLoad } = await startSmall();
    const others = ["a", "b"].map((keyId) => keyLoad.open({ keyId, address: "127.0.0.1" }));
    for (const other of others) other.grow(mebibyte);
    for (const path of paths) {
      const { answer } = sendUnfinished(url, { path, headers: { "content-length": "9" } });
      const { status, headers, body } = await answer;
      expect([status, headers["retry-after"]]).toEqual([503, "1"]);
      expect(body).toMatch(/address/);
      expect(path.includes("chat") === body.includes('"type":"error"')).toBe(false);
    }
    for (const other of others) other.free();
    expect((await postNative(url)).status).toBe(200);
  });

  test("counts a body without a length as its bytes arrive", async () => {
    const { url, keyLoad } = await startSmall();
    const { request, answer } = sendUnfinished(url, { bytes: "x".repeat(1_000) });
    await reserved(keyLoad, 4_000);
    for (let index = 0; index < 40; index++) request.write("x".repeat(mebibyte / 32));
    expect((await answer).status).toBe(429);
    await reserved(keyLoad, 0);
  });

  test.each([
    ["gzip", gzipSync],
    ["br", brotliCompressSync],
  ] as const)("counts a body in %s as it is unpacked", async (encoding, pack) => {
    const { url, keyLoad } = await startSmall();
    const packed = pack(Buffer.alloc(20 * mebibyte, "x"));
    expect(4 * packed.length).toBeLessThan(mebibyte);
    const response = await fetch(`${url}/v1/messages`, {
      method: "POST",
      headers: { ...nativeHeaders, "content-encoding": encoding },
      body: new Uint8Array(packed),
    });
    expect([response.status, codeIn(await response.text())]).toEqual([429, "too_many_bodies"]);
    await reserved(keyLoad, 0);
  });

  test("a body that unpacks to gigabytes is rejected at the largest size", async () => {
    const { url, keyLoad } = await startSmall({ perKeyBytes: 160 * mebibyte });
    // A megabyte two thousand times over, in gzip members that follow each other.
    const packed = Buffer.concat(Array<Buffer>(2_000).fill(gzipSync(Buffer.alloc(mebibyte))));
    const response = await fetch(`${url}/v1/messages`, {
      method: "POST",
      headers: { ...nativeHeaders, "content-encoding": "gzip" },
      body: new Uint8Array(packed),
    });
    expect([response.status, codeIn(await response.text())]).toEqual([
      413,
      "request_body_too_large_after_decoding",
    ]);
    await reserved(keyLoad, 0);
  });

  test("releases the memory when a provider has taken the request, not when the answer ends", async () => {
    const { url, keyLoad, script } = await startSmall();
    const used: number[] = [];
    script.instead.set("generate", async function* () {
      used.push(keyLoad.usedBytes);
      const [first, ...others] = answerOf("Hello");
      if (first) yield first;
      used.push(keyLoad.usedBytes);
      yield* others;
    });
    expect((await postNative(url)).status).toBe(200);
    const length = JSON.stringify(nativeBody).length;
    expect(used).toEqual([4 * length, 0]);
  });

  test.each([
    ["malformed", "{"],
    ["rejected by its format", '{"messages":1}'],
    ["answered", JSON.stringify(nativeBody)],
  ])("releases the memory of a request that is %s", async (_, body) => {
    const { url, keyLoad } = await startSmall();
    await (await postNative(url, body)).text();
    await reserved(keyLoad, 0);
  });

  test("releases the memory of a request that fails in a service", async () => {
    const { url, keyLoad, script } = await startSmall();
    script.generate = () => {
      throw new ApiError("credits_exhausted");
    };
    expect((await postChat(url)).status).toBe(402);
    await reserved(keyLoad, 0);
  });
});

describe("the pace of a body", () => {
  test.each(["/v1/messages", "/v1/chat/completions"])(
    "that stops is 408 after ten seconds, in the format of %s, and the connection ends",
    async (path) => {
      const { url, clock, keyLoad } = await startSmall();
      const sent = sendUnfinished(url, {
        path,
        headers: { "content-length": "1000" },
        bytes: "{",
      });
      await reserved(keyLoad, 4_000);
      await clock.advance(paceMs - 1);
      expect(keyLoad.usedBytes).toBe(4_000);
      await clock.advance(1);
      const { status, headers, body } = await sent.answer;
      expect([status, codeIn(body), headers.connection]).toEqual([408, "body_too_slow", "close"]);
      expect(path.includes("chat") === body.includes('"type":"error"')).toBe(false);
      await reserved(keyLoad, 0);
    },
  );

  test("that trickles is 408, also after a fast beginning", async () => {
    const { url, clock, keyLoad } = await startSmall();
    const { request, answer } = sendUnfinished(url, { bytes: "x".repeat(paceBytes) });
    await reserved(keyLoad, 4 * paceBytes);
    await clock.advance(paceMs);
    request.write("x".repeat(paceBytes - 1));
    await reserved(keyLoad, 4 * (2 * paceBytes - 1));
    await clock.advance(paceMs);
    expect((await answer).status).toBe(408);
  });

  test("at the lowest rate is served, however long it takes", async () => {
    const { url, clock, keyLoad } = await startSmall();
    const padding = " ".repeat(paceBytes);
    const { request, answer } = sendUnfinished(url, { bytes: padding });
    for (let parts = 1; parts <= 6; parts++) {
      await reserved(keyLoad, 4 * parts * paceBytes);
      await clock.advance(paceMs);
      request.write(padding);
    }
    request.end(JSON.stringify(nativeBody));
    expect((await answer).status).toBe(200);
    expect(clock.pending).toBe(0);
  });
});

describe("an address", () => {
  test("stands for an IPv4 client or an IPv6 network of 64 bits", () => {
    const networks = ["2001:db8::1", "2001:0db8:0:0:ffff::2", "2001:db8:0:0:1:2:3:4%eth0"];
    expect(new Set(networks.map(networkOf)).size).toBe(1);
    expect(networkOf("::ffff:192.0.2.7")).toBe("192.0.2.7");
  });

  test("in a range is matched in both families and in the IPv6 form of IPv4", () => {
    const isExempt = matchAddresses([...loopbackRanges, "10.0.0.0/8", "fd00::/8"]);
    const exempt = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "10.1.2.3", "fd12::9"];
    expect(exempt.filter((one) => !isExempt(one))).toEqual([]);
    expect(["192.0.2.1", "11.0.0.1", "2001:db8::1", "::ffff:11.0.0.1"].filter(isExempt)).toEqual(
      [],
    );
  });

  /** Opens a connection. Resolves with true if the server closes it at once. */
  async function isClosed(port: number): Promise<boolean> {
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    onTestFinished(() => void socket.destroy());
    await once(socket, "connect");
    socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    const bytes = await new Promise((resolve) => {
      socket.once("data", resolve).once("close", () => resolve(undefined));
    });
    return bytes === undefined;
  }

  test("may open so many connections, and further ones are closed at once", async () => {
    const max = 500;
    const { port, server } = await startHttpServer({
      addressLoad: addressLoad({ max, isExempt: () => false }),
    });
    const attempts = Array.from({ length: 2_000 }, () => isClosed(port));
    const closed = (await Promise.all(attempts)).filter(Boolean).length;
    expect(closed).toBe(2_000 - max);
    // A connection that ends makes room for another.
    server.server.closeAllConnections();
    await expect.poll(() => isClosed(port)).toBe(false);
  });

  test("of this machine may open as many as it likes", async () => {
    const { port } = await startHttpServer({
      addressLoad: addressLoad({ max: 1 }),
    });
    const attempts = Array.from({ length: 20 }, () => isClosed(port));
    expect((await Promise.all(attempts)).filter(Boolean)).toEqual([]);
  });

  test("behind a trusted proxy may have so many requests in progress, and others go on", async () => {
    const started = Promise.withResolvers<void>();
    const finish = Promise.withResolvers<void>();
    const { url, script } = await startHttpServer(
      { addressLoad: addressLoad({ max: 2 }) },
      { trustedProxies: ["127.0.0.1"] },
    );
    let running = 0;
    script.generate = async function* () {
      running += 1;
      if (running === 2) started.resolve();
      await finish.promise;
      yield* play(answerOf("Hello"));
    };
    const from = (address: string) =>
      postNative(url, nativeBody, { ...nativeHeaders, "x-forwarded-for": address });
    const first = [from("192.0.2.1"), from("192.0.2.1")];
    await started.promise;
    const third = await from("192.0.2.1");
    expect([third.status, third.headers.get("retry-after")]).toEqual([503, "1"]);
    const other = from("192.0.2.2");
    // Without a forwarded address, a request is the proxy's own.
    const own = postNative(url);
    finish.resolve();
    for (const one of [...first, other, own]) expect((await one).status).toBe(200);
    await expect.poll(async () => (await from("192.0.2.1")).status).toBe(200);
  });
});
