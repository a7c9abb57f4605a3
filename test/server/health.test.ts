// GET /health says whether requests can be paid, not only whether a database answers, by a clock
// that the test moves. (health.deep.test.ts has read-only servers, real seconds and a full disk.)

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { grpcCore } from "../../src/grpc/client.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { refuseInserts } from "../support/refused-inserts.ts";

const clock = new ManualClock({ creeps: true });
let gateway: TestGateway;
beforeAll(async () => {
  const env = { LEDGER_MAX_WAIT_SECONDS: "2" };
  gateway = await startTestGateway({ clock, env });
});
afterAll(() => gateway.stop());

async function health() {
  const response = await fetch(`${gateway.address}/health`);
  const body: unknown = await response.json();
  const core = grpcCore({ addresses: [gateway.grpcAddress] });
  const grpc = await core.isServing(2_000).finally(() => core.close());
  return { status: response.status, database: Object(body).parts.database, grpc };
}

async function pay(): Promise<number> {
  const response = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 20,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  await response.text();
  return response.status;
}

const ok = { status: 200, database: { state: "ok" }, grpc: true };
const down = {
  status: 503,
  database: { state: "down", message: "admits no requests" },
  grpc: false,
};

test("a database that answers, and admits no request, is down until it does", async () => {
  await vi.waitFor(async () => expect(await health()).toEqual(ok));
  expect(await pay()).toBe(200);
  const refused = await refuseInserts(gateway.databaseUrl, "holds");
  const paying = pay();
  expect(await passDuring(() => clock.endPause(), paying)).toBe(503);
  await clock.advance(1_000);
  await vi.waitFor(async () => expect(await health()).toEqual(down));
  // Nobody asks for anything now, and a balancer must not come back for that.
  for (let seconds = 0; seconds < 7; seconds++) {
    await clock.advance(1_000);
    expect((await health()).status).toBe(503);
  }
  await refused.stop();
  // A trial that began before may still be on its way, and the next one is a second after its end.
  await vi.waitFor(async () => {
    await clock.advance(1_000);
    expect(await health()).toEqual(ok);
  });
  expect(await pay()).toBe(200);
});
