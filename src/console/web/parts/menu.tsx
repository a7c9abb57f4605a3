import type { ComponentChildren, JSX } from "preact";
import { useId, useRef } from "preact/hooks";

type MenuProps = {
  /** What opens it. */
  button: ComponentChildren;
  label?: string;
  class: string;
  /** Called when it opens. */
  onOpen?: () => void;
  children: (close: () => void) => ComponentChildren;
};

/** A button that opens a popover with what can be chosen. */
export function Menu(props: MenuProps): JSX.Element {
  const { button, label, class: name, onOpen, children } = props;
  const id = useId();
  const popover = useRef<HTMLDivElement>(null);
  return (
    <>
      <button type="button" class={name} popovertarget={id} aria-label={label}>
        {button}
      </button>
      <div
        ref={popover}
        id={id}
        popover="auto"
        onToggle={({ currentTarget }) => {
          if (currentTarget.matches(":popover-open")) onOpen?.();
        }}
      >
        {children(() => popover.current?.hidePopover())}
      </div>
    </>
  );
}
