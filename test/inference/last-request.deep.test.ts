// A budget for ten requests serves ten, wherever the count of their input comes from, at one
// process and at three.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { JsonObject } from "@bufbuild/protobuf";
import { countTokens } from "gpt-tokenizer";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { catalogFor } from "../support/catalog.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, haiku, numberIn, startCrashCluster } from "../support/crash-cluster.ts";
import type { ReceivedRequest, Script } from "../support/provider.ts";
import { chatStream, nativeStream } from "../support/provider-answers.ts";

let cluster: CrashCluster;
beforeAll(async () => {
  cluster = await startCrashCluster();
});
afterAll(() => cluster.stop());

const prose = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. ";
const code = "  if (value === undefined) {\n    return await read(value, { limit: 100 });\n  }\n";
const textOf = (number: number) => `number ${number} ${(number % 2 ? prose : code).repeat(60)}`;

/** Number of the request → its input tokens. */
type Count = (number: number) => number;

const byBytes: Count = (number) => Math.round(textOf(number).length / 4.3);
const byTokenizer: Count = (number) => countTokens(textOf(number)) + 7;

const cases: {
  name: string;
  kind: "anthropic" | "openai";
  count: Count;
  /** The answer to a request for a count. */
  counted?: (request: ReceivedRequest) => Script;
}[] = [
  {
    name: "that counts",
    kind: "anthropic",
    count: byBytes,
    counted: (request) => ({
      headers: { "content-type": "application/json" },
      writes: [JSON.stringify({ input_tokens: byBytes(numberIn(request)) })],
    }),
  },
  {
    name: "that counts two percent too many",
    kind: "anthropic",
    count: byBytes,
    counted: (request) => ({
      headers: { "content-type": "application/json" },
      writes: [JSON.stringify({ input_tokens: Math.ceil(byBytes(numberIn(request)) * 1.02) })],
    }),
  },
  {
    name: "that cannot count",
    kind: "anthropic",
    count: byBytes,
    counted: () => ({ status: 404 }),
  },
  { name: "with a tokenizer of its own", kind: "openai", count: byTokenizer },
];

const ten = Array.from({ length: 10 }, (_, index) => index);

for (const { name, kind, count, counted } of cases) {
  for (const processes of [1, 3]) {
    describe(`with a provider ${name}, at ${processes} processes`, () => {
      let gateways: ChildGateway[];
      beforeAll(async () => {
        const catalog = join(cluster.catalogPath, "../provider.yaml");
        await writeFile(catalog, catalogFor({ real: { kind, url: cluster.provider.url } }));
        gateways = await Promise.all(
          Array.from({ length: processes }, () => cluster.start({ CONFIG: catalog })),
        );
      });
      afterAll(async () => {
        for (const gateway of gateways) await gateway.end("SIGTERM");
        expect(await cluster.ledger.store.verifyLedger()).toEqual([]);
      });

      for (const maxTokens of [300, 3_000]) {
        const usageOf = (number: number) => ({ input: count(number), output: maxTokens });
        const costOf = (number: number) =>
          BigInt(count(number)) * haiku.input + BigInt(maxTokens) * haiku.output;

        /** A new key with the credits for ten requests. `send` sends one of them. */
        async function startBudget(of: "pool" | "cap" = "pool") {
          const funds = ten.reduce((sum, number) => sum + costOf(number), 0n);
          const { payer, secret } = await (of === "pool"
            ? cluster.key(funds)
            : cluster.key(funds * 10n, { cap: funds }));
          cluster.provider.always((request) => {
            if (request.path.includes("count_tokens") && counted) return counted(request);
            const usage = usageOf(numberIn(request));
            const answer = { text: ["an ", "answer"], usage, stopReason: "max_tokens" };
            return kind === "openai" ? chatStream(answer) : nativeStream(answer);
          });
          const send = (number: number) =>
            cluster.send(gatewayOf(gateways, number), secret, bodyOf(number, maxTokens));
          return { payer, send };
        }

        test(`ten requests for ${maxTokens} tokens are served one by one, exactly, and no eleventh`, async () => {
          const { payer, send } = await startBudget();
          for (const number of ten) {
            const seen = await send(number);
            expect(seen).toMatchObject({ status: 200, complete: true });
            expect(await cluster.chargeOf(seen.requestId)).toMatchObject({
              outcome: Outcome.COMPLETED,
              usage: usageOf(number),
              chargedMicrocredits: costOf(number),
              overrunMicrocredits: 0n,
            });
          }
          expect(await cluster.ledger.pool(payer)).toEqual({ posted: 0n, held: 0n });
          expect((await send(0)).status).toBe(402);
        });

        test(`a cap for ten requests for ${maxTokens} tokens serves ten, and no eleventh`, async () => {
          const { payer, send } = await startBudget("cap");
          for (const number of ten) {
            const seen = await send(number);
            expect(seen).toMatchObject({ status: 200, complete: true });
            expect(await cluster.chargeOf(seen.requestId)).toMatchObject({
              chargedMicrocredits: costOf(number),
              overrunMicrocredits: 0n,
            });
          }
          expect((await cluster.ledger.pool(payer)).held).toBe(0n);
          expect(await send(0)).toMatchObject({
            status: 402,
            text: expect.stringContaining("monthly credit cap"),
          });
        });

        test(`ten requests for ${maxTokens} tokens are served at once, without an overdraft`, async () => {
          const { payer, send } = await startBudget();
          for (const seen of await Promise.all(ten.map(send)))
            expect(seen).toMatchObject({ status: 200, complete: true });
          const { posted, held } = await cluster.ledger.pool(payer);
          expect(held).toBe(0n);
          expect(posted).toBeGreaterThanOrEqual(0n);
        });
      }
    });
  }
}

function gatewayOf(gateways: readonly ChildGateway[], number: number): ChildGateway {
  const gateway = gateways[number % gateways.length];
  if (!gateway) throw new Error("no gateway");
  return gateway;
}

function bodyOf(number: number, maxTokens: number): JsonObject {
  return { max_tokens: maxTokens, messages: [{ role: "user", content: textOf(number) }] };
}
