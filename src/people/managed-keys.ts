// What becomes of the keys that a person manages who leaves an account or is shut out. He may know
// their secrets, so nobody is shut out without a word about them.

import { create } from "@bufbuild/protobuf";
import { KeyAction, KeyActionSchema } from "../../gen/gateway/common/v1/key_action_pb.ts";
import { type KeyLabel, KeyLabelSchema } from "../../gen/gateway/common/v1/key_label_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { invalidField } from "../base/errors.ts";
import type { AuditFacts, Caller } from "../contract/contract.ts";
import type { ManagedKey, ManagedKeys } from "./parts.ts";
import type { LockedMember, PeopleTables } from "./store.ts";

/** What a request says of the keys of a person. */
export type KeyFate = {
  readonly personId: string;
  readonly keys: KeyAction;
  /** Who manages them from now on. Empty: not said. */
  readonly keysToPersonId: string;
};

type LeftAccount = {
  readonly accountId: string;
  readonly members: readonly LockedMember[];
  readonly caller: Caller;
};

const { KEEP, PAUSE, REVOKE, UNSPECIFIED } = KeyAction;

/** Throws `invalid_request`. */
export function checkFate({ keys, keysToPersonId, personId }: KeyFate): void {
  if (keysToPersonId === "") return;
  if (keys !== KEEP)
    throw invalidField("keys_to_person_id", "is for keys that are kept", ["KEY_ACTION_KEEP"]);
  if (keysToPersonId === personId)
    throw invalidField("keys_to_person_id", "is the person of whom they are taken");
}

/** Throws `invalid_request` with the number of keys if the request says nothing of them. */
export function checkSaid({ keys }: KeyFate, managed: readonly ManagedKey[]): void {
  if (managed.length === 0 || keys !== UNSPECIFIED) return;
  const allowed = ["KEY_ACTION_PAUSE", "KEY_ACTION_REVOKE", "KEY_ACTION_KEEP"];
  const number = managed.length === 1 ? "the key" : `the ${managed.length} keys`;
  throw invalidField("keys", `say what becomes of ${number} of this person`, allowed);
}

/**
 * Pauses, revokes or hands over the keys that a person manages in an account, whose members are
 * locked, and in any case ends what he has seen of management keys. `leaves`: he manages none there
 * afterwards, also none that is paused. Returns the ids for `publish`. Throws `invalid_request`.
 */
export async function settleKeys(
  keys: ManagedKeys,
  tables: PeopleTables,
  fate: KeyFate,
  account: LeftAccount & { readonly leaves: boolean },
): Promise<readonly string[]> {
  const manager = { accountId: account.accountId, personId: fate.personId };
  await checkMayKeep(tables, fate, account);
  const next = nextManager(account.members, fate, account.caller);
  // Before keys, as a program does that changes some.
  const ended = await keys.endSecrets(tables, manager);
  const stopped =
    fate.keys === PAUSE
      ? await keys.pause(tables, manager)
      : fate.keys === REVOKE
        ? await keys.revoke(tables, manager)
        : [];
  // An id of a former member means nothing there.
  if (fate.keys === KEEP || account.leaves) await keys.handOver(tables, manager, next);
  return [...stopped, ...ended];
}

/**
 * Throws `invalid_request` for a member with limits who leaves and keeps his keys: they would go on
 * without these, which an owner alone may allow.
 */
async function checkMayKeep(
  tables: PeopleTables,
  { personId, keys }: KeyFate,
  { accountId, members, caller }: LeftAccount,
): Promise<void> {
  const isOwn = caller.kind === "person" && caller.personId === personId;
  const role = members.find((one) => one.personId === personId)?.role;
  if (keys !== KEEP || !isOwn || role === AccountRole.OWNER) return;
  if (await tables.isLimited(accountId, personId))
    throw invalidField(
      "keys",
      "are bounded by your limits here, without which only owners keep them",
      ["KEY_ACTION_PAUSE", "KEY_ACTION_REVOKE"],
    );
}

/** Who manages the keys that are kept. Undefined: the owners alone. Throws `invalid_request`. */
function nextManager(
  members: readonly LockedMember[],
  { keys, personId, keysToPersonId }: KeyFate,
  caller: Caller,
): string | undefined {
  if (keys !== KEEP) return undefined;
  const canManage = (id: string) =>
    id !== personId &&
    members.some((one) => one.personId === id && one.enabled && one.role >= AccountRole.MEMBER);
  if (keysToPersonId !== "") {
    if (!canManage(keysToPersonId))
      throw invalidField("keys_to_person_id", "is no member of the account who may manage keys");
    return keysToPersonId;
  }
  return caller.kind === "person" && canManage(caller.personId) ? caller.personId : undefined;
}

// So many ids of keys, at most, are in an audit event.
const notedKeysMax = 100;

/** Facts of an audit event. Empty: there were no keys. `count`: all, also those that were kept. */
export function keyFacts(keys: KeyAction, count: number, stopped: readonly string[]): AuditFacts {
  if (count === 0) return {};
  const name = KeyActionSchema.value[keys]?.localName ?? "";
  const ids = stopped.slice(0, notedKeysMax).join(" ");
  // Those of management keys end, also where others are kept.
  const which = keys === PAUSE ? "pausedKeys" : keys === REVOKE ? "revokedKeys" : "endedKeys";
  return { keys: `${name} ${count}`, ...(ids !== "" && { [which]: ids }) };
}

export function toLabels(keys: readonly ManagedKey[]): KeyLabel[] {
  return keys.map(({ keyId, name, hint }) => create(KeyLabelSchema, { keyId, name, hint }));
}
