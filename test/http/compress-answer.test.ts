// Answers of the services, compressed for callers that take it, and never those with a secret.

import { request as httpRequest } from "node:http";
import { buffer } from "node:stream/consumers";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { ScalarType } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { allServices } from "../../src/contract/contract.ts";
import { isCompressible } from "../../src/http/compress-answer.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { query } from "../support/query.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
  const { core, call } = gateway.admin;
  const { accountId } = gateway;
  for (let index = 0; index < 30; index++)
    await core.keys.createKey(
      { accountId, family: Family.V1, settings: { name: `key ${index}` } },
      call,
    );
});
afterAll(() => gateway.stop());

/** Calls a method with JSON, as bytes come over the wire. */
async function post(method: string, body: object, accepts?: string) {
  const url = `${gateway.address}/${method}`;
  const answer = await new Promise<import("node:http").IncomingMessage>((resolve, reject) => {
    const headers = {
      "content-type": "application/json",
      authorization: `Bearer ${gateway.adminToken}`,
      ...(accepts !== undefined && { "accept-encoding": accepts }),
    };
    const sent = httpRequest(url, { method: "POST", headers }, resolve).on("error", reject);
    sent.end(JSON.stringify(body));
  });
  return { headers: answer.headers, bytes: await buffer(answer) };
}

const listKeys = "gateway.keys.v1.KeysService/ListKeys";

test("a large list comes in the smaller encoding that the caller takes", async () => {
  const { accountId } = gateway;
  const plain = await post(listKeys, { accountId });
  expect(plain.headers["content-encoding"]).toBeUndefined();
  expect(plain.headers.vary).toBe("accept-encoding");
  for (const [accepts, encoding, unpack] of [
    ["gzip, deflate, br, zstd", "br", brotliDecompressSync],
    ["gzip", "gzip", gunzipSync],
    ["br;q=0, gzip;q=0.5", "gzip", gunzipSync],
  ] as const) {
    const { headers, bytes } = await post(listKeys, { accountId }, accepts);
    expect(headers["content-encoding"]).toBe(encoding);
    expect(headers["content-length"]).toBe(String(bytes.length));
    expect(bytes.length).toBeLessThan(plain.bytes.length / 4);
    expect(JSON.parse(unpack(bytes).toString())).toEqual(JSON.parse(plain.bytes.toString()));
  }
  const refused = await post(listKeys, { accountId }, "br;q=0, identity");
  expect(refused.headers["content-encoding"]).toBeUndefined();
});

test("a page of 5,000 keys is small on the wire", async () => {
  const { accountId } = gateway;
  const postgres = connectPostgres(gateway.databaseUrl);
  const text = `with made as (
    insert into keys (key_id, account_id, family, name, created_by, managed_by)
    select 'key_' || md5(n::text), $1, 'v1', 'service ' || n || ' of ' || md5('team' || n), '', ''
      from generate_series(1, 5000) n returning key_id), budgeted as (
    insert into budgets (account_id, family, payer) select $1, 'v1', key_id from made)
    insert into key_secrets (digest, secret_id, key_id, shown)
    select sha256(key_id::bytea), 'sec_' || md5('s' || key_id), key_id,
           'sk-gw2-1' || left(md5('a' || key_id), 4) || '…' || left(md5('b' || key_id), 4)
      from made`;
  await query(postgres, { name: "", text }, [accountId]);
  await postgres.close();
  const page = { accountId, pageSize: 50, states: ["KEY_STATE_ACTIVE"], reversed: true };
  const { bytes } = await post(listKeys, page, "br");
  const { keys, liveKeys } = JSON.parse(brotliDecompressSync(bytes).toString());
  expect([keys.length, liveKeys >= 5_000]).toEqual([50, true]);
  expect(bytes.length).toBeLessThan(60_000 / 4);
});

test("a small answer, an error and a new secret come as they are", async () => {
  const { accountId } = gateway;
  const getPools = "gateway.billing.v1.BillingService/GetPools";
  const createKey = "gateway.keys.v1.KeysService/CreateKey";
  const settings = { name: "x".repeat(200) };
  const key = { accountId, family: "FAMILY_V1", settings };
  const allowedModels = Array.from({ length: 200 }, () => "no such model");
  for (const [method, body] of [
    [getPools, { accountId }],
    [listKeys, { accountId, query: "q".repeat(5_000) }],
    [createKey, key],
    [createKey, { ...key, settings: { ...settings, allowedModels } }],
  ] as const) {
    const { headers, bytes } = await post(method, body, "br, gzip");
    expect(headers["content-encoding"]).toBeUndefined();
    expect(Object(JSON.parse(bytes.toString()))).not.toEqual({});
  }
});

test("no method whose answer has a secret is compressed", () => {
  const isSecret = (name: string) =>
    /(secret|token|link|code|password|options_json|authorization_url)$/.test(name) &&
    name !== "next_page_token";
  const secret = allServices
    .flatMap(({ methods }) => [...methods])
    .filter(({ output }) =>
      output.fields.some(
        ({ name, fieldKind, scalar }) =>
          fieldKind === "scalar" && scalar === ScalarType.STRING && isSecret(name),
      ),
    );
  expect(secret.map(({ name }) => name)).toEqual(
    expect.arrayContaining(["CreateKey", "RotateKey", "CreateAdminToken", "CreateInvitation"]),
  );
  expect(secret.filter(isCompressible).map(({ name }) => name)).toEqual([]);
});
