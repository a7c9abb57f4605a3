// The management keys of an account, for its owners.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { KeyAction } from "../../../../gen/gateway/common/v1/key_action_pb.ts";
import { ManagementScope } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import {
  ChildLimitsSchema,
  type ManagementKey,
  ManagementKeySettingsSchema,
  ManagementKeysService,
} from "../../../../gen/gateway/keys/v1/management_keys_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { count, plainCredits, toDate } from "../format.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { managementWords, type Scope } from "../words-management.ts";
import { readCredits, readWhole } from "./bounds.ts";
import {
  BudgetCell,
  BudgetDialog,
  type BudgetOwner,
  budgetsOf,
  hasLimit,
  setBudget,
  useBudgets,
} from "./budget.tsx";
import { Button } from "./button.tsx";
import { Segments } from "./choices.tsx";
import { Dialog } from "./dialog.tsx";
import { ChoiceField, Form, TextField } from "./form.tsx";
import { keysChanged, RotateDialog, SecretDialog } from "./key-dialogs.tsx";
import { linesOf } from "./key-fields.ts";
import { AddressesField } from "./key-form.tsx";
import { masked } from "./masked.ts";
import { notify } from "./messages.ts";
import { Card } from "./page.tsx";
import { useSeen } from "./seen.ts";
import { Snippet, Tag, Time } from "./small.tsx";
import { type Column, momentOf, Table } from "./table.tsx";
import { Skeleton, View } from "./view.tsx";

const texts = managementWords;
const scopeNames = ["READ", "KEYS", "ALL_KEYS", "BUY"] as const satisfies readonly Scope[];

function changed(): void {
  invalidate(ManagementKeysService.method.listManagementKeys);
}

type Opened =
  | "create"
  | { readonly act: "edit" | "limits" | "rotate" | "revoke"; readonly key: ManagementKey };

function ownerOf({ managementKeyId }: ManagementKey): BudgetOwner {
  return { case: "managementKeyId", value: managementKeyId };
}

export function ManagementKeysCard(): JSX.Element {
  const { accountId } = account.value;
  const [opened, setOpened] = useState<Opened>();
  const close = () => setOpened(undefined);
  const [place, isSeen] = useSeen();
  const request = isSeen ? { accountId, pageSize: 1000 } : undefined;
  const found = useCall(ManagementKeysService.method.listManagementKeys, request);
  return (
    <Card
      place={place}
      flush
      title={texts.title}
      about={texts.about}
      tools={
        <Button icon="plus" onClick={() => setOpened("create")}>
          {texts.create}
        </Button>
      }
    >
      <View
        call={found}
        skeleton={<Skeleton rows={2} />}
        empty={({ managementKeys }) =>
          managementKeys.length > 0 ? undefined : <p class="card-text muted">{texts.none}</p>
        }
      >
        {({ managementKeys }) => <KeyTable keys={managementKeys} onOpen={setOpened} />}
      </View>
      {opened === "create" && <CreateDialog onClose={close} />}
      {opened !== undefined && opened !== "create" && (
        <KeyDialog act={opened.act} apiKey={opened.key} onClose={close} />
      )}
    </Card>
  );
}

type TableProps = {
  readonly keys: readonly ManagementKey[];
  readonly onOpen: (opened: Opened) => void;
};

function KeyTable({ keys, onOpen }: TableProps): JSX.Element {
  const { data } = useBudgets();
  const budgetsBy = (key: ManagementKey) => budgetsOf(ownerOf(key), data?.items).filter(hasLimit);
  // Those that work first.
  const rows = keys.toSorted((a, b) => Number(!!a.revokedAt) - Number(!!b.revokedAt));
  const columns: readonly Column<ManagementKey>[] = [
    {
      name: "name",
      head: texts.name,
      cell: (key) => (
        <span class="key-name" title={key.name}>
          <bdi class="name">{key.name}</bdi>
          <code class="hint">{key.secrets[0]?.hint}</code>
          <StateTag apiKey={key} />
        </span>
      ),
    },
    {
      name: "may",
      head: texts.may,
      cell: ({ scopes }) =>
        namesOf(scopes)
          .map((name) => texts.scopeTags[name])
          .join(", "),
    },
    {
      name: "keys",
      head: texts.keys,
      end: true,
      cell: ({ liveKeys, maxKeys: mostKeys }) => texts.ofMost(count(liveKeys), count(mostKeys)),
    },
    {
      name: "budget",
      head: words.budget.column,
      cell: (key) => (
        <BudgetCell
          budgets={budgetsBy(key)}
          onEdit={key.revokedAt ? undefined : () => onOpen({ act: "limits", key })}
        />
      ),
    },
    {
      name: "used",
      head: texts.lastUsed,
      sortBy: (key) => momentOf(lastUseOf(key)),
      cell: (key) => <Time at={lastUseOf(key)} />,
    },
    {
      name: "actions",
      head: <span class="visually-hidden">{texts.actions}</span>,
      end: true,
      cell: (key) =>
        !key.revokedAt && (
          <span class="row">
            <Button kind="quiet" onClick={() => onOpen({ act: "edit", key })}>
              {texts.edit}
            </Button>
            <Button kind="quiet" onClick={() => onOpen({ act: "rotate", key })}>
              {texts.rotate}
            </Button>
            <Button kind="quiet" onClick={() => onOpen({ act: "revoke", key })}>
              {texts.revoke}
            </Button>
          </span>
        ),
    },
  ];
  return (
    <div class="dense">
      <Table
        caption={texts.caption}
        columns={columns}
        rows={rows}
        keyOf={({ managementKeyId }) => managementKeyId}
      />
    </div>
  );
}

