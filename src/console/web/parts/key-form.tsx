// The fields of a key's limits.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { InferenceService } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { useCall } from "../api.ts";
import { fieldDay, parseCredits, perMillion, plainCredits } from "../format.ts";
import { account, session } from "../session.ts";
import { words } from "../words.ts";
import { CreditsField } from "./budget.tsx";
import { Button } from "./button.tsx";
import { CheckField, ChoiceField, TextField } from "./form.tsx";
import { type KeyFields, linesOf } from "./key-fields.ts";
import { useOfferedTags } from "./offered-tags.ts";

const capHintId = "cap-hint";

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
      <div class="field stack">
        <div class="field-row columns">
          <TextField
            name="monthly_cap_microcredits"
            label={words.keyForm.cap}
            describedBy={capHintId}
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
        <p class="hint" id={capHintId}>
          {words.keyForm.capHint}
        </p>
      </div>
      <CreditsField
        name="daily_cap_microcredits"
        label={words.keyForm.daily}
        value={fields.daily}
        onInput={(daily) => set({ daily })}
      />
      <CreditsField
        name="weekly_cap_microcredits"
        label={words.keyForm.weekly}
        value={fields.weekly}
        onInput={(weekly) => set({ weekly })}
      />
      <CreditsField
        name="total_cap_microcredits"
        label={words.keyForm.total}
        value={fields.total}
        onInput={(total) => set({ total })}
      />
      <TextField
        name="requests_at_once"
        label={words.keyForm.atOnce}
        type="number"
        placeholder={words.keyForm.unlimited}
        value={fields.atOnce}
        onInput={(atOnce) => set({ atOnce })}
      />
      <Models fields={fields} onChange={onChange} />
      <TextField
        name="expires_at"
        label={words.keyForm.expires}
        hint={words.keyForm.expiresHint}
        type="date"
        min={fieldDay(new Date())}
        value={fields.expires}
        onInput={(expires) => set({ expires })}
      />
      <AddressesField value={fields.addresses} onInput={(addresses) => set({ addresses })} />
      <TagsField value={fields.tags} onInput={(tags) => set({ tags })} />
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

type TagsProps = {
  name?: string;
  label?: string;
  hint?: string;
  value: string;
  onInput: (value: string) => void;
};

/** Tags of keys, as `team=a, env=ci`. Those of other keys are offered. */
export function TagsField(props: TagsProps): JSX.Element {
  const { name = "tags", label = words.keyForm.tags, hint = words.keyForm.tagsHint } = props;
  const [typed, setTyped] = useState<string>();
  return (
    <TextField
      {...{ name, label, hint }}
      value={props.value}
      onInput={props.onInput}
      offered={useOfferedTags(typed)}
      onTyping={setTyped}
    />
  );
}

type AddressesProps = { value: string; onInput: (value: string) => void };

/** From where a credential may be used. */
export function AddressesField({ value, onInput }: AddressesProps): JSX.Element {
  const own = session.value.address;
  const isNew = own !== "" && !linesOf(value).includes(own);
  return (
    <div class="stack">
      <TextField
        name="allowed_addresses"
        label={words.keyForm.addresses}
        hint={words.keyForm.addressesHint}
        lines={3}
        value={value}
        onInput={onInput}
      />
      {isNew && (
        <span>
          <Button kind="quiet" onClick={() => onInput([...linesOf(value), own].join("\n"))}>
            {words.keyForm.ownAddress(own)}
          </Button>
        </span>
      )}
    </div>
  );
}

function Models({ fields, onChange }: KeyFieldsProps): JSX.Element {
  const { data } = useCall(InferenceService.method.listModels, {
    pageSize: 1000,
    pricesOf: account.value.accountId,
  });
  const models = (data?.models ?? []).filter(({ aliasFor }) => aliasFor === "");
  // Models that left the catalogue stay allowed until somebody removes them.
  const gone = fields.models.filter((id) => !models.some((model) => model.modelId === id));
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
          {models.map(({ modelId: id, displayName, price, publicPrice }) => (
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
                    {publicPrice && (
                      <>
                        <s>{perMillion(publicPrice.input)}</s>{" "}
                      </>
                    )}
                    {words.keyForm.price(perMillion(price.input), perMillion(price.output))}
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
