// The names of keys, for pages that have only their ids. Most answers bring the names with them.

import { useEffect, useState } from "preact/hooks";
import type { KeyLabel } from "../../../../gen/gateway/common/v1/key_label_pb.ts";
import { type Key, KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { call } from "../api.ts";
import { account } from "../session.ts";

/** What people know a key by. */
export type KeyText = Pick<KeyLabel, "keyId" | "name" | "hint">;

/** Ids are never used twice, so an account cannot see what another one's pages learned. */
const labels = new Map<string, KeyText>();

/** Keeps the labels of an answer. */
export function learnKeys(found: readonly KeyText[]): void {
  for (const label of found) labels.set(label.keyId, label);
}

export function labelOf({ keyId, name, secrets }: Key): KeyText {
  return { keyId, name, hint: secrets[0]?.hint ?? "" };
}

/**
 * The keys with these ids. One that is not known yet is asked for, as those of a stream are. One
 * that is missing is not there.
 */
export function useKeys(needed: readonly string[]): ReadonlyMap<string, KeyText> {
  const { accountId } = account.value;
  const missing = needed.find((id) => id !== "" && !labels.has(id));
  const [, setAsked] = useState<string>();
  useEffect(() => {
    if (missing === undefined) return;
    const stopped = new AbortController();
    // An id as the query finds its key.
    const request = { accountId, pageSize: 1, query: missing };
    call(KeysService.method.listKeys, request, { signal: stopped.signal, isByItself: true }).then(
      ({ keys }) => {
        learnKeys(keys.map(labelOf));
        // Nobody has it: its id stands for its name.
        if (!labels.has(missing)) learnKeys([{ keyId: missing, name: "", hint: "" }]);
        setAsked(missing);
      },
      () => undefined,
    );
    return () => stopped.abort();
  }, [missing, accountId]);
  return labels;
}

/** The hint of the newest secret of a key. */
export function hintOf(key: KeyText | undefined): string {
  return key?.hint ?? "";
}

/** What a key is called where there is room for one text. */
export function keyText(id: string, key: KeyText | undefined): string {
  return key?.name || hintOf(key) || id;
}
