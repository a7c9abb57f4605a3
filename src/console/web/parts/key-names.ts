// The names of keys, for pages that have only their ids.

import { useEffect, useState } from "preact/hooks";
import { type Key, KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { call, useCall } from "../api.ts";
import { account } from "../session.ts";

const pageSize = 1000;

/**
 * The keys of the account by id. Reads the list until it has all that are needed. A key that is
 * missing is not known yet, or not there.
 */
export function useKeys(needed: readonly string[]): ReadonlyMap<string, Key> {
  const { accountId } = account.value;
  const first = useCall(KeysService.method.listKeys, { accountId, pageSize });
  const [behind, setBehind] = useState<{ first: unknown; keys: readonly Key[]; token: string }>();
  const isBehindFirst = behind !== undefined && behind.first === first.data;
  const token = isBehindFirst ? behind.token : (first.data?.nextPageToken ?? "");
  const keys = [...(first.data?.keys ?? []), ...(isBehindFirst ? behind.keys : [])];
  const known = new Map(keys.map((key) => [key.keyId, key]));
  const isMissing = needed.some((id) => id !== "" && !known.has(id));
  useEffect(() => {
    if (!isMissing || token === "") return;
    const stopped = new AbortController();
    const request = { accountId, pageSize, pageToken: token };
    call(KeysService.method.listKeys, request, { signal: stopped.signal }).then(
      (page) => {
        const before = isBehindFirst ? behind.keys : [];
        setBehind({
          first: first.data,
          keys: [...before, ...page.keys],
          token: page.nextPageToken,
        });
      },
      // Then the ids stand for the names.
      () => undefined,
    );
    return () => stopped.abort();
  }, [isMissing, token, accountId]);
  return known;
}

/** The hint of the newest secret of a key. */
export function hintOf(key: Key | undefined): string {
  return key?.secrets[0]?.hint ?? "";
}
