// The table "Endings and charges" of `src/billing/README.md`: every ending is run, and has the
// outcome and the charge of its row.

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { OutcomeSchema, type Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Event, EventSchema } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import type { Payer } from "../../src/billing/admission.ts";
import type { ProviderRequest } from "../../src/providers/providers.ts";
import { readSection } from "../docs/documents.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { events, freshInference, type TestInference } from "../support/inference.ts";
import { startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeStream } from "../support/provider-answers.ts";
import { openProviders } from "../support/providers.ts";
import { refuseInserts } from "../support/refused-inserts.ts";
import type { RequestMembers } from "../support/requests.ts";

let gateway: TestInference;
let payer: Payer;
/** Of the requests. The ledger has that of this machine. */
const clock = new ManualClock();
const limitMs = 30 * 60_000;
beforeAll(async () => {
  gateway = await freshInference({ clock });
  payer = await gateway.payer(1_000_000_000_000n);
});
afterAll(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
  await gateway.close();
});

const input = 140n;
const output = 700n;
// Each answer has 11 tokens of input and 9 of output. After 2 of these, most of them stop.
const usage = { inputTokens: 11 };
const begun = [events.start(usage), events.open(), events.text("12345678")];
const end = [events.close(), events.delta({ outputTokens: 9 }), events.stop()];
const complete = [...begun, ...end];

/** What each charge of the table is, for such an answer. */
const charges: Readonly<Record<string, (receipt: Receipt) => bigint>> = {
  nothing: () => 0n,
  "input only": () => 11n * input,
  "input and content": () => 11n * input + 2n * output,
  // "Hello, model" and its framing are 20 bytes.
  "input and content, counted locally": () => 5n * input + 2n * output,
  "input, and output up to the grant": () => 11n * input + 100n * output,
  "the final usage": () => 11n * input + 9n * output,
  "the last stored usage": () => 11n * input + 2n * output,
  "the hold": ({ holdMicrocredits }) => holdMicrocredits,
};

/** A provider that sends nothing more until it is stopped. */
const silence = ({ signal }: ProviderRequest) =>
  new Promise<never>((_, reject) => {
    const abort = () => reject(new DOMException("aborted", "AbortError"));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });

/** The steps of a provider: events, a failure, or an act of the outside world. */
type Step = readonly Event[] | Error | "accept" | "silence" | (() => unknown);

type Settings = {
  on?: TestInference;
  by?: Payer;
  request?: RequestMembers;
  hangUp?: AbortController;
};

/** Runs one request, and returns its charge. */
async function chargeOf(steps: readonly Step[], settings: Settings = {}): Promise<Receipt> {
  const { on = gateway, by = payer, request, hangUp } = settings;
  on.plays(async function* (ask) {
    for (const step of steps) {
      if (step === "accept") ask.onAccepted(true);
      else if (step === "silence") await silence(ask);
      else if (step instanceof Error) throw step;
      else if (typeof step === "function") await step();
      else yield [...step];
    }
  });
  const collecting = on.collect(on.generate(by, request, hangUp));
  // Without waiting for the usage of an answer that nobody reads.
  const { admission } = await passDuring(() => clock.endPause(2_000), collecting);
  return on.charged(admission?.requestId ?? "");
}

function hangUpAfter(...steps: Step[]) {
  const hangUp = new AbortController();
  return (...later: Step[]) => chargeOf([...steps, () => hangUp.abort(), ...later], { hangUp });
}

async function revokedAfter(...steps: Step[]): Promise<Receipt> {
  const by = await gateway.payer(1_000_000_000n);
  return chargeOf([...steps, () => gateway.revoke(by.keyId), "silence"], { by });
}

/** The charges of a request that reaches its time limit, and of one that is drained. */
async function limitedAfter(...steps: Step[]): Promise<Receipt[]> {
  const late = await chargeOf([...steps, () => void clock.advance(limitMs), "silence"]);
  const drain = () => void gateway.inference.cancelAll("draining");
  return [late, await chargeOf([...steps, drain, "silence"])];
}

