// The tables of keys: what is more than one statement, or makes messages of rows.

import assert from "node:assert/strict";
import { create, fromJsonString } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type KeyLabel, KeyLabelSchema } from "../../gen/gateway/common/v1/key_label_pb.ts";
import { ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type Key,
  type KeyGroup,
  KeyGroupSchema,
  KeySchema,
  KeyState,
  type Secret,
  SecretSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  type ChildLimits,
  ChildLimitsSchema,
} from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import * as sql from "../../gen/sql/keys.ts";
import { toActor } from "../base/actors.ts";
import { type BudgetLimits, limitsOf, readBudget, toBudget } from "../base/budgets.ts";
import type { ChangePage } from "../base/change-feed.ts";
import { type AddressMatcher, matcherOf } from "../base/client-address.ts";
import { ApiError, type ErrorReason, tooOften } from "../base/errors.ts";
import { type FamilyName, familyName, familyNames, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { shownName } from "../base/names.ts";
import type { Found } from "../base/secret-cache.ts";
import { noTags, type Tags } from "../base/tags.ts";
import { actorOf } from "../contract/callers.ts";
import type { KeyCaller, ManagementCaller } from "../contract/contract.ts";
import type { CreateOnce } from "../contract/replays.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";
import { digestBytes, type KeyFamily } from "./secret.ts";

/** Why a secret is refused, or its active requests have to end. */
export type Refusal = Extract<ErrorReason, "revoked_key" | "account_suspended">;

/** A secret that was found by its digest, with its key. */
export type FoundSecret = Found & {
  readonly caller: KeyCaller;
  readonly secretId: string;
  /** Undefined: neither the key nor this secret is revoked, and the account is active. */
  readonly refusal: Refusal | undefined;
  readonly paused: boolean;
  /** Where the key may be used. Undefined: everywhere. */
  readonly isAllowedAt: AddressMatcher | undefined;
  /** Which of the two ends after `expiresInMs`. */
  readonly expiresFirst: "key" | "secret";
  /** True if the last recorded use is more than a minute ago. */
  readonly useIsDue: boolean;
};

/** A key that was created or paused lately. `createdBy`: as `Key.created_by`. */
export type KeyEvent = sql.ListEventsRow;

/** The keys of a list. */
export type KeyFilter = {
  /** Empty: of every status. */
  readonly statuses: readonly KeyState[];
  /** Part of a name or hint, or a key id. Empty: every key. */
  readonly text: string;
  /** Tags that each of them has. */
  readonly tags: Tags;
  /** The key of a tag that none of them has. Empty: every key. */
  readonly withoutTag: string;
  readonly attention: Attention | "";
  /** Empty: every key. */
  readonly keyIds: readonly string[];
};

/** Why keys deserve a look, as statements name it. */
export type Attention = "unused" | "expires_soon" | "near_budget";

/** Every key. */
export const noFilter: KeyFilter = {
  ...{ statuses: [], text: "", tags: noTags, withoutTag: "" },
  ...{ attention: "", keyIds: [] },
};

/** A page of the groups of a tag. */
export type GroupPage = {
  readonly tag: string;
  readonly prefix: string;
  /** A value: the page begins behind it. Undefined: from the first. */
  readonly after: string | undefined;
  readonly rows: number;
};

/** A page of a list. */
export type KeyPage = {
  readonly sort: "made" | "spent" | "name" | "used";
  readonly descending: boolean;
  /** A key id: the page begins behind it. Only in the order of their making. Empty: anywhere. */
  readonly after: string;
  /** How many keys stand before the page, in another order. */
  readonly skip: number;
  readonly rows: number;
};

/** A new secret, and the parts of it that are stored. */
export type NewSecret = {
  readonly secret: string;
  readonly stored: { readonly digest: Buffer; readonly secretId: string; readonly hint: string };
};

export type NewKey = Controls & {
  readonly family: KeyFamily;
  readonly createdBy: string;
  readonly limitedByOwner: boolean;
  readonly limitedByProgram: boolean;
  readonly budget: BudgetLimits;
};

/**
 * As what a caller changes keys: operators and admin tokens do so as an owner. A member changes
 * those that he manages.
 */
export type Rank = "owner" | "member" | "program";

/** What a caller may do with keys. `parent`: undefined if no management key bounds them. */
export type Admitted = { readonly rank: Rank; readonly parent: Parent | undefined };

/**
 * Throws if the caller may not change the key any more. What it resolves with stays so until the
 * end of the transaction.
 */
export type Admit = (tx: Runner) => Promise<Admitted>;

/** How many keys an account may have, and make. Absent: any number. */
export type Bounds = {
  readonly liveMax?: number | undefined;
  readonly perHourMax?: number | undefined;
};

export type HowCreated = {
  readonly once: CreateOnce;
  readonly admit: Admit;
  /**
   * The key that may be made. Throws what its parent refuses, and if there may be no further key.
   * The account is locked.
   */
  readonly decide: (tx: Runner, admitted: Admitted) => Promise<NewKey>;
};

/** A key as it is now. `secret`: empty if an earlier call made it, and it was not kept. */
export type Created = { readonly key: Key; readonly secret: string };

/** What a key is limited to. Null: no limit; it does not expire. */
export type Limits = Pick<
  sql.LockKeyRow,
  "requestsPerMinute" | "allowedModels" | "accountReader" | "expiresAt" | "allowedAddresses"
> & { readonly budget: BudgetLimits };

/** The members of a key that a caller sets. */
export type Controls = Omit<Limits, "budget"> & {
  name: string;
  readonly budget: Partial<BudgetLimits>;
  /** All of them. */
  readonly tags: Tags;
};

/** Tags that keys get, and the keys of tags that they lose. */
export type NewTags = { readonly set: Tags; readonly removed: readonly string[] };

/** One of the keys that change at once, locked. */
export type LockedKey = sql.LockKeysRow & { readonly limits: Limits; readonly keyTags: Tags };

/** What is written of one of the keys that change at once. */
export type KeyWrite =
  | { readonly kind: "pause"; readonly next: Pause }
  | { readonly kind: "revoke" }
  | { readonly kind: "limits"; readonly change: KeyChange }
  | { readonly kind: "tags"; readonly change: NewTags };

/** What many keys wait for, before they are locked. */
export type ManyKeys = {
  readonly accountId: string;
  readonly keyIds: readonly string[];
  /** True: the account is locked, because keys may be live again. */
  readonly countsKeys: boolean;
  /** True: no request of its pools is admitted meanwhile. */
  readonly setsBudgets: boolean;
};

/** A key as it is before a change. */
export type EarlierKey = Limits &
  Pick<sql.LockKeyRow, "limitedByOwner" | "limitedByProgram" | "isExpired">;

/** A change of a key. `limitedBy`: who limits it from now on; undefined: as before. */
export type KeyChange = {
  readonly controls: Partial<Controls>;
  readonly limitedBy: Exclude<Rank, "member"> | undefined;
};

/** Who paused a key, if it is paused: what owners and programs paused, members do not resume. */
export type Pause = Pick<sql.LockKeyRow, "paused" | "pausedByOwner" | "pausedByProgram">;

/** What becomes of a change that was asked for. */
export type DecideChange = (
  tx: Runner,
  earlier: EarlierKey,
  admitted: Admitted,
) => Promise<KeyChange>;

/** What the ledger does for keys, in the transaction that changes them. */
export type BudgetsOfKeys = {
  /** Gives a new key its budget. */
  open(tx: Runner, key: KeyOfPool, limits: BudgetLimits): Promise<void>;
  /** Admits no request of the pool until the end of the transaction. Before any lock of a key. */
  lock(tx: Runner, key: Omit<KeyOfPool, "keyId">): Promise<void>;
  /** Sets the limits that are present, of keys of one pool, which is locked. */
  changeLimits(tx: Runner, keys: KeysOfPool, limits: Partial<BudgetLimits>): Promise<void>;
  /**
   * What keys were charged on each of the last UTC days up to today, in micro-credits, by key id
   * and then by the place of the day, 0 for the first. Days without a charge are missing.
   */
  readDays(
    db: Runner,
    accountId: string,
    keyIds: readonly string[],
    days: number,
  ): Promise<ReadonlyMap<string, ReadonlyMap<number, bigint>>>;
};

type KeysOfPool = Omit<KeyOfPool, "keyId"> & { readonly keyIds: readonly string[] };

type KeyOfPool = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly keyId: string;
};

