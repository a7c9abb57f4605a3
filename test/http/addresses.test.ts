// Keys with a list of addresses at the HTTP port of a whole gateway: the error of each format,
// proxies, and the counts that the owner sees.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { RefusalGroup } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { reasonName } from "../../src/base/reasons.ts";
import { ManualClock } from "../support/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const clock = new ManualClock({ creeps: true });
let plain: TestGateway;
let proxied: TestGateway;
beforeAll(async () => {
  [plain, proxied] = await Promise.all([
    startTestGateway({ clock }),
    startTestGateway({ env: { TRUSTED_PROXIES: "127.0.0.1" } }),
  ]);
});
afterAll(() => Promise.all([plain.stop(), proxied.stop()]));

async function keyFor(gateway: TestGateway, ...allowedAddresses: string[]) {
  const { core, call } = gateway.admin;
  const { key, secret } = await core.keys.createKey(
    {
      accountId: gateway.accountId,
      family: Family.V1,
      settings: { name: "leaked", allowedAddresses },
    },
    call,
  );
  return { keyId: key?.keyId ?? "", secret };
}

const bodies = {
  "/v1/messages": { model: "haiku", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
  "/v1/chat/completions": { model: "haiku", messages: [{ role: "user", content: "Hi" }] },
  "/v1/responses": { model: "haiku", input: "Hi" },
  "/v1/messages/count_tokens": { model: "haiku", messages: [{ role: "user", content: "Hi" }] },
};
type Path = keyof typeof bodies;

async function send(gateway: TestGateway, secret: string, path: Path, forwardedFor?: string) {
  const isNative = path.startsWith("/v1/messages");
  const response = await fetch(gateway.address + path, {
    method: "POST",
    headers: {
      ...(isNative
        ? { "x-api-key": secret, "anthropic-version": "2023-06-01" }
        : { authorization: `Bearer ${secret}` }),
      "content-type": "application/json",
      ...(forwardedFor !== undefined && { "x-forwarded-for": forwardedFor }),
    },
    body: JSON.stringify(bodies[path]),
  });
  const { error } = Object(await response.json());
  return { status: response.status, error };
}

const message = "This key may not be used from 127.0.0.1.";
test.for<[Path, object]>([
  ["/v1/messages", { details: { error_code: "address_not_allowed" }, message }],
  ["/v1/messages/count_tokens", { details: { error_code: "address_not_allowed" }, message }],
  ["/v1/chat/completions", { code: "address_not_allowed", message }],
  ["/v1/responses", { code: "address_not_allowed", message }],
])("%s answers 403 in its own format, whatever a client claims", async ([path, expected]) => {
  const { secret } = await keyFor(plain, "198.51.100.0/24");
  for (const claimed of [undefined, "198.51.100.1"]) {
    const { status, error } = await send(plain, secret, path, claimed);
    expect(status).toBe(403);
    expect(error).toMatchObject(expected);
    expect(JSON.stringify(error)).not.toContain("198.51.100");
  }
  const allowed = await keyFor(plain, "127.0.0.0/8");
  expect((await send(plain, allowed.secret, path)).status).toBe(200);
});

test("a credential that was good from one address a moment ago is refused from another", async () => {
  const { secret } = await keyFor(proxied, "198.51.100.0/24", "2001:db8::/32");
  const outcome = async (forwardedFor: string) => {
    const { status, error } = await send(proxied, secret, "/v1/messages", forwardedFor);
    return status === 200 ? status : `${status} ${error.message}`;
  };
  const refused = (address: string) => `403 This key may not be used from ${address}.`;
  expect(await outcome("198.51.100.1")).toBe(200);
  expect(await outcome("192.0.2.1")).toBe(refused("192.0.2.1"));
  expect(await outcome("198.51.100.2:4711")).toBe(200);
  expect(await outcome("[2001:db8::5]:80")).toBe(200);
  // Who writes a list of addresses in front is known by the last one, which the proxy wrote.
  expect(await outcome("198.51.100.1, 192.0.2.9")).toBe(refused("192.0.2.9"));
  expect(await outcome("unknown")).toBe(refused("an unknown address"));
});

test("misplaced uses are counted among the errors of the key", async () => {
  const { core, call } = plain.admin;
  const { accountId } = plain;
  const { keyId, secret } = await keyFor(plain, "198.51.100.7");
  for (const path of ["/v1/messages", "/v1/chat/completions", "/v1/messages"] as const)
    expect((await send(plain, secret, path)).status).toBe(403);
  await clock.advance(10_000);
  await vi.waitFor(async () => {
    const { rows } = await core.billing.queryRefusals(
      { accountId, keyIds: [keyId], groupBy: [RefusalGroup.REASON] },
      call,
    );
    expect(rows.map(({ reason, requests }) => [reasonName(reason), Number(requests)])).toEqual([
      ["address_not_allowed", 3],
    ]);
  });
});
