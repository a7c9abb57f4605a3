// A field that chooses one key among thousands.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { useCall } from "../api.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { hintOf, type KeyText, labelOf } from "./key-names.ts";
import { PickFilter } from "./pick-filter.tsx";

const offered = 20;

type KeyFilterProps = {
  readonly keyId: string;
  /** The key of `keyId`, if it is known. */
  readonly known: KeyText | undefined;
  readonly onInput: (keyId: string) => void;
};

export function KeyFilter({ keyId, known, onInput }: KeyFilterProps): JSX.Element {
  const [query, setQuery] = useState<string>();
  const { accountId } = account.value;
  const list = useCall(
    KeysService.method.listKeys,
    query === undefined ? undefined : { accountId, pageSize: offered, query },
  );
  return (
    <PickFilter
      label={words.usage.key}
      placeholder={words.usage.allKeys}
      chosen={keyId}
      chosenText={known ? textOf(known) : keyId}
      options={(list.data?.keys ?? []).map(labelOf).map((key) => ({
        id: key.keyId,
        text: textOf(key),
      }))}
      onSearch={setQuery}
      onInput={onInput}
    />
  );
}

/** Names may be equal or empty; hints are neither. */
function textOf(key: KeyText): string {
  const hint = hintOf(key) || key.keyId;
  return key.name === "" ? hint : `${key.name} (${hint})`;
}
