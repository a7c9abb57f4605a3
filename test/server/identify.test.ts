// Two kinds of credential, each good for one kind of caller only.

import { expect, test } from "vitest";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { type Authenticate, environmentToken, type Person } from "../../src/contract/contract.ts";
import { identifyBy } from "../../src/server/accounts.ts";

const person: Person = {
  kind: "person",
  personId: "per_1",
  sessionId: "ses_1",
  memberships: [],
  operator: OperatorRole.UNSPECIFIED,
  strongUntil: undefined,
};
const people: Authenticate = async (headers) => {
  if (!/^session good-session$/i.test(headers.get("authorization") ?? ""))
    throw new ApiError("invalid_key");
  return person;
};
const keys: Authenticate = async (headers) => {
  const credential = headers.get("authorization");
  if (credential === null) throw new ApiError("missing_key");
  if (credential !== "Bearer good-key") throw new ApiError("invalid_key");
  return environmentToken;
};

test.for([
  ["a session", "Session good-session", "person"],
  ["a session in small letters", "session good-session", "person"],
  ["a key", "Bearer good-key", "admin"],
  ["a session as a key", "Bearer good-session", "invalid_key"],
  ["a key as a session", "Session good-key", "invalid_key"],
  ["a session of another scheme", "Sessions good-session", "invalid_key"],
  ["an empty session", "Session", "invalid_key"],
  ["no credential", undefined, "missing_key"],
])("%s finds its caller, or none", async ([, credential, expected]) => {
  const headers = new Headers(credential === undefined ? {} : { authorization: credential });
  const found = await identifyBy(
    keys,
    people,
  )(headers).then(
    ({ kind }) => kind,
    (error: ApiError) => error.reason,
  );
  expect(found).toBe(expected);
});
