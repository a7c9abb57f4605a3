// Management keys: the credentials of programs that manage the keys of an account. They are cached
// as sessions are: a call costs no statement, and a change reaches every node within a second.

import { create, toJsonString } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { KeyAction, KeyActionSchema } from "../../gen/gateway/common/v1/key_action_pb.ts";
import type { ManagementScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import { SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  type ChildLimits,
  ChildLimitsSchema,
  type CreateManagementKeyRequest,
  CreateManagementKeyResponseSchema,
  type ListManagementKeysRequest,
  ListManagementKeysResponseSchema,
  type ManagementKey,
  ManagementKeySchema,
  type ManagementKeySettings,
  ManagementKeySettingsSchema,
  ManagementKeysService,
  type RevokeManagementKeyRequest,
  RevokeManagementKeyResponseSchema,
  type RotateManagementKeyRequest,
  RotateManagementKeyResponseSchema,
  type UpdateManagementKeyRequest,
  UpdateManagementKeyResponseSchema,
} from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import * as sql from "../../gen/sql/keys.ts";
import { toActor } from "../base/actors.ts";
import type { Changes } from "../base/change-feed.ts";
import {
  type AddressMatcher,
  checkAddresses,
  type MisplacedUse,
  matcherOf,
} from "../base/client-address.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, expiredSecret, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName, shownName } from "../base/names.ts";
import { type ReadList, readPage, walkPages } from "../base/paging.ts";
import { type Found, SecretCache } from "../base/secret-cache.ts";
import { createSecretLookup } from "../base/secret-lookup.ts";
import { actorOf, checkAccess, checkAddress } from "../contract/callers.ts";
import type {
  Authenticate,
  AuthenticatedCall,
  CallHeaders,
  ManagementCaller,
  Origin,
} from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { readMask } from "../contract/update-mask.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { checkExpiry, overlapMsOf } from "./administration.ts";
import { digestBytes, digestSecret, hintOf, mintManagementSecret } from "./secret.ts";
import {
  newChange,
  type Refusal,
  readChildLimits,
  refusalBy,
  scopesByName,
  scopesOf,
} from "./store.ts";

const keysMax = 20;
const mostKeysDefault = 100;
/** Changing calls of one in a minute. */
const changesMax = 60;

const cacheLimits = { foundMax: 10_000, unknownMax: 10_000, freshMs: 60_000, staleMs: 120_000 };

export type ManagementParts = {
  readonly postgres: Pick<Postgres, "run" | "transaction">;
  /** Named by new secrets. */
  readonly cell: string;
  /** The feed of changed keys, which has management keys too. */
  readonly changes: Changes;
  readonly checkOwner: CheckOwner;
  readonly onMisplaced?: ((use: MisplacedUse) => void) | undefined;
  readonly clock?: Clock | undefined;
};

/**
 * Throws `not_permitted` unless the person owns the account at this moment. Until the end of the
 * transaction he goes on to own it.
 */
export type CheckOwner = (tx: Runner, accountId: string, personId: string) => Promise<void>;

type FoundManagement = Found & {
  readonly caller: ManagementCaller;
  readonly hint: string;
  readonly isAllowedAt: AddressMatcher | undefined;
  readonly refusal: Refusal | undefined;
  readonly expiresFirst: "key" | "secret";
};

/** Identifies the management key of `authorization: Bearer mk-gw2-…`. */
export function createManagementAuthentication(parts: ManagementParts): {
  /** `secret` has the form of one. */
  authenticate(
    secret: string,
    requestHeader: CallHeaders,
    origin: Origin | undefined,
  ): ReturnType<Authenticate>;
  /** Call when one changed: what is cached of it becomes invalid. */
  forget(managementKeyId: string): void;
} {
  const { postgres, changes, onMisplaced } = parts;
  const cache = new SecretCache<FoundManagement>(cacheLimits);
  const lookup = createSecretLookup(async (digests: readonly string[]) => {
    const rows = await postgres.run(sql.findManagementSecrets, {
      digests: digests.map(digestBytes),
    });
    return rows.map(toFound);
  }, cache);

  /** Throws what `callerOf` of keys throws. */
  const callerOf = (
    found: FoundManagement | undefined,
    isExpired: boolean,
    requestHeader: CallHeaders,
    origin: Origin | undefined,
  ): ManagementCaller => {
    if (!found) throw new ApiError("invalid_key");
    if (found.refusal) throw new ApiError(found.refusal);
    if (isExpired || (found.expiresInMs !== undefined && found.expiresInMs <= 0))
      throw found.expiresFirst === "key" ? new ApiError("key_expired") : expiredSecret();
    const { caller, hint, isAllowedAt } = found;
    const { accountId, managementKeyId: id, name } = caller;
    if (isAllowedAt)
      checkAddress(
        isAllowedAt,
        { requestHeader, ...origin },
        (address) => onMisplaced?.({ accountId, id, name, hint, address }),
        "management key",
      );
    return caller;
  };

  return {
    async authenticate(secret, requestHeader, origin) {
      const digest = digestSecret(secret);
      const cached = cache.get(digest);
      // A node that may have missed a change must not trust what it remembers.
      if (!cached || (cached.found && !changes.isCurrent()))
        return callerOf(await lookup.find(digest), false, requestHeader, origin);
      if (cached.isStale) lookup.refresh(digest);
      return callerOf(cached.found, cached.isExpired, requestHeader, origin);
    },
    forget: (managementKeyId) => cache.invalidate(managementKeyId),
  };
}

function toFound(row: sql.FindManagementSecretsRow): FoundManagement {
  const { managementKeyId, accountId, scopes } = row;
  return {
    digest: row.digest.toString("latin1"),
    ownerId: managementKeyId,
    caller: {
      kind: "management",
      managementKeyId,
      accountId,
      name: shownName(row.name),
      scopes: scopesOf(scopes),
    },
    hint: row.hint,
    isAllowedAt: matcherOf(row.allowedAddresses),
    refusal: row.isRevoked ? "revoked_key" : refusalBy[row.accountStatus],
    expiresInMs: row.expiresInMs ?? undefined,
    expiresFirst: row.keyExpiresFirst ? "key" : "secret",
  };
}

/** Counts a changing call. Throws `rate_limited`. */
export async function countChange(
  db: Pick<Postgres, "run">,
  { managementKeyId }: ManagementCaller,
): Promise<void> {
  if (await db.run(sql.countChange, { managementKeyId, most: changesMax })) return;
  const from = (await db.run(sql.readChangesFrom, { managementKeyId }))?.callsFrom ?? new Date();
  const resetsAt = new Date(from.getTime() + 60_000);
  throw new ApiError("rate_limited", {
    message: `A management key makes ${changesMax} changes a minute at most.`,
    limit: {
      name: "changes_per_minute",
      limit: BigInt(changesMax),
      remaining: 0n,
      resetsAt: timestampFromDate(resetsAt),
    },
    retryAfterMs: Math.max(0, resetsAt.getTime() - Date.now()),
  });
}

export async function createManagementKey(
  parts: ManagementParts,
  request: CreateManagementKeyRequest,
  call: AuthenticatedCall,
) {
  const { accountId, caller } = call;
  const settings = checkSettings(request.settings);
  const minted = mint(parts);
  const id = timeOrderedId("mgk_");
  const once = onceFor(ManagementKeysService.method.createManagementKey, request, call);
  const made = await parts.postgres.transaction(async (tx) => {
    const account = await tx.run(sql.lockAccount, { accountId });
    if (!account) throw new ApiError("not_found", { field: "account_id" });
    if (account.status === "closed") throw new ApiError("account_closed");
    await checkStillOwner(parts, tx, call, accountId);
    return once(tx, { id, secret: minted.secret }, async () => {
      const { keys } = await tx.run(sql.countManagementKeys, { accountId });
      if (keys >= keysMax)
        throw new ApiError("limit_reached", {
          message: `An account has ${keysMax} management keys at most. Revoke one first.`,
          limit: { name: "management_keys", limit: BigInt(keysMax), used: BigInt(keys) },
        });
      await tx.run(sql.insertManagementKey, {
        ...settings,
        ...minted.stored,
        managementKeyId: id,
        accountId,
        createdBy: actorOf(caller),
      });
    });
  });
  const managementKey = await readOne(parts, made.id);
  call.note?.({ name: settings.name, scopes: settings.scopes.join(" ") });
  return create(CreateManagementKeyResponseSchema, { managementKey, secret: made.secret });
}

export async function listManagementKeys(
  { postgres }: ManagementParts,
  request: ListManagementKeysRequest,
  call: AuthenticatedCall,
) {
  const { listManagementKeys } = ManagementKeysService.method;
  const list = managementKeyList(postgres, call.accountId);
  const { entries, nextPageToken } = await readPage(listManagementKeys, request, call, list);
  return create(ListManagementKeysResponseSchema, { managementKeys: entries, nextPageToken });
}

/** All management keys of an account, in pages, oldest first. */
export function walkManagementKeys(
  db: Pick<Postgres, "run">,
  accountId: string,
): AsyncGenerator<ManagementKey[], void> {
  return walkPages(managementKeyList(db, accountId));
}

function managementKeyList(db: Pick<Postgres, "run">, accountId: string): ReadList<ManagementKey> {
  return {
    read: async (after = "", rows) =>
      describe(db, await db.run(sql.listManagementKeys, { accountId, after, rows })),
    cursorOf: ({ managementKeyId }) => managementKeyId,
  };
}

export async function updateManagementKey(
  parts: ManagementParts,
  { managementKeyId: id, settings, updateMask }: UpdateManagementKeyRequest,
  call: AuthenticatedCall,
) {
  const changed = checkChanges(settings, readMask(maskRule, settings, updateMask));
  const { managementKeyId, accountId } = await findOwn(parts, id, call);
  await parts.postgres.transaction(async (tx) => {
    await checkStillOwner(parts, tx, call, accountId);
    const before = await lock(tx, managementKeyId);
    await tx.run(sql.updateManagementKey, {
      ...before,
      childLimits: JSON.stringify(before.childLimits),
      ...changed,
      managementKeyId,
      changeId: newChange(),
    });
    call.note?.({ accountId, ...changedFacts(changed, before) });
  });
  parts.changes.publish(managementKeyId);
  return create(UpdateManagementKeyResponseSchema, {
    managementKey: await readOne(parts, managementKeyId),
  });
}

export async function rotateManagementKey(
  parts: ManagementParts,
  request: RotateManagementKeyRequest,
  call: AuthenticatedCall,
) {
  const overlapMs = overlapMsOf(request.overlap);
  const { managementKeyId, accountId } = await findOwn(parts, request.managementKeyId, call);
  const { secret, stored } = mint(parts);
  await parts.postgres.transaction(async (tx) => {
    await checkStillOwner(parts, tx, call, accountId);
    await lock(tx, managementKeyId);
    const values = { ...stored, managementKeyId, overlapMs, changeId: newChange() };
    await tx.run(sql.rotateManagementKey, { ...values, madeBy: actorOf(call.caller) });
  });
  parts.changes.publish(managementKeyId);
  call.note?.({ overlapSeconds: String(overlapMs / 1000) });
  const managementKey = await readOne(parts, managementKeyId);
  return create(RotateManagementKeyResponseSchema, { managementKey, secret });
}

export async function revokeManagementKey(
  parts: ManagementParts,
  { managementKeyId, children }: RevokeManagementKeyRequest,
  call: AuthenticatedCall,
) {
  const { KEEP, PAUSE, REVOKE, UNSPECIFIED } = KeyAction;
  const { accountId } = await findOwn(parts, managementKeyId, call);
  const managedBy = `mgmt:${managementKeyId}`;
  const stopped = await parts.postgres.transaction(async (tx) => {
    // It creates none meanwhile.
    await tx.run(sql.lockAccount, { accountId });
    await checkStillOwner(parts, tx, call, accountId);
    const managed = await tx.run(sql.listManaged, { managedBy });
    if (children === UNSPECIFIED && managed.length > 0) {
      const number = managed.length === 1 ? "the key" : `the ${managed.length} keys`;
      const allowed = [PAUSE, REVOKE, KEEP].map((one) => KeyActionSchema.value[one]?.name ?? "");
      throw invalidField("children", `say what becomes of ${number} that it created`, allowed);
    }
    await tx.run(sql.revokeManagementKey, { managementKeyId, changeId: newChange() });
    const values = { accountId, managedBy, changeId: newChange() };
    if (children === PAUSE) return tx.run(sql.pauseManaged, values);
    return children === REVOKE ? tx.run(sql.revokeManaged, values) : [];
  });
  for (const id of [managementKeyId, ...stopped.map(({ keyId }) => keyId)])
    parts.changes.publish(id);
  call.note?.({ keys: String(stopped.length) });
  return create(RevokeManagementKeyResponseSchema, {
    managementKey: await readOne(parts, managementKeyId),
    keys: stopped.length,
  });
}

/** Throws `not_found`, as for a management key of another account. */
async function findOwn(
  { postgres }: ManagementParts,
  managementKeyId: string,
  call: AuthenticatedCall,
): Promise<sql.FindManagementKeyRow> {
  const row = await postgres.run(sql.findManagementKey, { managementKeyId });
  if (!row) throw noSuchKey();
  checkAccess(call, row.accountId, noSuchKey);
  // A failure leaves an audit event too, which belongs to the account.
  call.note?.({ accountId: row.accountId });
  return row;
}

async function checkStillOwner(
  { checkOwner }: ManagementParts,
  tx: Runner,
  { caller }: AuthenticatedCall,
  accountId: string,
): Promise<void> {
  if (caller.kind === "person") await checkOwner(tx, accountId, caller.personId);
}

/** Throws `key_not_active`. */
async function lock(tx: Runner, managementKeyId: string): Promise<sql.LockManagementKeyRow> {
  const row = await tx.run(sql.lockManagementKey, { managementKeyId });
  if (!row) throw new ApiError("key_not_active", { field: "management_key_id" });
  return row;
}

async function readOne(
  { postgres }: ManagementParts,
  managementKeyId: string,
): Promise<ManagementKey> {
  const row = await postgres.run(sql.findManagementKey, { managementKeyId });
  const [one] = await describe(postgres, row ? [row] : []);
  if (!one) throw noSuchKey();
  return one;
}

async function describe(
  db: Pick<Postgres, "run">,
  rows: readonly sql.FindManagementKeyRow[],
): Promise<ManagementKey[]> {
  if (rows.length === 0) return [];
  const managementKeyIds = rows.map(({ managementKeyId }) => managementKeyId);
  const secrets = Map.groupBy(
    await db.run(sql.listManagementSecrets, { managementKeyIds }),
    ({ managementKeyId }) => managementKeyId,
  );
  const stamp = (at: Date | null) => (at ? timestampFromDate(at) : undefined);
  return rows.map((row) =>
    create(ManagementKeySchema, {
      ...row,
      name: shownName(row.name),
      createdBy: toActor(row.createdBy),
      maxKeys: row.mostKeys,
      scopes: scopesOf(row.scopes),
      childLimits: readChildLimits(row.childLimits),
      createdAt: stamp(row.createdAt),
      expiresAt: stamp(row.expiresAt),
      revokedAt: stamp(row.revokedAt),
      secrets: (secrets.get(row.managementKeyId) ?? []).map((secret) =>
        create(SecretSchema, {
          hint: secret.hint,
          createdAt: stamp(secret.createdAt),
          expiresAt: stamp(secret.expiresAt),
          lastUsedAt: stamp(secret.lastUsedAt),
        }),
      ),
    }),
  );
}

function noSuchKey(): ApiError {
  return new ApiError("not_found", { field: "management_key_id" });
}

function mint({ cell }: ManagementParts) {
  const secret = mintManagementSecret(cell);
  return {
    secret,
    stored: { digest: digestBytes(digestSecret(secret)), hint: hintOf(secret) },
  };
}

// Validation of requests, as in the administration of keys.

type Settings = ReturnType<typeof checkSettings>;

/** All settings, of a new one. Throws `invalid_request`. */
function checkSettings(settings: ManagementKeySettings = create(ManagementKeySettingsSchema)) {
  const { name, scopes, maxKeys, childLimits, allowedAddresses, expiresAt } = settings;
  return {
    name: checkName("settings.name", name),
    scopes: checkScopes("settings.scopes", scopes),
    mostKeys: maxKeys || mostKeysDefault,
    childLimits: childLimitsText(childLimits),
    allowedAddresses: checkAddresses("settings.allowed_addresses", allowedAddresses),
    expiresAt: checkExpiry("settings.expires_at", expiresAt),
  };
}

const maskRule = {
  type: ManagementKeySettingsSchema,
  changeable: [
    ...["name", "scopes", "max_keys", "child_limits", "allowed_addresses", "expires_at"],
  ],
  values: "settings.",
};

function checkChanges(
  key: ManagementKeySettings = create(ManagementKeySettingsSchema),
  paths: readonly string[],
): Partial<Settings> {
  const changed: Partial<Settings> = {};
  for (const path of paths) {
    const field = `settings.${path}`;
    switch (path) {
      case "name":
        changed.name = checkName(field, key.name);
        break;
      case "scopes":
        changed.scopes = checkScopes(field, key.scopes);
        break;
      case "max_keys":
        if (key.maxKeys === 0) throw invalidField(field, "is at least 1");
        changed.mostKeys = key.maxKeys;
        break;
      case "child_limits":
        changed.childLimits = childLimitsText(key.childLimits);
        break;
      case "allowed_addresses":
        changed.allowedAddresses = checkAddresses(field, key.allowedAddresses);
        break;
      case "expires_at":
        changed.expiresAt = checkExpiry(field, key.expiresAt);
        break;
    }
  }
  return changed;
}

/** The names of scopes, as rows have them. Throws `invalid_request` for none. */
function checkScopes(field: string, scopes: readonly ManagementScope[]): string[] {
  if (scopes.length === 0) throw invalidField(field, "has to name at least one scope");
  return Object.keys(scopesByName).filter((name) => {
    const scope = scopesByName[name];
    return scope !== undefined && scopes.includes(scope);
  });
}

/** The limits as a row keeps them. */
function childLimitsText(limits: ChildLimits | undefined): string {
  if (limits === undefined) return "{}";
  return toJsonString(ChildLimitsSchema, limits, { useProtoFieldName: true });
}

/** What a change names, as it was and as it is, for the audit. */
function changedFacts(changed: Partial<Settings>, before: sql.LockManagementKeyRow) {
  const text = (value: unknown) =>
    value instanceof Date
      ? value.toISOString()
      : value === null
        ? "never"
        : Array.isArray(value)
          ? value.join(" ")
          : typeof value === "object"
            ? JSON.stringify(value)
            : String(value);
  return Object.fromEntries(
    Object.entries(changed).flatMap(([name, value]) => [
      [name, text(value)],
      [`old${name.charAt(0).toUpperCase()}${name.slice(1)}`, text(Reflect.get(before, name))],
    ]),
  );
}
