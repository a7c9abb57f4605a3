// Attacks over HTTP/2 with frames that no client library sends. After each, the server serves other
// clients as before, and its memory has not grown.

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import {
  GenerateRequestSchema,
  GenerateResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { startGrpcServer } from "../support/grpc-server.ts";
import { callPlain, plainClient } from "../support/plain-grpc-client.ts";
import { emptyAnswers, key, scriptedServices } from "../support/scripted-services.ts";

const generate = "/gateway.inference.v1.InferenceService/Generate";
const getPools = "/gateway.billing.v1.BillingService/GetPools";
const hello = toBinary(
  GenerateRequestSchema,
  create(GenerateRequestSchema, { model: "sonnet", messages: [{}] }),
);

const frames = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, continuation: 9 };
const endStream = 1;
const endHeaders = 4;

function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Headers without compression (RFC 7541, 6.2.2). */
function headerBlock(headers: Record<string, string>): Buffer {
  const text = (value: string) => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
  return Buffer.concat(
    Object.entries(headers).flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]),
  );
}

function callHeaders(path: string): Buffer {
  return headerBlock({
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": "localhost",
    "content-type": "application/grpc",
    te: "trailers",
    authorization: `Bearer ${key}`,
  });
}

const message = (bytes: Uint8Array) =>
  Buffer.concat([Buffer.from([0, 0, 0, 0, bytes.length]), bytes]);

/** A connection after its preface and settings. */
async function attack(port: number, settings: Buffer = Buffer.alloc(0)): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(
    Buffer.concat([
      Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
      frame(frames.settings, 0, 0, settings),
    ]),
  );
  return socket;
}

/** Writes these frames as fast as the server reads them, until all are sent or it hangs up. */
async function flood(socket: Socket, makeFrames: Iterable<Buffer>): Promise<void> {
  socket.resume();
  const closed = eventOf(socket, "close");
  for (const bytes of makeFrames) {
    if (socket.destroyed) break;
    if (!socket.write(bytes)) await Promise.race([eventOf(socket, "drain"), closed]);
  }
}

/** Resolves at the event and ignores errors: a socket whose peer hangs up fails in many ways. */
function eventOf(socket: Socket, event: "close" | "drain"): Promise<void> {
  return new Promise((resolve) => socket.once(event, () => resolve()));
}

async function serves(address: string): Promise<boolean> {
  const headers = { authorization: `Bearer ${key}` };
  return (
    (await callPlain(plainClient(address), getPools, new Uint8Array(), headers)).code === status.OK
  );
}

function* times(count: number, make: (index: number) => Buffer): Generator<Buffer> {
  for (let index = 0; index < count; index++) yield make(index);
}

test("a flood of calls that are reset at once ends the connection before it costs much", async () => {
  let ran = 0;
  const { port, address } = await startGrpcServer(
    scriptedServices({
      ...emptyAnswers(),
      unary: async (desc) => {
        ran++;
        return create(desc.output);
      },
    }),
  );
  const socket = await attack(port);
  const closed = eventOf(socket, "close");
  await flood(
    socket,
    times(100_000, (index) => {
      const stream = 2 * index + 1;
      return Buffer.concat([
        frame(frames.headers, endHeaders, stream, callHeaders(getPools)),
        frame(frames.data, endStream, stream, message(new Uint8Array())),
        frame(frames.reset, 0, stream, Buffer.alloc(4)),
      ]);
    }),
  );
  await closed;
  expect(ran).toBeLessThan(5_000);
  expect(await serves(address)).toBe(true);
});

test.for([
  {
    name: "headers that never end",
    first: callHeaders(getPools),
    next: headerBlock({ "x-filler": "x".repeat(100) }),
  },
  { name: "empty continuations", first: callHeaders(getPools), next: Buffer.alloc(0) },
])("$name end the connection", async ({ first, next }) => {
  const { port, address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  const socket = await attack(port);
  const closed = eventOf(socket, "close");
  socket.write(frame(frames.headers, 0, 1, first));
  await flood(
    socket,
    times(200_000, () => frame(frames.continuation, 0, 1, next)),
  );
  await closed;
  expect(await serves(address)).toBe(true);
});

test.for([
  { name: "pings", make: () => frame(frames.ping, 0, 0, Buffer.alloc(8)) },
  { name: "settings", make: () => frame(frames.settings, 0, 0) },
])("$name whose answers are never read do not pile up", async ({ make }) => {
  const { port, address } = await startGrpcServer(scriptedServices(emptyAnswers()));
  const socket = await attack(port);
  socket.pause();
  const before = process.memoryUsage.rss();
  for (const bytes of times(200_000, make)) {
    if (socket.destroyed) break;
    socket.write(bytes);
  }
  expect(await serves(address)).toBe(true);
  expect(process.memoryUsage.rss() - before).toBeLessThan(200 * 1024 * 1024);
});

test("readers with a window of zero stop their producers", async () => {
  let produced = 0;
  let open = 0;
  const { port, address } = await startGrpcServer(
    scriptedServices({
      ...emptyAnswers(),
      async *stream() {
        open++;
        try {
          for (; produced < 100_000; produced++) {
            yield create(GenerateResponseSchema, {
              kind: { case: "admission", value: { requestId: "x".repeat(10_000) } },
            });
          }
        } finally {
          open--;
        }
      },
    }),
  );
  const noWindow = Buffer.from([0, 4, 0, 0, 0, 0]);
  const socket = await attack(port, noWindow);
  const streams = 50;
  await flood(
    socket,
    times(streams, (index) =>
      Buffer.concat([
        frame(frames.headers, endHeaders, 2 * index + 1, callHeaders(generate)),
        frame(frames.data, endStream, 2 * index + 1, message(hello)),
      ]),
    ),
  );
  await expect.poll(() => open).toBe(streams);
  expect(await serves(address)).toBe(true);
  expect(produced).toBeLessThan(streams * 40);
  socket.destroy();
  await expect.poll(() => open).toBe(0);
});
