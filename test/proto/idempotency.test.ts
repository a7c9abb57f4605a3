// What a repeat of a call changes: each method says it, in the way of its verb.

import { getOption } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { audited } from "../../gen/gateway/common/v1/options_pb.ts";
import { limitsOf } from "../../src/contract/limits.ts";
import { beginsWith, ourMethods } from "../support/protos.ts";

/** They change nothing. */
const reading = [
  ...["Get", "List", "Find", "Query", "Search", "Preview", "Count", "Watch", "Export"],
];
/** A repeat finds what the first call has changed, and changes nothing more. */
const repeatable = [
  ...["Update", "Set", "Rename", "Save", "Change", "Pause", "Resume", "Suspend", "Close"],
  ...["Revoke", "Remove", "Delete", "Cancel", "Stop", "Dismiss", "End", "SignOut"],
  ...["Approve", "Reject", "Place", "Checkpoint", "Settle", "Receive", "LookUp"],
  ...["Authenticate", "Verify"],
];
/** Methods that differ from their verbs. */
const others: Readonly<Record<string, Level>> = {
  // Makes an address at first, and gets the same one from then on.
  CreateDepositAddress: Level.IDEMPOTENT,
  // Mails another link.
  SetEmail: Level.IDEMPOTENCY_UNKNOWN,
  // May make another secret.
  UpdateAlertSettings: Level.IDEMPOTENCY_UNKNOWN,
};

describe.for([...ourMethods])("$name", (desc) => {
  const { name, input, idempotency, proto } = desc;
  const key = input.field.idempotencyKey;
  const isKeyed = key !== undefined && limitsOf(key)?.isRequired === true;

  test("says what a repeat changes", () => {
    expect(proto.options && Object.hasOwn(proto.options, "idempotencyLevel")).toBe(true);
    const byVerb = beginsWith(name, reading)
      ? Level.NO_SIDE_EFFECTS
      : isKeyed || beginsWith(name, repeatable)
        ? Level.IDEMPOTENT
        : Level.IDEMPOTENCY_UNKNOWN;
    expect(idempotency).toBe(others[name] ?? byVerb);
  });
});

test("what changes nothing is no administrative change", () => {
  const changing = ourMethods.filter(
    (desc) => desc.idempotency === Level.NO_SIDE_EFFECTS && getOption(desc, audited),
  );
  // The file of an account is read so seldom, and says so much, that its owners see it.
  expect(changing.map(({ name }) => name)).toEqual(["ExportAccount"]);
});
