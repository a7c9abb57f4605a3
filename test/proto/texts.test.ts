// Texts in the protos: a closed set is an enum, so what sounds like one and is a text has a reason.

import { ScalarType } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { fieldName, ourFields } from "../support/protos.ts";

const sounds =
  /(^|_)(kind|outcome|state|status|why|engine|tier|type|phase|effort|ttl|by|actor|payer|speed|geo|asset|network|invariant|dialect)$/;

/** Open sets, by the names of their fields. */
const open = new Set([
  // Any coin on any network can arrive.
  ...["asset", "network"],
  // The configuration names them.
  ...["tier", "speed", "geo", "dialect"],
  // A vendor decides, and every value is passed on.
  ...["type", "media_type", "phase", "effort", "reasoning_effort", "ttl", "service_tier"],
  // The verifier gets new ones with its version.
  "invariant",
]);

test("a text that sounds like a closed set is an open one", () => {
  const found = ourFields.filter(
    ({ name, scalar }) => scalar === ScalarType.STRING && sounds.test(name),
  );
  expect(found.filter(({ name }) => !open.has(name)).map(fieldName)).toEqual([]);
  const names = new Set(found.map(({ name }) => name));
  expect([...open].filter((name) => !names.has(name))).toEqual([]);
});
