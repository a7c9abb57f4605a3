// All accounts: found by what operators know of them, with what they ask first.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AccountsService } from "../../../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  type AccountState,
  AccountState as AccountStatuses,
} from "../../../../gen/gateway/billing/v1/account_pb.ts";
import type { Pool } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import {
  AccountFilter,
  type AccountSummary,
  OperationsService,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { call, invalidate, usePages } from "../api.ts";
import { credits } from "../format.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { textOf } from "../parts/enum-names.ts";
import { ChoiceFilter, choiceOf, Filters, optionsOf, SearchFilter } from "../parts/filters.tsx";
import { Form, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { hasSecret } from "../parts/secret-text.ts";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf } from "../parts/table.tsx";
import { Empty } from "../parts/view.tsx";
import { go, useQuery } from "../router.ts";
import { isOperatorAdmin } from "../session.ts";
import { AccountLink, accountHref, LookOnly, Owners, PagedTable } from "./common.tsx";
import { words } from "./words.ts";

const filters = {
  all: AccountFilter.ALL,
  waiting: AccountFilter.WAITING,
  debt: AccountFilter.IN_DEBT,
  suspended: AccountFilter.SUSPENDED,
  closed: AccountFilter.CLOSED,
} as const;

export function Accounts(): JSX.Element {
  const [query, setQuery] = useQuery({ q: "", show: "all", new: "" });
  // One is found by a whole secret too, which must not be in the address.
  const [secret, setSecret] = useState("");
  const text = secret || query.q;
  const setText = (next: string) => {
    const isSecret = hasSecret(next);
    setSecret(isSecret ? next : "");
    setQuery({ q: isSecret ? "" : next });
  };
  const show = choiceOf(query.show, filters, "all");
  const accounts = usePages(
    OperationsService.method.findAccounts,
    { query: text.trim(), filter: filters[show], pageSize: 50 },
    (page) => page.accounts,
  );
  const isAll = text.trim() === "" && show === "all";
  const showAll = () => {
    setSecret("");
    setQuery({ q: "", show: "all" });
  };
  return (
    <>
      <Head
        title={words.accounts.title}
        tools={
          isOperatorAdmin() && (
            <Button
              kind="main"
              icon="plus"
              onClick={() => setQuery({ new: "1" }, { replace: true })}
            >
              {words.accounts.create}
            </Button>
          )
        }
      />
      <LookOnly />
      <Filters>
        <SearchFilter label={words.accounts.search} value={text} onInput={setText} />
        <ChoiceFilter
          label={words.accounts.show}
          value={show}
          onInput={(next) => setQuery({ show: next })}
          options={optionsOf(words.accounts.filters)}
        />
      </Filters>
      <Card flush>
        <PagedTable
          pages={accounts}
          greyRows={8}
          empty={
            isAll ? (
              <Empty title={words.accounts.emptyTitle}>{words.accounts.empty}</Empty>
            ) : (
              <Empty
                title={words.accounts.noMatchTitle}
                action={<Button onClick={showAll}>{words.accounts.showAll}</Button>}
              >
                {words.accounts.noMatch}
              </Empty>
            )
          }
          name="accounts"
          caption={words.accounts.caption}
          columns={columns}
          keyOf={({ account }) => account?.accountId ?? ""}
        />
      </Card>
      {query.new === "1" && isOperatorAdmin() && (
        <CreateDialog onClose={() => setQuery({ new: "" }, { replace: true })} />
      )}
    </>
  );
}

const columns: readonly Column<AccountSummary>[] = [
  {
    name: "account",
    head: words.accounts.head.account,
    sortBy: ({ account }) => account?.name ?? "",
    cell: ({ account }) => (
      <span class="row">
        <AccountLink accountId={account?.accountId ?? ""} name={account?.name} />
        <StatusTag status={account?.state ?? AccountStatuses.UNSPECIFIED} />
      </span>
    ),
  },
  { name: "owners", head: words.accounts.head.owners, cell: (one) => <Owners {...one} /> },
  {
    name: "v1",
    head: words.accounts.head.v1,
    sortBy: ({ pools }) => freeOf(pools, Family.V1),
    end: true,
    cell: ({ pools }) => freeText(pools, Family.V1),
  },
  {
    name: "v2",
    head: words.accounts.head.v2,
    sortBy: ({ pools }) => freeOf(pools, Family.V2),
    end: true,
    cell: ({ pools }) => freeText(pools, Family.V2),
  },
  {
    name: "spent",
    head: words.accounts.head.spent,
    sortBy: ({ spentMicrocredits }) => spentMicrocredits,
    end: true,
    cell: ({ spentMicrocredits }) => credits(spentMicrocredits),
  },
  { name: "waiting", head: words.accounts.head.waiting, cell: (one) => <WaitingTags {...one} /> },
  {
    name: "made",
    head: words.accounts.head.made,
    sortBy: ({ account }) => momentOf(account?.createdAt),
    cell: ({ account }) => <Time at={account?.createdAt} as="day" />,
  },
];

function freeOf(pools: readonly Pool[], family: Family): bigint | undefined {
  return pools.find((one) => one.family === family)?.freeMicrocredits;
}

function freeText(pools: readonly Pool[], family: Family): string {
  const free = freeOf(pools, family);
  return free === undefined ? words.none : credits(free);
}

export function StatusTag({ status }: { readonly status: AccountState }): JSX.Element | null {
  const text = textOf(AccountStatuses, words.accounts.statuses, status);
  if (text === "") return null;
  return <Tag {...(status === AccountStatuses.SUSPENDED && { tone: "warn" as const })}>{text}</Tag>;
}

/** What a person has to do. */
export function WaitingTags(
  props: Pick<AccountSummary, "waitingOrders" | "waitingApprovals" | "debtMicrocredits">,
): JSX.Element {
  const { waitingOrders, waitingApprovals, debtMicrocredits } = props;
  if (waitingOrders === 0 && waitingApprovals === 0 && debtMicrocredits === 0n)
    return <span class="faint">{words.none}</span>;
  return (
    <span class="tags">
      {waitingOrders > 0 && <Tag tone="warn">{words.accounts.orders(waitingOrders)}</Tag>}
      {waitingApprovals > 0 && <Tag tone="warn">{words.accounts.approvals(waitingApprovals)}</Tag>}
      {debtMicrocredits > 0n && (
        <Tag tone="bad">{words.accounts.debt(credits(debtMicrocredits))}</Tag>
      )}
    </span>
  );
}

function CreateDialog({ onClose }: { readonly onClose: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const make = async () => {
    const { account } = await call(AccountsService.method.createAccount, {
      settings: { name: name.trim() },
    });
    invalidate(OperationsService.method.findAccounts);
    notify(words.accounts.created(name.trim()));
    go(accountHref(account?.accountId ?? ""));
  };
  return (
    <Dialog title={words.accounts.createTitle} onClose={onClose}>
      <p class="muted">{words.accounts.createLead}</p>
      <Form
        submit={words.accounts.createButton}
        fields={["name"]}
        onSubmit={make}
        onCancel={onClose}
      >
        <TextField name="name" label={words.accounts.name} value={name} onInput={setName} isFirst />
      </Form>
    </Dialog>
  );
}