export type KeyStore = ReturnType<typeof createKeyStore>;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createKeyStore(
  { run, transaction }: Pick<Postgres, "run" | "transaction">,
  budgets: BudgetsOfKeys,
) {
  async function readKeys(keyIds: readonly string[]): Promise<Key[]> {
    if (keyIds.length === 0) return [];
    const [keys, secrets] = await Promise.all([
      run(sql.readKeys, { keyIds }),
      run(sql.readSecrets, { keyIds }),
    ]);
    const secretsOf = Map.groupBy(secrets, ({ keyId }) => keyId);
    return keys.map((row) => toKey(row, secretsOf.get(row.keyId)));
  }

  async function notActive(keyId: string): Promise<never> {
    const found = await run(sql.readStatus, { keyId });
    throw new ApiError(found ? "key_not_active" : "not_found", { field: "key_id" });
  }

  /** Locks an active key. Throws `not_found` and `key_not_active`. */
  async function lockKey(tx: Runner, keyId: string): Promise<sql.LockKeyRow> {
    return (await tx.run(sql.lockKey, { keyId })) ?? notActive(keyId);
  }

  /** Writes limits and names of keys of one pool. They are locked, and the pool if it has to be. */
  async function writeLimits(
    tx: Runner,
    pool: Omit<KeyOfPool, "keyId">,
    keyIds: readonly string[],
    { controls, limitedBy }: KeyChange,
  ): Promise<void> {
    await tx.run(sql.updateKeys, {
      ...{ name: null, requestsPerMinute: null, allowedModels: null },
      ...{ accountReader: null, expiresAt: null, allowedAddresses: null },
      ...controls,
      keyIds,
      changeId: newChange(),
      limitedByOwner: limitedBy === undefined ? null : true,
      limitedByProgram: limitedBy === undefined ? null : limitedBy === "program",
      hasName: "name" in controls,
      hasRequestsPerMinute: "requestsPerMinute" in controls,
      hasAllowedModels: "allowedModels" in controls,
      hasAccountReader: "accountReader" in controls,
      hasExpiresAt: "expiresAt" in controls,
      hasAllowedAddresses: "allowedAddresses" in controls,
    });
    const { accountId, family } = pool;
    if (controls.budget)
      await budgets.changeLimits(tx, { accountId, family, keyIds }, controls.budget);
  }

  async function writeKeys(
    tx: Runner,
    pool: Omit<KeyOfPool, "keyId">,
    keyIds: readonly string[],
    write: KeyWrite,
  ): Promise<void> {
    switch (write.kind) {
      case "pause":
        await tx.run(sql.pauseKeys, { ...write.next, keyIds, changeId: newChange() });
        return;
      case "revoke":
        await tx.run(sql.revokeKeys, { keyIds, changeId: newChange() });
        return;
      case "limits":
        return writeLimits(tx, pool, keyIds, write.change);
      case "tags":
        // Counts the change, and announces it.
        await writeLimits(tx, pool, keyIds, { controls: {}, limitedBy: undefined });
        return changeTags(tx, pool.accountId, keyIds, write.change);
    }
  }

  return {
    run,

    async findSecrets(digests: readonly string[]): Promise<FoundSecret[]> {
      const rows = await run(sql.findSecrets, { digests: digests.map(digestBytes) });
      return rows.map(toFoundSecret);
    },

    /**
     * Creates a key unless an earlier call has. Throws `not_found` for an unknown account,
     * `account_closed`, and what `how` throws.
     */
    async createKey(accountId: string, secret: NewSecret, how: HowCreated): Promise<Created> {
      const { once, admit, decide } = how;
      const keyId = timeOrderedId("key_");
      const made = await transaction(async (tx) => {
        const account = await tx.run(sql.lockAccount, { accountId });
        if (!account) throw new ApiError("not_found", { field: "account_id" });
        if (account.status === "closed") throw new ApiError("account_closed");
        const admitted = await admit(tx);
        return once(tx, { id: keyId, secret: secret.secret }, async () => {
          const key = await decide(tx, admitted);
          const managedBy = /^(person|mgmt):/.test(key.createdBy) ? key.createdBy : "";
          const family = familyName(key.family);
          const row = { ...key, accountId, keyId, family, managedBy, ...secret.stored };
          await tx.run(sql.createKey, { ...row, changeId: newChange() });
          await budgets.open(tx, { keyId, accountId, family }, key.budget);
          await changeTags(tx, accountId, [keyId], { set: key.tags, removed: [] });
        });
      });
      return { key: await this.readKey(made.id), secret: made.secret };
    },

    /** Throws `not_found`. */
    async readKey(keyId: string): Promise<Key> {
      const [key] = await readKeys([keyId]);
      if (!key) throw new ApiError("not_found", { field: "key_id" });
      return key;
    },

    /** A key with its budget, without its secrets. Throws `not_found`. */
    async readWithMonthUsage(keyId: string): Promise<Key> {
      const [row] = await run(sql.readKeys, { keyIds: [keyId] });
      if (!row) throw new ApiError("not_found", { field: "key_id" });
      return toKey(row);
    },

    /** How many keys of an account are neither revoked nor expired. */
    countLive: async (accountId: string): Promise<number> =>
      (await run(sql.countLive, { accountId })).keys,

    /** How many of these keys name a model, by its id; by an empty one, how many name none. */
    countByModel: async (accountId: string): Promise<ReadonlyMap<string, number>> =>
      new Map((await run(sql.countByModel, { accountId })).map(({ model, keys }) => [model, keys])),

    /** How many keys of an account deserve each look. */
    countAttention: (accountId: string) => run(sql.countAttention, { accountId }),

    /** The keys of tags that keys of an account have, in their order. */
    listTagKeys: async (accountId: string, rows: number): Promise<string[]> =>
      (await run(sql.listTagKeys, { accountId, rows })).map(({ tag }) => tag),

    /** The keys of an account by the value of a tag, in the order of the values. */
    async listGroups(accountId: string, filter: KeyFilter, page: GroupPage): Promise<KeyGroup[]> {
      const { after = null, ...place } = page;
      const values = { accountId, ...filterOf(filter), ...place, after };
      const rows = await run(sql.listGroups, values);
      return rows.map(({ value, keys, monthSpent }) =>
        create(KeyGroupSchema, { value, keys, monthSpentMicrocredits: monthSpent }),
      );
    },

    /** Keys of an account in an order, from a place of it on. */
    async listKeys(accountId: string, filter: KeyFilter, page: KeyPage): Promise<Key[]> {
      const ids = idsOf(
        await run(sql.pageAccountKeys, { accountId, ...filterOf(filter), ...page }),
      );
      const places = new Map(ids.map((id, index) => [id, index]));
      const placeOf = ({ keyId }: Key) => places.get(keyId) ?? 0;
      return (await readKeys(ids)).toSorted((a, b) => placeOf(a) - placeOf(b));
    },

    /** The same keys with nothing but their ids, revisions, statuses and managers. */
    async listIds(accountId: string, filter: KeyFilter, page: KeyPage): Promise<Key[]> {
      const rows = await run(sql.pageAccountKeys, { accountId, ...filterOf(filter), ...page });
      return rows.map((row) =>
        create(KeySchema, {
          ...row,
          managedBy: toActor(row.managedBy),
          state: statusOf[row.status],
        }),
      );
    },

    /** What keys were charged on each of the last UTC days up to today, in place of nothing. */
    async addDays(accountId: string, keys: readonly Key[], days: number): Promise<void> {
      const charged = await budgets.readDays({ run }, accountId, idsOf(keys), days);
      for (const key of keys) {
        const ofKey = charged.get(key.keyId);
        if (ofKey)
          key.daysMicrocredits = Array.from({ length: days }, (_, at) => ofKey.get(at) ?? 0n);
      }
    },

    /** Keys without their secrets, in the order of their ids. Unknown ones are left out. */
    readBare: async (keyIds: readonly string[]): Promise<Key[]> =>
      keyIds.length === 0 ? [] : (await run(sql.readKeys, { keyIds })).map((row) => toKey(row)),

    /**
     * Changes the members that are present in `asked`, to what `decide` makes of them. It gets the
     * limits of before, which nobody changes meanwhile, and throws what refuses the change.
     * Resolves with these limits and the change. Throws `not_found` and `key_not_active`.
     */
    updateKey(
      { keyId, accountId, family }: Pick<Key, "keyId" | "accountId" | "family">,
      asked: Partial<Controls>,
      { admit, decide }: { admit: Admit; decide: DecideChange },
    ): Promise<{ earlier: Limits; controls: Partial<Controls> }> {
      const name = familyName(family);
      assert(name, "a key is of a family");
      const key = { keyId, accountId, family: name };
      return transaction(async (tx) => {
        // In the order of all: the account, the pool, members and people. A key that had expired
        // and is live again is counted as a new one.
        if (asked.expiresAt !== undefined) await tx.run(sql.lockAccount, { accountId });
        if (asked.budget) await budgets.lock(tx, key);
        const admitted = await admit(tx);
        const row = await lockKey(tx, keyId);
        const earlier = limitsIn(row);
        const { controls, limitedBy } = await decide(tx, { ...row, ...earlier }, admitted);
        await writeLimits(tx, key, [keyId], { controls, limitedBy });
        if (controls.tags) {
          const { tags: set } = controls;
          const removed = Object.keys(readTags(row.tags)).filter((tag) => !Object.hasOwn(set, tag));
          await changeTags(tx, accountId, [keyId], { set, removed });
        }
        return { earlier, controls };
      });
    },

    /**
     * Changes several keys of an account in one transaction, as `decide` says of each that exists,
     * in the order of their ids: undefined leaves it as it is. `admit` gets all who manage them.
     * `check` comes after all decisions. What any of them throws undoes everything.
     */
    async changeKeys<Permits>(
      { accountId, keyIds, countsKeys, setsBudgets }: ManyKeys,
      how: {
        admit(tx: Runner, managers: readonly string[]): Promise<Permits>;
        decide(key: LockedKey, permits: Permits): KeyWrite | undefined;
        check(tx: Runner): Promise<void>;
      },
    ): Promise<void> {
      await transaction(async (tx) => {
        // Before any lock: what is locked waits for nothing that can be known.
        const managers = await tx.run(sql.findManagers, { accountId, keyIds });
        // In the order of all: the account, the pools, members and people, keys.
        if (countsKeys) await tx.run(sql.lockAccount, { accountId });
        if (setsBudgets)
          for (const family of familyNames) await budgets.lock(tx, { accountId, family });
        const permits = await how.admit(
          tx,
          managers.map(({ managedBy }) => managedBy),
        );
        const locked = await tx.run(sql.lockKeys, { accountId, keyIds });
        const writes = groupWrites(locked, (key) => how.decide(key, permits));
        await how.check(tx);
        for (const { write, rows } of writes) {
          const [{ family } = { family: familyNames[0] }] = rows;
          await writeKeys(tx, { accountId, family }, idsOf(rows), write);
        }
      });
    },

    /**
     * Pauses a key, or resumes it, as `decide` says: undefined if that changes nothing. Throws
     * what `decide` throws, `not_found` and `key_not_active`.
     */
    async pauseKey(
      keyId: string,
      {
        admit,
        decide,
      }: { admit: Admit; decide: (earlier: Pause, rank: Rank) => Pause | undefined },
    ): Promise<Key> {
      await transaction(async (tx) => {
        const { rank } = await admit(tx);
        const next = decide(await lockKey(tx, keyId), rank);
        if (next) await tx.run(sql.pauseKeys, { ...next, keyIds: [keyId], changeId: newChange() });
      });
      return this.readKey(keyId);
    },

    /**
     * Gives a key a new secret unless an earlier call has. Throws `not_found` and
     * `key_not_active`.
     */
    async rotateKey(
      keyId: string,
      { secret, stored }: NewSecret,
      overlapMs: number,
      { admit, once }: Omit<HowCreated, "decide">,
    ): Promise<Created> {
      const values = { keyId, ...stored, overlapMs, changeId: newChange() };
      const made = await transaction(async (tx) => {
        await admit(tx);
        return once(tx, { id: stored.secretId, secret }, async () => {
          if ((await tx.run(sql.rotateKey, values)) === 0) await notActive(keyId);
        });
      });
      return { key: await this.readKey(keyId), secret: made.secret };
    },

    /** Throws `not_found`. */
    async revokeKey(keyId: string, admit: Admit): Promise<Key> {
      await transaction(async (tx) => {
        await admit(tx);
        await tx.run(sql.revokeKeys, { keyIds: [keyId], changeId: newChange() });
      });
      return this.readKey(keyId);
    },

    /** Throws `not_found`. */
    async revokeSecret(keyId: string, secretId: string, admit: Admit): Promise<Key> {
      const known = await transaction(async (tx) => {
        await admit(tx);
        return (
          (await tx.run(sql.revokeSecret, { keyId, secretId, changeId: newChange() })) > 0 ||
          (await tx.run(sql.hasSecret, { keyId, secretId })) !== undefined
        );
      });
      if (!known) throw new ApiError("not_found", { field: "secret_id" });
      return this.readKey(keyId);
    },

    /**
     * Why the active requests of each secret have to end; undefined: they may continue. Without the
     * revoked secrets; empty for a revoked or unknown key.
     */
    async liveSecrets(keyId: string): Promise<Map<string, Refusal | undefined>> {
      const rows = await run(sql.readLiveSecrets, { keyId });
      return new Map(rows.map((row) => [row.secretId, refusalBy[row.accountStatus]]));
    },

    /** Changes since ten seconds before `since`. Undefined: before now. */
    async readChanges(since: Date | undefined): Promise<ChangePage> {
      const rows = await run(sql.readChanges, { since: since ?? null });
      return {
        at: rows[0]?.readAt ?? since ?? new Date(),
        changes: rows.flatMap(({ changeId, keyId }) =>
          changeId === null || keyId === null ? [] : [{ changeId, id: keyId }],
        ),
      };
    },
  };
}

