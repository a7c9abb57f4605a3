// Counting tokens is free, and falls back to an estimate if no provider can count.

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

test("returns the provider's count", async () => {
  gateway.counts(() => 42);
  expect(await gateway.countTokens(payer)).toEqual({ inputTokens: 42, estimated: false });
});

const fails = (reason: ErrorReason) =>
  gateway.counts(() => {
    throw new ApiError(reason);
  });

for (const reason of ["overloaded", "upstream_error", "timeout"] as const) {
  test(`returns an estimate if no provider can count because of ${reason}, so that clients do not count by paid requests`, async () => {
    fails(reason);
    expect(await gateway.countTokens(payer)).toEqual({
      inputTokens: expect.any(Number),
      estimated: true,
    });
  });
}

test("returns an estimate if the provider takes too long", async () => {
  // The limit of ten seconds expires at once.
  const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
  fails("cancelled");
  expect(await gateway.countTokens(payer)).toEqual({
    inputTokens: expect.any(Number),
    estimated: true,
  });
  timeout.mockRestore();
});

for (const reason of ["upstream_refused", "context_length_exceeded", "cancelled"] as const) {
  test(`a count that fails with ${reason} returns that error`, async () => {
    fails(reason);
    await expect(gateway.countTokens(payer)).rejects.toMatchObject({ reason });
  });
}
