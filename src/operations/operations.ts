// What operators see of the whole installation: the implementation of OperationsService. What it
// shows comes from the parts of the gateway that know it.

import type { AuthenticatedCall, Implementation, serviceTypes } from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { type AccountsParts, findAccounts } from "./accounts.ts";
import { type ApprovalsParts, approve, listApprovals, reject } from "./approvals.ts";
import { type ConfiguredParts, listCatalog, listProviders } from "./configured.ts";
import { listMails, type MailsParts } from "./mails.ts";
import { addNote, listNotes } from "./notes.ts";
import { listDocuments, listPromotionUses } from "./purchases.ts";
import { type ResendParts, resendDocument, resendNotice } from "./resend.ts";
import { search } from "./search.ts";
import { describeNode, getStatus, type StatusParts, UnnamedProxies } from "./status.ts";
import { createOperationsStore } from "./store.ts";

export type Operations = {
  /** Without authentication: the interceptor has authenticated the caller. */
  readonly service: Implementation<typeof serviceTypes.operations, AuthenticatedCall>;
  /** How this process describes itself to the others, as JSON. */
  describe(): string;
  /** Call once an hour with each peer that looks like a proxy and is not named as one. */
  noteProxy(peer: string): void;
};

type Parts = StatusParts &
  ConfiguredParts &
  ApprovalsParts &
  Omit<ResendParts, "postgres"> &
  Omit<MailsParts, "reports"> &
  Omit<AccountsParts, "store" | "reports"> & {
    /** The reports about what is earned, owed and paid. */
    readonly sales: Pick<
      Implementation<typeof serviceTypes.operations, AuthenticatedCall>,
      "querySales" | "queryRevenue" | "queryLiabilities" | "listProviderBills" | "setProviderBill"
    >;
    readonly postgres: Pick<Postgres, "reports" | "run" | "transaction">;
  };

export function createOperations(parts: Parts): Operations {
  const proxies = new UnnamedProxies(parts.clock);
  const { reports } = parts.postgres;
  const { sales } = parts;
  const all = { ...parts, reports, store: createOperationsStore(reports) };
  return {
    service: {
      findAccounts: (request, call) => findAccounts(all, request, call),
      search: (request, call) => search(all, request, call),
      createAccountNote: (request, call) => addNote(all, request, call),
      listAccountNotes: (request, call) => listNotes(all, request, call),
      listMails: (request, call) => listMails(all, request, call),
      resendDocument: (request, call) => resendDocument(all, request, call),
      resendNotice: (request, call) => resendNotice(all, request, call),
      listPromotionUses: (request, call) => listPromotionUses(all, request, call),
      listDocuments: (request, call) => listDocuments(all, request, call),
      listApprovals: (request, call) => listApprovals(all, request, call),
      approve: (request, call) => approve(all, request, call),
      reject: (request, call) => reject(all, request, call),
      getStatus: () => getStatus(all),
      listProviders: (request, call) => listProviders(all, request, call),
      listCatalogModels: (request, call) => listCatalog(all, request, call),
      querySales: (request, call) => sales.querySales(request, call),
      queryRevenue: (request, call) => sales.queryRevenue(request, call),
      queryLiabilities: (request, call) => sales.queryLiabilities(request, call),
      listProviderBills: (request, call) => sales.listProviderBills(request, call),
      setProviderBill: (request, call) => sales.setProviderBill(request, call),
    },
    describe: () => describeNode(all, proxies.list()),
    noteProxy: (peer) => proxies.note(peer),
  };
}
