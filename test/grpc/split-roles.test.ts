// A facade and a core beside one process: with the services behind gRPC, clients see no difference.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { credits, parseCredits } from "../../src/base/money.ts";
import {
  type GatewayWithProvider,
  type PostOptions,
  readEvents,
  smallBody,
  startGatewayWithProvider,
  textOf,
} from "../support/gateway-with-provider.ts";
import { Gate, type Respond, type Script } from "../support/provider.ts";
import {
  type AnswerContent,
  errorAnswer,
  nativeAnswer,
  nativeEvents,
  nativeStream,
} from "../support/provider-answers.ts";

type Both = readonly [whole: GatewayWithProvider, split: GatewayWithProvider];
const startBoth = (): Promise<Both> =>
  Promise.all([
    startGatewayWithProvider("native"),
    startGatewayWithProvider("native", "", { split: true }),
  ]);
async function stopBoth(both: Both): Promise<void> {
  await Promise.all(both.map((one) => one.stop()));
}
let both: Both;
let split: GatewayWithProvider;
beforeAll(async () => {
  both = await startBoth();
  [, split] = both;
});
afterAll(() => stopBoth(both));

/** The requests of a client of each format. */
const formats = {
  native: { path: "/v1/messages", body: smallBody },
  chat: { path: "/v1/chat/completions", body: smallBody },
  responses: {
    path: "/v1/responses",
    body: { model: "haiku", input: "Hello", reasoning: { summary: "auto" } },
  },
} as const;
type Format = keyof typeof formats;
const names: Format[] = ["native", "chat", "responses"];

/** Posts the request of a format with these members besides. */
function post(
  stage: GatewayWithProvider,
  format: Format,
  more: object = {},
  { key = stage.gateway.v1, ...options }: PostOptions & { key?: string } = {},
): Promise<Response> {
  const { path, body } = formats[format];
  const authorization = `Bearer ${key}`;
  const headers =
    format === "native" ? { "x-api-key": key } : { "x-api-key": undefined, authorization };
  return stage.post({ ...body, ...more }, { path, headers, ...options });
}

type Answer = { status: number; headers: Record<string, string>; text: string };

/** The answer of split roles, which must be that of one process. Both providers get the script. */
async function sameAnswer(
  send: (stage: GatewayWithProvider) => Promise<Response>,
  script?: Script | Respond,
  stages = both,
): Promise<Answer> {
  const [whole, other] = await Promise.all(
    stages.map(async (stage): Promise<Answer> => {
      if (script) stage.provider.play(script);
      const response = await send(stage);
      const headers = Object.fromEntries(response.headers);
      return { status: response.status, headers, text: await response.text() };
    }),
  );
  if (!whole || !other) return expect.unreachable();
  expect(masked(other)).toEqual(masked(whole));
  return other;
}

