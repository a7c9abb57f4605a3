// Failures of a provider as clients see them: through the whole gateway, in each client format over
// each provider format. Every gateway checks at its stop that no hold is left and that the ledger
// adds up.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AttemptOutcome, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { GetReceiptResponse } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import {
  chatChunks,
  chatErrorAnswer,
  chatStream,
  errorAnswer,
  nativeEvents,
  nativeStream,
} from "../support/provider-answers.ts";

const providers = [
  { kind: "anthropic", stream: nativeStream, wire: nativeEvents, error: errorAnswer },
  { kind: "openai", stream: chatStream, wire: chatChunks, error: chatErrorAnswer },
] as const;

const content = { text: ["One ", "two ", "three"], usage: { input: 30, output: 7 } };

/** An answer as a client receives it. */
type Seen = { status: number; body: string; requestId: string };

type Client = {
  name: string;
  ask(gateway: TestGateway, stream: boolean): Promise<Seen>;
  /** The texts in a stream that mark it as complete, and as failed. */
  complete: string;
  failed: string;
};

async function post(url: string, headers: Record<string, string>, body: unknown): Promise<Seen> {
  const init = {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
  const response = await fetch(url, init);
  return {
    status: response.status,
    body: await response.text(),
    requestId: response.headers.get("x-request-id") ?? "",
  };
}

const messages = [{ role: "user", content: "Count." }];
const clients: Client[] = [
  {
    name: "native",
    ask: (gateway, stream) =>
      post(
        `${gateway.address}/v1/messages`,
        { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" },
        { model: "haiku", max_tokens: 100, stream, messages },
      ),
    complete: "event: message_stop",
    failed: "event: error",
  },
  {
    name: "chat",
    ask: (gateway, stream) =>
      post(
        `${gateway.address}/v1/chat/completions`,
        { authorization: `Bearer ${gateway.v2}` },
        { model: "haiku", max_tokens: 100, stream, messages },
      ),
    complete: "data: [DONE]",
    failed: 'data: {"error"',
  },
];

for (const { kind, stream: play, wire, error } of providers) {
  describe(`over a provider of kind ${kind}`, () => {
    let provider: FakeProvider;
    let gateway: TestGateway;
    beforeAll(async () => {
      provider = await startFakeProvider();
      const catalog = readCatalogFile(catalogFor({ real: { kind, url: provider.url } }));
      gateway = await startTestGateway({ catalog });
    });
    afterAll(async () => {
      await gateway.stop();
      await provider.stop();
    });

    /** The receipt once the request is settled. */
    async function receiptOf({
      requestId,
    }: Seen): Promise<NonNullable<GetReceiptResponse["receipt"]>> {
      for (;;) {
        const { receipt } = await gateway.admin.core.billing.getReceipt(
          { requestId, accountId: gateway.accountId },
          gateway.admin.call,
        );
        if (receipt !== undefined && receipt.outcome !== Outcome.RUNNING) return receipt;
      }
    }

    test(`receives ${kind === "anthropic" ? "version and beta flags" : "none"} of the client's headers`, async () => {
      provider.always(play(content));
      const own = { "anthropic-version": "2023-06-01", "anthropic-beta": "b-1,a-2" };
      const others = {
        "anthropic-user-profile-id": "profile",
        "anthropic-workspace-id": "workspace",
        "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-newest": "1",
      };
      const headers = { "x-api-key": gateway.v1, ...own, ...others };
      const { status } = await post(`${gateway.address}/v1/messages`, headers, {
        model: "haiku",
        max_tokens: 100,
        messages,
      });
      expect(status).toBe(200);
      const heard = Object.entries(provider.requests.at(-1)?.headers ?? {}).filter(([name]) =>
        name.startsWith("anthropic-"),
      );
      expect(Object.fromEntries(heard)).toEqual(kind === "anthropic" ? own : {});
    });

    for (const client of clients) {
      describe(`a ${client.name} client`, () => {
        test("receives the end of a complete stream once, and pays the reported usage", async () => {
          provider.always(play(content));
          const seen = await client.ask(gateway, true);
          expect([seen.status, seen.body.split(client.complete).length]).toEqual([200, 2]);
          const receipt = await receiptOf(seen);
          expect(receipt).toMatchObject({
            outcome: Outcome.COMPLETED,
            usage: { input: 30, output: 7 },
          });
          expect(receipt.attempts).toMatchObject([
            { provider: "real", outcome: AttemptOutcome.DELIVERED, status: 200 },
          ]);
          expect(receipt.attempts[0]?.firstEventAfter).toBeDefined();
        });

        test("receives an error and no end when the stream is reset after event k, and pays for the content it received, for every k", async () => {
          const events = wire(content);
          const isComplete = (k: number) =>
            k >= (kind === "openai" ? events.length - 1 : events.length);
          for (let k = 0; !isComplete(k); k++) {
            // Each k uses a new provider, without earlier failures.
            gateway.reload(
              readCatalogFile(
                catalogFor({ real: { kind, url: provider.url, more: `queue: ${100 + k}` } }),
              ),
            );
            provider.always(play({}, { writes: events.slice(0, k), end: "reset" }));
            const seen = await client.ask(gateway, true);
            expect([k, seen.body.includes(client.complete)]).toEqual([k, false]);
            if (seen.status === 200)
              expect([k, seen.body.split(client.failed).length]).toEqual([k, 2]);
            else expect([k, seen.status]).toEqual([k, 502]);
            const receipt = await receiptOf(seen);
            // Without content nothing is charged; received content is.
            if (k <= 1) expect([k, receipt.chargedMicrocredits]).toEqual([k, 0n]);
            if (/One |two |three/.test(seen.body))
              expect([k, receipt.chargedMicrocredits > 0n]).toEqual([k, true]);
            expect([Outcome.PROVIDER_BROKE, Outcome.PROVIDER_FAILED]).toContain(receipt.outcome);
          }
        });

        const statuses = [
          { status: 400, type: "invalid_request_error", native: 400, chat: 400 },
          { status: 401, type: "authentication_error", native: 502, chat: 502 },
          { status: 429, type: "rate_limit_error", native: 529, chat: 503 },
          { status: 500, type: "api_error", native: 502, chat: 502 },
          { status: 529, type: "overloaded_error", native: 529, chat: 503 },
        ];
        for (const { status, type, ...expected } of statuses) {
          test(`of a provider that answers ${status} receives ${client.name === "native" ? expected.native : expected.chat} and pays nothing`, async () => {
            gateway.reload(
              readCatalogFile(
                catalogFor({ real: { kind, url: provider.url, more: `queue: ${status}` } }),
              ),
            );
            // Repeats need not wait.
            const more = { headers: { "retry-after": "0" } };
            provider.always(error(status, type, "The provider says no.", more));
            for (const stream of [true, false]) {
              const seen = await client.ask(gateway, stream);
              expect(seen.status).toBe(client.name === "native" ? expected.native : expected.chat);
              expect(JSON.parse(seen.body)).toMatchObject({
                error: { message: expect.any(String) },
              });
              expect(seen.body.toLowerCase()).not.toContain("x-api-key");
              expect(await receiptOf(seen)).toMatchObject({
                chargedMicrocredits: 0n,
                outcome: Outcome.PROVIDER_FAILED,
              });
            }
          });
        }

        test("of a provider without usage pays a local count, which the receipt marks", async () => {
          gateway.reload(readCatalogFile(catalogFor({ real: { kind, url: provider.url } })));
          provider.always(play({ ...content, noUsage: true }));
          const receipt = await receiptOf(await client.ask(gateway, true));
          expect(receipt.outcome).toBe(Outcome.COMPLETED);
          expect(receipt.usage?.input).toBeGreaterThan(0);
          expect(receipt.usage?.output).toBeGreaterThan(0);
          expect(receipt.chargedMicrocredits).toBeGreaterThan(0n);
        });
      });
    }
  });
}

describe.each(["anthropic", "openai"] as const)(
  "two gateways, one behind the other as a provider of kind %s",
  (kind) => {
    let back: TestGateway;
    let front: TestGateway;
    beforeAll(async () => {
      back = await startTestGateway();
      const provider = { kind, url: back.address, more: "credential_env: BACK_KEY" };
      const routes = "[[{ provider: back, model: haiku }]]";
      front = await startTestGateway({
        catalog: readCatalogFile(catalogFor({ back: provider }, routes)),
        env: { BACK_KEY: back.v2 },
      });
    });
    afterAll(async () => {
      await front.stop();
      await back.stop();
    });

    for (const client of clients) {
      for (const stream of [true, false]) {
        test(`bill the same tokens on both, for a ${client.name} client that ${stream ? "streams" : "does not stream"}`, async () => {
          const seen = await client.ask(front, stream);
          expect(seen.status).toBe(200);
          const newest = async ({ admin, accountId }: TestGateway) => {
            const { charges } = await admin.core.billing.listCharges(
              { accountId, pageSize: 1 },
              admin.call,
            );
            return charges[0];
          };
          const [behind, before] = [await newest(back), await newest(front)];
          expect(before?.requestId).toBe(seen.requestId);
          expect(before?.usage).toEqual(behind?.usage);
          expect(before?.chargedMicrocredits).toBe(behind?.chargedMicrocredits);
          expect(before?.usage?.output).toBeGreaterThan(0);
        });
      }
    }

    test("an unknown key of the front gateway never reaches the one behind it", async () => {
      const { status } = await post(
        `${front.address}/v1/messages`,
        { "x-api-key": back.v1, "anthropic-version": "2023-06-01" },
        { model: "haiku", max_tokens: 10, messages },
      );
      expect(status).toBe(401);
    });
  },
);
