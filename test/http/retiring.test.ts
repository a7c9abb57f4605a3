// A listener that leaves its port to other processes, and the connections that clients keep.

import { Client } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { keepAliveTimeoutMs } from "../../src/base/keep-alive.ts";
import {
  admission,
  answerOf,
  finish,
  nativeBody,
  nativeHeaders,
  play,
  receipt,
  start as startEvent,
  startHttpServer,
  textDelta,
  textStart,
} from "../support/http-server.ts";

const never = new AbortController().signal;

/** A listener, and a client with one connection at a time that counts those it opened. */
async function open() {
  const { url, server, script } = await startHttpServer();
  const client = new Client(url);
  onTestFinished(() => client.destroy());
  let connections = 0;
  client.on("connect", () => {
    connections++;
  });
  const post = async (body: object = nativeBody) => {
    const {
      statusCode,
      headers,
      body: answer,
    } = await client.request({
      path: "/v1/messages",
      method: "POST",
      headers: nativeHeaders,
      body: JSON.stringify(body),
    });
    return { status: statusCode, headers, text: () => answer.text() };
  };
  return { url, server, script, post, connections: () => connections };
}

test("a connection that its client was told to keep is served, and ends with that answer", async () => {
  const { url, server, post, connections } = await open();
  const first = await post();
  await first.text();
  expect(first.headers["keep-alive"]).toBe(`timeout=${keepAliveTimeoutMs / 1000}`);
  await server.retire();
  let isDisconnected = false;
  const disconnected = server.disconnect(never).then(() => {
    isDisconnected = true;
  });
  await expect(fetch(url)).rejects.toThrow("fetch failed");
  expect(isDisconnected).toBe(false);
  const second = await post();
  expect([second.status, second.headers.connection]).toEqual([200, "close"]);
  await second.text();
  await disconnected;
  expect(connections()).toBe(1);
});

test("the answer of a request that came before ends its connection, if its head is not sent", async () => {
  const { server, script, post } = await open();
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  script.generate = async function* () {
    begun.resolve();
    await gate.promise;
    yield* answerOf("Hi");
  };
  const answer = post();
  await begun.promise;
  const retired = server.retire();
  gate.resolve();
  expect((await answer).headers.connection).toBe("close");
  await (await answer).text();
  await retired;
  await server.disconnect(never);
});

test("the connection of a stream that began before stays for one more request", async () => {
  const { server, script, post, connections } = await open();
  const gate = Promise.withResolvers<void>();
  script.generate = async function* () {
    yield* [admission(), startEvent, textStart];
    await gate.promise;
    yield* [textDelta("Hi"), finish, receipt()];
  };
  const stream = await post({ ...nativeBody, stream: true });
  const retired = server.retire();
  gate.resolve();
  expect(await stream.text()).toContain("message_stop");
  await retired;
  script.generate = () => play(answerOf("Hello"));
  const next = await post();
  expect([next.status, next.headers.connection]).toEqual([200, "close"]);
  await next.text();
  await server.disconnect(never);
  expect(connections()).toBe(1);
});

test("idle connections are closed where nobody waits for them", async () => {
  const { server, post } = await open();
  await (await post()).text();
  await server.retire();
  await server.disconnect(AbortSignal.abort());
  await expect(post()).rejects.toThrow();
});
