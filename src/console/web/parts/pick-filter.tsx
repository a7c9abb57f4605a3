// A field that chooses one thing among thousands: the list is searched by the gateway.

import type { JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";

const pauseMs = 200;

type PickFilterProps = {
  readonly label: string;
  readonly placeholder: string;
  /** The id of what is chosen, and how it is shown. Both may be empty. */
  readonly chosen: string;
  readonly chosenText: string;
  /** What the last search found. Texts differ. */
  readonly options: readonly { readonly id: string; readonly text: string }[];
  /** Searches, a pause after something was typed. Undefined: nobody searches any more. */
  readonly onSearch: (query: string | undefined) => void;
  readonly onInput: (id: string) => void;
};

export function PickFilter(props: PickFilterProps): JSX.Element {
  const { label, placeholder, chosen, chosenText, options, onSearch, onInput } = props;
  const id = useId();
  const [typed, setTyped] = useState<string>();
  useEffect(() => {
    // The name of what is chosen is no search: the others should be offered.
    const query = typed === chosenText ? "" : typed;
    const timer = setTimeout(() => onSearch(query), pauseMs);
    return () => clearTimeout(timer);
  }, [typed]);
  const choose = (text: string) => {
    setTyped(text);
    if (text === "") onInput("");
    const found = options.find((one) => one.text === text);
    if (!found) return;
    onInput(found.id);
    setTyped(undefined);
  };
  return (
    <div class="filter stack">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="search"
        dir="auto"
        autocomplete="off"
        list={`${id}-options`}
        placeholder={placeholder}
        value={typed ?? (chosen === "" ? "" : chosenText)}
        onFocus={() => setTyped((text) => text ?? chosenText)}
        onBlur={() => setTyped(undefined)}
        onInput={(event) => choose(event.currentTarget.value)}
      />
      <datalist id={`${id}-options`}>
        {options.map((one) => (
          <option key={one.id} value={one.text} />
        ))}
      </datalist>
    </div>
  );
}
