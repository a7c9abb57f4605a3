// All alerts of an account, for the bell of narrow screens and the link below it, and for owners
// what was delivered of them, and is sent again.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  AlertsService,
  DeliveryState,
  type ListedDelivery,
} from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { AlertItems, kindText } from "../parts/alert-link.tsx";
import { Button } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { CheckField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { account, can } from "../session.ts";
import { words } from "../words.ts";
import { alertWords as text } from "../words-alerts.ts";

const { listAlerts, dismissAlert, listDeliveries, resendDelivery } = AlertsService.method;
const shownMax = 100;

export function AlertsPage(): JSX.Element {
  return (
    <>
      <Head title={words.shell.alerts} />
      <Alerts />
      {can("owner") && <Deliveries />}
    </>
  );
}

function Alerts(): JSX.Element {
  const { accountId } = account.value;
  const found = useCall(listAlerts, { accountId, pageSize: shownMax });
  const dismiss = async (alertId: string) => {
    await call(dismissAlert, { accountId, alertId });
    invalidate(listAlerts);
  };
  return (
    <Card title={text.title} about={text.every}>
      <View call={found} skeleton={<Skeleton rows={6} />}>
        {({ alerts }) => (
          <AlertItems
            alerts={alerts}
            mayDismiss={(one) => can("member") && !one.dismissedAt}
            onDismiss={dismiss}
          />
        )}
      </View>
    </Card>
  );
}

function Deliveries(): JSX.Element {
  const { accountId } = account.value;
  const [failed, setFailed] = useState(false);
  const found = useCall(listDeliveries, { accountId, failed, pageSize: shownMax });
  const again = async (alertId: string) => {
    await call(resendDelivery, { accountId, alertId });
    invalidate(listDeliveries);
    notify(text.sentAgain);
  };
  return (
    <Card
      flush
      title={text.deliveries}
      about={text.deliveriesAbout}
      tools={
        <CheckField name="failed" label={text.onlyFailed} checked={failed} onInput={setFailed} />
      }
    >
      <View
        call={found}
        skeleton={<Skeleton rows={4} />}
        empty={({ deliveries }) =>
          deliveries.length > 0 ? undefined : <p class="card-text muted">{text.noDeliveries}</p>
        }
      >
        {({ deliveries }) => (
          <Table
            caption={text.deliveries}
            rows={deliveries}
            keyOf={({ alertId, delivery }) => `${alertId} ${delivery?.personId ?? ""}`}
            columns={[
              {
                name: "time",
                head: text.time,
                cell: ({ createdAt: madeAt }) => <Time at={madeAt} />,
              },
              {
                name: "alert",
                head: text.about,
                cell: ({ kind }) => <span class="sentence">{kindText(kind)}</span>,
              },
              {
                name: "to",
                head: text.to,
                cell: (one) => (isPost(one) ? text.webhook : text.mail),
              },
              { name: "state", head: text.state, cell: (one) => <StateCell of={one} /> },
              {
                name: "again",
                head: <span class="visually-hidden">{text.again}</span>,
                end: true,
                cell: (one) =>
                  isPost(one) && (
                    <Button kind="quiet" onClick={() => again(one.alertId)}>
                      {text.again}
                    </Button>
                  ),
              },
            ]}
          />
        )}
      </View>
    </Card>
  );
}

const isPost = ({ delivery }: ListedDelivery) => delivery?.personId === undefined;

function StateCell({ of: { delivery } }: { readonly of: ListedDelivery }): JSX.Element {
  const { state = DeliveryState.UNSPECIFIED, problem = "" } = delivery ?? {};
  const shown = textOf(DeliveryState, text.states, state);
  return (
    <>
      {state === DeliveryState.FAILED ? <Tag tone="bad">{shown}</Tag> : shown}
      {problem !== "" && <p class="faint sentence">{problem}</p>}
    </>
  );
}