function StateTag({ apiKey }: { readonly apiKey: ManagementKey }): JSX.Element | null {
  const { revokedAt, expiresAt } = apiKey;
  if (revokedAt) return <Tag tone="bad">{texts.revoked}</Tag>;
  const isExpired = expiresAt && toDate(expiresAt).getTime() <= Date.now();
  return isExpired ? <Tag tone="bad">{texts.expired}</Tag> : null;
}

function lastUseOf({ secrets }: ManagementKey) {
  const uses = secrets.flatMap(({ lastUsedAt }) => lastUsedAt ?? []);
  return uses.toSorted((a, b) => Number(b.seconds - a.seconds))[0];
}

const namesOf = (scopes: readonly ManagementScope[]) =>
  scopeNames.filter((name) => scopes.includes(ManagementScope[name]));

type Fields = {
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly mostKeys: string;
  readonly perMinute: string;
  /** In credits. */
  readonly cap: string;
  /** One a line. */
  readonly addresses: string;
};

const noFields: Fields = {
  name: "",
  scopes: ["KEYS"],
  mostKeys: "100",
  perMinute: "",
  cap: "",
  addresses: "",
};

function fieldsOf(key: ManagementKey): Fields {
  const { requestsPerMinute, monthlyCapMicrocredits: cap } = key.childLimits ?? {};
  return {
    name: key.name,
    scopes: namesOf(key.scopes),
    mostKeys: String(key.maxKeys),
    perMinute: requestsPerMinute === undefined ? "" : String(requestsPerMinute),
    cap: cap === undefined ? "" : plainCredits(cap),
    addresses: key.allowedAddresses.join("\n"),
  };
}

/** The fields of a request. Throws a CallError that names a field with a mistake. */
function readFields({ name, scopes, mostKeys, perMinute, cap, addresses }: Fields) {
  const { requestsPerMinute, monthlyCapMicrocredits } = ChildLimitsSchema.field;
  const rate = readWhole(perMinute, requestsPerMinute);
  const amount = readCredits(cap, monthlyCapMicrocredits);
  return {
    name: name.trim(),
    scopes: scopes.map((scope) => ManagementScope[scope]),
    maxKeys: readWhole(mostKeys, ManagementKeySettingsSchema.field.maxKeys) ?? 0,
    childLimits: {
      ...(rate !== undefined && { requestsPerMinute: rate }),
      ...(amount !== undefined && { monthlyCapMicrocredits: amount }),
    },
    allowedAddresses: linesOf(addresses),
  };
}

/** The limits of children that the form does not have: a change of the others keeps them. */
function otherLimits({ childLimits }: ManagementKey) {
  if (!childLimits) return {};
  const { requestsPerMinute: _, monthlyCapMicrocredits: __, ...others } = childLimits;
  return others;
}

const paths = {
  name: "name",
  scopes: "scopes",
  mostKeys: "max_keys",
  perMinute: "child_limits",
  cap: "child_limits",
  addresses: "allowed_addresses",
} as const satisfies Record<keyof Fields, string>;

const shownErrors = [
  ...["name", "max_keys", "requests_per_minute", "monthly_cap_microcredits"],
  "allowed_addresses",
];

type FormFieldsProps = {
  readonly fields: Fields;
  readonly onChange: (fields: Fields) => void;
};

