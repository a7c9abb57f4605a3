// The bill of one request, with a ledger that answers as the test says.

import { create } from "@bufbuild/protobuf";
import { beforeEach, expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  Basis,
  Outcome,
  type Receipt,
  ReceiptSchema,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutReason, LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import type { Ending, Hold, Holds } from "../../src/billing/billing.ts";
import type { PriceFacts } from "../../src/config/catalog.ts";
import { type Answered, Bill } from "../../src/inference/bill.ts";
import { Counted } from "../../src/inference/counted.ts";
import type { Billed } from "../../src/inference/endings.ts";
import { InputCounts } from "../../src/inference/prompt-size.ts";
import { Reported } from "../../src/inference/reported.ts";
import { Span, type SpanData } from "../../src/tracing/span.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";
import { events } from "../support/inference.ts";
import { price, usage } from "../support/ledger.ts";
import { recordLog } from "../support/log.ts";
import { usageRules } from "../support/metered.ts";

const hold: Hold = {
  requestId: "req_1",
  payer: { accountId: "acc_1", family: "v1", keyId: "key_1" },
  model: "model-test",
  price,
  amountMicro: 1_000n,
  grantedOutput: 100,
  month: "2026-11-01",
  admittedAt: new Date(0),
  freeMicro: 0n,
  left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
  manager: undefined,
};
const receipt = create(ReceiptSchema, { requestId: "req_1", chargedMicrocredits: 42n });
const billed = (
  tokens: Parameters<typeof usage>[0],
  outcome: Outcome = Outcome.COMPLETED,
): Billed => ({
  ...{ usage: usage(tokens), basis: Basis.REPORTED, outcome },
});
const total = billed({
  input: 3_000,
  cacheRead: 200,
  cacheWrite5m: 30,
  cacheWrite1h: 4,
  output: 90,
});
const undelivered = billed({}, Outcome.GATEWAY_FAILED);
const size = {
  ...{ textBytes: 10_000, images: 0, pages: 0, unbounded: false },
  ...{ mostExpensiveInput: InputCategory.PLAIN, writesLiveLong: false },
};
const bounds = {
  ...{ input: 3_200, mostExpensiveInput: InputCategory.PLAIN, webSearches: 0 },
  ...{ minOutput: 1, maxOutput: 100 },
};

let clock: ManualClock;
let asked: unknown[];
let settled: { hold: Hold; ending: Ending }[];
let watched: (() => Usage | undefined)[];
let fits: boolean;
let resize: (hold: Hold, input: Usage) => Promise<Hold>;
let settlement: Promise<Receipt>;
let log: ReturnType<typeof recordLog>;
beforeEach(() => {
  clock = new ManualClock();
  log = recordLog();
  [asked, settled, watched, fits] = [[], [], [], false];
  resize = async (one) => ({ ...one, amountMicro: one.amountMicro + 1n });
  settlement = Promise.resolve(receipt);
});

const holds: Holds = {
  place: () => Promise.reject(new Error("no hold is placed")),
  expectFull: () => undefined,
  placeFull: async () => undefined,
  resize(one, input) {
    asked.push(`resize ${one.amountMicro} to ${input.input}`);
    return resize(one, input);
  },
  fits: () => fits,
  watch(request, read) {
    asked.push(`watch ${request.accountId} ${request.requestId}`);
    watched.push(read);
    return () => asked.push("watch no more");
  },
  settle(one, ending) {
    asked.push("settle");
    settled.push({ hold: { ...hold, ...one }, ending });
    return settlement;
  },
  amend: (request, ending) =>
    asked.push(`amend ${request.accountId} ${request.requestId}`, ending.outcome),
};

/** The bill of an answer of these events. */
function open(
  read: readonly Event[] = [],
  more: Partial<Answered> & { zero?: "reported" | "missing" } = {},
  trace?: ConstructorParameters<typeof Bill>[1]["trace"],
) {
  const { zero = "reported", ...rest } = more;
  const reported = new Reported({ ...usageRules, zeroUsage: zero });
  const counted = new Counted();
  for (const event of read) {
    reported.read(event);
    counted.add(event);
  }
  const counters = { providerReportedZero: 0 };
  const inputCounts = new InputCounts(clock);
  const seen: unknown[] = [];
  const answer: Answered = {
    ...{ isPlain: false, reported, counted, provider: undefined, leftOut: [] },
    attempts(facts) {
      seen.push(facts);
      return [];
    },
    movedUsage: () => usage({ output: 7 }),
    ...rest,
  };
  const applied = (facts: PriceFacts, leftOut: Answered["leftOut"]) => {
    seen.push([facts, leftOut.length]);
    return { facts: { speed: "fast" }, price };
  };
  const parts = { holds, log: log.log, counters, inputCounts, clock };
  const prepared = { applied, bounds, size };
  const bill = new Bill(parts, { prepared, hold, answer, trace });
  return { bill, counters, inputCounts, reported, seen };
}

const errorOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => toApiError(error),
  );

