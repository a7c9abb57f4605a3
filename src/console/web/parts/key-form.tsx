// What a person sets of a key: its name and its limits. The fields hold texts; `readKeyFields`
// turns them into a request.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { InferenceService } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { type Key, KeySchema } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { useCall } from "../api.ts";
import { count, parseCredits, plainCredits, toDate } from "../format.ts";
import { words } from "../words.ts";
import { readCredits, readWhole } from "./bounds.ts";
import { CheckField, ChoiceField, fieldError, TextField } from "./form.tsx";
import { dayOf } from "./usage-report.ts";

export type KeyFields = {
  readonly name: string;
  readonly perMinute: string;
  /** In credits. */
  readonly cap: string;
  /** The same in dollars. */
  readonly capDollars: string;
  readonly hasAllModels: boolean;
  readonly models: readonly string[];
  /** The last day, such as `2026-11-22`. */
  readonly expires: string;
  readonly reader: boolean;
};

export const noKeyFields: KeyFields = {
  name: "",
  perMinute: "",
  cap: "",
  capDollars: "",
  expires: "",
  hasAllModels: true,
  models: [],
  reader: false,
};

const dayMs = 86_400_000;

export function keyFieldsOf(key: Key): KeyFields {
  const cap = key.monthlyCapMicrocredits;
  return {
    name: key.name,
    perMinute: key.requestsPerMinute === undefined ? "" : String(key.requestsPerMinute),
    cap: cap === undefined ? "" : plainCredits(cap),
    capDollars: cap === undefined ? "" : plainCredits(cap / 200n),
    hasAllModels: key.allowedModels.length === 0,
    models: key.allowedModels,
    // A key expires when a day begins: the day before is the last one.
    expires: key.expiresAt
      ? new Date(toDate(key.expiresAt).getTime() - 1).toISOString().slice(0, 10)
      : "",
    reader: key.accountReader,
  };
}

/** The fields of CreateKey and UpdateKey. Throws a CallError that names a field with a mistake. */
export function readKeyFields(fields: KeyFields) {
  const { name, perMinute, cap, hasAllModels, models, expires, reader } = fields;
  const rate = readWhole(perMinute, KeySchema.field.requestsPerMinute);
  const amount = readCredits(cap, KeySchema.field.monthlyCapMicrocredits);
  const lastDay = dayOf(expires);
  if (expires !== "" && lastDay === undefined)
    throw fieldError("expires_at", words.keyForm.notADay);
  return {
    name: name.trim(),
    ...(rate !== undefined && { requestsPerMinute: rate }),
    ...(amount !== undefined && { monthlyCapMicrocredits: amount }),
    allowedModels: hasAllModels ? [] : [...models],
    accountReader: reader,
    ...(lastDay && { expiresAt: timestampFromDate(new Date(lastDay.getTime() + dayMs)) }),
  };
}

const paths = {
  name: "name",
  perMinute: "requests_per_minute",
  cap: "monthly_cap_microcredits",
  hasAllModels: "allowed_models",
  models: "allowed_models",
  expires: "expires_at",
  reader: "account_reader",
} as const satisfies Partial<Record<keyof KeyFields, string>>;

/** What a form can show errors for. */
export const keyFieldNames = [...new Set<string>(Object.values(paths))];

/** The paths of what was changed: nobody else's changes of other fields are undone. */
export function changedPaths(before: KeyFields, after: KeyFields): string[] {
  const changed = Object.entries(paths).filter(
    ([field]) =>
      JSON.stringify(Reflect.get(before, field)) !== JSON.stringify(Reflect.get(after, field)),
  );
  return [...new Set(changed.map(([, path]) => path))];
}

type KeyFieldsProps = { fields: KeyFields; onChange: (fields: KeyFields) => void };

export function KeyLimits({ fields, onChange }: KeyFieldsProps): JSX.Element {
  const set = (changes: Partial<KeyFields>) => onChange({ ...fields, ...changes });
  const setCap = (cap: string) => {
    const amount = parseCredits(cap);
    set({ cap, capDollars: amount === undefined ? "" : plainCredits(amount / 200n) });
  };
  const setDollars = (capDollars: string) => {
    const amount = parseCredits(capDollars);
    set({ capDollars, cap: amount === undefined ? "" : plainCredits(amount * 200n) });
  };
  return (
    <div class="fields stack">
      <TextField
        name="requests_per_minute"
        label={words.keyForm.perMinute}
        type="number"
        placeholder={words.keyForm.unlimited}
        value={fields.perMinute}
        onInput={(perMinute) => set({ perMinute })}
      />
      <div class="field-row columns">
        <TextField
          name="monthly_cap_microcredits"
          label={words.keyForm.cap}
          hint={words.keyForm.capHint}
          type="number"
          unit={words.common.credits}
          placeholder={words.keyForm.unlimited}
          value={fields.cap}
          onInput={setCap}
        />
        <TextField
          name="cap_dollars"
          label={words.keyForm.capDollars}
          type="number"
          unit="USD"
          placeholder={words.keyForm.unlimited}
          value={fields.capDollars}
          onInput={setDollars}
        />
      </div>
      <Models fields={fields} onChange={onChange} />
      <TextField
        name="expires_at"
        label={words.keyForm.expires}
        hint={words.keyForm.expiresHint}
        type="date"
        min={new Date().toISOString().slice(0, 10)}
        value={fields.expires}
        onInput={(expires) => set({ expires })}
      />
      <CheckField
        name="account_reader"
        label={words.keyForm.reader}
        hint={words.keyForm.readerHint}
        checked={fields.reader}
        onInput={(reader) => set({ reader })}
      />
    </div>
  );
}

function Models({ fields, onChange }: KeyFieldsProps): JSX.Element {
  const { data } = useCall(InferenceService.method.listModels, { pageSize: 1000 });
  const models = (data?.models ?? []).filter(({ aliasFor }) => aliasFor === "");
  // Models that left the catalogue stay allowed until somebody removes them.
  const gone = fields.models.filter((id) => !models.some((model) => model.id === id));
  const toggle = (id: string, isOn: boolean) => {
    const others = fields.models.filter((one) => one !== id);
    onChange({ ...fields, models: isOn ? [...others, id] : others });
  };
  return (
    <>
      <ChoiceField
        name="allowed_models"
        label={words.keyForm.models}
        value={fields.hasAllModels ? "all" : "some"}
        onInput={(value) => onChange({ ...fields, hasAllModels: value === "all" })}
        options={[
          { value: "all", label: words.keyForm.allModels },
          { value: "some", label: words.keyForm.someModels, hint: words.keyForm.priceUnit },
        ]}
      />
      {!fields.hasAllModels && (
        <div class="checks stack">
          {models.map(({ id, displayName, price }) => (
            <label class="check" key={id}>
              <input
                type="checkbox"
                checked={fields.models.includes(id)}
                onChange={(event) => toggle(id, event.currentTarget.checked)}
              />
              <span class="spread">
                <span>{displayName || id}</span>
                {price && (
                  <small class="faint">
                    {words.keyForm.price(count(price.input), count(price.output))}
                  </small>
                )}
              </span>
            </label>
          ))}
          {gone.map((id) => (
            <label class="check" key={id}>
              <input type="checkbox" checked onChange={() => toggle(id, false)} />
              <span>{id}</span>
            </label>
          ))}
        </div>
      )}
    </>
  );
}
