// The administration of keys. Each function is a method of the service: it validates the request,
// changes the database, and publishes the change to all nodes.

import { create } from "@bufbuild/protobuf";
import { type Duration, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type CreateKeyRequest,
  type CreateKeyResponse,
  CreateKeyResponseSchema,
  type GetKeyRequest,
  type GetKeyResponse,
  GetKeyResponseSchema,
  type Key,
  KeyAttention,
  KeyOrder,
  type KeySettings,
  KeySettingsSchema,
  KeyState,
  KeysService,
  type ListKeysRequest,
  type ListKeysResponse,
  ListKeysResponseSchema,
  type PauseKeyRequest,
  type PauseKeyResponse,
  PauseKeyResponseSchema,
  type ResumeKeyRequest,
  type ResumeKeyResponse,
  ResumeKeyResponseSchema,
  type RevokeKeyRequest,
  type RevokeKeyResponse,
  RevokeKeyResponseSchema,
  type RevokeSecretRequest,
  type RevokeSecretResponse,
  RevokeSecretResponseSchema,
  type RotateKeyRequest,
  type RotateKeyResponse,
  RotateKeyResponseSchema,
  type UpdateKeyRequest,
  type UpdateKeyResponse,
  UpdateKeyResponseSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { actorText, toActor } from "../base/actors.ts";
import { type BudgetLimits, limitNames, unlimited } from "../base/budgets.ts";
import type { Changes } from "../base/change-feed.ts";
import { checkAddresses } from "../base/client-address.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { familyOf, namedFamily } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { invalidPageToken, type Page, readPage } from "../base/paging.ts";
import { keyDaysShown } from "../base/shown-figures.ts";
import { checkTags } from "../base/tags.ts";
import { actorOf, checkAccess, checkStrong, roleIn } from "../contract/callers.ts";
import type { AuditFacts, AuthenticatedCall, Person } from "../contract/contract.ts";
import { onceFor } from "../contract/replays.ts";
import { readMask } from "../contract/update-mask.ts";
import type { Runner } from "../postgres/statement.ts";
import {
  digestBytes,
  digestSecret,
  hintOf,
  isSecret,
  type KeyFamily,
  mintSecret,
} from "./secret.ts";
import {
  type Admit,
  type Admitted,
  type Controls,
  checkBounds,
  checkManaged,
  type EarlierKey,
  type KeyChange,
  type KeyFilter,
  type KeyPage,
  type KeyStore,
  type Limits,
  type NewSecret,
  type Parent,
  type Pause,
  type Rank,
  shareManagers,
} from "./store.ts";

export type Parts = {
  store: KeyStore;
  /** Named by new secrets. */
  cell: string;
  changes: Changes;
  resolveModel: ResolveModel;
  /** As for `createKeys`. */
  checkManager: CheckManager;
  keysMax: (() => number) | undefined;
};

/**
 * What a person is to the keys of the account, which the node may not know yet: a key that he makes
 * or raises in the second after a change would go on. Throws `not_permitted` for one who was shut
 * out, left the account, or became a viewer. Until the end of the transaction he stays what he is.
 * `operator`: the role of the call, which an operator may give up for it.
 */
export type CheckManager = (
  tx: Runner,
  accountId: string,
  person: Person,
) => Promise<Exclude<Rank, "program">>;

export async function createKey(
  parts: Parts,
  request: CreateKeyRequest,
  call: AuthenticatedCall,
): Promise<CreateKeyResponse> {
  const family = familyOf(namedFamily(request.family));
  const { caller, note } = call;
  const asked = checkControls(request.settings, parts.resolveModel);
  const accountId = checkId("account_id", call.accountId);
  const createdBy = actorOf(caller);
  // Programs of an account have a pace of their own.
  const perHourMax = caller.kind === "person" ? keysPerHourMax : undefined;
  const liveMax = liveMaxFor(parts, caller);
  const created = await parts.store.createKey(accountId, newSecret(parts, family), {
    once: onceFor(KeysService.method.createKey, request, call),
    admit: admitTo(parts, { accountId, managedBy: toActor(createdBy) }, call, { bounds: true }),
    async decide(tx, { rank, parent }) {
      const controls = parent ? { ...asked, ...boundByParent(asked, parent, "settings.") } : asked;
      if (liveMax !== undefined) await checkBounds(tx, accountId, { liveMax, perHourMax });
      if (parent) await checkManaged(tx, createdBy, parent.mostKeys);
      const limitedByOwner = rank !== "member" && hasLimit(controls);
      const limitedByProgram = limitedByOwner && rank === "program";
      const budget = { ...unlimited, ...controls.budget };
      return { ...controls, budget, limitedByOwner, limitedByProgram, family, createdBy };
    },
  });
  if (asked.expiresAt) note?.({ expiresAt: asked.expiresAt.toISOString() });
  return create(CreateKeyResponseSchema, created);
}

export async function getKey(
  { store }: Parts,
  request: GetKeyRequest,
  call: AuthenticatedCall,
): Promise<GetKeyResponse> {
  const key = await store.readKey(checkId("key_id", request.keyId));
  checkAccess(call, key.accountId, noSuchKey);
  return create(GetKeyResponseSchema, { key });
}

/** How many keys of tags `tag_keys` has at most. */
const tagKeysMax = 100;

export async function listKeys(
  { store, keysMax }: Parts,
  request: ListKeysRequest,
  call: AuthenticatedCall,
): Promise<ListKeysResponse> {
  const account = checkId("account_id", call.accountId);
  const filter = checkFilter(request);
  const isFirst = request.pageToken === "";
  const {
    includeModelKeys: withModelKeys,
    includeAttention: withAttention,
    includeTagKeys: withTagKeys,
  } = request;
  const [page, liveKeys, counts, attention, tagKeys] = await Promise.all([
    request.groupByTag === ""
      ? listPage(store, call, request, filter)
      : groupPage(store, call, request, filter),
    isFirst ? store.countLive(account) : 0,
    isFirst && withModelKeys ? modelKeys(store, account) : {},
    isFirst && withAttention ? store.countAttention(account) : undefined,
    isFirst && withTagKeys ? store.listTagKeys(account, tagKeysMax) : [],
  ]);
  return create(ListKeysResponseSchema, {
    ...page,
    ...counts,
    liveKeys,
    maxLiveKeys: keysMax?.() ?? 0,
    ...(attention && { attention }),
    tagKeys,
  });
}

async function listPage(
  store: KeyStore,
  call: AuthenticatedCall,
  request: ListKeysRequest,
  filter: KeyFilter,
) {
  const page = await readKeyPage(store, call, request, filter);
  const { entries: keys, nextPageToken } = page;
  if (request.includeDays) await store.addDays(call.accountId, keys, keyDaysShown);
  return { keys, nextPageToken };
}

async function groupPage(
  store: KeyStore,
  call: AuthenticatedCall,
  request: ListKeysRequest,
  filter: KeyFilter,
) {
  const { groupByTag: tag, valuePrefix: prefix } = request;
  const page = await readPage(KeysService.method.listKeys, request, call, {
    read: (after, rows) => store.listGroups(call.accountId, filter, { tag, prefix, after, rows }),
    cursorOf: ({ value }) => value,
  });
  return { groups: page.entries, nextPageToken: page.nextPageToken };
}

async function modelKeys(store: KeyStore, accountId: string) {
  const named = await store.countByModel(accountId);
  const anyModelKeys = named.get("") ?? 0;
  return {
    modelKeys: Object.fromEntries([...named].filter(([model]) => model !== "")),
    anyModelKeys,
  };
}

const sorts: Readonly<Record<KeyOrder, KeyPage["sort"]>> = {
  [KeyOrder.UNSPECIFIED]: "made",
  [KeyOrder.CREATED]: "made",
  [KeyOrder.MONTH_SPENT]: "spent",
  [KeyOrder.NAME]: "name",
  [KeyOrder.LAST_USED]: "used",
};

/** Keys by their making are read behind the last one, others behind as many as were read. */
function readKeyPage(
  store: KeyStore,
  call: AuthenticatedCall,
  request: ListKeysRequest,
  filter: KeyFilter,
): Promise<Page<Key>> {
  const { accountId } = call;
  const { order, reversed } = request;
  const { listKeys } = KeysService.method;
  const read = request.onlyIds ? store.listIds : store.listKeys;
  const sort = sorts[order] ?? "made";
  // Most and newest come first, names by the alphabet.
  const descending = (sort === "spent" || sort === "used") !== reversed;
  if (sort === "made")
    return readPage(listKeys, request, call, {
      read: (after = "", rows) =>
        read(accountId, filter, { sort, descending, after, skip: 0, rows }),
      cursorOf: ({ keyId }) => keyId,
    });
  let end = 0;
  return readPage(listKeys, request, call, {
    read(cursor = "0", rows) {
      if (!/^\d{1,9}$/.test(cursor)) throw invalidPageToken();
      const skip = Number(cursor);
      // One row more than the page holds was asked for.
      end = skip + rows - 1;
      return read(accountId, filter, { sort, descending, after: "", skip, rows });
    },
    cursorOf: () => String(end),
  });
}

export async function updateKey(
  parts: Parts,
  request: UpdateKeyRequest,
  call: AuthenticatedCall,
): Promise<UpdateKeyResponse> {
  const { keyId, controls: asked } = checkUpdate(request, parts.resolveModel);
  const found = await findUsable(parts, keyId, call);
  const { caller } = call;
  const { accountId } = found;
  const managedBy = actorText(found.managedBy);
  if (caller.kind === "management") checkNoReader(asked, "settings.account_reader");
  const { earlier, controls } = await parts.store.updateKey(found, asked, {
    admit: admitTo(parts, found, call, { bounds: true }),
    async decide(tx, before, admitted) {
      const change = decideLimits(asked, before, admitted, "settings.");
      if (change.isRaise) checkStrong(caller);
      if (before.isExpired && change.controls.expiresAt !== undefined) {
        const liveMax = liveMaxFor(parts, caller);
        const { parent } = admitted;
        if (liveMax !== undefined) await checkBounds(tx, accountId, { liveMax });
        if (parent) await checkManaged(tx, managedBy, parent.mostKeys);
      }
      return change;
    },
  });
  const key = published(parts, await parts.store.readKey(keyId));
  call.note?.(changedLimits(controls, earlier));
  return create(UpdateKeyResponseSchema, { key });
}

/**
 * What becomes of limits that a caller asked for. `prefix`: of the names of fields. `isRaise`: a
 * person has to confirm it. Throws `not_permitted`, and `invalid_request` for a limit that a
 * management key does not allow.
 */
export function decideLimits(
  asked: Partial<Controls>,
  before: EarlierKey,
  { rank, parent }: Admitted,
  prefix: string,
): KeyChange & { readonly isRaise: boolean } {
  const controls = parent ? { ...asked, ...boundByParent(asked, parent, prefix) } : asked;
  const isProgram = rank === "program";
  const isTheirs = rank === "member";
  const isBound = before.limitedByOwner && (isTheirs || (isProgram && !before.limitedByProgram));
  const raises = isRaise(controls, before);
  if (raises && isBound)
    throw new ApiError("not_permitted", {
      message: "An owner has set the limits of this key. You may only tighten them.",
    });
  // Who tightens an owner's limits leaves them an owner's; a member's own stay his.
  const isChanged = controlNames.some((name) => name in controls) && !isBound;
  const limitedBy = isChanged && !isTheirs ? rank : undefined;
  return { controls, limitedBy, isRaise: raises };
}

export async function rotateKey(
  parts: Parts,
  request: RotateKeyRequest,
  call: AuthenticatedCall,
): Promise<RotateKeyResponse> {
  const keyId = checkId("key_id", request.keyId);
  const overlapMs = overlapMsOf(request.overlap);
  const found = await findUsable(parts, keyId, call);
  const { family, accountId } = found;
  const secret = newSecret(parts, familyOf(namedFamily(family)));
  const once = onceFor(KeysService.method.rotateKey, request, { ...call, accountId });
  const admit = admitTo(parts, found, call);
  const created = await parts.store.rotateKey(keyId, secret, overlapMs, { admit, once });
  published(parts, created.key);
  call.note?.({ overlapSeconds: String(overlapMs / 1000) });
  return create(RotateKeyResponseSchema, created);
}

export async function pauseKey(
  parts: Parts,
  request: PauseKeyRequest,
  call: AuthenticatedCall,
): Promise<PauseKeyResponse> {
  const key = await setPaused(parts, request.keyId, true, call);
  return create(PauseKeyResponseSchema, { key });
}

export async function resumeKey(
  parts: Parts,
  request: ResumeKeyRequest,
  call: AuthenticatedCall,
): Promise<ResumeKeyResponse> {
  const key = await setPaused(parts, request.keyId, false, call);
  return create(ResumeKeyResponseSchema, { key });
}

async function setPaused(
  parts: Parts,
  named: string,
  paused: boolean,
  call: AuthenticatedCall,
): Promise<Key> {
  const keyId = checkId("key_id", named);
  const find = paused ? findChangeable : findUsable;
  const found = await find(parts, keyId, call);
  const key = await parts.store.pauseKey(keyId, {
    admit: admitTo(parts, found, call),
    decide: paused
      ? pausedBy
      : (earlier, rank) => {
          if (!earlier.paused) return undefined;
          checkResumes(earlier, rank);
          checkStrong(call.caller);
          return { paused: false, pausedByOwner: false, pausedByProgram: false };
        },
  });
  return published(parts, key);
}

/** The pause of a key that one more caller pauses. Undefined: it stays as it is. */
export function pausedBy(earlier: Pause, rank: Rank): Pause | undefined {
  const { paused, pausedByOwner, pausedByProgram } = earlier;
  const next = {
    paused: true,
    // Nobody resumes by a pause of his own what another one paused.
    pausedByOwner: pausedByOwner || rank !== "member",
    pausedByProgram: rank === "program" && (pausedByProgram || !paused),
  };
  const isSame = pausedByOwner === next.pausedByOwner && pausedByProgram === next.pausedByProgram;
  return paused && isSame ? undefined : next;
}

/** Throws `not_permitted`: a member and a management key resume what those like them paused. */
export function checkResumes({ pausedByOwner, pausedByProgram }: Pause, rank: Rank): void {
  if (rank === "member" && pausedByOwner)
    throw new ApiError("not_permitted", {
      message: "An owner has paused this key. Ask an owner of the account to resume it.",
    });
  if (rank === "program" && !pausedByProgram)
    throw new ApiError("not_permitted", {
      message: "A person has paused this key. A management key may not resume it.",
    });
}

export async function revokeKey(
  parts: Parts,
  request: RevokeKeyRequest,
  call: AuthenticatedCall,
): Promise<RevokeKeyResponse> {
  const keyId = checkId("key_id", request.keyId);
  const admit = admitTo(parts, await findChangeable(parts, keyId, call), call);
  const key = published(parts, await parts.store.revokeKey(keyId, admit));
  return create(RevokeKeyResponseSchema, { key });
}

export async function revokeSecret(
  parts: Parts,
  request: RevokeSecretRequest,
  call: AuthenticatedCall,
): Promise<RevokeSecretResponse> {
  const [keyId, secretId] = [
    checkId("key_id", request.keyId),
    checkId("secret_id", request.secretId),
  ];
  const admit = admitTo(parts, await findChangeable(parts, keyId, call), call);
  const key = published(parts, await parts.store.revokeSecret(keyId, secretId, admit));
  return create(RevokeSecretResponseSchema, { key });
}

/**
 * The key, in an account whose keys the caller may change: whether this one is among them decides
 * `admitTo`. Throws `not_found` and `not_permitted`. The account of a key never changes.
 */
async function findChangeable(
  { store }: Parts,
  keyId: string,
  call: AuthenticatedCall,
): Promise<Key> {
  const key = await store.readKey(keyId);
  checkAccess(call, key.accountId, noSuchKey);
  // A failure leaves an audit event too, which belongs to the account.
  call.note?.({ accountId: key.accountId });
  return key;
}

/** The same where the caller gets or widens the use of the key: none of a program reads all. */
async function findUsable(parts: Parts, keyId: string, call: AuthenticatedCall): Promise<Key> {
  const key = await findChangeable(parts, keyId, call);
  if (call.caller.kind === "management" && key.accountReader)
    throw new ApiError("not_permitted", {
      message: "A management key may only pause and revoke a key that reads the account.",
    });
  return key;
}

/**
 * Admits who may change a key at this moment: members only if they manage it. Who managed it a
 * moment ago may still change it, unless he left the account or was shut out. `bounds`: its limits
 * change, which those of a management key bound.
 */
function admitTo(
  parts: Parts,
  { accountId, managedBy }: Pick<Key, "accountId" | "managedBy">,
  call: AuthenticatedCall,
  { bounds } = { bounds: false },
): Admit {
  return async (tx) => {
    const manager = actorText(managedBy);
    const bounding = bounds ? [manager] : [];
    const permit = await admitToAll(parts, { accountId, bounding }, call, tx);
    return permit(manager);
  };
}

/**
 * What the caller may do at this moment with the keys of each manager. Throws what refuses him
 * whatever the key, in the same few statements for any number of managers; the function throws
 * `not_permitted`. `bounding`: managers of keys whose limits change.
 */
export async function admitToAll(
  { checkManager }: Parts,
  { accountId, bounding }: { readonly accountId: string; readonly bounding: readonly string[] },
  { caller }: AuthenticatedCall,
  tx: Runner,
): Promise<Permit> {
  if (caller.kind === "management") {
    const parentOf = await shareManagers(tx, caller, bounding);
    return (managedBy) => ({ rank: "program", parent: parentOf(managedBy) });
  }
  const rank =
    caller.kind === "person" ? await checkManager(tx, accountId, caller) : ("owner" as const);
  return (managedBy) => {
    if (rank === "member" && managedBy !== actorOf(caller))
      throw new ApiError("not_permitted", {
        message: "As a member of this account you may change only the keys that you manage.",
      });
    return { rank, parent: undefined };
  };
}

/** What the caller may do with the keys of a manager. Throws `not_permitted`. */
export type Permit = (managedBy: string) => Admitted;

/** How many live keys there may be. Undefined: the programs of the operator are not bounded. */
export function liveMaxFor({ keysMax }: Parts, { kind }: AuthenticatedCall["caller"]) {
  return kind === "person" || kind === "management" ? keysMax?.() : undefined;
}

function noSuchKey(): ApiError {
  return new ApiError("not_found", { field: "key_id" });
}

/**
 * The limits that a management key bounds, if they are present in `asked`: one that is not set
 * becomes its ceiling. Throws `invalid_request` with the limit that is above it.
 */
function boundByParent(
  asked: Pick<Partial<Controls>, "requestsPerMinute" | "budget" | "accountReader">,
  { childLimits }: Parent,
  path: string,
): Pick<Partial<Controls>, "requestsPerMinute" | "budget"> {
  checkNoReader(asked, `${path}account_reader`);
  const bound = <T extends number | bigint>(
    limit: T | null | undefined,
    ceiling: T | undefined,
    field: string,
  ) => {
    if (limit === undefined || ceiling === undefined) return limit;
    if (limit !== null && limit > ceiling)
      throw invalidField(path + field, `is above ${ceiling}, the most for keys of this program`);
    return limit ?? ceiling;
  };
  const { budget = {} } = asked;
  const perMinute = childLimits.requestsPerMinute;
  const requestsPerMinute = bound(asked.requestsPerMinute, perMinute, "requests_per_minute");
  const bounded = {
    day: bound(budget.day, childLimits.dailyCapMicrocredits, "daily_cap_microcredits"),
    week: bound(budget.week, childLimits.weeklyCapMicrocredits, "weekly_cap_microcredits"),
    month: bound(budget.month, childLimits.monthlyCapMicrocredits, "monthly_cap_microcredits"),
    total: bound(budget.total, childLimits.totalCapMicrocredits, "total_cap_microcredits"),
    requestsAtOnce: bound(budget.requestsAtOnce, childLimits.requestsAtOnce, "requests_at_once"),
  };
  const changed = Object.entries(bounded).filter(([, limit]) => limit !== undefined);
  return {
    ...(requestsPerMinute !== undefined && { requestsPerMinute }),
    ...(changed.length > 0 && { budget: Object.fromEntries(changed) }),
  };
}

/** Throws `invalid_request`: a program gives nobody a look into the account. */
function checkNoReader(
  { accountReader }: Pick<Partial<Controls>, "accountReader">,
  field: string,
): void {
  if (accountReader) throw invalidField(field, "is not for keys of a management key");
}

/** True if a change raises or removes a limit: the thief of a session could do so. */
function isRaise(changed: Partial<Controls>, before: Limits): boolean {
  const { requestsPerMinute, allowedModels, budget, accountReader, expiresAt } = changed;
  const { allowedAddresses } = changed;
  return (
    isAbove(requestsPerMinute, before.requestsPerMinute) ||
    limitNames.some((name) => isAbove(budget?.[name], before.budget[name])) ||
    isAbove(expiresAt, before.expiresAt) ||
    (accountReader === true && !before.accountReader) ||
    (allowedModels !== undefined && isWider(allowedModels, before.allowedModels)) ||
    (allowedAddresses !== undefined && isWider(allowedAddresses, before.allowedAddresses))
  );
}

/** What a person is to the keys of an account, as the call says. */
export function rankOf(person: Person, accountId: string): Exclude<Rank, "program"> {
  const isOperator = person.operator === OperatorRole.ADMIN;
  return isOperator || roleIn(person, accountId) === AccountRole.OWNER ? "owner" : "member";
}

function hasLimit(controls: Controls): boolean {
  const { requestsPerMinute, allowedModels, allowedAddresses, budget, expiresAt } = controls;
  return (
    allowedAddresses.length > 0 ||
    requestsPerMinute !== null ||
    expiresAt !== null ||
    allowedModels.length > 0 ||
    limitNames.some((name) => (budget[name] ?? null) !== null)
  );
}

/** Null is no limit. Undefined: it is not changed. */
function isAbove<T extends number | bigint | Date>(next: T | null | undefined, before: T | null) {
  if (next === undefined || before === null) return false;
  return next === null || next > before;
}

/** An empty list is everything: every model, or every address. */
function isWider(next: readonly string[], before: readonly string[]): boolean {
  if (before.length === 0) return false;
  return next.length === 0 || next.some((one) => !before.includes(one));
}

/** The limits that a change names, as they were and as they are, for the audit. */
function changedLimits(
  { budget = {}, ...changed }: Partial<Controls>,
  earlier: Limits,
): AuditFacts {
  const facts: Record<string, string> = {};
  const add = (fact: string, next: Parameters<typeof limitText>[0], before: typeof next) => {
    const none = fact === "expiresAt" ? "never" : "unlimited";
    facts[fact] = limitText(next, none);
    facts[`old${fact.charAt(0).toUpperCase()}${fact.slice(1)}`] = limitText(before, none);
  };
  for (const name of controlNames)
    if (name !== "budget" && name in changed) add(name, changed[name], earlier[name]);
  for (const name of limitNames)
    if (name in budget) add(budgetFacts[name], budget[name], earlier.budget[name]);
  return facts;
}

export const controlNames = [
  "requestsPerMinute",
  "allowedModels",
  "budget",
  "accountReader",
  "expiresAt",
  "allowedAddresses",
] as const;
/** As requests name them. */
export const budgetFacts: Readonly<Record<keyof BudgetLimits, string>> = {
  day: "dailyCapMicrocredits",
  week: "weeklyCapMicrocredits",
  month: "monthlyCapMicrocredits",
  total: "totalCapMicrocredits",
  requestsAtOnce: "requestsAtOnce",
};

export function limitText(
  limit: number | bigint | boolean | Date | readonly string[] | null | undefined,
  none: string,
): string {
  if (limit === null || limit === undefined) return none;
  if (limit instanceof Date) return limit.toISOString();
  if (typeof limit !== "object") return String(limit);
  return limit.length === 0 ? "all" : limit.join(" ");
}

function published({ changes }: Parts, key: Key): Key {
  changes.publish(key.keyId);
  return key;
}

function newSecret({ cell }: Parts, family: KeyFamily): NewSecret {
  const secret = mintSecret(family, cell);
  const digest = digestBytes(digestSecret(secret));
  return { secret, stored: { digest, secretId: timeOrderedId("sec_"), hint: hintOf(secret) } };
}

// Validation of requests. Pure functions: each returns the checked values or throws an error that
// names the field.

/** The catalogue id of a model, given its id or alias. Undefined: no such model. */
export type ResolveModel = (name: string) => string | undefined;

const keysPerHourMax = 60;
const expiryMsMax = Date.UTC(9999, 11, 31);
const overlapMsDefault = 24 * 3_600_000;
const changeable = [
  "name",
  "requests_per_minute",
  "allowed_models",
  "daily_cap_microcredits",
  "weekly_cap_microcredits",
  "monthly_cap_microcredits",
  "total_cap_microcredits",
  "requests_at_once",
  "account_reader",
  "expires_at",
  "allowed_addresses",
  "tags",
];

/** An id that can exist. Any other text fails like an id that does not exist. */
export function checkId(field: string, id: string): string {
  if (!/^[0-9A-Za-z_-]{1,100}$/.test(id)) throw new ApiError("not_found", { field });
  return id;
}

/** All settings, of a new key. Throws `invalid_request` and `model_not_found`. */
function checkControls(
  settings: KeySettings = create(KeySettingsSchema),
  resolve: ResolveModel,
): Controls {
  const { allowedModels, allowedAddresses, tags } = settings;
  return {
    name: checkName("settings.name", settings.name),
    requestsPerMinute: settings.requestsPerMinute ?? null,
    allowedModels: resolveModels("settings.allowed_models", allowedModels, resolve),
    budget: budgetOf(settings),
    accountReader: settings.accountReader,
    expiresAt: checkExpiry("settings.expires_at", settings.expiresAt),
    allowedAddresses: checkAddresses("settings.allowed_addresses", allowedAddresses),
    tags: checkTags(tags, "settings.tags"),
  };
}

/** The members named by the update mask. Throws `invalid_request` and `model_not_found`. */
function checkUpdate(
  { keyId, settings, updateMask }: UpdateKeyRequest,
  resolve: ResolveModel,
): { keyId: string; controls: Partial<Controls> } {
  const rule = { ...ofKey, values: "settings." };
  const paths = readMask(rule, settings, updateMask);
  const controls = readControls(settings, paths, resolve, rule.values);
  return { keyId: checkId("key_id", keyId), controls };
}

/** What masks over the settings of a key may name. */
export const ofKey = { type: KeySettingsSchema, changeable };

/**
 * The settings that a mask names, of those in `ofKey`; absent ones are cleared. `prefix`: what the
 * names of fields begin with in errors. Throws `invalid_request` and `model_not_found`.
 */
export function readControls(
  key: KeySettings = create(KeySettingsSchema),
  paths: readonly string[],
  resolve: ResolveModel,
  prefix: string,
): Partial<Controls> {
  const controls: { -readonly [Name in keyof Controls]?: Controls[Name] } = {};
  for (const path of paths) {
    const field = `${prefix}${path}`;
    switch (path) {
      case "name":
        controls.name = checkName(field, key.name);
        break;
      case "requests_per_minute":
        controls.requestsPerMinute = key.requestsPerMinute ?? null;
        break;
      case "allowed_models":
        controls.allowedModels = resolveModels(field, key.allowedModels, resolve);
        break;
      case "daily_cap_microcredits":
      case "weekly_cap_microcredits":
      case "monthly_cap_microcredits":
      case "total_cap_microcredits":
      case "requests_at_once": {
        const budget = budgetOf(key);
        const name = budgetPaths[path];
        controls.budget = { ...controls.budget, [name]: budget[name] };
        break;
      }
      case "account_reader":
        controls.accountReader = key.accountReader;
        break;
      case "expires_at":
        controls.expiresAt = checkExpiry(field, key.expiresAt);
        break;
      case "allowed_addresses":
        controls.allowedAddresses = checkAddresses(field, key.allowedAddresses);
        break;
      case "tags":
        controls.tags = checkTags(key.tags, field);
        break;
    }
  }
  return controls;
}

/** How long the earlier secrets remain valid, in milliseconds. */
export function overlapMsOf(overlap: Duration | undefined): number {
  return overlap ? Number(overlap.seconds) * 1000 + overlap.nanos / 1e6 : overlapMsDefault;
}

function resolveModels(field: string, names: readonly string[], resolve: ResolveModel): string[] {
  const ids = names.map((name, index) => {
    const id = resolve(name);
    if (id === undefined) throw new ApiError("model_not_found", { field: `${field}[${index}]` });
    return id;
  });
  return [...new Set(ids)];
}

export function checkExpiry(field: string, expiresAt: Timestamp | undefined): Date | null {
  if (expiresAt === undefined) return null;
  const date = timestampDate(expiresAt);
  // A binary message can hold a time that no date has, and `NaN` is greater than nothing.
  if (date.getTime() > Date.now() && date.getTime() <= expiryMsMax) return date;
  throw invalidField(field, "has to be in the future, and before the year 10000");
}

/** A whole secret finds its key by the hint, the only part of it that is stored. */
function queryOf(query: string): string {
  return isSecret(query) ? hintOf(query) : query;
}

const attentions: Readonly<Record<KeyAttention, KeyFilter["attention"]>> = {
  [KeyAttention.UNSPECIFIED]: "",
  [KeyAttention.UNUSED]: "unused",
  [KeyAttention.EXPIRES_SOON]: "expires_soon",
  [KeyAttention.NEAR_BUDGET]: "near_budget",
};

/** The keys that a list asks for. Throws `invalid_request`. */
function checkFilter(request: ListKeysRequest): KeyFilter {
  const { states: statuses, state: status, query, tags, withoutTag, attention, keyIds } = request;
  return {
    statuses: statuses.length > 0 ? statuses : status === KeyState.UNSPECIFIED ? [] : [status],
    text: queryOf(query),
    tags: checkTags(tags, "tags"),
    withoutTag,
    attention: attentions[attention] ?? "",
    keyIds,
  };
}

const budgetPaths = {
  daily_cap_microcredits: "day",
  weekly_cap_microcredits: "week",
  monthly_cap_microcredits: "month",
  total_cap_microcredits: "total",
  requests_at_once: "requestsAtOnce",
} as const satisfies Record<string, keyof BudgetLimits>;

function budgetOf(
  of: Pick<
    Key,
    | "dailyCapMicrocredits"
    | "weeklyCapMicrocredits"
    | "monthlyCapMicrocredits"
    | "totalCapMicrocredits"
    | "requestsAtOnce"
  >,
): BudgetLimits {
  return {
    day: of.dailyCapMicrocredits ?? null,
    week: of.weeklyCapMicrocredits ?? null,
    month: of.monthlyCapMicrocredits ?? null,
    total: of.totalCapMicrocredits ?? null,
    requestsAtOnce: of.requestsAtOnce ?? null,
  };
}