test("a request is settled once, with the ending that came first", async () => {
  const leftOut = [
    create(LeftOutSchema, { where: "tools[1]", what: "x", why: LeftOutReason.MODEL, count: 1 }),
  ];
  const { bill, seen } = open([], { leftOut });
  expect(bill.isSettled).toBe(false);
  expect(bill.summary()).toEqual({ provider: "", model: "model-test", usage: undefined });
  expect(await bill.settle(total, undelivered)).toBe(receipt);
  bill.chargeLater(billed({ output: 1 }));
  expect(await bill.settle(billed({ output: 2 }), undelivered)).toBe(receipt);
  const { usage: used, basis, outcome } = total;
  const ending = { usage: used, basis, outcome, attempts: [], leftOut, appliedPrice: price };
  expect(settled).toEqual([{ hold, ending }]);
  expect([bill.isSettled, bill.summary().usage]).toEqual([true, used]);
  expect(asked).toEqual(["watch acc_1 req_1", "watch no more", "settle"]);
  // The price is that of what the provider applied, and so are the costs of its calls.
  expect(seen).toEqual([[{}, 1], { speed: "fast" }]);
  expect(log.lines()).toMatchObject([
    { level: 20, requestId: "req_1", leftOut: [{ where: "tools[1]", what: "x", why: "model" }] },
  ]);
});

test("what is shown is charged up to the grant, at the provider that answered", async () => {
  const provider = { provider: "one", span: undefined, isPlain: false };
  const { bill } = open([], { provider });
  bill.chargeLater(billed({ output: 150, thinking: 20 }));
  expect(bill.summary()).toEqual({
    ...{ provider: "one", model: "model-test", usage: usage({ output: 80, thinking: 20 }) },
  });
  expect(log.lines()).toEqual([]);
});

test("a failure of a charge that nobody waits for is nobody's error", async () => {
  settlement = Promise.reject(new ApiError("billing_unavailable"));
  const { bill } = open();
  bill.chargeLater(total);
  await runPendingTasks();
  expect((await errorOf(bill.settle(total, undelivered)))?.reason).toBe("billing_unavailable");
});

test("a stream is watched while it runs, an answer in one piece is not", async () => {
  open();
  expect(watched.map((read) => read()?.output)).toEqual([7]);
  const { bill } = open([], { isPlain: true });
  await bill.settle(total, undelivered);
  expect([watched.length, asked]).toEqual([1, ["watch acc_1 req_1", "settle"]]);
});

test("an answer waits a minute for its charge; what was not delivered is billed as nothing", async () => {
  settlement = new Promise(() => {});
  for (const isPlain of [false, true]) {
    asked = [];
    const { bill } = open([], { isPlain });
    const failing = errorOf(bill.settle(total, undelivered));
    await clock.advance(59_999);
    expect(asked.at(-1)).toBe("settle");
    await clock.advance(1);
    const error = await failing;
    expect(error?.reason).toBe("billing_unavailable");
    expect(error?.facts.retryAfterMs).toBe(isPlain ? 1000 : undefined);
    expect(error?.message).toMatch(isPlain ? /not delivered/ : /will be charged when/);
    const amended = ["amend acc_1 req_1", Outcome.GATEWAY_FAILED];
    expect(asked.slice(asked.indexOf("settle") + 1)).toEqual(isPlain ? amended : []);
  }
});

test("a hold is resized to each new input, one after the other, before its charge", async () => {
  const { bill, reported } = open([events.start({ inputTokens: 11 })]);
  const first = Promise.withResolvers<void>();
  resize = async (one) => {
    await first.promise;
    return { ...one, amountMicro: one.amountMicro + 1n };
  };
  bill.resize();
  bill.resize();
  reported.read(events.start({ inputTokens: 22 }));
  fits = true;
  bill.resize();
  const settling = bill.settle(total, undelivered);
  await runPendingTasks();
  expect(asked.slice(1)).toEqual(["watch no more", "resize 1000 to 11"]);
  first.resolve();
  await settling;
  expect(asked.slice(1)).toEqual([
    ...["watch no more", "resize 1000 to 11", "resize 1001 to 22", "settle"],
  ]);
  expect(settled[0]?.hold.amountMicro).toBe(1_002n);
});

