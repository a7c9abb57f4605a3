// Messages that charges hold as JSON: rows of years have these names, so they stay.

import { type DescMessage, fromJson, toJson } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { AttemptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";

const stored: readonly (readonly [DescMessage, Record<string, string | number>])[] = [
  [
    AttemptSchema,
    {
      ...{ provider: "primary", outcome: "failed", status: 529, firstEventAfter: "1.500s" },
      ...{ model: "vendors-name", costVersion: "cost_1" },
    },
  ],
  [LeftOutSchema, { where: "tools[0]", what: "web_search", why: "hosted", count: 2 }],
];

test.for(stored)("%s is read and written by the names that are stored", ([type, json]) => {
  expect(toJson(type, fromJson(type, json))).toEqual(json);
  expect(Object.keys(json).sort()).toEqual(type.fields.map(({ jsonName }) => jsonName).sort());
});
