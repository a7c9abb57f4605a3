// The services with scripted answers. The listeners, the interceptor and the clients in front
// of them are real.

import { create, type DescMethod, type Message } from "@bufbuild/protobuf";
import { AccountRole, AdminScope, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { dropsOperatorRole } from "../../src/contract/callers.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  type Caller,
  environmentToken,
  type Implementation,
  implement,
  type Methods,
  type Person,
  type Services,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { isScripted } from "./observe-errors.ts";
import { leastAccountId } from "./samples/messages.ts";

export const key = "sk-gw2-1-of-the-tests";
export const adminToken = "admin-token-of-the-tests";

/** How every unary method and every stream answers. */
export type Script = {
  unary: (desc: DescMethod, request: Message, call: AuthenticatedCall) => Promise<Message>;
  stream: (desc: DescMethod, request: Message, call: AuthenticatedCall) => AsyncIterable<Message>;
};

/** An empty answer for unary methods, three empty messages for streams. */
export function emptyAnswers(): Script {
  return {
    unary: async (desc) => create(desc.output),
    stream: async function* (desc) {
      for (let index = 0; index < 3; index++) yield create(desc.output);
    },
  };
}

function keyCaller(accountReader: boolean): Caller {
  return {
    kind: "key",
    key: create(KeySchema, { keyId: "key_1", accountId: leastAccountId, accountReader }),
    secret: create(SecretSchema, { secretId: "sec_1" }),
  };
}

function tokenCaller(scope: AdminScope): Caller {
  return { kind: "admin", name: "ci", scope, tokenId: "tok_1" };
}

function person(more: Partial<Person>): Person {
  return {
    kind: "person",
    personId: "per_1",
    sessionId: "ses_1",
    memberships: [],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: new Date("2100-01-01T00:00:00Z"),
    ...more,
  };
}

const member = (role: AccountRole) => ({ memberships: [{ accountId: leastAccountId, role }] });

/** One caller of each kind, with the credential that names it. */
export const callersByKind = {
  key: { credential: `Bearer ${key}`, caller: keyCaller(false) },
  "account reader": { credential: "Bearer sk-gw2-1-reader", caller: keyCaller(true) },
  "admin token": { credential: `Bearer ${adminToken}`, caller: environmentToken },
  "read token": { credential: "Bearer adm-gw2-read", caller: tokenCaller(AdminScope.READ) },
  "keys token": { credential: "Bearer adm-gw2-keys", caller: tokenCaller(AdminScope.KEYS) },
  "money token": { credential: "Bearer adm-gw2-money", caller: tokenCaller(AdminScope.MONEY) },
  stranger: { credential: "Session stranger", caller: person({}) },
  viewer: { credential: "Session viewer", caller: person(member(AccountRole.VIEWER)) },
  member: { credential: "Session member", caller: person(member(AccountRole.MEMBER)) },
  owner: { credential: "Session owner", caller: person(member(AccountRole.OWNER)) },
  "unconfirmed owner": {
    credential: "Session unconfirmed",
    caller: person({ ...member(AccountRole.OWNER), strongUntil: undefined }),
  },
  support: { credential: "Session support", caller: person({ operator: OperatorRole.SUPPORT }) },
  operator: { credential: "Session operator", caller: person({ operator: OperatorRole.ADMIN }) },
} as const satisfies Record<string, { credential: string; caller: Caller }>;
export type CallerKind = keyof typeof callersByKind;

export const authenticate: Authenticate = async (headers) => {
  const credential = headers.get("authorization");
  if (credential === null) throw new ApiError("missing_key");
  const found = Object.values(callersByKind).find((one) => one.credential === credential);
  if (!found) throw new ApiError("invalid_key");
  const caller: Caller = found.caller;
  // As the sessions of persons do.
  if (caller.kind !== "person" || !dropsOperatorRole(headers)) return caller;
  return { ...caller, operator: OperatorRole.UNSPECIFIED };
};

/** Services that answer with `script`, which a test may change between calls. */
export function scriptedServices(script: Script): Services {
  return {
    billing: scriptedService(serviceTypes.billing, script),
    keys: scriptedService(serviceTypes.keys, script),
    inference: scriptedService(serviceTypes.inference, script),
    people: scriptedService(serviceTypes.people, script),
    payments: scriptedService(serviceTypes.payments, script),
    alerts: scriptedService(serviceTypes.alerts, script),
    operations: scriptedService(serviceTypes.operations, script),
  };
}

const log = createLog("silent");

/** One such service, behind its interceptor. */
export function scriptedService<S extends Methods>(service: S, script: Script): Implementation<S> {
  const implementation = implement<Implementation<S, AuthenticatedCall>>(service, (desc) =>
    desc.methodKind === "unary"
      ? (request: Message, call: AuthenticatedCall) => script.unary(desc, request, call)
      : (request: Message, call: AuthenticatedCall) => script.stream(desc, request, call),
  );
  return intercept(service, isScripted(implementation), { authenticate, log });
}
