// API keys: authentication of callers, and the administration of keys.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { KeyLabel } from "../../gen/gateway/common/v1/key_label_pb.ts";
import {
  type AuthenticateRequest,
  type AuthenticateResponse,
  AuthenticateResponseSchema,
  type Key,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { ManagementKey } from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import * as sql from "../../gen/sql/keys.ts";
import { plainCell } from "../base/cells.ts";
import { createChanges } from "../base/change-feed.ts";
import type { MisplacedUse } from "../base/client-address.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { walkPages } from "../base/paging.ts";
import type {
  Authenticate,
  AuthenticatedCall,
  Caller,
  Implementation,
  ManagementCaller,
  serviceTypes,
} from "../contract/contract.ts";
import type { CountChange } from "../contract/interceptor.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { type Hints, hintsOn } from "../redis/redis.ts";
import {
  type CheckManager,
  createKey,
  getKey,
  listKeys,
  pauseKey,
  type ResolveModel,
  rankOf,
  resumeKey,
  revokeKey,
  revokeSecret,
  rotateKey,
  updateKey,
} from "./administration.ts";
import { createAuthentication } from "./authenticate.ts";
import { changeKeys } from "./change-keys.ts";
import { LastUse } from "./last-use.ts";
import {
  type CheckOwner,
  countChange,
  createManagementAuthentication,
  createManagementKey,
  listManagementKeys,
  revokeManagementKey,
  rotateManagementKey,
  updateManagementKey,
  walkManagementKeys,
} from "./management.ts";
import { RevocationCheck } from "./revocation.ts";
import {
  accountKeys,
  type BudgetsOfKeys,
  createKeyStore,
  type KeyEvent,
  type KeyStore,
  type ManagedKeys,
  managedKeys,
  noFilter,
  type Refusal,
  readLabels,
} from "./store.ts";

export type Keys = {
  /** Without authentication: the interceptor has authenticated the caller. */
  service: Implementation<typeof serviceTypes.keys, AuthenticatedCall>;
  authenticate: Authenticate;
  countChange: CountChange;
  /**
   * Calls `listener` for each change of a key, and of what `announceChange` names, on every node,
   * within a second of its commit.
   */
  onChanged(listener: (change: { keyId: string }) => void): () => void;
  /**
   * Why the active requests of this secret have to end: it or its key is revoked, or the account is
   * suspended. Undefined: they may continue; a pause and the expiry do not end them. Reads the
   * database.
   */
  refusalOf(keyId: string, secretId: string): Promise<Refusal | undefined>;
  readonly ofAccount: KeysOfAccount;
  /** The keys of the feed that were created or paused since ten seconds before a time. */
  listEvents(since: Date, limit: number): Promise<readonly KeyEvent[]>;
  /** The keys of a person who leaves an account. */
  readonly managed: ManagedKeys & {
    /** Call after the commit: this process follows at once, others by the feed. */
    publish(keyIds: readonly string[]): void;
  };
  /** Starts to read the changes that other nodes make. */
  start(): void;
  stop(): Promise<void>;
};

/** What a change of an account does to its keys. */
type KeysOfAccount = {
  /** True if the account has this management key, and it is not revoked. */
  hasManagementKey(tx: Runner, accountId: string, managementKeyId: string): Promise<boolean>;
  /**
   * Throws `not_permitted` and `revoked_key` unless it may change the keys that it made. It may do
   * so until the end of the transaction.
   */
  checkProgram(tx: Runner, caller: ManagementCaller): Promise<void>;
  /**
   * Announces, in the transaction that changes the status of an account, that its keys changed.
   * Returns the ids for `publish`.
   */
  announce(tx: Runner, accountId: string): Promise<readonly string[]>;
  /** Announces in the same way that something else changed, on which requests depend. */
  announceChange(tx: Runner, changedId: string): Promise<readonly string[]>;
  /** Revokes all of them in the same way, for good. */
  revokeAll(tx: Runner, accountId: string): Promise<readonly string[]>;
  /** All keys, and then all management keys, oldest first, without their secrets. */
  export(accountId: string): AsyncIterable<{ keys: Key[] } | { managementKeys: ManagementKey[] }>;
  /** What people know these keys of an account by, in the order of their ids. */
  labels(db: Runner, accountId: string, keyIds: readonly string[]): Promise<KeyLabel[]>;
  /** Call after the commit: this process follows at once, others by the feed. */
  publish(keyIds: readonly string[]): void;
};

const byMaking = { sort: "made", descending: false, skip: 0 } as const;

/** The channel of Redis through which nodes tell each other that some key changed. */
export const hintChannel = "gateway:keys-changed";

export function createKeys(parts: {
  postgres: Pick<Postgres, "run" | "transaction">;
  budgets: BudgetsOfKeys;
  /** Named by new secrets. Default: that of one installation alone. */
  cell?: string;
  /** Empty: no token authenticates the operator. */
  adminToken: string;
  resolveModel: ResolveModel;
  /** Default: people are what the call says. */
  checkManager?: CheckManager;
  /** Default: every person owns every account. */
  checkOwner?: CheckOwner;
  /** How many live keys the people of an account may make. Absent: any number, at any pace. */
  keysMax?: () => number;
  log: Log;
  /** Makes other nodes read the change feed at once, not within 0.5 s. */
  hints?: Hints | undefined;
  /** Called for each call from an address that the list of its key does not allow. */
  onMisplaced?: (use: MisplacedUse) => void;
  /** Called at each use of the admin token. */
  onAdminUse?: (() => void) | undefined;
  /** How long a call waits for an unreachable database. */
  maxWaitMs?: number;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
  /** Absent: nothing is counted. */
  metrics?: Metrics | undefined;
}): Keys {
  const { adminToken, resolveModel, log, hints, clock } = parts;
  const store = createKeyStore(parts.postgres, parts.budgets);
  const lastUse = new LastUse((secretIds) => store.run(sql.recordUses, { secretIds }), log);
  const revocation = new RevocationCheck(store.liveSecrets, clock);
  const changes = createChanges({
    source: {
      name: "keys",
      read: store.readChanges,
      clean: () => store.run(sql.removeChanges),
    },
    hints: hints && hintsOn(hints, hintChannel),
    clock,
    log,
  });
  const { checkOwner = async () => {}, onMisplaced } = parts;
  const { cell = plainCell } = parts;
  const managing = { postgres: parts.postgres, cell, changes, checkOwner, onMisplaced };
  const management = createManagementAuthentication(managing);
  const { authenticate, forget } = createAuthentication({
    adminToken,
    findSecrets: store.findSecrets,
    onUse: (secretId) => lastUse.add(secretId),
    authenticateManagement: management.authenticate,
    onMisplaced: parts.onMisplaced,
    onAdminUse: parts.onAdminUse,
    maxWaitMs: parts.maxWaitMs,
    clock,
    metrics: parts.metrics,
  });
  // Registered first: other listeners may read the key at once.
  changes.onChanged((keyId) => {
    forget(keyId);
    management.forget(keyId);
    revocation.forget(keyId);
  });

  const { checkManager = async (_, accountId, person) => rankOf(person, accountId), keysMax } =
    parts;
  const all = { store, cell, changes, resolveModel, checkManager, keysMax };
  return {
    service: {
      createKey: (request, call) => createKey(all, request, call),
      getKey: (request, call) => getKey(all, request, call),
      listKeys: (request, call) => listKeys(all, request, call),
      updateKey: (request, call) => updateKey(all, request, call),
      changeKeys: (request, call) => changeKeys(all, request, call),
      rotateKey: (request, call) => rotateKey(all, request, call),
      pauseKey: (request, call) => pauseKey(all, request, call),
      resumeKey: (request, call) => resumeKey(all, request, call),
      revokeKey: (request, call) => revokeKey(all, request, call),
      revokeSecret: (request, call) => revokeSecret(all, request, call),
      authenticate: (request, { caller }) => describeCaller(store, request, caller),
      createManagementKey: (request, call) => createManagementKey(managing, request, call),
      listManagementKeys: (request, call) => listManagementKeys(managing, request, call),
      updateManagementKey: (request, call) => updateManagementKey(managing, request, call),
      rotateManagementKey: (request, call) => rotateManagementKey(managing, request, call),
      revokeManagementKey: (request, call) => revokeManagementKey(managing, request, call),
    },
    authenticate,
    countChange: (caller) => countChange(parts.postgres, caller),
    onChanged: (listener) => changes.onChanged((keyId) => listener({ keyId })),
    listEvents: (since, rows) => store.run(sql.listEvents, { since, rows }),
    refusalOf: (keyId, secretId) => revocation.refusalOf(keyId, secretId),
    ofAccount: {
      ...accountKeys,
      async *export(accountId) {
        const pages = walkPages({
          read: (after, limit) =>
            store.listKeys(accountId, noFilter, { ...byMaking, after: after ?? "", rows: limit }),
          cursorOf: ({ keyId }) => keyId,
        });
        for await (const keys of pages) yield { keys };
        for await (const some of walkManagementKeys(parts.postgres, accountId))
          yield { managementKeys: some };
      },
      labels: readLabels,
      publish: (keyIds) => keyIds.forEach(changes.publish),
    },
    managed: {
      ...managedKeys,
      publish: (keyIds) => keyIds.forEach(changes.publish),
    },
    start() {
      changes.start();
      lastUse.start();
    },
    async stop() {
      await changes.stop();
      await lastUse.stop();
    },
  };
}

async function describeCaller(
  store: KeyStore,
  request: AuthenticateRequest,
  caller: Caller,
): Promise<AuthenticateResponse> {
  if (caller.kind === "admin") {
    const { name, scope, tokenId } = caller;
    return create(AuthenticateResponseSchema, { admin: { name, scope, tokenId: tokenId ?? "" } });
  }
  if (caller.kind === "person") {
    const { personId, sessionId, memberships, operator, strongUntil } = caller;
    return create(AuthenticateResponseSchema, {
      person: {
        personId,
        sessionId,
        operatorRole: operator,
        memberships: [...memberships],
        ...(strongUntil && { strongUntil: timestampFromDate(strongUntil) }),
      },
    });
  }
  if (caller.kind === "management") {
    const { managementKeyId, accountId, name, scopes } = caller;
    return create(AuthenticateResponseSchema, {
      management: { managementKeyId, accountId, name, scopes: [...scopes] },
    });
  }
  // The method admits no other caller.
  if (caller.kind !== "key") throw new ApiError("not_permitted");
  const { key, secret, isLimited = false, priceListId = "" } = caller;
  return create(AuthenticateResponseSchema, {
    key: request.includeUsage ? await store.readWithMonthUsage(key.keyId) : key,
    secret,
    limited: isLimited,
    priceListId,
  });
}
