// How soon a provider stops when its client is gone, in real seconds.

import { expect, test } from "vitest";
import { smallBody, startGatewayWithProvider } from "../support/gateway-with-provider.ts";
import { Gate } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";

test("a client that disconnects during the answer stops the provider within a second", async () => {
  const native = await startGatewayWithProvider("native");
  const gate = new Gate();
  const events = nativeEvents({ text: ["Hello"] });
  native.provider.play({
    ...nativeStream(),
    writes: [...events.slice(0, 3), gate, ...events.slice(3)],
  });
  const leaving = new AbortController();
  const next = native.provider.received(1);
  const response = await native.post({ ...smallBody, stream: true }, { signal: leaving.signal });
  await response.body?.getReader().read();
  await gate.reached;
  const leftAtMs = performance.now();
  leaving.abort();
  expect((await (await next).over).by).toBe("client");
  expect(performance.now() - leftAtMs).toBeLessThan(1_000);
  await native.stop();
});