async function changeTags(
  tx: Runner,
  accountId: string,
  keyIds: readonly string[],
  { set, removed }: NewTags,
): Promise<void> {
  const [tags, values] = [Object.keys(set), Object.values(set)];
  if (tags.length + removed.length === 0) return;
  await tx.run(sql.changeTags, { accountId, keyIds, tags, values, removed });
}

/** The tags of a row. Only we write them. */
function readTags(json: Json): Tags {
  const tags: [string, string][] = Object.entries(Object(json));
  return Object.fromEntries(tags);
}

function limitsIn(row: sql.LockKeyRow): Limits {
  return { ...row, budget: limitsOf(row) };
}

/** Throws `too_many_keys` if there may not be `added` more. The account is locked. */
export async function checkBounds(
  tx: Runner,
  accountId: string,
  bounds: Bounds,
  added = 1,
): Promise<void> {
  const { liveMax, perHourMax } = bounds;
  const live = liveMax === undefined ? 0 : (await tx.run(sql.countLive, { accountId })).keys;
  if (liveMax !== undefined && live + added > liveMax)
    throw new ApiError("too_many_keys", {
      message: `An account has ${liveMax} keys at most. Revoke some that are not used any more.`,
      limit: { name: "live_keys", limit: BigInt(liveMax), used: BigInt(live) },
    });
  if (perHourMax === undefined) return;
  const { keys: made, firstAt } = await tx.run(sql.countMade, { accountId });
  if (made < perHourMax) return;
  const resetsAt = firstAt && new Date(firstAt.getTime() + 3_600_000);
  throw tooOften(
    "too_many_keys",
    `An account makes ${perHourMax} keys an hour at most. Wait until the next one.`,
    { name: "keys_per_hour", most: perHourMax, made, resetsAt },
  );
}

