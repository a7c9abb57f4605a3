import type { JSX } from "preact";
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
