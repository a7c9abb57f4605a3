// What was mailed to the people of an account, and what became of it.

import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DeliveryState, type ListedDelivery } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import {
  type AccountMail,
  AccountMailSchema,
  type ListMailsRequest,
  ListMailsResponseSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { maskAddress } from "../base/mail-address.ts";
import type { Reports } from "../postgres/postgres.ts";
import { checkAccount } from "./store.ts";

const rowsMax = 100;

export type MailsParts = {
  readonly reports: Reports;
  readonly mails: {
    /** As alerts document it. */
    listMails(
      accountId: string,
      rows: number,
    ): Promise<readonly { readonly delivery: ListedDelivery; readonly address?: string }[]>;
  };
  /** The newest mails of the invitations to an account, newest first, as people document it. */
  readonly listInvitationMails: (
    accountId: string,
    rows: number,
  ) => Promise<readonly InvitationMail[]>;
};

type InvitationMail = {
  readonly invitationId: string;
  readonly address: string;
  readonly state: "waiting" | "sent" | "failed";
  readonly problem: string;
  readonly attempts: number;
  readonly nextAt: Date;
  readonly madeAt: Date;
};

export async function listMails(
  { reports, mails, listInvitationMails }: MailsParts,
  { accountId }: ListMailsRequest,
) {
  await checkAccount(reports, accountId);
  const [ofAlerts, ofInvitations] = await Promise.all([
    mails.listMails(accountId, rowsMax + 1),
    listInvitationMails(accountId, rowsMax + 1),
  ]);
  const found = [
    ...ofAlerts.map(({ delivery, address }) =>
      create(AccountMailSchema, {
        delivery,
        ...(address !== undefined && { address: maskAddress(address) }),
      }),
    ),
    ...ofInvitations.map(toMail),
  ].sort((one, other) => madeAtMs(other) - madeAtMs(one));
  return create(ListMailsResponseSchema, {
    mails: found.slice(0, rowsMax),
    isIncomplete: found.length > rowsMax,
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
      madeAt: timestampFromDate(madeAt),
      delivery: {
        ...{ state: states[state], problem, at: timestampFromDate(nextAt) },
        failures: state === "sent" || isTried ? Math.max(0, attempts - 1) : attempts,
      },
    },
  });
}

function madeAtMs({ delivery }: AccountMail): number {
  return delivery?.madeAt ? timestampDate(delivery.madeAt).getTime() : 0;
}
