// A field that chooses one key among thousands: the list is searched by the gateway.

import { useEffect, useId, useState } from "preact/hooks";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { useCall } from "../api.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { hintOf, type KeyText, labelOf } from "./key-names.ts";

const offered = 20;
const pauseMs = 200;

export function KeyFilter({
  keyId,
  known,
  onInput,
}: {
  readonly keyId: string;
  /** The key of `keyId`, if it is known. */
  readonly known: KeyText | undefined;
  readonly onInput: (keyId: string) => void;
}) {
  const id = useId();
  const [typed, setTyped] = useState<string>();
  // The name of the chosen key is no search: the others should be offered.
  const query = useLater(known && typed === textOf(known) ? "" : (typed ?? ""));
  const { accountId } = account.value;
  const list = useCall(
    KeysService.method.listKeys,
    typed === undefined ? undefined : { accountId, pageSize: offered, query },
  );
  const keys = (list.data?.keys ?? []).map(labelOf);
  const choose = (text: string) => {
    setTyped(text);
    if (text === "") onInput("");
    const chosen = keys.find((key) => textOf(key) === text);
    if (!chosen) return;
    onInput(chosen.keyId);
    setTyped(undefined);
  };
  return (
    <div class="filter stack">
      <label for={id}>{words.usage.key}</label>
      <input
        id={id}
        type="search"
        dir="auto"
        autocomplete="off"
        list={`${id}-keys`}
        placeholder={words.usage.allKeys}
        value={typed ?? (keyId === "" ? "" : known ? textOf(known) : keyId)}
        onFocus={() => setTyped((text) => text ?? (known ? textOf(known) : ""))}
        onBlur={() => setTyped(undefined)}
        onInput={(event) => choose(event.currentTarget.value)}
      />
      <datalist id={`${id}-keys`}>
        {keys.map((key) => (
          <option key={key.keyId} value={textOf(key)} />
        ))}
      </datalist>
    </div>
  );
}

/** Names may be equal or empty; hints are neither. */
function textOf(key: KeyText): string {
  const hint = hintOf(key) || key.keyId;
  return key.name === "" ? hint : `${key.name} (${hint})`;
}

/** A text that is typed, after a pause. */
function useLater(text: string): string {
  const [later, setLater] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setLater(text), pauseMs);
    return () => clearTimeout(timer);
  }, [text]);
  return later;
}
