import { expect, test } from "vitest";
import { UnpaidCalls } from "../../src/inference/active-requests.ts";
import { InputCounts } from "../../src/inference/prompt-size.ts";
import { ManualClock } from "../support/clock.ts";

test("a key with five unpaid calls within a minute has many, and no other key", async () => {
  const clock = new ManualClock();
  const calls = new UnpaidCalls(clock);
  for (let count = 1; count <= 5; count++) {
    expect(calls.areMany("key_1")).toBe(false);
    calls.add("key_1");
    await clock.advance(10_000);
  }
  expect([calls.areMany("key_1"), calls.areMany("key_2")]).toEqual([true, false]);
  await clock.advance(10_000);
  expect(calls.areMany("key_1")).toBe(false);
  calls.add("key_1");
  expect(calls.areMany("key_1")).toBe(true);
});

test("the bound of a prompt gets the largest excess of the last hour", async () => {
  const clock = new ManualClock();
  const counts = new InputCounts(clock);
  const model = { accountId: "acc_1", model: "m" };
  for (const tokens of [-5, 700, 300]) counts.learnExcess(model, tokens);
  expect(counts.excessOf(model)).toBe(700);
  expect(counts.excessOf({ ...model, model: "other" })).toBe(0);
  await clock.advance(3_600_000);
  expect(counts.excessOf(model)).toBe(0);
});
