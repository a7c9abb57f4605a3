import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type GatewayWithProvider,
  smallBody,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { nativeAnswer } from "../support/provider-answers.ts";

let native: GatewayWithProvider;
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
});
afterAll(() => native.stop());

const path = "/v1/messages/count_tokens";
const counted = (answer: JsonObject) => ({
  headers: { "content-type": "application/json" },
  writes: [JSON.stringify(answer)],
});

test("thirty counts at once are free and do not use a key's one request per minute", async () => {
  native.provider.always(counted({ input_tokens: 42 }));
  const { core, call } = native.gateway.admin;
  const before = await core.billing.getPools({ accountId: native.gateway.accountId }, call);
  const { secret } = await native.keyWith({ requestsPerMinute: 1 });
  const headers = { "x-api-key": secret };
  const { max_tokens, ...body } = smallBody;
  const answers = await Promise.all(
    Array.from({ length: 30 }, () => native.post({ ...body, tools: [] }, { path, headers })),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(30).fill(200));
  for (const answer of answers) expect(await answer.json()).toEqual({ input_tokens: 42 });
  expect(await core.billing.getPools({ accountId: native.gateway.accountId }, call)).toEqual(
    before,
  );

  native.provider.always(nativeAnswer({ text: ["Hi"] }));
  expect((await native.post(smallBody, { headers })).status).toBe(200);
  expect((await native.post(smallBody, { headers })).status).toBe(429);
});

test("a count accepts the same body, and the provider receives no member that only answers have", async () => {
  native.provider.play(
    counted({ input_tokens: 7, context_management: { original_input_tokens: 9 } }),
  );
  const body = { ...smallBody, stream: true, metadata: { user_id: "u" }, newest: 1 };
  const response = await native.post(body, {
    path,
    headers: { "anthropic-beta": "token-counting-2024-11-01" },
  });
  expect(await response.json()).toEqual({
    input_tokens: 7,
    context_management: { original_input_tokens: 9 },
  });
  const received = native.provider.requests.at(-1);
  expect(received?.path).toBe("/v1/messages/count_tokens");
  expect(received?.body).toEqual({
    model: "provider-model",
    messages: smallBody.messages,
    newest: 1,
  });
  expect(received?.headers["anthropic-beta"]).toBe("token-counting-2024-11-01");
});

test("a malformed body is rejected as on messages", async () => {
  const response = await native.post(
    { model: "haiku", messages: [{ role: "tool", content: "" }] },
    { path },
  );
  expect([response.status, Object(await response.json()).error.message]).toEqual([
    400,
    expect.stringMatching(/^messages\.0\.role: /),
  ]);
});
