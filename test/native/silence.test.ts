// A provider that is silent for a long time, as clients of both formats see it through the whole
// gateway.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { createFailedCredentials, createIdentifyCaller } from "../../src/http/authenticate.ts";
import { createHttpServer, type HttpServer } from "../../src/http/http.ts";
import { defaultKeepAlive } from "../../src/http/send-answer.ts";
import {
  type GatewayWithProvider,
  smallBody,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { defaultLimits } from "../support/limits.ts";
import { Gate, type WriteStep } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";

let native: GatewayWithProvider;
let core: ReturnType<typeof grpcCore>;
let listener: HttpServer;
let address: string;

// A listener of its own, because an operator cannot set the keep-alive times.
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
  core = grpcCore({ addresses: [native.gateway.grpcAddress] });
  listener = createHttpServer({
    core,
    settings: {
      file: { nativeBearer: "auto" },
      trustedProxies: [],
      keepAlive: { holdMs: 40, pingMs: 30 },
    },
    readiness: async () => ({}),
    identifyCaller: createIdentifyCaller(core, createFailedCredentials()),
    ...defaultLimits(),
    log: createLog("silent"),
  });
  address = await listener.listen({ host: "127.0.0.1", port: 0 });
});
afterAll(async () => {
  listener.server.closeAllConnections();
  await listener.close();
  core.close();
  await native.stop();
});

const formats = [
  { name: "native", path: "/v1/messages", ping: 'event: ping\ndata: {"type":"ping"}\n\n' },
  { name: "chat", path: "/v1/chat/completions", ping: ": keep-alive\n\n" },
];
const events = nativeEvents({ text: ["Hel", "lo"] });

/** A streamed answer, read to its end. `opens` resolves after three pings. */
async function read({ path, ping }: (typeof formats)[number], opens?: Gate): Promise<string> {
  const response = await fetch(address + path, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "anthropic-version": "2023-06-01",
      "x-api-key": native.gateway.v1,
      authorization: `Bearer ${native.gateway.v1}`,
    },
    body: JSON.stringify({ ...smallBody, stream: true }),
  });
  expect(response.status).toBe(200);
  let text = "";
  for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += piece;
    if (text.split(ping).length > 3) opens?.open();
  }
  return text;
}

/** Without the members that differ from answer to answer. */
const plain = (text: string) => text.replaceAll(/"(id|created|request_id)":("[^"]*"|\d+)/g, "");

describe.each(formats)("a $name client", (format) => {
  test.each([
    ["before its first event", 0],
    ["during its text", 3],
  ])(
    "of a provider that is silent %s sees three pings, none inside an event, and the same answer",
    async (_, at) => {
      native.provider.play(nativeStream({}, { writes: events }));
      const answer = (await read(format)).replaceAll(format.ping, "");

      const gate = new Gate();
      const writes: WriteStep[] = [...events.slice(0, at), gate, ...events.slice(at)];
      native.provider.play(nativeStream({}, { writes }));
      const parts = (await read(format, gate)).split(format.ping);
      expect(parts.length).toBeGreaterThan(3);
      expect(parts.every((part) => part === "" || part.endsWith("\n\n"))).toBe(true);
      expect(plain(parts.join(""))).toBe(plain(answer));
    },
  );
});

test("35 seconds of silence are long enough for three pings, whenever it starts", () => {
  expect(defaultKeepAlive.holdMs + 2 * defaultKeepAlive.pingMs).toBeLessThan(35_000);
});
