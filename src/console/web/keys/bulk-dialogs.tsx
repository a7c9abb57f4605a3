// The dialogs for keys that are picked. Each names how many they are and what becomes of them, and
// says of those that were left as they are why.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type KeyResult,
  KeySettingsSchema,
  KeyResult_Outcome as Outcome,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { fieldError } from "../call-error.ts";
import { count } from "../format.ts";
import { readCredits, readWhole } from "../parts/bounds.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Form, SelectField, TextField } from "../parts/form.tsx";
import { keysChanged } from "../parts/key-dialogs.tsx";
import { TagsField } from "../parts/key-form.tsx";
import { notify } from "../parts/messages.ts";
import { parseTags } from "../parts/tags.ts";
import { dayOf } from "../parts/usage-report.ts";
import { words } from "../words.ts";
import { changeKeys, type KeyChange, type Pick, type Picks } from "./picks.ts";
import { manyWords } from "./words-keys.ts";

export type BulkAct = "pause" | "resume" | "revoke" | "limits" | "tags";

type BulkProps = { readonly act: BulkAct; readonly picks: Picks; readonly onClose: () => void };

export function BulkDialog({ act, picks, onClose }: BulkProps): JSX.Element {
  // As they were picked when it opened.
  const [keys] = useState(() => [...picks.all.values()]);
  const [done, setDone] = useState(0);
  const [left, setLeft] = useState<readonly KeyResult[]>();
  const run = async (change: KeyChange) => {
    const results = await changeKeys(keys, change, setDone).finally(keysChanged);
    const notDone = results.filter(isLeft);
    // What may be tried again stays picked, as it is now.
    picks.put(notDone.flatMap(asPick));
    notify(doneText(act, results), act === "pause" ? undoOf(results) : undefined);
    if (notDone.length === 0) onClose();
    else setLeft(notDone);
  };
  if (left) return <Left of={left} onClose={onClose} />;
  return (
    <Dialog title={manyWords.titles[act](many(keys.length))} onClose={onClose}>
      <p>{manyWords.leads[act]}</p>
      <Fields act={act} keys={keys} run={run} onClose={onClose} />
      {keys.length > 200 && done > 0 && (
        <p class="faint" role="status">
          {manyWords.doing(count(done), count(keys.length))}
        </p>
      )}
    </Dialog>
  );
}

type FieldsProps = {
  readonly act: BulkAct;
  readonly keys: readonly Pick[];
  readonly run: (change: KeyChange) => Promise<void>;
  readonly onClose: () => void;
};

function Fields({ act, keys, run, onClose }: FieldsProps): JSX.Element {
  if (act === "limits") return <LimitFields {...{ act, keys, run, onClose }} />;
  if (act === "tags") return <TagFields {...{ act, keys, run, onClose }} />;
  if (act === "revoke") return <RevokeFields {...{ act, keys, run, onClose }} />;
  return (
    <Form
      submit={manyWords.titles[act](many(keys.length))}
      onSubmit={() => run({ case: act, value: true })}
      onCancel={onClose}
    />
  );
}

function RevokeFields({ keys, run, onClose }: FieldsProps): JSX.Element {
  const [typed, setTyped] = useState("");
  const n = String(keys.length);
  return (
    <Form
      kind="danger"
      submit={manyWords.titles.revoke(many(keys.length))}
      fields={["confirm"]}
      onSubmit={async () => {
        if (typed.trim() !== n) throw fieldError("confirm", manyWords.wrongCount);
        await run({ case: "revoke", value: true });
      }}
      onCancel={onClose}
    >
      <TextField
        name="confirm"
        label={manyWords.confirm(n)}
        type="number"
        value={typed}
        onInput={setTyped}
        isFirst
      />
    </Form>
  );
}

/** The limits of a key, as its fields are called, in the order of the form for one key. */
const limits = {
  requests_per_minute: words.keyForm.perMinute,
  monthly_cap_microcredits: words.keyForm.cap,
  daily_cap_microcredits: words.keyForm.daily,
  weekly_cap_microcredits: words.keyForm.weekly,
  total_cap_microcredits: words.keyForm.total,
  requests_at_once: words.keyForm.atOnce,
  expires_at: words.keyForm.expires,
} as const;
type LimitName = keyof typeof limits;
const isLimit = (name: string): name is LimitName => name in limits;
const limitNames = Object.keys(limits).filter(isLimit);

