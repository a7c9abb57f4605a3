// Internal callers over gRPC, against a started gateway.

import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("a key created over gRPC pays for an answer over gRPC, at the same cost as over HTTP", async () => {
  const keys = createClient(
    KeysService,
    createGrpcTransport({ baseUrl: `http://${gateway.grpcAddress}` }),
  );
  const { secret } = await keys.createKey(
    { accountId: gateway.accountId, family: Family.V1, settings: { name: "billing job" } },
    { headers: { authorization: `Bearer ${gateway.adminToken}` } },
  );

  const core = grpcCore({ addresses: [gateway.grpcAddress] });
  const content = [{ kind: { case: "text" as const, value: { text: "Hello" } } }];
  const request = { model: "haiku", maxTokens: 100, messages: [{ role: Role.USER, content }] };
  const order: (string | undefined)[] = [];
  let amountMicro: bigint | undefined;
  for await (const { kind } of core.inference.generate(request, {
    headers: { authorization: `Bearer ${secret}` },
  })) {
    order.push(kind.case);
    if (kind.case === "receipt") amountMicro = kind.value.chargedMicrocredits;
  }
  core.close();
  expect(order.at(0)).toBe("admission");
  expect(order.at(-1)).toBe("receipt");
  expect(new Set(order.slice(1, -1))).toEqual(new Set(["events"]));

  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 100,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  const costMicro = Number(answer.headers.get("x-gateway-cost-credits")) * 1_000_000;
  expect(BigInt(Math.round(costMicro))).toBe(amountMicro);
});
