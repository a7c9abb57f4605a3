// The rest of a rejected request is read slowly, all of them together.

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { dropBody } from "../../src/http/body.ts";

const bodyBytes = 5_000_000;
const pauseMs = 10;
const readsPerPause = 4;

afterEach(() => vi.useRealTimers());

/** Sends this many bodies, which a server drops. `read` counts the bytes of each that it took. */
async function sendDropped(count: number) {
  const requests: IncomingMessage[] = [];
  const read: number[] = [];
  const server = createServer((request) => {
    const index = requests.push(request) - 1;
    read[index] = 0;
    request.on("data", (chunk: Buffer) => {
      read[index] = (read[index] ?? 0) + chunk.length;
    });
    dropBody(request);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  const sockets: Socket[] = Array.from({ length: count }, () => {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write(`POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${bodyBytes}\r\n\r\n`);
    socket.write(Buffer.alloc(bodyBytes));
    return socket;
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  /** Resolves when each body is read to its end, or waits for the next pause to end. */
  const settled = async () => {
    const isSettled = (request: IncomingMessage) => request.isPaused() || request.readableEnded;
    while (requests.length < count || !requests.every(isSettled)) await setImmediate();
  };
  return { read, settled };
}

test("a rejected body beyond 256 KiB is read four times in ten milliseconds, with all others", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const { read, settled } = await sendDropped(6);
  await settled();
  for (const bytes of read) expect(bytes).toBeGreaterThan(256 * 1024);
  for (const bytes of read) expect(bytes).toBeLessThan(bodyBytes / 4);

  const grown: number[][] = [];
  for (let pause = 0; pause < 3; pause++) {
    const before = [...read];
    vi.advanceTimersByTime(pauseMs);
    await settled();
    grown.push(read.flatMap((bytes, index) => (bytes > (before[index] ?? 0) ? [index] : [])));
  }
  for (const some of grown) expect(some).toHaveLength(readsPerPause);
  // Those that waited longest come first, so every body is read.
  expect(new Set(grown.flat()).size).toBe(6);
});

test("a rejected body of up to 256 KiB is read at once", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const server = createServer((request, response) => {
    dropBody(request);
    request.once("end", () => response.end("dropped"));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
  const answer = await fetch(url, { method: "POST", body: Buffer.alloc(256 * 1024) });
  expect(await answer.text()).toBe("dropped");
});