/** What bounds the keys that a management key makes. */
export type Parent = { readonly mostKeys: number; readonly childLimits: ChildLimits };

/**
 * Locks a management key that calls and those of `managers`, all at once, in the order of their
 * ids. Throws `revoked_key` if the caller may not be used any more. The function that it resolves
 * with throws `not_permitted` if the caller may not change the keys of a manager, of which it need
 * not be the maker, and returns what bounds their limits; undefined: none of `managers` does. Until
 * the end of the transaction all of it stays so.
 */
export async function shareManagers(
  tx: Runner,
  { managementKeyId }: ManagementCaller,
  managers: Iterable<string>,
): Promise<(managedBy: string) => Parent | undefined> {
  const others = [...managers].flatMap((managedBy) => /^mgmt:(.*)/.exec(managedBy)?.[1] ?? []);
  const managementKeyIds = [...new Set([managementKeyId, ...others])];
  const rows = await tx.run(sql.shareManagementKeys, { managementKeyIds });
  const caller = rows.find((row) => row.managementKeyId === managementKeyId);
  if (!caller?.isUsable) throw new ApiError("revoked_key");
  // What a node remembers of its scopes may be a second old.
  const scopes = scopesOf(caller.scopes);
  const parents = new Map(
    rows.map(({ managementKeyId: id, mostKeys, childLimits }) => [
      `mgmt:${id}`,
      { mostKeys, childLimits: readChildLimits(childLimits) },
    ]),
  );
  return (managedBy) => {
    const isOwn = managedBy === `mgmt:${managementKeyId}`;
    if (!scopes.includes(ManagementScope.ALL_KEYS))
      if (!isOwn || !scopes.includes(ManagementScope.KEYS))
        throw new ApiError("not_permitted", {
          message: isOwn
            ? "This management key may not change keys."
            : "This management key may change only the keys that it created.",
        });
    return parents.get(managedBy);
  };
}

