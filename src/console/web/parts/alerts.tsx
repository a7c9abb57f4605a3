// The newest alerts of an account, and which of them go where. `later.tsx` loads this
// file when somebody scrolls to it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  AlertKind,
  type AlertSettings,
  AlertSettingsSchema,
  AlertsService,
} from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { plainCredits } from "../format.ts";
import { account, can, isOperatorAdmin } from "../session.ts";
import { words } from "../words.ts";
import { alertWords } from "../words-alerts.ts";
import { readCredits, readWhole } from "./bounds.ts";
import { Button } from "./button.tsx";
import { textOf } from "./enum-names.ts";
import { CheckField, Form, TextField } from "./form.tsx";
import { notify } from "./messages.ts";
import { Card } from "./page.tsx";

import { Snippet, Time } from "./small.tsx";
import { Table } from "./table.tsx";
import { Skeleton, View } from "./view.tsx";

const { listAlerts, setAlerts, dismissAlert, testWebhook } = AlertsService.method;
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
  const found = useCall(listAlerts, { ...owner, unread: true, pageSize: newestMax });
  const dismiss = async (alertId: string) => {
    await call(dismissAlert, { ...owner, alertId });
    invalidate(listAlerts);
  };
  return (
    <Card title={text.title}>
      <View call={found} skeleton={<Skeleton rows={1} />}>
        {({ alerts }) => (
          <ul class="endings stack">
            {alerts.map(({ alertId, title, at }) => (
              <li class="spread" key={alertId}>
                <div>
                  <h3 dir="auto">{title}</h3>
                  <p class="muted">
                    <Time at={at} />
                  </p>
                </div>
                {mayDismiss && (
                  <Button kind="quiet" onClick={() => dismiss(alertId)}>
                    {text.dismiss}
                  </Button>
                )}
              </li>
            ))}
            {!alerts.length && <li class="muted">{text.none}</li>}
          </ul>
        )}
      </View>
    </Card>
  );
}

/** The settings of alerts, for owners and for operators. */
export function AlertsCard(props: AlertsProps): JSX.Element {
  const found = useCall(listAlerts, { ...ownerOf(props), pageSize: 1 });
  return (
    <Card title={text.title}>
      <View call={found} skeleton={<Skeleton rows={6} />}>
        {({ settings, mails }) =>
          settings && <AlertsForm {...props} settings={settings} mails={mails} />
        }
      </View>
    </Card>
  );
}

/** What an alert of a kind is about. */
export function kindText(kind: AlertKind): string {
  return textOf(AlertKind, { ...text.kinds, UNSPECIFIED: text.newKind(kind) }, kind);
}

const channels = ["page", "mail", "webhook"] as const;

type AlertsFormProps = AlertsProps & { settings: AlertSettings; mails: boolean };

function AlertsForm({ settings, mails, ofOperators }: AlertsFormProps): JSX.Element {
  const owner = ownerOf({ ofOperators });
  const { belowMicrocredits, belowDays } = settings;
  const [credits, setCredits] = useState(belowMicrocredits ? plainCredits(belowMicrocredits) : "");
  const [days, setDays] = useState(String(belowDays ?? ""));
  const [url, setUrl] = useState(settings.webhookUrl);
  // Of every kind that the service has.
  const [rules, setRules] = useState(() =>
    settings.rules.map(({ kind, page, mail, webhook }) => ({ kind, page, mail, webhook })),
  );
  const [isNew, setNew] = useState(false);
  const [secret, setSecret] = useState("");
  const save = async () => {
    const amount = readCredits(credits, AlertSettingsSchema.field.belowMicrocredits);
    const count = readWhole(days, AlertSettingsSchema.field.belowDays);
    const webhookUrl = url.trim();
    const { webhookSecret } = await call(setAlerts, {
      ...owner,
      settings: {
        ...(amount !== undefined && { belowMicrocredits: amount }),
        ...(count !== undefined && { belowDays: count }),
        rules: rules.map((rule) => ({ ...rule, webhook: rule.webhook && webhookUrl !== "" })),
        webhookUrl,
      },
      newWebhookSecret: isNew,
    });
    setSecret(webhookSecret);
    setNew(false);
    invalidate(listAlerts);
    notify(text.saved);
  };
  const test = async () => {
    const { problem } = await call(testWebhook, owner);
    notify(problem || text.tested);
  };
  return (
    <Form
      submit={words.common.save}
      fields={["below_microcredits", "below_days", "webhook_url"]}
      onSubmit={save}
    >
      {!ofOperators && (
        <div class="field-row columns">
          <TextField
            name="below_microcredits"
            type="number"
            label={text.belowCredits}
            value={credits}
            onInput={setCredits}
            unit={words.common.credits}
          />
          <TextField
            name="below_days"
            type="number"
            label={text.belowDays}
            value={days}
            onInput={setDays}
            unit={text.days}
          />
        </div>
      )}
      <Table
        caption={text.title}
        rows={rules}
        keyOf={({ kind }) => String(kind)}
        columns={[
          { name: "kind", head: text.kind, cell: ({ kind }) => kindText(kind) },
          ...channels.map((channel) => ({
            name: channel,
            head: text.channels[channel],
            cell: (rule: (typeof rules)[number]) => (
              <input
                type="checkbox"
                aria-label={`${kindText(rule.kind)}: ${text.channels[channel]}`}
                checked={rule[channel]}
                disabled={channel === "mail" ? !mails : channel === "webhook" && url === ""}
                onChange={({ currentTarget: { checked } }) =>
                  setRules(
                    rules.map((one) => (one === rule ? { ...one, [channel]: checked } : one)),
                  )
                }
              />
            ),
          })),
        ]}
      />
      <TextField
        name="webhook_url"
        label={text.webhook}
        hint={text.webhookHint}
        value={url}
        onInput={setUrl}
      />
      {settings.webhookUrl && (
        <div class="spread">
          <CheckField
            name="new_webhook_secret"
            label={text.newSecret}
            checked={isNew}
            onInput={setNew}
          />
          <Button onClick={test}>{text.test}</Button>
        </div>
      )}
      {secret && <Snippet text={secret} />}
    </Form>
  );
}
