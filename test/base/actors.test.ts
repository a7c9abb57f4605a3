// Who did something, as messages and as the texts of columns, exports and addresses.

import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ActorSchema, Part } from "../../gen/gateway/common/v1/actor_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { actorToFind } from "../../src/contract/callers.ts";

test.for([
  ["person:per_1", "personId", "per_1"],
  ["token:billing-bot", "adminTokenName", "billing-bot"],
  ["token:a:b", "adminTokenName", "a:b"],
  ["mgmt:mgk_1", "managementKeyId", "mgk_1"],
  ["processor:onchain", "processor", "onchain"],
  ["payments", "part", Part.PAYMENTS],
  ["bootstrap", "part", Part.FIRST_START],
  ["reconcile", "part", Part.RECONCILE],
  ["verify-ledger", "part", Part.VERIFY_LEDGER],
  ["restore", "part", Part.RESTORE],
] as const)("%s is read and written as it is stored", ([text, kind, value]) => {
  const actor = toActor(text);
  expect(actor?.kind).toEqual({ case: kind, value });
  expect(actorText(actor)).toBe(text);
});

test("each part of the gateway has a text", () => {
  for (const part of Object.values(Part).filter((one) => one !== Part.UNSPECIFIED))
    expect(actorText(create(ActorSchema, { kind: { case: "part", value: part } }))).not.toBe(
      "gateway",
    );
});

test("nobody is no actor, and a part of an older version is one without a name", () => {
  expect([toActor(""), toActor(null), actorText(undefined)]).toEqual([undefined, undefined, ""]);
  expect(toActor("sweeper")?.kind).toEqual({ case: "part", value: Part.UNSPECIFIED });
});

test.for([
  ["no kind", create(ActorSchema)],
  ["an empty id", create(ActorSchema, { kind: { case: "personId", value: "" } })],
  ["no part", create(ActorSchema, { kind: { case: "part", value: Part.UNSPECIFIED } })],
] as const)("a filter by an actor with %s is refused", ([, actor]) => {
  expect(() => actorToFind("actor", actor)).toThrow(
    expect.objectContaining({
      reason: "invalid_request",
      facts: expect.objectContaining({ field: "actor" }),
    }),
  );
});
