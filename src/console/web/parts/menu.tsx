import type { ComponentChildren, JSX } from "preact";
import { useId, useRef } from "preact/hooks";

type MenuProps = {
  /** What opens it. */
  button: ComponentChildren;
  label?: string;
  class: string;
  children: (close: () => void) => ComponentChildren;
};

/** A button that opens a popover with what can be chosen. */
export function Menu({ button, label, class: name, children }: MenuProps): JSX.Element {
  const id = useId();
  const popover = useRef<HTMLDivElement>(null);
  return (
    <>
      <button type="button" class={name} popovertarget={id} aria-label={label}>
        {button}
      </button>
      <div ref={popover} id={id} popover="auto">
        {children(() => popover.current?.hidePopover())}
      </div>
    </>
  );
}
