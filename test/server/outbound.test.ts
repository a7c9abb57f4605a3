// Everything that a whole gateway calls over HTTP goes to the proxy of its environment.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { Outbound, parseProxy } from "../../src/base/outbound.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { parseSink } from "../../src/config/sink.ts";
import { clickhouseWriter } from "../../src/history/sink-clickhouse.ts";
import { catalogFor } from "../support/catalog.ts";
import { proxyPassword, startForwardProxy } from "../support/forward-proxy.ts";
import { startTestGateway } from "../support/gateway.ts";
import { postNative } from "../support/http-server.ts";
import { recordLog } from "../support/log.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function startProxy() {
  const proxy = await startForwardProxy({ hasPassword: true });
  cleanups.push(() => proxy.stop());
  return proxy;
}

const text = `${catalogFor({ real: { kind: "anthropic", url: "https://model.example" } })}
people:
  oidc:
    acme: { issuer: "https://login.example", client_id: gateway, title: Acme, sign_up: closed }
payments:
  seller: { name: The seller }
  processors:
    - { name: shop, type: btcpay, url: "https://shop.example", store: s, api_key: SHOP_KEY }
  rates:
    BTC:
      - { url: "https://one.example/btc", path: price }
      - { url: "http://two.example/btc", path: price }
`;

test("providers, OIDC, processors, rates and traces have the proxy, and no log its URL", async () => {
  const proxy = await startProxy();
  proxy.become(403);
  const { log, lines } = recordLog();
  const gateway = await startTestGateway({
    catalog: readCatalogFile(text),
    log,
    env: {
      https_proxy: proxy.url,
      HTTP_PROXY: proxy.url,
      SHOP_KEY: "the-key-of-the-shop",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://traces.example:4318",
      OTEL_TRACES_SAMPLER: "always_on",
      METRICS_PORT: "0",
    },
  });
  const answer = await postNative(gateway.address, undefined, {
    "x-api-key": gateway.v1,
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
  });
  const said = [await answer.text()];
  expect(answer.status).toBe(502);
  const { port } = new URL(gateway.address);
  await fetch(`http://localhost:${port}/console/oidc/acme/start`, { redirect: "manual" });
  const { admin, accountId } = gateway;
  const order = admin.core.payments.createOrder(
    {
      accountId,
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      method: "shop:btc-bitcoin",
      idempotencyKey: "of-a-test",
    },
    admin.call,
  );
  said.push(await order.then(String, String));
  said.push(await fetch(`${gateway.metricsAddress}/metrics`).then((got) => got.text()));
  said.push(JSON.stringify(await admin.core.operations.getStatus({}, admin.call), longs));
  await gateway.stop();

  const originOf = ({ url = "" }) => /^http:\/\/[^/]*/.exec(url)?.[0] ?? url;
  const targets = new Set(proxy.seen.map(originOf));
  expect([...targets].sort()).toEqual(
    [
      ...["login.example:443", "model.example:443", "one.example:443", "shop.example:443"],
      ...["http://traces.example:4318", "http://two.example"],
    ].sort(),
  );
  expect(lines().map(({ code }) => code)).toEqual(
    expect.arrayContaining(["provider_alarm", "rate_source_failed", "oidc_sign_in_failed"]),
  );
  said.push(JSON.stringify(lines()));
  expect(said.join("\n")).not.toMatch(
    new RegExp(`${proxyPassword}|(localhost|127.0.0.1):${proxy.port}|:${proxy.port}\\b`),
  );
});

const longs = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);

test("ClickHouse has the proxy", async () => {
  const proxy = await startProxy();
  const inserts: string[] = [];
  const server = createServer(async (request, response) => {
    for await (const chunk of request) inserts.push(String(chunk));
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const settings = parseSink(`clickhouse+http://writer:secret@db.example:${port}/analytics`);
  if (settings.kind !== "clickhouse") throw new Error("not ClickHouse");
  const outbound = new Outbound({ http: parseProxy(proxy.url) });
  cleanups.push(() => outbound.destroy());
  const writer = clickhouseWriter(settings, outbound);
  const position = { file: "", bytes: 0n };
  await writer.write({ day: "2026-11-01", lines: '{"request_id":"a"}\n' }, position);
  expect(inserts).toEqual(['{"request_id":"a"}\n']);
  proxy.become("closes");
  await expect(writer.write({ day: "2026-11-01", lines: "{}\n" }, position)).rejects.toThrow();
  proxy.stop();
  const gone = writer.write({ day: "2026-11-01", lines: "{}\n" }, position);
  await expect(gone).rejects.toMatchObject({
    cause: { message: "the proxy cannot be reached (ECONNREFUSED)" },
  });
});