/** Throws `too_many_keys` if there may not be `added` more. The account is locked. */
export async function checkManaged(
  tx: Runner,
  managedBy: string,
  mostKeys: number,
  added = 1,
): Promise<void> {
  const { keys } = await tx.run(sql.countManaged, { managedBy });
  if (keys + added <= mostKeys) return;
  throw new ApiError("too_many_keys", {
    message: `This management key has ${mostKeys} keys at most. Revoke some that are not used.`,
    limit: { name: "managed_keys", limit: BigInt(mostKeys), used: BigInt(keys) },
  });
}

export const scopesByName: Readonly<Record<string, ManagementScope>> = {
  read: ManagementScope.READ,
  keys: ManagementScope.KEYS,
  all_keys: ManagementScope.ALL_KEYS,
  buy: ManagementScope.BUY,
};

/** The scopes of a row. One that only a newer program knows is left out. */
export function scopesOf(names: readonly string[]): ManagementScope[] {
  return names.flatMap((name) => scopesByName[name] ?? []);
}

/** The limits of a row. One that only a newer program knows is left out. */
export function readChildLimits(json: Json): ChildLimits {
  return fromJsonString(ChildLimitsSchema, JSON.stringify(json), { ignoreUnknownFields: true });
}

/** What becomes of the keys of an account with it, in the transaction that changes it. */
export const accountKeys = {
  /** True if the account has this management key, and it is not revoked. */
  hasManagementKey: async (tx: Runner, accountId: string, managementKeyId: string) =>
    (await tx.run(sql.findManagementKeyOf, { accountId, managementKeyId })) !== undefined,
  /** Throws `not_permitted` and `revoked_key` unless it may change the keys that it made. */
  async checkProgram(tx: Runner, caller: ManagementCaller): Promise<void> {
    const check = await shareManagers(tx, caller, []);
    check(actorOf(caller));
  },
  async announce(tx: Runner, accountId: string): Promise<readonly string[]> {
    return idsOf(await tx.run(sql.announceAccount, { accountId, changeId: newChange() }));
  },
  async announceChange(tx: Runner, changedId: string): Promise<readonly string[]> {
    await tx.run(sql.announceChange, { changeId: newChange(), changedId });
    return [changedId];
  },
  async revokeAll(tx: Runner, accountId: string): Promise<readonly string[]> {
    return idsOf(await tx.run(sql.revokeAccountKeys, { accountId, changeId: newChange() }));
  },
};

