// What was mailed to the people of an account, and what became of it.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DeliveryState, type ListedDelivery } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import {
  type AccountMail,
  AccountMailSchema,
  type ListMailsRequest,
  ListMailsResponseSchema,
  SupportService,
} from "../../gen/gateway/operations/v1/support_pb.ts";
import { maskAddress } from "../base/mail-address.ts";
import { askedPage, encodeTimeCursor } from "../base/paging.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Reports } from "../postgres/postgres.ts";
import { checkAccount } from "./store.ts";

export type MailsParts = {
  readonly reports: Reports;
  readonly mails: {
    /** As alerts document it. */
    listMails(
      accountId: string,
      after: string | undefined,
      rows: number,
    ): Promise<
      readonly {
        readonly at: Date;
        readonly cursor: string;
        readonly delivery: ListedDelivery | undefined;
        readonly address?: string;
      }[]
    >;
  };
  /** The mails of the invitations to an account, newest first, as people document it. */
  readonly listInvitationMails: (accountId: string) => Promise<readonly InvitationMail[]>;
};

type InvitationMail = {
  readonly mailId: string;
  readonly invitationId: string;
  readonly address: string;
  readonly state: "waiting" | "sent" | "failed";
  readonly problem: string;
  readonly attempts: number;
  readonly nextAt: Date;
  readonly madeAt: Date;
};

/** A mail of one of both sources, and its place in that. */
type Found = {
  readonly source: keyof Places;
  readonly at: Date;
  readonly cursor: string;
  /** Undefined: it is left out. */
  readonly mail: AccountMail | undefined;
};

/** How far each source was read. Absent: from its newest mail. */
type Places = { alerts?: string; invitations?: string };

export async function listMails(
  { reports, mails, listInvitationMails }: MailsParts,
  request: ListMailsRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = request;
  await checkAccount(reports, accountId);
  const page = askedPage(SupportService.method.listMails, request, call);
  const [alerts, invitations] = page.after?.split("\n") ?? [];
  const places: Places = {
    ...(alerts && { alerts }),
    ...(invitations && { invitations }),
  };
  const [ofAlerts, ofInvitations] = await Promise.all([
    mails.listMails(accountId, places.alerts, page.size + 1),
    listInvitationMails(accountId),
  ]);
  const found = [
    ...ofAlerts.map(
      ({ at, cursor, delivery, address }): Found => ({
        source: "alerts",
        at,
        cursor,
        mail:
          delivery &&
          create(AccountMailSchema, {
            delivery,
            ...(address !== undefined && { address: maskAddress(address) }),
          }),
      }),
    ),
    ...ofInvitations
      .map(
        (mail): Found => ({
          source: "invitations",
          at: mail.madeAt,
          cursor: encodeTimeCursor({ at: mail.madeAt, id: mail.mailId }),
          mail: toMail(mail),
        }),
      )
      .sort((one, other) => (one.cursor < other.cursor ? 1 : -1))
      .filter(({ cursor }) => places.invitations === undefined || cursor < places.invitations),
  ].sort((one, other) => other.at.getTime() - one.at.getTime());
  const entries = found.slice(0, page.size);
  const next = { ...places };
  for (const { source, cursor } of entries) next[source] = cursor;
  return create(ListMailsResponseSchema, {
    mails: entries.flatMap(({ mail }) => mail ?? []),
    nextPageToken:
      found.length > page.size
        ? page.tokenOf(`${next.alerts ?? ""}\n${next.invitations ?? ""}`)
        : "",
  });
}

const states: Readonly<Record<InvitationMail["state"], DeliveryState>> = {
  waiting: DeliveryState.WAITING,
  sent: DeliveryState.SENT,
  failed: DeliveryState.FAILED,
};

function toMail(mail: InvitationMail): AccountMail {
  const { invitationId, address, state, problem, attempts, nextAt, madeAt } = mail;
  const isTried = state === "waiting" && problem === "";
  return create(AccountMailSchema, {
    ...{ invitationId, address: maskAddress(address) },
    delivery: {
      createdAt: timestampFromDate(madeAt),
      delivery: {
        ...{ state: states[state], problem, attemptedAt: timestampFromDate(nextAt) },
        failures: state === "sent" || isTried ? Math.max(0, attempts - 1) : attempts,
      },
    },
  });
}
