// A secret, which is seen once. It is in no address, no storage and no cache, and gone with the
// component.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { snippet, type Tool } from "../snippets.ts";
import { words } from "../words.ts";
import { Copy } from "./button.tsx";
import { Tabs } from "./choices.tsx";
import { Snippet } from "./small.tsx";

type SecretProps = { secret: string; onCopied?: () => void };

export function Secret({ secret, onCopied }: SecretProps): JSX.Element {
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
          aria-label={words.secret.label}
          value={secret}
          autocomplete="off"
          spellcheck={false}
          onFocus={(event) => event.currentTarget.select()}
          {...(onCopied && { onCopy: onCopied })}
        />
        <Copy text={secret} kind="main" {...(onCopied && { onCopied })} />
      </div>
      <p class="hint">{words.secret.once}</p>
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
