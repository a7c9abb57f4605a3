import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { enterDialog } from "../router.ts";
import { words } from "../words.ts";
import { Button } from "./button.tsx";
import { Icon } from "./icon.tsx";
import { Notice } from "./small.tsx";

/** What would be lost, and what the person can do about it. */
export type Loss = { readonly text: string; readonly leave: string; readonly stay: string };

type DialogProps = {
  title: string;
  onClose: () => void;
  wide?: boolean;
  /** What is typed in it is worth nothing once it is closed. */
  keepsNothing?: boolean;
  /** What is lost when it is closed now, besides what was typed. */
  loss?: Loss | undefined;
  children: ComponentChildren;
};

/**
 * A dialog that is open while it is on the page. The focus returns to where it came from. Escape,
 * its cross and the way back ask first where something would be lost.
 */
export function Dialog(props: DialogProps): JSX.Element {
  const { title, onClose, wide = false, keepsNothing = false, children } = props;
  const element = useRef<HTMLDialogElement>(null);
  const hasTyped = useRef(false);
  const [asked, setAsked] = useState<Loss>();
  const id = useId();
  const isGone = useRef(false);
  // Before the page is painted: of two dialogs that follow each other, the first gives the focus
  // back before the second looks where it is. Effects after it may come in the other order.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-autofocus=true]")?.focus();
    return () => {
      isGone.current = true;
      dialog?.close();
      if (before instanceof HTMLElement && before !== document.body && before.isConnected)
        before.focus();
      // What opened it is gone, or it came with the page.
      else document.getElementById("content")?.focus({ preventScroll: true });
    };
  }, []);
  const tryClose = () => {
    const loss = props.loss ?? (hasTyped.current ? words.common.typedLoss : undefined);
    if (asked || !loss) onClose();
    else setAsked(loss);
  };
  const latest = useRef(tryClose);
  latest.current = tryClose;
  useLayoutEffect(() => enterDialog(() => latest.current()), []);
  return (
    <dialog
      ref={element}
      class={wide ? "wide-dialog" : undefined}
      aria-labelledby={id}
      onInput={({ target }) => {
        hasTyped.current ||= !keepsNothing && isText(target);
      }}
      onCancel={(event) => {
        // Of the dialog itself, not of a field inside.
        if (event.target !== element.current) return;
        event.preventDefault();
        tryClose();
      }}
      // The browser closes it at a second Escape, whatever became of the first.
      onClose={(event) => {
        if (event.target === element.current && !isGone.current) onClose();
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        <button
          type="button"
          class="button quiet"
          aria-label={words.common.close}
          onClick={tryClose}
        >
          <Icon name="close" />
        </button>
      </header>
      <div class="body stack">{children}</div>
      {asked && (
        <div class="loss" role="alert">
          <Notice
            tone="warn"
            action={
              <>
                <Button kind="quiet" onClick={onClose}>
                  {asked.leave}
                </Button>
                <Button onClick={() => setAsked(undefined)}>{asked.stay}</Button>
              </>
            }
          >
            {asked.text}
          </Notice>
        </div>
      )}
    </dialog>
  );
}

/** Whether somebody typed it: choices are soon made again. */
function isText(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement) return !["checkbox", "radio"].includes(target.type);
  return target instanceof HTMLTextAreaElement;
}
