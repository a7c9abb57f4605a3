import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { ManualClock } from "../support/clock.ts";
import { events, freshInference, silence, type TestInference } from "../support/inference.ts";
import type { RequestMembers } from "../support/requests.ts";

// haiku 4.5: 140 micro-credits per input token, 700 per output token, 14 per cache read.
const input = 140n;
const output = 700n;

let gateway: TestInference;
let payer: Payer;
beforeAll(async () => {
  gateway = await freshInference();
  payer = await gateway.payer(1_000_000_000n);
});
afterEach(async () => {
  expect(await gateway.store.verifyLedger()).toEqual([]);
});
afterAll(() => gateway.close());

const usage = { inputTokens: 11, cacheReadInputTokens: 5 };

test("a complete answer costs the final usage, and its receipt comes last", async () => {
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("Hi")];
    yield [events.close(), events.delta({ outputTokens: 9 }), events.stop()];
  });
  const { seen, receipt, shown } = await gateway.collect(gateway.generate(payer));
  expect(shown).toEqual([
    "messageStart",
    "blockStart",
    "blockDelta",
    "blockStop",
    "messageDelta",
    "messageStop",
  ]);
  expect(seen.map(({ kind }) => kind.case)).toEqual([
    "admission",
    "events",
    "events",
    "events",
    "receipt",
  ]);
  expect(receipt).toMatchObject({ outcome: Outcome.COMPLETED, basis: Basis.REPORTED });
  expect(receipt?.chargedMicrocredits).toBe(11n * input + 5n * 14n + 9n * output);
});

test("thinking is subtracted from the output once, and charged at its own price", async () => {
  gateway.plays(async function* () {
    yield [events.start(usage), events.open(), events.text("Hi"), events.close()];
    yield [events.delta({ outputTokens: 30, thinkingTokens: 20 }), events.stop()];
  });
  const { receipt } = await gateway.collect(gateway.generate(payer));
  expect(receipt?.usage).toMatchObject({ output: 10, thinking: 20 });
});

test("the end of an answer is shown only when its charge is durable", async () => {
  gateway.plays(async function* () {
    yield [
      events.start(usage),
      events.open(),
      events.text("Hi"),
      events.close(),
      events.delta({ outputTokens: 9 }),
      events.stop(),
    ];
  });
  const ends: boolean[] = [];
  for await (const { kind } of gateway.generate(payer)) {
    if (kind.case !== "events") continue;
    const isEnd = kind.value.events.some(
      (event) => event.kind.case === "messageDelta" || event.kind.case === "messageStop",
    );
    if (isEnd) expect(await countHolds()).toBe(0n);
    ends.push(isEnd);
  }
  expect(ends).toEqual([false, true]);
});

test("no message is yielded and no provider is called before the hold is durable", async () => {
  let held: bigint | undefined;
  gateway.plays(async function* () {
    held = await countHolds();
    yield [events.start(usage), events.delta({ outputTokens: 1 }), events.stop()];
  });
  const { seen } = await gateway.collect(gateway.generate(payer));
  expect(seen[0]?.kind.case).toBe("admission");
  expect(held).toBe(1n);
});

async function countHolds(): Promise<bigint | undefined> {
  const [held] = await gateway.run<{ n: bigint }>("select count(*) as n from holds");
  return held?.n;
}

test("an error of the provider before content costs nothing", async () => {
  gateway.plays(async function* () {
    yield* [];
    throw new ApiError("overloaded");
  });
  const { admission, failure } = await gateway.collect(gateway.generate(payer));
  expect(failure).toMatchObject({ reason: "overloaded" });
  expect(await gateway.charged(admission?.requestId ?? "")).toMatchObject({
    chargedMicrocredits: 0n,
    outcome: Outcome.PROVIDER_FAILED,
    basis: Basis.NONE,
  });
});

