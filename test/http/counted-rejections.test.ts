// Requests that a gateway rejects are counted for the owner of the key, whoever rejected them.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { RefusalGroup } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { reasonName } from "../../src/base/reasons.ts";
import { ManualClock } from "../support/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
const clock = new ManualClock({ creeps: true });
beforeAll(async () => {
  gateway = await startTestGateway({ split: false, clock });
});
afterAll(() => gateway.stop());

async function newKey(accountId: string, more: object): Promise<{ keyId: string; secret: string }> {
  const { core, call } = gateway.admin;
  const { key, secret } = await core.keys.createKey(
    { accountId, family: Family.V1, settings: { name: "test", ...more } },
    call,
  );
  return { keyId: key?.keyId ?? "", secret };
}

async function send(secret: string, model = "haiku"): Promise<number> {
  const response = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({ model, max_tokens: 5, messages: [{ role: "user", content: "Hi" }] }),
  });
  await response.text();
  return response.status;
}

test("rate limits, models, and credits that are spent are counted by key and reason", async () => {
  const { core, call } = gateway.admin;
  const { account } = await core.billing.createAccount({ settings: { name: "empty" } }, call);
  const empty = await newKey(account?.accountId ?? "", {});
  const limited = await newKey(gateway.accountId, {
    requestsPerMinute: 1,
    allowedModels: ["haiku"],
  });
  const statuses: number[] = [];
  for (const model of ["opus", "haiku", "haiku", "haiku"])
    statuses.push(await send(limited.secret, model));
  for (let times = 0; times < 3; times++) statuses.push(await send(empty.secret));
  expect(statuses).toEqual([403, 200, 429, 429, 402, 402, 402]);

  const countsOf = async (accountId: string, keyId: string) => {
    const { rows } = await core.billing.queryRefusals(
      { accountId, keyIds: [keyId], groupBy: [RefusalGroup.REASON] },
      call,
    );
    return Object.fromEntries(
      rows.map(({ reason, requests }) => [reasonName(reason), Number(requests)]),
    );
  };
  expect(await countsOf(gateway.accountId, limited.keyId)).toEqual({});
  // Counts are written every ten seconds.
  await clock.advance(10_000);
  await vi.waitFor(async () => {
    expect(await countsOf(gateway.accountId, limited.keyId)).toEqual({
      model_not_allowed: 1,
      rate_limited: 2,
    });
    expect(await countsOf(account?.accountId ?? "", empty.keyId)).toEqual({ credits_exhausted: 3 });
  });
});
