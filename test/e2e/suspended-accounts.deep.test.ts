// A suspended account on two nodes: its keys fail in every format with a reason that says so, its
// streams end, and all of it works again after the suspension.

import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { apiErrorOf } from "../support/bindings.ts";
import { type Cluster, objectOf, startCluster } from "../support/cluster.ts";

let gateways: Cluster;
beforeAll(async () => {
  gateways = await startCluster(2);
});
afterAll(async () => {
  expect(await gateways.verifyLedger()).toEqual([]);
  await gateways.stop();
});

const accounts = "gateway.accounts.v1.AccountsService";
const addressAt = (node: number) => gateways.nodes[node]?.address ?? "";

type Prompt = { chat?: boolean; stream?: boolean; text?: string };

function post(node: number, secret: string, { chat, stream, text }: Prompt = {}) {
  const messages = [{ role: "user", content: text ?? "hello" }];
  return fetch(`${addressAt(node)}${chat ? "/v1/chat/completions" : "/v1/messages"}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(chat
        ? { authorization: `Bearer ${secret}` }
        : { "x-api-key": secret, "anthropic-version": "2023-06-01" }),
    },
    body: JSON.stringify({ model: "haiku", max_tokens: 64, stream: stream ?? false, messages }),
  });
}

const statusAt = async (node: number, secret: string) => {
  const answer = await post(node, secret);
  await answer.text();
  return answer.status;
};

/** Opens a stream, and collects it to its end. */
async function open(node: number, secret: string, chat: boolean) {
  const text = "[[simulate tokens=100 token_ms=100]]";
  const answer = await post(node, secret, { chat, stream: true, text });
  expect(answer.status).toBe(200);
  expect.assert(answer.body);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let received = (await reader.read()).value ?? "";
  const ended = (async () => {
    for (let read = await reader.read(); !read.done; read = await reader.read())
      received += read.value;
    return { received, atMs: performance.now() };
  })();
  return { chat, requestId: answer.headers.get("request-id") ?? "", ended };
}

async function suspend(accountId: string, node: number) {
  const request = { accountId, reason: "unpaid" };
  const { account } = await gateways.admin(`${accounts}/SuspendAccount`, request, node);
  expect(objectOf(account)).toMatchObject({
    state: "ACCOUNT_STATE_SUSPENDED",
    stateReason: "unpaid",
  });
}

test("streams on both nodes end within a second, and are charged for what was produced", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const { secret } = await gateways.key({ accountId });
  const otherAccount = await gateways.account({ v1: 1_000 });
  const other = await gateways.key({ accountId: otherAccount });
  const streams = await Promise.all(
    [0, 1].flatMap((node) => [open(node, secret, false), open(node, secret, true)]),
  );
  const free = await open(1, other.secret, false);

  await suspend(accountId, 0);
  const suspendedAtMs = performance.now();
  for (const { chat, ended, requestId } of streams) {
    const { received, atMs } = await ended;
    expect(atMs - suspendedAtMs).toBeLessThan(1_000);
    expect(received).toMatch(
      chat
        ? /"code":"account_suspended"/
        : /event: error\ndata: .*"error_code":"account_suspended"/,
    );
    expect(received).not.toMatch(/message_stop|"finish_reason":"stop"/);
    const receiptOf = async () => {
      const request = { accountId, requestId };
      return objectOf(
        (await gateways.admin("gateway.usage.v1.UsageService/GetReceipt", request)).receipt,
      );
    };
    // The stream ends before its charge is settled.
    await expect.poll(async () => (await receiptOf()).outcome).toBe("OUTCOME_REVOKED");
    expect(BigInt(String((await receiptOf()).chargedMicrocredits))).toBeGreaterThan(0n);
  }
  // The other account does not notice.
  expect((await free.ended).received).toMatch(/message_stop/);
});

test("every node refuses the keys at once, in each format, and serves them after it", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const { secret } = await gateways.key({ accountId });
  for (const node of [0, 1]) expect(await statusAt(node, secret)).toBe(200);
  await suspend(accountId, 1);

  for (const node of [0, 1]) {
    const native = await post(node, secret);
    expect([native.status, native.headers.get("x-should-retry")]).toEqual([403, "false"]);
    expect(await native.json()).toMatchObject({
      error: {
        type: "permission_error",
        message: expect.stringMatching(/suspended/),
        details: { error_code: "account_suspended" },
      },
    });
    const chat = await post(node, secret, { chat: true });
    expect(chat.status).toBe(403);
    expect(await chat.json()).toMatchObject({ error: { code: "account_suspended" } });
  }
  // Within a second, also where nothing is paid for.
  const soon = { timeout: 1_000, interval: 20 };
  const freeCall = async () => {
    const headers = { authorization: `Bearer ${secret}` };
    return (await fetch(`${addressAt(0)}/v1/credits`, { headers })).status;
  };
  await expect.poll(freeCall, soon).toBe(403);
  const grpcPort = /gRPC[^\n]*?127\.0\.0\.1:(\d+)/.exec(gateways.nodes[0]?.stdout() ?? "")?.[1];
  const transports = [createConnectTransport({ baseUrl: addressAt(0), httpVersion: "1.1" })];
  if (grpcPort) transports.push(createGrpcTransport({ baseUrl: `http://127.0.0.1:${grpcPort}` }));
  for (const transport of transports) {
    const call = { headers: { authorization: `Bearer ${secret}` } };
    const models = createClient(InferenceService, transport).listModels({}, call);
    const error = await models.catch(apiErrorOf);
    expect(error).toMatchObject({ reason: "account_suspended" });
  }

  const { account } = await gateways.admin(
    `${accounts}/ResumeAccount`,
    { accountId, reason: "It paid." },
    0,
  );
  expect(objectOf(account)).toMatchObject({ state: "ACCOUNT_STATE_ACTIVE" });
  expect(objectOf(account)).not.toHaveProperty("stateReason");
  for (const node of [0, 1]) await expect.poll(() => statusAt(node, secret), soon).toBe(200);
});

test("a node that heard of nothing yet admits no paid request", async () => {
  const accountId = await gateways.account({ v1: 1_000 });
  const { secret } = await gateways.key({ accountId });
  for (const node of [0, 1]) expect(await statusAt(node, secret)).toBe(200);
  const statuses = new Set<number>();
  for (let round = 0; round < 5; round++) {
    await suspend(accountId, 0);
    statuses.add(await statusAt(1, secret));
    await gateways.admin(`${accounts}/ResumeAccount`, { accountId, reason: "It paid." }, 0);
    await expect.poll(() => statusAt(1, secret)).toBe(200);
  }
  expect([...statuses]).toEqual([403]);
});