/** The keys that a person manages who leaves an account, or is shut out. */
export type ManagedKeys = {
  /**
   * Those that are not revoked, of all accounts, in the order of these, and then the management
   * keys that he can still use, because he has seen a secret.
   */
  list(tx: Runner, personId: string): Promise<readonly sql.ListManagedRow[]>;
  /** Gives all of an account to another person there. `to` undefined: to its owners alone. */
  handOver(tx: Runner, manager: Manager, to: string | undefined): Promise<void>;
  /** Announces that those of an account changed, because their manager did. */
  announce(tx: Runner, manager: Manager): Promise<void>;
  /** Pauses those of an account. Returns the ids for `publish`. */
  pause(tx: Runner, manager: Manager): Promise<readonly string[]>;
  /** Revokes them for good in the same way. */
  revoke(tx: Runner, manager: Manager): Promise<readonly string[]>;
  /**
   * Ends the secrets of management keys of an account that he has seen: they have the rights of an
   * owner. Returns the ids of these management keys for `publish`.
   */
  endSecrets(tx: Runner, manager: Manager): Promise<readonly string[]>;
};

/** A person in an account. */
type Manager = { readonly accountId: string; readonly personId: string };

/** All of it runs in the transaction in which the person leaves, or is shut out. */
export const managedKeys: ManagedKeys = {
  async list(tx, personId) {
    const person = `person:${personId}`;
    const rows = await tx.run(sql.listManaged, { managedBy: person });
    const seen = await tx.run(sql.listMadeSecrets, { madeBy: person });
    return [...rows, ...seen.map((row) => ({ ...row, paused: false }))].map((row) => ({
      ...row,
      name: shownName(row.name),
    }));
  },
  async handOver(tx, manager, to) {
    const next = to === undefined ? "" : `person:${to}`;
    await tx.run(sql.handOverKeys, { ...managedOf(manager), next, changeId: newChange() });
  },
  async announce(tx, manager) {
    await tx.run(sql.announceManaged, { ...managedOf(manager), changeId: newChange() });
  },
  async pause(tx, manager) {
    return idsOf(await tx.run(sql.pauseManaged, { ...managedOf(manager), changeId: newChange() }));
  },
  async revoke(tx, manager) {
    return idsOf(await tx.run(sql.revokeManaged, { ...managedOf(manager), changeId: newChange() }));
  },
  async endSecrets(tx, { accountId, personId }) {
    const values = { accountId, madeBy: `person:${personId}`, changeId: newChange() };
    return idsOf(await tx.run(sql.endMadeSecrets, values));
  },
};

