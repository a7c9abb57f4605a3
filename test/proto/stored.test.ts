// What charges hold as JSON: rows of years have these names, so they stay.

import { expect, test } from "vitest";
import { AttemptOutcome, AttemptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutReason, LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { leftOutReasonName, leftOutReasonNames } from "../../src/base/left-out.ts";
import {
  readAttempt,
  readLeftOutEntry,
  writeAttempt,
  writeLeftOut,
} from "../../src/billing/rows.ts";

const names = [
  ["delivered", AttemptOutcome.DELIVERED],
  ["refused", AttemptOutcome.REFUSED],
  ["failed", AttemptOutcome.FAILED],
  ["broke", AttemptOutcome.BROKE],
  ["aborted", AttemptOutcome.ABORTED],
  ["timeout", AttemptOutcome.TIMED_OUT],
] as const;

test.for(names)(
  "an attempt that was %s is read and written by the names that are stored",
  ([outcome, value]) => {
    const json = {
      ...{ provider: "primary", outcome, status: 529, firstEventAfter: "1.500s" },
      ...{ model: "vendors-name", costVersion: "cost_1" },
    };
    const attempt = readAttempt(json);
    expect(attempt.outcome).toBe(value);
    expect(writeAttempt(attempt)).toEqual(json);
    const fields = AttemptSchema.fields.map(({ jsonName }) => jsonName);
    expect(Object.keys(json).sort()).toEqual(fields.sort());
  },
);

test("an outcome that this version does not know is not set", () => {
  expect(readAttempt({ provider: "primary", outcome: "danced" })).toMatchObject({
    ...{ provider: "primary", outcome: AttemptOutcome.UNSPECIFIED },
  });
  expect(names.length).toBe(Object.keys(AttemptOutcome).length - 1);
});

const leftOut = [
  ["hosted", LeftOutReason.HOSTED],
  ["foreign", LeftOutReason.FOREIGN],
  ["changed", LeftOutReason.CHANGED],
  ["age", LeftOutReason.AGE],
  ["model", LeftOutReason.MODEL],
  ["size", LeftOutReason.SIZE],
  ["unsupported", LeftOutReason.UNSUPPORTED],
  ["member", LeftOutReason.MEMBER],
  ["placeholder", LeftOutReason.PLACEHOLDER],
] as const;

test.for(leftOut)(
  "what was left out as %s is read and written by the names that are stored",
  ([why, value]) => {
    const json = { where: "tools[0]", what: "web_search", why, count: 2 };
    const entry = readLeftOutEntry(json);
    expect(entry.why).toBe(value);
    expect(writeLeftOut(entry)).toEqual(json);
    const fields = LeftOutSchema.fields.map(({ jsonName }) => jsonName);
    expect(Object.keys(json).sort()).toEqual(fields.sort());
  },
);

test("a reason that this version does not know is shown as unknown", () => {
  const entry = readLeftOutEntry({ where: "seed", what: "seed", why: "lost", count: 1 });
  expect(entry.why).toBe(LeftOutReason.UNSPECIFIED);
  expect(leftOutReasonName(entry.why)).toBe("unknown");
  expect(leftOutReasonNames).toEqual(leftOut.map(([why]) => why));
  expect(leftOutReasonNames.length).toBe(Object.keys(LeftOutReason).length - 1);
});
