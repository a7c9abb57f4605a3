// The newest alerts of an account, and which of them go where.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  AlertChannel,
  type AlertKind,
  type AlertSettings,
  AlertSettingsSchema,
  AlertsService,
  type ListAlertsResponse,
  WebhookForm,
} from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { plainCredits } from "../format.ts";
import { href } from "../router.ts";
import { account, can, isOperatorAdmin } from "../session.ts";
import { words } from "../words.ts";
import { alertWords } from "../words-alerts.ts";
import { AlertItems, kindText } from "./alert-link.tsx";
import { readCredits, readWhole } from "./bounds.ts";
import { Button } from "./button.tsx";
import { CheckField, Form, fieldError, SelectField, TextField } from "./form.tsx";
import { notify } from "./messages.ts";
import { Card } from "./page.tsx";
import { useSeen } from "./seen.ts";
import { Notice, Snippet, Time } from "./small.tsx";
import { Table } from "./table.tsx";
import { Skeleton, View } from "./view.tsx";

const {
  listAlerts,
  updateAlertSettings: setAlerts,
  dismissAlert,
  testWebhook,
} = AlertsService.method;
const text = alertWords;
const newestMax = 5;

type AlertsProps = {
  /** The alerts of the whole installation, in place of those of the account. */
  readonly ofOperators?: boolean | undefined;
};

/** Of whom a call is. */
const ownerOf = ({ ofOperators }: AlertsProps) =>
  ofOperators ? { allAccounts: true } : { accountId: account.value.accountId };

/** Alerts that nobody has marked as read. */
export function NewestAlerts(props: AlertsProps): JSX.Element {
  const owner = ownerOf(props);
  const mayDismiss = props.ofOperators ? isOperatorAdmin() : can("member");
  const [place, isSeen] = useSeen();
  const request = { ...owner, unread: true, pageSize: newestMax };
  const found = useCall(listAlerts, isSeen ? request : undefined);
  const dismiss = async (alertId: string) => {
    await call(dismissAlert, { ...owner, alertId });
    invalidate(listAlerts);
  };
  return (
    <Card
      place={place}
      title={text.title}
      tools={!props.ofOperators && <a href={href("alerts")}>{text.all}</a>}
    >
      <View call={found} skeleton={<Skeleton rows={1} />}>
        {({ alerts }) => (
          <AlertItems alerts={alerts} mayDismiss={() => mayDismiss} onDismiss={dismiss} />
        )}
      </View>
    </Card>
  );
}

/** The settings of alerts, for owners and for operators. */
export function AlertsCard(props: AlertsProps): JSX.Element {
  const [place, isSeen] = useSeen();
  const request = { ...ownerOf(props), pageSize: 1 };
  const found = useCall(listAlerts, isSeen ? request : undefined);
  return (
    <Card place={place} title={text.title}>
      <View call={found} skeleton={<Skeleton rows={6} />}>
        {(answer) =>
          answer.settings && <AlertsForm {...props} settings={answer.settings} answer={answer} />
        }
      </View>
    </Card>
  );
}

const formNames = ["STANDARD", "SLACK"] as const;
type FormName = (typeof formNames)[number];

const channels = ["page", "mail", "webhook"] as const;

/** Which alerts of a kind go where. */
type Rule = { readonly kind: AlertKind } & Readonly<Record<(typeof channels)[number], boolean>>;

type AlertsFormProps = AlertsProps & { settings: AlertSettings; answer: ListAlertsResponse };

function AlertsForm({ settings, answer, ofOperators }: AlertsFormProps): JSX.Element {
  const { mails, webhookOffAt, webhookFailingSince } = answer;
  const { form, set, secret, save, test } = useAlertsForm({ ofOperators }, settings);
  return (
    <Form
      submit={words.common.save}
      fields={["below_microcredits", "below_days", "percents", "webhook_url", "form"]}
      onSubmit={save}
    >
      {!ofOperators && (
        <div class="field-row columns">
          <TextField
            name="below_microcredits"
            type="number"
            label={text.belowCredits}
            value={form.credits}
            onInput={(credits) => set({ credits })}
            unit={words.common.credits}
          />
          <TextField
            name="below_days"
            type="number"
            label={text.belowDays}
            value={form.days}
            onInput={(days) => set({ days })}
            unit={text.days}
          />
          <TextField
            name="percents"
            label={text.percents}
            hint={text.percentsHint}
            value={form.percents}
            onInput={(percents) => set({ percents })}
            unit="%"
          />
        </div>
      )}
      <Rules
        rules={form.rules}
        isOff={{ mail: !mails, webhook: form.url === "" }}
        onChange={(rules) => set({ rules })}
      />
      <TextField
        name="webhook_url"
        label={text.webhook}
        hint={text.webhookHint}
        value={form.url}
        onInput={(url) => set({ url })}
      />
      {form.url !== "" && (
        <SelectField
          name="form"
          label={text.form}
          value={form.posts}
          onInput={(posts) => set({ posts })}
          options={formNames.map((value) => ({ value, label: text.forms[value] }))}
        />
      )}
      {webhookOffAt && <Notice tone="warn">{text.off}</Notice>}
      {webhookFailingSince && !webhookOffAt && (
        <p class="faint">
          {text.failing} <Time at={webhookFailingSince} as="moment" />
        </p>
      )}
      {settings.webhookUrl && (
        <div class="spread">
          <CheckField
            name="rotate_webhook_secret"
            label={text.newSecret}
            checked={form.isNewSecret}
            onInput={(isNewSecret) => set({ isNewSecret })}
          />
          <Button onClick={test}>{text.test}</Button>
        </div>
      )}
      {secret && <Snippet text={secret} />}
    </Form>
  );
}