const managedOf = ({ accountId, personId }: Manager) => ({
  accountId,
  managedBy: `person:${personId}`,
});

/** What people know these keys of an account by, in the order of their ids. */
export async function readLabels(
  db: Runner,
  accountId: string,
  keyIds: readonly string[],
): Promise<KeyLabel[]> {
  if (keyIds.length === 0) return [];
  const rows = await db.run(sql.readLabels, { accountId, keyIds });
  return rows.map((row) => create(KeyLabelSchema, { ...row, name: shownName(row.name) }));
}

/** The id of a change in the feed. */
export const newChange = () => timeOrderedId("chg_");
const idsOf = (rows: readonly { keyId: string }[]) => rows.map(({ keyId }) => keyId);

/** What the status of its account does to a key. */
export const refusalBy: Record<sql.ReadLiveSecretsRow["accountStatus"], Refusal | undefined> = {
  active: undefined,
  suspended: "account_suspended",
  closed: "revoked_key",
};

/** A filter as statements take it. */
function filterOf({ statuses, tags, keyIds, ...filter }: KeyFilter) {
  return {
    ...filter,
    statuses: statuses.length > 0 ? statuses.map(nameOfStatus) : null,
    tags: Object.keys(tags),
    values: Object.values(tags),
    keyIds: keyIds.length > 0 ? keyIds : null,
  };
}

