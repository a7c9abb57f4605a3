// Counting without an answer: free, and never an error for want of a provider that counts.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ApiError, type ErrorReason } from "../../src/base/errors.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { freshInference, type TestInference } from "../support/inference.ts";

let gateway: TestInference;
let payer: Payer;
beforeAll(async () => {
  gateway = await freshInference();
  payer = await gateway.payer(0n);
});
afterAll(() => gateway.close());

test("the provider's count is given where there is one", async () => {
  gateway.counts(() => 42);
  expect(await gateway.countTokens(payer)).toEqual({ inputTokens: 42, estimated: false });
});

const fails = (reason: ErrorReason) =>
  gateway.counts(() => {
    throw new ApiError(reason);
  });

for (const reason of ["overloaded", "upstream_error", "timeout"] as const) {
  test(`where no provider can count because of ${reason}, an estimate is given, so that clients do not count by paid requests`, async () => {
    fails(reason);
    expect(await gateway.countTokens(payer)).toEqual({
      inputTokens: expect.any(Number),
      estimated: true,
    });
  });
}

test("where a provider takes too long to count, an estimate is given", async () => {
  // Its ten seconds are over at once.
  const patience = vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
  fails("cancelled");
  expect(await gateway.countTokens(payer)).toEqual({
    inputTokens: expect.any(Number),
    estimated: true,
  });
  patience.mockRestore();
});

for (const reason of ["upstream_refused", "context_length_exceeded", "cancelled"] as const) {
  test(`a count that ends with ${reason} tells so`, async () => {
    fails(reason);
    await expect(gateway.countTokens(payer)).rejects.toMatchObject({ reason });
  });
}
