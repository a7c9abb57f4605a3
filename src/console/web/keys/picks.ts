// The keys that somebody picks in a list, to do something with all of them.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { useState } from "preact/hooks";
import {
  type ChangeKeysRequestSchema,
  type Key,
  type KeyAttention,
  type KeyResult,
  KeyResult_Outcome,
  KeyState,
  KeysService,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { call } from "../api.ts";
import { mayManage } from "../parts/key-tags.tsx";
import { account } from "../session.ts";

/** A key, as it was read. */
export type Pick = Readonly<globalThis.Pick<Key, "keyId" | "revision">>;

/** False: nothing can be done with the key, or not by this person. */
export function mayPick(key: Readonly<globalThis.Pick<Key, "managedBy" | "state">>): boolean {
  return mayManage(key) && key.state !== KeyState.REVOKED;
}

export type Picks = {
  /** By their ids. */
  readonly all: ReadonlyMap<string, Pick>;
  has(key: Pick): boolean;
  add(keys: readonly Pick[]): void;
  remove(keys: readonly Pick[]): void;
  /** These, and no others. */
  put(keys: readonly Pick[]): void;
};

const none: ReadonlyMap<string, Pick> = new Map();

/**
 * `question`: of the list; another one begins without any. `shown`: the keys on screen, which are
 * picked as they are read now.
 */
export function usePicks(question: string, shown: readonly Pick[]): Picks {
  const [state, setState] = useState({ question, picks: none });
  const picks = state.question === question ? state.picks : none;
  const set = (next: ReadonlyMap<string, Pick>) => setState({ question, picks: next });
  const now = new Map(shown.map((key) => [key.keyId, key]));
  return {
    all: new Map([...picks].map(([keyId, pick]) => [keyId, now.get(keyId) ?? pick])),
    has: ({ keyId }) => picks.has(keyId),
    add: (keys) => set(new Map([...picks, ...keys.map((key) => [key.keyId, key] as const)])),
    remove(keys) {
      const gone = new Set(keys.map(({ keyId }) => keyId));
      set(new Map([...picks].filter(([keyId]) => !gone.has(keyId))));
    },
    put: (keys) => set(new Map(keys.map((key) => [key.keyId, key]))),
  };
}

/** The keys of a list, as ListKeysRequest names them. */
export type KeyFilter = {
  readonly accountId: string;
  readonly states: KeyState[];
  readonly query: string;
  readonly tags: Record<string, string>;
  readonly withoutTag: string;
  readonly attention: KeyAttention;
};

/** Every key of a list that may be picked, with nothing but its id and revision. */
export async function readMatching(filter: KeyFilter, signal: AbortSignal): Promise<Pick[]> {
  const found: Pick[] = [];
  let pageToken = "";
  do {
    const asked = { ...filter, onlyIds: true, pageSize: 1000, pageToken };
    const page = await call(KeysService.method.listKeys, asked, { signal, isByItself: true });
    found.push(...page.keys.filter(mayPick).map(({ keyId, revision }) => ({ keyId, revision })));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}

export type KeyChange = NonNullable<MessageInitShape<typeof ChangeKeysRequestSchema>["change"]>;

/**
 * The revisions that this page has made: the list may not have been read since, and a key that
 * nobody else changed is not changed elsewhere.
 */
const made = new Map<string, number>();

/** One call changes so many: none holds its locks for long, and the page can say how far it is. */
const batch = 200;

/** Changes keys, and says after each call how many are done. Throws a CallError. */
export async function changeKeys(
  picks: readonly Pick[],
  change: KeyChange,
  onDone: (keys: number) => void = () => undefined,
): Promise<KeyResult[]> {
  const results: KeyResult[] = [];
  for (let first = 0; first < picks.length; first += batch) {
    const keys = picks.slice(first, first + batch);
    const { accountId } = account.value;
    const answer = await call(KeysService.method.changeKeys, {
      accountId,
      keys: keys.map(({ keyId, revision }) => ({
        keyId,
        revision: Math.max(revision, made.get(keyId) ?? 0),
      })),
      change,
    });
    for (const { keyId, outcome, revision } of answer.results)
      if (outcome === KeyResult_Outcome.CHANGED && revision !== undefined)
        made.set(keyId, revision);
    results.push(...answer.results);
    onDone(results.length);
  }
  return results;
}
