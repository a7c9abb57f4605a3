// The change of many keys at once: each as its own method would change it, all in one transaction.
// A key that cannot be changed has an outcome of its own and does not keep the others from theirs.

import { create } from "@bufbuild/protobuf";
import {
  type ChangeKeysRequest,
  type ChangeKeysResponse,
  ChangeKeysResponseSchema,
  type KeyAsRead,
  KeyResult_Outcome as Outcome,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { limitNames } from "../base/budgets.ts";
import { ApiError, type ErrorReason, invalidField } from "../base/errors.ts";
import { checkTags, sortedTags, tagsMax, tagsText } from "../base/tags.ts";
import { checkStrong } from "../contract/callers.ts";
import type { AuditFacts, AuthenticatedCall } from "../contract/contract.ts";
import { readMask } from "../contract/update-mask.ts";
import {
  admitToAll,
  budgetFacts,
  checkId,
  checkResumes,
  controlNames,
  decideLimits,
  limitText,
  liveMaxFor,
  ofKey,
  type Parts,
  type Permit,
  pausedBy,
  readControls,
} from "./administration.ts";
import {
  type Admitted,
  type Controls,
  checkBounds,
  checkManaged,
  type KeyChange,
  type KeyWrite,
  type LockedKey,
  type NewTags,
  type Parent,
} from "./store.ts";

/** What becomes of every key. */
type Change =
  | { readonly kind: "pause" | "resume" | "revoke" }
  | { readonly kind: "limits"; readonly controls: Partial<Controls> }
  | ({ readonly kind: "tags" } & NewTags);

/** What becomes of one key. `write`: absent: it stays as it is. */
type Decision = {
  readonly outcome: Outcome;
  readonly write?: KeyWrite | undefined;
  readonly message?: string;
  /** True: a person has to confirm it. */
  readonly isRaise?: boolean;
};

export async function changeKeys(
  parts: Parts,
  request: ChangeKeysRequest,
  call: AuthenticatedCall,
): Promise<ChangeKeysResponse> {
  const { store, changes } = parts;
  const { caller, note } = call;
  const accountId = checkId("account_id", call.accountId);
  const asRead = checkKeys(request.keys);
  const change = checkChange(request, parts);
  if (change.kind === "revoke") checkStrong(caller);
  const isProgram = caller.kind === "management";
  const decided = new Map<string, Decision>();
  const revisions = new Map<string, number>();
  // Keys that were expired, by who manages them: each counts as a new one.
  const revived = new Map<string, { readonly parent: Parent | undefined; keys: number }>();
  const revive = (managedBy: string, { parent }: Admitted) => {
    if (change.kind !== "limits" || change.controls.expiresAt === undefined) return;
    revived.set(managedBy, { parent, keys: (revived.get(managedBy)?.keys ?? 0) + 1 });
  };
  let isRaise = false;
  await store.changeKeys(
    {
      accountId,
      keyIds: [...asRead.keys()],
      countsKeys: change.kind === "limits" && change.controls.expiresAt !== undefined,
      setsBudgets: change.kind === "limits" && change.controls.budget !== undefined,
    },
    {
      admit(tx, managers) {
        const bounding = change.kind === "limits" ? managers : [];
        return admitToAll(parts, { accountId, bounding }, call, tx);
      },
      decide(key, permit) {
        const { keyId, managedBy } = key;
        const decision = decide(change, { key, asRead: asRead.get(keyId), isProgram }, permit);
        decided.set(keyId, decision);
        revisions.set(keyId, key.revision + (decision.write ? 1 : 0));
        isRaise ||= decision.isRaise ?? false;
        if (decision.write?.kind === "limits" && key.isExpired)
          revive(managedBy, permit(managedBy));
        return decision.write;
      },
      async check(tx) {
        if (isRaise) checkStrong(caller);
        const added = [...revived.values()].reduce((sum, { keys }) => sum + keys, 0);
        const liveMax = liveMaxFor(parts, caller);
        if (added > 0 && liveMax !== undefined)
          await checkBounds(tx, accountId, { liveMax }, added);
        for (const [managedBy, { parent, keys }] of revived)
          if (parent) await checkManaged(tx, managedBy, parent.mostKeys, keys);
      },
    },
  );
  const changed = [...asRead.keys()].filter((keyId) => decided.get(keyId)?.write);
  for (const keyId of changed) changes.publish(keyId);
  note?.({
    accountId,
    ...factsOf(change),
    keys: String(changed.length),
    keyIds: changed.join(" "),
  });
  const conflicts = [...asRead.keys()].filter(
    (keyId) => decided.get(keyId)?.outcome === Outcome.CONFLICT,
  );
  const now = new Map((await store.readBare(conflicts)).map((key) => [key.keyId, key]));
  return create(ChangeKeysResponseSchema, {
    results: [...asRead.keys()].map((keyId) => {
      const { outcome, message = "" } = decided.get(keyId) ?? { outcome: Outcome.GONE };
      const key = now.get(keyId);
      const revision = key?.revision ?? revisions.get(keyId);
      return {
        ...{ keyId, outcome, message },
        ...(outcome !== Outcome.GONE && revision !== undefined && { revision }),
        ...(key && { key }),
      };
    }),
  });
}

/** A pure function of a locked key, and of what the caller has read of it. */
function decide(
  change: Change,
  of: {
    readonly key: LockedKey;
    readonly asRead: KeyAsRead | undefined;
    readonly isProgram: boolean;
  },
  permit: Permit,
): Decision {
  const { key, asRead, isProgram } = of;
  try {
    const admitted = permit(key.managedBy);
    if (key.status === "revoked")
      return { outcome: change.kind === "revoke" ? Outcome.ALREADY : Outcome.GONE };
    // As for one key: a program gets no use of a key that reads the account.
    if (isProgram && key.accountReader && change.kind !== "pause" && change.kind !== "revoke")
      throw new ApiError("not_permitted", {
        message: "A management key may only pause and revoke a key that reads the account.",
      });
    const decision = decideChange(change, key, admitted);
    if (decision.outcome !== Outcome.CHANGED) return decision;
    const isOld = asRead?.revision !== undefined && asRead.revision !== key.revision;
    return isOld ? { outcome: Outcome.CONFLICT } : decision;
  } catch (error) {
    // The program that made this key allows less than was asked for; other keys may allow it.
    const isAbove = change.kind === "limits" && isReason(error, "invalid_request");
    if (isAbove || isReason(error, "not_permitted")) return refused(error);
    throw error;
  }
}

function isReason(error: unknown, reason: ErrorReason): error is ApiError {
  return error instanceof ApiError && error.reason === reason;
}

function refused({ message }: ApiError): Decision {
  return { outcome: Outcome.NOT_ALLOWED, message };
}

function decideChange(change: Change, key: LockedKey, admitted: Admitted): Decision {
  const { rank } = admitted;
  switch (change.kind) {
    case "revoke":
      return { outcome: Outcome.CHANGED, write: { kind: "revoke" } };
    case "pause": {
      const next = pausedBy(key, rank);
      const outcome = key.paused ? Outcome.ALREADY : Outcome.CHANGED;
      return { outcome, write: next && { kind: "pause", next } };
    }
    case "resume": {
      if (!key.paused) return { outcome: Outcome.ALREADY };
      checkResumes(key, rank);
      const next = { paused: false, pausedByOwner: false, pausedByProgram: false };
      return { outcome: Outcome.CHANGED, write: { kind: "pause", next }, isRaise: true };
    }
    case "limits": {
      const before = { ...key, ...key.limits };
      const { isRaise, ...next } = decideLimits(
        change.controls,
        before,
        admitted,
        "limits.settings.",
      );
      if (isSameLimits(next.controls, key) && isLimitedBy(key, next.limitedBy))
        return { outcome: Outcome.ALREADY };
      return { outcome: Outcome.CHANGED, write: { kind: "limits", change: next }, isRaise };
    }
    case "tags":
      return decideTags(change, key);
  }
}

function decideTags({ set, removed }: NewTags, { keyTags }: LockedKey): Decision {
  const isSame =
    Object.entries(set).every(([tag, value]) => keyTags[tag] === value) &&
    removed.every((tag) => !Object.hasOwn(keyTags, tag));
  if (isSame) return { outcome: Outcome.ALREADY };
  const left = Object.keys({ ...keyTags, ...set }).filter((tag) => !removed.includes(tag));
  if (left.length > tagsMax)
    return refused(
      new ApiError("not_permitted", { message: `A key has ${tagsMax} tags at most.` }),
    );
  return {
    outcome: Outcome.CHANGED,
    write: { kind: "tags", change: { set, removed } },
  };
}

function isSameLimits(controls: Partial<Controls>, { limits }: LockedKey): boolean {
  const { budget = {} } = controls;
  return (
    controlNames.every(
      (name) =>
        name === "budget" ||
        !(name in controls) ||
        limitText(controls[name], "") === limitText(limits[name], ""),
    ) && limitNames.every((name) => !(name in budget) || budget[name] === limits.budget[name])
  );
}

/** True if who limits a key from now on does so already. An equal limit may bind anew. */
function isLimitedBy(
  { limitedByOwner, limitedByProgram }: LockedKey,
  limitedBy: KeyChange["limitedBy"],
): boolean {
  return (
    limitedBy === undefined || (limitedByOwner && limitedByProgram === (limitedBy === "program"))
  );
}

/** The keys in their order. Throws `invalid_request`. */
function checkKeys(keys: readonly KeyAsRead[]): Map<string, KeyAsRead> {
  const named = new Map(keys.map((key) => [key.keyId, key]));
  if (named.size < keys.length) throw invalidField("keys", "names a key twice");
  return named;
}

/** What is no limit of several keys. */
const notLimits = ["name", "account_reader", "tags"];
const limitsRule = {
  type: ofKey.type,
  changeable: ofKey.changeable.filter((name) => !notLimits.includes(name)),
  values: "limits.settings.",
  mask: "limits.update_mask",
};

/** Throws `invalid_request` and `model_not_found`. */
function checkChange({ change }: ChangeKeysRequest, { resolveModel }: Parts): Change {
  switch (change.case) {
    case "pause":
    case "resume":
    case "revoke":
      if (!change.value) throw invalidField(change.case, "has to be true");
      return { kind: change.case };
    case "limits": {
      const { settings, updateMask } = change.value;
      const paths = readMask(limitsRule, settings, updateMask);
      const { values } = limitsRule;
      const controls = readControls(settings, paths, resolveModel, values);
      return { kind: "limits", controls };
    }
    case "tags": {
      const set = checkTags(change.value.set, "tags.set");
      const removed = [...new Set(change.value.remove)];
      for (const tag of removed)
        if (Object.hasOwn(set, tag))
          throw invalidField("tags.remove", `names the tag ${tag}, which is set`);
      if (Object.keys(set).length + removed.length === 0)
        throw invalidField("tags", "has to set or remove a tag");
      return { kind: "tags", set, removed };
    }
    default:
      throw invalidField("change", "is required", ["pause", "resume", "revoke", "limits", "tags"]);
  }
}

/** The change, for the audit. */
function factsOf(change: Change): AuditFacts {
  if (change.kind === "tags")
    return {
      change: "tags",
      ...(sortedTags(change.set).length > 0 && { tags: tagsText(change.set) }),
      ...(change.removed.length > 0 && { removedTags: change.removed.join(" ") }),
    };
  if (change.kind !== "limits") return { change: change.kind };
  const { budget = {}, ...controls } = change.controls;
  const facts: Record<string, string> = { change: "limits" };
  for (const name of controlNames)
    if (name !== "budget" && name in controls)
      facts[name] = limitText(controls[name], name === "expiresAt" ? "never" : "unlimited");
  for (const name of limitNames)
    if (name in budget) facts[budgetFacts[name]] = limitText(budget[name], "unlimited");
  return facts;
}
