// Who may call what: the rules as pure functions, and the marks of every method.

import { create, type DescMethod, getOption, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test, vi } from "vitest";
import { audited, CallersSchema, callers, strong } from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import {
  actorOf,
  checkAccess,
  checkAllAccounts,
  checkStrong,
  clientOf,
  confinedTo,
  decideAccount,
  dropOperatorRole,
  dropsOperatorRole,
  isAdmitted,
  isOutsider,
  isStranger,
  nameClient,
  roleIn,
  subjectOf,
} from "../../src/contract/callers.ts";
import {
  allServices,
  type Caller,
  environmentToken,
  type Person,
} from "../../src/contract/contract.ts";

const allow = (init: MessageInitShape<typeof CallersSchema>) => create(CallersSchema, init);

function keyOf(accountReader: boolean): Caller {
  const key = create(KeySchema, { keyId: "key_1", accountId: "acc_a", accountReader });
  return { kind: "key", key, secret: create(SecretSchema) };
}

function person(more: Partial<Person> = {}): Person {
  return {
    kind: "person",
    personId: "per_1",
    sessionId: "ses_1",
    memberships: [],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: undefined,
    ...more,
  };
}

const { VIEWER, MEMBER, OWNER } = AccountRole;
const { SUPPORT, ADMIN } = OperatorRole;
const inA = (role: AccountRole) => person({ memberships: [{ accountId: "acc_a", role }] });

const plainKey = keyOf(false);
const reader = keyOf(true);
const admin: Caller = environmentToken;
const token = (scope: AdminScope): Caller => ({ ...environmentToken, name: "ci", scope });
const internal: Caller = { kind: "internal", service: "payments" };
const anyone: Caller = { kind: "anyone" };

describe("a method admits", () => {
  test.for<[string, MessageInitShape<typeof CallersSchema>, Caller, boolean]>([
    ["a key, if it names keys", { key: true }, plainKey, true],
    ["no key, if it names account readers", { accountReader: true }, plainKey, false],
    ["an account reader, if it names them", { accountReader: true }, reader, true],
    ["an account reader as any key", { key: true }, reader, true],
    [
      "no key otherwise",
      { admin: AdminScope.READ, person: VIEWER, operatorRole: ADMIN },
      reader,
      false,
    ],
    ["the admin token with any scope", { admin: AdminScope.MONEY }, admin, true],
    ["no admin token without a scope", { key: true, person: VIEWER }, admin, false],
    ["a token of lesser scope to read", { admin: AdminScope.READ }, token(AdminScope.KEYS), true],
    ["a token of the scope", { admin: AdminScope.KEYS }, token(AdminScope.KEYS), true],
    ["no token of another scope", { admin: AdminScope.MONEY }, token(AdminScope.KEYS), false],
    ["no token of a lesser scope", { admin: AdminScope.ALL }, token(AdminScope.MONEY), false],
    ["no token that only reads", { admin: AdminScope.KEYS }, token(AdminScope.READ), false],
    ["no token of no scope", { admin: AdminScope.READ }, token(AdminScope.UNSPECIFIED), false],
    ["any token as everybody", { anyone: true }, token(AdminScope.UNSPECIFIED), true],
    ["a person with a higher role", { person: MEMBER }, inA(OWNER), true],
    ["a person with the role", { person: MEMBER }, inA(MEMBER), true],
    ["no person with a lower role", { person: MEMBER }, inA(VIEWER), false],
    ["no person without a membership", { person: MEMBER }, person(), false],
    ["every person where viewers may call", { person: VIEWER }, person(), true],
    ["no person otherwise", { key: true, admin: AdminScope.ALL }, inA(OWNER), false],
    [
      "an operator with a higher role",
      { operatorRole: SUPPORT },
      person({ operator: ADMIN }),
      true,
    ],
    [
      "no operator with a lower role",
      { operatorRole: ADMIN },
      person({ operator: SUPPORT }),
      false,
    ],
    ["no owner as an operator", { operatorRole: SUPPORT }, inA(OWNER), false],
    ["no operator on a method of keys", { key: true }, person({ operator: ADMIN }), false],
    ["a part of the gateway in place of operators", { operatorRole: ADMIN }, internal, true],
    ["a part of the gateway in place of admin tokens", { admin: AdminScope.READ }, internal, true],
    ["no part of the gateway in place of a key", { key: true }, internal, false],
    ["everybody, if it says so", { anyone: true }, anyone, true],
    ["a key as everybody", { anyone: true }, plainKey, true],
    ["nobody without a credential otherwise", { person: VIEWER, key: true }, anyone, false],
    ["nobody without its option", {}, admin, false],
  ])("%s", ([, allowed, caller, expected]) => {
    expect(isAdmitted(allow(allowed), caller)).toBe(expected);
  });
});

