// Request ids that customers propose.

import { afterAll, beforeAll, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const send = (key: string, requestId: string) =>
  fetch(`${gateway.address}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "x-request-id": requestId,
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 20,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });

test("an id that one customer used is free for another one, and each reads the receipt of its own request", async () => {
  const { core, call } = gateway.admin;
  const { account } = await core.billing.createAccount({ settings: { name: "other" } }, call);
  const { accountId = "" } = account ?? {};
  await core.billing.createTransfer(
    {
      accountId,
      family: Family.V1,
      kind: TransferKind.BONUS,
      amountMicrocredits: 1_000_000_000n,
      idempotencyKey: "bonus",
    },
    call,
  );
  const { secret } = await core.keys.createKey(
    { accountId, family: Family.V1, settings: { name: "k" } },
    call,
  );
  const requestId = "req_order-number-1";
  const first = await send(gateway.v1, requestId);
  const second = await send(secret, requestId);
  expect([first.status, second.status]).toEqual([200, 200]);
  expect((await send(gateway.v1, requestId)).status).toBe(409);
  expect((await send(secret, requestId)).status).toBe(409);

  const receipt = async (credential: string, query = "") => {
    const answer = await fetch(`${gateway.address}/v1/receipts/${requestId}${query}`, {
      headers: { authorization: `Bearer ${credential}` },
    });
    return { status: answer.status, body: Object(await answer.json()) };
  };
  const [mine, theirs] = [await receipt(gateway.v1), await receipt(secret)];
  expect([mine.status, theirs.status]).toEqual([200, 200]);
  expect(mine.body.key_id).not.toBe(theirs.body.key_id);
  expect((await receipt(gateway.v1, `?account_id=${accountId}`)).status).toBe(404);
  expect((await receipt(gateway.adminToken)).status).toBe(400);
  expect((await receipt(gateway.adminToken, `?account_id=${accountId}`)).body).toEqual(theirs.body);
  const { receipts } = await core.billing.findRequests({ requestId }, call);
  expect(receipts.map((one) => one.accountId).sort()).toEqual(
    [gateway.accountId, accountId].sort(),
  );
});
