// The bell: how many alerts nobody has read, and the newest of them. It follows along by a stream
// while somebody sees the page. On narrow screens it leads to the page of all.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AlertsService, type NewestAlerts } from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { invalidate, useStream } from "../api.ts";
import { href } from "../router.ts";
import { account } from "../session.ts";
import { alertWords as text } from "../words-alerts.ts";
import { AlertLink } from "./alert-link.tsx";
import { Icon } from "./icon.tsx";
import { Menu } from "./menu.tsx";
import { Time } from "./small.tsx";
import { useVisible } from "./visible.ts";

const countedMax = 100;

export function Bell(): JSX.Element {
  const { accountId } = account.value;
  const isVisible = useVisible();
  const [newest, setNewest] = useState<NewestAlerts>();
  const { watchAlerts, listAlerts, listDeliveries } = AlertsService.method;
  useStream(watchAlerts, isVisible ? { accountId } : undefined, (message) => {
    if (!message.newest) return;
    // What the page lists of them has changed, too.
    if (newest) invalidate(listAlerts, listDeliveries);
    setNewest(message.newest);
  });
  const unread = newest?.unread ?? 0;
  const face = (
    <>
      <Icon name="bell" />
      {unread > 0 && <b aria-hidden="true">{unread < countedMax ? unread : "99+"}</b>}
    </>
  );
  const label = text.bell(unread < countedMax ? String(unread) : text.more);
  return (
    <>
      <a class="bell of-narrow" href={href("alerts")} aria-label={label}>
        {face}
      </a>
      <Menu class="bell of-wide" label={label} button={face}>
        {(close) => (
          <div class="bell-list">
            <ul class="stack">
              {(newest?.alerts ?? []).map((alert) => (
                <li key={alert.alertId} data-read={alert.dismissedAt !== undefined}>
                  <AlertLink alert={alert} onClick={close} />
                  <small>
                    <Time at={alert.occurredAt} />
                  </small>
                </li>
              ))}
              {!newest?.alerts.length && <li class="muted">{text.none}</li>}
            </ul>
            <a class="menu-item" href={href("alerts")} onClick={close}>
              {text.all}
            </a>
          </div>
        )}
      </Menu>
    </>
  );
}
