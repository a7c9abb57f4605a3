// The fields in the row of filters, above figures and lists. What they hold is in the address.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { InferenceService } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { useCall } from "../api.ts";
import { words } from "../words.ts";
import { Search } from "./form.tsx";

/** A row of filters. `label`: for screen readers. */
export function Filters({ children }: { readonly children: ComponentChildren }): JSX.Element {
  return (
    <search class="filter-row" aria-label={words.usage.filters}>
      {children}
    </search>
  );
}

type FilterProps<V extends string = string> = {
  readonly label: string;
  readonly value: V;
  readonly onInput: (value: V) => void;
};

/** A day as `2026-11-22`. Empty: none. */
export function DayFilter({ label, value, onInput }: FilterProps): JSX.Element {
  return (
    <label class="filter stack">
      <span>{label}</span>
      <input type="date" value={value} onChange={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}

/** A text that counts once it is complete: after Enter, or when the field is left. */
export function TextFilter(
  props: FilterProps & {
    readonly problem?: string | undefined;
    /** Default: a number. */
    readonly mode?: "text";
    /** Texts that can be chosen. */
    readonly offered?: readonly string[];
    readonly onFocus?: () => void;
  },
): JSX.Element {
  const { label, value, onInput, problem, mode = "decimal", offered = [], onFocus } = props;
  const id = useId();
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  // The address has changed otherwise.
  if (shown !== value) {
    setShown(value);
    setText(value);
  }
  return (
    <label class="filter stack">
      <span>{label}</span>
      <input
        type="text"
        inputMode={mode}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        title={problem}
        aria-invalid={problem !== undefined}
        list={offered.length > 0 ? id : undefined}
        onFocus={onFocus}
        onChange={(event) => onInput(event.currentTarget.value)}
      />
      {offered.length > 0 && (
        <datalist id={id}>
          {offered.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
      {problem && (
        <span class="problem" role="alert">
          {problem}
        </span>
      )}
    </label>
  );
}

/** So long nobody has typed: then the search begins. */
const typedMs = 300;

/** A search by the service, which follows what is typed after a pause. */
export function SearchFilter({ label, value, onInput }: FilterProps): JSX.Element {
  const [text, setText] = useState(value);
  const [asked, setAsked] = useState(value);
  // The address has changed otherwise: by the way back, or by a button.
  if (asked !== value) {
    setAsked(value);
    setText(value);
  }
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => {
      setAsked(text);
      onInput(text);
    }, typedMs);
    return () => clearTimeout(timer);
  }, [text, value]);
  return <Search label={label} value={text} onInput={setText} />;
}

type ChoiceFilterProps<V extends string> = FilterProps<V> & {
  readonly options: readonly { readonly value: V; readonly label: string }[];
  readonly onFocus?: () => void;
};

export function ChoiceFilter<V extends string>(props: ChoiceFilterProps<V>): JSX.Element {
  const { label, value, onInput, options, onFocus } = props;
  return (
    <label class="filter stack">
      <span>{label}</span>
      <select
        value={value}
        onFocus={onFocus}
        onPointerEnter={onFocus}
        onChange={(event) => {
          const chosen = options.find((one) => one.value === event.currentTarget.value);
          if (chosen) onInput(chosen.value);
        }}
      >
        {options.map((one) => (
          <option key={one.value} value={one.value}>
            {one.label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The models of the catalogue, and the one that is chosen, which may be gone from it. */
export function ModelFilter({ value, onInput }: Omit<FilterProps, "label">): JSX.Element {
  // Nobody needs the catalogue before looking for a model.
  const [isWanted, setWanted] = useState(false);
  const { data } = useCall(InferenceService.method.listModels, isWanted ? {} : undefined);
  const models = (data?.models ?? []).filter(({ aliasFor }) => aliasFor === "").map(({ id }) => id);
  const offered = [...new Set([...models, value])].filter((name) => name !== "").sort();
  return (
    <ChoiceFilter
      label={words.usage.model}
      value={value}
      onInput={onInput}
      onFocus={() => setWanted(true)}
      options={[
        { value: "", label: words.usage.allModels },
        ...offered.map((name) => ({ value: name, label: name })),
      ]}
    />
  );
}

/** Labels by value, as the options of a choice, in their order. */
export function optionsOf<V extends string>(
  labels: Readonly<Record<V, string>>,
): { readonly value: V; readonly label: string }[] {
  const isValue = (name: string): name is V => name in labels;
  return Object.keys(labels)
    .filter(isValue)
    .map((value) => ({ value, label: labels[value] }));
}

/** What an address asks for, which somebody may have typed. */
export function choiceOf<V extends string>(
  text: string,
  choices: Readonly<Record<V, unknown>>,
  fallback: NoInfer<V>,
): V {
  const isChoice = (name: string): name is V => Object.hasOwn(choices, name);
  return isChoice(text) ? text : fallback;
}
