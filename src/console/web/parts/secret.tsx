// A secret, or a link, which is seen once. It is in no address, no storage and no cache, and gone
// with the component.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { snippet, type Tool } from "../snippets.ts";
import { words } from "../words.ts";
import { Copy } from "./button.tsx";
import { Tabs } from "./choices.tsx";
import { Snippet } from "./small.tsx";

type SecretProps = { secret: string; onCopied?: () => void };

export function Secret({ secret, onCopied }: SecretProps): JSX.Element {
  return (
    <WholeText
      label={words.secret.label}
      text={secret}
      note={words.secret.once}
      {...(onCopied && { onCopied })}
    />
  );
}

type WholeTextProps = {
  /** For screen readers. */
  label: string;
  text: string;
  note?: string;
  onCopied?: () => void;
};

/** So many characters fit on a line of a dialog, and of a dialog on a phone. */
const [lineLength, narrowLineLength] = [56, 28];

/** What is seen once, whole and selected, with a button to copy it. */
export function WholeText({ label, text, note, onCopied }: WholeTextProps): JSX.Element {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  return (
    <div class="secret stack">
      <div class="secret-row columns">
        <textarea
          ref={field}
          readOnly
          data-autofocus
          aria-label={label}
          value={text}
          style={{
            "--lines": Math.ceil(text.length / lineLength),
            "--narrow-lines": Math.ceil(text.length / narrowLineLength),
          }}
          autocomplete="off"
          spellcheck={false}
          onFocus={(event) => event.currentTarget.select()}
          {...(onCopied && { onCopy: onCopied })}
        />
        <Copy text={text} kind="main" {...(onCopied && { onCopied })} />
      </div>
      {note && <p class="hint">{note}</p>}
    </div>
  );
}

const tools = ["curl", "anthropic", "openai", "claudeCode"] as const satisfies readonly Tool[];

/** What to paste, with the secret filled in. */
export function SecretSnippets({ secret, onCopied }: SecretProps): JSX.Element {
  const [tool, setTool] = useState<Tool>("curl");
  return (
    <Tabs
      label={words.snippets.label}
      value={tool}
      onInput={setTool}
      tabs={tools.map((value) => ({ value, label: words.snippets[value] }))}
    >
      <Snippet text={snippet(tool, secret, location.origin)} {...(onCopied && { onCopied })} />
    </Tabs>
  );
}