test("an answer whose provider fails after content costs its input and its content", async () => {
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    throw new ApiError("upstream_error");
  });
  const { admission, failure } = await gateway.collect(gateway.generate(payer));
  expect(failure).toMatchObject({ reason: "upstream_error" });
  const charge = await gateway.charged(admission?.requestId ?? "");
  expect(charge).toMatchObject({ outcome: Outcome.PROVIDER_BROKE, basis: Basis.PARTLY_COUNTED });
  expect(charge.chargedMicrocredits).toBe(11n * input + 5n * 14n + 2n * output);
});

test("an answer without an end is an error", async () => {
  gateway.plays(async function* () {
    yield [events.start(usage), events.open(), events.text("1234")];
  });
  const { failure, receipt } = await gateway.collect(gateway.generate(payer));
  expect(failure).toMatchObject({ reason: "upstream_error" });
  expect(receipt).toBeUndefined();
});

/** Plays a provider that begins an answer. Returns whether it was called. */
function wasCalled(): () => boolean {
  let called = false;
  gateway.plays(async function* () {
    called = true;
    yield [events.start(usage)];
  });
  return () => called;
}

test("concurrent reads get the messages in order", async () => {
  gateway.plays(async function* () {
    yield [events.start(usage), events.open(), events.text("Hi")];
    yield [events.close(), events.delta({ outputTokens: 9 }), events.stop()];
  });
  const iterator = gateway.generate(payer)[Symbol.asyncIterator]();
  const reads = await Promise.all(Array.from({ length: 6 }, () => iterator.next()));
  expect(reads.map(({ value }) => value?.kind.case)).toEqual([
    "admission",
    "events",
    "events",
    "events",
    "receipt",
    undefined,
  ]);
});

test("usage that the provider does not report is counted, and the receipt has the basis COUNTED", async () => {
  gateway.plays(async function* () {
    yield [
      events.start(),
      events.open(),
      events.text("12345678"),
      events.close(),
      events.delta(),
      events.stop(),
    ];
  });
  const { receipt, seen } = await gateway.collect(gateway.generate(payer));
  expect(receipt).toMatchObject({ basis: Basis.COUNTED, usage: { output: 2 } });
  const { input } = receipt?.usage ?? {};
  expect(input).toBeGreaterThan(0);
  // The client sees the charged usage.
  const shown = seen
    .flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : []))
    .map(({ kind }) => kind);
  const delta = shown.find((kind) => kind.case === "messageDelta")?.value;
  expect(delta).toMatchObject({ usage: { inputTokens: input, outputTokens: 2 } });
});

test("zeros beside content count as a missing report", async () => {
  gateway.plays(async function* () {
    yield [
      events.start({ inputTokens: 0 }),
      events.open(),
      events.text("1234"),
      events.delta({ outputTokens: 0 }),
      events.stop(),
    ];
  });
  const { receipt } = await gateway.collect(gateway.generate(payer));
  expect(receipt).toMatchObject({ basis: Basis.COUNTED, usage: { output: 1 } });
});

test("a client that hangs up before acceptance pays nothing", async () => {
  const hangUp = new AbortController();
  gateway.plays(async function* (request) {
    hangUp.abort();
    yield await silence(request);
  });
  const { admission, failure } = await gateway.collect(gateway.generate(payer, {}, hangUp));
  expect(failure).toMatchObject({ reason: "cancelled" });
  expect(await gateway.charged(admission?.requestId ?? "")).toMatchObject({
    chargedMicrocredits: 0n,
    outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE,
  });
});

test("a client that hangs up between a failed call and the acceptance of the next pays nothing", async () => {
  const hangUp = new AbortController();
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    request.onAccepted(false);
    hangUp.abort();
    yield await silence(request);
  });
  const { admission, failure } = await gateway.collect(gateway.generate(payer, {}, hangUp));
  expect(failure).toMatchObject({ reason: "cancelled" });
  expect(await gateway.charged(admission?.requestId ?? "")).toMatchObject({
    chargedMicrocredits: 0n,
    outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE,
  });
});

