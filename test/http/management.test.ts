// Management keys at the HTTP port: they read where keys read, create keys over Connect, and are
// refused where somebody has to pay.

import { afterAll, beforeAll, expect, test } from "vitest";
import { digestBytes, digestSecret, mintManagementSecret } from "../../src/keys/secret.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { query } from "../support/query.ts";

let gateways: TestGateway[];
beforeAll(async () => {
  gateways = await Promise.all([startTestGateway(), startTestGateway({ split: true })]);
});
afterAll(() => Promise.all(gateways.map((gateway) => gateway.stop())));

let made = 0;
/** The secret of a management key, as an owner makes one. */
async function managementKey({ databaseUrl, accountId }: TestGateway, ...scopes: string[]) {
  const secret = mintManagementSecret();
  const postgres = connectPostgres(databaseUrl);
  await query(
    postgres,
    {
      name: "test/management-key",
      text: `with made as (
          insert into management_keys
            (management_key_id, account_id, name, scopes, most_keys, created_by)
          values ($1, $2, 'deploy', $3, 10, 'person:per_1')
          returning management_key_id)
        insert into management_secrets (digest, management_key_id, shown)
        select $4, management_key_id, 'mk-gw2-…' from made`,
    },
    [`mgk_${++made}`, accountId, scopes, digestBytes(digestSecret(secret))],
  );
  await postgres.close();
  return secret;
}

const bodies = {
  "/v1/messages": { model: "haiku", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
  "/v1/messages/count_tokens": { model: "haiku", messages: [{ role: "user", content: "Hi" }] },
  "/v1/chat/completions": { model: "haiku", messages: [{ role: "user", content: "Hi" }] },
  "/v1/responses": { model: "haiku", input: "Hi" },
};

test("the paid endpoints say, each in its format, what the key is for", async () => {
  for (const gateway of gateways) {
    const secret = await managementKey(gateway, "read", "keys", "all_keys", "buy");
    const bearer = { authorization: `Bearer ${secret}` };
    for (const [path, body] of Object.entries(bodies)) {
      const isNative = path.startsWith("/v1/messages");
      for (const credential of isNative ? [{ "x-api-key": secret }, bearer] : [bearer]) {
        const response = await fetch(gateway.address + path, {
          method: "POST",
          headers: {
            ...credential,
            "anthropic-version": "2026-10-21",
            "content-type": "application/json",
          },
          body: JSON.stringify(body),
        });
        const { error } = Object(await response.json());
        expect(response.status).toBe(401);
        expect(error.message).toContain("Create a key with it and use that.");
        expect(isNative ? error.details.error_code : error.code).toBe("management_key_here");
      }
    }
    const models = await fetch(`${gateway.address}/v1/models`, { headers: bearer });
    expect(models.status).toBe(401);
  }
});

test("it reads credits, usage and receipts of the account with READ, and nothing without", async () => {
  for (const gateway of gateways) {
    const get = async (secret: string, path: string) => {
      const response = await fetch(gateway.address + path, {
        headers: { authorization: `Bearer ${secret}` },
      });
      return { status: response.status, body: Object(await response.json()) };
    };
    const reader = await managementKey(gateway, "read");
    const credits = await get(reader, "/v1/credits");
    expect(credits.status).toBe(200);
    const pools: unknown = credits.body.pools;
    expect(pools).toEqual(
      ["v1", "v2"].map((family) => ({
        family,
        posted_credits: expect.any(String),
        held_credits: "0",
        free_credits: expect.any(String),
      })),
    );
    for (const path of ["/v1/usage", "/v1/receipts"])
      expect((await get(reader, path)).status).toBe(200);
    expect((await get(reader, "/v1/receipts/req_00000000")).status).toBe(404);
    const maker = await managementKey(gateway, "keys", "buy");
    for (const path of ["/v1/credits", "/v1/usage", "/v1/receipts"])
      expect((await get(maker, path)).status).toBe(403);
  }
});

test("a key that it creates over Connect pays at once, and dies with its word", async () => {
  for (const gateway of gateways) {
    const secret = await managementKey(gateway, "keys");
    const call = async (method: string, body: object) => {
      const response = await fetch(`${gateway.address}/gateway.keys.v1.KeysService/${method}`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: Object(await response.json()) };
    };
    const created = await call("CreateKey", { settings: { name: "run 1" }, family: "FAMILY_V1" });
    expect(created.status).toBe(200);
    const pay = async () => {
      const response = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": created.body.secret,
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify(bodies["/v1/messages"]),
      });
      await response.text();
      return response.status;
    };
    expect(await pay()).toBe(200);
    const { keyId } = created.body.key;
    expect((await call("RevokeKey", { keyId })).status).toBe(200);
    await expect.poll(pay, { timeout: 10_000 }).toBe(401);
    expect((await call("ListKeys", {})).status).toBe(403);
  }
});
