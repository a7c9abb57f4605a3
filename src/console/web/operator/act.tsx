// The dialog in which an operator acts: what the act needs, and last of all its reason.

import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { reasonCharactersMin } from "../../../base/shown-figures.ts";
import { toCallError } from "../api.ts";
import type { ButtonKind } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Form, fieldError, TextField } from "../parts/form.tsx";
import { words } from "./words.ts";

/** Trimmed; and one key for all tries of which nobody knows whether they succeeded. */
export type Act = { readonly reason: string; readonly idempotencyKey: string };

type ActDialogProps = {
  readonly title: string;
  /** The text of the button. */
  readonly submit: string;
  readonly kind?: ButtonKind;
  /** The names of the other fields. */
  readonly fields?: readonly string[];
  readonly reasonLabel?: string;
  readonly reasonHint?: string;
  /** The act. An error is shown, and the dialog stays. */
  readonly onAct: (act: Act) => Promise<void>;
  readonly onClose: () => void;
  /** After the act. Default: it closes. */
  readonly onDone?: () => void;
  readonly children?: ComponentChildren;
};

export function ActDialog(props: ActDialogProps): JSX.Element {
  const { title, submit, kind = "main", fields = [], onAct, onClose, children } = props;
  const { reasonLabel = words.reason, reasonHint = words.reasonHint, onDone = onClose } = props;
  const [text, setText] = useState("");
  const key = useRef(crypto.randomUUID());
  const act = async () => {
    const reason = text.trim();
    if ([...reason].length < reasonCharactersMin) throw fieldError("reason", words.shortReason);
    try {
      await onAct({ reason, idempotencyKey: key.current });
    } catch (thrown) {
      const { isPassing, reason: why } = toCallError(thrown);
      // An act that was refused was not done: the next try may be another one.
      if (!isPassing && why !== "internal") key.current = crypto.randomUUID();
      throw thrown;
    }
    onDone();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        kind={kind}
        submit={submit}
        fields={[...fields, "reason"]}
        onSubmit={act}
        onCancel={onClose}
      >
        {children}
        <TextField
          name="reason"
          label={reasonLabel}
          hint={reasonHint}
          lines={2}
          value={text}
          onInput={setText}
          isFirst={fields.length === 0}
        />
      </Form>
    </Dialog>
  );
}
