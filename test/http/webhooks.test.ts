// Webhooks of payment processors over HTTP, with real services, and through a facade, which has no
// secrets.

import { hash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { refuseInserts } from "../support/refused-inserts.ts";
import { catalogWithHooks, hookBody, hookEnv, sendHook, signature } from "../support/webhooks.ts";

for (const split of [false, true]) {
  const where = split ? " (through a facade)" : "";
  let gateway: TestGateway;
  let database: Client;
  beforeAll(async () => {
    gateway = await startTestGateway({ split, catalog: catalogWithHooks(), env: hookEnv });
    database = new Client({ connectionString: gateway.databaseUrl });
    await database.connect();
  });
  afterAll(async () => {
    await database.end();
    await gateway.stop();
  });

  /** An order that is not to be looked at for an hour. Returns its id. */
  const newOrder = async (processor = "signed") => {
    const { core, call } = gateway.admin;
    const { account } = await core.billing.createAccount({ settings: { name: "buyer" } }, call);
    const { order } = await core.payments.createOrder(
      {
        accountId: account?.accountId ?? "",
        family: Family.V1,
        packMicrodollars: 5_000_000n,
        method: `${processor}:usdc`,
        idempotencyKey: "one",
      },
      call,
    );
    const orderId = order?.orderId ?? "";
    await rest(orderId);
    return orderId;
  };
  const rest = (orderId: string) =>
    database.query(
      `update payment_orders set next_look_at = now() + interval '1 hour', looked_at = null
       where order_id = $1`,
      [orderId],
    );
  /** True if the order was looked at since it was to rest, or is to be looked at soon. */
  const wasKnocked = async (orderId: string): Promise<boolean> => {
    const { rows } = await database.query<{ knocked: boolean }>(
      `select looked_at is not null or next_look_at < now() + interval '30 minutes' as knocked
       from payment_orders where order_id = $1`,
      [orderId],
    );
    return rows[0]?.knocked ?? false;
  };
  const lookedAt = (orderId: string) =>
    vi.waitFor(async () => {
      const { rows } = await database.query(
        "select from payment_orders where order_id = $1 and looked_at is not null",
        [orderId],
      );
      expect(rows).toHaveLength(1);
    });
  const inbox = async (orderId: string) => {
    const { rows } = await database.query(
      "select processor, delivery_key, body_sha256 from payment_hooks where external_id = $1",
      [orderId],
    );
    return rows;
  };
  test(`a signed webhook is answered with 200, and only its digest is kept${where}`, async () => {
    const orderId = await newOrder();
    const body = hookBody(orderId, "delivery-1");
    const answer = await sendHook(gateway.address, body);
    expect(answer.status).toBe(200);
    expect(await inbox(orderId)).toEqual([
      {
        processor: "signed",
        delivery_key: "delivery-1",
        body_sha256: hash("sha256", body, "buffer"),
      },
    ]);
  });

  test(`a webhook makes the gateway look at once, and the look credits${where}`, async () => {
    const orderId = await newOrder();
    const { core, call } = gateway.admin;
    const amount = "5";
    await core.payments.simulateDeposit(
      {
        orderId,
        event: { case: "deposit", value: { coins: amount, confirmations: 1 } },
        withoutHook: true,
      },
      call,
    );
    expect(await wasKnocked(orderId)).toBe(false);
    expect((await sendHook(gateway.address, hookBody(orderId, `paid ${where}`))).status).toBe(200);
    await vi.waitFor(async () => {
      const { order } = await core.payments.getOrder({ orderId }, call);
      expect(order?.grantedMicrocredits).toBe(1_000_000_000n);
    });
    // Late and repeated ones make it look again, and change nothing.
    for (const delivery of ["late", "later"]) {
      await rest(orderId);
      await sendHook(gateway.address, hookBody(orderId, `${delivery} ${where}`));
      await lookedAt(orderId);
    }
    const { order } = await core.payments.getOrder({ orderId }, call);
    const { accountId = "" } = order ?? {};
    expect((await core.billing.listTransfers({ accountId }, call)).transfers).toHaveLength(1);
  });

  test(`a webhook sets no cookie and permits no other origin${where}`, async () => {
    const origin = "https://elsewhere.example.com";
    const cookie = "gateway_session=of-somebody";
    const answer = await sendHook(gateway.address, "{}", { headers: { origin, cookie } });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("set-cookie")).toBeNull();
    expect(answer.headers.get("access-control-allow-origin")).toBeNull();
    const preflight = await fetch(`${gateway.address}/payments/signed/webhook`, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST" },
    });
    expect(preflight.status).toBe(405);
    expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
  });

  const forged: [name: string, of: (body: string) => string | undefined][] = [
    ["no signature", () => undefined],
    ["an empty signature", () => ""],
    ["a signature without its form", (body) => signature(body).replace("sha256=", "")],
    ["half a signature", (body) => signature(body).slice(0, 40)],
    ["a longer signature", (body) => `${signature(body)}00`],
    ["letters that are no digits", () => `sha256=${"z".repeat(64)}`],
    ["another secret", (body) => signature(body, "another-secret-of-somebody")],
    ["an empty secret", (body) => signature(body, "")],
    ["the signature of another body", (body) => signature(`${body} `)],
  ];
  for (const [name, of] of forged)
    test(`${name} is answered with 401 and leaves nothing${where}`, async () => {
      const orderId = await newOrder();
      const body = hookBody(orderId, name);
      const answer = await sendHook(gateway.address, body, { signature: of(body) });
      expect(answer.status).toBe(401);
      expect(await answer.json()).toMatchObject({ error: { message: /signature/ } });
      expect(await inbox(orderId)).toEqual([]);
      expect(await wasKnocked(orderId)).toBe(false);
    });

  for (const processor of ["silent", "nobody", "..%2f", "Signed", "a".repeat(600)])
    test(`${processor.slice(0, 10)} has no webhook: 404${where}`, async () => {
      const answer = await sendHook(gateway.address, "{}", { processor, signature: "sha256=" });
      expect(answer.status).toBe(404);
    });

  test(`a doubled, replayed or changed delivery is noted once, and knocks once${where}`, async () => {
    const orderId = await newOrder();
    const body = hookBody(orderId, "twice");
    await Promise.all(Array.from({ length: 5 }, () => sendHook(gateway.address, body)));
    expect(await wasKnocked(orderId)).toBe(true);
    await lookedAt(orderId);
    await rest(orderId);
    for (const again of [body, `${body} `])
      expect((await sendHook(gateway.address, again)).status).toBe(200);
    expect(await wasKnocked(orderId)).toBe(false);
    expect(await inbox(orderId)).toHaveLength(1);
  });

  test(`an order of another processor is not touched${where}`, async () => {
    const orderId = await newOrder("other");
    const answer = await sendHook(gateway.address, hookBody(orderId, "foreign"));
    expect(answer.status).toBe(200);
    expect(await wasKnocked(orderId)).toBe(false);
  });

  const odd: [name: string, body: string | Buffer][] = [
    ["an unknown order", hookBody("ord_nobody", "unknown")],
    ["no JSON", "\x00\xff not json"],
    ["no object", "7"],
    ["an order that is no text", JSON.stringify({ delivery_id: 7, order_id: { a: 1 } })],
    ["ids of another length", hookBody("o".repeat(500), "d".repeat(500))],
    ["an id with a NUL", hookBody("ord\0", "nul\0")],
    ["nothing at all", ""],
    ["bytes that are no text", Buffer.from([0xff, 0xfe, 0x00, 0x80])],
    ["65,536 bytes", `"${"x".repeat(65_534)}"`],
  ];
  for (const [name, body] of odd)
    test(`a signed body with ${name} is answered with 200${where}`, async () => {
      expect((await sendHook(gateway.address, body)).status).toBe(200);
    });

  test(`a body of more than 64 KB is answered with 413, declared or not${where}`, async () => {
    const body = "x".repeat(65_537);
    expect((await sendHook(gateway.address, body)).status).toBe(413);
    const chunks = new ReadableStream({
      start(controller) {
        for (let sent = 0; sent < 20; sent++)
          controller.enqueue(new TextEncoder().encode("x".repeat(4_096)));
        controller.close();
      },
    });
    const answer = await fetch(`${gateway.address}/payments/signed/webhook`, {
      method: "POST",
      body: chunks,
      duplex: "half",
      headers: { "x-simulated-signature": signature(body) },
    });
    expect(answer.status).toBe(413);
  });

  test(`a packed body is refused: its signature is over the bytes as they are${where}`, async () => {
    const packed = gzipSync("{}");
    const headers = { "content-encoding": "gzip" };
    expect((await sendHook(gateway.address, packed, { headers })).status).toBe(400);
  });
}

