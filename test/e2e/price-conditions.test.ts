// Prices under conditions over HTTP, from the request to the receipt: steps by the length of the
// prompt, and what a provider says that it applied, in each format that says so.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, Gate, type Script, startFakeProvider } from "../support/provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeEvents,
  nativeStream,
  responsesAnswer,
  responsesStream,
} from "../support/provider-answers.ts";

/** A file has at most 32 combinations. */
const whenOf = (format: Format) =>
  [
    ...["prompt_above: 200000, multiply: 2", "tier: flex, multiply: 0.5"],
    ...(format === "native"
      ? ["speed: fast, multiply: 6", "geo: us, multiply: 1.1", "geo: eu, multiply: 3"]
      : ["tier: priority, multiply: 2.5"]),
  ]
    .map((one) => `{ ${one} }`)
    .join(", ");

const kinds = { native: "anthropic", chat: "openai", responses: "openai" } as const;
type Format = keyof typeof kinds;
const formats = ["native", "chat", "responses"] as const;
const answers = {
  native: [nativeStream, nativeAnswer],
  chat: [chatStream, chatAnswer],
  responses: [responsesStream, responsesAnswer],
} as const;

let provider: FakeProvider;
let gateway: TestGateway;
beforeAll(async () => {
  provider = await startFakeProvider();
  gateway = await startTestGateway({ catalog: catalogOf("native") });
  const { core, call } = gateway.admin;
  await core.billing.createTransfer(
    {
      ...{ accountId: gateway.accountId, family: Family.V1, kind: TransferKind.BONUS },
      ...{ amountMicrocredits: 10n ** 11n, idempotencyKey: "much", reason: "for the test" },
    },
    call,
  );
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

/** Opus costs 3.50 and 17.50 USD a million, and takes a million tokens. */
function catalogOf(format: Format, prices = format) {
  const { url } = provider;
  const real = {
    kind: kinds[format],
    url,
    ...(format === "responses" && { more: "api: responses" }),
  };
  const text = catalogFor({ real });
  return readCatalogFile(
    text.replace(/(price: \{ input: [\d.]+, output: [\d.]+) \}/, `$1, when: [${whenOf(prices)}] }`),
  );
}

type Asked = { readonly format: Format; readonly stream?: boolean; readonly more?: JsonObject };

/** Asks in the format of the provider. */
function ask({ format, stream = false, more = {} }: Asked, text = "Hello") {
  const messages = [{ role: "user", content: text }];
  const path = { native: "messages", chat: "chat/completions", responses: "responses" }[format];
  const members = format === "responses" ? { input: text } : { max_tokens: 20, messages };
  return fetch(`${gateway.address}/v1/${path}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${gateway.v1}`,
      ...(format === "native" && { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" }),
    },
    body: JSON.stringify({ model: "model-opus-4.6", stream, ...members, ...more }),
  });
}

/** The receipt of an answer, as its client reads it. */
async function receiptOf(answer: Response) {
  const id = answer.headers.get("x-request-id") ?? "";
  const headers = { authorization: `Bearer ${gateway.v1}` };
  for (;;) {
    const response = await fetch(`${gateway.address}/v1/receipts/${id}`, { headers });
    const receipt = Object(await response.json());
    if (receipt.state !== "running" && receipt.charge_credits) return receipt;
  }
}

async function charged(asked: Asked, content: AnswerContent, text?: string) {
  gateway.reload(catalogOf(asked.format));
  const [stream, plain] = answers[asked.format];
  provider.always((request) => (request.body.stream === true ? stream : plain)(content));
  const answer = await ask(asked, text);
  expect(answer.status, await answer.clone().text()).toBe(200);
  await answer.text();
  return receiptOf(answer);
}

/** In ten-thousandths of the plain price, rounded up once to a micro-credit. */
function creditsOf({ input = 10, cacheRead = 0, output = 5 }, factor: bigint) {
  const nano = BigInt(input) * 700_000n + BigInt(cacheRead) * 70_000n + BigInt(output) * 3_500_000n;
  const micro = (nano * factor + 9_999_999n) / 10_000_000n;
  return Number(micro) / 1_000_000;
}

for (const format of formats)
  for (const stream of [true, false])
    describe(`with a provider of ${format}, ${stream ? "streamed" : "whole"}`, () => {
      for (const [prompt, factor, note] of [
        [199_999, 10_000n, null],
        [200_000, 10_000n, null],
        [200_001, 20_000n, "above 200,000 tokens of prompt"],
      ] as const)
        test(`a prompt of ${prompt} tokens is charged as a whole at one step`, async () => {
          const usage = { input: prompt - 40_000, cacheRead: 40_000, output: 5 };
          const receipt = await charged(
            { format, stream },
            { text: ["x"], usage },
            "ab ".repeat(150_000),
          );
          expect(receipt).toMatchObject({ price_note: note });
          expect(Number(receipt.charge_credits)).toBe(creditsOf(usage, factor));
        });

      const tables: Record<
        Format,
        [JsonObject, AnswerContent["applied"], bigint, string | null][]
      > = {
        native: [
          [{}, { speed: "fast" }, 10_000n, null],
          [{}, { geo: "us" }, 10_000n, null],
          [{}, { tier: "priority" }, 10_000n, null],
          [{}, { tier: "flex" }, 5_000n, "tier flex"],
          [{ speed: "fast" }, { speed: "fast" }, 60_000n, "fast"],
          [{ speed: "fast" }, {}, 60_000n, "fast"],
          [{ speed: "fast" }, { speed: "standard" }, 10_000n, null],
          [{ inference_geo: "us" }, { geo: "us" }, 11_000n, "geography us"],
          [{ inference_geo: "us" }, { geo: "global" }, 10_000n, null],
          [{ inference_geo: "us" }, { geo: "eu" }, 11_000n, "geography us"],
          [{ inference_geo: "eu" }, { geo: "us" }, 11_000n, "geography us"],
          [
            { speed: "fast", inference_geo: "us" },
            { speed: "standard", geo: "us" },
            11_000n,
            "geography us",
          ],
          [{ speed: "fast", inference_geo: "us" }, { geo: "not_available" }, 60_000n, "fast"],
        ],
        chat: [
          [{}, { tier: "priority" }, 10_000n, null],
          [{}, { tier: "flex" }, 5_000n, "tier flex"],
          [{ service_tier: "priority" }, { tier: "priority" }, 25_000n, "tier priority"],
          [{ service_tier: "priority" }, {}, 25_000n, "tier priority"],
          [{ service_tier: "priority" }, { tier: "default" }, 10_000n, null],
          [{ service_tier: "priority" }, { tier: "flex" }, 5_000n, "tier flex"],
          [{ service_tier: "flex" }, { tier: "default" }, 5_000n, "tier flex"],
          [{ service_tier: "flex" }, { tier: "priority" }, 5_000n, "tier flex"],
        ],
        responses: [],
      };
      tables.responses = tables.chat;
      for (const [more, applied, factor, note] of tables[format])
        test(`asked for ${JSON.stringify(more)}, and applied ${JSON.stringify(applied)}: ${note ?? "plain"}`, async () => {
          const receipt = await charged(
            { format, stream, more },
            { text: ["x"], ...(applied && { applied }) },
          );
          expect(receipt.price_note).toBe(note);
          expect(Number(receipt.charge_credits)).toBe(creditsOf({}, factor));
        });
    });

test("what a format cannot ask a provider for is left out, and not charged", async () => {
  gateway.reload(catalogOf("chat", "native"));
  provider.always(chatAnswer({ text: ["x"] }));
  const answer = await ask({ format: "native", more: { speed: "fast", inference_geo: "us" } });
  expect(answer.status).toBe(200);
  await answer.text();
  const receipt = await receiptOf(answer);
  expect(receipt.price_note).toBeNull();
  expect(Number(receipt.charge_credits)).toBe(creditsOf({}, 10_000n));
  expect(JSON.stringify(provider.requests.at(-1)?.body)).not.toContain("fast");
});

test("a condition without a price is refused by its name, before any provider is called", async () => {
  gateway.reload(catalogOf("native"));
  const before = provider.requests.length;
  for (const [format, more] of [
    ["native", { speed: "faster" }],
    ["native", { inference_geo: "mars" }],
    ["chat", { service_tier: "scale" }],
    ["responses", { service_tier: "scale" }],
  ] as const) {
    const answer = await ask({ format, more });
    expect(answer.status).toBe(400);
    expect(await answer.text()).toMatch(/speed|inference_geo|service_tier/);
  }
  expect(provider.requests).toHaveLength(before);
});

test("a cheaper speed is charged by the version of the list that the hold had", async () => {
  gateway.reload(catalogOf("native"));
  const { core, call } = gateway.admin;
  const reason = "agreed with Acme";
  const { priceList } = await core.billing.createPriceList(
    { name: "Acme", discountBp: 1_000, reason },
    call,
  );
  const { priceListId = "" } = priceList ?? {};
  const { accountId } = gateway;
  await core.billing.setAccountPriceList({ accountId, priceListId, reason }, call);
  const content = { text: ["x"], applied: { speed: "standard" } };
  const asked = { format: "native", stream: true, more: { speed: "fast" } } as const;
  const run = async (script: Script) => {
    provider.always(script);
    return ask(asked);
  };
  await expect
    .poll(async () => {
      const answer = await run(nativeStream(content));
      await answer.text();
      return (await receiptOf(answer)).price_note;
    })
    .toBe("list Acme 1");
  const gate = new Gate();
  const [start = "", ...rest] = nativeEvents(content);
  const answer = await run(nativeStream(content, { writes: [start, gate, ...rest] }));
  await gate.reached;
  await core.billing.createPriceListVersion(
    { priceListId, after: 1, discountBp: 4_000, reason },
    call,
  );
  await expect
    .poll(async () => {
      const later = await run(nativeStream(content));
      await later.text();
      return (await receiptOf(later)).price_note;
    })
    .toBe("list Acme 2");
  gate.open();
  await answer.text();
  const receipt = await receiptOf(answer);
  expect(receipt.price_note).toBe("list Acme 1");
  expect(Number(receipt.charge_credits)).toBe(creditsOf({}, 9_000n));
});