test("a client that hangs up after acceptance pays the input that the provider reports right afterwards", async () => {
  const hangUp = new AbortController();
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    hangUp.abort();
    yield [events.start(usage)];
    yield await silence(request);
  });
  const { admission } = await gateway.collect(gateway.generate(payer, {}, hangUp));
  const charge = await gateway.charged(admission?.requestId ?? "");
  expect(charge).toMatchObject({
    outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT,
    basis: Basis.REPORTED,
  });
  expect(charge.chargedMicrocredits).toBe(11n * input + 5n * 14n);
});

test("a client that hangs up during content pays input and output so far, and the provider is stopped at once", async () => {
  const hangUp = new AbortController();
  let stopped = false;
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    hangUp.abort();
    stopped = request.signal.aborted;
    yield await silence(request);
  });
  const { admission } = await gateway.collect(gateway.generate(payer, {}, hangUp));
  expect(stopped).toBe(true);
  const charge = await gateway.charged(admission?.requestId ?? "");
  expect(charge.outcome).toBe(Outcome.CLIENT_LEFT);
  expect(charge.chargedMicrocredits).toBe(11n * input + 5n * 14n + 2n * output);
});

test("a reader that returns during content pays input and output so far", async () => {
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    yield await silence(request);
  });
  let requestId = "";
  for await (const { kind } of gateway.generate(payer)) {
    if (kind.case === "admission") requestId = kind.value.requestId;
    if (kind.case === "events") break;
  }
  expect((await gateway.charged(requestId)).outcome).toBe(Outcome.CLIENT_LEFT);
});

test("a key revoked during an answer ends the stream and pays input and output so far", async () => {
  const other = await gateway.payer(1_000_000_000n);
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    gateway.revoke(other.keyId);
    yield await silence(request);
  });
  const { admission, failure } = await gateway.collect(gateway.generate(other));
  expect(failure).toMatchObject({ reason: "revoked_key" });
  const charge = await gateway.charged(admission?.requestId ?? "");
  expect(charge).toMatchObject({
    outcome: Outcome.REVOKED,
    chargedMicrocredits: 11n * input + 5n * 14n + 2n * output,
  });
});

test("an answer beyond the time limit is ended and charged", async () => {
  const clock = new ManualClock();
  const hasty = await freshInference({ clock });
  const poor = await hasty.payer(1_000_000_000n);
  hasty.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(usage), events.open(), events.text("12345678")];
    void clock.advance(30 * 60_000);
    yield await silence(request);
  });
  const { admission, failure } = await hasty.collect(hasty.generate(poor));
  expect(failure).toMatchObject({ reason: "timeout" });
  expect((await hasty.charged(admission?.requestId ?? "")).outcome).toBe(Outcome.TIME_LIMIT);
  await hasty.close();
});

test("a report above the credits takes what the pool has, and the answer goes on", async () => {
  const poor = await gateway.payer(20_000_000n);
  gateway.plays(async function* () {
    yield [events.start({ inputTokens: 900_000 }), events.open(), events.text("12345678")];
    yield [events.close(), events.delta({ outputTokens: 2 }), events.stop()];
  });
  const { receipt, shown } = await gateway.collect(gateway.generate(poor));
  expect(shown.at(-1)).toBe("messageStop");
  expect(receipt).toMatchObject({
    outcome: Outcome.COMPLETED,
    holdMicrocredits: 20_000_000n,
    chargedMicrocredits: 20_000_000n,
    overrunMicrocredits: 200_000n * input + 2n * output - 20_000_000n,
  });
  expect(await gateway.pool(poor)).toEqual({ posted: 0n, held: 0n });
  // The loss is one overrun: the next request calls no provider.
  const called = wasCalled();
  const { failure } = await gateway.collect(gateway.generate(poor));
  expect([failure, called()]).toMatchObject([{ reason: "credits_exhausted" }, false]);
});