/** The answer without its ids and times. */
function masked({ status, headers, text }: Answer): unknown {
  const { date, ...others } = headers;
  const withoutIds = JSON.stringify([status, others, text])
    .replace(/(req|chatcmpl|resp|msg|rs|fc|key)([_-])\w{16,}/g, "$1$2id")
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "a time")
    .replace(/(uptime_seconds\\"):\d+/, "$1:0")
    .replace(/(created(_at)?\\"):\d+/g, "$1:0");
  return JSON.parse(withoutIds);
}

const content: AnswerContent = {
  thinking: { pieces: ["I look ", "it up."], signature: "c2ln" },
  text: ["One ", "moment. \u2028😀"],
  tool: { id: "toolu_clock1", name: "clock", input: ['{"zone":', '"Oslo"}'] },
  usage: { input: 100, output: 40, cacheRead: 30, cacheWrite: 20, thinking: 15 },
};
const answer: Respond = ({ body }) =>
  body.stream === true ? nativeStream(content) : nativeAnswer(content);

describe.for(names)("a %s client", (format) => {
  test.for([false, true])("gets thinking, text and a call, as a stream: %s", async (stream) => {
    const send = (stage: GatewayWithProvider) => post(stage, format, { stream });
    const { status, text } = await sameAnswer(send, answer);
    expect(status).toBe(200);
    for (const part of ["it up.", "moment.", "toolu_clock1", "Oslo"]) expect(text).toContain(part);
  });

  test("gets the errors of the gateway", async () => {
    const withKey = (controls: { requestsPerMinute?: number; allowedModels?: string[] }) =>
      sameAnswer(async (stage) =>
        post(stage, format, {}, { key: (await stage.keyWith(controls)).secret }),
      );
    const answers = [
      await sameAnswer((stage) => post(stage, format, { model: "gpt-0" })),
      await sameAnswer((stage) => post(stage, format, {}, { key: "sk-gw2-1wrong" })),
      await sameAnswer((stage) => post(stage, format, { messages: 5, input: 5 })),
      await withKey({ allowedModels: ["opus"] }),
      await withKey({ requestsPerMinute: 0 }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 401, 400, 403, 403]);
  });

  test("gets the error of a provider, in its words", async () => {
    const words = "messages.1.content.0: `thinking` blocks cannot be modified.";
    const script = errorAnswer(400, "invalid_request_error", words);
    const { status, text } = await sameAnswer((stage) => post(stage, format), script);
    expect([status, text]).toEqual([400, expect.stringContaining(words)]);
  });

  test("gets an error at the end of a stream that breaks off", async () => {
    const events = nativeEvents({ text: ["a", "b", "c"] }).slice(0, 4);
    const send = (stage: GatewayWithProvider) => post(stage, format, { stream: true });
    const { text } = await sameAnswer(send, { ...nativeStream(), writes: events, end: "reset" });
    expect(text).toMatch(/"(api_error|upstream_error|server_error)"/);
    expect(text).not.toMatch(/message_stop|\[DONE\]|response\.completed/);
  });
});

test("a client is told when to come again by a provider that is overloaded", async () => {
  // Gateways of its own: after a `retry-after`, a gateway avoids that provider for as long.
  await using stack = new AsyncDisposableStack();
  const own = stack.adopt(await startBoth(), stopBoth);
  const headers = { "retry-after": "7" };
  const script = errorAnswer(529, "overloaded_error", "Overloaded", { headers });
  const answer = await sameAnswer((stage) => post(stage, "native", { stream: true }), script, own);
  expect([answer.status, answer.headers["retry-after"]]).toEqual([529, "7"]);
});

test("the provider receives unknown members and headers byte for byte", async () => {
  const odd = { z: [3, 1, 2, null, {}], a: { "": "", deep: [[[]]] } };
  const text = { type: "text", text: "é\u2028\u0000", newest: odd };
  const body = { newest: odd, messages: [{ role: "user", content: [text], newest: odd }] };
  const headers = { "anthropic-beta": "b-2025-01-01,  a-2024-12-31,b-2025-01-01" };
  const send = (stage: GatewayWithProvider) => stage.post({ ...smallBody, ...body }, { headers });
  expect((await sameAnswer(send, answer)).status).toBe(200);
  const [whole, other] = both.map(({ provider }) => provider.requests.at(-1));
  expect(other?.bodyText).toBe(whole?.bodyText);
  expect(other?.bodyText).toContain(JSON.stringify(odd));
  expect(other?.headers["anthropic-beta"]).toBe(headers["anthropic-beta"]);
});

test("bytes that arrive one at a time are the same text", async () => {
  const text = "日本語 😀 é\u2028x\n\ny data: z\n\nevent: error\n\n\u0085";
  const script = { ...nativeStream(), writes: nativeEvents({ text: [text, "😀"] }), splitBytes: 1 };
  const streamed = await sameAnswer((stage) => post(stage, "native", { stream: true }), script);
  expect(textOf(readEvents(streamed.text))).toBe(`${text}😀`);
});

test("tokens are counted, for nothing", async () => {
  const { core, call } = split.gateway.admin;
  const pools = () => core.billing.getPools({ accountId: split.gateway.accountId }, call);
  const before = await pools();
  const { max_tokens, ...body } = smallBody;
  const script = {
    headers: { "content-type": "application/json" },
    writes: ['{"input_tokens":42}'],
  };
  const path = "/v1/messages/count_tokens";
  const { text } = await sameAnswer((stage) => stage.post(body, { path }), script);
  expect(JSON.parse(text)).toEqual({ input_tokens: 42 });
  expect(await pools()).toEqual(before);
});

test.for([
  "/",
  "/docs",
  "/healthz",
  "/openapi.json",
  "/protos/descriptor.binpb",
  "/v1/models",
  "/v1/models/haiku",
  "/v1/models/none",
  "/v1/models/info",
  "/v1/credits",
  "/v1/receipts",
  "/v1/receipts?limit=0",
  "/v1/receipts/req_12345678",
  "/v1/usage",
  "/v1/usage?granularity=none",
  "/v1/dashboard/billing/subscription",
  "/v1/dashboard/billing/usage",
  "/v1/dashboard/billing/credit_grants",
])("GET %s is the same", async (path) => {
  const keys = await Promise.all(both.map((stage) => stage.keyWith({})));
  const { status } = await sameAnswer((stage) => {
    const authorization = `Bearer ${keys[stage === split ? 1 : 0]?.secret ?? ""}`;
    return fetch(stage.gateway.address + path, { headers: { authorization } });
  });
  expect([200, 400, 404]).toContain(status);
});

test("the models are listed", async () => {
  const { status, text } = await sameAnswer(({ gateway }) =>
    fetch(`${gateway.address}/v1/models`, { headers: { authorization: `Bearer ${gateway.v1}` } }),
  );
  expect([status, text]).toEqual([200, expect.stringContaining("model-haiku-4.5")]);
});

test("a second request in the minute of a limit of one is told when to come again", async () => {
  const keys = await Promise.all(both.map((stage) => stage.keyWith({ requestsPerMinute: 1 })));
  const send = (stage: GatewayWithProvider) =>
    post(stage, "native", {}, { key: keys[stage === split ? 1 : 0]?.secret ?? "" });
  expect((await sameAnswer(send, answer)).status).toBe(200);
  for (const stage of both) {
    const { status, headers } = await send(stage);
    expect(status).toBe(429);
    expect(headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
    expect(headers.get("anthropic-ratelimit-requests-remaining")).toBe("0");
  }
});

test("an answer has a receipt, and its credits are gone", async () => {
  const { secret } = await split.keyWith({});
  const show = async (path: string) => {
    const headers = { authorization: `Bearer ${secret}` };
    return Object(await (await fetch(split.gateway.address + path, { headers })).json());
  };
  const { pool } = await show("/v1/credits");
  split.provider.play(answer);
  const { headers } = await post(split, "native", {}, { key: secret });
  const cost = 100n * 140n + 40n * 700n + 20n * 175n + 30n * 14n;
  expect(headers.get("x-gateway-cost-credits")).toBe(credits(cost));
  const requestId = headers.get("request-id");
  expect(await show(`/v1/receipts/${requestId}`)).toMatchObject({
    request_id: requestId,
    outcome: "COMPLETED",
    tokens: { input: 100, output: 25, thinking: 15, cache_read: 30, cache_write_5m: 20 },
    charge_credits: credits(cost),
  });
  expect(await show("/v1/credits")).toMatchObject({
    pool: { free_credits: credits((parseCredits(pool.free_credits) ?? 0n) - cost) },
    key: { month_spent_credits: credits(cost) },
  });
});

test("a client that hangs up stops the provider, and pays once for the part that was produced", async () => {
  const { secret, keyId } = await split.keyWith({});
  const gate = new Gate();
  const events = nativeEvents({ text: ["Hello"], usage: { input: 12, output: 500 } });
  const writes = [...events.slice(0, 3), gate, ...events.slice(3)];
  split.provider.play({ ...nativeStream(), writes });
  const next = split.provider.received();
  const leaving = new AbortController();
  const options = { key: secret, signal: leaving.signal };
  const response = await post(split, "native", { stream: true }, options);
  let seen = "";
  for await (const bytes of response.body ?? []) {
    seen += Buffer.from(bytes).toString();
    if (seen.includes("Hello")) break;
  }
  leaving.abort();
  expect((await (await next).over).by).toBe("client");
  const { core, call } = split.gateway.admin;
  const charges = async () => {
    const { accountId } = split.gateway;
    const { charges } = await core.billing.listCharges({ accountId, filter: { keyId } }, call);
    return charges.map(({ usage, outcome }) => ({ usage, outcome }));
  };
  await expect
    .poll(charges)
    .toMatchObject([{ usage: { input: 12 }, outcome: Outcome.CLIENT_LEFT }]);
  const [charge] = await charges();
  expect(charge?.usage?.output).toBeGreaterThan(0);
  expect(charge?.usage?.output).toBeLessThan(500);
});

describe("a body", () => {
  const image = {
    type: "image",
    source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=".repeat(87_000) },
  };

  test("of 20 MB of images reaches the provider, and an answer of 5 MB the client", async () => {
    const content = [...Array(20).fill(image), { type: "text", text: "What is this?" }];
    const messages = [{ role: "user", content }];
    const long = "long ".repeat(1024 * 1024);
    const script = nativeAnswer({ text: [long] });
    const { status, text } = await sameAnswer(
      (stage) => stage.post({ ...smallBody, messages }),
      script,
    );
    expect([status, text]).toEqual([200, expect.stringContaining(long)]);
    const [whole, other] = both.map(({ provider }) => provider.requests.at(-1));
    expect(other?.bodyText).toContain(image.source.data);
    expect(other?.bodyText).toBe(whole?.bodyText);
  });

  test("of 33 MiB is too large", async () => {
    const body = new Uint8Array(33 * 1024 * 1024).fill(0x20);
    expect((await sameAnswer((stage) => stage.post(body))).status).toBe(413);
  });
});

test("the address of a core is not shown to strangers", async () => {
  const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  const response = await fetch(split.gateway.address + path, { method: "POST" });
  const { message } = Object(await response.json());
  expect([response.status, message]).toEqual([
    501,
    expect.stringContaining("the gRPC port of a core"),
  ]);
  expect(message).not.toContain(split.gateway.grpcAddress);
});
