// The tables of keys. The only file that runs this folder's statements and reads their rows.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DatabaseError } from "pg";
import {
  type Key,
  type KeyLabel,
  KeyLabelSchema,
  KeySchema,
  KeyStatus,
  type Secret,
  SecretSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { ChangePage } from "../base/change-feed.ts";
import { ApiError, type ErrorReason } from "../base/errors.ts";
import { type FamilyName, familyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Found } from "../base/secret-cache.ts";
import type { Caller } from "../contract/contract.ts";
import {
  isUnreachable,
  type Postgres,
  type Statement,
  statement,
  type Tx,
} from "../postgres/postgres.ts";
import { digestBytes, type KeyFamily } from "./secret.ts";

// A database that does not answer within this time counts as unreachable.
const answerMsMax = 5_000;

/** A statement of this folder, with that timeout. */
const timed = (file: string): Statement => ({
  ...statement(import.meta.url, file),
  timeoutMs: answerMsMax,
});

const statements = {
  findSecrets: timed("find-secrets"),
  createKey: timed("create-key"),
  pageAccountKeys: timed("page-account-keys"),
  rankAccountKeys: timed("rank-account-keys"),
  readKeys: timed("read-keys"),
  readLabels: timed("read-labels"),
  readSecrets: timed("read-secrets"),
  readLiveSecrets: timed("read-live-secrets"),
  readStatus: timed("read-status"),
  updateKey: timed("update-key"),
  pauseKey: timed("pause-key"),
  recordUses: timed("record-uses"),
  countManaged: timed("count-managed"),
  handOverKeys: timed("hand-over-keys"),
  revokeManaged: timed("revoke-managed"),
  rotateKey: timed("rotate-key"),
  revokeKey: timed("revoke-key"),
  revokeSecret: timed("revoke-secret"),
  hasSecret: timed("has-secret"),
  readChanges: timed("read-changes"),
  removeChanges: timed("remove-changes"),
  announceAccount: timed("announce-account"),
  revokeAccountKeys: timed("revoke-account-keys"),
  readAccountStatus: timed("read-account-status"),
  listEvents: timed("list-events"),
};

/** Why a secret is refused, or its active requests have to end. */
export type Refusal = Extract<ErrorReason, "revoked_key" | "account_suspended">;

/** A secret that was found by its digest, with its key. */
export type FoundSecret = Found & {
  readonly caller: Caller;
  readonly secretId: string;
  /** Undefined: neither the key nor this secret is revoked, and the account is active. */
  readonly refusal: Refusal | undefined;
  readonly paused: boolean;
  /** Which of the two ends after `expiresInMs`. */
  readonly expiresFirst: "key" | "secret";
  /** True if the last recorded use is more than a minute ago. */
  readonly useIsDue: boolean;
};

/** A key that was created or paused lately. */
export type KeyEvent = {
  readonly keyId: string;
  readonly accountId: string;
  readonly name: string;
  readonly hint: string;
  /** As `Key.created_by`. */
  readonly createdBy: string;
  readonly createdAt: Date;
  /** Undefined: it is not paused. */
  readonly pausedAt: Date | undefined;
};

/** The keys of a list. */
export type KeyFilter = {
  /** Undefined: of every status. */
  readonly status: KeyStatus | undefined;
  /** Part of a name or hint, or a key id. Empty: every key. */
  readonly text: string;
};

/** The stored parts of a new secret. */
type StoredSecret = { digest: string; hint: string };

/** The members of a key that the operator sets. Undefined: no limit. */
export type Controls = {
  name: string;
  requestsPerMinute: number | undefined;
  allowedModels: readonly string[];
  monthlyCap: bigint | undefined;
  accountReader: boolean;
  /** Undefined: never. */
  expiresAt: Date | undefined;
};

/** The limits of a key before a change. */
export type EarlierLimits = Omit<Controls, "name">;

export type KeyStore = ReturnType<typeof createKeyStore>;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createKeyStore(postgres: Postgres) {
  const query = <Row>(one: Statement, values: readonly unknown[]): Promise<Row[]> =>
    postgres.query<Row>(one, values).catch((cause: unknown) => {
      throw isUnreachable(cause)
        ? new ApiError("database_unavailable", { retryAfterMs: 1000, cause })
        : cause;
    });

  async function readKeys(keyIds: readonly string[]): Promise<Key[]> {
    if (keyIds.length === 0) return [];
    const [keys, secrets] = await Promise.all([
      query<KeyRow & MonthUsageRow>(statements.readKeys, [keyIds]),
      query<SecretRow & { key_id: string }>(statements.readSecrets, [keyIds]),
    ]);
    const secretsOf = Map.groupBy(secrets, (row) => row.key_id);
    return keys.map((row) =>
      create(KeySchema, {
        ...keyMembers(row),
        ...monthUsage(row),
        secrets: (secretsOf.get(row.key_id) ?? []).map(toSecret),
      }),
    );
  }

  /**
   * Runs a statement that returns a row if it changed the key. Throws `not_found` and
   * `key_not_active`.
   */
  async function changeActive<Row>(
    one: Statement,
    keyId: string,
    values: readonly unknown[],
  ): Promise<Row> {
    const [changed] = await query<Row>(one, [keyId, timeOrderedId("chg_"), ...values]);
    if (changed) return changed;
    const [found] = await query<{ status: string }>(statements.readStatus, [keyId]);
    throw new ApiError(found ? "key_not_active" : "not_found", { field: "key_id" });
  }

  async function isClosed(accountId: string): Promise<boolean> {
    const rows = await query<{ status: AccountStatusName }>(statements.readAccountStatus, [
      accountId,
    ]);
    return rows[0]?.status === "closed";
  }

  return {
    async findSecrets(digests: readonly string[]): Promise<FoundSecret[]> {
      const rows = await query<FoundRow>(statements.findSecrets, [digests.map(digestBytes)]);
      return rows.map(toFoundSecret);
    },

    /** Keys that were created or paused since ten seconds before a time: at most `limit`. */
    async listEvents(since: Date, limit: number): Promise<KeyEvent[]> {
      const rows = await query<EventRow>(statements.listEvents, [since, limit]);
      return rows.map((row) => ({
        keyId: row.key_id,
        accountId: row.account_id,
        name: row.name,
        hint: row.shown ?? "",
        createdBy: row.created_by,
        createdAt: row.created_at,
        pausedAt: row.paused_at ?? undefined,
      }));
    },

    /** Throws `not_found` for an unknown account, and `account_closed`. */
    async createKey(
      accountId: string,
      family: KeyFamily,
      controls: Controls,
      createdBy: string,
      secret: StoredSecret,
    ): Promise<Key> {
      if (await isClosed(accountId)) throw new ApiError("account_closed");
      const keyId = timeOrderedId("key_");
      const { name, requestsPerMinute, allowedModels, monthlyCap } = controls;
      await query(statements.createKey, [
        ...[
          keyId,
          accountId,
          familyName(family),
          name,
          requestsPerMinute ?? null,
          allowedModels,
          monthlyCap ?? null,
          controls.accountReader,
          controls.expiresAt ?? null,
          createdBy,
        ],
        ...[digestBytes(secret.digest), timeOrderedId("sec_"), secret.hint],
        createdBy.startsWith("person:") ? createdBy : "",
        timeOrderedId("chg_"),
      ]).catch((cause: unknown) => {
        throw isUnknownAccount(cause)
          ? new ApiError("not_found", { field: "account_id", cause })
          : cause;
      });
      // The account may have been closed meanwhile, when this key was not there to be revoked.
      if (await isClosed(accountId)) {
        await this.revokeKey(keyId);
        throw new ApiError("account_closed");
      }
      return this.readKey(keyId);
    },

    /** Throws `not_found`. */
    async readKey(keyId: string): Promise<Key> {
      const [key] = await readKeys([keyId]);
      if (!key) throw new ApiError("not_found", { field: "key_id" });
      return key;
    },

    /** A key with its usage of this month, without its secrets. Throws `not_found`. */
    async readWithMonthUsage(keyId: string): Promise<Key> {
      const [row] = await query<KeyRow & MonthUsageRow>(statements.readKeys, [[keyId]]);
      if (!row) throw new ApiError("not_found", { field: "key_id" });
      return create(KeySchema, { ...keyMembers(row), ...monthUsage(row) });
    },

    /** Keys of an account after `afterKeyId`, oldest first. Empty: from the first. */
    /** The keys that spent most in this month, most first. */
    async rankKeys(accountId: string, limit: number): Promise<Key[]> {
      const values = [accountId, limit];
      const rows = await query<{ key_id: string }>(statements.rankAccountKeys, values);
      const ids = rows.map((row) => row.key_id);
      const keys = await readKeys(ids);
      return keys.toSorted((a, b) => ids.indexOf(a.keyId) - ids.indexOf(b.keyId));
    },

    async listKeys(
      accountId: string,
      { status, text }: KeyFilter,
      afterKeyId: string,
      limit: number,
    ): Promise<Key[]> {
      const statusName = nameOfStatus(status);
      const values = [accountId, afterKeyId, limit, statusName, text];
      const ids = await query<{ key_id: string }>(statements.pageAccountKeys, values);
      return readKeys(ids.map((row) => row.key_id));
    },

    /**
     * Changes the members that are present in `controls`. Resolves with the limits of before.
     * Throws `not_found` and `key_not_active`.
     */
    async updateKey(keyId: string, controls: Partial<Controls>): Promise<EarlierLimits> {
      const member = <K extends keyof Controls>(name: K) => [
        name in controls,
        controls[name] ?? null,
      ];
      const values = [
        member("name"),
        member("requestsPerMinute"),
        member("allowedModels"),
        member("monthlyCap"),
        member("accountReader"),
        member("expiresAt"),
      ];
      const earlier = await changeActive<LimitsRow>(statements.updateKey, keyId, values.flat());
      return {
        requestsPerMinute: earlier.requests_per_minute ?? undefined,
        allowedModels: earlier.allowed_models,
        monthlyCap: earlier.monthly_cap ?? undefined,
        accountReader: earlier.account_reader,
        expiresAt: earlier.expires_at ?? undefined,
      };
    },

    /** Pauses a key, or resumes it. Throws `not_found` and `key_not_active`. */
    async pauseKey(keyId: string, paused: boolean): Promise<Key> {
      await changeActive(statements.pauseKey, keyId, [paused]);
      return this.readKey(keyId);
    },

    /** Records that these secrets are in use, each at most once a minute. */
    async recordUses(secretIds: readonly string[]): Promise<void> {
      await query(statements.recordUses, [secretIds]);
    },

    /** Throws `not_found` and `key_not_active`. */
    async rotateKey(keyId: string, secret: StoredSecret, overlapMs: number): Promise<Key> {
      const values = [digestBytes(secret.digest), timeOrderedId("sec_"), secret.hint, overlapMs];
      await changeActive(statements.rotateKey, keyId, values);
      return this.readKey(keyId);
    },

    /** Throws `not_found`. */
    async revokeKey(keyId: string): Promise<Key> {
      await query(statements.revokeKey, [keyId, timeOrderedId("chg_")]);
      return this.readKey(keyId);
    },

    /** Throws `not_found`. */
    async revokeSecret(keyId: string, secretId: string): Promise<Key> {
      const revoked = await query(statements.revokeSecret, [
        keyId,
        secretId,
        timeOrderedId("chg_"),
      ]);
      const known =
        revoked.length > 0 || (await query(statements.hasSecret, [keyId, secretId])).length > 0;
      if (!known) throw new ApiError("not_found", { field: "secret_id" });
      return this.readKey(keyId);
    },

    /**
     * Why the active requests of each secret have to end; undefined: they may continue. Without the
     * revoked secrets; empty for a revoked or unknown key.
     */
    async liveSecrets(keyId: string): Promise<Map<string, Refusal | undefined>> {
      const rows = await query<LiveRow>(statements.readLiveSecrets, [keyId]);
      return new Map(rows.map((row) => [row.secret_id, refusalBy[row.account_status]]));
    },

    /** Tells every process that the keys of an account changed with it. Returns their ids. */
    async announceAccount(tx: Tx, accountId: string): Promise<string[]> {
      const values = [accountId, timeOrderedId("chg_")];
      const rows = await tx.query<{ key_id: string }>(statements.announceAccount, values);
      return rows.map((row) => row.key_id);
    },

    /** Revokes all keys of an account. Returns the ids of those that were active. */
    async revokeAccountKeys(tx: Tx, accountId: string): Promise<string[]> {
      const values = [accountId, timeOrderedId("chg_")];
      const rows = await tx.query<{ key_id: string }>(statements.revokeAccountKeys, values);
      return rows.map((row) => row.key_id);
    },

    /** Changes since ten seconds before `since`. Undefined: before now. */
    async readChanges(since: Date | undefined): Promise<ChangePage> {
      const rows = await query<ChangeRow>(statements.readChanges, [since ?? null]);
      const at = rows[0]?.read_at ?? since ?? new Date();
      return {
        at,
        changes: rows.flatMap(({ change_id, key_id }) =>
          change_id === null || key_id === null ? [] : [{ changeId: change_id, id: key_id }],
        ),
      };
    },

    async removeOldChanges(): Promise<void> {
      await query(statements.removeChanges, []);
    },
  };
}

/** What a person who leaves an account does with the keys that he manages there. */
export type ManagedKeys = {
  /** How many there are, without the revoked ones. */
  count(tx: Tx, manager: Manager): Promise<number>;
  /** Gives all of them to another person of the account. `to` undefined: to its owners alone. */
  handOver(tx: Tx, manager: Manager, to: string | undefined): Promise<void>;
  /** Revokes them for good. Returns the ids for `publish`. */
  revoke(tx: Tx, manager: Manager): Promise<readonly string[]>;
};

/** A person in an account. */
type Manager = { readonly accountId: string; readonly personId: string };

/** All of it runs in the transaction in which the person leaves. */
export const managedKeys: ManagedKeys = {
  async count(tx, { accountId, personId }) {
    const values = [accountId, `person:${personId}`];
    const [row] = await tx.query<{ keys: number }>(statements.countManaged, values);
    return row?.keys ?? 0;
  },
  async handOver(tx, { accountId, personId }, to) {
    const next = to === undefined ? "" : `person:${to}`;
    await tx.query(statements.handOverKeys, [accountId, `person:${personId}`, next]);
  },
  async revoke(tx, { accountId, personId }) {
    const values = [accountId, `person:${personId}`, timeOrderedId("chg_")];
    const rows = await tx.query<{ key_id: string }>(statements.revokeManaged, values);
    return rows.map((row) => row.key_id);
  },
};

/** What people know these keys of an account by, in the order of their ids. */
export async function readLabels(
  db: Tx,
  accountId: string,
  keyIds: readonly string[],
): Promise<KeyLabel[]> {
  if (keyIds.length === 0) return [];
  const rows = await db.query<LabelRow>(statements.readLabels, [accountId, keyIds]);
  return rows.map(({ key_id: keyId, name, hint }) => create(KeyLabelSchema, { keyId, name, hint }));
}

type LabelRow = { key_id: string; name: string; hint: string };
type LimitsRow = {
  requests_per_minute: number | null;
  allowed_models: string[];
  monthly_cap: bigint | null;
  account_reader: boolean;
  expires_at: Date | null;
};
type KeyRow = LimitsRow & {
  key_id: string;
  account_id: string;
  family: FamilyName;
  name: string;
  status: keyof typeof statusOf;
  created_by: string;
  managed_by: string;
  paused: boolean;
  created_at: Date;
  revoked_at: Date | null;
};
type MonthUsageRow = {
  month_spent: bigint;
  month_held: bigint;
  month_resets_at: Date;
  last_used_at: Date | null;
};
type SecretRow = {
  secret_id: string;
  shown: string;
  created_at: Date;
  expires_at: Date | null;
  revoked_at: Date | null;
  last_used_at?: Date | null;
};
type FoundRow = KeyRow & {
  digest: Buffer;
  secret_id: string;
  shown: string;
  secret_created_at: Date;
  secret_expires_at: Date | null;
  secret_revoked_at: Date | null;
  expires_in_ms: number | null;
  use_is_due: boolean;
  account_status: AccountStatusName;
};
type LiveRow = { secret_id: string; account_status: AccountStatusName };
type ChangeRow = { read_at: Date; change_id: string | null; key_id: string | null };

type AccountStatusName = keyof typeof refusalBy;

/** What the status of its account does to a key. */
const refusalBy = {
  active: undefined,
  suspended: "account_suspended",
  closed: "revoked_key",
} as const satisfies Record<string, Refusal | undefined>;

const statusOf = {
  active: KeyStatus.ACTIVE,
  paused: KeyStatus.PAUSED,
  expired: KeyStatus.EXPIRED,
  revoked: KeyStatus.REVOKED,
} as const;

/** The name of a status in statements. Null: of every status. */
function nameOfStatus(status: KeyStatus | undefined): string | null {
  return Object.entries(statusOf).find(([, one]) => one === status)?.[0] ?? null;
}

function keyMembers(row: KeyRow) {
  return {
    keyId: row.key_id,
    accountId: row.account_id,
    family: familyOf(row.family),
    name: row.name,
    status: statusOf[row.status],
    ...(row.requests_per_minute !== null && { requestsPerMinute: row.requests_per_minute }),
    allowedModels: row.allowed_models,
    ...(row.monthly_cap !== null && { monthlyCapMicrocredits: row.monthly_cap }),
    accountReader: row.account_reader,
    createdBy: row.created_by,
    managedBy: row.managed_by,
    paused: row.paused,
    ...(row.expires_at && { expiresAt: timestampFromDate(row.expires_at) }),
    createdAt: timestampFromDate(row.created_at),
    ...(row.revoked_at && { revokedAt: timestampFromDate(row.revoked_at) }),
  };
}

function monthUsage(row: MonthUsageRow) {
  return {
    monthSpentMicrocredits: row.month_spent,
    monthHeldMicrocredits: row.month_held,
    monthResetsAt: timestampFromDate(row.month_resets_at),
    ...(row.last_used_at && { lastUsedAt: timestampFromDate(row.last_used_at) }),
  };
}

function toSecret(row: SecretRow): Secret {
  return create(SecretSchema, {
    secretId: row.secret_id,
    hint: row.shown,
    createdAt: timestampFromDate(row.created_at),
    ...(row.expires_at && { expiresAt: timestampFromDate(row.expires_at) }),
    ...(row.revoked_at && { revokedAt: timestampFromDate(row.revoked_at) }),
    ...(row.last_used_at && { lastUsedAt: timestampFromDate(row.last_used_at) }),
  });
}

function toFoundSecret(row: FoundRow): FoundSecret {
  const { secret_id, shown, expires_at, secret_expires_at, secret_revoked_at } = row;
  const keyExpiresFirst =
    expires_at !== null && (secret_expires_at === null || expires_at <= secret_expires_at);
  const isRevoked = row.status === "revoked" || secret_revoked_at !== null;
  return {
    digest: row.digest.toString("latin1"),
    ownerId: row.key_id,
    secretId: secret_id,
    caller: {
      kind: "key",
      key: create(KeySchema, keyMembers(row)),
      secret: toSecret({
        ...{ secret_id, shown, created_at: row.secret_created_at },
        ...{ expires_at: secret_expires_at, revoked_at: secret_revoked_at },
      }),
    },
    refusal: isRevoked ? "revoked_key" : refusalBy[row.account_status],
    paused: row.paused,
    expiresInMs: row.expires_in_ms ?? undefined,
    expiresFirst: keyExpiresFirst ? "key" : "secret",
    useIsDue: row.use_is_due,
  };
}

/** Foreign key violation. The only foreign key of a key is its account. */
function isUnknownAccount(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23503";
}

type EventRow = {
  key_id: string;
  account_id: string;
  name: string;
  shown: string | null;
  created_by: string;
  created_at: Date;
  paused_at: Date | null;
};