describe("the account of a call", () => {
  const both = person({
    memberships: [
      { accountId: "acc_a", role: VIEWER },
      { accountId: "acc_b", role: OWNER },
    ],
  });
  const member = { person: MEMBER, operatorRole: ADMIN, key: true };
  const ownerAndOperator = { ...inA(OWNER), operator: SUPPORT };

  test.for<[string, MessageInitShape<typeof CallersSchema>, Caller, string, string]>([
    ["of a key is its own, unnamed", member, plainKey, "", "acc_a"],
    ["of a key is its own, named", member, plainKey, "acc_a", "acc_a"],
    ["of a key is no other", member, plainKey, "acc_b", "not_found account_id"],
    ["of a person is the only one, unnamed", member, inA(OWNER), "", "acc_a"],
    ["of a person is the one that is named", member, both, "acc_b", "acc_b"],
    ["of a person with two has to be named", member, both, "", "invalid_request account_id"],
    ["of a person without one has to be named", member, person(), "", "invalid_request account_id"],
    ["is absent to persons who are no members", member, both, "acc_c", "not_found account_id"],
    ["is closed to members with a lower role", member, both, "acc_a", "not_permitted"],
    ["of an operator has to be named", member, ownerAndOperator, "", "invalid_request account_id"],
    ["of an operator is any", member, person({ operator: ADMIN }), "acc_c", "acc_c"],
    [
      "is absent to lower operators",
      member,
      person({ operator: SUPPORT }),
      "acc_c",
      "not_found account_id",
    ],
    ["of the admin token has to be named", member, admin, "", "invalid_request account_id"],
    ["of the admin token is any", member, admin, "acc_c", "acc_c"],
    ["of a part of the gateway is any", member, internal, "acc_c", "acc_c"],
    [
      "of a part of the gateway has to be named",
      member,
      internal,
      "",
      "invalid_request account_id",
    ],
    [
      "of operators alone is closed to its owner",
      { operatorRole: ADMIN },
      inA(OWNER),
      "acc_a",
      "not_permitted",
    ],
  ])("%s", ([, allowed, caller, accountId, expected]) => {
    expect(outcomeOf(() => decideAccount(allow(allowed), caller, accountId))).toBe(expected);
  });

  test("is said to be needed, and why", () => {
    const messageOf = (caller: Caller, accountId = "") => {
      try {
        return decideAccount(allow(member), caller, accountId);
      } catch (error) {
        return toApiError(error).message;
      }
    };
    expect([person(), both, ownerAndOperator, admin].map((caller) => messageOf(caller))).toEqual([
      expect.stringMatching(/is required\W*$/),
      expect.stringContaining("because you are a member of several accounts"),
      expect.stringContaining("is required for operators"),
      expect.stringMatching(/is required\W*$/),
    ]);
    expect(messageOf(both, "acc_c")).toBe("No such account.");
    expect(messageOf(both, "acc_a")).toBe("Your role in this account does not permit this.");
  });

  test("may be all at once, for those who see every account and name none", () => {
    const all = (caller: Caller, accountId = "") =>
      outcomeOf(() => {
        checkAllAccounts(allow(member), caller, accountId);
        return "all";
      });
    const admitted = [admin, internal, person({ operator: ADMIN })];
    const others = [plainKey, reader, inA(OWNER), person({ operator: SUPPORT }), anyone];
    expect(admitted.map((caller) => all(caller))).toEqual(admitted.map(() => "all"));
    expect(admitted.map((caller) => all(caller, "acc_a"))).toEqual(
      admitted.map(() => "invalid_request account_id"),
    );
    for (const accountId of ["", "acc_a"])
      expect(others.map((caller) => all(caller, accountId))).toEqual(
        others.map(() => "not_permitted"),
      );
  });

  test("has things that look as absent as those of others", () => {
    const access = (caller: Caller, accountId: string) =>
      outcomeOf(() => {
        const absent = () => new ApiError("not_found", { field: "order_id" });
        checkAccess({ allowed: allow(member), caller }, accountId, absent);
        return "open";
      });
    expect([plainKey, inA(MEMBER), admin, internal].map((one) => access(one, "acc_a"))).toEqual(
      Array(4).fill("open"),
    );
    expect([plainKey, inA(OWNER), anyone].map((one) => access(one, "acc_b"))).toEqual(
      Array(3).fill("not_found order_id"),
    );
    expect(access(inA(VIEWER), "acc_a")).toBe("not_permitted");
  });
});

