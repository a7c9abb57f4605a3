// One answer has one charge: however it is cut into reads, streamed or in one piece, in either
// format, and whenever its client leaves.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { costMicro } from "../../src/base/cost.ts";
import type { Payer } from "../../src/billing/admission.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { progressOf } from "../../src/formats/events.ts";
import * as native from "../../src/formats/native/native.ts";
import { freshInference, silence, type TestInference } from "../support/inference.ts";
import type { Script } from "../support/provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
} from "../support/provider-answers.ts";

let gateway: TestInference;
let payer: Payer;
beforeAll(async () => {
  gateway = await freshInference();
  payer = await gateway.payer(1_000_000_000_000n);
});
afterAll(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
  await gateway.close();
});

const tokens = fc.integer({ min: 1, max: 400 });
const pieces = fc.array(fc.string({ minLength: 1, maxLength: 60 }), { minLength: 1, maxLength: 6 });
const anyContent: fc.Arbitrary<AnswerContent> = fc
  .record({
    text: pieces,
    thinking: fc.option(fc.record({ pieces, signature: fc.constant("c2ln") })),
    noUsage: fc.boolean(),
    input: tokens,
    output: tokens,
    cacheRead: tokens,
    cacheWrite: tokens,
  })
  .map(({ text, thinking, noUsage, ...usage }) => ({
    text,
    noUsage,
    usage,
    ...(thinking && { thinking }),
  }));
const anyCuts = fc.array(fc.nat(), { maxLength: 6 });
const anyGrant = fc.constantFrom(1, 20, 100, 4_000);

function textOf({ writes = [] }: Script): string {
  return writes.filter((one) => typeof one === "string").join("");
}

const forms: Readonly<Record<string, (content: AnswerContent) => Event[]>> = {
  "native, streamed": (content) => {
    const decoder = native.createEventDecoder();
    return [...decoder.push(Buffer.from(textOf(nativeStream(content)))), ...decoder.end()];
  },
  "native, plain": (content) => native.decodeAnswer(JSON.parse(textOf(nativeAnswer(content)))),
  "chat, streamed": (content) => {
    const decoder = chat.createEventDecoder();
    return [...decoder.push(Buffer.from(textOf(chatStream(content)))), ...decoder.end()];
  },
  "chat, plain": (content) => chat.decodeAnswer(JSON.parse(textOf(chatAnswer(content)))),
};

function cutInto(events: readonly Event[], cuts: readonly number[]): Event[][] {
  const places = [0, ...cuts.map((cut) => cut % (events.length + 1)), events.length];
  places.sort((one, other) => one - other);
  return places
    .slice(1)
    .map((to, index) => events.slice(places[index], to))
    .filter((read) => read.length > 0);
}

async function run(reads: readonly Event[][], maxTokens: number) {
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield* reads;
  });
  const { seen, receipt, failure } = await gateway.collect(gateway.generate(payer, { maxTokens }));
  expect(failure).toBeUndefined();
  const events = seen.flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : []));
  const last = events.findLast(({ kind }) => kind.case === "messageDelta")?.kind;
  return { receipt, delta: last?.case === "messageDelta" ? last.value : undefined };
}

function billOf(receipt: Receipt | undefined) {
  const {
    usage,
    chargedMicrocredits: amountMicrocredits,
    overrunMicrocredits,
    outcome,
  } = receipt ?? {};
  return { usage, amountMicrocredits, overrunMicrocredits, outcome };
}

test("an answer has one charge within hold and grant, and shows it, in any reads, form and format", async () => {
  await fc.assert(
    fc.asyncProperty(anyContent, anyCuts, anyGrant, async (content, cuts, maxTokens) => {
      const bills: unknown[] = [];
      for (const decode of Object.values(forms)) {
        const events = decode(content);
        const [whole, cut] = [[events], cutInto(events, cuts)];
        for (const reads of [whole, cut]) {
          const { receipt, delta } = await run(reads, maxTokens);
          bills.push(billOf(receipt));
          if (!receipt?.usage || !receipt.price) throw new Error("no receipt");
          const { usage, price } = receipt;
          expect(receipt.chargedMicrocredits).toBe(costMicro(price, usage));
          expect(receipt.chargedMicrocredits).toBeLessThanOrEqual(receipt.holdMicrocredits);
          expect(usage.output + usage.thinking).toBeLessThanOrEqual(maxTokens);
          expect(delta?.cost).toMatchObject({
            requestId: receipt.requestId,
            chargedMicrocredits: receipt.chargedMicrocredits,
          });
          expect(delta?.usage?.outputTokens).toBe(usage.output + usage.thinking);
        }
      }
      // Cache writes are 5-minute ones in both formats; a format without a category shows none.
      expect(bills.slice(0, 4)).toEqual(Array(4).fill(bills[0]));
      expect(bills.slice(4)).toEqual(Array(4).fill(bills[4]));
    }),
    { numRuns: 40 },
  );
});

test("the phase in which the client left decides the charge, in any reads and with any later events", async () => {
  const moment = fc.nat({ max: 40 });
  await fc.assert(
    fc.asyncProperty(anyContent, anyCuts, moment, async (content, cuts, place) => {
      for (const form of ["native, streamed", "chat, streamed"]) {
        const events = forms[form]?.(content) ?? [];
        const at = place % events.length;
        const [before, after] = [events.slice(0, at), events.slice(at)];
        const bills: unknown[] = [];
        for (const [reads, later] of [
          [[before], []],
          [cutInto(before, cuts), []],
          [cutInto(before, cuts), cutInto(after, cuts)],
        ] as const) {
          const hangUp = new AbortController();
          gateway.plays(async function* (request) {
            request.onAccepted(true);
            for (const read of reads) if (read.length > 0) yield read;
            hangUp.abort();
            // After silence alone, the gateway would wait two seconds for the usage.
            yield* later;
            if (later.length === 0) yield await Promise.race([silence(request), failure()]);
          });
          const { admission } = await gateway.collect(
            gateway.generate(payer, { maxTokens: 4_000 }, hangUp),
          );
          const receipt = await gateway.charged(admission?.requestId ?? "");
          bills.push({ outcome: receipt.outcome, output: outputOf(receipt) });
        }
        const [first] = bills;
        const hasEnded = before.some(
          (event) =>
            event.kind.case === "messageDelta" || progressOf(event)?.stopReason !== undefined,
        );
        // Before the stop reason, later reports change only the input.
        expect(bills.slice(1)).toEqual(hasEnded ? expect.anything() : [first, first]);
        if (hasEnded) expect(bills[1]).toEqual(first);
      }
    }),
    { numRuns: 40 },
  );
});

function outputOf({ usage }: Receipt): unknown {
  return [usage?.output, usage?.thinking];
}

const failure = () => Promise.reject(new Error("the provider broke off"));

test("an answer without usage is charged by our count, and completed", async () => {
  const content: AnswerContent = { text: ["12345678"], noUsage: true };
  for (const decode of Object.values(forms)) {
    const { receipt } = await run([decode(content)], 100);
    expect(receipt).toMatchObject({ outcome: Outcome.COMPLETED, usage: { output: 2 } });
  }
});
