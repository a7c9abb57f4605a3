// A proxy that TRUSTED_PROXIES does not name is told to its operator, not believed.

import { pino } from "pino";
import { expect, test } from "vitest";
import { createProxyReport } from "../../src/http/unnamed-proxies.ts";
import { UnnamedProxies } from "../../src/operations/status.ts";
import { ManualClock } from "../support/clock.ts";
import { startHttpServer } from "../support/http-server.ts";

type Line = { code?: string; peer?: string; set?: string };

function listen() {
  const lines: Line[] = [];
  const log = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  return { log, reports: () => lines.filter(({ code }) => code === "proxy_not_trusted") };
}

const forwarded = { headers: { "x-forwarded-for": "198.51.100.7" } };

test("any request with X-Forwarded-For of an unnamed peer is reported, with the line to set", async () => {
  const { log, reports } = listen();
  const settings = { trustedProxies: ["10.0.0.0/8"] };
  const { url } = await startHttpServer({ log }, settings);
  await fetch(`${url}/health`);
  expect(reports()).toEqual([]);
  for (const path of ["/health", "/no-such-path"]) await fetch(url + path, forwarded);
  expect(reports()).toMatchObject([
    { peer: "127.0.0.1", set: "TRUSTED_PROXIES=10.0.0.0/8,127.0.0.1" },
  ]);
});

test("a named proxy is not reported", async () => {
  const { log, reports } = listen();
  const { url } = await startHttpServer({ log }, { trustedProxies: ["127.0.0.1"] });
  await fetch(`${url}/health`, forwarded);
  expect(reports()).toEqual([]);
});

test("each peer is reported once an hour", async () => {
  const { log, reports } = listen();
  const clock = new ManualClock();
  const seen = new UnnamedProxies(clock);
  const report = createProxyReport(log, [], clock, (peer) => seen.note(peer));
  for (const peer of ["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1"]) report(peer);
  expect(reports().map(({ peer }) => peer)).toEqual(["192.0.2.1", "192.0.2.2"]);
  await clock.advance(3_599_000);
  report("192.0.2.1");
  expect(reports()).toHaveLength(2);
  await clock.advance(1_000);
  report("192.0.2.1");
  expect(reports()).toHaveLength(3);
  // Operators see those of the last hour.
  expect(seen.list()).toEqual(["192.0.2.1", "192.0.2.2"]);
  await clock.advance(60_000);
  expect(seen.list()).toEqual(["192.0.2.1"]);
});
