import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { words } from "../words.ts";
import { Icon } from "./icon.tsx";

type DialogProps = {
  title: string;
  onClose: () => void;
  wide?: boolean;
  /** False: something would be lost. A dialog that asks first closes by itself. */
  mayClose?: () => boolean;
  children: ComponentChildren;
};

/** A dialog that is open while it is on the page. The focus returns to where it came from. */
export function Dialog(props: DialogProps): JSX.Element {
  const { title, onClose, wide = false, mayClose = () => true, children } = props;
  const element = useRef<HTMLDialogElement>(null);
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
    if (mayClose()) onClose();
  };
  return (
    <dialog
      ref={element}
      class={wide ? "wide-dialog" : undefined}
      aria-labelledby={id}
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
    </dialog>
  );
}