test("input above the hold that is reported with the end costs at most the hold", async () => {
  const poor = await gateway.payer(20_000_000n);
  gateway.plays(async function* () {
    yield [events.start(), events.open(), events.text("12345678")];
    yield [events.close(), events.delta({ inputTokens: 900_000, outputTokens: 2 }), events.stop()];
  });
  const { receipt, seen } = await gateway.collect(gateway.generate(poor));
  expect(
    seen.flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : [])).at(-1)?.kind.case,
  ).toBe("messageStop");
  expect(receipt).toMatchObject({
    outcome: Outcome.COMPLETED,
    basis: Basis.REPORTED,
    usage: { input: 200_000, output: 2 },
  });
  expect(receipt?.chargedMicrocredits).toBe(receipt?.holdMicrocredits);
  expect(receipt?.overrunMicrocredits).toBe(
    200_000n * input + 2n * output - (receipt?.holdMicrocredits ?? 0n),
  );
});

test("input above the hold that is reported with the end is charged if the credits cover it", async () => {
  gateway.plays(async function* () {
    yield [events.start(), events.open(), events.text("12345678")];
    yield [events.close(), events.delta({ inputTokens: 90_000, outputTokens: 2 }), events.stop()];
  });
  const { receipt } = await gateway.collect(gateway.generate(payer));
  expect(receipt).toMatchObject({
    outcome: Outcome.COMPLETED,
    chargedMicrocredits: 90_000n * input + 2n * output,
  });
});

test("a hold grows as far as the pool has credits, however the answer is cut into reads", async () => {
  const reported = { inputTokens: 5_500, outputTokens: 2 };
  const reads = [
    [events.start(reported)],
    [events.open(), events.text("12345678"), events.close()],
    [events.delta(reported), events.stop()],
  ];
  for (const answer of [reads, [reads.flat()]]) {
    const funds = input * 5_000n + output * 1_100n;
    const poor = await gateway.payer(funds);
    gateway.plays(async function* () {
      yield* answer;
    });
    const { receipt } = await gateway.collect(gateway.generate(poor, { maxTokens: 1_100 }));
    expect(receipt).toMatchObject({
      outcome: Outcome.COMPLETED,
      holdMicrocredits: funds,
      chargedMicrocredits: 5_500n * input + 2n * output,
      overrunMicrocredits: 0n,
    });
  }
});

test("an internal error before content costs nothing", async () => {
  gateway.plays(async function* () {
    yield* [];
    throw new TypeError("a bug");
  });
  const { admission } = await gateway.collect(gateway.generate(payer));
  expect(await gateway.charged(admission?.requestId ?? "")).toMatchObject({
    chargedMicrocredits: 0n,
    outcome: Outcome.GATEWAY_FAILED,
  });
});

test("if the credits cover a usual prompt of this size but not the bound, the provider's count decides", async () => {
  const text = "x".repeat(40_000);
  const poor = await gateway.payer(11_000n * input + 100n * output);
  gateway.counts(() => 9_000);
  gateway.plays(async function* () {
    yield [events.start({ inputTokens: 9_000 }), events.delta({ outputTokens: 1 }), events.stop()];
  });
  const { receipt } = await gateway.collect(
    gateway.generate(poor, {
      system: { form: 1, content: [{ kind: { case: "text", value: { text } } }] },
    }),
  );
  expect(receipt?.chargedMicrocredits).toBe(9_000n * input + output);
});

/** A request of 40,000 bytes that the provider counts at 9,000 tokens. */
const counted: RequestMembers = {
  system: {
    form: 1,
    content: [{ kind: { case: "text", value: { text: "x".repeat(40_000) } } }],
  },
};
function playsReport(inputTokens: number): void {
  gateway.plays(async function* () {
    yield [events.start({ inputTokens }), events.open(), events.text("1"), events.close()];
    yield [events.delta({ outputTokens: 100 }), events.stop()];
  });
}

test("input above the hold, but within the margin of the count, is charged up to the hold", async () => {
  gateway.counts(() => 9_000);
  const funds = 8_900n * input + 100n * output;
  for (const reported of [9_000, 9_450]) {
    const poor = await gateway.payer(funds);
    playsReport(reported);
    const { receipt } = await gateway.collect(gateway.generate(poor, counted));
    expect(receipt).toMatchObject({
      outcome: Outcome.COMPLETED,
      holdMicrocredits: funds,
      chargedMicrocredits: funds,
      overrunMicrocredits: BigInt(reported - 8_900) * input,
    });
    expect(await gateway.pool(poor)).toEqual({ posted: 0n, held: 0n });
  }
});

