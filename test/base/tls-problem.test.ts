// A handshake that fails is named for each library that makes it: undici for providers, ioredis,
// grpc-js for cores. Of PostgreSQL: test/postgres/tls.deep.test.ts.

import { createServer as createPlainServer, type Server } from "node:net";
import { createServer } from "node:tls";
import { pino } from "pino";
import { Agent, request } from "undici";
import { afterEach, describe, expect, test, vi } from "vitest";
import { TlsReport, tlsProblemOf } from "../../src/base/tls-problem.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { connectRedis } from "../../src/redis/redis.ts";
import { createAuthority } from "../support/certificates.ts";

const authority = createAuthority("ours");
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function listen(server: Server): Promise<number> {
  servers.push(server);
  server.on("error", () => {}).on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return Object(server.address()).port;
}

const serverWith = ({ certificate, privateKey }: ReturnType<typeof authority.issue>) =>
  listen(createServer({ cert: certificate, key: privateKey }, (socket) => socket.destroy()));

const cases = [
  {
    name: "of another authority",
    open: () => serverWith(createAuthority("theirs").issue("server")),
    kind: "authority",
    text: "has a certificate of an authority that is not known here",
  },
  {
    name: "that has ended",
    open: () => serverWith(authority.issue("server", { hours: -1 })),
    kind: "ended",
    text: "has a certificate that has ended",
  },
  {
    name: "for another host",
    open: () => serverWith(authority.issue("server", { host: "db.example.com" })),
    kind: "names",
    text: "has a certificate for other names",
  },
  {
    name: "without TLS",
    open: () =>
      listen(
        createPlainServer((socket) => socket.on("error", () => {}).end("HTTP/1.1 400 No\r\n")),
      ),
    kind: "none",
    text: "takes no TLS",
  },
] as const;

/** A log whose lines are kept. */
function keptLog() {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { log, lines };
}

for (const { name, open, kind, text } of cases)
  describe(`a server ${name.startsWith("w") ? name : `with a certificate ${name}`}`, () => {
    test("is named where undici calls it", async () => {
      const port = await open();
      const dispatcher = new Agent({ connect: { ca: authority.certificate } });
      const failure = await request(`https://localhost:${port}/`, { dispatcher }).catch(
        (error: unknown) => error,
      );
      await dispatcher.close();
      expect(tlsProblemOf(failure)?.kind).toBe(kind);
      expect(tlsProblemOf(new Error("it failed", { cause: failure }))?.text).toBe(text);
    });

    test("is logged where a facade calls it", async () => {
      const port = await open();
      const { log, lines } = keptLog();
      const core = grpcCore({
        addresses: [`localhost:${port}`],
        tls: { authorities: authority.certificate },
        log,
      });
      for (const _ of [1, 2]) await expect(core.isServing(2_000)).rejects.toThrow();
      core.close();
      const named = { code: "certificate_refused", server: "a core", reason: text };
      expect(lines).toEqual([expect.objectContaining(named)]);
    });
  });

test("Redis with a certificate of a private authority is named", async () => {
  const port = await serverWith(authority.issue("server"));
  const { log, lines } = keptLog();
  const redis = connectRedis(`rediss://localhost:${port}`, log);
  await vi.waitFor(() =>
    expect(lines).toContainEqual(
      expect.objectContaining({
        code: "redis_unreachable",
        reason: expect.stringMatching(/^Redis has a certificate of an authority .*\(.+\)$/),
      }),
    ),
  );
  await redis.close();
});

test("a problem is logged once, and again after it had passed", () => {
  const { log, lines } = keptLog();
  const report = new TlsReport(log);
  const ended = Object.assign(new Error("certificate has expired"), { code: "CERT_HAS_EXPIRED" });
  for (const error of [ended, ended, new Error("connect ECONNREFUSED")]) report.failed("a", error);
  expect(lines).toHaveLength(1);
  report.passed();
  report.failed("a", ended);
  expect(lines).toHaveLength(2);
  expect(tlsProblemOf("certificate has expired")).toBe(undefined);
});
