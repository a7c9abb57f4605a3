// The tables of keys. The only file that runs this folder's statements and reads their rows.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DatabaseError } from "pg";
import {
  type Key,
  KeySchema,
  KeyStatus,
  type Secret,
  SecretSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { ChangePage } from "../base/change-feed.ts";
import { ApiError } from "../base/errors.ts";
import { type FamilyName, familyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Found } from "../base/secret-cache.ts";
import type { Caller } from "../contract/contract.ts";
import { isUnreachable, type Postgres, type Statement, statement } from "../postgres/postgres.ts";
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
  readKeys: timed("read-keys"),
  readSecrets: timed("read-secrets"),
  readLiveSecrets: timed("read-live-secrets"),
  readStatus: timed("read-status"),
  updateKey: timed("update-key"),
  rotateKey: timed("rotate-key"),
  revokeKey: timed("revoke-key"),
  revokeSecret: timed("revoke-secret"),
  hasSecret: timed("has-secret"),
  readChanges: timed("read-changes"),
  removeChanges: timed("remove-changes"),
};

/** A secret that was found by its digest, with its key. */
export type FoundSecret = Found & {
  readonly caller: Caller;
  /** True when the key or this secret of it is revoked. */
  readonly revoked: boolean;
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
};

/** The limits of a key before a change. */
export type EarlierLimits = Omit<Controls, "name">;

export type KeyStore = ReturnType<typeof createKeyStore>;

/** Every function throws `billing_unavailable` while the database is unreachable. */
export function createKeyStore(postgres: Postgres) {
  const query = <Row>(one: Statement, values: readonly unknown[]): Promise<Row[]> =>
    postgres.query<Row>(one, values).catch((cause: unknown) => {
      throw isUnreachable(cause)
        ? new ApiError("billing_unavailable", { retryAfterMs: 1000, cause })
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

  return {
    async findSecrets(digests: readonly string[]): Promise<FoundSecret[]> {
      const rows = await query<FoundRow>(statements.findSecrets, [digests.map(digestBytes)]);
      return rows.map(toFoundSecret);
    },

    /** Throws `not_found` for an unknown account. */
    async createKey(
      accountId: string,
      family: KeyFamily,
      controls: Controls,
      createdBy: string,
      secret: StoredSecret,
    ): Promise<Key> {
      const keyId = timeOrderedId("key_");
      const { name, requestsPerMinute, allowedModels, monthlyCap, accountReader } = controls;
      await query(statements.createKey, [
        ...[
          keyId,
          accountId,
          familyName(family),
          name,
          requestsPerMinute ?? null,
          allowedModels,
          monthlyCap ?? null,
          accountReader,
          createdBy,
        ],
        ...[digestBytes(secret.digest), timeOrderedId("sec_"), secret.hint],
      ]).catch((cause: unknown) => {
        throw isUnknownAccount(cause)
          ? new ApiError("not_found", { field: "account_id", cause })
          : cause;
      });
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
    async listKeys(accountId: string, afterKeyId: string, limit: number): Promise<Key[]> {
      const values = [accountId, afterKeyId, limit];
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
      ];
      const earlier = await changeActive<LimitsRow>(statements.updateKey, keyId, values.flat());
      return {
        requestsPerMinute: earlier.requests_per_minute ?? undefined,
        allowedModels: earlier.allowed_models,
        monthlyCap: earlier.monthly_cap ?? undefined,
        accountReader: earlier.account_reader,
      };
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
     * Ids of the secrets whose active requests may continue. Empty for a revoked or unknown key.
     */
    async liveSecrets(keyId: string): Promise<Set<string>> {
      const rows = await query<{ secret_id: string }>(statements.readLiveSecrets, [keyId]);
      return new Set(rows.map((row) => row.secret_id));
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

type LimitsRow = {
  requests_per_minute: number | null;
  allowed_models: string[];
  monthly_cap: bigint | null;
  account_reader: boolean;
};
type KeyRow = LimitsRow & {
  key_id: string;
  account_id: string;
  family: FamilyName;
  name: string;
  status: keyof typeof statusOf;
  created_by: string;
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
};
type FoundRow = KeyRow & {
  digest: Buffer;
  secret_id: string;
  shown: string;
  secret_created_at: Date;
  expires_at: Date | null;
  secret_revoked_at: Date | null;
  expires_in_ms: number | null;
};
type ChangeRow = { read_at: Date; change_id: string | null; key_id: string | null };

const statusOf = { active: KeyStatus.ACTIVE, revoked: KeyStatus.REVOKED } as const;

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
  });
}

function toFoundSecret(row: FoundRow): FoundSecret {
  const { secret_created_at, secret_revoked_at, ...rest } = row;
  return {
    digest: row.digest.toString("latin1"),
    ownerId: row.key_id,
    caller: {
      kind: "key",
      key: create(KeySchema, keyMembers(row)),
      secret: toSecret({ ...rest, created_at: secret_created_at, revoked_at: secret_revoked_at }),
    },
    revoked: row.status === "revoked" || secret_revoked_at !== null,
    expiresInMs: row.expires_in_ms ?? undefined,
  };
}

/** Foreign key violation. The only foreign key of a key is its account. */
function isUnknownAccount(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23503";
}
