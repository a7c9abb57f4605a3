// What was mailed to the people of a customer, and the mails that operators send again.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { DeliveryState } from "../../../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import {
  type AccountMail,
  DocumentReceiver,
  SupportService,
} from "../../../../gen/gateway/operations/v1/support_pb.ts";
import { call, invalidate, usePages } from "../api.ts";
import { kindText } from "../parts/alert-link.tsx";
import { Button } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { ChoiceField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card } from "../parts/page.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { alertWords } from "../words-alerts.ts";
import { type Act, ActDialog } from "./act.tsx";
import { PagedTable, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const { listMails, resendDocument, resendNotice } = SupportService.method;

type OfAccount = { readonly accountId: string };

export function MailsCard({ accountId }: OfAccount): JSX.Element {
  const pages = usePages(listMails, { accountId, pageSize: 20 }, ({ mails }) => mails, {
    isLive: true,
  });
  const nameOf = usePeopleNames();
  const [again, setAgain] = useState<AccountMail>();
  const { head } = words.mails;
  return (
    <Card title={words.mails.title} note={words.mails.note} flush>
      <PagedTable
        pages={pages}
        greyRows={3}
        empty={words.mails.none}
        caption={words.mails.caption}
        columns={[
          {
            name: "at",
            head: head.at,
            cell: ({ delivery }) => <Time at={delivery?.createdAt} as="moment" />,
          },
          {
            name: "what",
            head: head.what,
            cell: ({ delivery, invitationId }) => (
              <span class="clipped" title={delivery?.title}>
                {invitationId === "" ? kindText(delivery?.kind ?? 0) : words.mails.invitation}
              </span>
            ),
          },
          {
            name: "to",
            head: head.to,
            cell: ({ delivery, address, invitationId }) => {
              if (invitationId !== "")
                return (
                  <span class="clipped" title={address}>
                    {address}
                  </span>
                );
              const name = nameOf({
                kind: { case: "personId", value: delivery?.delivery?.personId ?? "" },
              });
              const to = address || words.mails.noAddress;
              return (
                <span class="key-name" title={`${name}, ${to}`}>
                  <bdi class="name">{name}</bdi>
                  <span class="faint">{to}</span>
                </span>
              );
            },
          },
          { name: "state", head: head.state, cell: (mail) => <StateCell mail={mail} /> },
          {
            name: "again",
            head: <span class="visually-hidden">{words.mails.again}</span>,
            end: true,
            cell: (mail) =>
              mail.invitationId === "" && (
                <Button kind="quiet" onClick={() => setAgain(mail)}>
                  {words.mails.again}
                </Button>
              ),
          },
        ]}
        keyOf={({ delivery, invitationId }) =>
          invitationId || `${delivery?.alertId} ${delivery?.delivery?.personId}`
        }
      />
      {again && (
        <NoticeDialog accountId={accountId} mail={again} onClose={() => setAgain(undefined)} />
      )}
    </Card>
  );
}

function StateCell({ mail }: { readonly mail: AccountMail }): JSX.Element {
  const { state = DeliveryState.UNSPECIFIED, problem = "" } = mail.delivery?.delivery ?? {};
  const shown = textOf(DeliveryState, alertWords.states, state);
  return (
    <span class="row">
      {state === DeliveryState.FAILED ? <Tag tone="bad">{shown}</Tag> : shown}
      {problem !== "" && (
        <span class="clipped faint" dir="auto" title={problem}>
          {problem}
        </span>
      )}
    </span>
  );
}

type NoticeDialogProps = OfAccount & { readonly mail: AccountMail; readonly onClose: () => void };

/** Sends the mail of a notice again, to all who get it. */
function NoticeDialog({ accountId, mail, onClose }: NoticeDialogProps): JSX.Element {
  const { alertId = "", title = "" } = mail.delivery ?? {};
  const resend = async (act: Act) => {
    await call(resendNotice, { accountId, alertId, ...act }).finally(mailsChanged);
    notify(words.mails.done);
  };
  return (
    <ActDialog
      title={words.mails.noticeTitle}
      submit={words.mails.again}
      onAct={resend}
      onClose={onClose}
    >
      <p dir="auto">{title}</p>
      <p>{words.mails.noticeLead}</p>
    </ActDialog>
  );
}

const receivers = ["OWNERS", "BUYER"] as const;

type DocumentDialogProps = OfAccount & { readonly number: string; readonly onClose: () => void };

/** Mails a receipt or credit note again. */
export function DocumentDialog({ accountId, number, onClose }: DocumentDialogProps): JSX.Element {
  const [to, setTo] = useState<(typeof receivers)[number]>("OWNERS");
  const resend = async (act: Act) => {
    const request = { accountId, number, receiver: DocumentReceiver[to], ...act };
    await call(resendDocument, request).finally(mailsChanged);
    notify(words.mails.done);
  };
  return (
    <ActDialog
      title={words.mails.documentTitle(number)}
      submit={words.mails.mailIt}
      fields={["receiver"]}
      onAct={resend}
      onClose={onClose}
    >
      <ChoiceField
        name="receiver"
        label={words.mails.head.to}
        value={to}
        onInput={setTo}
        options={receivers.map((value) => ({ value, ...words.mails.receivers[value] }))}
      />
    </ActDialog>
  );
}

function mailsChanged(): void {
  invalidate(listMails, AuditService.method.listAuditEvents);
}