/** The charge of an answer that ends while no charge can be written, until its minute is over. */
async function endWithoutLedger(stream: boolean): Promise<Receipt> {
  const refused = await refuseInserts(gateway.url, "charges");
  gateway.plays(async function* () {
    yield [...begun, ...end];
  });
  const idle = clock.pending;
  const collecting = gateway.collect(gateway.generate(payer, { stream }));
  // The limit of the request, and that of the wait for its charge.
  await vi.waitFor(() => expect(clock.pending).toBe(idle + 2));
  await clock.advance(60_000);
  const { admission, failure } = await collecting;
  expect(failure).toMatchObject({ reason: "billing_unavailable" });
  // The batch that was on its way, and one that was written after it.
  const before = await refused.count();
  await vi.waitFor(async () => expect(await refused.count()).toBeGreaterThan(before + 1));
  await refused.stop();
  return gateway.charged(admission?.requestId ?? "");
}

/** The charge of an answer whose first provider fails. */
async function failedOver(): Promise<Receipt> {
  const [first, second] = await Promise.all([startFakeProvider(), startFakeProvider()]);
  first.always(errorAnswer(500, "api_error", "broken"));
  second.always(nativeStream({ text: ["12345678"], usage: { input: 11, output: 9 } }));
  const providers = openProviders(
    catalogFor({
      first: { kind: "anthropic", url: first.url },
      second: { kind: "anthropic", url: second.url },
    }),
  );
  const routed = await freshInference({ providers });
  const by = await routed.payer(1_000_000_000n);
  const { receipt } = await routed.collect(routed.generate(by, { stream: true }));
  await routed.close();
  await providers.close();
  await Promise.all([first.stop(), second.stop()]);
  if (!receipt) throw new Error("no receipt");
  expect(receipt.attempts.map(({ outcome }) => outcome)).toEqual(["failed", "delivered"]);
  return receipt;
}

async function reaped(): Promise<Receipt> {
  gateway.plays(async function* (ask) {
    ask.onAccepted(true);
    yield begun;
    yield [events.text("more, which was not stored")];
    yield await silence(ask);
  });
  const hangUp = new AbortController();
  const iterator = gateway.generate(payer, {}, hangUp)[Symbol.asyncIterator]();
  const { value } = await iterator.next();
  const requestId = value?.kind.case === "admission" ? value.kind.value.requestId : "";
  await iterator.next();
  await gateway.holds.checkpoint();
  await iterator.next();
  await gateway.run(
    "update holds set deadline = now() - interval '1 second' where request_id = $1",
    [requestId],
  );
  await gateway.node.poll(gateway.holds);
  const charge = await gateway.charged(requestId);
  hangUp.abort();
  await iterator.return?.();
  return charge;
}

const aboveCredits = { inputTokens: 900_000, outputTokens: 9 };
const endAboveHold: Event[] = [events.close(), events.delta(aboveCredits), events.stop()];
const stopReason = create(EventSchema, {
  kind: { case: "progress", value: { stopReason: "end_turn" } },
});

