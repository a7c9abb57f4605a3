// What was mailed to the people of an account, and what became of it.

import { create } from "@bufbuild/protobuf";
import type { ListedDelivery } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import {
  AccountMailSchema,
  type ListMailsRequest,
  ListMailsResponseSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
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
    mails: found.slice(0, rowsMax).map(({ delivery: listed, address }) => {
      const { delivery } = listed;
      // A mail server repeats the address that it refuses, or another one: of before a change, of
      // a person who left, or to which the mail was forwarded.
      const problem = maskAddresses(delivery?.problem ?? "");
      return create(AccountMailSchema, {
        delivery: { ...listed, ...(delivery && { delivery: { ...delivery, problem } }) },
        ...(address !== undefined && { address: maskAddress(address) }),
      });
    }),
    isIncomplete: found.length > rowsMax,
  });
}

/** Enough to tell two addresses of a customer apart, and too little to write to one. */
function maskAddress(address: string): string {
  const [first = ""] = address;
  return `${first}…${address.slice(address.lastIndexOf("@"))}`;
}

// The name may be in quotes, and the sign may be as URLs write it. An answer has 200 characters.
const addressForm = /(?:"[^"]+"|[^\s<>()[\]"',;:@]+)(?:@|%40)[^\s<>()[\]"',;:@]+/gi;

/** Masks whatever has the form of an address in a text. */
function maskAddresses(text: string): string {
  return text.replace(addressForm, (address) => maskAddress(address.replace("%40", "@")));
}
