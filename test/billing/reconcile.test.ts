// Logged charges against those of a ledger: reading lines, comparing, and what corrects a pool.

import fc from "fast-check";
import { expect, test } from "vitest";
import { familyName } from "../../src/base/families.ts";
import {
  compareCharges,
  correctionsFor,
  type LoggedCharge,
  parseLogLine,
} from "../../src/billing/billing.ts";

const line = {
  level: 30,
  time: Date.UTC(2026, 10, 22, 23, 59, 59, 999),
  requestId: "req_1",
  accountId: "acc_1",
  family: "v2",
  amountMicrocredits: "123",
  msg: "request",
};

test("a line of a charged request is read, with the UTC day of its time", () => {
  const charge = {
    requestId: "req_1",
    accountId: "acc_1",
    family: "v2",
    amountMicro: 123n,
    day: "2026-11-22",
  };
  expect(parseLogLine(JSON.stringify(line))).toEqual(charge);
  expect(parseLogLine(JSON.stringify({ ...line, time: "2026-11-22T23:59:59Z" }))).toEqual(charge);
});

test("lines of other kinds, and what is no JSON, are skipped", () => {
  const { amountMicrocredits, ...free } = line;
  for (const other of [{ ...line, msg: "audit" }, free, null, 5, "text", []])
    expect(parseLogLine(JSON.stringify(other))).toBeUndefined();
  for (const text of ["", "  The model gateway runs at …", '{"msg":"request","amountMicro'])
    expect(parseLogLine(text)).toBeUndefined();
});

for (const wrong of [
  { family: "v3" },
  { family: undefined },
  { accountId: 7 },
  { requestId: undefined },
  { amountMicrocredits: "-5" },
  { amountMicrocredits: "1e3" },
  { amountMicrocredits: 5 },
  { time: "yesterday" },
  { time: undefined },
]) {
  test(`a charged request with ${JSON.stringify(wrong)} is an error, never a guess`, () => {
    expect(() => parseLogLine(JSON.stringify({ ...line, ...wrong }))).toThrow(Error);
  });
}

const charges = fc.uniqueArray(
  fc.record({
    requestId: fc.integer({ min: 0, max: 30 }).map((number) => `req_${number}`),
    accountId: fc.constantFrom("acc_1", "acc_2"),
    family: fc.constantFrom("v1" as const, "v2" as const),
    amountMicro: fc.bigInt({ min: 0n, max: 10n ** 12n }),
    day: fc.constantFrom("2026-11-21", "2026-11-22"),
  }),
  { selector: ({ accountId, requestId }) => `${accountId}/${requestId}` },
);

test("the corrections of a pool are what the ledger's charges lack, and none is zero", () => {
  fc.assert(
    fc.property(charges, fc.func(fc.constantFrom("kept", "lost", "lower")), (logged, fate) => {
      const ledger = logged
        .filter((charge) => fate(charge.requestId) !== "lost")
        .map((charge) => ({
          ...charge,
          amountMicro:
            fate(charge.requestId) === "lower" ? charge.amountMicro / 2n : charge.amountMicro,
        }));
      const corrections = correctionsFor(compareCharges(logged, ledger));
      const sumOf = (all: readonly LoggedCharge[], key: string) =>
        all
          .filter(({ accountId, family }) => `${accountId}/${family}` === key)
          .reduce((sum, { amountMicro }) => sum + amountMicro, 0n);
      for (const key of ["acc_1/v1", "acc_1/v2", "acc_2/v1", "acc_2/v2"]) {
        const own = corrections.filter(
          ({ accountId, family }) => `${accountId}/${familyName(family)}` === key,
        );
        const booked = own.reduce((sum, { amountMicro }) => sum + amountMicro, 0n);
        expect(-booked).toBe(sumOf(logged, key) - sumOf(ledger, key));
        expect(own.length).toBeLessThanOrEqual(2);
      }
      for (const { amountMicro } of corrections) expect(amountMicro).not.toBe(0n);
      const keys = corrections.map((one) => `${one.accountId} ${one.idempotencyKey}`);
      expect(new Set(keys).size).toBe(keys.length);
    }),
  );
});
