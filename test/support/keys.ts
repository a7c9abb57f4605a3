// The keys service on a database of its own, with a record of its statements.

import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  AuthenticateRequestSchema,
  CreateKeyRequestSchema,
  GetKeyRequestSchema,
  type KeySettingsSchema,
  ListKeysRequestSchema,
  PauseKeyRequestSchema,
  ResumeKeyRequestSchema,
  RevokeKeyRequestSchema,
  RevokeSecretRequestSchema,
  RotateKeyRequestSchema,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Clock } from "../../src/base/clock.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys } from "../../src/billing/billing.ts";
import {
  type AuthenticatedCall,
  boundMethod,
  environmentToken,
  type Implementation,
  implement,
  type Methods,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { checkRequest } from "../../src/contract/validate.ts";
import { createKeys, type Keys } from "../../src/keys/keys.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import type { Redis } from "../../src/redis/redis.ts";
import { callBy } from "./calls.ts";
import { freshDatabase } from "./database.ts";
import { query } from "./query.ts";

export const adminToken = "admin-token-of-the-tests";
const models = new Map([
  ["model-opus-4.6", "model-opus-4.6"],
  ["opus", "model-opus-4.6"],
  ["model-haiku-4.5", "model-haiku-4.5"],
  ["haiku", "model-haiku-4.5"],
]);

export const adminCall = callBy(environmentToken);

/** `ran` has the names of the statements, in the order of their execution. */
export type CountedPostgres = Postgres & { ran: string[] };

export function countStatements(postgres: Postgres): CountedPostgres {
  const ran: string[] = [];
  return {
    ...postgres,
    ran,
    run: (statement, ...values) => {
      ran.push(statement.name);
      return postgres.run(statement, ...values);
    },
  };
}

type NodeOptions = {
  redis?: Redis | undefined;
  clock?: Clock;
  onMisplaced?: Parameters<typeof createKeys>[0]["onMisplaced"];
};

/** The keys service of one node, not started. */
export function createNodeKeys(
  postgres: Postgres,
  { redis, clock, onMisplaced }: NodeOptions = {},
): Keys {
  const keys = createKeys({
    budgets: budgetsOfKeys,
    postgres,
    adminToken,
    resolveModel: (name) => models.get(name),
    log: createLog("silent"),
    hints: redis,
    clock,
    ...(onMisplaced && { onMisplaced }),
  });
  return { ...keys, service: checked(serviceTypes.keys, keys.service) };
}

/** The same service, whose requests are checked as its interceptor does. */
function checked<S extends Methods>(
  service: S,
  implementation: Implementation<S, AuthenticatedCall>,
): Implementation<S, AuthenticatedCall> {
  return implement(service, (desc) => {
    const method = boundMethod(implementation, desc);
    return async (request: Message, call: AuthenticatedCall) => {
      checkRequest(desc.input, request);
      return method.run(request, call);
    };
  });
}

/** The fields of a message as plain values. */
export type Fields<Schema extends DescMessage> = Exclude<
  MessageInitShape<Schema>,
  { $typeName: string }
>;

/** A request for a key. Its settings get a name if they have none. */
export type NewKey = Omit<Fields<typeof CreateKeyRequestSchema>, "settings"> & {
  readonly settings?: Fields<typeof KeySettingsSchema>;
};

/** The methods of the service, called as the operator, with plain objects as requests. */
export function keysClient({ service }: Keys) {
  return {
    createKey: (request: NewKey) =>
      service.createKey(
        create(CreateKeyRequestSchema, {
          family: Family.V1,
          ...request,
          settings: { name: "a key", ...request.settings },
        }),
        callBy(environmentToken, { accountId: request.accountId ?? "" }),
      ),
    getKey: (keyId: string) => service.getKey(create(GetKeyRequestSchema, { keyId }), adminCall),
    listKeys: (request: MessageInitShape<typeof ListKeysRequestSchema>) =>
      service.listKeys(
        create(ListKeysRequestSchema, request),
        callBy(environmentToken, { accountId: request.accountId ?? "" }),
      ),
    updateKey: (request: MessageInitShape<typeof UpdateKeyRequestSchema>) =>
      service.updateKey(create(UpdateKeyRequestSchema, request), adminCall),
    rotateKey: (request: MessageInitShape<typeof RotateKeyRequestSchema>) =>
      service.rotateKey(create(RotateKeyRequestSchema, request), adminCall),
    pauseKey: (keyId: string) =>
      service.pauseKey(create(PauseKeyRequestSchema, { keyId }), adminCall),
    resumeKey: (keyId: string) =>
      service.resumeKey(create(ResumeKeyRequestSchema, { keyId }), adminCall),
    revokeKey: (keyId: string) =>
      service.revokeKey(create(RevokeKeyRequestSchema, { keyId }), adminCall),
    revokeSecret: (keyId: string, secretId: string) =>
      service.revokeSecret(create(RevokeSecretRequestSchema, { keyId, secretId }), adminCall),
    authenticate: (
      request: MessageInitShape<typeof AuthenticateRequestSchema>,
      call: AuthenticatedCall,
    ) => service.authenticate(create(AuthenticateRequestSchema, request), call),
  };
}

export type KeysClient = ReturnType<typeof keysClient>;

const insertAccount = {
  name: "test/insert-account",
  text: `with made as (insert into accounts (account_id, name) values ($1, $1))
    insert into pools (account_id, family) values ($1, 'v1'), ($1, 'v2')`,
};

/** A database with the accounts `acc_a` and `acc_b`, and one node's keys on it. */
export async function startTestKeys(options: { clock?: Clock } = {}) {
  const { postgres, url, drop } = await freshDatabase();
  for (const accountId of ["acc_a", "acc_b"]) await query(postgres, insertAccount, [accountId]);
  const database = countStatements(postgres);
  const keys = createNodeKeys(database, options);
  return { database, url, keys, client: keysClient(keys), drop };
}

export function bearer(token: string): Headers {
  return new Headers({ authorization: `Bearer ${token}` });
}

/** The reason of a failed call, followed by the field when it has one. */
export async function errorOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [error.reason, error.facts.field].filter((one) => one !== undefined).join(" ");
  }
  return "no error";
}
