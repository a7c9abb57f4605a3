import type { JSX } from "preact";
import { overlay } from "../overlay.ts";
import { words } from "../words.ts";
import type { GlossaryTerm } from "../words-glossary.ts";
import { Icon } from "./icon.tsx";

/** A `?` beside a word that is ours: it opens the glossary at its line. */
export function Term({ of: term, word }: { of: GlossaryTerm; word: string }): JSX.Element {
  return (
    <button
      type="button"
      class="term"
      aria-label={words.common.meaning(word)}
      title={words.common.meaning(word)}
      onClick={(event) => {
        event.preventDefault();
        overlay.value = { kind: "glossary", term };
      }}
    >
      <Icon name="help" />
    </button>
  );
}
