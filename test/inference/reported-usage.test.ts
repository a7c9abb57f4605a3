// Invalid usage reports of providers, from the wire to the charge. The rule: an invalid number
// counts as a missing report, missing usage is counted, and no charge exceeds its hold.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { sseEvent } from "../support/provider-answers.ts";

const haiku = { input: 140n, output: 700n };

let provider: FakeProvider;
let gateway: TestGateway;
beforeAll(async () => {
  provider = await startFakeProvider();
  const kinds = {
    native: { kind: "anthropic", url: provider.url },
    chat: { kind: "openai", url: provider.url },
  } as const;
  // Haiku is routed to the native provider, the other models to the chat provider.
  const text = catalogFor(kinds).replace(
    /(id: model-(?:opus|sonnet).*routes: \[)\[\{ provider: native[^\]]*\], /g,
    "$1",
  );
  gateway = await startTestGateway({ catalog: readCatalogFile(text) });
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

/** Usage as JSON text, which can hold numbers that JavaScript cannot. */
type ReportText = { start: string; end: string };

function nativeScript({ start, end }: ReportText) {
  const message = {
    id: "m",
    type: "message",
    role: "assistant",
    model: "x",
    content: [],
    stop_reason: null,
    usage: "START",
  };
  const delta = { delta: { stop_reason: "end_turn", stop_sequence: null }, usage: "END" };
  const text = [
    sseEvent("message_start", { message }),
    sseEvent("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
    sseEvent("content_block_delta", {
      index: 0,
      delta: { type: "text_delta", text: "x".repeat(80) },
    }),
    sseEvent("content_block_stop", { index: 0 }),
    sseEvent("message_delta", delta),
    sseEvent("message_stop"),
  ].join("");
  const headers = { "content-type": "text/event-stream" };
  return { headers, writes: [text.replace('"START"', start).replace('"END"', end)] };
}

async function charge(
  model: string,
  payer = { accountId: gateway.accountId, secret: gateway.v1 },
): Promise<{ status: number; text: string; receipt: Receipt | undefined }> {
  const body: JsonObject = {
    model,
    max_tokens: 100,
    stream: true,
    messages: [{ role: "user", content: "Hello" }],
  };
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": payer.secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  const requestId = answer.headers.get("request-id") ?? "";
  const { core, call } = gateway.admin;
  // A failed answer is charged after its error event.
  for (;;) {
    const { receipt } = await core.billing.getReceipt(
      { requestId, accountId: payer.accountId },
      call,
    );
    if (receipt?.settledAt) return { status: answer.status, text, receipt };
  }
}

const reported = '{"input_tokens":10,"output_tokens":1}';
const counted = { input: expect.any(Number), output: 20 };
const cases: { name: string; start: string; end: string; usage: object; basis: Basis }[] = [
  {
    name: "as it should",
    start: reported,
    end: '{"output_tokens":30}',
    usage: { input: 10, output: 30 },
    basis: Basis.REPORTED,
  },
  { name: "nothing", start: "{}", end: "{}", usage: counted, basis: Basis.COUNTED },
  { name: "null", start: "null", end: "null", usage: counted, basis: Basis.COUNTED },
  {
    name: "negative output",
    start: reported,
    end: '{"output_tokens":-30}',
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "negative input",
    start: '{"input_tokens":-10,"output_tokens":1}',
    end: '{"output_tokens":30}',
    usage: { input: expect.any(Number), output: 30 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "half a token",
    start: reported,
    end: '{"output_tokens":30.5}',
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "a number in quotes",
    start: reported,
    end: '{"output_tokens":"30"}',
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "a number out of range",
    start: reported,
    end: '{"output_tokens":1e999}',
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "a list",
    start: reported,
    end: '{"output_tokens":[30]}',
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
  {
    name: "less than before",
    start: '{"input_tokens":500,"output_tokens":40}',
    end: '{"input_tokens":12,"output_tokens":30}',
    usage: { input: 12, output: 30 },
    basis: Basis.REPORTED,
  },
  {
    name: "its usage in message_start only",
    start: '{"input_tokens":10,"output_tokens":1}',
    end: "{}",
    usage: { input: 10, output: 20 },
    basis: Basis.PARTLY_COUNTED,
  },
];
for (const { name, start, end, usage, basis } of cases) {
  test(`an answer whose provider reports ${name} is charged by the rule`, async () => {
    provider.play(nativeScript({ start, end }));
    const { status, text, receipt } = await charge("haiku");
    expect(status).toBe(200);
    expect(text).toContain("message_stop");
    expect(receipt).toMatchObject({ usage, basis });
    const input = BigInt(receipt?.usage?.input ?? 0);
    expect(input).toBeGreaterThan(0n);
    expect(receipt?.chargedMicrocredits).toBe(
      input * haiku.input + BigInt(receipt?.usage?.output ?? 0) * haiku.output,
    );
  });
}

test("output beyond the grant is not charged, and the receipt shows it as overrun", async () => {
  provider.play(nativeScript({ start: reported, end: '{"output_tokens":100000}' }));
  const { receipt, text } = await charge("haiku");
  expect(receipt).toMatchObject({
    usage: { input: 10, output: 100 },
    reportedUsage: { input: 10, output: 100_000 },
    grantedOutputTokens: 100,
    chargedMicrocredits: 10n * haiku.input + 100n * haiku.output,
    overrunMicrocredits: 99_900n * haiku.output,
  });
  // The client is shown the tokens that it is charged.
  expect(text).toContain('"output_tokens":100}');
});

test("input beyond the model's context window is charged as the window", async () => {
  provider.play(
    nativeScript({ start: '{"input_tokens":4000000000,"output_tokens":1}', end: reported }),
  );
  provider.play(
    nativeScript({
      start: '{"input_tokens":4000000000,"output_tokens":1}',
      end: '{"output_tokens":30}',
    }),
  );
  expect((await charge("haiku")).receipt?.usage).toMatchObject({ input: 10 });
  const { status, receipt } = await charge("haiku");
  expect(status).toBe(200);
  expect(receipt?.usage).toMatchObject({ input: 200_000, output: 30 });
});

test("invalid JSON ends the answer with an error, and the delivered part is charged", async () => {
  provider.play(nativeScript({ start: reported, end: '{"output_tokens":NaN}' }));
  const { text, receipt } = await charge("haiku");
  expect(text).toContain("error");
  expect(text).not.toContain("message_stop");
  expect(receipt).toMatchObject({ usage: { input: 10, output: 20 }, basis: Basis.PARTLY_COUNTED });
});

const chatCases: { name: string; usage: string; expected: object }[] = [
  {
    name: "as it should",
    usage: '{"prompt_tokens":10,"completion_tokens":30}',
    expected: { input: 10, output: 30 },
  },
  { name: "nothing", usage: "null", expected: counted },
  {
    name: "zeros",
    usage: '{"prompt_tokens":0,"completion_tokens":0}',
    expected: { input: 0, output: 20 },
  },
  {
    name: "more cache reads and writes than input",
    usage:
      '{"prompt_tokens":2168,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":2161,"cache_write_tokens":2161}}',
    expected: { input: 0, cacheRead: 2161, cacheWrite5m: 7, output: 30 },
  },
  {
    name: "negative numbers",
    usage: '{"prompt_tokens":-1,"completion_tokens":-1}',
    expected: counted,
  },
  {
    name: "more cache reads than input",
    usage:
      '{"prompt_tokens":10,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":90}}',
    expected: { input: 0, cacheRead: 10, output: 30 },
  },
  {
    name: "more reasoning than output",
    usage:
      '{"prompt_tokens":10,"completion_tokens":30,"completion_tokens_details":{"reasoning_tokens":90}}',
    expected: { input: 10, output: 0, thinking: 30 },
  },
];
for (const { name, usage, expected } of chatCases) {
  test(`an answer whose chat provider reports ${name} is charged by the rule`, async () => {
    const chunk = (members: JsonObject) =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", ...members })}\n\n`;
    const text = [
      chunk({
        choices: [
          { index: 0, delta: { role: "assistant", content: "x".repeat(80) }, finish_reason: null },
        ],
      }),
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }),
      chunk({ choices: [], usage: "USAGE" }).replace('"USAGE"', usage),
      "data: [DONE]\n\n",
    ].join("");
    provider.play({ headers: { "content-type": "text/event-stream" }, writes: [text] });
    const { status, receipt } = await charge("sonnet");
    expect(status).toBe(200);
    expect(receipt?.usage).toMatchObject(expected);
  });
}

test("the hold of the next request covers what the last prompt had, in whatever category", async () => {
  // What others had before is not known of a new account.
  const { core, call } = gateway.admin;
  const { account } = await core.billing.createAccount(
    { settings: { name: "large prompts" } },
    call,
  );
  const owner = { accountId: account?.accountId ?? "", family: Family.V1 };
  await core.billing.createTransfer(
    {
      ...{ ...owner, kind: TransferKind.BONUS, amountMicrocredits: 10n ** 10n },
      ...{ idempotencyKey: "start", reason: "a test" },
    },
    call,
  );
  const { secret } = await core.keys.createKey(
    { ...owner, settings: { name: "large prompts" } },
    call,
  );
  const payer = { accountId: owner.accountId, secret };
  const holdAfter = async (usage: JsonObject) => {
    const start = JSON.stringify({ input_tokens: 1, output_tokens: 1, ...usage });
    provider.play(nativeScript({ start, end: '{"output_tokens":1}' }));
    await charge("haiku", payer);
    provider.play(nativeScript({ start: reported, end: '{"output_tokens":1}' }));
    const { receipt } = await charge("haiku", payer);
    return receipt?.holdMicrocredits ?? 0n;
  };
  const written = (members: JsonObject) => ({
    cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0, ...members },
  });
  // The largest of the last hour counts.
  const holds = [
    await holdAfter({}),
    await holdAfter({ input_tokens: 10_001 }),
    await holdAfter({ cache_read_input_tokens: 20_000 }),
    await holdAfter({
      cache_creation_input_tokens: 30_000,
      ...written({ ephemeral_5m_input_tokens: 30_000 }),
    }),
    await holdAfter({
      cache_creation_input_tokens: 40_000,
      ...written({ ephemeral_1h_input_tokens: 40_000 }),
    }),
  ];
  const steps = holds.slice(1).map((hold, index) => hold - (holds[index] ?? 0n));
  expect(steps.slice(1)).toEqual(Array(3).fill(10_000n * haiku.input));
  expect(steps[0]).toBeGreaterThan(0n);
});