type LimitChoice = { readonly how: "stays" | "none" | "becomes"; readonly value: string };
type LimitChoices = Readonly<Partial<Record<LimitName, LimitChoice>>>;

function LimitFields({ keys, run, onClose }: FieldsProps): JSX.Element {
  const [choices, setChoices] = useState<LimitChoices>({});
  const send = async () => {
    const paths = limitNames.filter((name) => (choices[name]?.how ?? "stays") !== "stays");
    if (paths.length === 0) throw fieldError("requests_per_minute", manyWords.nothing);
    await run({
      case: "limits",
      value: { settings: create(KeySettingsSchema, readLimits(choices)), updateMask: { paths } },
    });
  };
  return (
    <Form
      submit={manyWords.titles.limits(many(keys.length))}
      fields={limitNames}
      onSubmit={send}
      onCancel={onClose}
    >
      {limitNames.map((name) => {
        const { how, value } = choices[name] ?? { how: "stays" as const, value: "" };
        const set = (change: Partial<LimitChoice>) =>
          setChoices({ ...choices, [name]: { how, value, ...change } });
        return (
          <div key={name} class="stack">
            <SelectField
              name={how === "becomes" ? "" : name}
              label={limits[name]}
              value={how}
              onInput={(next) => set({ how: next })}
              options={[
                { value: "stays", label: manyWords.stays },
                {
                  value: "none",
                  label: name === "expires_at" ? manyWords.never : manyWords.none,
                },
                { value: "becomes", label: manyWords.becomes },
              ]}
            />
            {how === "becomes" && (
              <TextField
                name={name}
                label={manyWords.value(limits[name])}
                type={name === "expires_at" ? "date" : "number"}
                {...(name.endsWith("microcredits") && { unit: words.common.credits })}
                value={value}
                onInput={(next) => set({ value: next })}
              />
            )}
          </div>
        );
      })}
    </Form>
  );
}

const dayMs = 86_400_000;

/** The limits that get a value. Throws a CallError at a field with a mistake. */
function readLimits(choices: LimitChoices) {
  const { field } = KeySettingsSchema;
  const textOf = (name: LimitName) => {
    const { how, value } = choices[name] ?? { how: "stays", value: "" };
    return how === "becomes" ? value : "";
  };
  for (const name of limitNames)
    if (choices[name]?.how === "becomes" && textOf(name).trim() === "")
      throw fieldError(
        name,
        name === "expires_at" ? words.keyForm.notADay : manyWords.noValueGiven,
      );
  const lastDay = dayOf(textOf("expires_at"));
  if (textOf("expires_at") !== "" && !lastDay)
    throw fieldError("expires_at", words.keyForm.notADay);
  const read = {
    requestsPerMinute: readWhole(textOf("requests_per_minute"), field.requestsPerMinute),
    requestsAtOnce: readWhole(textOf("requests_at_once"), field.requestsAtOnce),
    monthlyCapMicrocredits: readCredits(
      textOf("monthly_cap_microcredits"),
      field.monthlyCapMicrocredits,
    ),
    dailyCapMicrocredits: readCredits(textOf("daily_cap_microcredits"), field.dailyCapMicrocredits),
    weeklyCapMicrocredits: readCredits(
      textOf("weekly_cap_microcredits"),
      field.weeklyCapMicrocredits,
    ),
    totalCapMicrocredits: readCredits(textOf("total_cap_microcredits"), field.totalCapMicrocredits),
  };
  return {
    ...Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined)),
    ...(lastDay && { expiresAt: timestampFromDate(new Date(lastDay.getTime() + dayMs)) }),
  };
}