test("while the inbox cannot be written, a webhook is answered with 503, and a repeat is good", async () => {
  const gateway = await startTestGateway({ catalog: catalogWithHooks(), env: hookEnv });
  try {
    const body = hookBody("ord_later", "later");
    const refused = await refuseInserts(gateway.databaseUrl, "payment_hooks");
    expect((await sendHook(gateway.address, body)).status).toBe(503);
    await refused.stop();
    expect((await sendHook(gateway.address, body)).status).toBe(200);
  } finally {
    await gateway.stop();
  }
});

test("forged signatures count as failures of their address, and end with 429", async () => {
  const gateway = await startTestGateway({ catalog: catalogWithHooks(), env: hookEnv });
  try {
    const statuses: number[] = [];
    for (let sent = 0; sent < 101; sent++)
      statuses.push((await sendHook(gateway.address, "{}", { signature: "sha256=00" })).status);
    expect(statuses.slice(0, 100)).toEqual(Array(100).fill(401));
    expect(statuses[100]).toBe(429);
    // The method behind the route is no way around it.
    expect(await forgeByMethod(gateway.address)).toBe(429);
    // They are the failures of its keys too.
    const wrongKey = {
      headers: { "x-api-key": "sk-gw2-1wrong", "anthropic-version": "2023-06-01" },
    };
    expect((await fetch(`${gateway.address}/v1/credits`, wrongKey)).status).toBe(429);
  } finally {
    await gateway.stop();
  }
});

test("forged signatures that go to the method itself count, too", async () => {
  const gateway = await startTestGateway({ catalog: catalogWithHooks(), env: hookEnv });
  try {
    expect(await forgeByMethod(gateway.address)).toBe(401);
    await vi.waitFor(async () => expect(await forgeByMethod(gateway.address)).toBe(429), {
      interval: 0,
    });
    const forged = await sendHook(gateway.address, "{}", { signature: "sha256=00" });
    expect(forged.status).toBe(429);
    // Who signs does not guess.
    expect((await sendHook(gateway.address, "{}")).status).toBe(200);
  } finally {
    await gateway.stop();
  }
});

/** Calls ReceiveWebhook over Connect, without a signature. Returns the HTTP status. */
async function forgeByMethod(address: string): Promise<number> {
  const answer = await fetch(`${address}/gateway.payments.v1.PaymentsService/ReceiveWebhook`, {
    method: "POST",
    body: JSON.stringify({ processor: "signed", headers: {}, body: "" }),
    headers: { "content-type": "application/json" },
  });
  await answer.arrayBuffer();
  return answer.status;
}