type AlertsFields = {
  readonly credits: string;
  readonly days: string;
  readonly percents: string;
  readonly url: string;
  readonly posts: FormName;
  readonly rules: readonly Rule[];
  readonly isNewSecret: boolean;
};

/** What is in the form, and what it sends. `secret`: of a webhook, shown once. */
function useAlertsForm(props: AlertsProps, settings: AlertSettings) {
  const owner = ownerOf(props);
  const { belowMicrocredits, belowDays, webhookUrl: knownUrl } = settings;
  const [form, setForm] = useState<AlertsFields>(() => ({
    credits: belowMicrocredits ? plainCredits(belowMicrocredits) : "",
    days: String(belowDays ?? ""),
    percents: settings.percents.join(", "),
    url: knownUrl,
    posts: settings.form === WebhookForm.SLACK ? "SLACK" : "STANDARD",
    // Of every kind that the service has.
    rules: settings.rules.map(
      ({ kind, channels: on }): Rule => ({
        kind,
        page: on.includes(AlertChannel.PAGE),
        mail: on.includes(AlertChannel.MAIL),
        webhook: on.includes(AlertChannel.WEBHOOK),
      }),
    ),
    isNewSecret: false,
  }));
  const [secret, setSecret] = useState("");
  const set = (changes: Partial<AlertsFields>) => setForm((before) => ({ ...before, ...changes }));
  const save = async () => {
    const amount = readCredits(form.credits, AlertSettingsSchema.field.belowMicrocredits);
    const count = readWhole(form.days, AlertSettingsSchema.field.belowDays);
    const webhookUrl = form.url.trim();
    const { webhookSecret } = await call(setAlerts, {
      ...owner,
      settings: {
        ...(amount !== undefined && { belowMicrocredits: amount }),
        ...(count !== undefined && { belowDays: count }),
        percents: readPercents(form.percents),
        rules: form.rules.map(({ kind, page, mail, webhook }) => ({
          kind,
          channels: [
            ...(page ? [AlertChannel.PAGE] : []),
            ...(mail ? [AlertChannel.MAIL] : []),
            ...(webhook && webhookUrl !== "" ? [AlertChannel.WEBHOOK] : []),
          ],
        })),
        webhookUrl,
        form: WebhookForm[form.posts],
      },
      updateMask: { paths: AlertSettingsSchema.fields.map(({ name }) => name) },
      rotateWebhookSecret: form.isNewSecret,
    });
    setSecret(webhookSecret);
    set({ isNewSecret: false });
    invalidate(listAlerts);
    notify(text.saved);
  };
  const test = async () => {
    const { problem } = await call(testWebhook, owner);
    notify(problem || text.tested);
  };
  return { form, set, secret, save, test };
}

/** Throws a CallError at the field. */
function readPercents(typed: string): number[] {
  const percents = new Set(typed.split(/[\s,;%]+/).filter((one) => one !== ""));
  const numbers = [...percents].map((one) => (/^\d{1,3}$/.test(one) ? Number(one) : 0));
  if (numbers.length > 10 || numbers.some((one) => one < 1 || one > 100))
    throw fieldError("percents", text.percentsWrong);
  return numbers;
}

type RulesProps = {
  readonly rules: readonly Rule[];
  /** Channels that nothing can go to. */
  readonly isOff: Readonly<Partial<Record<(typeof channels)[number], boolean>>>;
  readonly onChange: (rules: Rule[]) => void;
};

function Rules({ rules, isOff, onChange }: RulesProps): JSX.Element {
  return (
    <Table
      caption={text.title}
      rows={rules}
      keyOf={({ kind }) => String(kind)}
      columns={[
        { name: "kind", head: text.kind, cell: ({ kind }) => kindText(kind) },
        ...channels.map((channel) => ({
          name: channel,
          head: text.channels[channel],
          cell: (rule: Rule) => (
            <input
              type="checkbox"
              aria-label={`${kindText(rule.kind)}: ${text.channels[channel]}`}
              checked={rule[channel]}
              disabled={isOff[channel] === true}
              onChange={({ currentTarget: { checked } }) =>
                onChange(rules.map((one) => (one === rule ? { ...one, [channel]: checked } : one)))
              }
            />
          ),
        })),
      ]}
    />
  );
}