function TagFields({ keys, run, onClose }: FieldsProps): JSX.Element {
  const [set, setSet] = useState("");
  const [remove, setRemove] = useState("");
  const send = async () => {
    const removed = remove
      .split(/[\s,]+/)
      .map((tag) => tag.split("=")[0] ?? "")
      .filter((tag) => tag !== "");
    const tags = parseTags(set);
    if (Object.keys(tags).length + removed.length === 0) throw fieldError("set", manyWords.noTags);
    await run({ case: "tags", value: { set: tags, remove: removed } });
  };
  return (
    <Form
      submit={manyWords.titles.tags(many(keys.length))}
      fields={["set", "remove"]}
      onSubmit={send}
      onCancel={onClose}
    >
      <TagsField
        name="set"
        label={manyWords.set}
        hint={manyWords.setHint}
        value={set}
        onInput={setSet}
      />
      <TextField
        name="remove"
        label={manyWords.remove}
        hint={manyWords.removeHint}
        value={remove}
        onInput={setRemove}
      />
    </Form>
  );
}

const namesMax = 20;

/** Which keys were left as they are, and why. */
function Left({
  of,
  onClose,
}: {
  readonly of: readonly KeyResult[];
  readonly onClose: () => void;
}): JSX.Element {
  const ofOutcome = (outcome: Outcome) => of.filter((one) => one.outcome === outcome);
  const conflicts = ofOutcome(Outcome.CONFLICT);
  const gone = ofOutcome(Outcome.GONE).length;
  const refused = Map.groupBy(ofOutcome(Outcome.NOT_ALLOWED), ({ message }) => message);
  return (
    <Dialog title={manyWords.someLeft} onClose={onClose} keepsNothing>
      {conflicts.length > 0 && (
        <>
          <p>{manyWords.conflicts(were(conflicts.length))}</p>
          <ul class="left-keys">
            {conflicts.slice(0, namesMax).map(({ keyId, key }) => (
              <li key={keyId} dir="auto">
                {key?.name || words.keys.unnamed}
                {": "}
                {key && statusText(key.state)}
              </li>
            ))}
            {conflicts.length > namesMax && (
              <li>{manyWords.andMore(count(conflicts.length - namesMax))}</li>
            )}
          </ul>
        </>
      )}
      {[...refused].map(([message, keys]) => (
        <p key={message}>{manyWords.notAllowed(many(keys.length), message)}</p>
      ))}
      {gone > 0 && <p>{manyWords.gone(were(gone))}</p>}
      <div class="buttons">
        <Button kind="main" onClick={onClose}>
          {manyWords.ok}
        </Button>
      </div>
    </Dialog>
  );
}

const statusNames = ["", "active", "paused", "expired", "revoked"] as const;

function statusText(status: number): string {
  const name = statusNames[status];
  return name ? words.keys.statuses[name] : "";
}

function isLeft({ outcome }: KeyResult): boolean {
  return outcome !== Outcome.CHANGED && outcome !== Outcome.ALREADY;
}

function asPick({ keyId, outcome, revision }: KeyResult): Pick[] {
  return outcome === Outcome.CONFLICT && revision !== undefined ? [{ keyId, revision }] : [];
}

/** "195 keys were paused. 3 keys were so before." */
function doneText(act: BulkAct, results: readonly KeyResult[]): string {
  const countOf = (outcome: Outcome) => results.filter((one) => one.outcome === outcome).length;
  const already = countOf(Outcome.ALREADY);
  const text = manyWords.done[act](were(countOf(Outcome.CHANGED)));
  return already === 0 ? text : `${text} ${manyWords.already(were(already))}`;
}

/** Resumes those that this pause has paused, unless somebody changed them since. */
function undoOf(results: readonly KeyResult[]): (() => Promise<void>) | undefined {
  const paused = results.flatMap(({ keyId, outcome, revision }) =>
    outcome === Outcome.CHANGED && revision !== undefined ? [{ keyId, revision }] : [],
  );
  if (paused.length === 0) return undefined;
  return async () => {
    const undone = await changeKeys(paused, { case: "resume", value: true }).finally(keysChanged);
    notify(doneText("resume", undone));
  };
}

const many = (n: number) => manyWords.nKeys(count(n), n === 1);
const were = (n: number) => manyWords.were(many(n), n === 1);
