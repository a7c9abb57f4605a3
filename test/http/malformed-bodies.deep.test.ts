// The CPU time and memory that malformed bodies take.

import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { Pool } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { exposeGc } from "../support/garbage.ts";
import {
  chatBody,
  chatHeaders,
  nativeBody,
  nativeHeaders,
  startHttpServer,
} from "../support/http-server.ts";

const whole = JSON.stringify({
  ...nativeBody,
  tools: [{ name: "t", input_schema: { type: "object" } }],
  stop_sequences: ["x"],
});
const odd = fc.constantFrom(5, "x", {}, true, -1, 1.5, [null], [[]], [5]);

/** Bodies that neither format accepts. */
const malformed: fc.Arbitrary<string | Buffer> = fc.oneof(
  fc.nat(whole.length - 1).map((at) => whole.slice(0, at)),
  fc.constantFrom("]", "}", "x", ",", "\u0000").map((end) => whole + end),
  fc.integer({ min: 201, max: 10_000 }).map((levels) => "[".repeat(levels) + "]".repeat(levels)),
  fc.nat(20_000).map((length) => `{"name ${length}":"${"x".repeat(length)}\\ud800"}`),
  fc.tuple(fc.nat(whole.length), fc.integer({ min: 0x80, max: 0xff })).map(([at, byte]) => {
    const bytes = Buffer.from(whole);
    return Buffer.concat([bytes.subarray(0, at), Buffer.from([byte]), bytes.subarray(at)]);
  }),
  odd.map((messages) => JSON.stringify({ ...nativeBody, messages })),
  odd.map((content) => JSON.stringify({ ...nativeBody, messages: [{ role: "nobody", content }] })),
  fc
    .constantFrom("5", {}, [], true, -1, 1.5)
    .map((max_tokens) => JSON.stringify({ ...nativeBody, max_tokens })),
);

test("10,000 malformed bodies get 400, cost at most twice as much as good ones, and leak no memory", async () => {
  const { url, script } = await startHttpServer();
  const pool = new Pool(url, { connections: 8 });
  onTestFinished(() => pool.destroy());
  const collectGarbage = exposeGc();
  const send = async (body: string | Buffer, native: boolean) => {
    const [path, headers] = native
      ? ["/v1/messages", nativeHeaders]
      : ["/v1/chat/completions", chatHeaders];
    const { statusCode, body: answer } = await pool.request({
      method: "POST",
      path,
      headers,
      body,
    });
    await answer.dump();
    return statusCode;
  };
  /** Returns the processor time, with that of the clients, which run in this process. */
  const sendAll = async (bodies: readonly (string | Buffer)[], status: number) => {
    const startCpu = process.cpuUsage();
    const statuses = await Promise.all(bodies.map((body, index) => send(body, index % 2 === 0)));
    const { user, system } = process.cpuUsage(startCpu);
    expect(statuses.filter((one) => one !== status)).toEqual([]);
    script.calls.length = 0;
    return user + system;
  };
  const bytesInUse = async () => {
    // Requests that have just ended release their memory in later ticks.
    for (let tick = 0; tick < 5; tick++) {
      await setImmediate();
      collectGarbage();
    }
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const good = Array.from({ length: 1_000 }, (_, index) =>
    index % 2 === 0 ? whole : JSON.stringify(chatBody),
  );
  const cost = { malformed: 0, good: 0 };
  const round = async (seed: number) => {
    cost.malformed += await sendAll(fc.sample(malformed, { numRuns: 1_000, seed }), 400);
    cost.good += await sendAll(good, 200);
  };

  await round(0);
  await round(1);
  const before = await bytesInUse();
  Object.assign(cost, { malformed: 0, good: 0 });
  for (let seed = 2; seed < 12; seed++) await round(seed);
  expect(cost.malformed / cost.good).toBeLessThan(2);
  // 100 bytes per request would be a leak.
  expect((await bytesInUse()) - before).toBeLessThan(2_000_000);
});
