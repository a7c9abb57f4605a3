// The glossary, in a dialog above the page: the line of a `?` first in sight.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Dialog } from "../parts/dialog.tsx";
import { type GlossaryTerm, glossary, glossaryWords as text } from "../words-glossary.ts";

type GlossaryProps = { readonly term: GlossaryTerm | undefined; readonly onClose: () => void };

export function Glossary({ term, onClose }: GlossaryProps): JSX.Element {
  const line = useRef<HTMLDivElement>(null);
  useEffect(() => {
    line.current?.scrollIntoView({ block: "center" });
    line.current?.focus({ preventScroll: true });
  }, []);
  return (
    <Dialog title={text.title} onClose={onClose}>
      <p class="muted">{text.intro}</p>
      <p class="faint">{text.go}</p>
      <dl class="glossary stack">
        {Object.entries(glossary).map(([name, [word, meaning]]) => (
          <div
            key={name}
            {...(name === term && { ref: line, tabIndex: -1, "aria-current": "true" as const })}
          >
            <dt>{word}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
