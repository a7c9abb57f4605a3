// What one key may cost the others: which requests are answered before their body is read, and
// which count towards the limits of the key. A whole gateway, on a real ledger.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

type Controls = { requestsPerMinute?: number; monthlyCapMicrocredits?: bigint };
type TestKey = { accountId: string; keyId: string; secret: string };

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

/** A key of a new account with these credits. */
async function keyWith(credits: number, controls: Controls = {}): Promise<TestKey> {
  const { core, call } = gateway.admin;
  const { account } = await core.billing.createAccount({ name: "isolation" }, call);
  const accountId = account?.accountId ?? "";
  if (credits > 0) await grant(accountId, credits);
  const { key, secret } = await core.keys.createKey(
    { accountId, family: Family.V2, ...controls },
    call,
  );
  return { accountId, keyId: key?.keyId ?? "", secret };
}

async function grant(accountId: string, credits: number): Promise<void> {
  const { core, call } = gateway.admin;
  const transfer = {
    accountId,
    family: Family.V2,
    kind: TransferKind.BONUS,
    amountMicrocredits: BigInt(credits) * 1_000_000n,
    idempotencyKey: crypto.randomUUID(),
  };
  await core.billing.createTransfer(transfer, call);
}

const goodBody = JSON.stringify({
  model: "haiku",
  max_tokens: 20,
  messages: [{ role: "user", content: "Hello" }],
});

function headersOf({ secret }: TestKey): Record<string, string> {
  return {
    "x-api-key": secret,
    "anthropic-version": "2023-06-01",
    "content-type": "application/json",
  };
}

/** Sends a whole request. Returns status and error code. */
async function send(key: TestKey, body: string = goodBody): Promise<string> {
  const response = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: headersOf(key),
    body,
  });
  return `${response.status} ${errorCodeIn(await response.text())}`.trim();
}

function errorCodeIn(answer: string): string {
  return /"error_code":"(\w+)"/.exec(answer)?.[1] ?? "";
}

describe("the limit of a key", () => {
  test("counts no request that has no credits: each is answered 402, and the limit stays whole", async () => {
    const key = await keyWith(0, { requestsPerMinute: 2 });
    for (let index = 0; index < 5; index++) expect(await send(key)).toBe("402 credits_exhausted");
    await grant(key.accountId, 100);
    expect(await send(key)).toBe("200");
    expect(await send(key)).toBe("200");
    expect(await send(key)).toBe("429 rate_limited");
  });

  test("of 0 is 403, and SDKs do not repeat it", async () => {
    const key = await keyWith(100, { requestsPerMinute: 0 });
    const response = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: headersOf(key),
      body: goodBody,
    });
    expect([response.status, response.headers.get("x-should-retry")]).toEqual([403, "false"]);
    expect(await send(key)).toBe("403 requests_not_allowed");
  });
});