test("a hold that fits stays, and so does one that cannot grow: its charge is limited to it", async () => {
  const silent = open();
  silent.bill.resize();
  expect([silent.bill.resizing, asked.splice(0)]).toEqual([undefined, ["watch acc_1 req_1"]]);
  fits = true;
  const { bill } = open([events.start({ inputTokens: 11 })]);
  bill.resize();
  expect([bill.resizing, asked]).toEqual([undefined, ["watch acc_1 req_1"]]);
  fits = false;
  resize = () => Promise.reject(new ApiError("credits_exhausted"));
  const other = open([events.start({ inputTokens: 11 })]);
  other.bill.resize();
  await other.bill.resizing;
  await other.bill.settle(total, undelivered);
  expect(settled.map((one) => one.hold.amountMicro)).toEqual([1_000n]);
});

test("a reported input teaches the size of prompts, one that was not reported does not", async () => {
  const of = { accountId: "acc_1", model: "model-test" };
  const { bill, inputCounts } = open([events.start({ inputTokens: 3_000 })]);
  await bill.settle(total, undelivered);
  // 3,234 tokens with those of the cache, 34 above the bound.
  expect(inputCounts.excessOf(of)).toBe(34);
  for (let count = 0; count < 2; count++) inputCounts.learn(of, size, 3_234);
  expect(inputCounts.rangeOf(of, size, 1_000_000)).toEqual({ min: 3_080, max: 3_396 });
  const silent = open();
  await silent.bill.settle(total, undelivered);
  expect(silent.inputCounts.excessOf(of)).toBe(0);
  expect(silent.inputCounts.rangeOf(of, size, 1_000_000)?.min).toBe(1_250);
});

test("an answer whose provider reports no input is counted, and named in the log", async () => {
  const content = [events.open(), events.text("Hi"), events.close()];
  const zero = [events.start({ inputTokens: 0 }), ...content];
  const provider = { provider: "one", span: undefined, isPlain: false };
  const cases: [Event[], number][] = [
    [zero, 1],
    [zero.slice(0, 1), 0],
    [[events.start({ inputTokens: 1 }), ...content], 0],
    [[events.start({ inputTokens: 0, cacheReadInputTokens: 1 }), ...content], 0],
    [[events.start(), ...content], 0],
  ];
  for (const [read, count] of cases) {
    log = recordLog();
    const { bill, counters, reported } = open(read, { provider });
    // With the end, a 0 is no placeholder.
    if (count === 1) reported.inputIsFinal = true;
    await bill.settle(total, undelivered);
    expect(counters.providerReportedZero).toBe(count);
    const named = { provider: "one", model: "model-test", requestId: "req_1" };
    expect(log.lines()).toMatchObject(
      count === 1 ? [{ level: 40, code: "provider_reported_zero", ...named }] : [],
    );
  }
});

test("a traced request has a span of its settlement, and its tokens at the provider's", async () => {
  const spans: SpanData[] = [];
  const span = (name: string) =>
    new Span(
      {
        ...{ name, kind: "internal", traceId: "a", spanId: "b", parentId: "", state: "" },
        ...{ startMs: 0, endMs: 0, attributes: {}, error: undefined },
      },
      (data) => spans.push(data),
    );
  const trace = { span, end: () => undefined };
  const calls = [span("call"), span("call")];
  for (const [index, result] of [
    Promise.resolve(receipt),
    Promise.reject(new ApiError("not_found")),
  ].entries()) {
    settlement = result;
    const provider = { provider: "one", span: calls[index], isPlain: false };
    const { bill, reported } = open([], { provider }, trace);
    if (index === 0) reported.stopReason = "end_turn";
    await errorOf(bill.settle(total, undelivered));
  }
  for (const call of calls) call.end();
  // Without a call that is traced, the settlement alone has a span.
  const untraced = { provider: "one", span: undefined, isPlain: false };
  settlement = Promise.resolve(receipt);
  for (const provider of [undefined, untraced])
    expect(await open([], { provider }, trace).bill.settle(total, undelivered)).toBe(receipt);
  expect(spans.splice(4).map(({ name }) => name)).toEqual(["settle", "settle"]);
  expect(spans.map(({ name, attributes, error }) => ({ name, attributes, error }))).toEqual([
    { name: "settle", attributes: { "gateway.microcredits": 42 }, error: undefined },
    { name: "settle", attributes: {}, error: "not_found" },
    {
      name: "call",
      error: undefined,
      attributes: {
        "gen_ai.usage.input_tokens": 3_234,
        "gen_ai.usage.output_tokens": 90,
        "gen_ai.response.finish_reasons": ["end_turn"],
      },
    },
    {
      name: "call",
      error: undefined,
      attributes: { "gen_ai.usage.input_tokens": 3_234, "gen_ai.usage.output_tokens": 90 },
    },
  ]);
});