/** The locked keys by what is written of them. Budgets of both pools are apart. */
function groupWrites(
  locked: readonly sql.LockKeysRow[],
  decide: (key: LockedKey) => KeyWrite | undefined,
): Iterable<{ readonly write: KeyWrite; readonly rows: sql.LockKeysRow[] }> {
  const writes = new Map<string, { write: KeyWrite; rows: sql.LockKeysRow[] }>();
  for (const row of locked) {
    const write = decide({ ...row, limits: limitsIn(row), keyTags: readTags(row.tags) });
    if (!write) continue;
    const name = `${row.family} ${JSON.stringify(write, withBigints)}`;
    const same = writes.get(name) ?? { write, rows: [] };
    writes.set(name, same);
    same.rows.push(row);
  }
  return writes.values();
}

/** Values as JSON, amounts as texts. */
const withBigints = (_: string, value: unknown) =>
  typeof value === "bigint" ? String(value) : value;

const statusOf: Record<sql.ReadKeysRow["status"], KeyState> = {
  active: KeyState.ACTIVE,
  paused: KeyState.PAUSED,
  expired: KeyState.EXPIRED,
  revoked: KeyState.REVOKED,
};

/** The name of a status in statements. Null: of every status. */
function nameOfStatus(status: KeyState): string {
  return Object.entries(statusOf).find(([, one]) => one === status)?.[0] ?? "";
}

/** The columns of a key. */
type KeyRow = Pick<sql.ReadKeysRow, keyof sql.ReadKeysRow & keyof sql.FindSecretsRow>;

function keyMembers({ family, status, requestsPerMinute, ...row }: KeyRow) {
  const { day, week, month, total, requestsAtOnce } = limitsOf(row);
  return {
    ...row,
    name: shownName(row.name),
    family: familyOf(family),
    createdBy: toActor(row.createdBy),
    managedBy: toActor(row.managedBy),
    state: statusOf[status],
    requestsPerMinute: requestsPerMinute ?? undefined,
    dailyCapMicrocredits: day ?? undefined,
    weeklyCapMicrocredits: week ?? undefined,
    monthlyCapMicrocredits: month ?? undefined,
    totalCapMicrocredits: total ?? undefined,
    requestsAtOnce: requestsAtOnce ?? undefined,
    expiresAt: stamp(row.expiresAt),
    createdAt: stamp(row.createdAt),
    pausedAt: stamp(row.pausedAt),
    revokedAt: stamp(row.revokedAt),
  };
}

function toKey(
  { budget: numbers, at, tags, ...row }: sql.ReadKeysRow,
  secrets: readonly SecretRow[] = [],
) {
  const budget = readBudget(numbers, at);
  const month = budget.windows.find(({ name }) => name === "month");
  return create(KeySchema, {
    ...keyMembers(row),
    revision: row.revision,
    tags: readTags(tags),
    budget: toBudget({ case: "keyId", value: row.keyId }, row.family, budget),
    monthSpentMicrocredits: month?.spent ?? 0n,
    monthHeldMicrocredits: budget.held,
    monthResetsAt: stamp(month?.resetsAt ?? null),
    lastUsedAt: stamp(row.lastUsedAt),
    secrets: secrets.map(toSecret),
  });
}

type SecretRow = Omit<sql.ReadSecretsRow, "keyId">;

function toSecret(row: SecretRow): Secret {
  return create(SecretSchema, {
    secretId: row.secretId,
    hint: row.hint,
    createdAt: stamp(row.createdAt),
    expiresAt: stamp(row.expiresAt),
    revokedAt: stamp(row.revokedAt),
    lastUsedAt: stamp(row.lastUsedAt),
  });
}

function stamp(at: Date | null): Timestamp | undefined {
  return at ? timestampFromDate(at) : undefined;
}

function toFoundSecret(row: sql.FindSecretsRow): FoundSecret {
  const { secretId, hint, expiresAt, secretExpiresAt, secretRevokedAt } = row;
  const keyExpiresFirst =
    expiresAt !== null && (secretExpiresAt === null || expiresAt <= secretExpiresAt);
  const isRevoked = row.status === "revoked" || secretRevokedAt !== null;
  return {
    digest: row.digest.toString("latin1"),
    ownerId: row.keyId,
    secretId,
    caller: {
      kind: "key",
      key: create(KeySchema, keyMembers(row)),
      secret: toSecret({
        ...{ secretId, hint, createdAt: row.secretCreatedAt, lastUsedAt: null },
        ...{ expiresAt: secretExpiresAt, revokedAt: secretRevokedAt },
      }),
      isLimited: row.isLimited,
      priceListId: row.priceListId ?? undefined,
    },
    refusal: isRevoked ? "revoked_key" : refusalBy[row.accountStatus],
    paused: row.paused,
    isAllowedAt: matcherOf(row.allowedAddresses),
    expiresInMs: row.expiresInMs ?? undefined,
    expiresFirst: keyExpiresFirst ? "key" : "secret",
    useIsDue: row.useIsDue,
  };
}
