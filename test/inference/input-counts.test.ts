import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { systemClock } from "../../src/base/clock.ts";
import { fewestTokensOf, InputCounts, rangeOfCount } from "../../src/inference/prompt-size.ts";

const context = 200_000;
const who = { accountId: "acc", model: "model" };
const sizeOf = (textBytes: number, more: { images?: number; unbounded?: boolean } = {}) => ({
  textBytes,
  images: more.images ?? 0,
  pages: 0,
  unbounded: more.unbounded ?? false,
  mostExpensiveInput: InputCategory.PLAIN,
  writesLiveLong: false,
});

test("without answers, a token has two to eight bytes", () => {
  expect(new InputCounts(systemClock).rangeOf(who, sizeOf(8_000), context)).toEqual({
    min: 1_000,
    max: 4_064,
  });
});

test("after three answers, a token has as many bytes as in those, within five percent", () => {
  const counts = new InputCounts(systemClock);
  const learn = (tokens: number) => counts.learn(who, sizeOf(10_000), tokens);
  learn(2_500);
  learn(2_600);
  expect(counts.rangeOf(who, sizeOf(10_000), context)?.min).toBe(1_250);
  learn(2_400);
  expect(counts.rangeOf(who, sizeOf(20_000), context)).toEqual({
    min: Math.floor(4_800 / 1.05),
    max: Math.ceil(5_200 * 1.05),
  });
});

test("an answer is forgotten after sixteen later ones", () => {
  const counts = new InputCounts(systemClock);
  counts.learn(who, sizeOf(10_000), 4_000);
  for (let answer = 0; answer < 16; answer++) counts.learn(who, sizeOf(10_000), 2_500);
  expect(counts.rangeOf(who, sizeOf(10_000), context)?.max).toBe(2_625);
});

test("answers of other accounts and models, to small prompts, and to pictures teach nothing", () => {
  const counts = new InputCounts(systemClock);
  for (let answer = 0; answer < 3; answer++) {
    counts.learn({ ...who, accountId: "other" }, sizeOf(10_000), 9_000);
    counts.learn({ ...who, model: "other" }, sizeOf(10_000), 9_000);
    counts.learn(who, sizeOf(1_000), 900);
    counts.learn(who, sizeOf(10_000, { images: 1 }), 9_000);
    counts.learn(who, sizeOf(10_000), 0);
  }
  expect(counts.rangeOf(who, sizeOf(8_000), context)?.min).toBe(1_000);
});

test("a document of unknown size has no range, and no range exceeds the context", () => {
  const counts = new InputCounts(systemClock);
  expect(counts.rangeOf(who, sizeOf(8_000, { unbounded: true }), context)).toBeUndefined();
  for (let answer = 0; answer < 3; answer++) counts.learn(who, sizeOf(10_000), 5_000);
  expect(counts.rangeOf(who, sizeOf(1_000_000), context)?.max).toBe(context);
});

test("a count is off by at most five percent", () => {
  expect(rangeOfCount(1_050)).toEqual({ min: 1_000, max: 1_103 });
  expect(fewestTokensOf(sizeOf(1_600))).toBe(100);
});
