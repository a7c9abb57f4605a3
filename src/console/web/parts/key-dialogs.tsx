// What a person does with a key: create, edit, rotate, revoke.

import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import { type Key, KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { credits, moment, relative } from "../format.ts";
import { familyName } from "../names.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";
import { useActorNames } from "./actors.ts";
import { ofPerson, readLimitsOf, setBudget } from "./budget.tsx";
import { Button } from "./button.tsx";
import { Segments } from "./choices.tsx";
import { Dialog } from "./dialog.tsx";
import { CheckField, ChoiceField, Form, fieldError, TextField } from "./form.tsx";
import {
  changedPaths,
  type KeyFields,
  keyFieldNames,
  keyFieldsOf,
  noKeyFields,
  readKeyFields,
} from "./key-fields.ts";
import { KeyLimits } from "./key-form.tsx";
import { masked } from "./masked.ts";
import { notify } from "./messages.ts";
import { Secret, SecretSnippets } from "./secret.tsx";
import { Notice } from "./small.tsx";

/** The parts that show keys ask again. */
export function keysChanged(): void {
  invalidate(KeysService.method.listKeys, KeysService.method.getKey);
}

export function nameOfKey({ name }: Key): string {
  return name || words.keys.unnamed;
}

type Made = { readonly key: Key | undefined; readonly secret: string };

export function CreateKeyDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const { accountId } = account.value;
  const [fields, setFields] = useState<KeyFields>(noKeyFields);
  const [family, setFamily] = useState<"v1" | "v2">("v1");
  const [made, setMade] = useState<Made>();
  const pools = useCall(UsageService.method.getForecast, { accountId }).data?.forecasts ?? [];
  const freeOf = (name: "v1" | "v2") => {
    const pool = pools.find((one) => familyName(one.family) === name);
    return pool ? ` ${credits(pool.freeMicrocredits)} ${words.common.credits}.` : "";
  };
  if (made)
    return (
      <SecretDialog
        title={words.keys.createdTitle(made.key ? nameOfKey(made.key) : "")}
        secret={made.secret}
        onClose={onClose}
      />
    );
  const send = async () => {
    const answer = await call(KeysService.method.createKey, {
      accountId,
      family: family === "v1" ? Family.V1 : Family.V2,
      settings: readKeyFields(fields),
    });
    keysChanged();
    setMade({ key: answer.key, secret: answer.secret });
  };
  return (
    <Dialog title={words.keys.create} onClose={onClose}>
      <Form
        submit={words.keys.createButton}
        fields={keyFieldNames}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="name"
          label={words.keyForm.name}
          hint={words.keyForm.nameHint}
          value={fields.name}
          onInput={(name) => setFields({ ...fields, name })}
          isFirst
        />
        <ChoiceField
          name="family"
          label={words.keyForm.family}
          value={family}
          onInput={setFamily}
          options={[
            {
              value: "v1",
              label: words.families.v1,
              hint: words.families.v1Hint + freeOf("v1"),
            },
            {
              value: "v2",
              label: words.families.v2,
              hint: words.families.v2Hint + freeOf("v2"),
            },
          ]}
        />
        <details>
          <summary>{words.keyForm.limits}</summary>
          <KeyLimits fields={fields} onChange={setFields} />
        </details>
      </Form>
    </Dialog>
  );
}

type SecretDialogProps = {
  title: string;
  secret: string;
  /** How it is used. Default: by the tools that pay with a key. */
  snippets?: ((onCopied: () => void) => JSX.Element) | undefined;
  onClose: () => void;
};

/** The secret, once. Closing before it was copied asks, unless it is called stored. */
export function SecretDialog({ title, secret, snippets, onClose }: SecretDialogProps): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const copied = () => setCopied(true);
  return (
    <Dialog title={title} onClose={onClose} loss={isCopied ? undefined : words.secret.loss} wide>
      <Secret secret={secret} onCopied={copied} />
      {snippets ? (
        snippets(copied)
      ) : (
        <>
          <h3>{words.secret.howTo}</h3>
          <SecretSnippets secret={secret} onCopied={copied} />
        </>
      )}
      <div class="buttons">
        <Button kind="main" onClick={onClose}>
          {words.secret.stored}
        </Button>
      </div>
    </Dialog>
  );
}

type KeyDialogProps = { apiKey: Key; onClose: () => void };

export function EditKeyDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element {
  // As it was when the dialog opened: only what is changed here is sent.
  const [before] = useState(() => keyFieldsOf(apiKey));
  const [fields, setFields] = useState(before);
  const [isForMember, setForMember] = useState(false);
  const member = otherMember(apiKey);
  const nameOfActor = useActorNames();
  const send = async () => {
    const paths = changedPaths(before, fields);
    const read = readKeyFields(fields);
    if (paths.length > 0)
      await call(KeysService.method.updateKey, {
        keyId: apiKey.keyId,
        settings: masked(read, paths),
        updateMask: { paths },
      });
    if (isForMember && member !== undefined)
      await setBudget(ofPerson(member), { ...(await readLimitsOf(member)), ...limitsOf(read) });
    keysChanged();
    notify(words.key.saved);
    onClose();
  };
  return (
    <Dialog title={words.key.editTitle(nameOfKey(apiKey))} onClose={onClose}>
      <Form submit={words.common.save} fields={keyFieldNames} onSubmit={send} onCancel={onClose}>
        <TextField
          name="name"
          label={words.keyForm.name}
          value={fields.name}
          onInput={(name) => setFields({ ...fields, name })}
          isFirst
        />
        {apiKey.limitedByOwner && !can("owner") && <p class="hint">{words.keyForm.byOwner}</p>}
        <KeyLimits fields={fields} onChange={setFields} />
        {member !== undefined && (
          <CheckField
            name="for_member"
            label={words.keyForm.forMember(nameOfActor(apiKey.managedBy))}
            hint={words.keyForm.forMemberHint}
            checked={isForMember}
            onInput={setForMember}
          />
        )}
      </Form>
    </Dialog>
  );
}

