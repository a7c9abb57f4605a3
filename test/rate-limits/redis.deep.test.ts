import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { connectRedis } from "../../src/redis/redis.ts";
import { redisBinary } from "../support/programs.ts";
import { redisMissing, startRedis, type TestRedis } from "../support/redis.ts";

const ping = { text: "return 'pong'", sha: "0".repeat(40) };
const hang = { text: "while true do end", sha: "1".repeat(40) };

describe.skipIf(!redisBinary)(redisBinary ? "with Redis" : redisMissing, () => {
  let server: TestRedis;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  test("a script that the server does not know is sent in full", async () => {
    const redis = connectRedis(server.url, createLog("silent"));
    try {
      await vi.waitFor(() => expect.assert(redis.connected));
      expect(await redis.run(ping, [], [], 1_000)).toBe("pong");
    } finally {
      await redis.close();
    }
  });

  test("a call fails at once without a server, and at its time limit without an answer", async () => {
    const unreachable = connectRedis("redis://127.0.0.1:1", createLog("silent"));
    await expect(unreachable.run(ping, [], [], 60_000)).rejects.toThrow();
    unreachable.publish("channel", "lost");
    expect(unreachable.connected).toBe(false);
    await unreachable.close();

    const redis = connectRedis(server.url, createLog("silent"));
    try {
      await vi.waitFor(() => expect.assert(redis.connected));
      await expect(redis.run(hang, [], [], 20)).rejects.toThrow(/did not answer within 20 ms/);
    } finally {
      await redis.close();
      await server.restart();
    }
  });

  test("a refused password is reported once, without the password", async () => {
    await server.command("config", "set", "requirepass", "the-right-password");
    const lines: string[] = [];
    const log = pino({ level: "debug" }, { write: (line: string) => void lines.push(line) });
    const redis = connectRedis(`redis://:the-wrong-password@127.0.0.1:${server.port}`, log);
    try {
      await vi.waitFor(() => expect.assert(lines.some((line) => line.includes("cannot connect"))));
      await vi.waitFor(() =>
        expect.assert(lines.filter((line) => line.includes("connection closed")).length >= 2),
      );
      expect(lines.filter((line) => line.includes("cannot connect")).length, lines.join("")).toBe(
        1,
      );
      expect.assert(!lines.join().includes("the-wrong-password"));
    } finally {
      await redis.close();
    }
  });
});