const endings: Readonly<Record<string, () => Promise<Receipt | Receipt[]>>> = {
  "rejected before admission": async () => {
    const poor = await gateway.payer(1n);
    const { admission, failure } = await gateway.collect(gateway.generate(poor));
    expect([admission, failure]).toMatchObject([undefined, { reason: "credits_exhausted" }]);
    const rows = await gateway.run(
      "select request_id from holds where key_id = $1 union select request_id from charges where key_id = $1",
      [poor.keyId],
    );
    expect(rows).toEqual([]);
    return [];
  },
  "complete answer": () => chargeOf(["accept", complete]),
  "complete answer without a usage report": () =>
    chargeOf(["accept", [events.start(), ...begun.slice(1), events.delta(), events.stop()]]),
  "provider exceeded the granted output": () =>
    chargeOf(["accept", begun, [events.text("x".repeat(5_000))], "silence"]),
  "first provider failed, a second one delivered": failedOver,
  "no provider produced content": () =>
    chargeOf(["accept", [events.start(usage)], new ApiError("overloaded")]),
  "provider broke off after content began": () =>
    chargeOf(["accept", begun, new ApiError("upstream_error")]),
  "timeout of the provider after content began": () =>
    chargeOf(["accept", begun, new ApiError("timeout")]),
  "client hung up before acceptance": () => hangUpAfter()("silence"),
  "client hung up before content": () => hangUpAfter("accept")(complete),
  "client hung up after content began": () => hangUpAfter("accept", begun)(end),
  "client hung up after the stop reason": () => hangUpAfter("accept", begun, [stopReason])(end),
  "key revoked before acceptance": () => revokedAfter(),
  "key revoked during the answer": () => revokedAfter("accept", begun),
  "time limit or drain limit before acceptance": () => limitedAfter(),
  "time limit or drain limit during the answer": () => limitedAfter("accept", begun),
  "gateway failed before content": () => chargeOf(["accept", new TypeError("a bug")]),
  "gateway failed after content began": () => chargeOf(["accept", begun, new TypeError("a bug")]),
  "ledger unavailable at the end of a stream": () => endWithoutLedger(true),
  "ledger unavailable at the end of a plain answer": () => endWithoutLedger(false),
  "input above the credits, within the range of its count": async () => {
    gateway.counts(() => 11);
    // Less than the 11 tokens that the provider reports.
    const receipt = await chargeOf(
      ["accept", begun, [events.close(), events.delta({ outputTokens: 100 }), events.stop()]],
      { by: await gateway.payer(10n * input + 100n * output + input / 2n) },
    );
    expect(receipt.overrunMicrocredits).toBe(input / 2n);
    return receipt;
  },
  "input above the credits, reported before content": async () =>
    chargeOf(["accept", [events.start(aboveCredits), ...complete.slice(1)]], {
      by: await gateway.payer(20_000_000n),
    }),
  "input above the credits, reported after content": async () =>
    chargeOf(["accept", [events.start(), ...begun.slice(1)], endAboveHold], {
      by: await gateway.payer(20_000_000n),
    }),
  "hold cannot grow after content: no ledger": async () => {
    const resize = vi
      .spyOn(gateway.holds, "resize")
      .mockRejectedValue(new ApiError("billing_unavailable"));
    const receipt = await chargeOf(["accept", [events.start(), ...begun.slice(1)], endAboveHold]);
    expect(resize).toHaveBeenCalled();
    resize.mockRestore();
    return receipt;
  },
  "process died, or deadline passed": reaped,
};

/** The cells of the table. */
const rows = [
  ...readSection("src/billing/README.md", "## Endings and charges").matchAll(
    /^\| (.+) \| (.+) \| (.+) \|$/gm,
  ),
]
  .slice(1)
  .map(([, ending = "", outcome = "", charge = ""]) => ({ ending, outcome, charge }));

test("every ending is in the table", () => {
  expect(rows.map(({ ending }) => ending).sort()).toEqual(Object.keys(endings).sort());
  const recorded = new Set(rows.map(({ outcome }) => outcome.replaceAll("`", "")));
  const names = OutcomeSchema.values.map(({ localName }) => localName);
  expect(names.filter((name) => !recorded.has(name))).toEqual(["UNSPECIFIED"]);
});

describe("the outcome and the charge are those of the table", () => {
  for (const { ending, outcome, charge } of rows) {
    test(ending, { timeout: 30_000 }, async () => {
      const receipts = [(await endings[ending]?.()) ?? []].flat();
      if (outcome === "no hold, no charge") expect(receipts).toEqual([]);
      else expect(receipts.length).toBeGreaterThan(0);
      const amountOf = charges[charge];
      if (!amountOf) throw new Error(`no such charge: ${charge}`);
      for (const receipt of receipts) {
        expect(`\`${OutcomeSchema.value[receipt.outcome]?.localName}\``).toBe(outcome);
        expect(receipt.amountMicrocredits).toBe(amountOf(receipt));
        expect(receipt.amountMicrocredits).toBeLessThanOrEqual(receipt.holdMicrocredits);
      }
    });
  }
});
