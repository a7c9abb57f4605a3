// The memory of answers that are open: a model may think for minutes about a prompt of megabytes.

import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { expect, onTestFinished, test, vi } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { exposeGc } from "../support/garbage.ts";
import { startTestGateway } from "../support/gateway.ts";
import { chatStream, nativeStream } from "../support/provider-answers.ts";

const promptBytes = 1_000_000;
const count = 16;

const formats = [
  { kind: "anthropic", path: "/v1/messages", answer: nativeStream },
  { kind: "openai", path: "/v1/chat/completions", answer: chatStream },
] as const;

for (const { kind, path, answer } of formats)
  test(`an answer of kind ${kind} that has begun holds no bytes of its prompt`, async () => {
    // The fake provider keeps what it receives, and this memory is measured.
    const provider = await startForgetfulProvider(answer({ text: ["a", "b"] }).writes ?? []);
    const gateway = await startTestGateway({
      // Between the parts of a split gateway, gRPC holds each request until its answer ends.
      split: false,
      catalog: readCatalogFile(catalogFor({ real: { kind, url: provider.url } })),
    });
    onTestFinished(() => gateway.stop());
    const body = Buffer.from(
      JSON.stringify({
        model: "haiku",
        max_tokens: 50,
        stream: true,
        messages: [{ role: "user", content: "a word ".repeat(promptBytes / 7) }],
      }),
    );
    const headers = {
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
      authorization: `Bearer ${gateway.v1}`,
      ...(kind === "anthropic" && { "x-api-key": gateway.v1 }),
    };
    const begin = async () => {
      const sent = request(gateway.address + path, { method: "POST", headers });
      sent.end(body);
      const [received]: IncomingMessage[] = await once(sent, "response");
      if (!received) throw new Error("no answer");
      expect(received.statusCode).toBe(200);
      const answered = { text: "", ended: once(received, "end") };
      received.on("data", (piece) => {
        answered.text += piece;
      });
      await once(received, "data");
      return answered;
    };
    const collectGarbage = exposeGc();
    const heldBytes = () => {
      collectGarbage();
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      return heapUsed + arrayBuffers;
    };

    const first = await begin();
    const before = heldBytes();
    const open = await Promise.all(Array.from({ length: count }, begin));
    // Memory of buffers is given back in the background.
    await vi.waitFor(() => expect((heldBytes() - before) / count).toBeLessThan(promptBytes / 5));
    provider.finish();
    for (const one of [first, ...open]) {
      await one.ended;
      expect(one.text).toContain(kind === "anthropic" ? "message_stop" : "[DONE]");
    }
  });

/** A provider that drops its requests, sends the first half of an answer and waits. */
async function startForgetfulProvider(writes: readonly unknown[]) {
  const open = new Set<ServerResponse>();
  const texts = writes.map(String);
  const server = createServer((message, response) => {
    message.resume().once("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const text of texts.slice(0, 4)) response.write(text);
      open.add(response);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    finish: () => {
      for (const response of open) response.end(texts.slice(4).join(""));
    },
  };
}