function outcomeOf(decide: () => string): string {
  try {
    return decide();
  } catch (error) {
    const { reason, facts } = toApiError(error);
    return [reason, facts.field].filter((one) => one !== undefined).join(" ");
  }
}

test("an account has members, outsiders who came as operators, and strangers", () => {
  const operatorInA = { ...inA(VIEWER), operator: SUPPORT };
  const people = [inA(MEMBER), operatorInA, person({ operator: SUPPORT }), person()];
  const seen = (accountId: string) =>
    people.map((one) => [
      ...[roleIn(one, accountId), isOutsider(one, accountId), isStranger(one, accountId)],
    ]);
  expect(seen("acc_a")).toEqual([
    ...[
      [MEMBER, false, false],
      [VIEWER, false, false],
    ],
    ...[
      [AccountRole.UNSPECIFIED, true, false],
      [AccountRole.UNSPECIFIED, true, true],
    ],
  ]);
  expect(seen("acc_b").map(([role, isOut, isNone]) => [role, isOut, isNone])).toEqual([
    ...[
      [0, true, true],
      [0, true, false],
      [0, true, false],
      [0, true, true],
    ],
  ]);
  for (const caller of [plainKey, admin, internal, anyone])
    expect([isOutsider(caller, "acc_b"), isStranger(caller, "acc_b")]).toEqual([false, false]);
});

test("callers have names for what they do, and ids under which their changes are announced", () => {
  const named = { ...environmentToken, name: "ci", tokenId: "adm_1" };
  const callers = [plainKey, named, person(), internal, anyone];
  expect(callers.map(actorOf)).toEqual([
    ...["key:key_1", "token:ci", "person:per_1", "payments", "anyone"],
  ]);
  expect(callers.map(subjectOf)).toEqual([undefined, "adm_1", "per_1", undefined, undefined]);
});

test("a header gives up the operator role, and no other value of it does", () => {
  const headers = new Headers();
  expect(dropsOperatorRole(headers)).toBe(false);
  headers.set("x-operator-role", "admin");
  expect(dropsOperatorRole(headers)).toBe(false);
  dropOperatorRole(headers);
  expect(dropsOperatorRole(headers)).toBe(true);
});

test("a key sees its own data only, unless it is an account reader", () => {
  expect([plainKey, reader, admin, inA(VIEWER)].map(confinedTo)).toEqual([
    "key_1",
    undefined,
    undefined,
    undefined,
  ]);
});

test("a person is asked again once the confirmation is over, no other caller ever", () => {
  const reason = new ApiError("confirm_identity").reason;
  vi.useFakeTimers({ toFake: ["Date"], now: 60_000 });
  try {
    for (const strongUntil of [undefined, new Date(59_999), new Date(60_000)])
      expect(() => checkStrong(person({ strongUntil }))).toThrow(
        expect.objectContaining({ reason }),
      );
    checkStrong(person({ strongUntil: new Date(60_001) }));
  } finally {
    vi.useRealTimers();
  }
  for (const caller of [plainKey, admin, internal, anyone]) checkStrong(caller);
});

describe("the client of a call", () => {
  const requestHeader = new Headers({
    "x-client-address": "203.0.113.9",
    "x-client-agent": "browser",
    "user-agent": "grpc-tool",
  });

  test("is the peer if anybody may have written the headers", () => {
    const expected = { address: "198.51.100.1", agent: "grpc-tool" };
    expect(clientOf({ requestHeader, peer: "198.51.100.1" })).toEqual(expected);
  });

  test("is the one that a listener of ours names", () => {
    const call = { requestHeader, peer: "198.51.100.1", namesClient: true };
    expect(clientOf(call)).toEqual({ address: "203.0.113.9", agent: "browser" });
  });

  test("is named by a listener with at most 300 characters, and is the peer without a name", () => {
    for (const agent of ["", "browser", "x".repeat(301)]) {
      const headers = new Headers();
      nameClient(headers, { address: "203.0.113.9", agent });
      expect(headers.get("x-client-agent")).toBe(agent === "" ? null : agent.slice(0, 300));
      const expected = { address: "203.0.113.9", agent: agent.slice(0, 300) };
      expect(clientOf({ requestHeader: headers, namesClient: true })).toEqual(expected);
    }
    const long = new Headers({ "user-agent": "y".repeat(301) });
    expect(clientOf({ requestHeader: long })).toEqual({
      ...{ address: "", agent: "y".repeat(300) },
    });
    const unnamed = { requestHeader: new Headers(), peer: "::1", namesClient: true };
    expect(clientOf(unnamed)).toEqual({ address: "::1", agent: "" });
  });
});