/** The other person who manages a key, for owners: a limit of one key is not one of the person. */
function otherMember({ managedBy }: Key): string | undefined {
  const { case: kind, value: id } = managedBy?.kind ?? {};
  return can("owner") && kind === "personId" && id !== session.value.person?.personId
    ? id
    : undefined;
}

/** The limits of a key as those of a member. */
function limitsOf(key: ReturnType<typeof readKeyFields>) {
  const limits = {
    dailyMicrocredits: key.dailyCapMicrocredits,
    weeklyMicrocredits: key.weeklyCapMicrocredits,
    monthlyMicrocredits: key.monthlyCapMicrocredits,
    totalMicrocredits: key.totalCapMicrocredits,
    requestsAtOnce: key.requestsAtOnce,
  };
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
}

const hourMs = 3_600_000;
const overlaps = { now: 0, hour: hourMs, day: 24 * hourMs, week: 7 * 24 * hourMs } as const;
type Overlap = keyof typeof overlaps;
const overlapNames = ["now", "hour", "day", "week"] as const satisfies readonly Overlap[];

export function RotateKeyDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element {
  const { keyId } = apiKey;
  return (
    <RotateDialog
      name={nameOfKey(apiKey)}
      lead={words.rotate.lead}
      rotate={async (overlap) => {
        const { secret } = await call(KeysService.method.rotateKey, { keyId, overlap });
        keysChanged();
        return secret;
      }}
      onClose={onClose}
    />
  );
}

type RotateDialogProps = {
  name: string;
  lead: string;
  /** Resolves with the new secret. */
  rotate: (overlap: Duration) => Promise<string>;
  /** As of the dialog that shows the secret. */
  snippets?: (secret: string, onCopied: () => void) => JSX.Element;
  onClose: () => void;
};

export function RotateDialog(props: RotateDialogProps): JSX.Element {
  const { name, lead, rotate, snippets, onClose } = props;
  const [overlap, setOverlap] = useState<Overlap>("day");
  const [secret, setSecret] = useState<string>();
  if (secret !== undefined)
    return (
      <SecretDialog
        title={words.rotate.done(name)}
        secret={secret}
        snippets={snippets && ((onCopied) => snippets(secret, onCopied))}
        onClose={onClose}
      />
    );
  const send = async () => setSecret(await rotate(durationOf(overlaps[overlap])));
  const until = new Date(Date.now() + overlaps[overlap]);
  return (
    <Dialog title={words.rotate.title(name)} onClose={onClose}>
      <p>{lead}</p>
      <Form submit={words.rotate.button} onSubmit={send} onCancel={onClose}>
        <div class="field stack">
          <h3>{words.rotate.overlap}</h3>
          <Segments
            label={words.rotate.overlap}
            value={overlap}
            onInput={setOverlap}
            options={overlapNames.map((value) => ({
              value,
              label: words.rotate.overlaps[value],
            }))}
          />
        </div>
        <p class="notice" role="status">
          {overlap === "now" ? words.rotate.lineNow : words.rotate.line(moment(until))}
        </p>
      </Form>
    </Dialog>
  );
}

function durationOf(ms: number): Duration {
  return create(DurationSchema, { seconds: BigInt(ms / 1000) });
}

export async function pauseKey(key: Key): Promise<void> {
  await call(KeysService.method.pauseKey, { keyId: key.keyId });
  keysChanged();
  notify(words.keys.paused(nameOfKey(key)), () => resumeKey(key));
}

export async function resumeKey(key: Key): Promise<void> {
  await call(KeysService.method.resumeKey, { keyId: key.keyId });
  keysChanged();
  notify(words.keys.resumed(nameOfKey(key)));
}

export function RevokeKeyDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element {
  const [typed, setTyped] = useState("");
  const name = nameOfKey(apiKey);
  const { lastUsedAt, monthHeldMicrocredits: held } = apiKey;
  const send = async () => {
    if (typed.trim() !== name.trim()) throw fieldError("confirm", words.revoke.wrongName);
    await call(KeysService.method.revokeKey, { keyId: apiKey.keyId });
    keysChanged();
    notify(words.revoke.done(name));
    onClose();
  };
  const pause = async () => {
    await pauseKey(apiKey);
    onClose();
  };
  return (
    <Dialog title={words.revoke.title(name)} onClose={onClose}>
      <p>{words.revoke.lead}</p>
      <p>
        {lastUsedAt ? words.revoke.used(relative(lastUsedAt)) : words.revoke.neverUsed}{" "}
        {held > 0n && words.revoke.running(credits(held))}
      </p>
      {!apiKey.pausedAt && (
        <Notice action={<Button onClick={pause}>{words.revoke.pause}</Button>}>
          {words.revoke.pauseFirst}
        </Notice>
      )}
      <Form
        kind="danger"
        submit={words.revoke.button(name)}
        fields={["confirm"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="confirm"
          label={words.revoke.type(name)}
          value={typed}
          onInput={setTyped}
          isFirst
        />
      </Form>
    </Dialog>
  );
}
