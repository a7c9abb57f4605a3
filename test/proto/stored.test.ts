// What charges hold as JSON: rows of years have these names, so they stay.

import { fromJson, toJson } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { AttemptOutcome, AttemptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { readAttempt, writeAttempt } from "../../src/billing/rows.ts";

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

test("what was left out is read and written by the names that are stored", () => {
  const json = { where: "tools[0]", what: "web_search", why: "hosted", count: 2 };
  expect(toJson(LeftOutSchema, fromJson(LeftOutSchema, json))).toEqual(json);
  expect(Object.keys(json).sort()).toEqual(
    LeftOutSchema.fields.map(({ jsonName }) => jsonName).sort(),
  );
});