const methods: DescMethod[] = allServices.flatMap((service) => service.methods);

test("every method names its callers", () => {
  expect(methods.filter((desc) => nobody(desc)).map(({ name }) => name)).toEqual([]);
});

function nobody(desc: DescMethod): boolean {
  const {
    key,
    admin,
    person,
    operatorRole: operator,
    anyone,
    accountReader,
  } = getOption(desc, callers);
  return !key && !admin && !person && !operator && !anyone && !accountReader;
}

/** The writing methods that ask no person for a confirmation, with the reason. */
const unconfirmed: Readonly<Record<string, string>> = {
  CreateAccount: "an empty account has nothing to protect",
  UpdateAccount: "settings can be set back; raising a limit of members asks in the service",
  SetProviderBill: "it can be set back, and moves no credits",
  UpdateKey: "limits can be set back; account_reader, which cannot, asks in the service",
  PauseKey: "ResumeKey takes it back",
  ChangeKeys: "asks in the service for what the methods for one key ask for",
  SetBudget: "limits can be set back; raising or removing one asks in the service",
  ResumeKey: "PauseKey takes it back",
  Reject: "nothing is done, and it can be requested again",
  LookUpPayment: "it asks a node, and changes nothing",
  CreateAccountNote: "it says something to other operators, and nothing else changes",
  ResendDelivery: "it goes to the address that the owner chose, with the same id",
  PlaceHold: "no person may call it",
  CheckpointHold: "no person may call it",
  SettleHold: "no person may call it",
  Generate: "no person may call it",
  BeginSignIn: "stores nothing",
  BeginPasskey: "stores nothing",
  SignInWithPasskey: "it is a sign-in",
  SignInWithPassword: "it is a sign-in",
  BeginOidc: "stores nothing; to add an identity asks in the service",
  FinishOidc: "it is a sign-in or a confirmation, or what BeginOidc let begin",
  SignUp: "makes nobody yet",
  ConfirmEmail: "it is a sign-in",
  RedeemLink: "it is a sign-in, and an invitation gives nothing to the caller's accounts",
  ConfirmIdentity: "it is the confirmation",
  CreateDepositAddress: "it offers where to pay, and takes nothing",
  CreateOrder: "it offers to pay, and takes nothing",
  CancelOrder: "what is paid to a cancelled order still counts",
  RedeemPromotion: "it only adds credits",
  StopPromotion: "whoever sees a code that leaked must not be held up",
  ReceiveWebhook: "no person may call it",
  DismissAlert: "an alert was read, and nothing else changes",
  TestWebhook: "it posts a sample to an address that UpdateAlertSettings has asked about",
  SaveView: "it keeps an address of the console, which opens nothing by itself",
  DeleteView: "it can be saved again",
  EndRequest: "it ends one request, which pays as if its client had left",
  SignOut: "ends one's own session",
  RevokeSession: "ends one's own session: whoever sees a strange one must not be held up",
};

test("every writing method of persons asks for a confirmation, or has a reason not to", () => {
  const isRead = ({ name }: DescMethod) =>
    /^(Watch|Export|Get|List|Find|Search|Query|Count|Preview|Authenticate|Verify)/.test(name);
  const open = methods.filter((desc) => !isRead(desc) && !getOption(desc, strong));
  expect(open.map(({ name }) => name).sort()).toEqual(Object.keys(unconfirmed).sort());
  for (const desc of open.filter(({ name }) => unconfirmed[name] === "no person may call it")) {
    const { person, operatorRole: operator } = getOption(desc, callers);
    expect([desc.name, person, operator]).toEqual([desc.name, 0, 0]);
  }
});

test("what asks for a confirmation leaves an audit event", () => {
  const silent = methods.filter((desc) => getOption(desc, strong) && !getOption(desc, audited));
  expect(silent).toEqual([]);
});
