// Forms and their fields. An error of the service that names a field stands at that field, others
// above the buttons.

import { type ComponentChildren, createContext, type JSX, type TargetedInputEvent } from "preact";
import { useContext, useEffect, useId, useRef, useState } from "preact/hooks";
import { longest } from "../../../../gen/form-limits.ts";
import { type CallError, toCallError } from "../api.ts";
import { words } from "../words.ts";
import { Button, type ButtonKind } from "./button.tsx";
import { Icon } from "./icon.tsx";

export { fieldError } from "../call-error.ts";

/** The error of the last try, if it names a field of the form, and the name of that. */
const FieldError = createContext<{ readonly error: CallError; readonly name: string } | undefined>(
  undefined,
);

type FormProps = {
  /** What the button says: "Create key". */
  submit: string;
  /** What it throws is shown; the form stays as it is. */
  onSubmit: () => Promise<void>;
  kind?: ButtonKind;
  onCancel?: () => void;
  /** Where "Cancel" would be misread. */
  cancel?: string;
  disabled?: boolean;
  /** The names of its fields. An error of another field stands above the buttons. */
  fields?: readonly string[];
  children?: ComponentChildren;
};

export function Form(props: FormProps): JSX.Element {
  const { submit, onSubmit, kind = "main", onCancel, disabled = false, fields = [] } = props;
  const { cancel = words.common.cancel } = props;
  const [error, setError] = useState<CallError>();
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const alert = useRef<HTMLDivElement>(null);
  useEffect(() => form.current?.querySelector<HTMLElement>("[data-autofocus=true]")?.focus(), []);
  const atField = error && fieldOf(error, fields);
  const isAtField = atField !== undefined;
  useEffect(() => {
    if (isAtField) form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    // In a long form it may be out of sight.
    else if (error) alert.current?.scrollIntoView({ block: "center" });
  }, [error, isAtField]);
  const send = async () => {
    if (isBusy || disabled) return;
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit();
    } catch (thrown) {
      setError(toCallError(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      ref={form}
      class="form stack"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <FieldError.Provider value={atField}>{props.children}</FieldError.Provider>
      <div role="alert" ref={alert}>
        {error && !isAtField && <p class="problem">{messageOf(error)}</p>}
      </div>
      <div class="buttons">
        {onCancel && <Button onClick={onCancel}>{cancel}</Button>}
        <button type="submit" class={`button ${kind}`} disabled={disabled} aria-busy={isBusy}>
          {submit}
        </button>
      </div>
    </form>
  );
}

/**
 * The field of a form whose name is the path of an error, or else the last part of that without its
 * place: of `key.allowed_addresses[2]` it is `allowed_addresses`. Undefined: there is none.
 */
function fieldOf(error: CallError, fields: readonly string[]) {
  const { field } = error;
  if (field === undefined) return undefined;
  const last = (field.split(".").at(-1) ?? "").replace(/\[\d+\]$/, "");
  const name = [field, last].find((one) => fields.includes(one));
  return name === undefined ? undefined : { error, name };
}

function messageOf({ message, field }: CallError): string {
  // The messages of the service begin with the path of the field.
  if (field === undefined || !message.startsWith(`${field}: `)) return message;
  const fault = message.slice(field.length + 2);
  const place = /\[(\d+)\]$/.exec(field)?.[1];
  return place === undefined ? fault : words.common.line(Number(place) + 1, fault);
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

type Described = {
  readonly id: string;
  readonly error: string | undefined;
  readonly describedBy: string | undefined;
};

function useField(name: string, hint: string | undefined, other?: string): Described {
  const failure = useContext(FieldError);
  const id = useId();
  const error = failure?.name === name ? sentence(messageOf(failure.error)) : undefined;
  const ids = [hint && `${id}-hint`, other, error && `${id}-error`].filter(Boolean);
  return { id, error, describedBy: ids.join(" ") || undefined };
}

function Notes({ field, hint }: { field: Described; hint: string | undefined }): JSX.Element {
  return (
    <>
      {hint && (
        <p class="hint" id={`${field.id}-hint`}>
          {hint}
        </p>
      )}
      {field.error && (
        <p class="problem" id={`${field.id}-error`}>
          {field.error}
        </p>
      )}
    </>
  );
}

type FieldProps = {
  /** As the request names it: `monthly_cap_microcredits`. */
  name: string;
  label: string;
  hint?: string;
};

type TextFieldProps = FieldProps & {
  value: string;
  onInput: (text: string) => void;
  type?: "text" | "email" | "password" | "number" | "date";
  required?: boolean;
  autocomplete?: string;
  placeholder?: string;
  /** Behind the field: "credits". */
  unit?: string;
  /** More than one: an area of so many lines. */
  lines?: number;
  /** The id of a hint that is not its own alone. */
  describedBy?: string;
  /** The first field of a dialog. */
  isFirst?: boolean;
  isFixed?: boolean;
  min?: string;
  /** Texts that can be chosen, while somebody types in it. */
  offered?: readonly string[];
  /** Undefined: the field was left. */
  onTyping?: (text: string | undefined) => void;
};

export function TextField(props: TextFieldProps): JSX.Element {
  const { name, label, hint, value, onInput, type = "text", unit, lines = 1 } = props;
  const { offered = [], onTyping } = props;
  const field = useField(name, hint, props.describedBy);
  const common = {
    id: field.id,
    name,
    value,
    // Numbers are bounded where they are read.
    maxLength: type === "number" ? undefined : longest[name],
    required: props.required,
    placeholder: props.placeholder,
    readOnly: props.isFixed,
    dir: type === "text" ? ("auto" as const) : undefined,
    "aria-invalid": field.error !== undefined,
    "aria-describedby": field.describedBy,
    "data-autofocus": props.isFirst,
  };
  const attributes = {
    ...common,
    min: props.min,
    autocomplete: props.autocomplete ?? "off",
    autocapitalize: props.autocomplete === "username" ? ("none" as const) : undefined,
    spellcheck: false,
    list: offered.length > 0 ? `${field.id}-offered` : undefined,
    onFocus: () => onTyping?.(value),
    onBlur: () => onTyping?.(undefined),
    onInput: (event: TargetedInputEvent<HTMLInputElement>) => {
      onInput(event.currentTarget.value);
      onTyping?.(event.currentTarget.value);
    },
  };
  const input = {
    text: <input {...attributes} type="text" />,
    email: <input {...attributes} type="email" />,
    password: <input {...attributes} type="password" />,
    date: <input {...attributes} type="date" />,
    // Browsers change what people type in fields of numbers: "1,5" becomes nothing at all.
    number: <input {...attributes} type="text" inputMode="decimal" />,
  }[type];
  return (
    <div class="field stack">
      <label for={field.id}>{label}</label>
      {lines > 1 ? (
        <textarea
          {...common}
          rows={lines}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      ) : unit ? (
        <span class="with-unit columns">
          {input}
          <span>{unit}</span>
        </span>
      ) : (
        input
      )}
      {offered.length > 0 && (
        <datalist id={`${field.id}-offered`}>
          {offered.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
      <Notes field={field} hint={hint} />
    </div>
  );
}

export type Option<V extends string = string> = {
  readonly value: V;
  readonly label: string;
  readonly hint?: string;
};

type OptionsProps<V extends string> = FieldProps & {
  value: V;
  onInput: (value: V) => void;
  options: readonly Option<V>[];
};

export function SelectField<V extends string>(props: OptionsProps<V>): JSX.Element {
  const { name, label, hint, value, onInput, options } = props;
  const field = useField(name, hint);
  return (
    <div class="field stack">
      <label for={field.id}>{label}</label>
      <select
        id={field.id}
        name={name}
        value={value}
        aria-invalid={field.error !== undefined}
        aria-describedby={field.describedBy}
        onInput={(event) => {
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
      <Notes field={field} hint={hint} />
    </div>
  );
}

/** A choice between few, each with a line about it. */
export function ChoiceField<V extends string>(props: OptionsProps<V>): JSX.Element {
  const { name, label, hint, value, onInput, options } = props;
  const field = useField(name, hint);
  return (
    <fieldset class="field choices stack" aria-describedby={field.describedBy}>
      <legend>{label}</legend>
      {options.map((one) => (
        <label class="choice" key={one.value}>
          <input
            type="radio"
            name={field.id}
            value={one.value}
            checked={one.value === value}
            onChange={() => onInput(one.value)}
          />
          <span>
            <b>{one.label}</b>
            {one.hint && <span class="hint">{one.hint}</span>}
          </span>
        </label>
      ))}
      <Notes field={field} hint={hint} />
    </fieldset>
  );
}

type CheckFieldProps = FieldProps & { checked: boolean; onInput: (on: boolean) => void };

export function CheckField({ name, label, hint, checked, onInput }: CheckFieldProps): JSX.Element {
  const field = useField(name, hint);
  return (
    <div class="field stack">
      <label class="check">
        <input
          type="checkbox"
          name={name}
          checked={checked}
          aria-describedby={field.describedBy}
          onChange={(event) => onInput(event.currentTarget.checked)}
        />
        <span>{label}</span>
      </label>
      <Notes field={field} hint={hint} />
    </div>
  );
}

type SearchProps = { label: string; value: string; onInput: (text: string) => void };

export function Search({ label, value, onInput }: SearchProps): JSX.Element {
  return (
    <label class="search">
      <Icon name="search" />
      <span class="visually-hidden">{label}</span>
      <input
        type="search"
        placeholder={label}
        value={value}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </label>
  );
}
