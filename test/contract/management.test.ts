// What a management key may call: of every method of every service, what the table of its scope
// names, and nothing else.

import { create, getOption } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { CallersSchema, callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import {
  actorOf,
  checkAccess,
  confinedTo,
  decideAccount,
  isAdmitted,
  isOutsider,
  isStranger,
  refusalOf,
  subjectOf,
} from "../../src/contract/callers.ts";
import { allServices, type ManagementCaller } from "../../src/contract/contract.ts";
import { payingCaller } from "../../src/contract/generation.ts";

const { READ, KEYS, ALL_KEYS, BUY } = ManagementScope;
const manager = (...scopes: ManagementScope[]): ManagementCaller => ({
  ...{ kind: "management", managementKeyId: "mgk_1", accountId: "acc_a", name: "deploy" },
  scopes,
});

// Those for everybody need no credential at all.
const methods = allServices
  .flatMap((service) => service.methods)
  .filter((desc) => !getOption(desc, callers).anyone);
const admitted = (caller: ManagementCaller) =>
  methods
    .filter((desc) => isAdmitted(getOption(desc, callers), caller))
    .map(({ name }) => name)
    .sort();

const ofKeys = [
  ...["ChangeKeys", "CreateKey", "PauseKey", "ResetBudget", "ResumeKey", "RevokeKey"],
  ...["RevokeSecret", "RotateKey", "UpdateKey"],
];
test.for<[string, ManagementScope[], string[]]>([
  ["nothing", [], []],
  [
    "READ",
    [READ],
    [
      ...["ExportCharges", "GetAccount", "GetForecast", "GetKey", "GetPools", "GetReceipt"],
      "ListBudgets",
      ...["ListCharges", "ListKeys", "ListOrders", "ListRunningRequests", "ListTransfers"],
      ...["QueryRefusals", "QueryUsage", "Search", "WatchCharges"],
    ],
  ],
  ["KEYS", [KEYS], ofKeys],
  ["ALL_KEYS", [ALL_KEYS], ofKeys],
  ["BUY", [BUY], ["CancelOrder", "CreateOrder", "WatchOrder"]],
])("the scope %s", ([, scopes, expected]) => {
  const own = scopes.length === 0 ? [] : ["Authenticate"];
  expect(admitted(manager(...scopes))).toEqual([...expected, ...own].sort());
});

test("scopes add up, and no scope opens what a list forbids", () => {
  const all = admitted(manager(READ, KEYS, ALL_KEYS, BUY));
  const each = [READ, KEYS, ALL_KEYS, BUY].flatMap((scope) => admitted(manager(scope)));
  expect(all).toEqual([...new Set(each)].sort());
  for (const name of methods.map(({ name }) => name))
    if (
      /Member|Invit|Alert|Management|Export(Account)|Close|Promotion|Admin|Hold|Person/.test(name)
    )
      expect(all).not.toContain(name);
});

test("what an account reader may call, and orders, is what READ may call", () => {
  const readers = methods.filter((desc) => getOption(desc, callers).accountReader);
  const expected = [...readers.map(({ name }) => name), "Authenticate", "ListOrders"];
  expect(admitted(manager(READ))).toEqual(expected.sort());
});

test("what only keys pay for is refused with the way to pay, anything else as not permitted", () => {
  const reasons = methods
    .filter((desc) => !isAdmitted(getOption(desc, callers), manager(READ, KEYS, ALL_KEYS, BUY)))
    .map((desc) => [desc.name, refusalOf(getOption(desc, callers), manager(READ)).reason]);
  const here = reasons.filter(([, reason]) => reason === "management_key_here");
  expect(here.map(([name]) => name)).toEqual(["Generate", "CountTokens", "ListModels", "GetModel"]);
  expect(reasons.filter(([, reason]) => reason === "not_permitted").length).toBeGreaterThan(60);
  expect(() => payingCaller(manager(READ))).toThrow(
    expect.objectContaining({ reason: "management_key_here" }),
  );
});

test("its account is its own, others look absent, and its acts have its name", () => {
  const allowed = create(CallersSchema, { accountReader: true });
  const caller = manager(READ);
  expect(decideAccount(allowed, caller, "")).toBe("acc_a");
  expect(decideAccount(allowed, caller, "acc_a")).toBe("acc_a");
  const reasonOf = (work: () => unknown) => {
    try {
      work();
    } catch (error) {
      return toApiError(error).reason;
    }
    return "none";
  };
  expect(reasonOf(() => decideAccount(allowed, caller, "acc_b"))).toBe("not_found");
  const absent = () => new ApiError("not_found");
  expect(reasonOf(() => checkAccess({ allowed, caller }, "acc_a", absent))).toBe("none");
  expect(reasonOf(() => checkAccess({ allowed, caller }, "acc_b", absent))).toBe("not_found");
  expect([actorOf(caller), subjectOf(caller), confinedTo(caller)]).toEqual([
    ...["mgmt:mgk_1", undefined, undefined],
  ]);
  expect([isOutsider(caller, "acc_a"), isOutsider(caller, "acc_b")]).toEqual([false, false]);
  // An act in an account that is not its own leaves no event there.
  expect([isStranger(caller, "acc_a"), isStranger(caller, "acc_b")]).toEqual([false, true]);
});
