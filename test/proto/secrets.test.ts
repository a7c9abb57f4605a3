// Which fields leave the process only in an answer: the audit, logs and the public description know
// them by an option.

import { getOption, ScalarType } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { audited, Recorded, recorded } from "../../gen/gateway/common/v1/options_pb.ts";
import { fieldName, ourFields, ourMethods } from "../support/protos.ts";

const isRedacted = ({ proto }: (typeof ourFields)[number]) => proto.options?.debugRedact === true;

test("secrets, passwords, tokens and links are redacted", () => {
  const secret = /(^|_)(secret|password|token|link|answer_json)$/;
  const found = ourFields.filter(
    ({ name, scalar }) => scalar === ScalarType.STRING && secret.test(name),
  );
  expect(found.length).toBeGreaterThan(20);
  // The token of a page reads nothing that its caller may not read.
  const open = found.filter((field) => !isRedacted(field) && !/page_token$/.test(field.name));
  expect(open.map(fieldName)).toEqual([]);
});

test("nothing that is redacted is recorded", () => {
  const both = ourFields.filter(
    (field) => isRedacted(field) && getOption(field, recorded) !== Recorded.UNSPECIFIED,
  );
  expect(both.map(fieldName)).toEqual([]);
});

test("an audited call records the account that it names", () => {
  const found = ourMethods.filter((desc) => getOption(desc, audited));
  for (const { name, input } of found) {
    const field = input.field.accountId;
    if (field) expect(getOption(field, recorded), name).toBe(Recorded.ALWAYS);
  }
});
