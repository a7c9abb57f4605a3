// A secret, or a link, which is seen once. It is in no address, no storage and no cache, and gone
// with the component.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { words } from "../words.ts";
import { Copy } from "./button.tsx";
import { SelectField } from "./form.tsx";
import { FileMissing } from "./later.tsx";
import { ToolBlocks, useTools } from "./tool-blocks.tsx";

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

/** What to paste into a tool, with the secret filled in. The list of tools is loaded by need. */
export function SecretSnippets({ secret, onCopied }: SecretProps): JSX.Element | null {
  const { file: list, isMissing, again } = useTools();
  const [chosen, setChosen] = useState("curl");
  // A new page would not have the secret any more.
  if (!list) return isMissing ? <FileMissing retry={again} /> : null;
  // gRPC has an address of its own, which this page does not know.
  const shown = list.tools.filter(({ format }) => format !== "gRPC");
  const tool = shown.find(({ id }) => id === chosen);
  const place = { origin: location.origin, grpc: "", key: secret };
  return (
    <div class="stack">
      <SelectField
        name="tool"
        label={words.snippets.label}
        value={chosen}
        onInput={setChosen}
        options={shown.map(({ id, title }) => ({ value: id, label: title }))}
      />
      {tool && <ToolBlocks list={list} tool={tool} place={place} onCopied={onCopied} />}
    </div>
  );
}
