// Reasons of errors, as values of the API and as the names that the database has.

import { expect, test } from "vitest";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { errorCatalog } from "../../src/base/errors.ts";
import { reasonName, reasonOf } from "../../src/base/reasons.ts";

test("each reason of the catalogue is a value, and is named as it is stored", () => {
  for (const name of Object.keys(errorCatalog)) {
    expect([name, reasonOf(name)]).not.toEqual([name, Reason.UNSPECIFIED]);
    expect(reasonName(reasonOf(name))).toBe(name);
  }
});

test("a reason that this version does not have is not set", () => {
  expect(reasonOf("responses_api_unsupported")).toBe(Reason.UNSPECIFIED);
  expect(reasonName(Reason.UNSPECIFIED)).toBe("");
});
