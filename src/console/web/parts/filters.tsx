// The fields in the row of filters, above figures and lists. What they hold is in the address.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { InferenceService } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { useCall } from "../api.ts";
import { asTyped } from "../router.ts";
import { account } from "../session.ts";
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

type TypedEvent = { readonly currentTarget: HTMLInputElement };

/** What a field shows: the text that is being typed, which no update of the page undoes. */
function useTyped({ value, onInput }: Pick<FilterProps, "value" | "onInput">) {
  const [typed, setTyped] = useState<string>();
  return {
    value: typed ?? value,
    onInput: ({ currentTarget }: TypedEvent) => setTyped(currentTarget.value),
    onChange: ({ currentTarget }: TypedEvent) => {
      const text = currentTarget.value;
      setTyped(undefined);
      asTyped(() => onInput(text));
    },
    onBlur: () => setTyped(undefined),
  };
}

/** A day as `2026-11-22`, or a time as `2026-11-22T14:00` where it has one. Empty: none. */
export function DayFilter(props: FilterProps): JSX.Element {
  const isTime = props.value.includes("T");
  return (
    <label class="filter stack">
      <span>{props.label}</span>
      <input
        type={isTime ? "datetime-local" : "date"}
        step={isTime ? 3600 : 1}
        {...useTyped(props)}
      />
    </label>
  );
}

/** A text that counts once it is complete: after Enter, or when the field is left. */
export function TextFilter(
  props: FilterProps & {
    readonly problem?: string | undefined;
    /** Default: a number. */
    readonly mode?: "text";
    readonly placeholder?: string;
    /** Texts that can be chosen. */
    readonly offered?: readonly string[];
    readonly onFocus?: () => void;
    /** Called with what is typed so far. Undefined: the field was left. */
    readonly onTyping?: (text: string | undefined) => void;
  },
): JSX.Element {
  const { label, problem, mode = "decimal", offered = [], onFocus, onTyping } = props;
  const id = useId();
  const typed = useTyped(props);
  return (
    <label class="filter stack">
      <span>{label}</span>
      <input
        type="text"
        inputMode={mode}
        title={problem}
        aria-invalid={problem !== undefined}
        list={offered.length > 0 ? id : undefined}
        placeholder={props.placeholder}
        {...typed}
        onFocus={(event) => {
          onFocus?.();
          onTyping?.(event.currentTarget.value);
        }}
        onInput={(event) => {
          typed.onInput(event);
          onTyping?.(event.currentTarget.value);
        }}
        onBlur={() => {
          typed.onBlur();
          onTyping?.(undefined);
        }}
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
      asTyped(() => onInput(text));
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
  const models = (data?.models ?? [])
    .filter(({ aliasFor }) => aliasFor === "")
    .map(({ modelId: id }) => id);
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

/** Requests whose tags are offered. */
const lookedAt = 100;

/** The tags of the newest requests, such as `team=a`, in their order. Those of none: empty. */
export function useKnownTags(isWanted: boolean): string[] {
  const { accountId } = account.value;
  const request = { accountId, pageSize: lookedAt };
  const { data } = useCall(UsageService.method.listCharges, isWanted ? request : undefined);
  const all = (data?.charges ?? []).flatMap(({ tags }) => Object.entries(tags));
  return [...new Set(all.map((tag) => tag.join("=")))].sort();
}
