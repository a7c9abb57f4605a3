// The settings of a key apply on several gateway processes at once.

import { setTimeout as delay } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type Cluster, objectOf, startCluster } from "../support/cluster.ts";

const nodeCount = 3;
let gateways: Cluster;
// All responses of the suite, to be searched for secrets.
let responses = "";
beforeAll(async () => {
  gateways = await startCluster(nodeCount);
});
afterAll(async () => {
  expect(await gateways.verifyLedger()).toEqual([]);
  await gateways.stop();
  const logs = gateways.nodes.map((node) => node.stdout() + node.stderr()).join("");
  expect(logs).toContain("{");
  expect(gateways.secretsIn(logs + responses)).toEqual([]);
});

const nodeAt = (index: number): ChildGateway => {
  const node = gateways.nodes[index % nodeCount];
  expect.assert(node);
  return node;
};

type Prompt = { text?: string; stream?: boolean; model?: string; chat?: boolean };

/** A short request in either format. */
function post(
  node: ChildGateway,
  secret: string,
  { text = "hello", stream = false, model = "haiku", chat = false }: Prompt = {},
) {
  const body = { model, max_tokens: 64, stream, messages: [{ role: "user", content: text }] };
  return fetch(`${node.address}${chat ? "/v1/chat/completions" : "/v1/messages"}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(chat
        ? { authorization: `Bearer ${secret}` }
        : { "x-api-key": secret, "anthropic-version": "2023-06-01" }),
    },
    body: JSON.stringify(body),
  });
}

type Result = { status: number; headers: Headers; text: string; atMs: number };

async function send(node: ChildGateway, secret: string, prompt?: Prompt): Promise<Result> {
  const response = await post(node, secret, prompt);
  const text = await response.text();
  responses += text;
  return { status: response.status, headers: response.headers, text, atMs: performance.now() };
}

const codeOf = ({ text }: Result): unknown => {
  const error = objectOf(objectOf(JSON.parse(text)).error);
  return error.code ?? objectOf(error.details ?? {}).error_code;
};

const statuses = (all: readonly Result[]) =>
  Object.fromEntries(
    Map.groupBy(all, (one) => one.status)
      .entries()
      .map(([status, some]) => [status, some.length]),
  );

test("requests per minute are limited over all nodes, and refused ones carry a retry time", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const { secret } = await gateways.key({ accountId, requestsPerMinute: 20 });
  const all = await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      send(nodeAt(index), secret, { chat: index % 2 === 0 }),
    ),
  );
  const admittedCount = statuses(all)["200"] ?? 0;
  // Fewer only when this machine is so busy that Redis answers too late and nodes use their
  // fallback quotas.
  if (gateways.redis)
    expect.assert(admittedCount <= 20 && admittedCount >= 10, `${admittedCount} admitted`);
  for (const one of all) {
    if (one.status !== 429) continue;
    const seconds = Number(one.headers.get("retry-after"));
    expect.assert(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60);
    expect(String(codeOf(one))).toMatch(/^rate_limit(ed|_exceeded)$/);
  }
  const admitted = all.find(
    (one) => one.status === 200 && one.headers.has("anthropic-ratelimit-requests-limit"),
  );
  expect(admitted?.headers.get("anthropic-ratelimit-requests-limit")).toBe("20");
});

test("of many requests over all nodes that race for a monthly cap of ten holds, ten are admitted", async () => {
  const accountId = await gateways.account({ v1: 100_000 });
  // Longer than a refused request waits for a hold to be released.
  const prompt = { text: "[[simulate tokens=4 first_token_ms=4000]]" };
  const measured = await gateways.key({ accountId });
  const first = send(nodeAt(0), measured.secret, prompt);
  const heldOf = async (keyId: string) => {
    const { key } = await gateways.admin("gateway.keys.v1.KeysService/GetKey", { keyId });
    return BigInt(String(objectOf(key).monthHeldMicrocredits ?? "0"));
  };
  await expect.poll(() => heldOf(measured.keyId)).toBeGreaterThan(0n);
  const cap = (await heldOf(measured.keyId)) * 10n;
  const { keyId, secret } = await gateways.key({ accountId, monthlyCapMicrocredits: String(cap) });
  const all = await Promise.all(
    Array.from({ length: 60 }, (_, index) => send(nodeAt(index), secret, prompt)),
  );
  expect(statuses(all)).toStrictEqual({ 200: 10, 429: 50 });
  for (const one of all) if (one.status === 429) expect(codeOf(one)).toBe("credits_held");
  expect((await first).status).toBe(200);
  const { key } = await gateways.admin("gateway.keys.v1.KeysService/GetKey", { keyId });
  const { monthSpentMicrocredits, monthHeldMicrocredits, lastUsedAt } = objectOf(key);
  expect.assert(
    BigInt(String(monthSpentMicrocredits)) > 0n && BigInt(String(monthSpentMicrocredits)) <= cap,
  );
  expect(String(monthHeldMicrocredits ?? "0")).toBe("0");
  expect.assert(lastUsedAt);
});

test("a revocation ends the streams of the key on every node within a second, and charges them", async () => {
  const accountId = await gateways.account({ v1: 10_000 });
  const [revoked, sibling] = [await gateways.key({ accountId }), await gateways.key({ accountId })];
  const long = { stream: true, text: "[[simulate tokens=60 token_ms=100]]" };
  const open = async (index: number, secret: string, chat: boolean) => {
    const response = await post(nodeAt(index), secret, { ...long, chat });
    expect(response.status).toBe(200);
    expect.assert(response.body);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value ?? "";
    const ended = (async () => {
      for (let read = await reader.read(); !read.done; read = await reader.read())
        text += read.value;
      responses += text;
      return { text, atMs: performance.now() };
    })();
    return { chat, requestId: response.headers.get("request-id") ?? "", ended };
  };
  const streams = await Promise.all(
    [0, 1, 2, 3, 4, 5].map((index) => open(index, revoked.secret, index >= nodeCount)),
  );
  const other = await open(1, sibling.secret, false);

  await gateways.admin("gateway.keys.v1.KeysService/RevokeKey", { keyId: revoked.keyId }, 0);
  const revokedAtMs = performance.now();
  // Every node refuses the next paid call, also with the key in its cache.
  const refused = await Promise.all([0, 1, 2].map((index) => send(nodeAt(index), revoked.secret)));
  expect(refused.map((one) => [one.status, codeOf(one)])).toStrictEqual(
    Array(3).fill([401, "revoked_key"]),
  );

  for (const { chat, ended, requestId } of streams) {
    const { text, atMs } = await ended;
    expect.assert(atMs - revokedAtMs < 1_000, `${atMs - revokedAtMs} ms`);
    expect(text).toMatch(
      chat ? /revoked_api_key/ : /event: error\ndata: .*authentication_error.*revoked_key/,
    );
    expect(text).not.toMatch(/message_stop|"finish_reason":"stop"/);
    const request = { accountId, requestId };
    const receiptOf = async () =>
      objectOf((await gateways.admin("gateway.usage.v1.UsageService/GetReceipt", request)).receipt);
    // The stream ends before its charge is settled.
    await expect.poll(async () => (await receiptOf()).outcome).toBe("OUTCOME_REVOKED");
    expect(BigInt(String((await receiptOf()).chargedMicrocredits)) > 0n).toBeTruthy();
  }
  const { text } = await other.ended;
  expect(text).toMatch(/message_stop/);
});

test("a pause refuses new requests on every node, and lets running streams end", async () => {
  const accountId = await gateways.account({ v1: 10_000 });
  const [paused, sibling] = [await gateways.key({ accountId }), await gateways.key({ accountId })];
  const nodes = [0, 1, 2];
  const long = { stream: true, text: "[[simulate tokens=40 token_ms=50]]" };
  const streams = await Promise.all(nodes.map((index) => post(nodeAt(index), paused.secret, long)));

  await gateways.admin("gateway.keys.v1.KeysService/PauseKey", { keyId: paused.keyId }, 0);
  // Paid calls at once, also with the key in the cache; free ones within a second.
  for (const chat of [false, true]) {
    const refused = await Promise.all(
      nodes.map((index) => send(nodeAt(index), paused.secret, { chat })),
    );
    expect(refused.map((one) => [one.status, codeOf(one)])).toStrictEqual(
      Array(3).fill([403, "key_paused"]),
    );
  }
  const soon = { timeout: 1_000, interval: 20 };
  const free = async (index: number) => {
    const headers = { "x-api-key": paused.secret, "anthropic-version": "2023-06-01" };
    return (await fetch(`${nodeAt(index).address}/v1/models`, { headers })).status;
  };
  for (const index of nodes) await expect.poll(() => free(index), soon).toBe(403);
  expect((await send(nodeAt(1), sibling.secret)).status).toBe(200);
  for (const response of streams) {
    expect(response.status).toBe(200);
    expect(await response.text()).toMatch(/message_stop/);
    const request = { accountId, requestId: response.headers.get("request-id") ?? "" };
    const { receipt } = await gateways.admin("gateway.usage.v1.UsageService/GetReceipt", request);
    expect(objectOf(receipt).outcome).toBe("OUTCOME_COMPLETED");
  }

  await gateways.admin("gateway.keys.v1.KeysService/ResumeKey", { keyId: paused.keyId }, 2);
  const statusAt = async (index: number) => (await send(nodeAt(index), paused.secret)).status;
  for (const index of nodes) await expect.poll(() => statusAt(index), soon).toBe(200);
});

test("a key that expires during a stream lets it end, and is refused on every node", async () => {
  const accountId = await gateways.account({ v1: 10_000 });
  const { keyId, secret } = await gateways.key({ accountId });
  const nodes = [0, 1, 2];
  const text = "[[simulate tokens=40 token_ms=100]]";
  const streams = await Promise.all(
    nodes.map((index) => post(nodeAt(index), secret, { stream: true, text })),
  );
  const expiresAt = new Date(Date.now() + 1_000);
  await gateways.admin("gateway.keys.v1.KeysService/UpdateKey", {
    keyId,
    settings: { expiresAt: expiresAt.toISOString() },
    updateMask: "expiresAt",
  });
  await delay(expiresAt.getTime() - Date.now() + 50);
  const refused = await Promise.all(nodes.map((index) => send(nodeAt(index), secret)));
  expect(refused.map((one) => [one.status, codeOf(one)])).toStrictEqual(
    Array(3).fill([401, "key_expired"]),
  );
  for (const response of streams) expect(await response.text()).toMatch(/message_stop/);
});

test("at two hundred requests a second, rotations fail no request", async () => {
  const accountId = await gateways.account({ v1: 100_000 });
  const { keyId, secret: first } = await gateways.key({ accountId });
  let secret = first;
  const sent: Promise<Result>[] = [];
  const rotations: Promise<void>[] = [];
  const rotate = async () => {
    secret = await gateways.rotate(keyId);
  };
  const startedAtMs = performance.now();
  // Sends all requests that are due, since timers fire late on a busy machine.
  while (sent.length < 600) {
    const due = Math.min(600, Math.floor((performance.now() - startedAtMs) / 5));
    while (sent.length < due) {
      const number = sent.length;
      // The load goes on while a secret is being replaced.
      if (number % 200 === 100) rotations.push(rotate());
      sent.push(
        send(nodeAt(number), number % 2 === 0 ? secret : first, { text: "[[simulate tokens=2]]" }),
      );
    }
    await delay(5);
  }
  await Promise.all(rotations);
  const all = await Promise.all(sent);
  expect.assert(all.length >= 500);
  expect(Object.keys(statuses(all))).toStrictEqual(["200"]);
  expect(secret).not.toBe(first);
});

test("a narrower allow-list and a cap apply to the next paid call on every node, other changes within a second", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const narrowed = await gateways.key({ accountId });
  const capped = await gateways.key({ accountId });
  const update = ({ keyId }: { keyId: string }, settings: JsonObject, updateMask: string) =>
    gateways.admin("gateway.keys.v1.KeysService/UpdateKey", { keyId, settings, updateMask }, 0);
  const warm = [0, 1, 2].flatMap((index) =>
    [narrowed, capped].map(({ secret }) => send(nodeAt(index), secret)),
  );
  expect(statuses(await Promise.all(warm))).toStrictEqual({ 200: 6 });

  const errorsOf = async ({ secret }: { secret: string }) => {
    const all = await Promise.all([1, 2].map((index) => send(nodeAt(index), secret)));
    return all.map((one) => `${one.status} ${codeOf(one)}`);
  };
  await update(narrowed, { allowedModels: ["opus"] }, "allowedModels");
  expect(await errorsOf(narrowed)).toStrictEqual(Array(2).fill("403 model_not_allowed"));
  await update(capped, { monthlyCapMicrocredits: "1" }, "monthlyCapMicrocredits");
  expect(await errorsOf(capped)).toStrictEqual(Array(2).fill("402 monthly_cap_reached"));

  const soon = { timeout: 1_000, interval: 20 };
  const statusAt = async (index: number, { secret }: { secret: string }) =>
    (await send(nodeAt(index), secret)).status;
  await update(narrowed, {}, "allowedModels");
  for (const index of [1, 2]) await expect.poll(() => statusAt(index, narrowed), soon).toBe(200);
  await update(narrowed, { requestsPerMinute: 0 }, "requestsPerMinute");
  await expect
    .poll(() => errorsOf(narrowed), soon)
    .toEqual(Array(2).fill("403 requests_not_allowed"));
});

test("each family draws only on its own pool, on both endpoints", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const [v1, v2] = [
    await gateways.key({ accountId }),
    await gateways.key({ accountId, family: "FAMILY_V2" }),
  ];
  const all = await Promise.all(
    [v1, v2].flatMap(({ secret }) =>
      [false, true].map((chat) => send(nodeAt(0), secret, { chat })),
    ),
  );
  expect(all.map((one) => one.status)).toStrictEqual([200, 200, 402, 402]);
});

test("unknown and malformed keys get the same response; it and that of an expired one name no key", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const { keyId, secret } = await gateways.key({ accountId });
  await gateways.admin("gateway.keys.v1.KeysService/RotateKey", { keyId, overlap: "0s" });
  const unknown = "sk-gw2-10000000000000000000000000000000000000000000abcdef";
  const all = await Promise.all(
    [secret, unknown, "nonsense", secret.toUpperCase(), "x".repeat(8_000)].map((one) =>
      send(nodeAt(1), one),
    ),
  );
  const [expired = "", ...bodies] = all.map((one) => one.text.replace(/req_\w+/g, "req_"));
  expect(expired).toMatch(/this secret expired after its key was rotated/);
  expect([new Set(all.map((one) => one.status)), new Set(bodies).size]).toStrictEqual([
    new Set([401]),
    1,
  ]);
  expect(`${expired}${bodies[0]}`).not.toMatch(/x-api-key|sk-gw2/i);
  const inQuery = await fetch(
    `${nodeAt(0).address}/v1/models?api_key=${secret}&x-api-key=${secret}`,
  );
  expect(inQuery.status).toBe(401);
});

test("requests continue without Redis, and /health is degraded until Redis is back", async ({
  skip,
}) => {
  if (!gateways.redis) return skip("needs Redis");
  const accountId = await gateways.account({ v1: 1_000 });
  const { secret } = await gateways.key({ accountId, requestsPerMinute: 30 });
  const health = async () => {
    const response = await fetch(`${nodeAt(0).address}/health`);
    return `${response.status} ${(await response.text()).includes("degraded") ? "degraded" : "ok"}`;
  };
  await gateways.redis.kill();
  try {
    const all = await Promise.all(
      Array.from({ length: 45 }, (_, index) => send(nodeAt(index), secret)),
    );
    expect(statuses(all)).toStrictEqual({ 200: 30, 429: 15 });
    await expect.poll(health).toBe("200 degraded");
  } finally {
    await gateways.redis.restart();
  }
  await expect.poll(health).toBe("200 ok");
  const after = await Promise.all(
    Array.from({ length: 9 }, (_, index) => send(nodeAt(index), secret)),
  );
  expect(statuses(after)).toStrictEqual({ 429: 9 });
});
