// What was mailed to the people of an account, and what became of it.

import { create } from "@bufbuild/protobuf";
import type { ListedDelivery } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import {
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
};

export async function listMails({ reports, mails }: MailsParts, { accountId }: ListMailsRequest) {
  await checkAccount(reports, accountId);
  const found = await mails.listMails(accountId, rowsMax + 1);
  return create(ListMailsResponseSchema, {
    mails: found.slice(0, rowsMax).map(({ delivery, address }) =>
      create(AccountMailSchema, {
        delivery,
        ...(address !== undefined && { address: maskAddress(address) }),
      }),
    ),
    isIncomplete: found.length > rowsMax,
  });
}
