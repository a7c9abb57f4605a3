// What can be done with the keys that are picked.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Key } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { count } from "../format.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { account } from "../session.ts";
import { type BulkAct, BulkDialog } from "./bulk-dialogs.tsx";
import { type KeyFilter, mayPick, type Pick, type Picks, readMatching } from "./picks.ts";
import { manyWords as words } from "./words-keys.ts";

/** The ids of more keys make an address that is too long. */
const inAddressMax = 200;

type BarProps = {
  readonly picks: Picks;
  readonly shown: readonly Key[];
  /** True: no further keys match. */
  readonly isAll: boolean;
  readonly filter: KeyFilter;
};

export function BulkBar({ picks, shown, isAll, filter }: BarProps): JSX.Element | null {
  const [act, setAct] = useState<BulkAct>();
  const picked = [...picks.all.values()];
  const n = picked.length;
  if (n === 0 && act === undefined) return null;
  const pickable = shown.filter(mayPick);
  const isWholePage = pickable.every((key) => picks.has(key)) && n === pickable.length;
  return (
    <>
      <section class="bulk row" aria-label={words.bar}>
        <b role="status">{words.picked(count(n), n === 1)}</b>
        {isWholePage && !isAll && (
          <AllMatching filter={filter} onPick={picks.put} key={JSON.stringify(filter)} />
        )}
        <Button onClick={() => setAct("pause")}>{words.pause}</Button>
        <Button onClick={() => setAct("resume")}>{words.resume}</Button>
        <Button onClick={() => setAct("limits")}>{words.limits}</Button>
        <Button onClick={() => setAct("tags")}>{words.tags}</Button>
        {n <= inAddressMax && (
          <LinkButton href={fileOf(picked)} download>
            {words.exportPicked}
          </LinkButton>
        )}
        <Button kind="danger" onClick={() => setAct("revoke")}>
          {words.revoke}
        </Button>
        <Button kind="quiet" onClick={() => picks.put([])}>
          {words.clear}
        </Button>
      </section>
      {act && <BulkDialog act={act} picks={picks} onClose={() => setAct(undefined)} />}
    </>
  );
}

function fileOf(picked: readonly Pick[]): string {
  const { accountId } = account.value;
  const key = picked.map(({ keyId }) => keyId).join(",");
  return `/console/export/keys.csv?${new URLSearchParams({ account: accountId, key })}`;
}

type AllProps = {
  readonly filter: KeyFilter;
  readonly onPick: (keys: readonly Pick[]) => void;
};

/** The second step: all keys that match, which are on further pages. Says how many they are. */
function AllMatching({ filter, onPick }: AllProps): JSX.Element | null {
  const [matching, setMatching] = useState<readonly Pick[]>();
  useEffect(() => {
    const left = new AbortController();
    readMatching(filter, left.signal).then(
      (keys) => !left.signal.aborted && setMatching(keys),
      // Without it, the keys of the page are picked.
      () => undefined,
    );
    return () => left.abort();
  }, []);
  if (!matching) return <span class="faint">{words.counting}</span>;
  return (
    <Button kind="quiet" onClick={() => onPick(matching)}>
      {words.allMatching(count(matching.length))}
    </Button>
  );
}