test("input beyond the margin of the count is charged up to what the pool has", async () => {
  gateway.counts(() => 9_000);
  const funds = 8_900n * input + 100n * output;
  const poor = await gateway.payer(funds);
  playsReport(9_600);
  const { receipt } = await gateway.collect(gateway.generate(poor, counted));
  expect(receipt).toMatchObject({
    outcome: Outcome.COMPLETED,
    chargedMicrocredits: funds,
    overrunMicrocredits: 700n * input,
  });
});

test("a request is refused if the credits do not cover its count without the margin", async () => {
  gateway.counts(() => 9_000);
  const poor = await gateway.payer(8_500n * input + 100n * output);
  const { failure } = await gateway.collect(gateway.generate(poor, counted));
  expect(failure).toMatchObject({ reason: "credits_exhausted" });
});

test("if the provider's count fails, the gateway's own decides", async () => {
  gateway.counts(() => {
    throw new Error("no answer");
  });
  const poor = await gateway.payer(9_000n * input + 100n * output);
  playsReport(9_000);
  const { receipt } = await gateway.collect(gateway.generate(poor, counted));
  expect(receipt).toMatchObject({
    chargedMicrocredits: 9_000n * input + 100n * output,
    overrunMicrocredits: 0n,
  });
});

test("credits that others hold do not fail a request whose count fits into the free ones", async () => {
  gateway.counts(() => 9_000);
  const poor = await gateway.payer(31_000n * input);
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start({ inputTokens: 9_000 })];
    yield await silence(request);
  });
  const running = gateway.generate(poor, counted)[Symbol.asyncIterator]();
  await running.next();
  playsReport(9_000);
  const { receipt } = await gateway.collect(gateway.generate(poor, counted));
  expect(receipt?.chargedMicrocredits).toBe(9_000n * input + 100n * output);
  await running.return?.();
});

test("a client that leaves at the end pays input above the hold that the last report has", async () => {
  const left = Promise.withResolvers<void>();
  gateway.plays(async function* (request) {
    request.onAccepted(true);
    yield [events.start(), events.open(), events.text("12345678")];
    yield [events.close(), events.delta()];
    await left.promise;
    yield [events.delta({ inputTokens: 90_000, outputTokens: 2 }), events.stop()];
  });
  const iterator = gateway.generate(payer)[Symbol.asyncIterator]();
  const admitted = await iterator.next();
  for (let read = 0; read < 2; read++) await iterator.next();
  const returned = iterator.return?.();
  left.resolve();
  await returned;
  const requestId =
    admitted.value?.kind.case === "admission" ? admitted.value.kind.value.requestId : "";
  expect(await gateway.charged(requestId)).toMatchObject({
    outcome: Outcome.CLIENT_LEFT,
    chargedMicrocredits: 90_000n * input + 2n * output,
    overrunMicrocredits: 0n,
  });
});

test("the admission shows the requested limit also where the model's own limit is lower", async () => {
  gateway.plays(async function* () {
    yield [events.start(usage), events.delta({ outputTokens: 1 }), events.stop()];
  });
  const rich = await gateway.payer(1_000_000_000_000n);
  const byTier = await gateway.collect(
    gateway.generate(rich, { model: "claude-haiku-9", maxTokens: 128_000 }),
  );
  expect(byTier.admission).toMatchObject({
    requestedMaxTokens: 128_000,
    grantedMaxTokens: 64_000,
  });
  const unlimited = await gateway.collect(
    gateway.generate(rich, { model: "haiku", maxTokens: undefined }),
  );
  expect(unlimited.admission).toMatchObject({
    requestedMaxTokens: 64_000,
    grantedMaxTokens: 64_000,
  });
});