function FormFields({ fields, onChange }: FormFieldsProps): JSX.Element {
  const set = (changes: Partial<Fields>) => onChange({ ...fields, ...changes });
  const toggle = (name: Scope, isOn: boolean) =>
    set({
      scopes: scopeNames.filter((one) => (one === name ? isOn : fields.scopes.includes(one))),
    });
  return (
    <>
      <TextField
        name="name"
        label={texts.name}
        hint={texts.nameHint}
        value={fields.name}
        onInput={(name) => set({ name })}
        isFirst
      />
      <fieldset class="field choices stack">
        <legend>{texts.scopes}</legend>
        {scopeNames.map((name) => (
          <label class="choice" key={name}>
            <input
              type="checkbox"
              checked={fields.scopes.includes(name)}
              onChange={(event) => toggle(name, event.currentTarget.checked)}
            />
            <span>
              <b>{texts.scopeLabels[name]}</b>
              <span class="hint">{texts.scopeHints[name]}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <TextField
        name="max_keys"
        label={texts.mostKeys}
        hint={texts.mostKeysHint}
        type="number"
        value={fields.mostKeys}
        onInput={(mostKeys) => set({ mostKeys })}
      />
      <fieldset class="field stack">
        <legend>{texts.children}</legend>
        <p class="hint">{texts.childrenHint}</p>
        <div class="field-row columns">
          <TextField
            name="requests_per_minute"
            label={words.keyForm.perMinute}
            type="number"
            placeholder={words.keyForm.unlimited}
            value={fields.perMinute}
            onInput={(perMinute) => set({ perMinute })}
          />
          <TextField
            name="monthly_cap_microcredits"
            label={words.keyForm.cap}
            type="number"
            unit={words.common.credits}
            placeholder={words.keyForm.unlimited}
            value={fields.cap}
            onInput={(cap) => set({ cap })}
          />
        </div>
      </fieldset>
      <AddressesField value={fields.addresses} onInput={(addresses) => set({ addresses })} />
    </>
  );
}

type CloseProps = { readonly onClose: () => void };

function CreateDialog({ onClose }: CloseProps): JSX.Element {
  const { accountId } = account.value;
  const [fields, setFields] = useState(noFields);
  const [secret, setSecret] = useState<string>();
  if (secret !== undefined)
    return (
      <SecretDialog
        title={texts.ready(fields.name.trim())}
        secret={secret}
        snippets={(onCopied) => <Snippets secret={secret} onCopied={onCopied} />}
        onClose={onClose}
      />
    );
  const send = async () => {
    const request = { accountId, settings: readFields(fields) };
    const made = await call(ManagementKeysService.method.createManagementKey, request);
    changed();
    setSecret(made.secret);
  };
  return (
    <Dialog title={texts.create} onClose={onClose}>
      <Form
        submit={texts.createButton}
        fields={shownErrors}
        disabled={fields.scopes.length === 0}
        onSubmit={send}
        onCancel={onClose}
      >
        <FormFields fields={fields} onChange={setFields} />
      </Form>
    </Dialog>
  );
}

type KeyDialogProps = CloseProps & { readonly apiKey: ManagementKey };

function KeyDialog({
  act,
  apiKey,
  onClose,
}: KeyDialogProps & { readonly act: "edit" | "limits" | "rotate" | "revoke" }): JSX.Element {
  if (act === "limits") return <LimitsDialog apiKey={apiKey} onClose={onClose} />;
  if (act === "edit") return <EditDialog apiKey={apiKey} onClose={onClose} />;
  if (act === "revoke") return <RevokeDialog apiKey={apiKey} onClose={onClose} />;
  return (
    <RotateDialog
      name={apiKey.name}
      lead={texts.rotateLead}
      snippets={(secret, onCopied) => <Snippets secret={secret} onCopied={onCopied} />}
      rotate={async (overlap) => {
        const { managementKeyId } = apiKey;
        const request = { managementKeyId, overlap };
        const { secret } = await call(ManagementKeysService.method.rotateManagementKey, request);
        changed();
        return secret;
      }}
      onClose={onClose}
    />
  );
}

/** What all keys together may spend that it made. */
function LimitsDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element | null {
  const { data } = useBudgets();
  if (!data) return null;
  const owner = ownerOf(apiKey);
  return (
    <BudgetDialog
      title={words.budget.ofMember(apiKey.name)}
      hint={texts.budgetHint}
      limits={budgetsOf(owner, data.items).find(hasLimit)?.limits}
      save={(next) => setBudget(owner, next)}
      onClose={onClose}
    />
  );
}

function EditDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element {
  // As it was when the dialog opened: only what is changed here is sent.
  const [before] = useState(() => fieldsOf(apiKey));
  const [fields, setFields] = useState(before);
  const send = async () => {
    const isChanged = (name: keyof Fields) => String(before[name]) !== String(fields[name]);
    const names: readonly (keyof Fields)[] = [
      ...(["name", "scopes", "mostKeys", "perMinute", "cap", "addresses"] as const),
    ];
    const mask = [...new Set(names.filter(isChanged).map((name) => paths[name]))];
    const read = readFields(fields);
    if (mask.length > 0)
      await call(ManagementKeysService.method.updateManagementKey, {
        managementKeyId: apiKey.managementKeyId,
        settings: masked(
          { ...read, childLimits: { ...otherLimits(apiKey), ...read.childLimits } },
          mask,
        ),
        updateMask: { paths: mask },
      });
    changed();
    notify(texts.saved);
    onClose();
  };
  return (
    <Dialog title={texts.editTitle(apiKey.name)} onClose={onClose}>
      <Form
        submit={words.common.save}
        fields={shownErrors}
        disabled={fields.scopes.length === 0}
        onSubmit={send}
        onCancel={onClose}
      >
        <FormFields fields={fields} onChange={setFields} />
      </Form>
    </Dialog>
  );
}

const fates = ["PAUSE", "REVOKE", "KEEP"] as const;

function RevokeDialog({ apiKey, onClose }: KeyDialogProps): JSX.Element {
  const { managementKeyId, name, liveKeys } = apiKey;
  const [fate, setFate] = useState<(typeof fates)[number]>("PAUSE");
  const send = async () => {
    const children = KeyAction[fate];
    await call(ManagementKeysService.method.revokeManagementKey, { managementKeyId, children });
    changed();
    keysChanged();
    notify(texts.revokedDone(name));
    onClose();
  };
  return (
    <Dialog title={texts.revokeTitle(name)} onClose={onClose}>
      <p>{texts.revokeLead}</p>
      <Form kind="danger" submit={texts.revoke} onSubmit={send} onCancel={onClose}>
        {liveKeys > 0 && (
          <ChoiceField
            name="children"
            label={texts.fate(count(liveKeys))}
            value={fate}
            onInput={setFate}
            options={fates.map((value) => ({
              value,
              label: texts.fates[value],
              hint: texts.fateHints[value],
            }))}
          />
        )}
      </Form>
    </Dialog>
  );
}

const languages = ["curl", "typescript", "python"] as const;
type Language = (typeof languages)[number];

type SnippetsProps = { readonly secret: string; readonly onCopied: () => void };

/** How a program makes a key, with the secret filled in. */
function Snippets({ secret, onCopied }: SnippetsProps): JSX.Element {
  const [language, setLanguage] = useState<Language>("curl");
  return (
    <div class="stack">
      <h3>{texts.howTo}</h3>
      <Segments
        label={texts.language}
        value={language}
        onInput={setLanguage}
        options={languages.map((value) => ({ value, label: texts.languages[value] }))}
      />
      <Snippet text={sampleIn(language, secret)} onCopied={onCopied} />
    </div>
  );
}

function sampleIn(language: Language, secret: string): string {
  const url = `${location.origin}/gateway.keys.v1.KeysService/CreateKey`;
  switch (language) {
    case "curl":
      return [
        `curl ${url} \\`,
        `  -H "Authorization: Bearer ${secret}" \\`,
        `  -H "Content-Type: application/json" \\`,
        `  -H "Idempotency-Key: $(uuidgen)" \\`,
        `  -d '{"family": "FAMILY_V1", "settings": {"name": "run 1"}}'`,
      ].join("\n");
    case "typescript":
      return `const response = await fetch("${url}", {
  method: "POST",
  headers: {
    authorization: "Bearer ${secret}",
    "content-type": "application/json",
    "idempotency-key": crypto.randomUUID(),
  },
  body: JSON.stringify({ family: "FAMILY_V1", settings: { name: "run 1" } }),
});
if (!response.ok) throw new Error(await response.text());
const { key, secret } = await response.json();`;
    case "python":
      return `import json, urllib.request, uuid

request = urllib.request.Request(
    "${url}",
    data=json.dumps({"family": "FAMILY_V1", "settings": {"name": "run 1"}}).encode(),
    headers={
        "Authorization": "Bearer ${secret}",
        "Content-Type": "application/json",
        "Idempotency-Key": str(uuid.uuid4()),
    },
)
with urllib.request.urlopen(request) as response:
    made = json.load(response)
print(made["key"]["keyId"], made["secret"])`;
  }
}
