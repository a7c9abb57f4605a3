import type { ComponentChildren, JSX } from "preact";
import { useId, useRef } from "preact/hooks";
import type { Option } from "./form.tsx";

type SegmentsProps<V extends string> = {
  label: string;
  value: V;
  onInput: (value: V) => void;
  options: readonly Option<V>[];
};

/** A row of buttons of which one is pressed. */
export function Segments<V extends string>(props: SegmentsProps<V>): JSX.Element {
  const { label, value, onInput, options } = props;
  return (
    <fieldset class="segments">
      <legend class="visually-hidden">{label}</legend>
      {options.map((one) => (
        <button
          key={one.value}
          type="button"
          aria-pressed={one.value === value}
          onClick={() => onInput(one.value)}
        >
          {one.label}
        </button>
      ))}
    </fieldset>
  );
}

type TabsProps<V extends string> = {
  label: string;
  value: V;
  onInput: (value: V) => void;
  tabs: readonly Option<V>[];
  /** The panel of the chosen tab. */
  children: ComponentChildren;
};

/** Tabs, with the keys that people know from them: arrows, Home and End. */
export function Tabs<V extends string>(props: TabsProps<V>): JSX.Element {
  const { label, value, onInput, tabs, children } = props;
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const index = tabs.findIndex((tab) => tab.value === value);
    const to: Record<string, number> = {
      ArrowRight: (index + 1) % tabs.length,
      ArrowLeft: (index + tabs.length - 1) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    };
    const next = to[event.key];
    const tab = next === undefined ? undefined : tabs[next];
    if (next === undefined || !tab) return;
    event.preventDefault();
    onInput(tab.value);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
  };
  return (
    <div class="tabs">
      <div ref={list} role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.value}
            type="button"
            role="tab"
            id={`${id}-${tab.value}`}
            aria-selected={tab.value === value}
            aria-controls={`${id}-panel`}
            tabIndex={tab.value === value ? 0 : -1}
            onClick={() => onInput(tab.value)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${value}`}>
        {children}
      </div>
    </div>
  );
}
