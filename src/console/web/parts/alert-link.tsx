// One alert as a line that leads to what it is about, and the name of its kind.

import type { JSX } from "preact";
import { type Alert, AlertKind } from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { href } from "../router.ts";
import { alertText, alertWords } from "../words-alerts.ts";
import { Button } from "./button.tsx";
import { textOf } from "./enum-names.ts";
import { Time } from "./small.tsx";

type AlertLinkProps = { readonly alert: Alert; readonly onClick?: () => void };

export function AlertLink({ alert, onClick }: AlertLinkProps): JSX.Element {
  const name = Object.entries(AlertKind).find(([, number]) => number === alert.kind)?.[0];
  const text = alertText(alert, name);
  const path = alert.accountId === "" ? undefined : pathOf(alert);
  return path === undefined ? (
    <span dir="auto">{text}</span>
  ) : (
    <a dir="auto" href={href(path)} onClick={onClick}>
      {text}
    </a>
  );
}

type AlertItemsProps = {
  readonly alerts: readonly Alert[];
  readonly mayDismiss: (alert: Alert) => boolean;
  readonly onDismiss: (alertId: string) => Promise<void>;
};

/** Alerts, each with its time. */
export function AlertItems({ alerts, mayDismiss, onDismiss }: AlertItemsProps): JSX.Element {
  return (
    <ul class="endings stack">
      {alerts.map((one) => (
        <li class="spread" key={one.alertId} data-read={one.dismissedAt !== undefined}>
          <div>
            <h3 dir="auto">
              <AlertLink alert={one} />
            </h3>
            <p class="muted">
              <Time at={one.occurredAt} />
            </p>
          </div>
          {mayDismiss(one) && (
            <Button kind="quiet" onClick={() => onDismiss(one.alertId)}>
              {alertWords.dismiss}
            </Button>
          )}
        </li>
      ))}
      {!alerts.length && <li class="muted">{alertWords.none}</li>}
    </ul>
  );
}

/** What an alert of a kind is about. */
export function kindText(kind: AlertKind): string {
  const { kinds, newKind } = alertWords;
  return textOf(AlertKind, { ...kinds, UNSPECIFIED: newKind(kind) }, kind);
}

/** The page of the order, key or budget that an alert is about. Undefined: there is none. */
function pathOf({ kind, orderId, keyId, payer, facts }: Alert): string | undefined {
  if (orderId !== "") return `credits/orders/${orderId}`;
  const { case: kindOfPayer, value } = payer?.payer ?? {};
  if (kindOfPayer === "personId") return `members/${value}`;
  if (kindOfPayer === "managementKeyId") return "settings";
  if (keyId !== "" || kindOfPayer === "keyId") return `keys/${keyId || value}`;
  if (kind === AlertKind.CREDITS_LOW || facts.of === "pool") return "credits";
  return kind === AlertKind.NEW_PLACE || kind === AlertKind.WEBHOOK_OFF ? "settings" : undefined;
}
