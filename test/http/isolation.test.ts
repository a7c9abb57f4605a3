// What one key may cost the others: which requests are answered before their body is read, and
// which count towards the limits of the key. A whole gateway, on a real ledger.

import { request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
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
  const { account } = await core.billing.createAccount({ settings: { name: "isolation" } }, call);
  const accountId = account?.accountId ?? "";
  if (credits > 0) await grant(accountId, credits);
  const { key, secret } = await core.keys.createKey(
    { accountId, family: Family.V2, settings: { name: "k", ...controls } },
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
    amountMicrocredits: BigInt(Math.round(credits * 1_000_000)),
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
  return /"(?:error_)?code":"(\w+)"/.exec(answer)?.[1] ?? "";
}

/** Sends the headers of a request and not its body. Resolves with the answer. */
function sendHeaders(key: TestKey, path = "/v1/messages"): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = {
      ...headersOf(key),
      authorization: `Bearer ${key.secret}`,
      "content-length": 1_000_000,
    };
    const request = httpRequest(`${gateway.address}${path}`, { method: "POST", headers });
    request.once("error", reject);
    request.once("response", async (response) => {
      const answer = await text(response);
      request.off("error", reject).on("error", () => {});
      request.destroy();
      resolve(`${response.statusCode} ${errorCodeIn(answer)}`.trim());
    });
    request.flushHeaders();
  });
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

describe("answered before the body is read, on both generating paths", () => {
  const paths = ["/v1/messages", "/v1/chat/completions"];
  const chatCodes: Record<string, string> = {
    rate_limited: "rate_limit_exceeded",
    credits_exhausted: "insufficient_quota",
  };
  async function expectEarly(key: TestKey, status: number, code: string): Promise<void> {
    const answers = await Promise.all(paths.map((path) => sendHeaders(key, path)));
    expect(answers).toEqual([`${status} ${code}`, `${status} ${chatCodes[code] ?? code}`]);
  }
  /**
   * After a request for which this was the answer. The feed of changes reports a new key once more.
   * If that comes in between, the next request is read, to see whether it still fails.
   */
  async function expectRemembered(
    key: TestKey,
    [status, code, body = goodBody]: readonly [number, string, string?],
    answer = `${status} ${code}`,
  ): Promise<void> {
    await expectEarly(key, status, code).catch(async () => {
      expect(await send(key, body)).toBe(answer);
      await expectEarly(key, status, code);
    });
  }

  test("a key whose limit is reached", async () => {
    const key = await keyWith(100, { requestsPerMinute: 1 });
    expect(await send(key)).toBe("200");
    await expectEarly(key, 429, "rate_limited");
  });

  test("a key with a limit of 0, until the limit is changed", async () => {
    const key = await keyWith(100, { requestsPerMinute: 0 });
    await expectEarly(key, 403, "requests_not_allowed");
    await update(key, { requestsPerMinute: 1 }, "requests_per_minute");
    expect(await send(key)).toBe("200");
  });

  test("a pool that is known to be empty, until credits are added", async () => {
    const key = await keyWith(0);
    expect(await send(key)).toBe("402 credits_exhausted");
    await expectRemembered(key, [402, "credits_exhausted"]);
    await grant(key.accountId, 100);
    expect(await send(key)).toBe("200");
  });

  test("a month that is known to be spent, until the cap is raised", async () => {
    const key = await keyWith(100, { monthlyCapMicrocredits: 0n });
    expect(await send(key)).toBe("402 monthly_cap_reached");
    await expectRemembered(key, [402, "monthly_cap_reached"]);
    await update(key, { monthlyCapMicrocredits: 50_000_000n }, "monthly_cap_microcredits");
    expect(await send(key)).toBe("200");
  });

  test("a key that sent sixty malformed bodies; the others of its account are not affected", async () => {
    const key = await keyWith(100, { requestsPerMinute: 5 });
    for (let index = 0; index < 60; index++) expect(await send(key, "{")).toBe("400");
    await expectRemembered(key, [429, "too_many_failed", "{"], "400");
    const { core, call } = gateway.admin;
    const other = await core.keys.createKey(
      { accountId: key.accountId, family: Family.V2, settings: { name: "other" } },
      call,
    );
    expect(await send({ ...key, secret: other.secret })).toBe("200");
  });

  test("a key that sent sixty requests that its credits do not cover, until credits are added", async () => {
    const key = await keyWith(0, { requestsPerMinute: 5 });
    await grant(key.accountId, 0.000_001);
    for (let index = 0; index < 60; index++) expect(await send(key)).toBe("402 credits_exhausted");
    await expectRemembered(key, [402, "credits_exhausted"]);
    await grant(key.accountId, 100);
    expect(await send(key)).toBe("200");
  });

  test("not for counting tokens, which needs no credits", async () => {
    const key = await keyWith(0);
    expect(await send(key)).toBe("402 credits_exhausted");
    const response = await fetch(`${gateway.address}/v1/messages/count_tokens`, {
      method: "POST",
      headers: headersOf(key),
      body: goodBody,
    });
    expect(response.status).toBe(200);
  });
});

async function update({ keyId }: TestKey, controls: Controls, path: string): Promise<void> {
  const { core, call } = gateway.admin;
  await core.keys.updateKey(
    { keyId, settings: { ...controls }, updateMask: { paths: [path] } },
    call,
  );
}
